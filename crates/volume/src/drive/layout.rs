//! Where things lie on a drive and in a segment. All arithmetic of places is here.
//!
//! ```text
//! drive    label 0 | label 1 | checkpoint A | checkpoint B | write buffer | slot 0 | slot 1 | … | label 2 | label 3
//! slot     unit 0 | unit 1 | … | seal A | seal B
//! segment  row r = unit r of each of its chunks: k units of data, then P, then Q
//! buffer   label 0 | label 1 | write buffer | label 2 | label 3
//!
//! write buffer   ring | mark A | mark B
//! ```

use esker_base::units::{round_down, to_u64, to_usize};

use crate::omf::label::{LABEL_BYTES, Role, Shape};
use crate::omf::mark::{COPIES, MARK_BYTES};
use crate::omf::seal::seal_bytes;
use crate::types::id::SlotIndex;
use crate::types::{SECTOR, u32_from};

/// The least bytes of a write buffer.
pub(crate) const LOG_BYTES_MIN: u64 = 64 << 10;
/// Bytes of a write buffer behind its ring.
pub(crate) const MARKS_BYTES: u64 = COPIES as u64 * MARK_BYTES;

/// The places of a pool's drives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) shape: Shape,
    /// Units of a chunk.
    pub(crate) rows: u32,
    seal_bytes: u64,
}

/// A piece of a segment's data: in which chunk, in which row, from which byte of the unit on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) chunk: usize,
    pub(crate) row: u32,
    pub(crate) within: usize,
    pub(crate) size: usize,
}

impl Layout {
    pub(crate) fn new(shape: Shape) -> Layout {
        let unit = u64::from(shape.unit_bytes);
        // The seal's size depends on the units that fit beside it; it only shrinks with them.
        let seal_bytes = seal_bytes(shape.chunk_bytes / unit);
        let rows = shape.chunk_bytes.saturating_sub(2 * seal_bytes) / unit;
        Layout { shape, rows: u32_from(rows), seal_bytes }
    }

    pub(crate) fn label_offset(bytes: u64, copy: u8) -> u64 {
        let bytes = round_down(bytes, 4096);
        match copy {
            0 | 1 => u64::from(copy) * LABEL_BYTES,
            _ => bytes.saturating_sub((4 - u64::from(copy)) * LABEL_BYTES),
        }
    }

    pub(crate) fn root_offset(&self, area: u8) -> u64 {
        2 * LABEL_BYTES + u64::from(area) * self.shape.root_bytes
    }

    pub(crate) fn log_offset(&self, role: Role) -> u64 {
        match role {
            Role::Drive => 2 * LABEL_BYTES + 2 * self.shape.root_bytes,
            Role::Buffer => 2 * LABEL_BYTES,
        }
    }

    /// Bytes of the write buffer on a member of so many bytes.
    pub(crate) fn log_bytes(&self, role: Role, bytes: u64) -> u64 {
        match role {
            Role::Drive => self.shape.log_bytes,
            Role::Buffer => round_down(bytes, 4096).saturating_sub(4 * LABEL_BYTES),
        }
    }

    /// Bytes of a ring in a write buffer of so many bytes: marks lie behind it.
    pub(crate) fn ring_bytes(log_bytes: u64) -> u64 {
        match log_bytes >= LOG_BYTES_MIN {
            true => log_bytes - MARKS_BYTES,
            false => log_bytes,
        }
    }

    /// Where a copy of the mark lies behind a ring, on a member of so many bytes. A ring of earlier software has none.
    pub(crate) fn mark_offset(
        &self,
        role: Role,
        bytes: u64,
        ring_bytes: u64,
        copy: u8,
    ) -> Option<u64> {
        let has_room = ring_bytes + MARKS_BYTES <= self.log_bytes(role, bytes);
        has_room.then(|| self.log_offset(role) + ring_bytes + u64::from(copy) * MARK_BYTES)
    }

    fn first_slot(&self) -> u64 {
        self.log_offset(Role::Drive) + self.shape.log_bytes
    }

    /// How many slots a drive of so many bytes has.
    pub(crate) fn slots(&self, bytes: u64) -> u32 {
        let room = round_down(bytes, 4096).saturating_sub(self.first_slot() + 2 * LABEL_BYTES);
        u32::try_from(room / self.shape.chunk_bytes).unwrap_or(u32::MAX)
    }

    /// The bytes of a drive with so many slots.
    pub(crate) fn bytes_for(&self, slots: u64) -> u64 {
        let bytes = self.first_slot() + slots * self.shape.chunk_bytes + 2 * LABEL_BYTES;
        bytes.next_multiple_of(4096)
    }

    pub(crate) fn slot_offset(&self, slot: SlotIndex) -> u64 {
        self.first_slot() + u64::from(slot.0) * self.shape.chunk_bytes
    }

    pub(crate) fn unit_offset(&self, slot: SlotIndex, row: u32) -> u64 {
        self.slot_offset(slot) + u64::from(row) * u64::from(self.shape.unit_bytes)
    }

    pub(crate) fn seal_offset(&self, slot: SlotIndex, copy: u8) -> u64 {
        let end = self.slot_offset(slot) + self.shape.chunk_bytes;
        end - (2 - u64::from(copy)) * self.seal_bytes
    }

    pub(crate) fn seal_size(&self) -> usize {
        to_usize(self.seal_bytes)
    }

    pub(crate) fn unit_size(&self) -> usize {
        to_usize(self.shape.unit_bytes.into())
    }

    /// Bytes of data in a row of so many chunks.
    pub(crate) fn row_bytes(&self, data_chunks: usize) -> usize {
        data_chunks * self.unit_size()
    }

    /// Bytes of data in a segment of so many data chunks.
    pub(crate) fn data_bytes(&self, data_chunks: usize) -> u64 {
        u64::from(self.rows) * to_u64(self.row_bytes(data_chunks))
    }

    /// Where the data at `sector` of a segment with so many data chunks lies, cut at the borders of units.
    pub(crate) fn pieces(
        &self,
        data_chunks: usize,
        sector: u32,
        size: usize,
    ) -> impl Iterator<Item = Piece> + use<> {
        let unit = self.unit_size();
        let mut at = to_usize(u64::from(sector) * SECTOR);
        let end = at + size;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (number, within) = (at / unit, at % unit);
            let size = (unit - within).min(end - at);
            at += size;
            let row = u32_from(to_u64(number / data_chunks));
            Some(Piece { chunk: number % data_chunks, row, within, size })
        })
    }
}
