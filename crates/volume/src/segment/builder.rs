//! Packs fragments into the rows of a segment, and lists them in a summary behind them.
//!
//! Invariants
//! 1. A fragment begins at a sector. A block's fragment lies in one unit, so that one command reads it; a bundle's may
//!    lie in two, for space would be lost between them.
//! 2. What is packed, the summary included, never exceeds the room.

use esker_base::units::{round_up, to_u64, to_usize};

use crate::drive::Layout;
use crate::omf::envelope::fragment_crc;
use crate::omf::summary::{self, ITEM_BYTES, Item, ItemKind, SUMMARY_OVERHEAD};
use crate::types::id::{Generation, LineageId, PoolUuid, SegmentId, Seqno};
use crate::types::{BLOCK_SIZE, SECTOR, sectors_of, u32_from, u32_of};

/// Fragments that are to be appended to a segment in one go.
pub(crate) struct Builder {
    segment: SegmentId,
    pub(crate) generation: Generation,
    unit: usize,
    row_bytes: usize,
    /// The sector of the segment at which it begins.
    first_sector: u32,
    room: usize,
    bytes: Vec<u8>,
    pub(crate) items: Vec<Item>,
}

/// The outcome of packing.
pub(crate) struct Packed {
    /// Whole rows.
    pub(crate) bytes: Vec<u8>,
    pub(crate) items: Vec<Item>,
    /// Sector, bytes and checksum of the summary.
    pub(crate) summary: (u32, u32, u32),
}

impl Builder {
    /// For the rows from `first_row` on of a segment with so many data chunks, in this memory, which is empty.
    pub(crate) fn new(
        layout: &Layout,
        segment: SegmentId,
        generation: Generation,
        data_chunks: usize,
        first_row: u32,
        memory: Vec<u8>,
    ) -> Builder {
        let row_bytes = layout.row_bytes(data_chunks);
        let first = to_u64(row_bytes) * u64::from(first_row);
        let rows = layout.rows.saturating_sub(first_row);
        Builder {
            segment,
            generation,
            unit: layout.unit_size(),
            row_bytes,
            first_sector: u32_from(first / SECTOR),
            room: row_bytes * to_usize(rows.into()),
            bytes: memory,
            items: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Where the next fragment of so many bytes would begin.
    fn start_of(&self, size: usize, is_block: bool) -> usize {
        let start = to_usize(round_up(to_u64(self.bytes.len()), SECTOR));
        let crosses = start / self.unit != (start + size - 1) / self.unit;
        match is_block && size <= BLOCK_SIZE && crosses {
            true => start.next_multiple_of(self.unit),
            false => start,
        }
    }

    /// Whether a fragment of so many bytes fits, with its place in the summary.
    pub(crate) fn fits(&self, size: usize, is_block: bool) -> bool {
        self.fits_items(size, is_block, 1)
    }

    /// The same for a fragment that so many items are in.
    pub(crate) fn fits_items(&self, size: usize, is_block: bool, count: usize) -> bool {
        let end = self.start_of(size, is_block) + size;
        let summary = SUMMARY_OVERHEAD + (self.items.len() + count) * ITEM_BYTES;
        to_usize(round_up(to_u64(end), SECTOR)) + summary <= self.room
    }

    /// Adds a block to the fragment that was packed last: both are in it.
    pub(crate) fn push_member(&mut self, index: u64, birth: Seqno) -> Item {
        let last = *self.items.last().expect("one was packed");
        let item = Item { index, birth, ..last };
        self.items.push(item);
        item
    }

    /// Packs a fragment that fits, and gives it its place and checksum.
    pub(crate) fn push(
        &mut self,
        kind: ItemKind,
        lineage: LineageId,
        index: u64,
        birth: Seqno,
        bytes: &[u8],
    ) -> Item {
        self.push_seeded(kind, lineage, (index, index), birth, bytes)
    }

    /// The same with another index for the checksum: that of the first block of a bundle.
    pub(crate) fn push_seeded(
        &mut self,
        kind: ItemKind,
        lineage: LineageId,
        (index, seed): (u64, u64),
        birth: Seqno,
        bytes: &[u8],
    ) -> Item {
        let start = self.start_of(bytes.len(), kind == ItemKind::Block);
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(bytes);
        let item = Item {
            kind,
            lineage,
            index,
            birth,
            sector: self.first_sector + sectors_of(start),
            bytes: u32_of(bytes.len()),
            crc: fragment_crc(lineage, seed, self.generation, bytes),
        };
        self.items.push(item);
        item
    }

    /// Appends the summary and fills up the last row.
    pub(crate) fn finish(mut self, pool: PoolUuid) -> Packed {
        let start = to_usize(round_up(to_u64(self.bytes.len()), SECTOR));
        self.bytes.resize(start, 0);
        let sector = self.first_sector + sectors_of(start);
        let summary = summary::encode(pool, self.segment, self.generation, sector, &self.items);
        self.bytes.extend_from_slice(&summary);
        self.bytes.resize(self.bytes.len().next_multiple_of(self.row_bytes), 0);
        let crc = esker_base::checksum::crc32c(&summary);
        Packed {
            bytes: self.bytes,
            items: self.items,
            summary: (sector, u32_of(summary.len()), crc),
        }
    }
}
