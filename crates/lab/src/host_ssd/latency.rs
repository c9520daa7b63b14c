//! Distributions of the latency of 4 KiB reads at random, by depth.

use esker_bench::Latencies;
use esker_flash::emulate::Handout;
use serde::{Deserialize, Serialize};

use super::drive::{Bed, Side, parameters};
use super::options::HostSsdOptions;
use crate::LabError;
use crate::steps::Steps;

/// Figure of the source for its conventional drive: a share of reads, and their longest time in µs.
pub(super) const WITHIN: (f64, f64) = (0.8, 150.0);
/// Reads that wait in the host's window beside those at the dies, where these are bounded.
pub(super) const WINDOW: u32 = 64;
/// The grid of the cumulative distributions: from, step and points, in µs.
const GRID: (u32, u32, u32) = (60, 2, 171);
/// The deepest queue that is looked at for the source's figure.
const DEEPEST: u32 = 1024;

/// A distribution, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the reads took no longer.
    pub p50_us: f64,
    /// 80 % did.
    pub p80_us: f64,
    /// 99 % did.
    pub p99_us: f64,
    /// 99.9 % did.
    pub p999_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// For each point of the grid, the share of reads that took no longer.
    pub cumulative: Vec<f64>,
}

/// Latencies at a depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DepthResult {
    /// Reads under way: submitted, or where `at_dies` at the dies.
    pub depth: u32,
    /// The conventional drive.
    pub conventional: Latency,
    /// The host-managed drive, reads sent to their dies as they come.
    pub in_order: Latency,
    /// The same with the window, from submission.
    pub submission: Latency,
    /// The same, from issue.
    pub issue: Latency,
    /// So many reads at the dies, 64 more in the host: sent as they come, from submission.
    pub bounded_in_order: Latency,
    /// The same with the window, from submission.
    pub bounded_submission: Latency,
    /// The same, from issue.
    pub bounded_issue: Latency,
    /// Reads a second: conventional, host-managed, and bounded in order and with the window.
    pub per_s: [f64; 4],
}

#[allow(clippy::cast_precision_loss)]
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

impl Latency {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn of(mut latencies_ns: Vec<u64>) -> Latency {
        latencies_ns.sort_unstable();
        let count = latencies_ns.len();
        let quantile = |share: f64| {
            let rank = (count as f64 * share).ceil() as usize;
            us(latencies_ns[rank.clamp(1, count) - 1])
        };
        let sum: u64 = latencies_ns.iter().sum();
        let (from, step, points) = GRID;
        let share = |point: u32| {
            let most_ns = u64::from(from + step * point) * 1000;
            latencies_ns.partition_point(|&ns| ns <= most_ns) as f64 / count as f64
        };
        Latency {
            p50_us: quantile(0.5),
            p80_us: quantile(0.8),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            mean_us: us(sum) / count as f64,
            cumulative: (0..points).map(share).collect(),
        }
    }

    /// The same of latencies that were recorded, within 0.1 %.
    pub(super) fn recorded(latencies: &Latencies) -> Latency {
        let quantile = |share| us(latencies.at_ns(share));
        let within = |&us: &u32| latencies.share_within(u64::from(us) * 1000);
        Latency {
            p50_us: quantile(0.5),
            p80_us: quantile(0.8),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            mean_us: latencies.mean_ns() / 1000.0,
            cumulative: grid().iter().map(within).collect(),
        }
    }

    /// The quantiles in a cell of a table.
    pub(super) fn cell(&self) -> String {
        let Latency { p50_us, p80_us, p99_us, p999_us, .. } = self;
        format!("{p50_us:.1} / {p80_us:.1} / {p99_us:.1} / {p999_us:.1}")
    }

    /// Whether it is as the source says of its conventional drive.
    pub(super) fn is_within(&self) -> bool {
        self.p80_us <= WITHIN.1
    }

    fn from_submission(times: &[Handout]) -> Latency {
        Latency::of(times.iter().map(|one| one.finished.0 - one.started.0).collect())
    }

    fn from_issue(times: &[Handout]) -> Latency {
        Latency::of(times.iter().map(|one| one.finished.0 - one.issued.0).collect())
    }
}

/// The points of the cumulative distributions, in microseconds.
pub(super) fn grid() -> Vec<u32> {
    (0..GRID.2).map(|point| GRID.0 + GRID.1 * point).collect()
}

/// How often it tells how far it is.
pub(super) fn runs(options: &HostSsdOptions) -> usize {
    options.depths.len() + 1
}

fn bed(options: &HostSsdOptions, side: Side) -> Result<Bed, LabError> {
    // Reads at random have no neighbours. Those few that do by chance would take longer.
    let parameters = parameters(side, options.drive_bytes, false)?;
    let most = DEEPEST as usize + WINDOW as usize;
    Bed::new(&parameters, options.drive_bytes, most)
}

/// Measures all depths, or those until it is interrupted.
pub(super) fn measure(
    options: &HostSsdOptions,
    steps: &mut Steps<'_>,
) -> Result<Vec<DepthResult>, LabError> {
    let &HostSsdOptions { reads, drive_bytes, seed, .. } = options;
    let mut plain = [Side::Drive, Side::HostInOrder, Side::HostWindow { in_flight: 0 }]
        .into_iter()
        .map(|side| bed(options, side))
        .collect::<Result<Vec<_>, _>>()?;
    let mut results = Vec::new();
    for &depth in &options.depths {
        if steps.step(&format!("4 KiB reads, {depth} at a time")).is_err() {
            break;
        }
        let mut seen = Vec::new();
        for bed in &mut plain {
            seen.push(bed.random_reads(depth as usize, reads, drive_bytes, seed)?);
        }
        let in_all = (depth + WINDOW) as usize;
        for side in [Side::HostBounded { in_flight: depth }, Side::HostWindow { in_flight: depth }]
        {
            let mut bed = bed(options, side)?;
            seen.push(bed.random_reads(in_all, reads, drive_bytes, seed)?);
        }
        results.push(DepthResult {
            depth,
            conventional: Latency::from_submission(&seen[0].0),
            in_order: Latency::from_submission(&seen[1].0),
            submission: Latency::from_submission(&seen[2].0),
            issue: Latency::from_issue(&seen[2].0),
            bounded_in_order: Latency::from_submission(&seen[3].0),
            bounded_submission: Latency::from_submission(&seen[4].0),
            bounded_issue: Latency::from_issue(&seen[4].0),
            per_s: [seen[0].1, seen[2].1, seen[3].1, seen[4].1],
        });
    }
    Ok(results)
}

/// The most reads at a time at which the conventional drive is as the source says.
pub(super) fn depth_within(
    options: &HostSsdOptions,
    steps: &mut Steps<'_>,
) -> Result<Option<u32>, LabError> {
    if steps.step("the depth at which 80 % are within 150 µs").is_err() {
        return Ok(None);
    }
    let mut bed = bed(options, Side::Drive)?;
    let reads = (options.reads / 4).max(1000);
    let mut is_within = |depth: u32| -> Result<bool, LabError> {
        let seen = bed.random_reads(depth as usize, reads, options.drive_bytes, options.seed)?;
        Ok(Latency::from_submission(&seen.0).is_within())
    };
    let (mut within, mut beyond) = (0, DEEPEST + 1);
    while beyond - within > 1 {
        let middle = u32::midpoint(within, beyond);
        if is_within(middle)? {
            within = middle;
        } else {
            beyond = middle;
        }
    }
    Ok((within > 0).then_some(within))
}
