//! The source's figures and the goals beside the results.

use esker_kv::MediaClass;
use esker_report::{Precondition, Verdict};

use super::arm::ArmRun;
use super::machine::Arm;
use super::phase::{Decider, Phase};
use super::published;
use crate::Spread;

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

    /// Drives, not processors, decided how long it took.
    fn of_drives(&self) -> Precondition {
        let phases = Arm::ESKER.iter().flat_map(|arm| self.phases(*arm));
        let by_processors = phases.clone().filter(|one| one.decider == Decider::Processors).count();
        let found = format!("processors decided {by_processors} of {}", phases.count());
        let needs = "runs that drives decide, not processors";
        Precondition::new(needs, found, self.is_comparable())
    }

    /// Each arm has enough reads above the 99.9th percentile for it to be one.
    fn of_reads(&self) -> Precondition {
        let phases = Arm::ESKER.iter().flat_map(|arm| self.phases(*arm));
        let reads = phases.map(|phase| phase.latency("read").map_or(0, |latency| latency.count));
        let least = reads.min().unwrap_or(0);
        let needs = format!("at least {TAIL_READS} reads in each run");
        Precondition::new(needs, least.to_string(), least >= TAIL_READS)
    }

    /// Data has aged to capacity.
    fn of_age(&self) -> Precondition {
        let bytes = |phase: &Phase| phase.per_user_byte(MediaClass::Capacity);
        let aged = self.spread(Arm::Staged, bytes).map_or(0.0, |spread| spread.median);
        let needs = "data that has aged: a byte to capacity for each of the user's";
        Precondition::new(needs, format!("{aged:.2}"), aged >= 1.0)
    }
}

/// Reads that a 99.9th percentile needs at least: ten that are longer.
const TAIL_READS: u64 = 10_000;

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
    let name = format!("{workload}: throughput, with staging and without");
    let verdict = Verdict::new(name, format!("{ratio:.2} times"))
        .published(published)
        .wanted(format!("at least {least} times"), ratio >= least)
        .requires(pair.of_drives());
    Some(match alone {
        Some(times) => {
            verdict.baseline(format!("{times:.2} times by the drives' rates alone{why}"))
        }
        None => verdict,
    })
}

/// Where bytes alone bound a load's ratio, how much of the drives' rates it uses says whether the engine is at fault.
fn load_of_rates(pair: &Pair<'_>) -> Option<Verdict> {
    if pair.workload != "load" {
        return None;
    }
    let used = |arm| pair.spread(arm, Phase::of_rates).map(|spread| spread.median);
    let (without, with) = (used(Arm::Capacity)?, used(Arm::Staged)?);
    let least = published::OF_RATES;
    let name = "load: of the busiest drive's rates, without staging and with";
    let measured = format!("{:.0} % and {:.0} %", 100.0 * without, 100.0 * with);
    let verdict = Verdict::new(name, measured)
        .wanted(format!("at least {:.0} %", 100.0 * least), without.min(with) >= least);
    Some(verdict.requires(pair.of_drives()))
}

fn tails(pair: &Pair<'_>) -> Option<Verdict> {
    let workload = pair.workload;
    if !published::TAIL.contains(&workload) {
        return None;
    }
    let ratio = pair.ratio(tail)?;
    let most = published::TAIL_SHARE;
    let name = format!("{workload}: p99.9 of reads, with staging over without");
    let verdict = Verdict::new(name, format!("{ratio:.2}"))
        .published("1/2 to 1/3")
        .wanted(format!("at most {most:.2}"), ratio <= most);
    Some(verdict.requires(pair.of_drives()).requires(pair.of_reads()))
}

/// Bytes are counted, whether drives or processors decide how fast they come.
fn load_bytes(pair: &Pair<'_>) -> Option<Verdict> {
    if pair.workload != "load" {
        return None;
    }
    let bytes = |phase: &Phase| phase.per_user_byte(MediaClass::Capacity);
    let with = pair.spread(Arm::Staged, bytes)?.median;
    let without = pair.spread(Arm::Capacity, bytes)?.median;
    let [hse_without, hse_with] = published::LOAD_GB.map(|(_, gb, _)| gb / published::DATA_GB);
    let most = published::CAPACITY_PER_BYTE;
    let name = "load: bytes to capacity for each byte of the user's, with staging";
    let verdict = Verdict::new(name, format!("{with:.2} (without: {without:.2})"))
        .published(format!("{hse_with:.2} (without: {hse_without:.2})"))
        .wanted(format!("at most {most}"), with <= most);
    // Workloads that begin before the data has aged would read it from staging.
    Some(verdict.requires(pair.of_age()))
}

fn run_bytes(pair: &Pair<'_>) -> Option<Verdict> {
    if pair.workload == "load" {
        return None;
    }
    let ratio = pair.ratio(capacity_bytes)?;
    let most = published::WRITTEN_SHARE;
    let name = format!("{}: bytes to capacity, with staging over without", pair.workload);
    let verdict = Verdict::new(name, format!("{ratio:.2}"))
        .published("at most 1/2")
        .wanted(format!("at most {most:.2}"), ratio <= most);
    Some(verdict)
}
