//! Whether a block that was missed may take the place of another one: each that does is a write to
//! the flash, and of a scan none comes again.
//!
//! Called by queue pairs and by the simulator, with every reference. Under [`Admission::Again`] a
//! block is let in when it was missed or held before, lately: the default policy remembers that,
//! for others there is a history. That spares the flash, but costs each block its first hit, so it
//! is not always worth it. Under [`Admission::Auto`] both ways are tried on a sample of the blocks,
//! in two caches without data of a size in proportion, and the sparing one is taken while it misses
//! no more.
//!
//! Invariants
//! 1. A free slot is filled by any block; so is one by a write that stays in the cache.
//! 2. The sample is of blocks, by their hash: all references to a block are in it, or none.

use std::sync::atomic::{AtomicBool, Ordering};

use esker_base::policy::{Access, Kind, hash};
use esker_base::sync::Mutex;

use super::history::History;
use crate::mapping::{Mapping, Placement};
use crate::options::Admission;
use crate::sets::{Evict, Set};

/// The largest sample, in slots.
const SAMPLE_SLOTS: u64 = 4_096;
/// The smallest one, unless the cache is smaller.
const LEAST_SAMPLE: u64 = 256;
/// The share of a cache that the sample has, if it is neither.
const SAMPLE_SHARE: u64 = 32;
/// Keys of sampled blocks are numbers below this.
const KEYS: u64 = 1 << 31;
/// The sparing way has to write no more than this share of the writes of the other one.
const WORTH: f64 = 0.8;

pub(crate) struct Door {
    history: Option<History>,
    rehearsal: Option<Rehearsal>,
    is_strict: AtomicBool,
}

/// Both ways, on a sample.
struct Rehearsal {
    /// Blocks whose hashes are below are sampled.
    end: u64,
    stage: Mutex<Stage>,
}

struct Stage {
    all: Rehearsed,
    again: Rehearsed,
    history: History,
    seen: f64,
    period: f64,
}

struct Rehearsed {
    set: Set,
    hits: f64,
    writes: f64,
}

/// How many missed blocks a cache of this size remembers, about.
fn reach(slots: u64) -> u64 {
    slots / 2
}

impl Door {
    /// For a cache of `slots` slots under `policy`.
    pub(crate) fn new(rule: Admission, slots: u64, policy: Kind) -> Door {
        Door {
            history: (rule != Admission::All && !policy.remembers())
                .then(|| History::new(reach(slots))),
            rehearsal: (rule == Admission::Auto).then(|| Rehearsal::new(slots, policy)),
            is_strict: AtomicBool::new(rule == Admission::Again),
        }
    }

    /// `block` is referenced, cached or not.
    #[inline]
    pub(crate) fn see(&self, block: u64, access: Access) {
        if let Some(rehearsal) = &self.rehearsal {
            let hashed = hash(block);
            if hashed < rehearsal.end
                && let Some(is_strict) = rehearsal.stage.lock().play(hashed, access)
            {
                self.is_strict.store(is_strict, Ordering::Relaxed);
            }
        }
    }

    /// Whether `block`, which was missed, may take the place of another one. A policy may know
    /// itself which blocks come again: that is `asked`.
    #[inline]
    pub(crate) fn admits(&self, block: u64, asked: impl FnOnce() -> bool) -> bool {
        let is_strict = self.is_strict.load(Ordering::Relaxed);
        match &self.history {
            Some(history) => history.note(hash(block)) || !is_strict,
            None => !is_strict || asked(),
        }
    }

    /// Whether a block that is not asked for yet may take the place of another one.
    pub(crate) fn admits_unasked(&self) -> bool {
        !self.is_strict.load(Ordering::Relaxed)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let stage = self.rehearsal.as_ref().map_or(0, |rehearsal| {
            let stage = rehearsal.stage.lock();
            let sets = stage.all.set.memory_bytes() + stage.again.set.memory_bytes();
            sets + stage.history.heap_bytes()
        });
        stage + self.history.as_ref().map_or(0, History::heap_bytes)
    }
}

impl Rehearsal {
    fn new(slots: u64, policy: Kind) -> Rehearsal {
        let sample = (slots / SAMPLE_SHARE).clamp(LEAST_SAMPLE, SAMPLE_SLOTS).min(slots.max(1));
        let end = match sample == slots {
            true => u64::MAX,
            false => u64::MAX / slots * sample,
        };
        let build = || {
            let capacity = u32::try_from(sample).unwrap_or(u32::MAX);
            let mapping = Mapping::new(Placement::Linear, KEYS, 1, 1, 0);
            let mapping = mapping.expect("2^31 keys fit a set's tags");
            // A policy that adapts needs a sample of its own, and the optimum the future.
            let policy = match policy {
                Kind::Adaptive => Kind::S3Fifo,
                Kind::Belady => Kind::Lru,
                other => other,
            };
            let set = Set::new(0, mapping, policy.build(capacity));
            Rehearsed { set, hits: 0.0, writes: 0.0 }
        };
        let stage = Stage {
            all: build(),
            again: build(),
            history: History::new(reach(sample)),
            seen: 0.0,
            period: f64::from(u32::try_from(sample).unwrap_or(u32::MAX)),
        };
        Rehearsal { end, stage: Mutex::new(stage) }
    }
}

