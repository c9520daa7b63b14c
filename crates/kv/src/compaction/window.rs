//! The window of a compaction: entries that are merged at a time, with the records that move. Its memory is kept from one
//! compaction to the next ([`Windows`]), and counted by the memory budget.

use std::sync::Arc;

use esker_base::AlignedBuf;
use esker_base::units::to_usize;

use crate::types::expiry::Expiry;
use crate::types::ids::RecordAddress;
use crate::values::block::ValueBlock;

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

    /// Gives back memory that windows before this one have taken and this one does not need, if it is much: all
    /// that is kept is counted once.
    pub(crate) fn let_go(&mut self, records: usize, limit: u64) {
        if records > 0 {
            self.keys.shrink_to(2 * self.keys.len());
            self.entries.shrink_to(2 * self.entries.len());
        } else if self.dram() as u64 > limit / 4 {
            self.records = None;
        }
    }

    /// Makes room for records: one buffer for all windows, of the limit, and of the record that exceeds it.
    pub(crate) fn make_room(&mut self, records: usize, limit: u64) {
        let fits = self.records.as_ref().is_some_and(|buf| buf.len() >= records);
        if records > 0 && !fits {
            self.records = Some(AlignedBuf::zeroed(records.max(to_usize(limit) + EXCESS)));
        }
    }

    /// The keys and records in it, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let records = self.entries.iter().map(|entry| match &entry.kind {
            WindowKind::Move { value_size, .. } => to_usize((*value_size).into()),
            _ => 0,
        });
        self.keys.len() + records.sum::<usize>()
    }

    /// DRAM that it has taken but for records, in bytes.
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
        address: RecordAddress,
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

/// Windows of a compaction: one is gathered while the other one is written.
pub(crate) const WINDOWS: usize = 2;

/// By so much the last record of a window exceeds the limit, in bytes: a larger one has its buffer made larger.
const EXCESS: usize = 64 << 10;

/// Windows that are not in use, and the memory for all of a worker.
#[derive(Default)]
pub(crate) struct Windows {
    kept: Vec<Window>,
    /// In bytes, without an eighth that is kept for windows which are a little larger.
    pub(crate) bytes: u64,
}

impl Windows {
    /// The most bytes in each of two windows that overlap, and in one that has all of the memory.
    pub(crate) fn most(bytes: u64) -> (u64, u64) {
        (bytes / 2 / 8 * 9, bytes / 8 * 9)
    }

    /// One that was used before, or a new one.
    pub(crate) fn take(&mut self) -> Window {
        self.kept.pop().unwrap_or_default()
    }

    /// The only one: the memory of others is let go.
    pub(crate) fn take_alone(&mut self) -> Window {
        let window = self.take();
        self.kept.clear();
        window
    }

    /// Keeps one for later: as many as there are of one compaction.
    pub(crate) fn give_back(&mut self, mut window: Window) {
        // It holds on to the inputs' blocks.
        window.clear();
        if self.kept.len() < WINDOWS {
            self.kept.push(window);
        }
    }
}
