//! The parts that all experiments share: the files they write, the line on the terminal, and the live page.

use std::path::PathBuf;

use esker_base::{ErrorKind, files};
use esker_lab::LabError;
use esker_report::Page;

use crate::args::ExperimentArgs;
use crate::failure::{Failure, Result};
use crate::host;
use crate::live::{Live, Steps};
use crate::output::Outputs;
use crate::progress::Line;

/// The command line's failure of a study.
pub(super) fn failed(error: LabError) -> Failure {
    Failure::new(error.kind(), error)
}

/// An experiment that goes on.
pub(super) struct Experiment<'a> {
    outputs: Outputs,
    page: Option<&'a PathBuf>,
    line: Line,
    live: Option<Live<Steps>>,
}

impl<'a> Experiment<'a> {
    /// Makes sure of the files that an experiment writes, and begins to show it.
    ///
    /// # Errors
    /// A file cannot be written, or the port of the live page cannot be had.
    pub(super) fn start(name: &str, args: &'a ExperimentArgs) -> Result<Experiment<'a>> {
        let outputs = Outputs::prepare(args.json.as_ref(), args.html.as_ref())?;
        let steps = || Steps::of(format!("Esker: lab {name}"), host::command_line());
        let live = args.live.live.map(|port| Live::start(port, steps())).transpose()?;
        Ok(Experiment { outputs, page: args.page.as_ref(), line: Line::new(), live })
    }

    /// One that has nothing to show but its output.
    pub(super) fn writing(outputs: Outputs) -> Experiment<'a> {
        Experiment { outputs, page: None, line: Line::new(), live: None }
    }

    /// A step goes on, after so many of all.
    pub(super) fn step(&self, done: usize, count: usize, step: &str) {
        self.line.show(&format!("  {} of {count}  {step}", done + 1));
        if let Some(live) = &self.live {
            live.step(&format!("Step {} of {count} goes on: {step}.", done + 1), step);
        }
    }

    /// The same of steps that go on side by side: a share of all is done.
    pub(super) fn share(&self, share: f64, (done, count): (usize, usize), step: &str) {
        let percent = share * 100.0;
        self.line.show(&format!("  {percent:>3.0} %  {done} of {count} runs  {step}"));
        if let Some(live) = &self.live {
            live.step(&format!("{percent:.0} % are done, and {done} of {count} runs."), step);
        }
    }

    /// Clears the line: something else is said.
    pub(super) fn clear(&self) {
        self.line.show("");
    }

    /// Says the table, and writes figures and page.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn finish(self, table: &str, figures: &str, page: Option<&Page>) -> Result {
        let Experiment { outputs, page: path, line, live } = self;
        drop(line);
        outputs.say(&format!("{table}\n"))?;
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
        Ok(())
    }
}
