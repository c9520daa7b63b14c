//! The face of the crate: a pool is created on devices, opened by their labels, asked for volumes, and tells how it
//! is.
//!
//! | module | content |
//! | --- | --- |
//! | `create` | makes a pool on devices; reads the label of a bare one |
//! | `volumes` | create, resize, snapshot, clone, roll back, delete, restore |
//! | `change` | changes of the catalogue become durable; the trash is emptied |
//! | `members` | add, replace, retire drives; scrub |
//! | `rejoin` | takes a drive in again that was missing, or failed |
//! | `du` | whose space it is |
//! | `what_if` | what would be: a drive fails, something is deleted |
//! | `status` | what there is |
//! | `alarms` | what is wrong, and what to do |

mod alarms;
mod change;
mod create;
mod du;
mod members;
mod rejoin;
mod status;
mod volumes;
mod what_if;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use esker_base::process::Owner;
use esker_base::sync::Mutex;
use esker_base::thread;
use esker_device::{Device, DeviceStats};

use crate::engine::Shared;
use crate::keep;
use crate::keep::checkpoint::{self, Options};
use crate::omf::label::Role;
use crate::queue::{View, Volume};
use crate::recover;
use crate::stats::VolumeStats;
use crate::types::error::VolumeError;
use crate::types::id::VolumeId;
use crate::types::options::{Maintenance, OpenOptions, check_repair_share};

pub use alarms::Alarm;
pub use create::Examined;
pub use du::VolumeSpace;
pub use status::{
    DriveLatency, LogStatus, MemberStatus, RebuildStatus, ScrubStatus, Status, WriteCounts,
};
pub use volumes::{SnapshotInfo, VolumeInfo};
pub use what_if::DriveLoss;

/// How long the maintenance thread sleeps when nothing is due.
const NAP: Duration = Duration::from_millis(200);

/// How long those who only look wait for somebody who holds the state.
const LOOK: Duration = Duration::from_millis(50);

/// An open pool. Dropping it stops its thread and leaves the pool as after a crash, which loses nothing; closing it
/// first makes the next open faster.
pub struct Pool {
    shared: Arc<Shared>,
    remarks: Vec<String>,
    /// The error with which maintenance failed last.
    failure: Arc<Mutex<Option<String>>>,
    /// The status that was seen last.
    seen: Mutex<Option<Status>>,
    /// The volumes that were seen last.
    seen_volumes: Mutex<Vec<VolumeInfo>>,
    keeper: Option<JoinHandle<()>>,
    /// The process that has the keeper.
    owner: Owner,
}

impl Pool {
    /// Opens the pool whose drives and buffer devices these are, in any order.
    ///
    /// # Errors
    /// A device without a label, of another pool, or twice; too few drives; a lost write buffer; damage; an option that
    /// makes no sense.
    pub fn open(devices: &[Arc<dyn Device>], options: OpenOptions) -> Result<Pool, VolumeError> {
        options.check()?;
        let maintenance = options.maintenance;
        let (shared, remarks) = recover::open(devices, options)?;
        let shared = Arc::new(shared);
        let (failure, seen, owner) = (Arc::default(), Mutex::default(), Owner::here());
        let seen_volumes = Mutex::default();
        let mut pool = Pool { shared, remarks, failure, seen, seen_volumes, keeper: None, owner };
        // Figures that are told while drives do not answer.
        let _ = (pool.status(), pool.volumes_seen());
        if maintenance == Maintenance::Thread {
            let (shared, failure) = (pool.shared.clone(), pool.failure.clone());
            let keeper = thread::spawn("pool-keeper", move || {
                let run = AssertUnwindSafe(|| keep_up(&shared, &failure));
                if let Err(panic) = catch_unwind(run) {
                    let said = thread::said(&*panic);
                    shared.fail(&format!("its maintenance thread panicked: {said}"));
                }
            });
            pool.keeper = Some(keeper.map_err(|error| VolumeError::Thread(error.to_string()))?);
        }
        Ok(pool)
    }

    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// A volume as a device, by its name.
    ///
    /// # Errors
    /// There is no such volume.
    pub fn volume(&self, name: &str) -> Result<Arc<dyn Device>, VolumeError> {
        let core = self.shared.core.lock();
        let row = core.catalog.find_volume(name)?;
        Ok(Arc::new(Volume::new(self.shared.clone(), View::Volume(row.id), row.id, name)))
    }

    /// A snapshot as a device, read-only.
    ///
    /// # Errors
    /// There is no such volume or snapshot.
    pub fn volume_at(&self, name: &str, snapshot: &str) -> Result<Arc<dyn Device>, VolumeError> {
        let core = self.shared.core.lock();
        let row = core.catalog.find_snapshot(name, snapshot)?;
        let (view, name) = (View::Snapshot(row.id), format!("{name}@{snapshot}"));
        Ok(Arc::new(Volume::new(self.shared.clone(), view, row.volume, &name)))
    }

