//! The drives and buffer devices of an open pool, by their index.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker_device::{Device, OpKind};
use parking_lot::RwLock;

use crate::drive::layout::Layout;
use crate::omf::label::Role;
use crate::types::id::{DriveIndex, DriveUuid, PoolUuid};

/// A member that is there.
pub(crate) struct Drive {
    pub(crate) index: DriveIndex,
    pub(crate) uuid: DriveUuid,
    pub(crate) role: Role,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) bytes: u64,
    pub(crate) lba_size: u32,
    pub(crate) placement_handles: u16,
    pub(crate) largest_io: usize,
    /// It failed, and is not asked any more.
    is_out: AtomicBool,
    pub(crate) errors: Errors,
}

/// What went wrong with a drive since the pool was opened.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    /// It returned other bytes than were written.
    pub(crate) checksums: AtomicU64,
}

impl Drive {
    pub(crate) fn new(
        index: DriveIndex,
        uuid: DriveUuid,
        role: Role,
        device: Arc<dyn Device>,
    ) -> Drive {
        let geometry = device.geometry();
        let largest = geometry.max_transfer_size.min(1 << 20) & !4095;
        Drive {
            index,
            uuid,
            role,
            bytes: geometry.capacity.bytes(geometry.lba_size),
            lba_size: geometry.lba_size,
            placement_handles: geometry.placement_handles,
            largest_io: esker_base::units::to_usize(largest.max(4096).into()),
            device,
            is_out: AtomicBool::new(false),
            errors: Errors::default(),
        }
    }

    pub(crate) fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Acquire)
    }

    pub(crate) fn take_out(&self) {
        self.is_out.store(true, Ordering::Release);
    }

    /// Counts an error of the device.
    pub(crate) fn count(&self, op: OpKind) {
        let counter = match op {
            OpKind::Read => &self.errors.reads,
            _ => &self.errors.writes,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes that were not what had been written.
    pub(crate) fn blame(&self) {
        self.errors.checksums.fetch_add(1, Ordering::Relaxed);
    }
}

/// The members that are there.
pub(crate) struct Fleet {
    pub(crate) pool: PoolUuid,
    pub(crate) layout: Layout,
    /// How long a drive may take to answer.
    pub(crate) patience: Duration,
    drives: RwLock<Vec<Option<Arc<Drive>>>>,
}

impl Fleet {
    pub(crate) fn new(
        pool: PoolUuid,
        layout: Layout,
        patience: Duration,
        drives: Vec<Option<Arc<Drive>>>,
    ) -> Fleet {
        Fleet { pool, layout, patience, drives: RwLock::new(drives) }
    }

    /// The drive, if it is there and has not failed.
    pub(crate) fn get(&self, index: DriveIndex) -> Option<Arc<Drive>> {
        self.any(index).filter(|drive| !drive.is_out())
    }

    /// The drive, if it is there, failed or not.
    pub(crate) fn any(&self, index: DriveIndex) -> Option<Arc<Drive>> {
        self.drives.read().get(index.index()).cloned().flatten()
    }

    /// Those that failed.
    pub(crate) fn out(&self) -> Vec<DriveIndex> {
        let drives = self.drives.read();
        drives.iter().flatten().filter(|drive| drive.is_out()).map(|drive| drive.index).collect()
    }

    /// All that are there and have not failed.
    pub(crate) fn serving(&self, role: Role) -> Vec<Arc<Drive>> {
        let drives = self.drives.read();
        let serving = drives.iter().flatten().filter(|d| d.role == role && !d.is_out());
        serving.cloned().collect()
    }

    /// Puts a drive in its place.
    pub(crate) fn put(&self, drive: Arc<Drive>) {
        let mut drives = self.drives.write();
        let index = drive.index.index();
        if drives.len() <= index {
            drives.resize(index + 1, None);
        }
        drives[index] = Some(drive);
    }
}
