//! The source's figures and the goals beside the results.

use esker_kv::MediaClass;
use serde::Serialize;

use super::arm::ArmRun;
use super::machine::Arm;
use super::phase::{Decider, Phase};
use super::published;
use crate::{Outcome, Spread};

/// A figure beside one that was published, or that is to be reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Name of the figure.
    pub name: String,
    /// The source's figure.
    pub published: String,
    /// The bound that it has to keep.
    pub wanted: String,
    /// The result.
    pub esker: String,
    /// The figure that the drives' rates alone would give, where that can be said.
    pub rates_alone: Option<String>,
    /// Whether it is reached.
    pub outcome: Outcome,
}

/// A workload in both arms, all rounds.
pub(super) struct Pair<'a> {
    workload: &'a str,
    /// As in [`Arm::ALL`]; rounds in order.
    arms: [Vec<&'a Phase>; 3],
}

impl<'a> Pair<'a> {
    /// All workloads, in the order in which they ran.
    pub(super) fn all(runs: &'a [ArmRun]) -> Vec<Pair<'a>> {
        let Some(first) = runs.first() else { return Vec::new() };
        let names = first.phases.iter().map(|phase| phase.workload.as_str());
        let pair = |workload| Pair {
            workload,
            arms: Arm::ALL.map(|arm| {
                let of_arm = runs.iter().filter(|run| run.arm == arm).flat_map(|run| &run.phases);
                of_arm.filter(|phase| phase.workload == workload).collect()
            }),
        };
        names.map(pair).collect()
    }

    pub(super) fn workload(&self) -> &'a str {
        self.workload
    }

    pub(super) fn phases(&self, arm: Arm) -> &[&'a Phase] {
        match arm {
            Arm::Capacity => &self.arms[0],
            Arm::Staged => &self.arms[1],
            Arm::Rocksdb => &self.arms[2],
        }
    }

    /// A figure of an arm over all rounds.
    pub(super) fn spread(&self, arm: Arm, of: impl Fn(&Phase) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.phases(arm).iter().filter_map(|phase| of(phase)).collect())
    }

    /// A figure with staging over the same without, by medians.
    pub(super) fn ratio(&self, of: impl Fn(&Phase) -> Option<f64>) -> Option<f64> {
        self.over(Arm::Staged, Arm::Capacity, of)
    }

    /// A figure of an arm over that of another, by medians.
    pub(super) fn over(
        &self,
        arm: Arm,
        other: Arm,
        of: impl Fn(&Phase) -> Option<f64>,
    ) -> Option<f64> {
        let ours = self.spread(arm, &of)?.median;
        let theirs = self.spread(other, of)?.median;
        (theirs > 0.0).then(|| ours / theirs)
    }

    /// How many times as fast the drives' rates alone would make it with staging.
    pub(super) fn rates_alone(&self) -> Option<f64> {
        self.ratio(Phase::needs_s).filter(|ratio| *ratio > 0.0).map(f64::recip)
    }

    /// Whether processors decided in no run of it of the engine.
    pub(super) fn is_comparable(&self) -> bool {
        Arm::ESKER.iter().all(|arm| self.is_comparable_in(*arm))
    }

    /// The same of one arm.
    pub(super) fn is_comparable_in(&self, arm: Arm) -> bool {
        self.phases(arm).iter().all(|phase| phase.decider != Decider::Processors)
    }

    fn outcome(&self, is_reached: bool) -> Outcome {
        match (self.is_comparable(), is_reached) {
            (false, _) => Outcome::NotComparable,
            (true, true) => Outcome::Reached,
            (true, false) => Outcome::Missed,
        }
    }
}

/// The rate of a phase.
pub(super) fn rate(phase: &Phase) -> Option<f64> {
    Some(phase.ops_per_s)
}

/// The 99.9th percentile of its reads, in microseconds.
pub(super) fn tail(phase: &Phase) -> Option<f64> {
    phase.latency("read").map(|latency| latency.p999_us)
}

fn capacity_bytes(phase: &Phase) -> Option<f64> {
    #[allow(clippy::cast_precision_loss)] // a ratio of byte counts
    let bytes = phase.written_bytes(MediaClass::Capacity) as f64;
    (phase.user_bytes > 0).then_some(bytes)
}

