//! The numbers of inserted records.
//!
//! Many threads insert; a reader may only ask for records that are there. So a number is
//! *reserved* before its insert and *completed* after it, and readers see the end of the gapless
//! run of completed numbers.
//!
//! Invariants
//! 1. Every number below `acknowledged` is completed.
//! 2. A number is reserved once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Hands out record numbers and knows up to where all of them are inserted.
#[derive(Debug)]
pub struct InsertCounter {
    next: AtomicU64,
    acknowledged: AtomicU64,
    /// Completed numbers above the gapless run: at most one for each inserting thread.
    early: Mutex<BTreeSet<u64>>,
}

impl InsertCounter {
    /// A counter with `records` records (numbers 0 to `records - 1`) already inserted.
    #[must_use]
    pub fn new(records: u64) -> InsertCounter {
        InsertCounter {
            next: AtomicU64::new(records),
            acknowledged: AtomicU64::new(records),
            early: Mutex::new(BTreeSet::new()),
        }
    }

    /// The number of the next record to insert; its insert has to be completed, whatever becomes
    /// of it, or readers never see the records after it.
    pub fn reserve(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The insert of `number` is over.
    pub fn complete(&self, number: u64) {
        let mut early = self.early.lock();
        let mut end = self.acknowledged.load(Ordering::Relaxed);
        if number != end {
            early.insert(number);
            return;
        }
        end += 1;
        while early.remove(&end) {
            end += 1;
        }
        // Release: a reader that sees the number sees the insert that came before it.
        self.acknowledged.store(end, Ordering::Release);
    }

    /// How many records readers may ask for: all numbers below are inserted.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_hides_the_records_after_it() {
        let counter = InsertCounter::new(10);
        let numbers = [counter.reserve(), counter.reserve(), counter.reserve()];
        assert_eq!(numbers, [10, 11, 12]);
        counter.complete(12);
        counter.complete(11);
        assert_eq!(counter.acknowledged(), 10);
        counter.complete(10);
        assert_eq!(counter.acknowledged(), 13);
    }

    #[test]
    fn any_order_of_completion_ends_at_the_same_count() {
        let mut rng = esker_base::Rng::new(4);
        for _ in 0..200 {
            let counter = InsertCounter::new(0);
            let mut open: Vec<u64> = Vec::new();
            let mut done = BTreeSet::new();
            for _ in 0..100 {
                if open.is_empty() || rng.chance(1, 2) {
                    open.push(counter.reserve());
                } else {
                    let at = usize::try_from(rng.below(open.len() as u64)).unwrap();
                    let number = open.swap_remove(at);
                    counter.complete(number);
                    done.insert(number);
                }
                let gapless = (0..).take_while(|n| done.contains(n)).count() as u64;
                assert_eq!(counter.acknowledged(), gapless);
            }
        }
    }
}
