//! Writes dirty blocks back, and gives clean ones names, once they are of an age: also beside use.
//!
//! The age of dirty blocks is kept by set: the moment since which something in it may be dirty. A set of half the age
//! is *swept*: what is dirty by then goes to the origin in its order, in small batches. So there is half the age for
//! that, and the rests between the batches become shorter the less of it is left.
//!
//! Invariants
//! 1. A set that has a dirty block has a moment, which is no later than the one at which the block became dirty.
//! 2. A sweep ends after every block that was dirty when it began was written back, or has failed to be.

use std::time::Duration;

use esker_base::Nanos;
use esker_base::units::{to_nanos, to_usize};

use super::{BATCH, Cleaner, Entry, Which};
use crate::CacheError;
use crate::commit::Wanted;
use crate::options::Mode;
use crate::shared::Shared;

/// Writes of a batch, which are movements of a disk, at most.
const MOST_RUNS: usize = 32;
/// How often a sweep tries again to write back blocks that are being written.
const TRIES: u32 = 16;
/// Names that are given at once, at most.
const MOST_NAMES: usize = 4096;
/// How often the sets are looked at for dirty blocks: parts of the age.
const LOOKS: u32 = 16;
/// Sets are looked at no more often than this.
const LEAST_LOOK: Duration = Duration::from_millis(100);
/// While the cache is in use, its thread rests this many times as long as it works.
const REST: u32 = 9;

/// The age of what is dirty, and of what has no name.
pub(crate) struct Ages {
    /// For each set the moment since which something in it may be dirty.
    since: Box<[Option<Nanos>]>,
    looked: Nanos,
    sweep: Option<Sweep>,
    /// When clean blocks were given names last, and the set and the index where that goes on.
    named: Nanos,
    naming: Option<(u32, u32)>,
}

/// The writing back of a set.
struct Sweep {
    set: u32,
    began: Nanos,
    /// Blocks that are left, the last one first, and those that were being written.
    left: Vec<u64>,
    busy: Vec<u64>,
    tries: u32,
    has_failed: bool,
}

impl Ages {
    pub(super) fn new(shared: &Shared) -> Ages {
        let now = shared.options.clock.now();
        let since = vec![None; to_usize(shared.layout.sets.into())].into();
        Ages { since, looked: now, sweep: None, named: now, naming: None }
    }

    /// Looks which sets have dirty blocks.
    fn look(&mut self, shared: &Shared, age: Duration) {
        let now = shared.options.clock.now();
        if now.since(self.looked) < (age / LOOKS).max(LEAST_LOOK) {
            return;
        }
        let is_unread_dirty = shared.unread_dirty() > 0;
        for (number, since) in (0..).zip(&mut self.since) {
            let has_dirty =
                shared.set_if_read(number).map_or(is_unread_dirty, |set| set.set.dirty_count() > 0);
            // It may have become dirty just after the last look.
            *since = has_dirty.then(|| since.unwrap_or(self.looked));
        }
        self.looked = now;
    }

    /// The set to write back that is dirty for longest, if it is of the age.
    fn oldest(&self, now: Nanos, age: Duration) -> Option<u32> {
        let dirty = (0u32..).zip(&self.since).filter_map(|(set, since)| Some((set, (*since)?)));
        let oldest = dirty.min_by_key(|(_, since)| *since);
        oldest.filter(|(_, since)| now.since(*since) >= age).map(|(set, _)| set)
    }
}

impl Sweep {
    fn of(shared: &Shared, number: u32) -> Result<Sweep, CacheError> {
        let began = shared.options.clock.now();
        let set = shared.set(number)?;
        let dirty = set.dirty_slots(0);
        let mut left: Vec<u64> = dirty.into_iter().filter_map(|slot| set.set.block(slot)).collect();
        left.sort_unstable_by(|one, other| other.cmp(one));
        Ok(Sweep { set: number, began, left, busy: Vec::new(), tries: 0, has_failed: false })
    }

    /// The next blocks, in the origin's order, no more than a batch beside use may have.
    fn gather(&mut self, shared: &Shared) -> Result<Vec<Entry>, CacheError> {
        if self.left.is_empty() {
            self.busy.sort_unstable_by(|one, other| other.cmp(one));
            std::mem::swap(&mut self.left, &mut self.busy);
            self.tries += 1;
        }
        let mut set = shared.set(self.set)?;
        let mut entries: Vec<Entry> = Vec::new();
        let mut runs = 0;
        while let Some(&block) = self.left.last() {
            let is_next = entries.last().is_some_and(|last| last.block + 1 == block);
            if entries.len() == BATCH || runs == MOST_RUNS && !is_next {
                break;
            }
            self.left.pop();
            let Some(index) = set.set.lookup(block).filter(|index| set.set.is_dirty(*index)) else {
                continue; // others wrote it back
            };
            if shared.is_in_range(block) || set.begin_clean(index).is_none() {
                self.busy.push(block);
                continue;
            }
            runs += usize::from(!is_next);
            let slot = shared.slot(self.set, index);
            entries.push(Entry { block, slot, buf: None, is_done: false });
        }
        Ok(entries)
    }

    fn is_over(&self) -> bool {
        self.left.is_empty() && (self.busy.is_empty() || self.tries >= TRIES)
    }
}

