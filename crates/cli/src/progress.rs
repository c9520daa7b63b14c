//! One line on a terminal that says how far the work is; nothing where standard error is a file.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;

use esker_bench::{Phase, Progress};

use crate::figures::{micros, short};

/// The line.
pub(crate) struct Line {
    is_terminal: bool,
}

impl Line {
    pub(crate) fn new() -> Line {
        Line { is_terminal: io::stderr().is_terminal() }
    }

    /// Replaces the line by `text`.
    pub(crate) fn show(&self, text: &str) {
        if self.is_terminal {
            // A terminal that went away is no reason to stop.
            let _ = write!(io::stderr(), "\r{text}\x1b[K");
        }
    }

    /// Shows where a run is; for [`esker_bench::Runner`].
    pub(crate) fn follow(&self, progress: &Progress<'_>) -> ControlFlow<()> {
        let percent = progress.fraction * 100.0;
        let phase = match progress.phase {
            Phase::WarmUp => "warming up",
            Phase::Measure => "running",
            Phase::Sync => "making durable",
        };
        let rate = short(progress.ops_per_s);
        let p99 = progress
            .p99_ns
            .map_or_else(String::new, |ns| format!("  p99 {} µs", micros(ns as f64)));
        self.show(&format!(
            "  {:<5} {phase:<10} {percent:>3.0} %  {rate:>7} ops/s{p99}",
            progress.workload
        ));
        ControlFlow::Continue(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.show("");
    }
}