/// All of them, in the order of the source.
pub(super) fn verdicts(pairs: &[Pair<'_>]) -> Vec<Verdict> {
    let mut all = Vec::new();
    for pair in pairs {
        all.extend(throughput(pair));
        all.extend(load_of_rates(pair));
        all.extend(tails(pair));
        all.extend(load_bytes(pair));
        all.extend(run_bytes(pair));
    }
    all
}

fn throughput(pair: &Pair<'_>) -> Option<Verdict> {
    let workload = pair.workload;
    let known = published::THROUGHPUT.iter().find(|(name, _)| *name == workload);
    let is_modest = published::MODEST.contains(&workload);
    let (published, least) = match known {
        Some((_, times)) => (format!("{times} times"), *times),
        None if is_modest => ("a modest gain".to_owned(), 1.0),
        None => return None,
    };
    let ratio = pair.ratio(rate)?;
    let alone = pair.rates_alone();
    let why = match alone {
        Some(times) if ratio < least && times < least => {
            ": the bytes that both arms move do not allow more"
        }
        _ => "",
    };
    Some(Verdict {
        name: format!("{workload}: throughput, with staging and without"),
        published,
        wanted: format!("at least {least} times"),
        esker: format!("{ratio:.2} times"),
        rates_alone: alone.map(|times| format!("{times:.2} times{why}")),
        outcome: pair.outcome(ratio >= least),
    })
}

/// Where bytes alone bound a load's ratio, how much of the drives' rates it uses says whether the engine is at fault.
fn load_of_rates(pair: &Pair<'_>) -> Option<Verdict> {
    if pair.workload != "load" {
        return None;
    }
    let used = |arm| pair.spread(arm, Phase::of_rates).map(|spread| spread.median);
    let (without, with) = (used(Arm::Capacity)?, used(Arm::Staged)?);
    let is_reached = without.min(with) >= published::OF_RATES;
    Some(Verdict {
        name: "load: of the busiest drive's rates, without staging and with".to_owned(),
        published: String::new(),
        wanted: format!("at least {:.0} %", 100.0 * published::OF_RATES),
        esker: format!("{:.0} % and {:.0} %", 100.0 * without, 100.0 * with),
        rates_alone: None,
        outcome: pair.outcome(is_reached),
    })
}

fn tails(pair: &Pair<'_>) -> Option<Verdict> {
    let workload = pair.workload;
    if !published::TAIL.contains(&workload) {
        return None;
    }
    let ratio = pair.ratio(tail)?;
    Some(Verdict {
        name: format!("{workload}: p99.9 of reads, with staging over without"),
        published: "1/2 to 1/3".to_owned(),
        wanted: format!("at most {:.2}", published::TAIL_SHARE),
        esker: format!("{ratio:.2}"),
        rates_alone: None,
        outcome: pair.outcome(ratio <= published::TAIL_SHARE),
    })
}

fn load_bytes(pair: &Pair<'_>) -> Option<Verdict> {
    if pair.workload != "load" {
        return None;
    }
    let bytes = |phase: &Phase| phase.per_user_byte(MediaClass::Capacity);
    let with = pair.spread(Arm::Staged, bytes)?.median;
    let without = pair.spread(Arm::Capacity, bytes)?.median;
    let [hse_without, hse_with] = published::LOAD_GB.map(|(_, gb, _)| gb / published::DATA_GB);
    let most = published::CAPACITY_PER_BYTE;
    // Workloads that begin before the data has aged would read it from staging.
    let is_reached = (1.0..=most).contains(&with);
    Some(Verdict {
        name: "load: bytes to capacity for each byte of the user's, with staging".to_owned(),
        published: format!("{hse_with:.2} (without: {hse_without:.2})"),
        wanted: format!("at most {most}, and at least 1 before A begins"),
        esker: format!("{with:.2} (without: {without:.2})"),
        rates_alone: None,
        // Bytes are counted, whether drives or processors decide how fast they come.
        outcome: if is_reached { Outcome::Reached } else { Outcome::Missed },
    })
}

fn run_bytes(pair: &Pair<'_>) -> Option<Verdict> {
    if pair.workload == "load" {
        return None;
    }
    let ratio = pair.ratio(capacity_bytes)?;
    let is_reached = ratio <= published::WRITTEN_SHARE;
    Some(Verdict {
        name: format!("{}: bytes to capacity, with staging over without", pair.workload),
        published: "at most 1/2".to_owned(),
        wanted: format!("at most {:.2}", published::WRITTEN_SHARE),
        esker: format!("{ratio:.2}"),
        rates_alone: None,
        outcome: if is_reached { Outcome::Reached } else { Outcome::Missed },
    })
}
