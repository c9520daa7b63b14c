//! Which blocks were missed lately, in eight bits each.
//!
//! Called by `door`. A bucket of eight marks is a word: a block that is missed puts its mark in
//! front, and the oldest one drops out. A block that was never missed is taken for one that was
//! with a probability of 3 %: another one of its bucket has the same mark.
//!
//! Threads note blocks without a lock; of two that note one in the same bucket at the same moment,
//! one may be forgotten.

use std::sync::atomic::{AtomicU64, Ordering};

use esker_base::units::to_usize;

/// Marks in a bucket.
const MARKS: u64 = 8;

pub(super) struct History {
    buckets: Box<[AtomicU64]>,
}

impl History {
    /// Knows about the last `reach` blocks.
    pub(super) fn new(reach: u64) -> History {
        let buckets = to_usize(reach.max(16).div_ceil(MARKS));
        History { buckets: (0..buckets).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes that the block with this hash was missed, and says whether it was before.
    pub(super) fn note(&self, hash: u64) -> bool {
        let bucket = (u128::from(hash) * self.buckets.len() as u128) >> 64;
        let bucket = &self.buckets[usize::try_from(bucket).unwrap_or(0)];
        // Zero is for places where nothing was noted.
        let mark = (hash % 255 + 1).to_le_bytes()[0];
        let marks = bucket.load(Ordering::Relaxed);
        let is_known = marks.to_le_bytes().contains(&mark);
        if !is_known {
            bucket.store(marks << 8 | u64::from(mark), Ordering::Relaxed);
        }
        is_known
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::policy::hash;

    #[test]
    fn recent_misses_are_known_and_old_ones_are_forgotten() {
        let history = History::new(1_000);
        let new = |from: u64, count: u64| {
            (from..from + count).filter(|block| !history.note(hash(*block))).count()
        };
        assert!(new(0, 500) > 480, "new ones are told");
        // Of a bucket's eight marks more than its share may be of these.
        assert!(new(0, 500) < 60, "they are known");
        new(10_000, 5_000);
        assert!(new(0, 500) > 480, "they are forgotten");
    }
}
