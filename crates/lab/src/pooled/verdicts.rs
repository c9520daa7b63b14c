//! Goals and the source's figures, beside the medians.
//!
//! Invariants
//! 1. A figure that is reached needs a run whose drives were busy and whose processors were not, and an effect above the
//!    spread of the same arm measured twice.

use esker_report::{Precondition, Verdict};

use super::bench::Survival;
use super::calibrate::{BUSY, PROCESSORS, is_fit};
use super::deployment::Deployment;
use super::figures::{LoadResult, find};
use crate::Spread;

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

/// All verdicts on a comparison.
#[must_use]
pub fn of_loads(loads: &[LoadResult]) -> Vec<Verdict> {
    let mut verdicts = low_rates(loads);
    verdicts.extend(saturation(loads));
    verdicts.extend(crossing(loads));
    verdicts
}

/// The verdict on losing a node and a drive.
#[must_use]
pub fn of_survival(survival: &Survival) -> Verdict {
    let Survival { acknowledged, missing, wrong, at_kill, at_drive, .. } = survival;
    let was_under_load = 0 < *at_kill && at_kill < at_drive && at_drive < acknowledged;
    let lost = missing + wrong;
    let found =
        format!("{at_kill} at the kill, {at_drive} at the failure, {acknowledged} at the end");
    let needs = "acknowledged writes before, between and after both failures";
    Verdict::new(
        "a node killed and a drive failed under load, three copies, one parity",
        format!("{acknowledged} acknowledged, {missing} missing, {wrong} wrong"),
    )
    .wanted("no acknowledged write is lost", lost == 0)
    // A loss is one whenever it happens.
    .requires(Precondition::new(needs, found, was_under_load || lost > 0))
}

/// Local and remote under one load.
struct Pair<'a> {
    local: &'a LoadResult,
    remote: &'a LoadResult,
}

fn pair(loads: &[LoadResult], rate: Option<u64>) -> Option<Pair<'_>> {
    let (local, remote) =
        (find(loads, Deployment::Local, rate)?, find(loads, Deployment::Remote, rate)?);
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

/// Processors had time to spare, and drives were busy where that is needed.
fn fit(pair: &Pair<'_>, needs_busy_drives: bool) -> Vec<Precondition> {
    let (busy, machine) = (pair.local.busy.median, pair.machine());
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let processors = Precondition::new(
        format!("processors at most {} busy", percent(PROCESSORS)),
        percent(machine),
        is_fit(1.0, machine),
    );
    let drives = Precondition::new(
        format!("drives at least {} busy", percent(BUSY)),
        percent(busy),
        is_fit(busy, 0.0),
    );
    if needs_busy_drives { vec![processors, drives] } else { vec![processors] }
}

fn under(verdict: Verdict, conditions: Vec<Precondition>) -> Verdict {
    conditions.into_iter().fold(verdict, Verdict::requires)
}

/// Rates of which both arms kept up, and local had at least as much to spare.
fn low_rates(loads: &[LoadResult]) -> Vec<Verdict> {
    let unlimited =
        find(loads, Deployment::Local, None).map_or(f64::INFINITY, |one| one.ops_per_s.median);
    let rates: Vec<u64> = loads
        .iter()
        .filter(|one| one.arm == Deployment::Local)
        .filter_map(|one| one.rate)
        .collect();
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
        let text = format!("reads {reads:.2} times local, updates {updates:.2} times");
        let verdict = Verdict::new(format!("{rate} operations a second: mean latencies"), text)
            .published(AT_LOW_RATES)
            .wanted(
                format!("at most {NEAR} times local, and the rate kept"),
                kept && reads <= NEAR && updates <= NEAR,
            );
        verdicts.push(under(verdict, fit(&pair, false)));
    }
    if verdicts.is_empty() && !loads.is_empty() {
        let needs = "a rate that local keeps, up to half of its unlimited one";
        let verdict = Verdict::new("low rates: mean latencies", "no figure")
            .published(AT_LOW_RATES)
            .wanted(format!("at most {NEAR} times local, and the rate kept"), false);
        verdicts.push(verdict.requires(Precondition::new(needs, "none", false)));
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

fn saturation(loads: &[LoadResult]) -> Vec<Verdict> {
    let Some(pair) = pair(loads, None) else { return Vec::new() };
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
        let verdict = Verdict::new(format!("unlimited: {}", one.name), text)
            .published(one.source)
            .wanted(wanted, is_beyond && is_above);
        under(verdict, fit(&pair, true))
    };
    AT_SATURATION.iter().map(verdict).collect()
}

/// How far repetitions of the same arm lie from their median, at most, at the unlimited rate.
fn spread(loads: &[LoadResult], of: fn(&LoadResult) -> Spread) -> Option<f64> {
    let both =
        [find(loads, Deployment::Local, None)?, find(loads, Deployment::LocalAgain, None)?].map(of);
    let middle = f64::midpoint(both[0].median, both[1].median).max(f64::MIN_POSITIVE);
    let ends = both.iter().flat_map(|one| [one.least, one.most]);
    Some(ends.map(|end| (end / middle - 1.0).abs()).fold(0.0, f64::max))
}

/// From which rate on remote is ahead.
fn crossing(loads: &[LoadResult]) -> Option<Verdict> {
    let mut rates: Vec<Option<u64>> =
        loads.iter().filter(|one| one.arm == Deployment::Local).map(|one| one.rate).collect();
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
    let shown = |rate: Option<u64>| {
        rate.map_or("the unlimited rate".to_owned(), |rate| format!("{rate} a second"))
    };
    let text = match pairs.get(first) {
        Some((rate, _)) => format!("from {} on", shown(*rate)),
        None => "nowhere".to_owned(),
    };
    let verdict = Verdict::new("remote keeps up in operations, with lower mean reads", text)
        .published("from 60,000 a second and server on")
        .wanted("at the higher rates and the unlimited one", first < pairs.len());
    Some(under(verdict, fit(highest, true)))
}
