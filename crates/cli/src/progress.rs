//! How far the work is, on standard error: a bar with the time left ([`bar`]) for work that ends by itself, and one line
//! for what goes on until somebody ends it. Where standard error is a file the line becomes one now and then.

mod bar;

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use esker_base::{Clock, Nanos};

use crate::stderr;

pub(crate) use bar::{Bar, Watch};

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
        if stderr::is_quiet() {
            return;
        }
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
}

impl Drop for Line {
    fn drop(&mut self) {
        self.show("");
    }
}
