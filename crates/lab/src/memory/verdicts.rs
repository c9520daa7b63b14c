//! Goals beside the medians.
//!
//! Invariants
//! 1. Esker is held against the faster swap on the drive that completed; where none did, nothing is judged.
//! 2. A run of Esker that ends badly misses the goal, however swap did.

use esker_report::{Precondition, Verdict};

use super::bench::Ended;
use super::figures::{ProgramResult, SideResult, part_name, seconds};
use super::options::ROUNDS_TO_JUDGE;
use super::program::{Program, SCAN, SNAPSHOT, Side};
use crate::Spread;

/// From this time of a read on, sort and awk have the higher goal, in microseconds.
const SLOW_READ_US: f64 = 80.0;
/// The most that Esker may read back, and take of processors, in multiples of swap.
const READS: f64 = 1.1;
const PROCESSORS: f64 = 2.0;
/// Less is no paging to speak of, in MiB.
const PAGED_MIB: f64 = 16.0;
/// How far Esker's memory may be above the limit of the others.
const ABOVE: f64 = 1.05;

/// How many times swap's speed is wanted; none for what is shown and not judged.
fn goal(program: Program, part: Option<&str>, read_us: f64) -> Option<f64> {
    match (program, part) {
        (Program::Sort | Program::Awk, None) => {
            Some(if read_us >= SLOW_READ_US { 0.9 } else { 0.8 })
        }
        (Program::Pandas | Program::Polars | Program::R | Program::Duckdb, None) => Some(2.0),
        (Program::Duckdb, Some(name)) if name.starts_with(SCAN) => Some(2.0),
        (Program::Redis, Some(SNAPSHOT)) => Some(2.0),
        (Program::Redis, Some(_)) => Some(1.0),
        (Program::Jq | Program::JavaCache | Program::Sqlite | Program::Mariadb, None) => Some(1.0),
        _ => None,
    }
}

/// All verdicts.
#[must_use]
pub(super) fn of(programs: &[ProgramResult], read_us: f64) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if !programs.is_empty() {
        verdicts.push(outputs(programs));
    }
    for one in programs {
        let Some(esker) = one.side(Side::Esker) else { continue };
        for part in one.parts() {
            if let Some(goal) = goal(one.program, part, read_us) {
                verdicts.push(speed(one, esker, part, goal));
            }
        }
        type Of = fn(&SideResult) -> Option<Spread>;
        let costs: [(&str, &str, Of, f64); 2] = [
            ("read back", "MiB", |side| side.read_mib, READS),
            ("processor time", "s", |side| side.cpu_s, PROCESSORS),
        ];
        for (what, unit, of, most) in costs {
            let ours = of(esker).map(|spread| spread.median);
            // That of the faster swap, not the lesser figure.
            let theirs = one
                .better(|side| side.wall_s.map(|spread| spread.median))
                .and_then(|(side, _)| Some((side, of(one.side(side)?)?.median)));
            let (Some(ours), Some((side, theirs))) = (ours, theirs) else { continue };
            let ratio = ours / theirs.max(f64::MIN_POSITIVE);
            let figures = format!("{ratio:.2} times: {ours:.1} {unit}, {side} {theirs:.1} {unit}");
            let verdict = Verdict::new(format!("{}: {what}", one.program), figures)
                .wanted(format!("at most {most} times the faster swap's"), ratio <= most);
            verdicts.push(under(verdict, conditions(one, esker)));
        }
    }
    verdicts
}

fn outputs(programs: &[ProgramResult]) -> Verdict {
    let runs = programs.iter().flat_map(|one| &one.sides).flat_map(|side| &side.runs);
    let completed = runs.clone().filter(|run| run.sample().is_some()).count();
    let wrong = runs.filter(|run| **run == Ended::Wrong).count();
    let measured =
        format!("{completed} runs with the plain run's output, {wrong} with another one");
    Verdict::new("output", measured).wanted("that of the plain run, always", wrong == 0)
}

fn speed(one: &ProgramResult, esker: &SideResult, part: Option<&str>, goal: f64) -> Verdict {
    let median = |side: &SideResult| seconds(side, part).map(|spread| spread.median);
    let figure = format!("{}: speed", part_name(one.program, part));
    let wanted = format!("at least {goal:.1} times the faster swap");
    let (ours, theirs) = (median(esker), one.better(median));
    match (ours, theirs) {
        _ if let Some(word) = esker.bad_end().and_then(Ended::word) => {
            Verdict::new(figure, format!("Esker's run: {word}")).wanted(wanted, false)
        }
        (Some(ours), Some((side, theirs))) => {
            let ratio = theirs / ours.max(f64::MIN_POSITIVE);
            let measured = format!("{ratio:.2} times: {ours:.1} s, {side} {theirs:.1} s");
            let verdict = Verdict::new(figure, measured).wanted(wanted, ratio >= goal);
            under(verdict, conditions(one, esker))
        }
        (ours, _) => {
            let measured = ours.map_or("no figure".to_owned(), |ours| format!("{ours:.1} s"));
            let verdict = Verdict::new(figure, measured).wanted(wanted, false);
            under(verdict, conditions(one, esker))
        }
    }
}

/// The conditions under which a program's figures can be compared.
fn conditions(one: &ProgramResult, esker: &SideResult) -> Vec<Precondition> {
    let swaps: Vec<&SideResult> =
        Side::SWAPS.into_iter().filter_map(|side| one.side(side)).collect();
    let rounds = esker.runs.len();
    let enough = format!("{ROUNDS_TO_JUDGE} rounds");
    let mut conditions =
        vec![Precondition::new(enough, rounds.to_string(), rounds >= ROUNDS_TO_JUDGE as usize)];
    let completed = swaps.iter().any(|side| side.wall_s.is_some());
    let ends: Vec<String> = swaps
        .iter()
        .filter_map(|side| Some(format!("{} {}", side.side, side.bad_end()?.word()?)))
        .collect();
    let found = if swaps.is_empty() { "no side that swaps".to_owned() } else { ends.join(", ") };
    conditions.push(Precondition::new("a run on swap that completes", found, completed));
    if let Some((_, read)) = one.better(|side| side.read_mib.map(|spread| spread.median)) {
        let found = format!("{read:.0} MiB");
        let needs = format!("{PAGED_MIB} MiB that swap reads back");
        conditions.push(Precondition::new(needs, found, read >= PAGED_MIB));
    }
    if let Some(peak) = esker.peak_mib {
        #[allow(clippy::cast_precision_loss)] // MiB
        let limit = one.limit_mib as f64;
        let needs = "no more memory than swap's limit and 5 %";
        let found = format!("{:.0} of {limit:.0} MiB", peak.median);
        conditions.push(Precondition::new(needs, found, peak.median <= ABOVE * limit));
    }
    conditions
}

fn under(verdict: Verdict, conditions: Vec<Precondition>) -> Verdict {
    conditions.into_iter().fold(verdict, Verdict::requires)
}
