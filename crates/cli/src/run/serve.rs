//! The process that serves a program: it pages its memory, and says what is to be said.
//!
//! It lives until the last process that it serves has ended. The program may have ended long before, as one does that
//! puts itself into the background; then the error output is given up, and reports go to the system's log.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker_base::units::to_usize;
use esker_base::{Clock, Nanos};
use esker_pager::{Options, Pager, Stats, launch};
use esker_serve::metrics::{Exporter, Paging, of_device};
use esker_stack::{Closings, Stack};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::tree::{Main, has_any};
use super::{VARIABLE, figures, swap};
use crate::args::RunArgs;
use crate::failure::Result;
use crate::metrics;
use crate::progress::Line;
use crate::stderr;

/// How often the program, its processes and figures are looked at.
const STEP: Duration = Duration::from_millis(10);
/// How often a terminal shows figures.
const SHOWN: Duration = Duration::from_secs(1);
/// Processes that outlive the program by so long go on in the background.
const FAREWELL: Duration = Duration::from_millis(50);
/// How often is looked for processes that have no paged memory, and might start one that has.
const SEARCH: Duration = Duration::from_millis(200);
/// The socket of the system's log.
const LOG: &str = "/dev/log";
/// How a daemon's warning begins there.
const LOG_PREFIX: &str = "<28>esker: ";

/// A pager at work.
pub(super) struct Service<'a> {
    args: &'a RunArgs,
    pager: Arc<Pager>,
    /// The library by which programs are served.
    library: PathBuf,
    exporter: Option<Exporter>,
    /// Failures to close the device for pages.
    closings: Closings,
    clock: Clock,
    /// None when nothing more is to be shown.
    line: Option<Line>,
    /// The last figures that were shown.
    shown: (Nanos, Stats),
    /// Nobody reads the error output any more.
    is_in_background: bool,
}

