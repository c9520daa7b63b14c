//! The window of a compaction: entries that are merged at a time, with the records that move. Its memory is kept from one
//! compaction to the next ([`Scratch`]), and counted by the memory budget.

use std::sync::Arc;

use esker_base::AlignedBuf;

use crate::types::expiry::Expiry;
use crate::values::block::ValueBlock;
use crate::values::compression::Packer;

/// Entries that are merged at a time.
#[derive(Default)]
pub(crate) struct Window {
    pub(crate) keys: Vec<u8>,
    pub(crate) entries: Vec<WindowEntry>,
    /// Records to be written anew, in key order, once gathered.
    pub(crate) records: Option<AlignedBuf>,
    /// The hash of each of them that was in the record cache.
    pub(crate) cached: Vec<Option<u64>>,
}

impl Window {
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }

    /// Gives back what windows before this one have taken and this one does not need, if it is much: all that is
    /// kept is counted once.
    pub(crate) fn let_go(&mut self, records: usize, limit: u64) {
        if records > 0 {
            self.keys.shrink_to(2 * self.keys.len());
            self.entries.shrink_to(2 * self.entries.len());
        } else if self.dram() as u64 > limit / 4 {
            self.records = None;
        }
    }

    /// What it has taken but for records, in bytes.
    pub(crate) fn dram(&self) -> usize {
        self.keys.capacity() + self.entries.capacity() * size_of::<WindowEntry>()
    }
}

pub(crate) struct WindowEntry {
    pub(crate) key_end: usize,
    pub(crate) kind: WindowKind,
}

pub(crate) enum WindowKind {
    Tombstone,
    Inline(Vec<u8>, Expiry),
    Keep {
        block: u64,
        offset: u32,
        value_size: u32,
        expiry: Expiry,
    },
    /// The value is rewritten: its old place, and where the record begins in `records`.
    Move {
        block: Arc<ValueBlock>,
        offset: u32,
        value_size: u32,
        expiry: Expiry,
        at: usize,
    },
}

/// Reads in flight while values are gathered.
pub(crate) const READS: usize = 4;

/// Memory that compactions use one after the other.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) window: Window,
    pub(crate) buffers: Vec<AlignedBuf>,
    pub(crate) packer: Packer,
    /// A record whose value was compressed.
    pub(crate) packed: Vec<u8>,
}
