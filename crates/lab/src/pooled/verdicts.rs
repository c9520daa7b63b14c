//! Goals and the source's figures, beside the medians.
//!
//! Invariants
//! 1. [`Outcome::Reached`] needs a run whose drives were busy and whose processors were not, and an effect above the
//!    spread of the same arm measured twice.

use serde::{Deserialize, Serialize};

use super::arm::Arm;
use super::bench::Survival;
use super::calibrate::{BUSY, PROCESSORS, is_fit};
use super::figures::{LoadResult, find};
use crate::{Outcome, Spread};

/// At low rates, remote latencies are at most so many times the local ones.
const NEAR: f64 = 1.1;
/// At the unlimited rate, remote operations are at least so many times the local ones.
const AHEAD: f64 = 1.1;
/// A rate was kept when this share of it was reached.
const KEPT: f64 = 0.97;
/// Rates up to this share of the local unlimited rate are low.
const LOW: f64 = 0.5;

/// The source on rates below the limit.
const AT_LOW_RATES: &str = "the same as local up to 60,000 a second and server";

/// A goal, the source's figure, and Esker's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PooledVerdict {
    /// The figure.
    pub name: String,
    /// The source's words on it, if it has any.
    pub source: String,
    /// The goal.
    pub wanted: String,
    /// Esker's figure.
    pub esker: String,
    /// Whether the goal was reached.
    pub outcome: Outcome,
}

/// All verdicts on a comparison.
#[must_use]
pub fn of_loads(loads: &[LoadResult]) -> Vec<PooledVerdict> {
    let mut verdicts = low_rates(loads);
    verdicts.extend(saturation(loads));
    verdicts.extend(crossing(loads));
    verdicts
}

/// The verdict on losing a node and a drive.
#[must_use]
pub fn of_survival(survival: &Survival) -> PooledVerdict {
    let Survival { acknowledged, missing, wrong, at_kill, at_drive, .. } = survival;
    let was_under_load = 0 < *at_kill && at_kill < at_drive && at_drive < acknowledged;
    let outcome = match (missing + wrong, was_under_load) {
        (0, true) => Outcome::Reached,
        (0, false) => Outcome::NotComparable,
        _ => Outcome::Missed,
    };
    PooledVerdict {
        name: "a node killed and a drive failed under load, three copies, one parity".to_owned(),
        source: String::new(),
        wanted: "no acknowledged write is lost".to_owned(),
        esker: format!("{acknowledged} acknowledged, {missing} missing, {wrong} wrong"),
        outcome,
    }
}

/// Local and remote under one load.
struct Pair<'a> {
    local: &'a LoadResult,
    remote: &'a LoadResult,
}

fn pair(loads: &[LoadResult], rate: Option<u64>) -> Option<Pair<'_>> {
    let (local, remote) = (find(loads, Arm::Local, rate)?, find(loads, Arm::Remote, rate)?);
    Some(Pair { local, remote })
}

impl Pair<'_> {
    fn ratio(&self, of: fn(&LoadResult) -> Spread) -> f64 {
        of(self.remote).median / of(self.local).median.max(f64::MIN_POSITIVE)
    }

    fn machine(&self) -> f64 {
        self.local.machine.median.max(self.remote.machine.median)
    }
}

/// Why a pair is no comparison of drives, if it is none.
fn unfit(pair: &Pair<'_>, needs_busy_drives: bool) -> Option<String> {
    let (busy, machine) = (pair.local.busy.median, pair.machine());
    let busy_or_enough = if needs_busy_drives { busy } else { 1.0 };
    (!is_fit(busy_or_enough, machine)).then(|| {
        let mut reasons = Vec::new();
        if busy_or_enough < BUSY {
            reasons.push(format!("drives were busy {:.0} % of the time", busy * 100.0));
        }
        if machine > PROCESSORS {
            reasons.push(format!("processors {:.0} %", machine * 100.0));
        }
        reasons.join(", ")
    })
}

fn judged(is_reached: bool, unfit: Option<&String>) -> Outcome {
    match (unfit, is_reached) {
        (Some(_), _) => Outcome::NotComparable,
        (None, true) => Outcome::Reached,
        (None, false) => Outcome::Missed,
    }
}

fn with_reason(text: String, unfit: Option<&String>) -> String {
    unfit.map_or_else(|| text.clone(), |why| format!("{text}; {why}"))
}

/// Rates of which both arms kept up, and local had at least as much to spare.
fn low_rates(loads: &[LoadResult]) -> Vec<PooledVerdict> {
    let unlimited = find(loads, Arm::Local, None).map_or(f64::INFINITY, |one| one.ops_per_s.median);
    let rates: Vec<u64> =
        loads.iter().filter(|one| one.arm == Arm::Local).filter_map(|one| one.rate).collect();
    let mut verdicts = Vec::new();
    for rate in rates {
        let Some(pair) = pair(loads, Some(rate)) else { continue };
        #[allow(clippy::cast_precision_loss)] // rates
        let asked = rate as f64;
        if asked > LOW * unlimited || pair.local.ops_per_s.median < KEPT * asked {
            continue;
        }
        let (reads, updates) =
            (pair.ratio(|one| one.read_mean_us), pair.ratio(|one| one.update_mean_us));
        let kept = pair.remote.ops_per_s.median >= KEPT * asked;
        let why = unfit(&pair, false);
        let text = format!("reads {reads:.2} times local, updates {updates:.2} times");
        verdicts.push(PooledVerdict {
            name: format!("{rate} operations a second: mean latencies"),
            source: AT_LOW_RATES.to_owned(),
            wanted: format!("at most {NEAR} times local, and the rate kept"),
            esker: with_reason(text, why.as_ref()),
            outcome: judged(kept && reads <= NEAR && updates <= NEAR, why.as_ref()),
        });
    }
    if verdicts.is_empty() && !loads.is_empty() {
        verdicts.push(PooledVerdict {
            name: "low rates: mean latencies".to_owned(),
            source: AT_LOW_RATES.to_owned(),
            wanted: format!("at most {NEAR} times local, and the rate kept"),
            esker: "local kept no rate up to half of its unlimited one".to_owned(),
            outcome: Outcome::NotComparable,
        });
    }
    verdicts
}

