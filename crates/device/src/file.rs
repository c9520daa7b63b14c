//! A device over a regular file or a raw block device of Linux.
//!
//! | module | what |
//! | --- | --- |
//! | `open` | opens and locks the file, and remarks on what is refused |
//! | `probe` | finds out what the file is and can do |
//! | `transfer` | one command as a sequence of system calls, without making them |
//! | `uring` | the queue pair that makes them through `io_uring`, many at a time |
//! | `spin` | waits for short reads that begin by looking for their end |
//! | `synchronous` | makes them one at a time, where `io_uring` is refused |
//! | `identity` | what tells the file or block device from others |
//! | `discard` | `BLKDISCARD`, which has no safe wrapper |
//! | `nvme` | commands passed through to an NVMe drive |
//! | `placement` | whether writes carry placement ids |
//!
//! Invariants
//! 1. The file is locked against other processes and other opens of it (`flock`) for as long as
//!    the device or a queue pair of it lives; a block device is also held against mounting. Those who
//!    only read share the lock, and hold nothing against mounting.
//! 2. A regular file grows by writes beyond its end, up to the capacity, unless its size is fixed; what
//!    lies beyond its end reads as zeroes.
//! 3. A flush is `fdatasync` and a write with FUA is `RWF_DSYNC`, with and without the page cache.
//! 4. Whatever could not be done as preferred is a sentence in [`Device::remarks`].
//! 5. After a flush that failed, no flush and no write with FUA succeeds.

mod discard;
mod identity;
mod nvme;
mod open;
mod placement;
mod probe;
mod spin;
mod synchronous;
mod transfer;
mod uring;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba};

use crate::immediate::Immediate;
use crate::{
    Counters, DataPlacement, Device, DeviceError, DeviceStats, Geometry, Identity, OpKind,
    QueuePair,
};

/// How to open a [`FileDevice`].
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// What to do when there is no such file, or when there is one.
    pub create: Create,
    /// The size in bytes up to which a regular file may grow; by default 16 TiB, or what the file
    /// system allows if that is less. A block device has the size it has.
    pub capacity_bytes: Option<u64>,
    /// A regular file has one size: the one it has, or `capacity_bytes`, to which a shorter or a new
    /// file is extended by a hole when it is opened. Without, writes beyond its end make it grow.
    pub fixed: bool,
    /// Bytes per LBA; by default 4,096, or the logical block size of a block device whose size is
    /// no multiple of that.
    pub lba_size: Option<u32>,
    /// Whether to go around the page cache (`O_DIRECT`).
    pub direct: Preference,
    /// Whether to use `io_uring`; without it commands run one at a time.
    pub io_uring: Preference,
    /// Reads and nothing else: the file must exist, needs no permission to write, and may be open
    /// elsewhere in the same way. Writes and discards fail, and there is no data placement.
    pub read_only: bool,
    /// Who waits for reads of at most 64 KiB and nothing else looks for their end for so long before
    /// it sleeps, by default 100 µs: that takes processor time, but a drive of flash answers sooner
    /// than a sleeping thread is woken. Nobody looks while more threads wait so than there are
    /// processors, and hardly anybody where it is mostly in vain. 0 sleeps at once.
    pub spin: Duration,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            create: Create::default(),
            capacity_bytes: None,
            fixed: false,
            lba_size: None,
            direct: Preference::default(),
            io_uring: Preference::default(),
            read_only: false,
            spin: Duration::from_micros(100),
        }
    }
}

/// What to do about the existence of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// Create the file if there is none; never under `/dev`.
    #[default]
    IfMissing,
    /// The file must not exist; it is not created under `/dev`.
    New,
    /// The file must exist.
    Never,
}

/// How much something is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// Use it where possible; the device remarks on it where not.
    #[default]
    Prefer,
    /// Fail to open without it.
    Require,
    /// Do not use it.
    Never,
}

/// A regular file or a raw block device.
pub struct FileDevice(Arc<OpenFile>);

/// What the queue pairs of one device share.
struct OpenFile {
    file: File,
    name: String,
    geometry: Geometry,
    is_new: bool,
    is_block_device: bool,
    discards_zero: bool,
    is_direct: bool,
    uses_io_uring: bool,
    /// How far down the ways to write zeroes (`transfer::Zeroing`) this file system needs to go.
    zeroing: AtomicU8,
    /// Whether writes may be lost of which the kernel has told, and of which it does not tell again.
    has_lost: AtomicBool,
    /// Data placement, if writes can carry its ids.
    placement: Option<placement::DrivePlacement>,
    /// What is written where zeroes have to be written out.
    zeroes: OnceLock<AlignedBuf>,
    counters: Counters,
    clock: Clock,
    spin: spin::Spin,
    remarks: Vec<String>,
}

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

    /// The current length in bytes: of a regular file the end of its last write, of a block device
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
        self.0.geometry
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        DeviceError::check_depth(&self.0.name, depth)?;
        let open = self.0.clone();
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

    fn identity(&self) -> Option<Identity> {
        identity::of(&self.0.file, self.0.is_block_device)
    }

    /// The kernel works on what a ring was given; without one every command is waited for.
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

impl OpenFile {
    fn os_error(&self, error: &io::Error) -> DeviceError {
        DeviceError::os(&self.name, OpKind::Open, Lba(0), 0, error)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // The kernel may hold the file a little longer for a ring that is being torn down. The
        // lock must not wait for that: whoever opens the file next would find it taken.
        // Nothing can be done about an error, and closing the file unlocks it as well.
        let _ = self.file.unlock();
    }
}
