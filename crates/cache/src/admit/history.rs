//! Which blocks were missed lately, in a few bits each.
//!
//! Called by `door`. Two generations of bits: a block that is missed leaves a bit in the newer one,
//! and is known when its bit is in either. When the newer one has as many blocks as it is for, the
//! older one is forgotten and they change places. A block that was never missed is taken for one
//! that was with a probability of 44 % at most: it shares its bits with others.
//!
//! Threads note blocks without a lock; two that end a generation at the same moment forget a
//! little more than they should.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use esker_base::units::to_usize;

/// Bits of a generation for each block that it is for.
const BITS: u64 = 4;

pub(super) struct History {
    generations: [Box<[AtomicU64]>; 2],
    newer: AtomicUsize,
    noted: AtomicU64,
    reach: u64,
}

impl History {
    /// Knows the last `reach` blocks at least, and twice as many at most.
    pub(super) fn new(reach: u64) -> History {
        let reach = reach.max(16);
        let words = to_usize((reach * BITS).div_ceil(64));
        let generation = || (0..words).map(|_| AtomicU64::new(0)).collect();
        History {
            generations: [generation(), generation()],
            newer: AtomicUsize::new(0),
            noted: AtomicU64::new(0),
            reach,
        }
    }

    /// Notes that the block with this hash was missed, and says whether it was before.
    pub(super) fn note(&self, hash: u64) -> bool {
        let newer = self.newer.load(Ordering::Relaxed);
        let bits = self.generations[0].len() as u64 * 64;
        let bit = u64::try_from((u128::from(hash) * u128::from(bits)) >> 64).unwrap_or(0);
        let (word, mask) = (to_usize(bit / 64), 1 << (bit % 64));
        let is_old = self.generations[1 - newer][word].load(Ordering::Relaxed) & mask != 0;
        if self.generations[newer][word].load(Ordering::Relaxed) & mask != 0 {
            return true;
        }
        self.generations[newer][word].fetch_or(mask, Ordering::Relaxed);
        if self.noted.fetch_add(1, Ordering::Relaxed) + 1 == self.reach {
            let older = 1 - newer;
            self.generations[older].iter().for_each(|word| word.store(0, Ordering::Relaxed));
            self.noted.store(0, Ordering::Relaxed);
            self.newer.store(older, Ordering::Relaxed);
        }
        is_old
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.generations.iter().map(|words| size_of_val(&**words)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::policy::hash;

    #[test]
    fn what_was_missed_lately_is_known_and_what_was_missed_long_ago_is_not() {
        let history = History::new(1_000);
        let new = |from: u64, count: u64| {
            (from..from + count).filter(|block| !history.note(hash(*block))).count()
        };
        let first = new(0, 500);
        assert!(first > 350, "{first} of 500 new ones were told");
        assert_eq!(new(0, 500), 0, "they are known");
        new(10_000, 5_000);
        let again = new(0, 500);
        assert!(again > 250, "{again} of 500 forgotten ones");
    }
}
