//! The data of a drive, by media page, on a device from some LBA on.

use std::mem;
use std::sync::Arc;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{Device, DeviceError, Op, Port};

use crate::FlashError;
use crate::ftl::MediaPage;

/// The largest copy made at once, in bytes.
const COPY_BYTES: u32 = 256 << 10;

/// Pages on a device.
pub(crate) struct Store {
    port: Port,
    /// LBAs of the device before the first page.
    start: u64,
    lba_size: u32,
    page_size: u32,
    max_transfer: u32,
    /// Memory for data that is moved; not there while it is.
    scratch: Option<AlignedBuf>,
    /// Whether data is kept at all.
    is_blank: bool,
}

impl Store {
    /// Pages of `page_size` bytes on `device`, from byte `offset` on.
    pub(crate) fn new(
        device: &Arc<dyn Device>,
        offset: u64,
        page_size: u32,
    ) -> Result<Store, FlashError> {
        let geometry = device.geometry();
        if !page_size.is_multiple_of(geometry.lba_size) {
            let why = format!(
                "{}: its LBAs of {} bytes do not fit the model's pages of {page_size}",
                device.name(),
                geometry.lba_size
            );
            return Err(FlashError::Invalid(why));
        }
        let most = COPY_BYTES.max(page_size).min(geometry.max_transfer_size);
        let max_transfer = (most / page_size).max(1) * page_size;
        Ok(Store {
            port: Port::open(&**device, 1)?,
            start: offset / u64::from(geometry.lba_size),
            lba_size: geometry.lba_size,
            page_size,
            max_transfer,
            scratch: None,
            is_blank: false,
        })
    }

    /// The device's queue, for other data on it.
    pub(super) fn port(&mut self) -> &mut Port {
        &mut self.port
    }

    fn lba(&self, page: MediaPage) -> Lba {
        Lba(self.start + u64::from(page) * u64::from(self.page_size / self.lba_size))
    }

    /// Keeps nothing from now on: a read returns the buffer's old content.
    pub(super) fn keep_nothing(&mut self) {
        self.is_blank = true;
    }

    /// A buffer of this size, out of the scratch memory.
    fn buffer(&mut self, bytes: usize) -> AlignedBuf {
        let mut scratch = match self.scratch.take() {
            Some(scratch) if scratch.capacity() >= bytes => scratch,
            _ => AlignedBuf::zeroed(to_usize(u64::from(self.max_transfer)).max(bytes)),
        };
        scratch.set_len(bytes);
        scratch
    }

    /// Reads consecutive media pages from `first` on into the whole of a buffer, without a copy.
    pub(super) fn read_whole(
        &mut self,
        first: MediaPage,
        target: &mut AlignedBuf,
    ) -> Result<(), DeviceError> {
        if target.len() > to_usize(u64::from(self.max_transfer)) {
            return self.read(first, target);
        }
        if self.is_blank {
            return Ok(());
        }
        // If the read fails its buffer is gone; this one stands in for it.
        let other = self.buffer(target.len());
        let buf = mem::replace(target, other);
        let read = self.port.read(self.lba(first), buf)?;
        self.scratch = Some(mem::replace(target, read));
        Ok(())
    }

    /// Reads consecutive media pages from `first` on into `target`, whose size says how many.
    pub(super) fn read(&mut self, first: MediaPage, target: &mut [u8]) -> Result<(), DeviceError> {
        if self.is_blank {
            return Ok(());
        }
        let mut page = first;
        for part in target.chunks_mut(to_usize(u64::from(self.max_transfer))) {
            let buf = self.buffer(part.len());
            let buf = self.port.read(self.lba(page), buf)?;
            part.copy_from_slice(&buf);
            self.scratch = Some(buf);
            page += self.pages_in(part.len());
        }
        Ok(())
    }

    /// Writes consecutive media pages from `first` on.
    pub(super) fn write(&mut self, first: MediaPage, source: &[u8]) -> Result<(), DeviceError> {
        if self.is_blank {
            return Ok(());
        }
        let mut page = first;
        for part in source.chunks(to_usize(u64::from(self.max_transfer))) {
            let mut buf = self.buffer(part.len());
            buf.copy_from_slice(part);
            self.scratch = Some(self.port.write(self.lba(page), buf, None)?);
            page += self.pages_in(part.len());
        }
        Ok(())
    }

    /// Copies consecutive media pages.
    pub(super) fn copy(
        &mut self,
        from: MediaPage,
        to: MediaPage,
        count: u32,
    ) -> Result<(), DeviceError> {
        if self.is_blank {
            return Ok(());
        }
        let most = self.max_transfer / self.page_size;
        let mut done = 0;
        while done < count {
            let pages = most.min(count - done);
            let bytes = u64::from(pages) * u64::from(self.page_size);
            let buf = self.buffer(to_usize(bytes));
            let buf = self.port.read(self.lba(from + done), buf)?;
            self.scratch = Some(self.port.write(self.lba(to + done), buf, None)?);
            done += pages;
        }
        Ok(())
    }

    /// Makes consecutive media pages read as zeroes.
    pub(super) fn zero(&mut self, first: MediaPage, count: u32) -> Result<(), DeviceError> {
        if self.is_blank {
            return Ok(());
        }
        let lbas = u64::from(count) * u64::from(self.page_size / self.lba_size);
        self.port.run(Op::WriteZeroes { lba: self.lba(first), count: LbaCount(lbas) }).map(drop)
    }

    /// Lets go of consecutive media pages.
    pub(super) fn discard(&mut self, first: MediaPage, count: u32) -> Result<(), DeviceError> {
        if self.is_blank {
            return Ok(());
        }
        let lbas = u64::from(count) * u64::from(self.page_size / self.lba_size);
        self.port.discard(self.lba(first), LbaCount(lbas))
    }

    fn pages_in(&self, bytes: usize) -> u32 {
        u32::try_from(bytes).expect("transfers are below 4 GiB") / self.page_size
    }
}
