//! Ranges of keys in which walks have found only deleted or expired keys, so that those to come pass over
//! each with one seek. They are of keys as readers see them, wherever these lie, so maintenance changes nothing of
//! them.
//!
//! A walk that comes to deleted keys sends a scout, and adds the range that it has passed when it comes to a row.
//!
//! Invariants
//! 1. Of a KVS, ranges are apart. A reader as of the range's seqno and time, or later, finds no key in it: a put
//!    takes its key out before any reader sees it ([`DeadRanges::put`]).
//! 2. A scout knows the first put beyond its start since it began. An earlier put is in the memtable then: the
//!    walk looks there again ([`Merge::look_again`](crate::tree::source::Merge::look_again)).
//! 3. Without `is_watched` there are neither ranges nor scouts. It becomes true while no write is under way.

use std::collections::BTreeMap;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::types::ids::{KvsId, Seqno};

/// Ranges of keys that are known to be dead.
pub(crate) struct DeadRanges {
    is_watched: AtomicBool,
    /// DRAM that they may take, in bytes.
    bytes_most: usize,
    /// Fewer keys are not worth a range.
    keys_least: u64,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By their first keys.
    ranges: BTreeMap<(KvsId, Vec<u8>), DeadRange>,
    bytes: usize,
    scouts: Vec<ScoutState>,
    last_scout: u64,
}

/// A range, but for its first key.
struct DeadRange {
    /// The first key behind it.
    end: Vec<u8>,
    /// Only readers as of these and later may pass over it.
    seqno: Seqno,
    time_ms: u64,
    /// How many keys walks have passed over in it, about.
    keys: u64,
}

struct ScoutState {
    id: u64,
    kvs: KvsId,
    forward: bool,
    from: Vec<u8>,
    /// The first put beyond `from` that it is told of, in the direction of the walk.
    put: Option<Vec<u8>>,
}

/// A walk through deleted keys, as long as it has come to no row.
pub(crate) struct Scout<'d> {
    ranges: &'d DeadRanges,
    id: u64,
}

/// A part that a walk has found to be dead: from a key to below another.
pub(crate) struct DeadPart<'k> {
    pub(crate) kvs: KvsId,
    pub(crate) lower: &'k [u8],
    pub(crate) end: &'k [u8],
    /// Readers as of these or later find it so.
    pub(crate) seqno: Seqno,
    pub(crate) time_ms: u64,
    pub(crate) keys: u64,
}

/// DRAM of a range besides its keys, in bytes.
const RANGE_DRAM: usize = 160;

/// The key right behind this one.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl DeadRanges {
    /// None yet. They take up to `bytes_most` bytes, and each has `keys_least` keys.
    pub(crate) fn new(bytes_most: usize, keys_least: u64) -> DeadRanges {
        let is_watched = AtomicBool::new(false);
        DeadRanges { is_watched, bytes_most, keys_least, known: Mutex::default() }
    }

    /// Whether anybody has to be told of puts. It becomes true under the writer's lock alone.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Acquire)
    }

    /// DRAM in use, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.known.lock().bytes as u64
    }

    /// The bounds of the range that holds `key`, for a reader as of a seqno and a time.
    pub(crate) fn around(
        &self,
        kvs: KvsId,
        key: &[u8],
        (seqno, time_ms): (Seqno, u64),
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let known = self.known.lock();
        let ((_, lower), range) = known.last_from(kvs, key)?;
        let holds = key < &range.end[..] && range.seqno <= seqno && range.time_ms <= time_ms;
        holds.then(|| (lower.clone(), range.end.clone()))
    }

    /// Sends a scout from `from`; none when nobody is told of puts, and no writer is kept from making some now.
    pub(crate) fn scout(
        &self,
        kvs: KvsId,
        from: &[u8],
        forward: bool,
        without_writer: bool,
    ) -> Option<Scout<'_>> {
        let mut known = self.known.lock();
        if !self.is_watched() {
            if !without_writer {
                return None;
            }
            self.is_watched.store(true, Ordering::Release);
        }
        known.last_scout += 1;
        let (id, from) = (known.last_scout, from.to_vec());
        known.scouts.push(ScoutState { id, kvs, forward, from, put: None });
        Some(Scout { ranges: self, id })
    }

    /// Takes a key that was put out of all ranges. The memtable has it, and no reader sees it yet.
    pub(crate) fn put(&self, kvs: KvsId, key: &[u8]) {
        let mut known = self.known.lock();
        for scout in known.scouts.iter_mut().filter(|scout| scout.kvs == kvs) {
            scout.note(key);
        }
        known.split(kvs, key, self.keys_least);
        self.watch_if_needed(&known);
    }

    /// Forgets the ranges of a KVS.
    pub(crate) fn forget(&self, kvs: KvsId) {
        let mut known = self.known.lock();
        known.ranges.retain(|(of, _), _| *of != kvs);
        known.bytes = known.ranges.iter().map(|((_, lower), range)| dram(lower, range)).sum();
        self.watch_if_needed(&known);
    }

    fn watch_if_needed(&self, known: &Known) {
        if known.ranges.is_empty() && known.scouts.is_empty() {
            self.is_watched.store(false, Ordering::Release);
        }
    }
}

