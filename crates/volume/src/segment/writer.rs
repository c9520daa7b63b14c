//! Appends rows to a segment: data and parities on all of its drives at once, and a seal for each chunk.
//!
//! Invariants
//! 1. Rows are written once, in order.
//! 2. The seal that the last checkpoint refers to is not overwritten.

use esker_base::AlignedBuf;
use esker_base::checksum::crc32c;
use esker_base::units::{to_u64, to_usize};

use crate::drive::{Io, Write};
use crate::omf::root::SegmentRow;
use crate::omf::seal::Seal;
use crate::parity;
use crate::types::id::DriveIndex;
use crate::types::u32_of;

/// A segment that is appended to.
pub(crate) struct Writer {
    pub(crate) row: SegmentRow,
    /// Checksums of the units written, for each chunk.
    unit_crcs: Vec<Vec<u32>>,
    /// Rows were written since it was sealed.
    pub(crate) is_unsealed: bool,
}

impl Writer {
    /// For a segment that was just allocated.
    pub(crate) fn new(row: SegmentRow) -> Writer {
        let unit_crcs = vec![Vec::new(); row.chunks.len()];
        Writer { row, unit_crcs, is_unsealed: false }
    }

    pub(crate) fn data_chunks(&self) -> usize {
        self.row.chunks.len() - usize::from(self.row.parity)
    }

    /// Appends whole rows of data. Says which drives failed; the rows do not count then.
    pub(crate) fn append(&mut self, io: &mut Io, data: &[u8]) -> Result<(), Vec<DriveIndex>> {
        let layout = io.fleet().layout;
        let (unit, k) = (layout.unit_size(), self.data_chunks());
        let row_bytes = layout.row_bytes(k);
        let rows = data.len() / row_bytes;
        debug_assert!(data.len() == rows * row_bytes && rows > 0);
        // As many rows at a time as a drive takes in one command.
        let fleet = io.fleet().clone();
        let drives = self.row.chunks.iter().filter_map(|(drive, _)| fleet.get(*drive));
        let largest = drives.map(|drive| drive.largest_io).min().unwrap_or(unit);
        let step = (largest / unit).max(1);
        let mut writes = Vec::with_capacity(self.row.chunks.len() * rows.div_ceil(step));
        for (first, data) in (self.row.rows..).step_by(step).zip(data.chunks(step * row_bytes)) {
            let size = data.len() / k;
            let mut bufs: Vec<AlignedBuf> = self.row.chunks.iter().map(|_| io.buf(size)).collect();
            for (number, bytes) in data.chunks(unit).enumerate() {
                bufs[number % k][number / k * unit..][..unit].copy_from_slice(bytes);
            }
            parity::encode(&mut bufs, self.row.parity.into());
            for (crcs, buf) in self.unit_crcs.iter_mut().zip(&bufs) {
                crcs.extend(buf.chunks(unit).map(crc32c));
            }
            for ((drive, slot), buf) in self.row.chunks.iter().zip(bufs) {
                let offset = layout.unit_offset(*slot, first);
                // A unit may be larger than what a drive takes.
                if buf.len() <= largest {
                    writes.push((*drive, offset, buf));
                    continue;
                }
                for (start, piece) in (0..).step_by(largest).zip(buf.chunks(largest)) {
                    writes.push((*drive, offset + start, AlignedBuf::padded(piece, 1)));
                }
            }
        }
        let failed = io.write_bufs(writes, self.row.class);
        if !failed.is_empty() {
            let written = to_usize(self.row.rows.into());
            self.unit_crcs.iter_mut().for_each(|crcs| crcs.truncate(written));
            return Err(failed);
        }
        self.row.rows += u32_of(rows);
        self.is_unsealed = true;
        Ok(())
    }

    /// Writes the seals, to the copies that the last checkpoint does not refer to.
    pub(crate) fn seal(&mut self, io: &mut Io, durable_copy: u8) -> Result<(), Vec<DriveIndex>> {
        let copy = 1 - durable_copy.min(1);
        let layout = io.fleet().layout;
        let pool = io.fleet().pool;
        let seals = self.unit_crcs.iter().enumerate().map(|(chunk, unit_crcs)| {
            let seal = Seal {
                segment: self.row.id,
                generation: self.row.generation,
                copy,
                parity: self.row.parity,
                class: self.row.class,
                chunk: u16::try_from(chunk).expect("a segment has few chunks"),
                chunks: self.row.chunks.clone(),
                unit_crcs: unit_crcs.clone(),
            };
            let mut bytes = seal.encode(pool);
            bytes.resize(layout.seal_size(), 0);
            bytes
        });
        let seals: Vec<_> = seals.collect();
        let writes = self.row.chunks.iter().zip(&seals).map(|((drive, slot), bytes)| Write {
            drive: *drive,
            offset: layout.seal_offset(*slot, copy),
            bytes,
            class: Some(self.row.class),
            fua: false,
        });
        self.row.seal_copy = copy;
        self.is_unsealed = false;
        failures(io, &writes.collect::<Vec<_>>())
    }

    /// Bytes of data for which there is room.
    pub(crate) fn room(&self, io: &Io) -> u64 {
        let layout = io.fleet().layout;
        let rows = layout.rows.saturating_sub(self.row.rows);
        u64::from(rows) * to_u64(layout.row_bytes(self.data_chunks()))
    }
}

/// Writes; says which drives failed.
pub(crate) fn failures(io: &mut Io, writes: &[Write<'_>]) -> Result<(), Vec<DriveIndex>> {
    let results = io.write(writes);
    let failed = writes.iter().zip(results).filter(|(_, result)| result.is_err());
    let mut failed: Vec<DriveIndex> = failed.map(|(write, _)| write.drive).collect();
    failed.dedup();
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}
