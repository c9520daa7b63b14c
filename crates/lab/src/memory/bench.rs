//! The seam between the plan and a machine: runs that it asks for, and figures that it gets.

use serde::{Deserialize, Serialize};

use super::program::{Program, Side};
use crate::LabError;

/// A part of a program's work that is timed by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Seconds.
    pub seconds: f64,
    /// Operations in that time, of a server.
    pub operations: Option<u64>,
    /// The 99.9th percentile of single operations, in microseconds.
    pub p999_us: Option<f64>,
}

/// Figures of a run that has ended well.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunFigures {
    /// Seconds from the start of the program to its end.
    pub wall_s: f64,
    /// Processor time of all its processes, the pager's and the kernel's work for it included, in seconds.
    pub cpu_s: f64,
    /// MiB that were read back from the device or from compressed memory.
    pub read_mib: f64,
    /// The most memory at a moment, in MiB: anonymous, shared and of the kernel, of all its processes and the pager,
    /// and zram's pool.
    pub peak_mib: f64,
    /// The most pages of files that were mapped at a moment, in MiB.
    pub mapped_mib: f64,
    /// A digest of its output.
    pub answer: String,
    /// Parts that are timed by themselves.
    pub phases: Vec<Part>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Well.
    Ran(RunFigures),
    /// The kernel killed it for want of memory, after so many seconds.
    Killed(f64),
    /// It was not done after so many seconds, and was ended.
    Hung(f64),
    /// Compressed memory took the whole limit, after so many seconds.
    Full(f64),
    /// It failed; the text says how.
    Failed(String),
    /// Its output is not that of the plain run.
    Wrong,
}

impl Ended {
    /// Its figures, if it ended well.
    #[must_use]
    pub fn sample(&self) -> Option<&RunFigures> {
        match self {
            Ended::Ran(sample) => Some(sample),
            _ => None,
        }
    }

    /// Its end in a cell of a table; none if it ended well.
    #[must_use]
    pub fn word(&self) -> Option<&'static str> {
        match self {
            Ended::Ran(_) => None,
            Ended::Killed(_) => Some("killed"),
            Ended::Hung(_) => Some("hung"),
            Ended::Full(_) => Some("does not fit"),
            Ended::Failed(_) => Some("failed"),
            Ended::Wrong => Some("wrong output"),
        }
    }
}

/// Bounds of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Memory for `esker run --memory`, in MiB.
    pub budget_mib: u64,
    /// Memory of a side that swaps, in MiB, with everything.
    pub limit_mib: u64,
    /// Seconds after which it is ended.
    pub patience_s: f64,
}

/// Runs programs on a machine.
pub trait Runner {
    /// Looks for a program and makes its input. Returns the package that is missing, if one is.
    ///
    /// # Errors
    /// An input that cannot be made.
    fn prepare(&mut self, program: Program) -> Result<Option<String>, LabError>;

    /// Runs it without bounds, for output and memory.
    ///
    /// # Errors
    /// A machine that refuses; an interruption.
    fn plain(&mut self, program: Program, patience_s: f64) -> Result<Ended, LabError>;

    /// Runs it within bounds.
    ///
    /// # Errors
    /// As [`Runner::plain`].
    fn bounded(&mut self, program: Program, side: Side, bound: Bound) -> Result<Ended, LabError>;

    /// The median time of single reads of 4 KiB from the drive, at random, in microseconds.
    ///
    /// # Errors
    /// A drive that cannot be read.
    fn read_us(&mut self) -> Result<f64, LabError>;
}
