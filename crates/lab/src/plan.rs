//! A plan for one's own load: would staging, placement, a drive that the host manages, a flash cache or pooled volumes
//! help?
//!
//! A plan is a file: drives, the devices built of them, a load, and alternatives. Every alternative runs the real code
//! (the engine, the cache, the pool) on modelled drives; a sweep runs it at every combination of some parameters.
//!
//! | module | content |
//! | --- | --- |
//! | `file` | the file: TOML, and the line of everything in it |
//! | `surroundings` | [`Surroundings`]: facts of the machine |
//! | `inputs` | everything that the figures of a run depend on |
//! | `drive` | a drive of the file as a model, and its facts |
//! | `requests` | the requests of a trace |
//! | `resolve` | from the file to runs |
//! | `measured` | the figures of a run |
//! | `stepped`, `build` | devices from inputs |
//! | `run` | a run |
//! | `keep` | results by their inputs |
//! | `schedule` | all runs, on all processors where time is virtual |
//! | `drives` | assumptions about drives: common ones once, and how cases differ |
//! | `judge` | life, cost, room, and which alternative is best |
//! | [`report`], `html` | [`PlanReport`], as text, JSON and a page |
//!
//! Imports run downward from `html` to `file`.
//!
//! # Time
//!
//! Loads on devices are in virtual time: requests overlap as on the drives, and figures are the same on every machine.
//! The engine runs either with real clients on a clock that is slower than real time, one run after the other, or in
//! virtual time, where one client and maintenance take turns: bytes are right then, and rates are not compared.

mod build;
mod drive;
mod drives;
mod file;
mod html;
mod inputs;
mod judge;
mod keep;
mod measured;
pub mod report;
mod requests;
mod resolve;
mod run;
mod schedule;
mod stepped;
mod surroundings;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::Path;

use crate::LabError;
pub use crate::hse::machine::Processors;
pub use crate::steps::Progress;
pub use keep::Shelf;
pub use measured::{ClockKind, DeviceUse, KindLatency, MeasuredCase};
pub use report::PlanReport;
pub use schedule::{Expected, Listed};
pub use surroundings::Surroundings;

/// A plan whose file was read.
pub struct Plan(resolve::Plan);

impl Plan {
    /// Reads a plan from the text of a file. Traces are looked for from `folder` on.
    ///
    /// # Errors
    /// The line that is wrong, and the remedy; `NotFound` for a trace that is not there.
    pub fn read(
        name: &str,
        text: &str,
        folder: &Path,
        surroundings: &Surroundings<'_>,
    ) -> Result<Plan, LabError> {
        let read = file::read(name, text)?;
        resolve::resolve(&read, folder, surroundings).map(Plan)
    }

    /// Its runs: which are kept, and about how long the others take.
    ///
    /// # Errors
    /// Where a run takes more memory than there is.
    pub fn list(
        &self,
        shelf: &mut dyn Shelf,
        surroundings: &Surroundings<'_>,
    ) -> Result<Expected, LabError> {
        schedule::list(&self.0, shelf, surroundings)
    }

    /// Makes all runs that are not kept, and reports. Results are kept as they come.
    ///
    /// # Errors
    /// A run's, the shelf's, or when `follow` ends it.
    pub fn run(
        &self,
        shelf: &mut dyn Shelf,
        surroundings: &Surroundings<'_>,
        mut follow: impl FnMut(&Progress<'_>) -> ControlFlow<()>,
    ) -> Result<PlanReport, LabError> {
        let outcome = schedule::run(&self.0, shelf, surroundings, &mut follow)?;
        Ok(PlanReport::new(&self.0, outcome))
    }
}
