//! Reads and writes of any size, cut to the size that a device takes in one command.
//!
//! A local device takes anything in one command; one behind a network may take 64 KiB. Everything
//! that the engine moves goes through here, but for single LBAs and the pieces that gathering values cuts itself
//! (`maintain/compact.rs`).
//!
//! Invariants
//! 1. No command exceeds the device's `max_transfer_size`.
//! 2. A transfer that fits one command is one command, in the caller's own buffer.
//! 3. The pieces of a transfer have no order: to the medium it is one that may tear anywhere.

use std::ops::Range;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Lba};
use esker_device::{DeviceError, Geometry, Op, PlacementId, Port};

/// The pieces of a transfer are copies. Those in flight take at most this much DRAM, in bytes, or
/// are a single one.
const COPIES: usize = 4 << 20;
/// Pieces in flight at a time.
const PIECES: usize = 16;

/// The largest command of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    lba_size: usize,
    /// In bytes; a multiple of the LBA size.
    largest: usize,
}

impl Transfer {
    /// Limits of transfers for a device of this geometry.
    pub(crate) fn of(geometry: &Geometry) -> Transfer {
        Transfer {
            lba_size: to_usize(geometry.lba_size.into()),
            largest: to_usize(geometry.max_transfer_size.into()),
        }
    }

    /// The largest command, in bytes.
    pub(crate) fn largest(self) -> usize {
        self.largest
    }

    /// How many commands a transfer of `bytes` bytes takes.
    pub(crate) fn commands(self, bytes: usize) -> u64 {
        bytes.div_ceil(self.largest) as u64
    }

    /// Fills `buf` from `lba` on.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn read(
        self,
        port: &mut Port,
        lba: Lba,
        mut buf: AlignedBuf,
    ) -> Result<AlignedBuf, DeviceError> {
        if buf.len() <= self.largest {
            return port.read(lba, buf);
        }
        for group in self.pieces(lba, buf.len()).chunks(self.at_a_time()) {
            let reads = group.iter().map(|(lba, range)| {
                let buf = AlignedBuf::zeroed(range.len());
                Op::Read { lba: *lba, buf }
            });
            let mut failed = Ok(());
            port.run_all(reads, |n, result| match result {
                Ok(piece) => {
                    let piece = piece.expect("a read carries a buffer");
                    buf[group[n].1.clone()].copy_from_slice(&piece);
                }
                Err(error) => failed = Err(error),
            })?;
            failed?;
        }
        Ok(buf)
    }

    /// Writes `buf` from `lba` on, every piece to the same stream, and gives the buffer back.
    ///
    /// # Errors
    /// The device's; the part of the buffer on the medium is unknown then.
    pub(crate) fn write(
        self,
        port: &mut Port,
        lba: Lba,
        buf: AlignedBuf,
        placement: Option<PlacementId>,
    ) -> Result<AlignedBuf, DeviceError> {
        if buf.len() <= self.largest {
            return port.write(lba, buf, placement);
        }
        for group in self.pieces(lba, buf.len()).chunks(self.at_a_time()) {
            let writes = group.iter().map(|(lba, range)| {
                let buf = AlignedBuf::padded(&buf[range.clone()], self.lba_size);
                Op::Write { lba: *lba, buf, placement, fua: false }
            });
            let mut failed = Ok(());
            port.run_all(writes, |_, result| {
                if let Err(error) = result {
                    failed = Err(error);
                }
            })?;
            failed?;
        }
        Ok(buf)
    }

    fn at_a_time(self) -> usize {
        (COPIES / self.largest).clamp(1, PIECES)
    }

    /// Where each piece goes, and which bytes of the buffer it is.
    fn pieces(self, lba: Lba, size: usize) -> Vec<(Lba, Range<usize>)> {
        let starts = (0..size).step_by(self.largest);
        let piece = |start: usize| {
            let at = Lba(lba.0 + (start / self.lba_size) as u64);
            (at, start..size.min(start + self.largest))
        };
        starts.map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use esker_device::{Device, MemoryDevice};

    #[test]
    fn large_transfers_are_written_and_read_in_pieces() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("m", 1 << 20, 512));
        let mut port = Port::open(&*device, 4).unwrap();
        let transfer = Transfer::of(&Geometry { max_transfer_size: 1536, ..device.geometry() });
        let mut commands = 0;
        for size in [512, 1536, 2048, 3072, 100 * 512] {
            let mut buf = AlignedBuf::zeroed(size);
            esker_base::Rng::new(size as u64).fill(&mut buf);
            let content = buf.clone();
            let back = transfer.write(&mut port, Lba(7), buf, None).unwrap();
            assert_eq!(&*back, &*content);
            let back = transfer.read(&mut port, Lba(7), AlignedBuf::zeroed(size)).unwrap();
            assert_eq!(&*back, &*content);
            commands += transfer.commands(size);
        }
        let stats = device.stats();
        assert_eq!((stats.writes, stats.reads), (commands, commands));
        assert_eq!(commands, 1 + 1 + 2 + 2 + 34);
        let beyond = Lba(2040);
        assert!(transfer.write(&mut port, beyond, AlignedBuf::zeroed(8192), None).is_err());
        assert!(transfer.read(&mut port, beyond, AlignedBuf::zeroed(8192)).is_err());
    }
}
