//! How far an experiment is, for its observer.

use std::ops::ControlFlow;

use crate::LabError;

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The present run.
    pub run: &'a str,
    /// Runs that are through.
    pub done: usize,
    /// How many there are, as far as known.
    pub count: usize,
}

/// Counts runs for the observer.
pub(crate) struct Steps<'a> {
    pub(crate) follow: &'a mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    pub(crate) done: usize,
    pub(crate) count: usize,
}

impl Steps<'_> {
    /// Tells of the next run; an error is the observer's wish to end.
    pub(crate) fn step(&mut self, run: &str) -> Result<(), LabError> {
        // A search takes as many tries as it needs.
        self.count = self.count.max(self.done + 1);
        let progress = Progress { run, done: self.done, count: self.count };
        self.done += 1;
        match (self.follow)(&progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(LabError::Interrupted),
        }
    }
}
