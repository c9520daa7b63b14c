//! Answers of a pool besides its status: lists, changes, operations, figures, forecasts.

use std::time::Duration;

use esker_volume::{DriveLoss, Latency, VolumeStats};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hosts::HostView;
use super::view::{SnapshotView, VolumeView};

/// A request that is known.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RouteView {
    pub(crate) method: String,
    /// With names in braces.
    pub(crate) path: String,
    pub(crate) about: String,
}

/// Volumes, in the order of their ids.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VolumeList {
    pub(crate) volumes: Vec<VolumeView>,
    /// There are more: ask again with this `token`.
    pub(crate) next_token: Option<String>,
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
pub(crate) struct DeletedView {
    pub(crate) deleted: String,
}

/// A drive that was added, or that is being emptied.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DriveView {
    /// Its number.
    pub(crate) drive: u16,
    /// The specification of the device that was added.
    pub(crate) device: Option<String>,
}

/// A scrub that was started.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ScrubStarted {
    pub(crate) pool: String,
}

/// How a pool goes on.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Settings {
    /// Percent of maintenance's time that repair and sweeps get at least.
    pub(crate) repair_share: u8,
}

/// A change that would be made; nothing was changed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WouldView {
    pub(crate) dry_run: bool,
    pub(crate) would: String,
}

/// Why a request was refused; nothing was changed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RefusedView {
    pub(crate) error: ErrorView,
}

/// A fault of the pool, and the cure.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorView {
    /// For ever the same, for programs.
    pub(crate) code: String,
    pub(crate) message: String,
}

/// Whether an operation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OperationState {
    /// Something is still being moved, read or swept.
    Running,
    /// Nothing is left to do.
    Done,
    /// It was called off before its end.
    Cancelled,
}

/// A change that was made.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OperationView {
    pub(crate) id: String,
    /// Method and path.
    pub(crate) request: String,
    pub(crate) state: OperationState,
    /// When it began, in seconds since 1970.
    pub(crate) began: u64,
    /// When nothing was left to do, or that was seen first.
    pub(crate) ended: Option<u64>,
    pub(crate) progress: Option<ProgressView>,
    /// The first answer.
    pub(crate) answer: Value,
}

/// How far an operation is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProgressView {
    pub(crate) done: u64,
    /// Of how many, where that is known.
    pub(crate) total: Option<u64>,
    /// The unit of the counts.
    pub(crate) unit: String,
}

/// Operations, the newest last.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OperationList {
    pub(crate) operations: Vec<OperationView>,
}

/// Latencies, in nanoseconds. A percentile is a bound: the end of the bucket that it lies in, up to a quarter more than it
/// was. The last bucket is open.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LatencyView {
    pub(crate) count: u64,
    pub(crate) sum_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    /// Those that are not empty, the shortest first.
    pub(crate) buckets: Vec<BucketView>,
}

/// How many latencies there were in a bucket.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BucketView {
    /// Its number.
    pub(crate) bucket: u64,
    /// It ends here.
    pub(crate) below_ns: u64,
    pub(crate) count: u64,
}

/// A stage of commands: limit, buffer, log, map or drive.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StageView {
    pub(crate) stage: String,
    pub(crate) latency: LatencyView,
}

/// Commands of a volume since the pool was opened.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StatsView {
    pub(crate) volume: String,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) discards: u64,
    pub(crate) errors: u64,
    pub(crate) read_latency: LatencyView,
    pub(crate) write_latency: LatencyView,
    /// A batch of commands is timed as a whole.
    pub(crate) stages: Vec<StageView>,
}

/// Commands of volumes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StatsList {
    /// When, in nanoseconds of the server's clock.
    pub(crate) at_ns: u64,
    pub(crate) volumes: Vec<StatsView>,
}

/// The stages in which a volume waits.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExplainView {
    /// The figures.
    pub(crate) stats: StatsView,
    /// The stage in which most of the time went; none when there were no commands.
    pub(crate) slowest: Option<String>,
    /// The meaning of it, and the cure.
    pub(crate) findings: Vec<String>,
}

/// The pool as it would be if a drive failed now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DriveLossView {
    pub(crate) drive: u16,
    /// Segments by how many of their chunks would be lost then: none, one, two, more.
    pub(crate) segments: [u64; 4],
    /// Segments whose content could not be computed any more.
    pub(crate) beyond_repair: u64,
    /// Bytes that would be moved.
    pub(crate) to_move: u64,
    /// Bytes that volumes could hold then.
    pub(crate) usable: u64,
    /// Bytes that they hold now.
    pub(crate) live: u64,
    /// Copies of the write buffer that would be left.
    pub(crate) log_copies: u64,
    /// Whether enough drives would be left to open the pool.
    pub(crate) opens: bool,
}

/// Bytes that deleting would free.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FreedView {
    /// The volume, or the snapshot.
    pub(crate) name: String,
    /// Bytes, as they are stored, without parities.
    pub(crate) freed: u64,
    /// Snapshots that would be deleted with it.
    pub(crate) snapshots: u64,
}

/// The configuration of a pool: its devices, volumes, limits and hosts, and nothing of their content.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigView {
    pub(crate) pool: String,
    pub(crate) parity: u8,
    pub(crate) width: Option<u16>,
    pub(crate) chunk_bytes: u64,
    pub(crate) log_bytes: u64,
    pub(crate) spare_percent: u8,
    /// Specifications of its drives.
    pub(crate) drives: Vec<String>,
    /// Specifications of its buffer devices.
    #[serde(default)]
    pub(crate) buffers: Vec<String>,
    #[serde(default)]
    pub(crate) volumes: Vec<VolumeConfig>,
}

/// The configuration of a volume.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeConfig {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) compression: bool,
    pub(crate) iops_limit: u64,
    pub(crate) bytes_limit: u64,
    #[serde(default)]
    pub(crate) hosts: Vec<HostView>,
}

pub(crate) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl From<&Latency> for LatencyView {
    fn from(latency: &Latency) -> LatencyView {
        let percentile = |share| ns(latency.percentile(share));
        let buckets = latency.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        LatencyView {
            count: latency.count(),
            sum_ns: ns(latency.sum),
            p50_ns: percentile(0.5),
            p99_ns: percentile(0.99),
            p999_ns: percentile(0.999),
            buckets: buckets
                .map(|(bucket, count)| BucketView {
                    bucket: bucket as u64,
                    below_ns: ns(Latency::bucket_end(bucket)),
                    count: *count,
                })
                .collect(),
        }
    }
}

impl LatencyView {
    /// The difference to an earlier moment.
    pub(crate) fn since(&self, earlier: &LatencyView) -> LatencyView {
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

    pub(crate) fn mean_ns(&self) -> f64 {
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
