//! Calls that run without the GIL, and long ones that signals and callers' observers may end.
//!
//! Handlers of signals and observers are the caller's code, which may call the same KVDB: so they run on the caller's
//! thread, and long work on another one. Then the caller's thread has no lock of the engine.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use esker_kv::{KvError, Progress};
use pyo3::prelude::*;

use crate::callers;
use crate::error::OrRaise;
use crate::remarks::after;

/// Signals are looked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Long work waits as long for an observer to return: no longer, for that may wait for the work.
const OBSERVER_MAX: Duration = Duration::from_millis(200);

/// Does `work` without the GIL; its error becomes an exception. Remarks are handed on then, so the caller holds no lock.
pub(crate) fn released<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, KvError> + Send,
) -> PyResult<T> {
    let done = py.detach(work).or_raise(py);
    after(py, done)
}

/// A long call: the thread that works, and the caller's, which waits.
#[derive(Default)]
struct LongCall {
    state: Mutex<State>,
    changed: Condvar,
    has_observer: bool,
    called_off: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Not told to the observer yet.
    progress: Option<Progress>,
    has_ended: bool,
}

thread_local! {
    /// The call for which this thread works.
    static CALL: RefCell<Option<Arc<LongCall>>> = const { RefCell::new(None) };
}

impl LongCall {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for progress or the end, and for a while at most.
    fn wait(&self) -> (Option<Progress>, bool) {
        let is_silent = |state: &mut State| state.progress.is_none() && !state.has_ended;
        let waited = self.changed.wait_timeout_while(self.state(), LOOK_EVERY, is_silent);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (state.progress, state.has_ended)
    }

    /// The observer knows of the progress.
    fn was_told(&self) {
        self.state().progress = None;
        self.changed.notify_all();
    }

    /// Hands progress to the caller's thread.
    fn tell(&self, progress: Progress) -> ControlFlow<()> {
        if self.has_observer {
            let mut state = self.state();
            state.progress = Some(progress);
            self.changed.notify_all();
            let is_new = |state: &mut State| state.progress.is_some();
            drop(self.changed.wait_timeout_while(state, OBSERVER_MAX, is_new));
        }
        if self.called_off.load(Ordering::Acquire) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Ends the call, even where the work panics.
struct Ends<'a>(&'a LongCall);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.state().has_ended = true;
        self.0.changed.notify_all();
    }
}

/// Does long `work` on another thread, and meanwhile looks for signals and tells the observer: an exception of either
/// calls the work off.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    observer: Option<Py<PyAny>>,
    work: impl FnOnce() -> Result<T, KvError> + Send,
) -> PyResult<T> {
    let call = Arc::new(LongCall { has_observer: observer.is_some(), ..LongCall::default() });
    let observer = observer.as_ref();
    let (done, raised) = py.detach(|| {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let _ends = Ends(&call);
                CALL.set(Some(call.clone()));
                work()
            });
            let raised = watch(&call, observer);
            (worker.join().unwrap_or_else(|panic| resume_unwind(panic)), raised)
        })
    });
    match raised {
        Some(raised) => Err(raised),
        None => after(py, done.or_raise(py)),
    }
}

/// Looks for signals and tells the observer until the work has ended; returns the first exception.
fn watch(call: &LongCall, observer: Option<&Py<PyAny>>) -> Option<PyErr> {
    let mut raised = None;
    loop {
        let (progress, has_ended) = call.wait();
        if raised.is_none() && !has_ended {
            // Not at the end of the interpreter, when nobody gets the GIL any more.
            let told = Python::try_attach(|py| {
                py.check_signals()?;
                if let (Some(observer), Some(progress)) = (observer, progress) {
                    let Progress { phase, done, total, .. } = progress;
                    let told = (phase, done, total).into_pyobject(py)?;
                    callers::call(observer.bind(py), &told)?;
                }
                Ok(())
            });
            if let Some(Err(error)) = told {
                call.called_off.store(true, Ordering::Release);
                raised = Some(error);
            }
        }
        call.was_told();
        if has_ended {
            return raised;
        }
    }
}

/// The engine's observer of long work. On a thread that works for no call of [`watched`] it does nothing.
pub(crate) fn look(progress: &Progress) -> ControlFlow<()> {
    let call = CALL.with_borrow(Clone::clone);
    call.map_or(ControlFlow::Continue(()), |call| call.tell(*progress))
}
