//! The state of a compaction, or of the removal of a class, that a caller asked for. `maintain/manual.rs` does it.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::types::ids::KvsId;

/// State of a manual compaction: the one under way, or else the last one.
#[derive(Default)]
pub(crate) struct ManualCompaction {
    pub(crate) active: AtomicBool,
    pub(crate) cancelled: AtomicBool,
    /// Percent; 0 is none.
    pub(crate) goal: AtomicU64,
    pub(crate) leaves: AtomicU64,
    pub(crate) leaves_done: AtomicU64,
    pub(crate) written_before: AtomicU64,
    /// The KVS whose root is being emptied.
    pub(crate) emptying: Mutex<Option<KvsId>>,
}

impl ManualCompaction {
    /// Whether one is under way. It takes the lanes step by step.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }
}
