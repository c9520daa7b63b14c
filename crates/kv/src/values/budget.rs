//! The memory that windows of read-ahead may take, divided among all cursors that read ahead.

use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering};

/// What the windows of all cursors may take.
pub(crate) struct WindowBudget {
    /// Of one cursor, in bytes, as long as it is the only one that reads ahead of need.
    bytes: u64,
    /// How many do.
    pub(crate) walks: Arc<AtomicU64>,
    /// Bytes that windows of values take now.
    pub(crate) held: Arc<AtomicU64>,
}

impl WindowBudget {
    /// The part of a budget of `memory_bytes` that is for windows.
    pub(crate) fn of(memory_bytes: u64) -> WindowBudget {
        let bytes = (memory_bytes / 32).clamp(WINDOWS_LEAST, WINDOWS_MOST);
        WindowBudget { bytes, walks: Arc::default(), held: Arc::default() }
    }

    /// What the windows of all cursors take between two reads, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// What a cursor may take.
    pub(crate) fn of_one(&self) -> u64 {
        (self.bytes / self.walks.load(Ordering::Relaxed).max(1)).max(WINDOWS_LEAST)
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

    pub(crate) fn set(&mut self, part: u64) {
        // One addition, of what may be less than nothing.
        self.sum.fetch_add(part.wrapping_sub(self.part), Ordering::Relaxed);
        self.part = part;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// What the windows of a cursor take, in bytes, however little memory there is, and however much.
pub(crate) const WINDOWS_LEAST: u64 = 1 << 20;

pub(crate) const WINDOWS_MOST: u64 = 8 << 20;