    /// Counters of each volume since the pool was opened, and where the time went; by id.
    #[must_use]
    pub fn stats(&self) -> Vec<(VolumeId, VolumeStats)> {
        let volumes = self.volumes_seen().into_iter();
        volumes.map(|volume| (volume.id, self.shared.tallies.snapshot(volume.id))).collect()
    }

    /// Statistics of the devices that serve, since they were opened: write buffers, then drives.
    #[must_use]
    pub fn device_stats(&self) -> Vec<DeviceStats> {
        let of = |role| self.shared.fleet.serving(role);
        let serving = [Role::Buffer, Role::Drive].into_iter().flat_map(of);
        serving.map(|drive| drive.device.stats()).collect()
    }

    /// Does the most urgent piece of maintenance; false when nothing is due.
    ///
    /// # Errors
    /// The pool's: no space, damage, too many drives failed.
    pub fn step(&self) -> Result<bool, VolumeError> {
        step(&self.shared, true)
    }

    /// Gives repair and sweeps so many percent of maintenance's time, from 1 to 90, until the pool is closed.
    ///
    /// # Errors
    /// Another number.
    pub fn set_repair_share(&self, percent: u8) -> Result<(), VolumeError> {
        check_repair_share(percent)?;
        self.shared.load.set_least(percent);
        Ok(())
    }

    /// The percent of maintenance's time that repair and sweeps get at least.
    #[must_use]
    pub fn repair_share(&self) -> u8 {
        self.shared.load.least()
    }

    /// Moves all that the write buffer holds into segments.
    ///
    /// # Errors
    /// The pool's.
    pub fn drain(&self) -> Result<(), VolumeError> {
        keep::drain(&self.shared, &mut self.shared.ios.take())
    }

    /// Makes a checkpoint.
    ///
    /// # Errors
    /// The pool's.
    pub fn checkpoint(&self) -> Result<(), VolumeError> {
        let mut keeper = self.shared.keep()?;
        let mut io = self.shared.ios.take();
        keep::ensure_space(&self.shared, &mut keeper, &mut io)?;
        checkpoint::run(&self.shared, &mut keeper, &mut io, &Options::default())
    }

    /// Empties the write buffer, makes a last checkpoint, and ends. Volumes that are still open refuse commands then.
    ///
    /// # Errors
    /// The pool's; it is as after a crash then. `Conflict` in a forked child, where nothing is done.
    pub fn close(mut self) -> Result<(), VolumeError> {
        if !self.owner.is_here() {
            let why = "the process that opened the pool was forked, and this is the child: close it in its parent";
            return Err(VolumeError::Conflict(why.to_owned()));
        }
        self.end_thread();
        let shared = &self.shared;
        let mut io = shared.ios.take();
        let mut keeper = shared.keep()?;
        shared.check_writable(&shared.core.lock())?;
        keep::drain_all(shared, &mut keeper, &mut io)?;
        let result = checkpoint::run(
            shared,
            &mut keeper,
            &mut io,
            &Options { new_log: true, is_clean: true },
        );
        shared.core.lock().is_closed = true;
        result
    }

    fn end_thread(&mut self) {
        self.shared.fleet.is_closing.store(true, Ordering::Relaxed);
        self.shared.bell.lock().is_over = true;
        self.shared.rung.notify_all();
        if let Some(keeper) = self.keeper.take() {
            // It ends by itself; a panic of its stopped the pool already.
            let _ = keeper.join();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            // The keeper is the parent's, and so are the locks that it holds.
            std::mem::forget(self.keeper.take());
            return;
        }
        self.end_thread();
        self.shared.core.lock().is_closed = true;
    }
}

fn step(shared: &Shared, may_repair: bool) -> Result<bool, VolumeError> {
    let mut io = shared.ios.take();
    io.call_idle();
    if change::purge_expired(shared, &mut io)? {
        return Ok(true);
    }
    keep::step::run(shared, &mut io, may_repair)
}

/// The maintenance thread.
fn keep_up(shared: &Shared, failure: &Mutex<Option<String>>) {
    let clock = &shared.options.clock;
    loop {
        let is_busy = match step(shared, shared.load.wait(clock).is_zero()) {
            Ok(is_busy) => {
                if is_busy {
                    *failure.lock() = None;
                }
                is_busy
            }
            Err(error) => {
                *failure.lock() = Some(error.to_string());
                false
            }
        };
        let mut bell = shared.bell.lock();
        if !is_busy && !bell.is_rung && !bell.is_over {
            let wait = shared.load.wait(clock);
            shared.rung.wait_for(&mut bell, if wait.is_zero() { NAP } else { wait.min(NAP) });
        }
        bell.is_rung = false;
        if bell.is_over {
            return;
        }
    }
}
