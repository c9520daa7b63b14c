//! Unchanged programs with paged memory, beside the same on the kernel's swap and on zram, with the same total memory
//! on the same drive. In real time.
//!
//! | module | content |
//! | --- | --- |
//! | [`program`] | the programs and the sides |
//! | [`bench`](mod@bench) | the seam to a machine that runs them |
//! | [`options`] | the runs, and the memory of each |
//! | [`figures`] | medians of repetitions |
//! | `verdicts` | goals |
//! | [`report`] | [`MemoryFigures`], and its tables |
//! | `html` | the same as a document |
//!
//! Invariants
//! 1. Every side has the memory of Esker's side, pager and kernel included.
//! 2. Sides run in turn, in the other direction in each second round.
//! 3. A program that is not there is in [`MemoryFigures::skipped`], with its package.

pub mod bench;
pub mod figures;
mod html;
pub mod options;
pub mod program;
pub mod report;
#[cfg(test)]
mod tests;
mod verdicts;

use std::collections::BTreeMap;

use esker_report::{Page, Verdict};

use crate::LabError;
use crate::steps::Steps;
use crate::study::{About, Follow, Study};
use bench::{Bound, Ended, RunFigures, Runner};
use figures::{ProgramResult, SideResult};
use options::{MemoryOptions, PLAIN_PATIENCE_S, budget_mib, limit_mib, patience_s};
use program::{Program, Side};
pub use report::MemoryFigures;

/// The study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory;

impl Study for Memory {
    const ABOUT: About = About {
        name: "memory",
        format: "esker-memory/2",
        system: "Swap and zram of Linux",
        purpose: "Programs that take more memory than there is, unchanged: the kernel swaps pages out to a drive or \
                  compresses them, or Esker pages them.",
        minutes: (2, 120),
        programs: &["mkswap", "swapon", "swapoff"],
        needs_root: true,
    };

    type Options = MemoryOptions;
    type Machine<'a> = dyn Runner + 'a;
    type Figures = MemoryFigures;

    fn check(options: &MemoryOptions) -> Result<(), LabError> {
        options.check()
    }

    fn run(
        options: &MemoryOptions,
        bench: &mut (dyn Runner + '_),
        follow: &mut Follow<'_>,
    ) -> Result<MemoryFigures, LabError> {
        let each = 1 + options.sides.len() * options.rounds as usize;
        let mut steps = Steps::new(follow, 1 + options.programs.len() * each);
        steps.step("reads of the drive")?;
        let read_us = steps.ended(bench.read_us())?;
        let mut figures = MemoryFigures::new(options, read_us);
        let ended = all(options, bench, &mut steps, &mut figures);
        steps.part(ended)?;
        if steps.is_interrupted() && figures.programs.is_empty() {
            return Err(LabError::Interrupted);
        }
        Ok(figures)
    }

    fn verdicts(figures: &MemoryFigures) -> Vec<Verdict> {
        verdicts::of(&figures.programs, figures.read_us)
    }

    fn document(figures: &MemoryFigures) -> Page {
        figures.document()
    }
}

fn all(
    options: &MemoryOptions,
    bench: &mut (dyn Runner + '_),
    steps: &mut Steps<'_>,
    figures: &mut MemoryFigures,
) -> Result<(), LabError> {
    for &program in &options.programs {
        steps.step(&format!("{program}, plain"))?;
        if let Some(package) = steps.ended(bench.prepare(program))? {
            figures.skipped.push(format!("{program}: not installed: {package}"));
            continue;
        }
        let plain = match steps.ended(bench.plain(program, PLAIN_PATIENCE_S))? {
            Ended::Ran(plain) => plain,
            Ended::Failed(why) => {
                figures.skipped.push(format!("{program}: it fails without bounds: {why}"));
                continue;
            }
            other => {
                let word = other.word().unwrap_or_default();
                figures.skipped.push(format!("{program}: without bounds it is {word}"));
                continue;
            }
        };
        one(options, bench, steps, (program, plain), figures)?;
    }
    Ok(())
}

/// Runs a program on all sides; what was measured until an interruption is kept.
fn one(
    options: &MemoryOptions,
    bench: &mut (dyn Runner + '_),
    steps: &mut Steps<'_>,
    (program, plain): (Program, RunFigures),
    figures: &mut MemoryFigures,
) -> Result<(), LabError> {
    let budget = budget_mib(program, &plain);
    let mut turns = Turns {
        bound: Bound {
            budget_mib: budget,
            limit_mib: limit_mib(budget, None, &plain),
            patience_s: patience_s(&plain),
        },
        runs: BTreeMap::new(),
    };
    let ended = turns.rounds(options, bench, steps, (program, &plain));
    if !turns.runs.is_empty() {
        let side = |&side: &Side| Some(SideResult::of(side, turns.runs.remove(&side)?));
        let sides = options.sides.iter().filter_map(side).collect();
        let (budget_mib, limit_mib) = (budget, turns.bound.limit_mib);
        figures.programs.push(ProgramResult { program, budget_mib, limit_mib, plain, sides });
    }
    ended
}

/// The runs of a program, and their bounds.
struct Turns {
    bound: Bound,
    runs: BTreeMap<Side, Vec<Ended>>,
}

impl Turns {
    fn rounds(
        &mut self,
        options: &MemoryOptions,
        bench: &mut (dyn Runner + '_),
        steps: &mut Steps<'_>,
        (program, plain): (Program, &RunFigures),
    ) -> Result<(), LabError> {
        for round in 0..options.rounds {
            let mut order = options.sides.clone();
            if round % 2 == 1 {
                order.reverse();
            }
            for side in order {
                steps.step(&format!("{program}, {side}, round {}", round + 1))?;
                let before = self.runs.get(&side).and_then(|runs| runs.last());
                // A side that has hung once would take the same patience again.
                let is_hopeless = matches!(before, Some(Ended::Hung(_) | Ended::Full(_)));
                let ended = match before.filter(|_| is_hopeless) {
                    Some(before) => before.clone(),
                    None => steps.ended(bench.bounded(program, side, self.bound))?,
                };
                let ended = match ended {
                    Ended::Ran(sample) if sample.answer != plain.answer => Ended::Wrong,
                    ended => ended,
                };
                if side == Side::Esker && round == 0 {
                    let budget = self.bound.budget_mib;
                    self.bound.limit_mib = limit_mib(budget, ended.sample(), plain);
                }
                self.runs.entry(side).or_default().push(ended);
            }
        }
        Ok(())
    }
}
