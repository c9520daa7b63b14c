//! An open file, as the queue pairs of its device share it.

use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use esker_base::process::{Owner, Withheld};
use esker_base::{AlignedBuf, Clock, Lba, LbaCount};

use super::placement::DrivePlacement;
use super::probe;
use super::spin::Spin;
use crate::{Counters, DeviceError, Geometry, OpKind};

/// How often the length of a file is looked at, at most.
const LOOK: Duration = Duration::from_millis(50);

/// State that the queue pairs of one device share.
pub(super) struct OpenFile {
    /// The process that opened it; its forked children may not use it.
    pub(super) owner: Owner,
    /// Keeps the file from them, and so its lock.
    pub(super) _withheld: Withheld,
    pub(super) file: File,
    pub(super) name: String,
    /// Geometry, but for its capacity, which is in `capacity`.
    pub(super) geometry: Geometry,
    pub(super) capacity: AtomicU64,
    /// Whether the device becomes larger when the file does.
    pub(super) grows: bool,
    /// When the length of the file is looked at next, in nanoseconds of the clock.
    pub(super) next_look: AtomicU64,
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

    /// The geometry as last seen.
    pub(super) fn geometry(&self) -> Geometry {
        Geometry { capacity: LbaCount(self.capacity.load(Ordering::Relaxed)), ..self.geometry }
    }

    /// Looks at the length of the file, if that is due: somebody may have made it longer. A file that was cut off
    /// keeps its size, and commands beyond its end fail.
    pub(super) fn look(&self) {
        let now = self.clock.now();
        if !self.grows || now.0 < self.next_look.load(Ordering::Relaxed) || !self.owner.is_here() {
            return;
        }
        self.next_look.store((now + LOOK).0, Ordering::Relaxed);
        if let Ok(length) = probe::length(&self.file, self.is_block_device) {
            let lbas = length / u64::from(self.geometry.lba_size);
            self.capacity.fetch_max(lbas, Ordering::Relaxed);
        }
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
