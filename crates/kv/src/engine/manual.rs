//! The state of a compaction, or of the removal of a class, that a caller asked for. `maintain/manual.rs` does it.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::types::ids::KvsId;

/// State of a manual compaction: the one under way, or else the last one.
#[derive(Default)]
pub(crate) struct ManualCompaction {
    active: AtomicBool,
    cancelled: AtomicBool,
    /// Percent; 0 is none.
    goal: AtomicU64,
    leaves: AtomicU64,
    leaves_done: AtomicU64,
    written_before: AtomicU64,
    /// The KVS whose root is being emptied.
    emptying: Mutex<Option<KvsId>>,
}

impl ManualCompaction {
    /// Begins one, before which steps have written so many bytes. False: one is under way.
    pub(crate) fn begin(&self, written_bytes: u64) -> bool {
        if self.active.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.cancelled.store(false, Ordering::Release);
        self.goal.store(0, Ordering::Relaxed);
        self.begin_leaves(0);
        self.written_before.store(written_bytes, Ordering::Relaxed);
        true
    }

    pub(crate) fn end(&self) {
        self.active.store(false, Ordering::Release);
    }

    /// Whether one is under way. It takes the lanes step by step.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Its goal for space, in percent; 0 is none.
    pub(crate) fn goal(&self) -> u64 {
        self.goal.load(Ordering::Relaxed)
    }

    pub(crate) fn set_goal(&self, percent: u64) {
        self.goal.store(percent, Ordering::Relaxed);
    }

    /// Notes that it has so many leaves to look at.
    pub(crate) fn begin_leaves(&self, leaves: u64) {
        self.leaves.store(leaves, Ordering::Relaxed);
        self.leaves_done.store(0, Ordering::Relaxed);
    }

    pub(crate) fn leaf_done(&self) {
        self.leaves_done.fetch_add(1, Ordering::Relaxed);
    }

    /// How many leaves it has to look at, and how many of them it has done.
    pub(crate) fn leaves(&self) -> (u64, u64) {
        let leaves = self.leaves.load(Ordering::Relaxed);
        (leaves, self.leaves_done.load(Ordering::Relaxed).min(leaves))
    }

    /// Bytes that steps have written since it began, of so many in all.
    pub(crate) fn written_bytes(&self, all: u64) -> u64 {
        all.saturating_sub(self.written_before.load(Ordering::Relaxed))
    }

    /// The KVS whose root is being emptied.
    pub(crate) fn emptying(&self) -> Option<KvsId> {
        *self.emptying.lock()
    }

    /// Empties the root of a KVS, as `work` does.
    pub(crate) fn while_emptying<T>(&self, kvs: KvsId, work: impl FnOnce() -> T) -> T {
        *self.emptying.lock() = Some(kvs);
        let done = work();
        *self.emptying.lock() = None;
        done
    }
}
