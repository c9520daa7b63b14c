//! Read-ahead for cursors: the further a cursor goes through a block, the more is read at a time.

use std::sync::Arc;

use esker_base::AlignedBuf;
use esker_base::units::to_usize;

use crate::error::Result;
use crate::omf::frame::record_size;
use crate::omf::page::Stored;
use crate::placement::Stream;
use crate::value::{ValueBlock, Values, address};

/// Reads values for a cursor: the further it goes through a block, the more is read at a time.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// The most recently used one at the end.
    windows: Vec<Window>,
}

/// Bytes of a block in DRAM.
struct Window {
    block: u64,
    start: u64,
    bytes: AlignedBuf,
    /// Where `start` is in `bytes`.
    skip: usize,
    size: usize,
}

/// Windows a cursor keeps: one for each kvset that it merges, as long as there are not too many.
const WINDOWS: usize = 32;
/// What the first read of a block of old values takes along: a drive answers it about as fast as
/// one of 4 KiB.
const FIRST_WINDOW: u64 = 16 << 10;
/// The largest window, and the distance at which a read still counts as following another one.
const WINDOW_MAX: u64 = 128 << 10;

impl Window {
    fn end(&self) -> u64 {
        self.start + self.size as u64
    }

    fn slice(&self, start: u64, size: usize) -> Option<&[u8]> {
        let within = start >= self.start && start + size as u64 <= self.end();
        within.then(|| {
            let at = self.skip + to_usize(start - self.start);
            &self.bytes[at..at + size]
        })
    }
}

impl ReadAhead {
    /// Writes the value of the record at `at` (KVS, key, place) to `out`.
    pub(crate) fn read(
        &mut self,
        values: &Values,
        block: &Arc<ValueBlock>,
        (kvs, key, stored): (u32, &[u8], &Stored),
        forward: bool,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let address = address(block.id, stored.offset);
        if values.cache.get(address, out) {
            return Ok(());
        }
        if block.stream() == Stream::Log {
            // Young values lie in the order of their writing: what is next to one is not next.
            return values.read(block, kvs, key, stored, out);
        }
        let start = u64::from(stored.offset);
        let size = record_size(key.len(), to_usize(stored.value_size.into()));
        let covers = |w: &Window| w.block == block.id && w.slice(start, size).is_some();
        match self.windows.iter().position(covers) {
            Some(found) => self.windows[found..].rotate_left(1),
            None => self.load(block, start, size as u64, forward)?,
        }
        let window = self.windows.last().expect("found or loaded");
        let record = window.slice(start, size).expect("a window that covers the record");
        let value = block.verify(record, kvs, key, stored.offset)?;
        out.clear();
        out.extend_from_slice(value);
        values.cache.insert(address, &[out]);
        Ok(())
    }

    /// Reads a window that covers `size` bytes at `start`, twice as large each time when it goes on
    /// where another window of the block ends.
    fn load(&mut self, block: &ValueBlock, start: u64, size: u64, forward: bool) -> Result<()> {
        let near = |w: &Window| {
            let gap = if forward {
                start.checked_sub(w.end())
            } else {
                w.start.checked_sub(start + size)
            };
            w.block == block.id && gap.is_some_and(|gap| gap < WINDOW_MAX)
        };
        let mut wanted = size.max(FIRST_WINDOW);
        if let Some(follows) = self.windows.iter().position(near) {
            let before = self.windows.remove(follows).size as u64;
            wanted = (2 * before).clamp(size, WINDOW_MAX.max(size));
        } else if self.windows.len() == WINDOWS {
            self.windows.remove(0);
        }
        let limit = block.allocation.bytes();
        let (from, to) = if forward {
            (start, (start + wanted).min(limit))
        } else {
            ((start + size).saturating_sub(wanted), start + size)
        };
        let size = to_usize(to - from);
        let (bytes, skip) = block.allocation.read_at(from, size)?;
        self.windows.push(Window { block: block.id, start: from, bytes, skip, size });
        Ok(())
    }
}
