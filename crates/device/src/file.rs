//! A device over a regular file or a raw block device of Linux.
//!
//! | module | content |
//! | --- | --- |
//! | `options`, `refusal` | how a file is opened, and why it cannot be |
//! | `opened` | an open file, which its queue pairs share |
//! | `open` | opens and locks the file, and remarks on refusals |
//! | `probe` | finds out the kind of the file and its abilities |
//! | `transfer` | one command as a sequence of system calls, without making them |
//! | `uring` | the queue pair that makes them through `io_uring`, many at a time |
//! | `spin` | waits for short reads that begin by looking for their end |
//! | `synchronous` | makes them one at a time, where `io_uring` is refused |
//! | `identity` | the facts that tell the file or block device from others |
//! | `discard` | `BLKDISCARD`, which has no safe wrapper |
//! | `nvme` | commands passed through to an NVMe drive |
//! | `placement` | whether writes carry placement ids |
//!
//! Invariants
//! 1. The file is locked against other processes and other opens (`flock`) for as long as
//!    the device or a queue pair of it lives; a block device is also held against mounting. Read-only
//!    users share the lock, and hold nothing against mounting.
//! 2. A regular file grows by writes beyond its end, up to the capacity, unless its size is fixed;
//!    LBAs beyond its end read as zeroes. A device whose size nobody has said is as large as its file or block
//!    device, and becomes larger with that while it is open.
//! 3. A flush is `fdatasync` and a write with FUA is `RWF_DSYNC`, with and without the page cache.
//! 4. Whatever could not be done as preferred is a sentence in [`Device::remarks`].
//! 5. After a flush that failed, no flush and no write with FUA succeeds.
//! 6. A forked child of the process that opened the file has neither the file nor its rings: each command fails there.

mod discard;
mod holder;
mod identity;
mod nvme;
mod open;
mod opened;
mod options;
mod placement;
mod probe;
mod refusal;
mod spin;
mod synchronous;
mod transfer;
mod uring;

use std::path::Path;
use std::sync::Arc;

use esker_base::{Lba, LbaCount};

pub use options::{Create, FileOptions, Preference};

use crate::immediate::Immediate;
use crate::{
    DataPlacement, Device, DeviceError, DeviceStats, Geometry, Identity, OpKind, QueuePair,
};
use opened::OpenFile;

/// A regular file or a raw block device.
pub struct FileDevice(Arc<OpenFile>);

impl FileDevice {
    /// Opens the file or block device at `path`.
    ///
    /// # Errors
    /// `Conflict` when it is open elsewhere or mounted, `NotFound` and `Exists` as
    /// [`FileOptions::create`] says, `Unsupported` when something required is refused, `Invalid`
    /// for a directory or options that do not fit, `Io` for the rest (no permission, say).
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<FileDevice, DeviceError> {
        open::open(path.as_ref(), options).map(|open| FileDevice(Arc::new(open)))
    }

    /// Whether opening created the file.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.0.is_new
    }

    /// Whether reads and writes go around the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.0.is_direct
    }

    /// The current length in bytes: of a regular file the end of what was written or allocated, of a block device
    /// its size.
    ///
    /// # Errors
    /// The operating system's.
    pub fn len_bytes(&self) -> Result<u64, DeviceError> {
        let open = &*self.0;
        probe::length(&open.file, open.is_block_device).map_err(|error| open.os_error(&error))
    }
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn geometry(&self) -> Geometry {
        self.0.look();
        self.0.geometry()
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        DeviceError::check_depth(&self.0.name, depth)?;
        let open = self.0.clone();
        open.check_owner()?;
        if !open.uses_io_uring {
            return Ok(Box::new(Immediate::new(open, depth)));
        }
        match uring::Queue::new(open, depth) {
            Ok(queue) => Ok(Box::new(queue)),
            Err(error) => Err(self.0.os_error(&error)),
        }
    }

    /// A hole in a regular file reads as zeroes. A block device promises nothing of the kind.
    fn discards_zero(&self) -> bool {
        self.0.discards_zero
    }

    fn usable_bytes(&self) -> Option<u64> {
        let open = &*self.0;
        if open.is_block_device { None } else { probe::usable_bytes(&open.file) }
    }

    fn left_bytes(&self) -> Option<u64> {
        let open = &*self.0;
        if open.is_block_device { None } else { probe::left_bytes(&open.file) }
    }

    fn allocate(&self, lba: Lba, count: LbaCount) -> Result<bool, DeviceError> {
        let open = &*self.0;
        open.check_owner()?;
        if open.is_block_device {
            return Ok(false);
        }
        let lba_size = open.geometry.lba_size;
        let (offset, bytes) = (lba.offset(lba_size), count.bytes(lba_size));
        let refused = |error| DeviceError::os(&open.name, OpKind::Write, lba, bytes, &error);
        probe::allocate(&open.file, offset, bytes).map_err(refused)
    }

    fn identity(&self) -> Option<Identity> {
        identity::of(&self.0.file, self.0.is_block_device)
    }

    /// The kernel works on commands that a ring was given; without one every command is waited for.
    fn is_prompt(&self) -> bool {
        self.0.uses_io_uring
    }

    fn stats(&self) -> DeviceStats {
        self.0.counters.snapshot(&self.0.name)
    }

    fn remarks(&self) -> Vec<String> {
        self.0.remarks.clone()
    }

    fn data_placement(&self) -> Option<&dyn DataPlacement> {
        self.0.placement.as_ref().map(|placement| placement as &dyn DataPlacement)
    }
}