impl Cleaner {
    /// Writes back a batch of what is dirty for half of the age that it may have, or, in a mode that makes nothing dirty,
    /// of anything. Returns how many blocks are clean now.
    pub(crate) fn clean_aged(&mut self, shared: &Shared) -> Result<u64, CacheError> {
        let Some(age) = dirty_age(shared) else { return Ok(0) };
        self.ages.look(shared, age);
        if self.ages.sweep.is_none() {
            let now = shared.options.clock.now();
            let Some(set) = self.ages.oldest(now, age / 2) else { return Ok(0) };
            // A set that cannot be read has its turn again later.
            self.ages.since[to_usize(set.into())] = Some(now);
            self.ages.sweep = Some(Sweep::of(shared, set)?);
        }
        let cleaned = self.clean(shared, Which::Aged);
        let Some(sweep) = &mut self.ages.sweep else { return cleaned };
        sweep.has_failed |= cleaned.is_err();
        if sweep.is_over() {
            let is_whole = !sweep.has_failed && sweep.busy.is_empty();
            let began = match is_whole {
                true => sweep.began,
                // The rest is tried again in a quarter of the age.
                false => Nanos(sweep.began.0.saturating_sub(to_nanos(age / 4))),
            };
            let set = sweep.set;
            let has_dirty = shared.set_if_read(set).is_none_or(|set| set.set.dirty_count() > 0);
            self.ages.since[to_usize(set.into())] = has_dirty.then_some(began);
            self.ages.sweep = None;
        }
        cleaned
    }

    /// Writes back what is dirty in a set now, as fast as it goes.
    ///
    /// # Errors
    /// `InUse` when others did not let go of a block; a device's.
    pub(crate) fn sweep(&mut self, shared: &Shared, number: u32) -> Result<(), CacheError> {
        self.ages.sweep = Some(Sweep::of(shared, number)?);
        loop {
            let cleaned = self.clean(shared, Which::Aged);
            let sweep = self.ages.sweep.as_mut().expect("it goes on until here");
            if cleaned.is_ok() && !sweep.is_over() {
                if sweep.left.is_empty() {
                    esker_base::Clock::real().sleep(Duration::from_millis(1));
                }
                continue;
            }
            let is_whole = sweep.busy.is_empty() && !sweep.has_failed;
            self.ages.sweep = None;
            cleaned?;
            return match is_whole {
                true => Ok(()),
                false => Err(CacheError::InUse { device: shared.flash.name().to_owned() }),
            };
        }
    }

    pub(super) fn gather_aged(&mut self, shared: &Shared) -> Result<Vec<Entry>, CacheError> {
        match &mut self.ages.sweep {
            Some(sweep) => sweep.gather(shared),
            None => Ok(Vec::new()),
        }
    }

    /// A batch of the sweep was not written back whole.
    pub(super) fn fail_sweep(&mut self) {
        if let Some(sweep) = &mut self.ages.sweep {
            sweep.has_failed = true;
        }
    }

    /// How many times as long as it worked the cache's thread rests while the cache is in use.
    pub(crate) fn rest(&self, shared: &Shared) -> u32 {
        let Some((age, now)) = dirty_age(shared).map(|age| (age, shared.options.clock.now()))
        else {
            return REST;
        };
        let dirty = self.ages.since.iter().flatten();
        let Some(oldest) = dirty.min() else { return REST };
        let oldest = self.ages.sweep.as_ref().map_or(*oldest, |sweep| {
            // The set that is swept is as old as the age at which it was taken.
            (*oldest).min(Nanos(sweep.began.0.saturating_sub(to_nanos(age / 2))))
        });
        let left = age.saturating_sub(now.since(oldest));
        // The less of the second half is left, the shorter; all of it, in a mode that makes nothing dirty.
        let eighths = to_nanos(left).saturating_mul(16) / to_nanos(age).max(1);
        1 + u32::try_from(eighths).unwrap_or(REST).min(REST - 1)
    }

    /// Gives names to clean blocks, every half of the age at which they have to have one. Returns whether any got one.
    pub(crate) fn name_aged(&mut self, shared: &Shared) -> Result<bool, CacheError> {
        let Some(age) = shared.bounds().name_age else { return Ok(false) };
        let now = shared.options.clock.now();
        let (mut number, mut from) = match self.ages.naming.take() {
            Some(place) => place,
            None if now.since(self.ages.named) < age / 2 => return Ok(false),
            None => {
                self.ages.named = now;
                (0, 0)
            }
        };
        let mut slots = Vec::new();
        while number < shared.layout.sets && slots.len() < MOST_NAMES {
            let unnamed = shared.set_if_read(number).filter(|set| set.has_unnamed());
            let unnamed = unnamed.map_or_else(Vec::new, |set| set.unnamed_clean_slots(from));
            let room = MOST_NAMES - slots.len();
            slots.extend(unnamed.iter().take(room).map(|index| shared.slot(number, *index)));
            (number, from) = match unnamed.get(room) {
                Some(next) => (number, *next),
                None => (number + 1, 0),
            };
        }
        if number < shared.layout.sets {
            self.ages.naming = Some((number, from));
        }
        match slots.is_empty() {
            true => Ok(false),
            false => Ok(shared.commit(&Wanted::Named(&slots))? > 0),
        }
    }
}

/// How long a block may be dirty beside use. In a mode that makes none dirty, not at all.
fn dirty_age(shared: &Shared) -> Option<Duration> {
    match shared.mode() {
        Mode::WriteBack => shared.bounds().dirty_age,
        Mode::WriteThrough | Mode::WriteAround => Some(Duration::ZERO),
    }
}
