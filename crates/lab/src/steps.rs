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
    /// How much of all is done, from 0 to 1, where runs go on side by side.
    pub share: Option<f64>,
}

/// Counts runs for the observer.
pub(crate) struct Steps<'a> {
    follow: &'a mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    done: usize,
    count: usize,
    run: String,
    is_interrupted: bool,
}

impl<'a> Steps<'a> {
    /// None of `count` is done.
    pub(crate) fn new(
        follow: &'a mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
        count: usize,
    ) -> Steps<'a> {
        Steps { follow, done: 0, count, run: String::new(), is_interrupted: false }
    }

    /// Tells of the next run; an error is the observer's wish to end, which lasts.
    pub(crate) fn step(&mut self, run: &str) -> Result<(), LabError> {
        // A search takes as many tries as it needs.
        self.count = self.count.max(self.done + 1);
        run.clone_into(&mut self.run);
        self.go_on()?;
        self.done += 1;
        Ok(())
    }

    fn go_on(&mut self) -> Result<(), LabError> {
        let progress = Progress { run: &self.run, done: self.done, count: self.count, share: None };
        self.is_interrupted = self.is_interrupted || (self.follow)(&progress).is_break();
        if self.is_interrupted { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Whether the observer has ended it.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// The result of a run. The failure of one that the observer ends is an interruption: the signal for it may have
    /// ended programs of the run as well.
    pub(crate) fn ended<T>(&mut self, result: Result<T, LabError>) -> Result<T, LabError> {
        result.map_err(|error| self.go_on().err().unwrap_or(error))
    }

    /// The result of a part until it was interrupted; none where that is the failure.
    pub(crate) fn part<T: Default>(&self, result: Result<T, LabError>) -> Result<T, LabError> {
        match result {
            Err(LabError::Interrupted) if self.is_interrupted => Ok(T::default()),
            result => result,
        }
    }
}
