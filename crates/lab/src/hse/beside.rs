//! The engine's figures over those of RocksDB on the same capacity drives.

use serde::Serialize;

use super::machine::Arm;
use super::phase::Phase;
use super::verdict::{Pair, rate, tail};

/// An arm of the engine beside RocksDB in a workload; ratios of medians.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// The workload.
    pub workload: String,
    /// The arm of the engine.
    pub arm: Arm,
    /// Operations a second, over RocksDB's.
    pub throughput: f64,
    /// The 99.9th percentile of reads, over RocksDB's; none where nothing is read.
    pub read_p999: Option<f64>,
    /// Bytes written to all drives for each of the clients', over RocksDB's; none where they write nothing.
    pub written: Option<f64>,
    /// Whether processors decided neither.
    pub is_comparable: bool,
}

/// All of them; none where RocksDB was not run.
pub(super) fn beside(pairs: &[Pair<'_>]) -> Vec<Beside> {
    let each = pairs.iter().flat_map(|pair| Arm::ESKER.map(|arm| one(pair, arm)));
    each.flatten().collect()
}

fn one(pair: &Pair<'_>, arm: Arm) -> Option<Beside> {
    Some(Beside {
        workload: pair.workload().to_owned(),
        arm,
        throughput: pair.over(arm, Arm::Rocksdb, rate)?,
        read_p999: pair.over(arm, Arm::Rocksdb, tail),
        written: pair.over(arm, Arm::Rocksdb, written),
        is_comparable: [arm, Arm::Rocksdb].iter().all(|arm| pair.is_comparable_in(*arm)),
    })
}

/// Bytes that went to all drives, for each of the clients'.
#[allow(clippy::cast_precision_loss)] // a ratio of byte counts
fn written(phase: &Phase) -> Option<f64> {
    let bytes: u64 = phase.drives.iter().map(|drive| drive.written_bytes).sum();
    (phase.user_bytes > 0).then(|| bytes as f64 / phase.user_bytes as f64)
}
