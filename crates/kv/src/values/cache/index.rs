//! The index of a shard: where the record with a hash is. Open addressing with linear probing, in one
//! table of eight bytes an entry, so that a search mostly reads one cache line, which can be asked for
//! ahead of need.
//!
//! Invariants
//! 1. An entry is at its home or behind it, with no empty slot between: removing moves up the entries that follow.
//! 2. At most three quarters of the slots are in use, so that every search meets an empty one.

use esker_base::prefetch;
use esker_base::units::to_usize;

use super::segment::CachePlace;

/// A slot of the table.
#[derive(Clone, Copy)]
struct IndexSlot {
    hash: u32,
    /// `None` in an empty slot.
    place: Option<CachePlace>,
}

const EMPTY: IndexSlot = IndexSlot { hash: 0, place: None };

/// Places by the hash of the key of the record there.
#[derive(Default)]
pub(super) struct Index {
    /// A power of two of slots, or none.
    slots: Box<[IndexSlot]>,
    len: usize,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Slots, in use or not.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Memory in use.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Whether one more entry needs a larger table.
    pub(super) fn is_full(&self) -> bool {
        4 * (self.len + 1) > 3 * self.slots.len()
    }

    /// Makes room for one more entry.
    pub(super) fn reserve(&mut self) {
        if self.is_full() {
            self.resize((2 * self.slots.len()).max(8));
        }
    }

    /// Makes the table as small as its entries allow, if that halves it; whether it did.
    pub(super) fn shrink(&mut self) -> bool {
        let least = match self.len {
            0 => 0,
            len => (4 * len).div_ceil(3).next_power_of_two().max(8),
        };
        let smaller = least < self.slots.len();
        if smaller {
            self.resize(least);
        }
        smaller
    }

    /// Moves everything to a table of `slots` slots, which is enough.
    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; slots].into_boxed_slice());
        self.len = 0;
        for slot in &old {
            if let Some(place) = slot.place {
                self.insert(slot.hash, place);
            }
        }
    }

    /// Adds an entry, for which there is room.
    pub(super) fn insert(&mut self, hash: u32, place: CachePlace) {
        let mut at = self.home(hash);
        while self.slots[at].place.is_some() {
            at = self.after(at);
        }
        self.slots[at] = IndexSlot { hash, place: Some(place) };
        self.len += 1;
    }

    /// The first place with this hash that is the right one.
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(CachePlace) -> bool) -> Option<CachePlace> {
        self.position(hash, is_it).and_then(|at| self.slots[at].place)
    }

    /// Asks for the memory in which a search for `hash` begins.
    pub(super) fn prefetch(&self, hash: u32) {
        if !self.slots.is_empty() {
            prefetch(&self.slots[self.home(hash)]);
        }
    }

    /// Gives the entry with this hash and place another place.
    pub(super) fn replace(&mut self, hash: u32, old: CachePlace, new: CachePlace) {
        if let Some(at) = self.position(hash, |place| place == old) {
            self.slots[at].place = Some(new);
        }
    }

    /// Removes the entry with this hash and place; false when there is none.
    pub(super) fn remove(&mut self, hash: u32, place: CachePlace) -> bool {
        let Some(mut hole) = self.position(hash, |other| other == place) else {
            return false;
        };
        let mut at = hole;
        loop {
            at = self.after(at);
            let slot = self.slots[at];
            if slot.place.is_none() {
                break;
            }
            // It may move to the hole unless its home lies behind that.
            let mask = self.slots.len() - 1;
            let from_home = at.wrapping_sub(self.home(slot.hash)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = EMPTY;
        self.len -= 1;
        true
    }

    fn position(&self, hash: u32, is_it: impl Fn(CachePlace) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            let place = slot.place?;
            if slot.hash == hash && is_it(place) {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    fn home(&self, hash: u32) -> usize {
        to_usize(u64::from(hash)) & (self.slots.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;

    fn place(n: usize) -> CachePlace {
        CachePlace::new(n, 0)
    }

    #[test]
    fn it_is_a_map_whatever_is_added_and_removed() {
        // Few hashes, all near each other: long runs, equal ones, and the end of the table.
        for (seed, hashes) in [(1, 12), (2, 200), (3, 5000)] {
            let mut rng = Rng::new(seed);
            let mut index = Index::default();
            let mut known: Vec<(u32, usize)> = Vec::new();
            for n in 0..20_000 {
                let hash = u32::MAX - u32::try_from(rng.below(hashes)).unwrap();
                let grows = (n / 300) % 2 == 0;
                if known.is_empty() || rng.chance(if grows { 3 } else { 1 }, 4) {
                    index.reserve();
                    index.insert(hash, place(n));
                    known.push((hash, n));
                } else {
                    let at = usize::try_from(rng.below(known.len() as u64)).unwrap();
                    let (hash, n) = known.swap_remove(at);
                    assert!(index.remove(hash, place(n)));
                    assert!(!index.remove(hash, place(n)));
                }
                if rng.chance(1, 500) {
                    index.shrink();
                    for &(hash, n) in &known {
                        assert_eq!(index.find(hash, |it| it == place(n)), Some(place(n)));
                    }
                }
                assert_eq!(index.len(), known.len());
                assert!(4 * index.len() <= 3 * index.slots());
            }
            for (hash, n) in known {
                index.replace(hash, place(n), place(n + 20_000));
                assert_eq!(index.find(hash, |it| it == place(n)), None);
                assert!(index.remove(hash, place(n + 20_000)));
            }
            assert!(index.shrink());
            assert_eq!((index.len(), index.bytes()), (0, 0));
        }
    }

    #[test]
    fn an_entry_takes_eight_bytes() {
        assert_eq!(size_of::<IndexSlot>(), 8);
    }
}
