//! Scratch memory of compactions, which each worker keeps from one compaction to the next.

use crate::compaction::reader::InputReader;
use crate::compaction::window::Windows;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::values::compression::Packer;

/// Memory that compactions use one after the other, and the reader of the next spill, if that has begun.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) windows: Windows,
    pub(crate) packer: Packer,
    /// A record whose value was compressed.
    pub(crate) packed: Vec<u8>,
    pub(crate) ahead: Option<InputReader>,
}

/// The memory of a worker.
#[derive(Default)]
pub(crate) struct Workspace {
    /// The memory of the compaction under way.
    pub(crate) scratch: Mutex<Scratch>,
    /// The bytes for its windows; 0 while they are the caches'.
    pub(crate) window_bytes: AtomicU64,
    /// When the last step ended, in nanoseconds of the clock.
    pub(crate) worked_ns: AtomicU64,
}

impl Workspace {
    /// The bytes for its windows.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window_bytes.load(Ordering::Relaxed)
    }
}
