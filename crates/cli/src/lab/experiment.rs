//! The parts that all experiments share: the files they write, the bar on the terminal, the live page, and the signals
//! that end them early.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::{io, mem};

use esker_base::{ErrorKind, files};
use esker_lab::live::Taken;
use esker_lab::steps::Progress;
use esker_lab::{LabError, Report, Study, study};
use esker_report::Page;
use esker_serve::live::Live;
use rustix::process;

use crate::args::ExperimentArgs;
use crate::failure::{Failure, Result};
use crate::host;
use crate::live;
use crate::output::Outputs;
use crate::progress::Watch;

/// The command line's failure of a study.
pub(super) fn failed(error: LabError) -> Failure {
    Failure::new(error.kind(), error)
}

/// Has this process end with its parent: nobody else waits for it.
fn end_with(parent: u32) -> Result {
    process::set_parent_process_death_signal(Some(process::Signal::KILL))
        .map_err(io::Error::from)?;
    // It may have ended before that.
    let present = process::getppid().and_then(|pid| u32::try_from(pid.as_raw_pid()).ok());
    if present == Some(parent) {
        return Ok(());
    }
    Err(Failure::new(ErrorKind::Closed, "the command that began this experiment has ended"))
}

/// An experiment that goes on.
pub(super) struct Experiment<'a> {
    outputs: Outputs,
    page: Option<&'a PathBuf>,
    watch: Watch,
    /// The step that goes on, for people.
    state: RefCell<String>,
    /// The machine, before anything was measured.
    environment: BTreeMap<String, String>,
    live: Option<Live<Taken>>,
}

impl<'a> Experiment<'a> {
    /// Makes sure of the files that an experiment writes, and begins to show it.
    ///
    /// # Errors
    /// A file cannot be written, or the port of the live page cannot be had.
    pub(super) fn start<S: Study>(args: &'a ExperimentArgs) -> Result<Experiment<'a>> {
        args.bound_to.map_or(Ok(()), end_with)?;
        let outputs = Outputs::prepare(args.json.as_ref(), args.report.as_ref())?;
        let steps = || Taken::of(format!("Esker: lab {}", S::ABOUT.name), host::command_line());
        let live = args.live.live.map(|port| live::start(port, steps())).transpose()?;
        let (page, watch) = (args.page.as_ref(), Watch::start()?);
        let (state, environment) = (RefCell::default(), host::environment());
        Ok(Experiment { outputs, page, watch, state, environment, live })
    }

    /// One that has nothing to show but its output.
    ///
    /// # Errors
    /// Signals cannot be caught.
    pub(super) fn writing(outputs: Outputs) -> Result<Experiment<'a>> {
        let (page, watch, live) = (None, Watch::start()?, None);
        let (state, environment) = (RefCell::default(), BTreeMap::new());
        Ok(Experiment { outputs, page, watch, state, environment, live })
    }

    /// Runs the study, and shows how far it is; a signal ends it early.
    ///
    /// # Errors
    /// Those of the study.
    pub(super) fn run<S: Study>(
        &self,
        options: &S::Options,
        machine: &mut S::Machine<'_>,
    ) -> std::result::Result<Report<S>, LabError> {
        let ran = study::run::<S>(options, machine, &mut |progress| self.follow(progress));
        self.watch.bar.clear();
        ran
    }

    fn follow(&self, progress: &Progress<'_>) -> ControlFlow<()> {
        let &Progress { run, done, count, share } = progress;
        let (state, live) = match share {
            Some(share) => {
                self.watch.bar.share("", share, || format!("{done} of {count} runs: {run}"));
                let percent = share * 100.0;
                (
                    format!("after {done} of {count} runs"),
                    format!("{percent:.0} % are done, and {done} of {count} runs."),
                )
            }
            None => {
                self.watch.bar.step(done, count, run);
                let step = done + 1;
                (
                    format!("in step {step} of {count}, {run}"),
                    format!("Step {step} of {count} goes on: {run}."),
                )
            }
        };
        *self.state.borrow_mut() = state;
        if let Some(page) = &self.live {
            page.subject().step(&live, run);
        }
        self.flow()
    }

    fn flow(&self) -> ControlFlow<()> {
        let flow = self.watch.interrupt.flow();
        if flow.is_break() {
            self.watch.bar.end();
        }
        flow
    }

    /// The failure of a study, or its interruption before anything was measured.
    pub(super) fn failed(&self, error: LabError) -> Failure {
        if matches!(error, LabError::Interrupted) {
            let outcome = self.watch.outcome("nothing was measured until then");
            return outcome.err().unwrap_or_else(|| failed(error));
        }
        failed(error)
    }

    /// Says the report, and writes figures and page.
    ///
    /// # Errors
    /// A file cannot be written; the interruption, if there was one.
    pub(super) fn finish<S: Study>(mut self, mut report: Report<S>) -> Result {
        report.environment = mem::take(&mut self.environment);
        if self.watch.interrupt.has_come() {
            report.environment.insert("interrupted".to_owned(), self.state.borrow().clone());
        }
        report.command = host::command_line();
        self.write(&report.page(), &report.json())
    }

    /// Says a page, and writes figures and page.
    ///
    /// # Errors
    /// As [`finish`](Experiment::finish).
    pub(super) fn write(self, page: &Page, figures: &serde_json::Value) -> Result {
        let Experiment { outputs, page: path, watch, state, live, .. } = self;
        watch.bar.end();
        outputs.say(&page.text())?;
        if watch.interrupt.has_come() {
            let state = state.into_inner();
            outputs.say(&format!("\nInterrupted {state}: what was not measured is missing.\n"))?;
        }
        if let Some(path) = path {
            let text = serde_json::to_string(page).map_err(|error| {
                Failure::new(ErrorKind::Io, format!("the page has no JSON form: {error}"))
            })?;
            files::write(path, text)
                .map_err(|error| Failure::file(path, &error, "name a file that can be written"))?;
        }
        let html = page.html();
        outputs.finish(figures, &html)?;
        if let Some(live) = live {
            live.end(html);
        }
        watch.interrupt.outcome("the figures are of what was measured until then")
    }
}
