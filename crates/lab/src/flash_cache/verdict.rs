//! The source's figures beside the results, for each workload.

use esker_report::{Outcome, Precondition, Verdict};

use super::disk::BLOCK_BYTES;
use super::results::{InsertionPoint, SizeResult, VersionResult, WorkloadResult};

/// The version that the others are compared with.
pub(super) const FIRST: &str = "first, FIFO";
/// The version whose gains the source names.
pub(super) const OF_2013: &str = "2013";
/// The version of today.
pub(super) const ESKER: &str = "Esker";

/// Where the source found new blocks to be inserted best, at the earliest: a percentile from the head.
pub(super) const INSERTION_FOUND: u8 = 85;
/// Where it inserted them.
pub(super) const INSERTION_USED: u8 = esker_base::policy::MID_POINT;
/// Hits that two places of insertion may differ by and count as equal, in points.
const EQUAL_POINTS: f64 = 0.5;
/// Of the disk's operations, the share of the busier half that is still called a half, in percent.
const HALF_PERCENT: f64 = 55.0;

/// A figure of the source, and its value here at a size of the cache.
pub(super) struct Claim {
    pub(super) what: &'static str,
    published: &'static str,
    wanted: &'static str,
    /// In percent or points; none where the workload has nothing of it.
    of: fn(&SizeResult) -> Option<f64>,
    is_reached: fn(f64) -> bool,
    needs: Need,
}

/// A condition of a claim on the workload and on the size of the cache.
enum Need {
    /// Blocks that are referred to again: no cache hits the first reference.
    Warmth { percent: f64 },
    /// Halves of the cache: sets enough for two of them.
    Sets,
    /// Commands of the disk to save, with the first version.
    Commands(fn(&VersionResult) -> u64),
}

/// A half of fewer sets than these is a matter of chance.
const LEAST_SETS: u64 = 16;
/// Bytes of a set of the version of 2013.
const SET_BYTES: u64 = 16 << 20;
/// A saving of fewer commands than these is a matter of chance.
const LEAST_COMMANDS: u64 = 1_000;

impl Need {
    fn of(&self, workload: &WorkloadResult, size: &SizeResult) -> Precondition {
        match *self {
            Need::Warmth { percent } => {
                let first = super::disk::figure(workload.footprint_bytes / BLOCK_BYTES);
                let again = 100.0 * (1.0 - first / super::disk::figure(workload.references.max(1)));
                let needs = format!("at least {percent:.0} % of references to blocks seen before");
                Precondition::new(needs, format!("{again:.1} %"), again >= percent)
            }
            Need::Sets => {
                let sets = size.cache_bytes / SET_BYTES;
                let needs = format!("a cache of at least {LEAST_SETS} sets of 16 MiB");
                Precondition::new(needs, format!("{sets}"), sets >= LEAST_SETS)
            }
            Need::Commands(of) => {
                let commands = size.version(FIRST).map_or(0, of);
                let needs = format!("at least {LEAST_COMMANDS} commands of the first version");
                Precondition::new(needs, commands.to_string(), commands >= LEAST_COMMANDS)
            }
        }
    }
}

/// So much less of something than the first version needs, in percent.
pub(super) struct Saving {
    pub(super) what: &'static str,
    pub(super) claimed: f64,
    pub(super) of: fn(&VersionResult) -> f64,
}

pub(super) const READS: Saving =
    Saving { what: "disk reads", claimed: 40.0, of: |one| one.reads_saved * 100.0 };
pub(super) const WRITES: Saving =
    Saving { what: "disk writes", claimed: 75.0, of: |one| one.writes_saved * 100.0 };

