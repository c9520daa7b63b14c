//! A flash device, byte by byte: access to the superblock, the journal and the table.
//!
//! Called by `journal`, `store` and those who make a cache; does not interpret the bytes.

use std::sync::Arc;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{Device, DeviceError, Geometry, Op, PlacementId, Port};

use crate::CacheError;
use crate::omf::BLOCK_SIZE;

/// Unreadable blocks in one read that a device may have. One that fails each read is not asked for each of its blocks.
const MOST_UNREADABLE: usize = 64;

/// Where blocks could not be read, and why.
pub(crate) type Unread = Vec<(u64, DeviceError)>;

/// A flash device, byte by byte: whole LBAs through one port.
pub(crate) struct Medium {
    device: Arc<dyn Device>,
    port: Port,
    geometry: Geometry,
    placement: Option<PlacementId>,
    /// Bytes of metadata written.
    pub(crate) written: u64,
}

impl Medium {
    pub(crate) fn open(device: &Arc<dyn Device>) -> Result<Medium, CacheError> {
        let geometry = device.geometry();
        let placement = (geometry.placement_handles > 1).then_some(PlacementId(0));
        let port = Port::open(&**device, 16)?;
        Ok(Medium { device: device.clone(), port, geometry, placement, written: 0 })
    }

    fn lba(&self, offset: u64) -> Lba {
        Lba(offset / u64::from(self.geometry.lba_size))
    }

    pub(crate) fn lba_size(&self) -> usize {
        to_usize(u64::from(self.geometry.lba_size))
    }

    pub(crate) fn name(&self) -> &str {
        self.device.name()
    }

    /// How large the device is, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.geometry.capacity.bytes(self.geometry.lba_size)
    }

    fn transfer(&self) -> usize {
        let most = to_usize(u64::from(self.geometry.max_transfer_size));
        (most / BLOCK_SIZE * BLOCK_SIZE).clamp(self.lba_size(), 1 << 20)
    }

    /// Reads bytes, in as many commands as it takes.
    pub(crate) fn read(&mut self, offset: u64, size: usize) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = Vec::with_capacity(size);
        while bytes.len() < size {
            let part = self.transfer().min(size - bytes.len());
            let lba = self.lba(offset + to_u64(bytes.len()));
            bytes.extend_from_slice(&self.port.read(lba, AlignedBuf::zeroed(part))?);
        }
        Ok(bytes)
    }

    /// Reads bytes of which some may be unreadable: such blocks read as zeroes, and their offsets are returned.
    ///
    /// # Errors
    /// So many cannot be read that the device has failed rather than its medium.
    pub(crate) fn read_sound(
        &mut self,
        offset: u64,
        size: usize,
    ) -> Result<(Vec<u8>, Unread), DeviceError> {
        let (mut bytes, mut unread) = (Vec::with_capacity(size), Unread::new());
        while bytes.len() < size {
            let part = self.transfer().min(size - bytes.len());
            let at = offset + to_u64(bytes.len());
            if let Ok(read) = self.read(at, part) {
                bytes.extend_from_slice(&read);
                continue;
            }
            for from in (0..part).step_by(BLOCK_SIZE) {
                let piece = BLOCK_SIZE.min(part - from);
                match self.read(at + to_u64(from), piece) {
                    Ok(read) => bytes.extend_from_slice(&read),
                    Err(error) if unread.len() == MOST_UNREADABLE => return Err(error),
                    Err(error) => {
                        unread.push((at + to_u64(from), error));
                        bytes.resize(bytes.len() + piece, 0);
                    }
                }
            }
        }
        Ok((bytes, unread))
    }

    /// Reads several parts, one behind the other, several at a time.
    pub(crate) fn read_all(&mut self, parts: &[(u64, usize)]) -> Result<Vec<u8>, DeviceError> {
        let most = self.transfer();
        let (mut reads, mut whole) = (Vec::new(), 0);
        for &(offset, size) in parts {
            for at in (0..size).step_by(most) {
                let part = most.min(size - at);
                let buf = AlignedBuf::zeroed(part);
                reads.push(Op::Read { lba: self.lba(offset + to_u64(at)), buf });
            }
            whole += size;
        }
        let mut read: Vec<Option<AlignedBuf>> = reads.iter().map(|_| None).collect();
        let mut error = None;
        self.port.run_all(reads, |n, result| match result {
            Ok(buf) => read[n] = buf,
            Err(found) => error = Some(found),
        })?;
        if let Some(error) = error {
            return Err(error);
        }
        let mut bytes = Vec::with_capacity(whole);
        read.iter().flatten().for_each(|buf| bytes.extend_from_slice(buf));
        Ok(bytes)
    }

    /// Writes whole LBAs; durable when it returns, if `is_durable`.
    pub(crate) fn write(
        &mut self,
        offset: u64,
        bytes: &[u8],
        is_durable: bool,
    ) -> Result<(), DeviceError> {
        let padded = bytes.len().next_multiple_of(self.lba_size());
        let is_single = padded <= self.transfer();
        let mut at = 0;
        while at < padded {
            let part = self.transfer().min(padded - at);
            let given = &bytes[at.min(bytes.len())..(at + part).min(bytes.len())];
            let buf = AlignedBuf::padded(given, part);
            let lba = self.lba(offset + to_u64(at));
            let fua = is_durable && is_single;
            self.port.run(Op::Write { lba, buf, placement: self.placement, fua })?;
            at += part;
        }
        self.written += to_u64(padded);
        if is_durable && !is_single { self.flush() } else { Ok(()) }
    }

    /// Writes whole LBAs to several places at once. All are durable when it returns.
    pub(crate) fn write_copies(&mut self, copies: &[(u64, &[u8])]) -> Result<(), DeviceError> {
        let size = |bytes: &[u8]| bytes.len().next_multiple_of(self.lba_size());
        if copies.iter().any(|(_, bytes)| size(bytes) > self.transfer()) {
            copies.iter().try_for_each(|(offset, bytes)| self.write(*offset, bytes, false))?;
            return self.flush();
        }
        let placement = self.placement;
        let ops: Vec<Op> = copies
            .iter()
            .map(|(offset, bytes)| {
                let buf = AlignedBuf::padded(bytes, size(bytes));
                Op::Write { lba: self.lba(*offset), buf, placement, fua: true }
            })
            .collect();
        self.written += copies.iter().map(|(_, bytes)| to_u64(size(bytes))).sum::<u64>();
        let mut outcome = Ok(());
        self.port.run_all(ops, |_, result| {
            if let Err(error) = result {
                outcome = Err(error);
            }
        })?;
        outcome
    }

    /// Writes data to a slot; not durable.
    pub(crate) fn write_data(
        &mut self,
        offset: u64,
        bytes: &[u8],
        placement: Option<PlacementId>,
    ) -> Result<(), DeviceError> {
        let (lba, buf) = (self.lba(offset), AlignedBuf::padded(bytes, self.lba_size()));
        self.port.write(lba, buf, placement).map(drop)
    }

    pub(crate) fn flush(&mut self) -> Result<(), DeviceError> {
        self.port.flush()
    }

    /// Makes a range read as zeroes. A discard that does so is preferred: in a file a hole stays one, where zeroes
    /// would take room.
    pub(crate) fn zero(&mut self, offset: u64, size: u64) -> Result<(), DeviceError> {
        let count = LbaCount(size / u64::from(self.geometry.lba_size));
        let lba = self.lba(offset);
        let op = match self.device.discards_zero() {
            true => Op::Discard { lba, count },
            false => Op::WriteZeroes { lba, count },
        };
        self.port.run(op).map(drop)
    }
}
