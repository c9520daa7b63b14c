//! The drives and buffer devices of an open pool, by their index.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker_base::sync::{Mutex, RwLock};
use esker_base::{Clock, Nanos};
use esker_device::{Device, OpKind};

use crate::drive::answers::{Answers, Spare};
use crate::drive::latency::{self, Latencies};
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
    /// It was away, and is not verified yet.
    pub(crate) is_returning: AtomicBool,
    pub(crate) errors: Errors,
    pub(crate) latencies: Latencies,
    pub(crate) answers: Answers,
}

/// Errors of a drive since the pool was opened.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    /// It returned other bytes than were written.
    pub(crate) checksums: AtomicU64,
    /// Of those, in what may be older, because the drive was away.
    pub(crate) missed: AtomicU64,
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
            is_returning: AtomicBool::new(false),
            errors: Errors::default(),
            latencies: Latencies::default(),
            answers: Answers::default(),
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
        if self.is_returning.load(Ordering::Relaxed) {
            self.errors.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A read that takes so many times as long as nearly all reads is computed from other drives.
const HEDGE_TIMES: u64 = 3;
/// No read is computed from others before so much time has passed.
const HEDGE_FLOOR_NS: u64 = 500_000;
/// The same as long as nobody knows how long reads take.
const HEDGE_UNKNOWN_NS: u64 = 10_000_000;

/// The members that are there.
pub(crate) struct Fleet {
    pub(crate) pool: PoolUuid,
    pub(crate) layout: Layout,
    /// How long a drive may be silent, on `watch`.
    pub(crate) patience: Duration,
    /// The pool's clock: what latencies are measured with.
    pub(crate) clock: Clock,
    /// The pool's clock, or a real one where that moves only when it is told to.
    pub(crate) watch: Clock,
    drives: RwLock<Vec<Option<Arc<Drive>>>>,
    /// Counts the changes of `drives`.
    version: AtomicU64,
    /// When the window of latencies ends.
    window_end_ns: AtomicU64,
    hedge_ns: AtomicU64,
    /// The drives that the pool can do without.
    pub(crate) spare: Mutex<Spare>,
    /// When drives that nobody asks anything were last asked something, on `watch`.
    pub(crate) called: Mutex<Nanos>,
    /// The pool is being closed: nobody waits for a drive longer than the patience.
    pub(crate) is_closing: AtomicBool,
}

impl Fleet {
    pub(crate) fn new(
        pool: PoolUuid,
        layout: Layout,
        patience: Duration,
        clock: Clock,
        drives: Vec<Option<Arc<Drive>>>,
    ) -> Fleet {
        Fleet {
            pool,
            layout,
            patience,
            watch: if clock.is_virtual() { Clock::real() } else { clock.clone() },
            window_end_ns: AtomicU64::new((clock.now() + latency::WINDOW).0),
            clock,
            drives: RwLock::new(drives),
            version: AtomicU64::new(0),
            hedge_ns: AtomicU64::new(HEDGE_UNKNOWN_NS),
            spare: Mutex::default(),
            called: Mutex::new(Nanos(0)),
            is_closing: AtomicBool::new(false),
        }
    }

    /// This moment, of the pool's clock and of the one that counts the patience.
    pub(crate) fn moment(&self) -> (Nanos, Nanos) {
        let now = self.clock.now();
        (now, if self.clock.is_virtual() { self.watch.now() } else { now })
    }

    /// Counts the changes of which drive is where.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// How long a read may take before it is computed from other drives.
    pub(crate) fn hedge_after(&self) -> Duration {
        Duration::from_nanos(self.hedge_ns.load(Ordering::Relaxed))
    }

    /// Ends the window of latencies if it is over: which drives are slow, and how long reads take.
    pub(crate) fn judge(&self, now: Nanos) {
        let end = self.window_end_ns.load(Ordering::Relaxed);
        let next = (now + latency::WINDOW).0;
        if now.0 < end
            || self
                .window_end_ns
                .compare_exchange(end, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        for role in [Role::Buffer, Role::Drive] {
            let drives = self.serving(role);
            let latencies: Vec<&Latencies> = drives.iter().map(|drive| &drive.latencies).collect();
            let p99 = latency::end_window(&latencies);
            if let Some(p99) = p99.filter(|_| role == Role::Drive) {
                let bound = p99.saturating_mul(HEDGE_TIMES).max(HEDGE_FLOOR_NS);
                self.hedge_ns.store(bound, Ordering::Relaxed);
            }
        }
    }

    /// Whether a drive is there, and slow beside its peers.
    pub(crate) fn is_slow(&self, index: DriveIndex) -> bool {
        let drives = self.drives.read();
        let drive = drives.get(index.index()).and_then(Option::as_ref);
        drive.is_some_and(|drive| !drive.is_out() && drive.latencies.is_slow())
    }

    /// The drives that are there and slow beside their peers.
    pub(crate) fn slow(&self) -> Vec<DriveIndex> {
        let drives = self.drives.read();
        let slow = drives.iter().flatten().filter(|d| !d.is_out() && d.latencies.is_slow());
        slow.map(|drive| drive.index).collect()
    }

    /// Whether a drive is there, has not failed, and is not slow.
    pub(crate) fn is_prompt(&self, index: DriveIndex) -> bool {
        let drives = self.drives.read();
        let drive = drives.get(index.index()).and_then(Option::as_ref);
        drive.is_some_and(|drive| !drive.is_out() && !drive.latencies.is_slow())
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
        self.version.fetch_add(1, Ordering::Release);
    }
}
