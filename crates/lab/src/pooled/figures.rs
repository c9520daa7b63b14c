//! Medians of repeated runs.

use serde::{Deserialize, Serialize};

use super::bench::LoadSample;
use super::deployment::Deployment;
use crate::Spread;

/// An arm under one load: medians of its repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// The arm.
    pub arm: Deployment,
    /// Operations a second that were asked for; `None`: no limit.
    pub rate: Option<u64>,
    /// Operations a second that were reached.
    pub ops_per_s: Spread,
    /// The mean latency of reads, in microseconds.
    pub read_mean_us: Spread,
    /// The 99.9th percentile of reads, in microseconds.
    pub read_p999_us: Spread,
    /// The mean latency of updates, in microseconds.
    pub update_mean_us: Spread,
    /// The 99.9th percentile of updates, in microseconds.
    pub update_p999_us: Spread,
    /// Reads of block devices for each operation.
    pub device_reads: Spread,
    /// Bytes written to block devices for each operation.
    pub device_written: Spread,
    /// The share of the time in which block devices were busy.
    pub busy: Spread,
    /// Requests under way on a block device.
    pub queue: Spread,
    /// Processor time of Cassandra for each operation, in microseconds.
    pub node_cpu_us: Spread,
    /// Processor time of the clients for each operation, in microseconds.
    pub client_cpu_us: Spread,
    /// Processor time of the storage for each operation, in microseconds.
    pub storage_cpu_us: Spread,
    /// The share of the machine's processors that anything used.
    pub machine: Spread,
    /// Operations that failed, in all repetitions.
    pub failed: u64,
    /// Every repetition.
    pub samples: Vec<LoadSample>,
}

impl LoadResult {
    /// The medians of some repetitions; `None` of none.
    #[allow(clippy::cast_precision_loss)] // counts, far below 2^53
    #[must_use]
    pub fn of(arm: Deployment, rate: Option<u64>, samples: Vec<LoadSample>) -> Option<LoadResult> {
        let of = |take: &dyn Fn(&LoadSample) -> f64| Spread::of(samples.iter().map(take).collect());
        let each = |one: &LoadSample, value: f64| {
            value / ((one.reads.count + one.updates.count).max(1) as f64)
        };
        Some(LoadResult {
            arm,
            rate,
            ops_per_s: of(&|one| one.ops_per_s)?,
            read_mean_us: of(&|one| one.reads.mean_us)?,
            read_p999_us: of(&|one| one.reads.p999_us)?,
            update_mean_us: of(&|one| one.updates.mean_us)?,
            update_p999_us: of(&|one| one.updates.p999_us)?,
            device_reads: of(&|one| each(one, one.traffic.reads as f64))?,
            device_written: of(&|one| each(one, one.traffic.written_bytes as f64))?,
            busy: of(&|one| one.traffic.busy)?,
            queue: of(&|one| one.traffic.queue)?,
            node_cpu_us: of(&|one| each(one, one.cpu.nodes_s * 1e6))?,
            client_cpu_us: of(&|one| each(one, one.cpu.clients_s * 1e6))?,
            storage_cpu_us: of(&|one| each(one, one.cpu.storage_s * 1e6))?,
            machine: of(&|one| one.cpu.machine)?,
            failed: samples.iter().map(|one| one.failed).sum(),
            samples,
        })
    }
}

/// The result of an arm under a load.
#[must_use]
pub fn find(results: &[LoadResult], arm: Deployment, rate: Option<u64>) -> Option<&LoadResult> {
    results.iter().find(|one| one.arm == arm && one.rate == rate)
}
