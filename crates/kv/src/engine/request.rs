//! The state of a compaction, or of the removal of a class, that a caller asked for. `maintain/manual.rs` does it.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::types::ids::KvsId;

/// The state of a request.
#[derive(Default)]
pub(crate) struct Manual {
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
