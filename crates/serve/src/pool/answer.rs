//! Answers of a pool besides its status: lists, changes, operations, figures, forecasts.

#![allow(missing_docs)] // a comment on a field becomes its description in the description of all requests

use std::time::Duration;

use esker_base::latency::Latency;
use esker_base::units::to_nanos;
use esker_volume::{DriveLoss, VolumeStats};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hosts::HostView;
use super::view::{SnapshotView, VolumeView};

/// Volumes, in the order of their ids.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct VolumeList {
    pub volumes: Vec<VolumeView>,
    /// There are more: ask again with this `token`.
    pub next_token: Option<String>,
}

/// Snapshots, in the order of their ids.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SnapshotList {
    pub(crate) snapshots: Vec<SnapshotView>,
    /// There are more: ask again with this `token`.
    pub(crate) next_token: Option<String>,
}

/// A deleted volume or snapshot.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeletedView {
    pub deleted: String,
}

/// A drive that was added, or that is being emptied.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DriveView {
    /// Its number.
    pub drive: u16,
    /// The specification of the device that was added.
    pub device: Option<String>,
}

/// A scrub that was started.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ScrubStarted {
    pub pool: String,
}

/// How a pool goes on.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    /// Percent of maintenance's time that repair and sweeps get at least.
    pub repair_share: u8,
}

/// Whether an operation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OperationState {
    /// Something is still being moved, read or swept.
    Running,
    /// Nothing is left to do.
    Done,
    /// It was called off before its end.
    Cancelled,
}

/// A change that was made.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OperationView {
    pub id: String,
    /// Method and path.
    pub request: String,
    pub state: OperationState,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// When nothing was left to do, or that was seen first.
    pub ended: Option<u64>,
    pub progress: Option<ProgressView>,
    /// The first answer.
    pub answer: Value,
}

/// How far an operation is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProgressView {
    pub done: u64,
    /// Of how many, where that is known.
    pub total: Option<u64>,
    /// The unit of the counts.
    pub unit: String,
}

/// Operations, the newest last.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OperationList {
    pub operations: Vec<OperationView>,
}

/// Latencies, in nanoseconds. A percentile is a bound: the end of the bucket that it lies in, up to a quarter more than it
/// was. The last bucket is open.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LatencyView {
    pub count: u64,
    pub sum_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    /// Those that are not empty, the shortest first.
    pub buckets: Vec<BucketView>,
}

/// How many latencies there were in a bucket.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BucketView {
    /// Its number.
    pub bucket: u64,
    /// It ends here.
    pub below_ns: u64,
    pub count: u64,
}

/// A stage of commands: limit, buffer, log, map or drive.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StageView {
    pub stage: String,
    pub latency: LatencyView,
}

/// Commands of a volume since the pool was opened.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StatsView {
    pub volume: String,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub discards: u64,
    pub errors: u64,
    pub read_latency: LatencyView,
    pub write_latency: LatencyView,
    /// A batch of commands is timed as a whole.
    pub stages: Vec<StageView>,
}

/// Commands of volumes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StatsList {
    /// When, in nanoseconds of the server's clock.
    pub at_ns: u64,
    pub volumes: Vec<StatsView>,
}

/// The stages in which a volume waits.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExplainView {
    /// The figures.
    pub stats: StatsView,
    /// The stage in which most of the time went; none when there were no commands.
    pub slowest: Option<String>,
    /// The meaning of it, and the cure.
    pub findings: Vec<String>,
}

/// The pool as it would be if a drive failed now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DriveLossView {
    pub drive: u16,
    /// Segments by how many of their chunks would be lost then: none, one, two, more.
    pub segments: [u64; 4],
    /// Segments whose content could not be computed any more.
    pub beyond_repair: u64,
    /// Bytes that would be moved.
    pub to_move: u64,
    /// Bytes that volumes could hold then.
    pub usable: u64,
    /// Bytes that they hold now.
    pub live: u64,
    /// Copies of the write buffer that would be left.
    pub log_copies: u64,
    /// Whether enough drives would be left to open the pool.
    pub opens: bool,
}

/// Bytes that deleting would free.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FreedView {
    /// The volume, or the snapshot.
    pub name: String,
    /// Bytes, as they are stored, without parities.
    pub freed: u64,
    /// Snapshots that would be deleted with it.
    pub snapshots: u64,
}

/// The configuration of a pool: its devices, volumes, limits and hosts, and nothing of their content.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigView {
    pub pool: String,
    pub parity: u8,
    pub width: Option<u16>,
    pub chunk_bytes: u64,
    pub log_bytes: u64,
    pub spare_percent: u8,
    /// Specifications of its drives.
    pub drives: Vec<String>,
    /// Specifications of its buffer devices.
    #[serde(default)]
    pub buffers: Vec<String>,
    #[serde(default)]
    pub volumes: Vec<VolumeConfig>,
}

/// The configuration of a volume.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    pub name: String,
    pub bytes: u64,
    pub compression: bool,
    pub iops_limit: u64,
    pub bytes_limit: u64,
    #[serde(default)]
    pub hosts: Vec<HostView>,
}

impl From<&Latency> for LatencyView {
    fn from(latency: &Latency) -> LatencyView {
        let percentile = |share| to_nanos(latency.percentile(share));
        let buckets = latency.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        LatencyView {
            count: latency.count(),
            sum_ns: to_nanos(latency.sum),
            p50_ns: percentile(0.5),
            p99_ns: percentile(0.99),
            p999_ns: percentile(0.999),
            buckets: buckets
                .map(|(bucket, count)| BucketView {
                    bucket: bucket as u64,
                    below_ns: to_nanos(Latency::bucket_end(bucket)),
                    count: *count,
                })
                .collect(),
        }
    }
}

impl LatencyView {
    /// The difference to an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &LatencyView) -> LatencyView {
        let size = |view: &LatencyView| view.buckets.last().map_or(0, |last| last.bucket + 1);
        let mut counts = vec![0; usize::try_from(size(self)).unwrap_or(0)];
        for one in &self.buckets {
            counts[usize::try_from(one.bucket).unwrap_or(0)] = one.count;
        }
        for one in &earlier.buckets {
            if let Some(count) = usize::try_from(one.bucket).ok().and_then(|at| counts.get_mut(at))
            {
                *count = count.saturating_sub(one.count);
            }
        }
        let sum = Duration::from_nanos(self.sum_ns.saturating_sub(earlier.sum_ns));
        LatencyView::from(&Latency { counts, sum })
    }

    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.count.max(1) as f64
    }
}

impl StatsView {
    pub(crate) fn new(volume: &str, stats: &VolumeStats) -> StatsView {
        let stage = |(stage, latency): &(esker_volume::Stage, Latency)| StageView {
            stage: stage.name().to_owned(),
            latency: latency.into(),
        };
        StatsView {
            volume: volume.to_owned(),
            reads: stats.reads,
            read_bytes: stats.read_bytes,
            writes: stats.writes,
            written_bytes: stats.written_bytes,
            discards: stats.discards,
            errors: stats.errors,
            read_latency: (&stats.read_latency).into(),
            write_latency: (&stats.write_latency).into(),
            stages: stats.stages.iter().map(stage).collect(),
        }
    }
}

impl DriveLossView {
    pub(crate) fn new(drive: u16, loss: &DriveLoss) -> DriveLossView {
        let DriveLoss { segments, beyond_repair, to_move, usable, live, log_copies, opens } = *loss;
        let log_copies = log_copies as u64;
        DriveLossView { drive, segments, beyond_repair, to_move, usable, live, log_copies, opens }
    }
}