impl Stage {
    /// A reference to a sampled block; now and then, whether to be strict.
    fn play(&mut self, hashed: u64, access: Access) -> Option<bool> {
        // The high bits decided that it is sampled.
        let key = hashed % KEYS;
        self.all.refer(key, access, || true);
        let history = &self.history;
        self.again.refer(key, access, || history.note(hash(key)));
        self.seen += 1.0;
        if self.seen < self.period {
            return None;
        }
        let is_strict =
            self.again.hits >= self.all.hits && self.again.writes <= WORTH * self.all.writes;
        self.seen /= 2.0;
        for one in [&mut self.all, &mut self.again] {
            one.hits /= 2.0;
            one.writes /= 2.0;
        }
        Some(is_strict)
    }
}

impl Rehearsed {
    fn refer(&mut self, key: u64, access: Access, is_admitted: impl FnOnce() -> bool) {
        if let Some(slot) = self.set.lookup(key) {
            self.set.hit(slot, access);
            self.hits += 1.0;
            if access == Access::Write {
                self.writes += 1.0;
            }
            return;
        }
        let is_full = self.set.held() == self.set.slots();
        if (!is_full || access == Access::Write || is_admitted())
            && self.set.insert(key, access, Evict::Any).is_some()
        {
            self.writes += 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;
    use std::collections::{BTreeSet, VecDeque};

    /// Share of its misses that a cache of `slots` slots lets in, in the second half of a load.
    fn let_in(rule: Admission, mut next: impl FnMut(u64) -> u64) -> f64 {
        let slots = 20_000;
        let door = Door::new(rule, slots, Kind::Lru);
        let (mut cache, mut known) = (VecDeque::new(), BTreeSet::new());
        let (mut misses, mut admitted) = (0.0, 0.0);
        for n in 0..400_000 {
            let block = next(n);
            door.see(block, Access::Read);
            if known.contains(&block) {
                continue;
            }
            let is_full = cache.len() as u64 == slots;
            let is_in = !is_full || door.admits(block, || unreachable!("LRU does not remember"));
            if n > 200_000 {
                misses += 1.0;
                admitted += f64::from(u8::from(is_in));
            }
            if is_in {
                if is_full {
                    known.remove(&cache.pop_front().unwrap());
                }
                cache.push_back(block);
                known.insert(block);
            }
        }
        admitted / misses
    }

    #[test]
    fn a_scan_is_kept_out_and_a_set_that_moves_is_not() {
        // Blocks that are read once, and never again.
        let scan = |n: u64| 1_000_000 + n;
        assert_eq!(let_in(Admission::All, scan), 1.0);
        assert!(let_in(Admission::Again, scan) < 0.04);
        assert!(let_in(Admission::Auto, scan) < 0.04);
        // Each block is read twice soon after each other, and then never again: a cache that waits
        // for the second time has no hits at all.
        let twice = |n: u64| 1_000_000 + n / 2_000 * 1_000 + n % 1_000;
        assert!(let_in(Admission::Auto, twice) > 0.95);
        // Three times, and one of every four references to a block that is read once. A cache that
        // waits writes half as much, and has half the hits.
        let thrice = |n: u64| match n % 4 {
            3 => 1_000_000_000 + n,
            step => 1_000_000 + n / 4_000 * 1_000 + (n % 4_000 / 4 * 3 + step) % 1_000,
        };
        assert!(let_in(Admission::Auto, thrice) > 0.95);
        // A hot part among blocks that are read once: it is known, the rest is not wanted.
        let mut rng = Rng::new(1);
        let mixed =
            move |n: u64| if n.is_multiple_of(2) { rng.below(15_000) } else { 1_000_000 + n };
        assert!(let_in(Admission::Auto, mixed) < 0.6);
    }

    #[test]
    fn a_rehearsal_fills_free_slots_with_whatever_comes() {
        let rehearsal = Rehearsal::new(100, Kind::Lru);
        let mut stage = rehearsal.stage.lock();
        let again = &mut stage.again;
        (0..100).for_each(|key| again.refer(key, Access::Read, || false));
        assert_eq!((again.set.held(), again.writes), (100, 100.0));
        again.refer(100, Access::Read, || false);
        assert_eq!((again.set.lookup(100), again.writes), (None, 100.0));
        again.refer(101, Access::Write, || false);
        again.refer(102, Access::Read, || true);
        assert_eq!((again.hits, again.writes), (0.0, 102.0));
    }

    #[test]
    fn a_sample_is_small_and_of_a_small_cache_everything() {
        let sampled = |slots| Rehearsal::new(slots, Kind::Lru).stage.lock().all.set.slots();
        assert_eq!([100, 1_000, 100_000, 1 << 40].map(sampled), [100, 256, 3_125, 4_096]);
        let door = Door::new(Admission::Auto, 1 << 20, Kind::default());
        // The policy remembers by itself; of others half as many blocks are, in a byte each.
        assert!(door.memory_bytes() <= 300 << 10, "{}", door.memory_bytes());
        let door = Door::new(Admission::Auto, 1 << 20, Kind::Lru);
        assert!(door.memory_bytes() <= (1 << 19) + (300 << 10), "{}", door.memory_bytes());
    }
}
