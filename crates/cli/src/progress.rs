//! One line on a terminal that says how far the work is. Where standard error is a file it becomes a line now and then.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use esker_base::{Clock, Nanos};
use esker_bench::{Phase, Progress};

use crate::figures::{micros, short};

/// In a file, lines of progress are so far apart.
const APART: Duration = Duration::from_secs(30);

/// The line.
pub(crate) struct Line {
    is_terminal: bool,
    clock: Clock,
    /// When a line was written to a file last.
    written: Cell<Nanos>,
}

impl Line {
    pub(crate) fn new() -> Line {
        let clock = Clock::real();
        let written = Cell::new(clock.now());
        Line { is_terminal: io::stderr().is_terminal(), clock, written }
    }

    /// Replaces the line by `text`.
    pub(crate) fn show(&self, text: &str) {
        if self.is_terminal {
            // A terminal that went away is no reason to stop.
            let _ = write!(io::stderr(), "\r{text}\x1b[K");
            return;
        }
        let now = self.clock.now();
        if !text.is_empty() && now.since(self.written.get()) >= APART {
            self.written.set(now);
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Shows where a run is; for [`esker_bench::Runner`].
    pub(crate) fn follow(&self, progress: &Progress<'_>) {
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
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.show("");
    }
}
