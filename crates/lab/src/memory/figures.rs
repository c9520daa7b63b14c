//! Medians of repeated runs.

use serde::{Deserialize, Serialize};

use super::bench::{Ended, RunFigures};
use super::program::{Program, Side};
use crate::Spread;

/// A part of a program's work: medians.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartResult {
    /// Its name.
    pub name: String,
    /// Seconds.
    pub seconds: Spread,
    /// Operations a second, of a server.
    pub per_s: Option<Spread>,
    /// The 99.9th percentile of single operations, in microseconds.
    pub p999_us: Option<Spread>,
}

/// A program on a side: medians of the runs that ended well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideResult {
    /// The side.
    pub side: Side,
    /// Every run.
    pub runs: Vec<Ended>,
    /// Seconds.
    pub wall_s: Option<Spread>,
    /// Processor seconds.
    pub cpu_s: Option<Spread>,
    /// MiB that were read back.
    pub read_mib: Option<Spread>,
    /// The most memory, in MiB.
    pub peak_mib: Option<Spread>,
    /// Parts.
    pub phases: Vec<PartResult>,
}

impl SideResult {
    /// The medians of some runs.
    #[must_use]
    pub fn of(side: Side, runs: Vec<Ended>) -> SideResult {
        let samples: Vec<&RunFigures> = runs.iter().filter_map(Ended::sample).collect();
        let spread =
            |of: fn(&RunFigures) -> f64| Spread::of(samples.iter().map(|one| of(one)).collect());
        let (wall_s, cpu_s) = (spread(|one| one.wall_s), spread(|one| one.cpu_s));
        let (read_mib, peak_mib) = (spread(|one| one.read_mib), spread(|one| one.peak_mib));
        let phases = phases(&samples);
        SideResult { side, runs, wall_s, cpu_s, read_mib, peak_mib, phases }
    }

    /// The bad end of a run, of the first one that had any.
    #[must_use]
    pub fn bad_end(&self) -> Option<&Ended> {
        self.runs.iter().find(|one| one.word().is_some())
    }

    /// A figure as a cell; where runs ended badly, how many.
    pub(super) fn cell(&self, spread: Option<Spread>, digits: usize) -> String {
        let bad = self.runs.iter().filter(|one| one.word().is_some()).count();
        match (spread, self.bad_end().and_then(Ended::word)) {
            (Some(spread), None) => spread.cell(digits),
            (Some(spread), Some(word)) => {
                format!("{}; {word} in {bad} of {}", spread.cell(digits), self.runs.len())
            }
            (None, Some(word)) => word.to_owned(),
            (None, None) => String::new(),
        }
    }
}

#[allow(clippy::cast_precision_loss)] // counts, far below 2^53
fn phases(samples: &[&RunFigures]) -> Vec<PartResult> {
    let Some(first) = samples.first() else { return Vec::new() };
    let phase = |name: &String| {
        let of_all: Vec<_> = samples
            .iter()
            .filter_map(|one| one.phases.iter().find(|phase| phase.name == *name))
            .collect();
        let per_s =
            of_all.iter().filter_map(|one| Some(one.operations? as f64 / one.seconds.max(1e-9)));
        Some(PartResult {
            name: name.clone(),
            seconds: Spread::of(of_all.iter().map(|one| one.seconds).collect())?,
            per_s: Spread::of(per_s.collect()),
            p999_us: Spread::of(of_all.iter().filter_map(|one| one.p999_us).collect()),
        })
    };
    first.phases.iter().filter_map(|one| phase(&one.name)).collect()
}

/// A program on all sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramResult {
    /// The program.
    pub program: Program,
    /// Memory of `esker run --memory`, in MiB.
    pub budget_mib: u64,
    /// Memory of the sides that swap, in MiB.
    pub limit_mib: u64,
    /// The run without bounds.
    pub plain: RunFigures,
    /// The sides.
    pub sides: Vec<SideResult>,
}

impl ProgramResult {
    /// A side.
    #[must_use]
    pub fn side(&self, side: Side) -> Option<&SideResult> {
        self.sides.iter().find(|one| one.side == side)
    }

    /// The swap on a drive that has the lesser figure, of those that completed.
    pub(super) fn better(&self, of: impl Fn(&SideResult) -> Option<f64>) -> Option<(Side, f64)> {
        let found = Side::SWAPS.into_iter().filter_map(|side| Some((side, of(self.side(side)?)?)));
        found.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// All of its work, then its parts.
    pub(super) fn parts(&self) -> Vec<Option<&str>> {
        let names = self.plain.phases.iter().map(|phase| Some(phase.name.as_str()));
        std::iter::once(None).chain(names).collect()
    }

    /// How many times as fast as the faster swap Esker is at a part.
    pub(super) fn speed(&self, part: Option<&str>) -> Option<f64> {
        let median = |side: &SideResult| seconds(side, part).map(|spread| spread.median);
        let (_, swap) = self.better(median)?;
        Some(swap / median(self.side(Side::Esker)?)?.max(f64::MIN_POSITIVE))
    }
}

/// The name of a program's part in tables.
pub(super) fn part_name(program: Program, part: Option<&str>) -> String {
    part.map_or(program.name().to_owned(), |part| format!("{program}, {part}"))
}

/// The seconds of a part of a side, or of all its work.
pub(super) fn seconds(side: &SideResult, phase: Option<&str>) -> Option<Spread> {
    match phase {
        None => side.wall_s,
        Some(name) => side.phases.iter().find(|one| one.name == name).map(|one| one.seconds),
    }
}