/// A figure at the unlimited rate.
struct AtSaturation {
    name: &'static str,
    source: &'static str,
    of: fn(&LoadResult) -> Spread,
    /// At least [`AHEAD`] times local, or less than local.
    more_is_better: bool,
}

const AT_SATURATION: [AtSaturation; 5] = [
    AtSaturation {
        name: "operations a second",
        source: "remote ahead; no figure in the text",
        of: |one| one.ops_per_s,
        more_is_better: true,
    },
    AtSaturation {
        name: "reads, mean",
        source: "remote lower; no figure in the text",
        of: |one| one.read_mean_us,
        more_is_better: false,
    },
    AtSaturation {
        name: "reads, 99.9 %",
        source: "local 28.9 ms, remote 40.7 ms, in a text that finds remote lower: it contradicts itself",
        of: |one| one.read_p999_us,
        more_is_better: false,
    },
    AtSaturation {
        name: "updates, mean",
        source: "42 and 43 ms, about the same",
        of: |one| one.update_mean_us,
        more_is_better: false,
    },
    AtSaturation {
        name: "updates, 99.9 %",
        source: "remote lower; no figure in the text",
        of: |one| one.update_p999_us,
        more_is_better: false,
    },
];

fn saturation(loads: &[LoadResult]) -> Vec<PooledVerdict> {
    let Some(pair) = pair(loads, None) else { return Vec::new() };
    let why = unfit(&pair, true);
    let verdict = |one: &AtSaturation| {
        let ratio = pair.ratio(one.of);
        let spread = spread(loads, one.of);
        let is_beyond = if one.more_is_better { ratio >= AHEAD } else { ratio < 1.0 };
        let is_above = spread.is_some_and(|spread| (ratio - 1.0).abs() > spread);
        let shown =
            spread.map_or("unknown".to_owned(), |spread| format!("{:.0} %", spread * 100.0));
        let text = format!("{ratio:.2} times local; A/A spread {shown}");
        let wanted = match one.more_is_better {
            true => format!("at least {AHEAD} times local, above the A/A spread"),
            false => "less than local, above the A/A spread".to_owned(),
        };
        PooledVerdict {
            name: format!("unlimited: {}", one.name),
            source: one.source.to_owned(),
            wanted,
            esker: with_reason(text, why.as_ref()),
            outcome: judged(is_beyond && is_above, why.as_ref()),
        }
    };
    AT_SATURATION.iter().map(verdict).collect()
}

/// How far repetitions of the same arm lie from their median, at most, at the unlimited rate.
fn spread(loads: &[LoadResult], of: fn(&LoadResult) -> Spread) -> Option<f64> {
    let both = [find(loads, Arm::Local, None)?, find(loads, Arm::LocalAgain, None)?].map(of);
    let middle = f64::midpoint(both[0].median, both[1].median).max(f64::MIN_POSITIVE);
    let ends = both.iter().flat_map(|one| [one.least, one.most]);
    Some(ends.map(|end| (end / middle - 1.0).abs()).fold(0.0, f64::max))
}

/// From which rate on remote is ahead.
fn crossing(loads: &[LoadResult]) -> Option<PooledVerdict> {
    let mut rates: Vec<Option<u64>> =
        loads.iter().filter(|one| one.arm == Arm::Local).map(|one| one.rate).collect();
    // `None` is the highest rate.
    rates.sort_by_key(|rate| rate.unwrap_or(u64::MAX));
    let pairs: Vec<(Option<u64>, Pair<'_>)> =
        rates.into_iter().filter_map(|rate| Some((rate, pair(loads, rate)?))).collect();
    let is_ahead = |pair: &Pair<'_>| {
        pair.ratio(|one| one.ops_per_s) >= KEPT && pair.ratio(|one| one.read_mean_us) < 1.0
    };
    let behind = pairs.iter().rposition(|(_, pair)| !is_ahead(pair));
    let first = behind.map_or(0, |index| index + 1);
    let (_, highest) = pairs.last()?;
    let why = unfit(highest, true);
    let shown = |rate: Option<u64>| {
        rate.map_or("the unlimited rate".to_owned(), |rate| format!("{rate} a second"))
    };
    let text = match pairs.get(first) {
        Some((rate, _)) => format!("from {} on", shown(*rate)),
        None => "nowhere".to_owned(),
    };
    Some(PooledVerdict {
        name: "remote keeps up in operations, with lower mean reads".to_owned(),
        source: "from 60,000 a second and server on".to_owned(),
        wanted: "at the higher rates and the unlimited one".to_owned(),
        esker: with_reason(text, why.as_ref()),
        outcome: judged(first < pairs.len(), why.as_ref()),
    })
}
