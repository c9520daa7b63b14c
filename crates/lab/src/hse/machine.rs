//! Machine of an experiment: the drives of its arms, and the processors.

use std::fmt;
use std::sync::Arc;

use esker_base::Clock;
use esker_bench::{RunResult, Workload};
use esker_device::{Device, DeviceStats};
use esker_flash::Ssd;
use esker_flash::profile::{Figure, Profile};
use esker_kv::MediaClass;
use serde::Serialize;

use super::options::HseOptions;
use crate::LabError;

/// Arms that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// Capacity drives alone.
    Capacity,
    /// The same, and a staging drive.
    Staged,
    /// RocksDB on the capacity drives, with a file system over them.
    Rocksdb,
}

impl Arm {
    /// Those of the engine, the one that is compared with first.
    pub const ESKER: [Arm; 2] = [Arm::Capacity, Arm::Staged];
    /// All that there can be.
    pub const ALL: [Arm; 3] = [Arm::Capacity, Arm::Staged, Arm::Rocksdb];
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arm::Capacity => "capacity alone",
            Arm::Staged => "with staging",
            Arm::Rocksdb => "RocksDB",
        })
    }
}

/// Rates that a drive's maker publishes, each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Sequential reads, in bytes a second.
    pub read_bytes_per_s: f64,
    /// Sequential writes, in bytes a second.
    pub write_bytes_per_s: f64,
    /// Random reads of 4 KiB a second.
    pub reads_per_s: f64,
}

impl Rates {
    /// Those of a profile; none where one is missing.
    #[must_use]
    pub fn of(profile: &Profile) -> Option<Rates> {
        let value = |figure: Figure| {
            profile.published.iter().find(|one| one.figure == figure).map(|one| one.value)
        };
        Some(Rates {
            read_bytes_per_s: value(Figure::SequentialRead)?,
            write_bytes_per_s: value(Figure::SequentialWrite)?,
            reads_per_s: value(Figure::RandomReads)?,
        })
    }

    /// How long a drive takes at least for this traffic, in seconds. Writes and reads come one after the other, reads
    /// at the rate that bounds them more.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counts become a span
    pub fn seconds(&self, written_bytes: u64, read_bytes: u64, reads: u64) -> f64 {
        let read = (read_bytes as f64 / self.read_bytes_per_s).max(reads as f64 / self.reads_per_s);
        written_bytes as f64 / self.write_bytes_per_s + read
    }
}

/// A drive of an arm.
pub struct ArmDrive {
    /// The class whose data it holds.
    pub class: MediaClass,
    /// Its name in reports.
    pub name: String,
    /// The device.
    pub device: Arc<dyn Device>,
    /// The model, if it is one.
    pub model: Option<Ssd>,
    /// The most that it carries, if that is known.
    pub rates: Option<Rates>,
}

impl ArmDrive {
    pub(super) fn stats(&self) -> DeviceStats {
        self.device.stats()
    }
}

/// The drives of an arm, new or erased.
pub struct Opened {
    /// The time of the drives and of the engine.
    pub clock: Clock,
    /// Holds the manifest.
    pub manifest: Arc<dyn Device>,
    /// The drives that the capacity class is striped over, and the staging drive if the arm has one.
    pub drives: Vec<ArmDrive>,
    /// Remarks about the drives.
    pub remarks: Vec<String>,
}

/// Times of all processors since the machine started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processors {
    /// How long they had something to do, in nanoseconds of all of them together.
    pub busy_ns: u64,
    /// How long they could have had, likewise.
    pub all_ns: u64,
}

impl Processors {
    /// The share of the time from `before` to now that they were busy.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a share
    pub fn share_since(&self, before: &Processors) -> f64 {
        let (busy, all) = (self.busy_ns - before.busy_ns, self.all_ns - before.all_ns);
        busy as f64 / all.max(1) as f64
    }
}

/// RocksDB while it runs, in a program of its own and in real time.
pub trait Peer {
    /// Version and settings.
    fn description(&self) -> String;

    /// Loads all records.
    ///
    /// # Errors
    /// When the program fails.
    fn load(&mut self) -> Result<RunResult, LabError>;

    /// Runs so many operations of a workload.
    ///
    /// # Errors
    /// When the program fails.
    fn run(&mut self, workload: &Workload, operations: u64) -> Result<RunResult, LabError>;

    /// Waits until maintenance has nothing left to do, and all that was written is on the drives.
    ///
    /// # Errors
    /// When the program or the file system fails.
    fn settle(&mut self) -> Result<(), LabError>;

    /// How long the block device has had requests under way, in nanoseconds of real time.
    fn busy_ns(&self) -> Option<u64>;

    /// Ends the program, and takes the file system off the drives.
    ///
    /// # Errors
    /// When one of them does not end in order.
    fn close(self: Box<Self>) -> Result<(), LabError>;
}

/// Start of a peer: its device and its sizes.
pub struct PeerSetup<'a> {
    /// The capacity drives, striped.
    pub device: Arc<dyn Device>,
    /// Sizes of the study.
    pub options: &'a HseOptions,
    /// The seed of this round.
    pub seed: u64,
}

/// Opens drives, and knows the processors.
pub trait Machine {
    /// Opens an arm's drives on a clock that is so many times slower than real time.
    ///
    /// # Errors
    /// When a drive cannot be opened.
    fn open(&mut self, arm: Arm, dilation: u32) -> Result<Opened, LabError>;

    /// Starts RocksDB on an opened arm's drives; called where [`HseOptions::has_rocksdb`] says so.
    ///
    /// # Errors
    /// When it or its file system cannot be had.
    fn start_peer(&mut self, setup: &PeerSetup<'_>) -> Result<Box<dyn Peer>, LabError>;

    /// Whether these drives are real ones, on which no clock can be slower.
    fn is_real(&self) -> bool;

    /// Returns the times of the processors so far, if the machine tells.
    fn processors(&self) -> Option<Processors>;

    /// Figures of the process for the series of a run.
    fn samples(&self) -> fn() -> Vec<esker_bench::Sample>;
}