impl Service<'_> {
    /// Opens the device and starts the pager of the program that becomes `main`.
    pub(super) fn start<'a>(
        args: &'a RunArgs,
        main: &Main,
        library: PathBuf,
    ) -> Result<Service<'a>> {
        lift_limit();
        let closings = Closings::default();
        let stack = Arc::new(Stack::new().noting(closings.clone()));
        let (swap, remarks) = swap::open(&stack, &args.swap)?;
        for remark in remarks {
            say(&format!("esker: note: {remark}\n"));
        }
        let geometry = swap.geometry();
        let capacity = geometry.capacity.bytes(geometry.lba_size);
        let options = Options {
            budget_bytes: to_usize(args.memory),
            slow_bytes: to_usize(args.reserve.unwrap_or(capacity)),
            read_ahead: !args.no_read_ahead,
            compress: !args.no_compression,
        };
        let pager = Arc::new(Pager::start(swap.clone(), options)?);
        // Before it can connect.
        pager.hold_exit(main.number());
        pager.set_strict(args.strict);
        pager.set_awake(args.keep_awake);
        pager.set_output(io::stderr().as_fd().try_clone_to_owned().ok());
        let exporter = metrics::if_asked(args.telling.metrics, || {
            let paging = Paging { pager: pager.clone(), budget_bytes: args.memory };
            let mut collectors = of_device(swap, &stack);
            collectors.push(Box::new(paging));
            collectors
        })?;
        let clock = Clock::real();
        let shown = (clock.now(), pager.stats());
        let (line, is_in_background) = (Some(Line::new()), false);
        Ok(Service {
            args,
            pager,
            library,
            exporter,
            closings,
            clock,
            line,
            shown,
            is_in_background,
        })
    }

    /// Value of the variable by which programs find the pager.
    pub(super) fn address(&self) -> String {
        self.pager.address()
    }

    /// Waits until the program runs, and follows its system calls from then on.
    pub(super) fn await_program(&self, main: &Main) {
        match main.await_program() {
            Some(traps) => self.pager.follow_calls(traps, self.library.clone()),
            None if main.has_run() => say(
                "esker: note: system calls are not followed, which takes CAP_SYS_ADMIN (run as root): of programs that \
                 map memory without the C library, or reserve it first, little is paged\n",
            ),
            None => {}
        }
    }

    /// Serves the program and the processes that come from it, until the last one has ended.
    pub(super) fn follow(mut self, main: &Main) {
        let variable = format!("{VARIABLE}={}", self.address());
        let mut ended = None;
        let mut search = Search::default();
        loop {
            self.report();
            let now = self.clock.now();
            if self.pager.is_exit_held() {
                self.line = None;
                self.sum_up("");
                self.pager.let_exit();
            }
            match ended {
                None if main.has_ended() => ended = Some(now),
                None => self.show(now, main),
                Some(ended) => {
                    if search.is_over(now, || is_needed(&self.pager) || has_any(&variable)) {
                        break;
                    }
                    if now.since(ended) >= FAREWELL {
                        self.go_on_in_background();
                    }
                }
            }
            self.clock.sleep(STEP);
        }
        // It was killed, or has ended without a word: a terminal has its caller's prompt by now.
        if let Some(line) = self.line.take().filter(|_| main.has_run()) {
            std::mem::forget(line);
            self.sum_up(if io::stderr().is_terminal() { "\n" } else { "" });
        }
        let Service { pager, exporter, closings, is_in_background, .. } = self;
        drop(exporter);
        drop(pager);
        for failure in closings.take() {
            tell(&failure.to_string(), is_in_background);
        }
    }

    /// Tells the user what has to be known.
    fn report(&self) {
        for report in self.pager.reports() {
            tell(&report, self.is_in_background);
        }
    }

    /// Shows figures, if it is time.
    fn show(&mut self, now: Nanos, main: &Main) {
        let Some(line) = &self.line else { return };
        let span = now.since(self.shown.0);
        if span < self.args.every.unwrap_or(SHOWN) {
            return;
        }
        let stats = self.pager.stats();
        let text = figures::line(&self.shown.1, &stats, span);
        if self.args.every.is_some() {
            say(&format!("esker: {text}\n"));
        } else if io::stderr().is_terminal() && main.is_in_foreground() {
            line.show(&text);
        }
        self.shown = (now, stats);
    }

    /// Shows all figures.
    fn sum_up(&self, before: &str) {
        if !stderr::is_quiet() {
            say(&format!("{before}{}", figures::summary(&self.pager.stats())));
        }
    }

    /// The program has ended, and other processes have not: nobody waits for them, and so not for this one.
    fn go_on_in_background(&mut self) {
        if !self.is_in_background {
            self.is_in_background = true;
            std::mem::forget(self.line.take());
            self.pager.set_output(None);
            launch::give_up_stderr();
        }
    }
}

/// Whether a process is left that a pager serves, or whose system calls it follows.
fn is_needed(pager: &Pager) -> bool {
    pager.stats().spaces > 0 || pager.has_callers()
}

/// Looks for the last process.
#[derive(Default)]
struct Search {
    next: Nanos,
    /// None was found last time. One that begins while another ends may be missed once.
    is_sure: bool,
}

impl Search {
    fn is_over(&mut self, now: Nanos, has_any: impl FnOnce() -> bool) -> bool {
        if now < self.next {
            return false;
        }
        let was_sure = std::mem::replace(&mut self.is_sure, !has_any());
        if !self.is_sure {
            self.next = now + SEARCH;
        }
        was_sure && self.is_sure
    }
}

/// Tells the user what has to be known; of a daemon, the system's log.
fn tell(report: &str, is_in_background: bool) {
    if !is_in_background {
        return say(&format!("esker: {report}\n"));
    }
    let text = format!("{LOG_PREFIX}{report}");
    // A system without a log has nobody to tell.
    let _ = UnixDatagram::unbound().and_then(|socket| socket.send_to(text.as_bytes(), LOG));
}

/// Writes to the error output. That it is gone is no reason to end the programs.
fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Each process takes some descriptors here. The limit is this process's, not the program's.
fn lift_limit() {
    let most = getrlimit(Resource::Nofile).maximum;
    // What was there before is better than nothing.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}