impl ScoutState {
    fn note(&mut self, key: &[u8]) {
        let is_beyond = if self.forward { key >= &self.from[..] } else { key <= &self.from[..] };
        let is_first = self.put.as_ref().is_none_or(|put| (key < &put[..]) == self.forward);
        if is_beyond && is_first {
            self.put = Some(key.to_vec());
        }
    }
}

impl Scout<'_> {
    /// Adds the ranges that the walk has found since it began, but for keys put meanwhile. Few keys are added only
    /// where they are `between` ranges.
    pub(crate) fn add(&self, found: &DeadPart<'_>, between: bool) {
        let mut known = self.ranges.known.lock();
        let DeadPart { kvs, mut lower, mut end, seqno, time_ms, keys } = *found;
        let state = known.scouts.iter().find(|scout| scout.id == self.id);
        let state = state.expect("it ends when it is dropped");
        let put = state.put.clone();
        let behind = put.as_deref().map(successor);
        match (&put, &behind) {
            (Some(put), _) if state.forward => end = end.min(put),
            (_, Some(behind)) => lower = lower.max(behind),
            _ => {}
        }
        if lower < end && (keys >= self.ranges.keys_least || between) {
            let range = DeadRange { end: end.to_vec(), seqno, time_ms, keys };
            known.add(kvs, lower.to_vec(), range);
            known.make_room(self.ranges.bytes_most);
        }
    }
}

impl Drop for Scout<'_> {
    fn drop(&mut self) {
        let mut known = self.ranges.known.lock();
        known.scouts.retain(|scout| scout.id != self.id);
        self.ranges.watch_if_needed(&known);
    }
}

fn dram(lower: &[u8], range: &DeadRange) -> usize {
    lower.len() + range.end.len() + RANGE_DRAM
}

impl Known {
    /// The last range that begins at `key` or before it.
    fn last_from(&self, kvs: KvsId, key: &[u8]) -> Option<(&(KvsId, Vec<u8>), &DeadRange)> {
        let through = self.ranges.range(..=(kvs, key.to_vec())).next_back();
        through.filter(|((of, _), _)| *of == kvs)
    }

    fn insert(&mut self, kvs: KvsId, lower: Vec<u8>, range: DeadRange) {
        self.bytes += dram(&lower, &range);
        self.ranges.insert((kvs, lower), range);
    }

    fn remove(&mut self, at: &(KvsId, Vec<u8>)) -> Option<DeadRange> {
        let range = self.ranges.remove(at)?;
        self.bytes -= dram(&at.1, &range);
        Some(range)
    }

    fn split(&mut self, kvs: KvsId, key: &[u8], keys_least: u64) {
        let Some((at, range)) = self.last_from(kvs, key) else { return };
        if key >= &range.end[..] {
            return;
        }
        let at = at.clone();
        let DeadRange { end, seqno, time_ms, keys } = self.remove(&at).expect("it was found");
        let halves = [(at.1, key.to_vec()), (successor(key), end)];
        for (lower, end) in halves.into_iter().filter(|(lower, end)| lower < end) {
            // It is not known where in the range its keys are.
            if keys / 2 >= keys_least {
                self.insert(kvs, lower, DeadRange { end, seqno, time_ms, keys: keys / 2 });
            }
        }
    }

    /// Adds a range, as one with those that it overlaps, and with those next to it that are not much larger: so
    /// there are few, and those that are known to most readers stay so.
    fn add(&mut self, kvs: KvsId, mut lower: Vec<u8>, mut range: DeadRange) {
        loop {
            let before = self.last_from(kvs, &lower);
            let behind = self.ranges.range((kvs, lower.clone())..=(kvs, range.end.clone())).next();
            let joins = |(at, other): &(&(KvsId, Vec<u8>), &DeadRange)| {
                let overlaps = at.1 < range.end && lower < other.end;
                let touches = at.1 == range.end || lower == other.end;
                overlaps || touches && other.keys <= 2 * range.keys
            };
            let Some((at, _)) = before.filter(joins).or_else(|| behind.filter(joins)) else {
                break;
            };
            let at = at.clone();
            let other = self.remove(&at).expect("it was found");
            lower = lower.min(at.1);
            range = DeadRange {
                end: range.end.max(other.end),
                seqno: range.seqno.max(other.seqno),
                time_ms: range.time_ms.max(other.time_ms),
                keys: range.keys + other.keys,
            };
        }
        self.insert(kvs, lower, range);
    }

