//! An open file, as the queue pairs of its device share it.

use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8};

use esker_base::process::{Owner, Withheld};
use esker_base::{AlignedBuf, Clock, Lba};

use super::placement::DrivePlacement;
use super::spin::Spin;
use crate::{Counters, DeviceError, Geometry, OpKind};

/// State that the queue pairs of one device share.
pub(super) struct OpenFile {
    /// The process that opened it; its forked children may not use it.
    pub(super) owner: Owner,
    /// Keeps the file from them, and so its lock.
    pub(super) _withheld: Withheld,
    pub(super) file: File,
    pub(super) name: String,
    pub(super) geometry: Geometry,
    pub(super) is_new: bool,
    pub(super) is_block_device: bool,
    pub(super) discards_zero: bool,
    pub(super) is_direct: bool,
    pub(super) uses_io_uring: bool,
    /// How far down the ways to write zeroes (`transfer::Zeroing`) this file system needs to go.
    pub(super) zeroing: AtomicU8,
    /// Whether writes may be lost of which the kernel has told, and of which it does not tell again.
    pub(super) has_lost: AtomicBool,
    /// Data placement, if writes can carry its ids.
    pub(super) placement: Option<DrivePlacement>,
    /// Buffer that is written where zeroes have to be written out.
    pub(super) zeroes: OnceLock<AlignedBuf>,
    pub(super) counters: Counters,
    pub(super) clock: Clock,
    pub(super) spin: Spin,
    pub(super) remarks: Vec<String>,
}

impl OpenFile {
    pub(super) fn os_error(&self, error: &io::Error) -> DeviceError {
        DeviceError::os(&self.name, OpKind::Open, Lba(0), 0, error)
    }

    /// Refuses a forked child of the process that opened the file.
    pub(super) fn check_owner(&self) -> Result<(), DeviceError> {
        if self.owner.is_here() { Ok(()) } else { Err(DeviceError::forked(&self.name)) }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // The kernel may hold the file a little longer for a ring that is being torn down. The
        // lock must not wait for that: whoever opens the file next would find it taken.
        // Nothing can be done about an error, and closing the file unlocks it as well.
        // A child does not have the file any more, and the lock is its parent's.
        if self.owner.is_here() {
            let _ = self.file.unlock();
        }
    }
}
