//! The parts that all experiments share: the files they write, the bar on the terminal, the live page, and the signals
//! that end them early.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use esker_base::{ErrorKind, files};
use esker_lab::LabError;
use esker_report::Page;
use rustix::process;

use crate::args::ExperimentArgs;
use crate::failure::{Failure, Result};
use crate::host;
use crate::live::{Live, Steps};
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
    live: Option<Live<Steps>>,
}

impl<'a> Experiment<'a> {
    /// Makes sure of the files that an experiment writes, and begins to show it.
    ///
    /// # Errors
    /// A file cannot be written, or the port of the live page cannot be had.
    pub(super) fn start(name: &str, args: &'a ExperimentArgs) -> Result<Experiment<'a>> {
        args.bound_to.map_or(Ok(()), end_with)?;
        let outputs = Outputs::prepare(args.json.as_ref(), args.report.as_ref())?;
        let steps = || Steps::of(format!("Esker: lab {name}"), host::command_line());
        let live = args.live.live.map(|port| Live::start(port, steps())).transpose()?;
        let (page, watch) = (args.page.as_ref(), Watch::start()?);
        Ok(Experiment { outputs, page, watch, state: RefCell::default(), live })
    }

    /// One that has nothing to show but its output.
    ///
    /// # Errors
    /// Signals cannot be caught.
    pub(super) fn writing(outputs: Outputs) -> Result<Experiment<'a>> {
        let (page, watch, live) = (None, Watch::start()?, None);
        Ok(Experiment { outputs, page, watch, state: RefCell::default(), live })
    }

    /// A step goes on, after so many of all. `Break`: the user wants no more of it.
    pub(super) fn step(&self, done: usize, count: usize, step: &str) -> ControlFlow<()> {
        self.watch.bar.step(done, count, step);
        *self.state.borrow_mut() = format!("in step {} of {count}, {step}", done + 1);
        if let Some(live) = &self.live {
            live.step(&format!("Step {} of {count} goes on: {step}.", done + 1), step);
        }
        self.flow()
    }

    /// The same of steps that go on side by side: a share of all is done.
    pub(super) fn share(
        &self,
        share: f64,
        (done, count): (usize, usize),
        step: &str,
    ) -> ControlFlow<()> {
        let percent = share * 100.0;
        self.watch.bar.share("", share, || format!("{done} of {count} runs: {step}"));
        *self.state.borrow_mut() = format!("after {done} of {count} runs");
        if let Some(live) = &self.live {
            live.step(&format!("{percent:.0} % are done, and {done} of {count} runs."), step);
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

    /// Clears the bar: something else is said.
    pub(super) fn clear(&self) {
        self.watch.bar.clear();
    }

    /// The failure of a study, or its interruption before anything was measured.
    pub(super) fn failed(&self, error: LabError) -> Failure {
        if matches!(error, LabError::Interrupted) {
            let outcome = self.watch.outcome("nothing was measured until then");
            return outcome.err().unwrap_or_else(|| failed(error));
        }
        failed(error)
    }

    /// Where and how the study was run; marked if it was interrupted.
    pub(super) fn environment(&self) -> BTreeMap<String, String> {
        let mut environment = host::environment();
        if self.watch.interrupt.has_come() {
            environment.insert("interrupted".to_owned(), self.state.borrow().clone());
        }
        environment
    }

    /// Says the table, and writes figures and page.
    ///
    /// # Errors
    /// A file cannot be written; the interruption, if there was one.
    pub(super) fn finish(self, table: &str, figures: &str, page: Option<&Page>) -> Result {
        let Experiment { outputs, page: path, watch, state, live } = self;
        watch.bar.end();
        outputs.say(&format!("{table}\n"))?;
        if watch.interrupt.has_come() {
            let state = state.into_inner();
            outputs.say(&format!("Interrupted {state}: what was not measured is missing.\n"))?;
        }
        let no_form = |error: serde_json::Error| {
            Failure::new(ErrorKind::Io, format!("the figures have no JSON form: {error}"))
        };
        let figures: serde_json::Value = serde_json::from_str(figures).map_err(no_form)?;
        if let (Some(path), Some(page)) = (path, page) {
            let text = serde_json::to_string(page).map_err(no_form)?;
            files::write(path, text)
                .map_err(|error| Failure::file(path, &error, "name a file that can be written"))?;
        }
        let html = page.map(Page::html).unwrap_or_default();
        outputs.finish(&figures, &html)?;
        if let Some(live) = live.filter(|_| page.is_some()) {
            live.end(html);
        }
        watch.interrupt.outcome("the figures are of what was measured until then")
    }
}
