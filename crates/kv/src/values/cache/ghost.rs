//! The ghost queue of S3-FIFO: hashes of records that left the small queue unread, about as many
//! as the index has places for records, the oldest forgotten first.
//!
//! It is a table of sets of eight, each a queue of its own: forgetting is by age within a set, and
//! nothing is linked. A hash taken for another one costs a place in the main queue, no more.

use esker_base::units::to_usize;

/// Hashes in a set: half a cache line.
const WAYS: usize = 8;
/// Stands for no hash.
const EMPTY: u32 = 0;

/// The hashes of records evicted lately.
#[derive(Default)]
pub(super) struct Ghost {
    /// A power of two of sets, or none.
    sets: Vec<[u32; WAYS]>,
}

impl Ghost {
    /// Makes it hold `entries` hashes, rounded up to a power of two. Forgets all if that changes
    /// its size.
    pub(super) fn fit(&mut self, entries: usize) {
        let sets = match entries {
            0 => 0,
            _ => entries.div_ceil(WAYS).next_power_of_two(),
        };
        if sets != self.sets.len() {
            self.sets = Vec::new(); // freed before the new ones are allocated
            self.sets = vec![[EMPTY; WAYS]; sets];
        }
    }

    /// Memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.sets.capacity() * size_of::<[u32; WAYS]>()
    }

    /// Remembers `hash` in place of the oldest of its set.
    pub(super) fn remember(&mut self, hash: u32) {
        if let Some(set) = self.set_of(hash) {
            self.sets[set].rotate_right(1);
            self.sets[set][0] = hash.max(1);
        }
    }

    /// Whether `hash` is remembered.
    pub(super) fn contains(&self, hash: u32) -> bool {
        self.set_of(hash).is_some_and(|set| self.sets[set].contains(&hash.max(1)))
    }

    fn set_of(&self, hash: u32) -> Option<usize> {
        let mask = self.sets.len().checked_sub(1)?;
        Some(to_usize(u64::from(hash)) & mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;

    #[test]
    fn it_remembers_the_youngest_and_forgets_the_oldest() {
        let mut ghost = Ghost::default();
        ghost.remember(7);
        assert!(!ghost.contains(7), "without memory there is none");
        ghost.fit(1000);
        assert_eq!(ghost.bytes(), 128 * 32);
        let mut rng = Rng::new(2);
        let hashes: Vec<u32> = (0..8192).map(|_| u32::try_from(rng.u64() >> 32).unwrap()).collect();
        hashes.iter().for_each(|&hash| ghost.remember(hash));
        let known = |range: std::ops::Range<usize>| {
            let known = hashes[range].iter().filter(|&&hash| ghost.contains(hash));
            known.count()
        };
        assert!(known(7936..8192) > 250, "a quarter of its size ago");
        assert!(known(0..4096) < 10, "four times its size ago");
        ghost.fit(1024);
        assert!(ghost.contains(hashes[8191]), "the same size");
        ghost.fit(200);
        assert_eq!(ghost.bytes(), 32 * 32);
        assert!(!ghost.contains(hashes[8191]));
        ghost.fit(0);
        assert_eq!(ghost.bytes(), 0);
    }
}
