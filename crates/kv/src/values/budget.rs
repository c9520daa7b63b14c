//! The memory that cursors may take for reads ahead of need, divided among all of them.

use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering};

/// The memory that all cursors may take.
pub(crate) struct WindowBudget {
    /// In bytes, all together.
    bytes: u64,
    /// How many read ahead of need.
    pub(crate) walks: Arc<AtomicU64>,
    /// Bytes that windows of values take now.
    pub(crate) held: Arc<AtomicU64>,
    /// Bytes that rows and key pages take which cursors have ahead of need.
    pub(crate) rows: Arc<AtomicU64>,
}

impl WindowBudget {
    /// The part of a budget of `memory_bytes` that is for cursors.
    pub(crate) fn of(memory_bytes: u64) -> WindowBudget {
        let bytes = (memory_bytes / 16).clamp(ALL_LEAST, ALL_MOST);
        WindowBudget { bytes, walks: Arc::default(), held: Arc::default(), rows: Arc::default() }
    }

    /// Bytes that the windows of all cursors take between two reads.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The bytes of rows and key pages that cursors have ahead of need.
    pub(crate) fn rows_bytes(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// The bytes that a cursor with `own` bytes may take: half of the rest that others leave, so that there is some
    /// for those to come.
    pub(crate) fn of_one(&self, own: u64) -> u64 {
        let others = (self.held_bytes() + self.rows_bytes()).saturating_sub(own);
        let share = self.bytes / self.walks.load(Ordering::Relaxed).max(1);
        (share.min(self.bytes.saturating_sub(others)) / 2).max(ONE_LEAST)
    }
}

/// A part of the sum of all cursors, while it lives.
pub(crate) struct Counted {
    sum: Arc<AtomicU64>,
    part: u64,
}

impl Counted {
    /// Nothing yet.
    pub(crate) fn in_sum(sum: &Arc<AtomicU64>) -> Counted {
        Counted { sum: sum.clone(), part: 0 }
    }

    pub(crate) fn part(&self) -> u64 {
        self.part
    }

    pub(crate) fn set(&mut self, part: u64) {
        if part == self.part {
            return;
        }
        // One addition, of an amount that may be less than nothing.
        self.sum.fetch_add(part.wrapping_sub(self.part), Ordering::Relaxed);
        self.part = part;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The bytes that all cursors may take, however little memory there is, and however much.
const ALL_LEAST: u64 = 2 << 20;
const ALL_MOST: u64 = 16 << 20;
/// The bytes that one may take, however many there are.
const ONE_LEAST: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_gets_half_of_what_others_leave() {
        let budget = WindowBudget::of(1 << 30);
        assert_eq!(budget.of_one(0), 8 << 20);
        let mut cursors = Vec::new();
        for _ in 0..1000 {
            let mut held = Counted::in_sum(&budget.held);
            held.set(budget.of_one(0));
            cursors.push(held);
        }
        assert!(budget.held_bytes() <= ALL_MOST + 1000 * ONE_LEAST);
        assert_eq!(budget.of_one(0), ONE_LEAST);
        cursors.truncate(1);
        assert_eq!((budget.of_one(0), budget.of_one(8 << 20)), (4 << 20, 8 << 20));
        let mut walks = Counted::in_sum(&budget.walks);
        walks.set(8);
        assert_eq!(budget.of_one(8 << 20), 1 << 20);
    }
}
