//! How far long work is, told to an observer that may call the work off.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// The unit in which work is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Bytes that were read or written.
    Bytes,
    /// Keys with their values.
    Records,
    /// Nodes of a tree that hold a range of keys.
    Leaves,
    /// Runs of an experiment.
    Runs,
}

/// How far long work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The part of the work that goes on, in words.
    pub phase: &'static str,
    /// How much is done, in `unit`; of one phase it never gets less.
    pub done: u64,
    /// How much there is, as far as that is known. An estimate, which `done` may exceed.
    pub total: Option<u64>,
    /// The unit of both.
    pub unit: Unit,
}

impl Progress {
    /// Work of which nothing is done yet.
    #[must_use]
    pub fn new(phase: &'static str, total: Option<u64>, unit: Unit) -> Progress {
        Progress { phase, done: 0, total, unit }
    }
}

/// An observer of progress, called on whichever thread works; nobody by default. `Break` calls the work off.
#[derive(Clone, Default)]
pub struct OnProgress(Option<Arc<Mutex<Observer<'static>>>>);

type Observer<'a> = dyn FnMut(&Progress) -> ControlFlow<()> + Send + 'a;

impl OnProgress {
    /// Has `observer` called.
    #[must_use]
    pub fn new(observer: impl FnMut(&Progress) -> ControlFlow<()> + Send + 'static) -> OnProgress {
        OnProgress(Some(Arc::new(Mutex::new(observer))))
    }

    /// Tells the observer, and returns its wish.
    pub fn tell(&self, progress: &Progress) -> ControlFlow<()> {
        match &self.0 {
            Some(observer) => (observer.lock().unwrap_or_else(PoisonError::into_inner))(progress),
            None => ControlFlow::Continue(()),
        }
    }

    /// Counts work for the observer.
    #[must_use]
    pub fn meter(&self, phase: &'static str, total: Option<u64>, unit: Unit) -> Meter<'static> {
        let observer = self.clone();
        Meter::new(move |progress: &Progress| observer.tell(progress), phase, total, unit)
    }
}

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "OnProgress(observed)" } else { "OnProgress(nobody)" })
    }
}

/// The observer hears of so many parts of the work, or of each [`MOST_APART`] units.
const PARTS: u64 = 1024;
const MOST_APART: u64 = 1 << 20;

/// Counts work, and tells an observer now and then: often enough to draw and to cancel, too rarely to slow the work.
pub struct Meter<'a> {
    observer: Box<Observer<'a>>,
    progress: Progress,
    /// `done` when the observer is told next.
    next: u64,
    is_cancelled: bool,
}

impl<'a> Meter<'a> {
    /// Nothing is done yet.
    pub fn new(
        observer: impl FnMut(&Progress) -> ControlFlow<()> + Send + 'a,
        phase: &'static str,
        total: Option<u64>,
        unit: Unit,
    ) -> Meter<'a> {
        let progress = Progress::new(phase, total, unit);
        Meter { observer: Box::new(observer), progress, next: 0, is_cancelled: false }
    }

    /// Goes on with another part of the work, of which nothing is done yet.
    pub fn begin(&mut self, phase: &'static str, total: Option<u64>, unit: Unit) {
        self.progress = Progress::new(phase, total, unit);
        self.next = 0;
    }

    /// `more` is done. `Break`, from the first wish of the observer on, calls the work off.
    pub fn add(&mut self, more: u64) -> ControlFlow<()> {
        self.reach(self.progress.done.saturating_add(more))
    }

    /// So much is done in all, or more.
    pub fn reach(&mut self, done: u64) -> ControlFlow<()> {
        self.progress.done = self.progress.done.max(done);
        if !self.is_cancelled && self.progress.done >= self.next {
            let apart = self.progress.total.unwrap_or(0) / PARTS;
            self.next = self.progress.done.saturating_add(apart.clamp(1, MOST_APART));
            self.is_cancelled = (self.observer)(&self.progress).is_break();
        }
        if self.is_cancelled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// How much is done.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.progress.done
    }

    /// Whether the observer has called the work off.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }
}

impl fmt::Debug for Meter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meter").field(&self.progress).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observer_hears_of_parts_and_not_of_each_unit() {
        let mut told = Vec::new();
        let observer = |progress: &Progress| {
            told.push(progress.done);
            ControlFlow::Continue(())
        };
        let mut meter = Meter::new(observer, "counting", Some(10 * PARTS), Unit::Bytes);
        for _ in 0..10 * PARTS {
            assert!(meter.add(1).is_continue());
        }
        drop(meter);
        assert_eq!(told.len() as u64, PARTS);
        assert!(told.is_sorted() && told[..2] == [1, 11], "{:?}", &told[..2]);
    }

    #[test]
    fn wish_to_cancel_lasts_and_is_asked_once() {
        let mut asked = 0;
        let observer = |progress: &Progress| {
            asked += 1;
            if progress.done > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut meter = Meter::new(observer, "counting", None, Unit::Records);
        assert!(meter.add(1).is_continue() && !meter.is_cancelled());
        assert!(meter.add(1).is_break() && meter.is_cancelled());
        meter.begin("another part", None, Unit::Records);
        assert!(meter.add(1).is_break());
        drop(meter);
        assert_eq!(asked, 2);
    }

    #[test]
    fn without_an_observer_work_goes_on() {
        let mut meter = OnProgress::default().meter("counting", None, Unit::Leaves);
        assert!(meter.reach(5).is_continue() && meter.reach(3).is_continue());
        assert_eq!(meter.done(), 5);
        let stop = OnProgress::new(|_| ControlFlow::Break(()));
        assert!(stop.clone().meter("counting", None, Unit::Leaves).add(1).is_break());
    }
}