    /// Forgets the smallest ones beyond so many bytes.
    fn make_room(&mut self, bytes_most: usize) {
        while self.bytes > bytes_most {
            let smallest = self.ranges.iter().min_by_key(|(_, range)| range.keys);
            let at = smallest.expect("what is none takes no bytes").0.clone();
            self.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;
    use std::collections::BTreeSet;

    const KVS: KvsId = KvsId(3);

    fn add(ranges: &DeadRanges, lower: &str, end: &str, seqno: u64, keys: u64) {
        let scout = ranges.scout(KVS, lower.as_bytes(), true, true).unwrap();
        let (lower, end) = (lower.as_bytes(), end.as_bytes());
        let seqno = Seqno(seqno);
        scout.add(&DeadPart { kvs: KVS, lower, end, seqno, time_ms: 0, keys }, false);
    }

    fn known(ranges: &DeadRanges) -> Vec<(String, String, u64)> {
        let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
        let known = ranges.known.lock();
        known.ranges.iter().map(|((_, l), r)| (text(l), text(&r.end), r.seqno.0)).collect()
    }

    #[test]
    fn a_put_takes_its_key_out_of_ranges_and_of_scouts() {
        let ranges = DeadRanges::new(1 << 20, 4);
        assert!(!ranges.is_watched() && ranges.scout(KVS, b"a", true, false).is_none());
        add(&ranges, "b", "f", 7, 100);
        assert_eq!(ranges.around(KVS, b"c", (Seqno(6), 0)), None);
        assert_eq!(ranges.around(KvsId(4), b"c", (Seqno(7), 0)), None);
        assert_eq!(ranges.around(KVS, b"f", (Seqno(7), 0)), None);
        assert!(ranges.around(KVS, b"b", (Seqno(7), 0)).is_some());
        ranges.put(KVS, b"d");
        let halves = [("b".into(), "d".into(), 7), ("d\0".into(), "f".into(), 7)];
        assert_eq!(known(&ranges), halves);
        for (forward, expected) in [(true, ("g", "m")), (false, ("m\0", "q"))] {
            ranges.forget(KVS);
            let from: &[u8] = if forward { b"g" } else { b"q" };
            let scout = ranges.scout(KVS, from, forward, true).unwrap();
            let puts = if forward { [b"e", b"m", b"p"] } else { [b"z", b"m", b"h"] };
            puts.iter().for_each(|key| ranges.put(KVS, *key));
            let found = DeadPart {
                kvs: KVS,
                lower: b"g",
                end: b"q",
                seqno: Seqno(9),
                time_ms: 0,
                keys: 10,
            };
            scout.add(&found, false);
            assert_eq!(known(&ranges), [(expected.0.into(), expected.1.into(), 9)]);
        }
        ranges.forget(KVS);
        assert!(!ranges.is_watched() && ranges.bytes() == 0);
    }

    #[test]
    fn a_range_joins_smaller_neighbours_and_leaves_larger_ones_to_older_readers() {
        let ranges = DeadRanges::new(1 << 20, 4);
        add(&ranges, "a", "c", 1, 1000);
        add(&ranges, "c", "d", 2, 10);
        assert_eq!(known(&ranges).len(), 2);
        add(&ranges, "d", "e", 3, 10);
        assert_eq!(known(&ranges)[1], ("c".into(), "e".into(), 3));
        add(&ranges, "e", "f", 4, 600);
        assert_eq!(known(&ranges), [("a".into(), "f".into(), 4)]);
    }

    #[test]
    fn ranges_hold_no_key_that_is_put_whatever_comes() {
        // Two letters a key; a key is dead for a reader as of now unless its last change was a put.
        for seed in 0..200 {
            let (ranges, mut rng) = (DeadRanges::new(2 << 10, 1), Rng::new(seed));
            let mut alive = BTreeSet::new();
            let key = |n: u64| vec![b'a' + u8::try_from(n).unwrap()];
            for seqno in (1..300).map(Seqno) {
                let (low, high) = (rng.below(20), rng.below(20));
                if rng.chance(1, 2) {
                    alive.insert(key(low));
                    ranges.put(KVS, &key(low));
                } else if rng.chance(1, 2) {
                    alive.remove(&key(low));
                } else if low < high && alive.range(key(low)..key(high)).next().is_none() {
                    let scout = ranges.scout(KVS, &key(low), true, true).unwrap();
                    let put = rng.chance(1, 4).then(|| key(rng.below(20)));
                    if let Some(put) = &put {
                        ranges.put(KVS, put);
                        alive.insert(put.clone());
                    }
                    let (lower, end) = (&key(low)[..], &key(high)[..]);
                    let keys = rng.below(9);
                    let found = DeadPart { kvs: KVS, lower, end, seqno, time_ms: 0, keys };
                    scout.add(&found, rng.chance(1, 2));
                }
                for n in 0..20 {
                    let around = ranges.around(KVS, &key(n), (seqno, 0));
                    assert!(around.is_none() || !alive.contains(&key(n)), "seed {seed}: {n}");
                }
                assert!(ranges.bytes() <= 2 << 10);
            }
        }
    }
}
