//! The figures of a run. All of them are of the scaled-down devices; the judge scales them up.

use esker_bench::result::Latency;
use serde::{Deserialize, Serialize};

use crate::hse::phase::Decider;

/// The figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredCase {
    /// By which clock its times are.
    pub clock: ClockKind,
    /// How long the measured part took, in seconds of that clock.
    pub elapsed_s: f64,
    /// Operations or requests.
    pub operations: u64,
    /// A second.
    pub ops_per_s: f64,
    /// Bytes of the user a second, read and written.
    pub bytes_per_s: f64,
    /// Latencies by kind of operation.
    pub latencies: Vec<KindLatency>,
    /// Bytes that the user wrote.
    pub user_written_bytes: u64,
    /// Every device: each one before those it is made of.
    pub devices: Vec<DeviceUse>,
    /// Bytes that the engine wrote to its classes; zero without an engine.
    pub classes_written_bytes: u64,
    /// Bytes that the engine wrote to its manifest, which is in memory.
    pub manifest_written_bytes: u64,
    /// Bytes of DRAM by purpose.
    pub dram: Vec<(String, u64)>,
    /// Bytes that data of the user can take.
    pub usable_bytes: u64,
    /// Bytes that are taken for each byte of data.
    pub space_amplification: f64,
    /// Of the blocks that were read, the share that a cache had.
    pub hit_ratio: Option<f64>,
    /// The part that decided how long it took, where clients ran at once.
    pub decider: Option<Decider>,
    /// How busy the processors were, as a share, likewise.
    pub processors: Option<f64>,
    /// Why its write amplification is not that of a steady state; none where it is, or where nothing wears.
    pub unsteady: Option<String>,
    /// Bytes that the user wrote a second, as far as its times are right.
    pub written_bytes_per_s: f64,
    /// Remarks for its reader.
    pub remarks: Vec<String>,
}

/// By which clock the times of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockKind {
    /// Virtual: requests overlap as on the drives, and figures are the same on every machine.
    Virtual,
    /// Virtual, with maintenance in turn with clients: bytes are right, rates a lower bound.
    InTurn,
    /// So many times slower than real time.
    Dilated(u32),
}

/// Latencies of a kind of operation, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindLatency {
    /// `read`, `write`, `update`, …
    pub kind: String,
    /// How many there were.
    pub count: u64,
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// The latency that one in so many exceeds.
    pub by_percentile: Vec<(f64, f64)>,
}

/// The traffic of a device while it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Bytes that its user above wrote to it.
    pub written_bytes: u64,
    /// Bytes that its user above read.
    pub read_bytes: u64,
    /// Bytes that it wrote to its parts: its media, or its devices.
    pub passed_bytes: u64,
    /// Whether it is a drive.
    pub is_drive: bool,
    /// Whether it is a drive of flash, which wears.
    pub is_flash: bool,
}

impl MeasuredCase {
    /// The drives, in the order of the devices.
    pub(super) fn drives(&self) -> impl Iterator<Item = &DeviceUse> {
        self.devices.iter().filter(|one| one.is_drive)
    }

    /// Bytes written to media for each byte that the user wrote; none where none was.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        ratio(self.drives().map(|one| one.passed_bytes).sum(), self.user_written_bytes)
    }

    /// Bytes written to drives for each byte that the user wrote: the amplification of all layers above them.
    #[must_use]
    pub fn software_amplification(&self) -> Option<f64> {
        ratio(self.drives().map(|one| one.written_bytes).sum(), self.user_written_bytes)
    }

    /// Bytes written to media for each byte that drives were given.
    #[must_use]
    pub fn drive_amplification(&self) -> Option<f64> {
        ratio(
            self.drives().map(|one| one.passed_bytes).sum(),
            self.drives().map(|one| one.written_bytes).sum(),
        )
    }

    /// Bytes that the engine wrote to its classes and its manifest.
    pub(super) fn engine_written_bytes(&self) -> u64 {
        self.classes_written_bytes + self.manifest_written_bytes
    }

    /// The latencies that its tail is told by: of reads, or else of the most frequent kind.
    #[must_use]
    pub fn tail(&self) -> Option<&KindLatency> {
        let reads = self.latencies.iter().find(|one| one.kind == "read");
        reads.or_else(|| self.latencies.iter().max_by_key(|one| one.count))
    }

    /// Whether its write amplification, and what follows from it, is that of a steady state.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.unsteady.is_none()
    }

    /// Whether its times say something of drives.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.clock != ClockKind::InTurn && self.decider != Some(Decider::Processors)
    }

    /// Bytes of DRAM in all.
    #[must_use]
    pub fn dram_bytes(&self) -> u64 {
        self.dram.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl KindLatency {
    /// The latencies of a kind of operation.
    #[allow(clippy::cast_precision_loss)] // nanoseconds become microseconds
    pub(super) fn of(kind: &str, of: &Latency) -> KindLatency {
        let us = |ns: u64| ns as f64 / 1e3;
        let points = of.by_percentile.iter();
        KindLatency {
            kind: kind.to_owned(),
            count: of.count,
            p50_us: us(of.p50_ns),
            p99_us: us(of.p99_ns),
            p999_us: us(of.p999_ns),
            max_us: us(of.max_ns),
            by_percentile: points.map(|one| (one.one_in, us(one.latency_ns))).collect(),
        }
    }
}

impl DeviceUse {
    /// Bytes that devices carried between two moments.
    pub(super) fn since(now: Vec<DeviceUse>, then: &[DeviceUse]) -> Vec<DeviceUse> {
        let both = now.into_iter().zip(then);
        let less = |(now, then): (DeviceUse, &DeviceUse)| DeviceUse {
            written_bytes: now.written_bytes - then.written_bytes,
            read_bytes: now.read_bytes - then.read_bytes,
            passed_bytes: now.passed_bytes - then.passed_bytes,
            is_drive: now.is_drive,
            is_flash: now.is_flash,
        };
        both.map(less).collect()
    }

    /// Bytes passed on for each byte that was written to it; none where none was.
    #[must_use]
    pub fn amplification(&self) -> Option<f64> {
        ratio(self.passed_bytes, self.written_bytes)
    }
}

#[allow(clippy::cast_precision_loss)] // a ratio of byte counts
fn ratio(of: u64, to: u64) -> Option<f64> {
    (to > 0).then(|| of as f64 / to as f64)
}
