//! Calls that run without the GIL, and long ones that signals and callers' observers may end.

use std::cell::RefCell;
use std::ops::ControlFlow;

use esker_kv::{KvError, Progress};
use pyo3::prelude::*;

use crate::error::OrRaise;

/// Does `work` without the GIL; its error becomes an exception.
pub(crate) fn released<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, KvError> + Send,
) -> PyResult<T> {
    py.detach(work).or_raise(py)
}

/// A long call of this thread.
struct Watch {
    /// The caller's observer: called with a phase, how much is done, and of how much.
    observer: Option<Py<PyAny>>,
    /// The exception that ends the call.
    raised: Option<PyErr>,
}

thread_local! {
    /// The long calls of this thread, the innermost last.
    static WATCHES: RefCell<Vec<Watch>> = const { RefCell::new(Vec::new()) };
}

/// Does long `work` without the GIL, which now and then looks for signals and tells the observer: an exception of either
/// calls the work off.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    observer: Option<Py<PyAny>>,
    work: impl FnOnce() -> Result<T, KvError> + Send,
) -> PyResult<T> {
    WATCHES.with_borrow_mut(|watches| watches.push(Watch { observer, raised: None }));
    let done = py.detach(work);
    let watch = WATCHES.with_borrow_mut(Vec::pop);
    match watch.and_then(|watch| watch.raised) {
        Some(raised) => Err(raised),
        None => done.or_raise(py),
    }
}

/// The engine's observer of long work. On a thread that is in no call of [`watched`] it does nothing.
pub(crate) fn look(progress: &Progress) -> ControlFlow<()> {
    let is_watched = WATCHES.with_borrow(|watches| !watches.is_empty());
    if !is_watched {
        return ControlFlow::Continue(());
    }
    let told = Python::try_attach(|py| {
        // Not borrowed while Python's code runs, which may come here again.
        let observer = WATCHES.with_borrow(|watches| {
            let observer = watches.last().and_then(|watch| watch.observer.as_ref());
            observer.map(|observer| observer.clone_ref(py))
        });
        let result = py.check_signals().and_then(|()| match observer {
            Some(observer) => {
                observer.call1(py, (progress.phase, progress.done, progress.total)).map(drop)
            }
            None => Ok(()),
        });
        match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(raised) => {
                WATCHES.with_borrow_mut(|watches| {
                    if let Some(watch) = watches.last_mut() {
                        watch.raised.get_or_insert(raised);
                    }
                });
                ControlFlow::Break(())
            }
        }
    });
    told.unwrap_or(ControlFlow::Continue(()))
}
