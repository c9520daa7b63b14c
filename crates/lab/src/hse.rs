//! Worth of a fast staging drive in front of cheap flash to the engine: Micron's study of HSE, scaled down.
//!
//! Two arms have the same records, memory, threads and capacity drives; one of them has a staging drive, too. A third
//! is RocksDB with a file system on these drives, where it is asked for. Drives
//! and engine run on one clock that is slower than real time, so that two processors stand for many: every rate and
//! latency is in the time of that clock, as if the drives were as fast as published.
//!
//! | module | content |
//! | --- | --- |
//! | [`machine`] | [`Machine`]: opens the drives of an arm, and knows the processors |
//! | `options` | [`HseOptions`] |
//! | [`phase`] | the load or a workload on an arm, and the traffic of its drives meanwhile |
//! | `arm` | all phases of an arm of the engine, on new drives |
//! | `peer` | the same of RocksDB, which runs in real time |
//! | `round` | all rounds, and a run of any arm |
//! | `calibrate` | how much slower the clock has to be |
//! | `published` | the figures of the source |
//! | `verdict` | its figures and the goals beside these |
//! | `beside` | the engine's figures over RocksDB's |
//! | [`report`], `table`, `html` | [`HseFigures`], their tables, and the document |
//!
//! Imports run downward: `html` and `table`, `report`, `verdict` and `beside`, `calibrate`, `round`, `peer`, `arm`,
//! `phase`, `machine`.

mod arm;
mod beside;
mod calibrate;
mod html;
pub mod machine;
mod options;
mod peer;
pub mod phase;
mod published;
pub mod report;
mod round;
mod table;
mod verdict;

#[cfg(test)]
mod tests;

use esker_report::{Page, Verdict};

use crate::LabError;
use crate::study::{About, Follow, Study};
pub use machine::{Arm, ArmDrive, Machine, Opened, Peer, PeerSetup, Processors, Rates};
pub use options::HseOptions;
pub use report::HseFigures;
use verdict::Pair;

/// The study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hse;

impl Study for Hse {
    const ABOUT: About = About {
        name: "hse",
        format: "esker-hse/4",
        system: "Micron's heterogeneous-memory storage engine",
        purpose: "A key-value engine takes writes on a fast, durable drive and ages them to cheap flash once, in key \
                  order: the cheap drives live longer, and reads do not wait for writes.",
        minutes: (12, 60),
        programs: &[],
        needs_root: false,
    };

    type Options = HseOptions;
    type Machine<'a> = dyn Machine + 'a;
    type Figures = HseFigures;

    fn check(options: &HseOptions) -> Result<(), LabError> {
        options.check()
    }

    fn run(
        options: &HseOptions,
        machine: &mut (dyn Machine + '_),
        follow: &mut Follow<'_>,
    ) -> Result<HseFigures, LabError> {
        let calibration = match options.dilation {
            _ if machine.is_real() => calibrate::Calibration::given(1),
            Some(factor) => calibrate::Calibration::given(factor),
            None => calibrate::calibrate(options, machine, follow)?,
        };
        let (runs, skipped) = round::all(options, calibration.dilation, machine, follow)?;
        Ok(HseFigures::new(options, machine.is_real(), calibration, runs, skipped))
    }

    fn verdicts(figures: &HseFigures) -> Vec<Verdict> {
        verdict::verdicts(&Pair::all(&figures.runs))
    }

    fn document(figures: &HseFigures) -> Page {
        figures.document()
    }
}