/// Claims of the source, in its order.
pub(super) const CLAIMS: [Claim; 6] = [
    Claim {
        what: "hits of Esker's defaults",
        published: "80 %",
        wanted: "at least 80 %",
        of: |size| Some(size.version(ESKER)?.hit_ratio * 100.0),
        is_reached: |percent| percent >= 80.0,
        needs: Need::Warmth { percent: 80.0 },
    },
    Claim {
        what: "disk operations of the busier half of the cache, 2013",
        published: "80 %, then 50 %",
        wanted: "at most 55 %",
        of: |size| Some(size.version(OF_2013)?.busier_half * 100.0),
        is_reached: |percent| percent <= HALF_PERCENT,
        needs: Need::Sets,
    },
    Claim {
        what: "hits that insertion at percentile 85 or later loses to the best place",
        published: "85 at the earliest",
        wanted: "at most 0.5 points",
        of: |size| lost(&size.by_percentile, |percentile| percentile >= INSERTION_FOUND),
        is_reached: |points| points <= EQUAL_POINTS,
        needs: Need::Commands(|one| one.disk_reads),
    },
    Claim {
        what: "hits that insertion at percentile 75 loses to the best place",
        published: "75 in use",
        wanted: "at most 0.5 points",
        of: |size| lost(&size.by_percentile, |percentile| percentile == INSERTION_USED),
        is_reached: |points| points <= EQUAL_POINTS,
        needs: Need::Commands(|one| one.disk_reads),
    },
    Claim {
        what: "fewer disk reads than the first version, 2013",
        published: "about 40 %",
        wanted: "at least 40 %",
        of: |size| Some((READS.of)(size.version(OF_2013)?)),
        is_reached: |percent| percent >= READS.claimed,
        needs: Need::Commands(|one| one.disk_reads),
    },
    Claim {
        what: "fewer disk writes than the first version, 2013",
        published: "about 75 %",
        wanted: "at least 75 %",
        of: |size| Some((WRITES.of)(size.version(OF_2013)?)),
        is_reached: |percent| percent >= WRITES.claimed,
        needs: Need::Commands(|one| one.disk_writes),
    },
];

/// Hits that the best of some places of insertion lacks to the best of all, in points.
fn lost(points: &[InsertionPoint], is_meant: impl Fn(u8) -> bool) -> Option<f64> {
    let most = |points: &mut dyn Iterator<Item = &InsertionPoint>| {
        points.map(|one| one.hit_ratio * 100.0).max_by(f64::total_cmp)
    };
    let of_some = most(&mut points.iter().filter(|one| is_meant(one.percentile)))?;
    Some(most(&mut points.iter())? - of_some)
}

/// All of them for a workload.
pub(super) fn of_workload(workload: &WorkloadResult) -> Vec<Verdict> {
    CLAIMS.iter().map(|claim| claim.verdict(workload)).collect()
}

impl Claim {
    /// Sizes that lack what the claim needs are shown, and judged only where all of them do.
    fn verdict(&self, workload: &WorkloadResult) -> Verdict {
        let of = |size: &SizeResult| {
            Some((size.percent, (self.of)(size)?, self.needs.of(workload, size)))
        };
        let values: Vec<(u32, f64, Precondition)> = workload.sizes.iter().filter_map(of).collect();
        let shown = values.iter().map(|(size, value, need)| {
            let apart = if need.holds { "" } else { ", not judged" };
            format!("{value:.1} ({size} %{apart})")
        });
        let name = format!("{}: {}", workload.name, self.what);
        let verdict = Verdict::new(name, shown.collect::<Vec<_>>().join(", "));
        let judged: Vec<f64> =
            values.iter().filter(|(_, _, need)| need.holds).map(|(_, value, _)| *value).collect();
        let reached = judged.iter().filter(|value| (self.is_reached)(**value)).count();
        let outcome = match reached {
            0 => Outcome::Missed,
            all if all == judged.len() => Outcome::Reached,
            _ => Outcome::Partly,
        };
        let verdict = verdict.published(self.published).judged(self.wanted, outcome);
        let largest = values.into_iter().map(|(_, _, need)| need).max_by_key(|need| need.holds);
        verdict.requires(largest.unwrap_or_else(|| Precondition::new("a figure", "none", false)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_some_places_is_compared_with_the_best_of_all() {
        let point = |(percentile, hit_ratio)| InsertionPoint { percentile, hit_ratio };
        let points = [(1, 0.5), (75, 0.52), (85, 0.54), (100, 0.53)].map(point);
        let close = |lost: Option<f64>, points: f64| (lost.unwrap() - points).abs() < 1e-9;
        assert!(close(lost(&points, |one| one >= INSERTION_FOUND), 0.0));
        assert!(close(lost(&points, |one| one == INSERTION_USED), 2.0));
        assert_eq!(lost(&points[..1], |one| one == INSERTION_USED), None);
    }
}
