//! Remarks of the engine, on their way to `logging.getLogger("esker")`. Threads of the engine queue them, and never wait
//! for the GIL; calls of Python's threads hand them on when they are done, with no lock held.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use esker_base::process::PerProcess;
use esker_kv::{Options, RemarkLevel};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use crate::callers;

/// The most remarks that wait; where nobody calls for long, the oldest ones go.
const MOST: usize = 1000;

/// Whether some wait, of any process.
static IS_WAITING: AtomicBool = AtomicBool::new(false);

/// A forked child has a queue of its own: a thread of its parent may have held that one's lock.
static QUEUE: PerProcess<Mutex<VecDeque<(RemarkLevel, String)>>> = PerProcess::new(Mutex::default);

/// The options with a receiver that queues remarks.
pub(crate) fn queued(options: Options) -> Options {
    options.on_leveled_remark(|level, remark| {
        let mut queue = QUEUE.get().lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() == MOST {
            queue.pop_front();
        }
        queue.push_back((level, remark.to_owned()));
        IS_WAITING.store(true, Ordering::Release);
    })
}

/// `tell` of `esker/_remarks.py`, which is found when the module is imported.
pub(crate) fn teller(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static TELL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let found = TELL.get_or_try_init(py, || {
        PyResult::Ok(py.import("esker._remarks")?.getattr("tell")?.unbind())
    })?;
    Ok(found.bind(py))
}

/// Hands on the remarks that wait, and gives the outcome of a call. Its error is more than that of a handler.
#[inline]
pub(crate) fn after<T: Send>(py: Python<'_>, done: PyResult<T>) -> PyResult<T> {
    let Err(raised) = hand_on(py) else { return done };
    match done {
        Ok(value) => {
            // A KVDB that was opened closes without the GIL.
            py.detach(|| drop(value));
            Err(raised)
        }
        Err(error) => {
            raised.write_unraisable(py, None);
            Err(error)
        }
    }
}

/// Hands on the remarks that wait. Its handlers are the caller's code, which may call the engine: so no lock is held.
///
/// An exception of a handler is shown as one that nobody can catch, but for those that are to end the program.
#[inline]
pub(crate) fn hand_on(py: Python<'_>) -> PyResult<()> {
    if IS_WAITING.load(Ordering::Relaxed) { tell_all(py) } else { Ok(()) }
}

thread_local! {
    /// This thread tells remarks: a handler's own calls leave those that wait to it.
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Ends the telling of a thread.
struct Telling;

impl Drop for Telling {
    fn drop(&mut self) {
        IS_TELLING.set(false);
    }
}

#[cold]
fn tell_all(py: Python<'_>) -> PyResult<()> {
    if IS_TELLING.replace(true) {
        return Ok(());
    }
    let _ends = Telling;
    loop {
        // A thread that has the lock comes here itself, or is the engine's and brings another remark.
        let Ok(mut queue) = QUEUE.get().try_lock() else { return Ok(()) };
        let Some((level, remark)) = queue.pop_front() else {
            IS_WAITING.store(false, Ordering::Release);
            return Ok(());
        };
        drop(queue);
        let number = match level {
            RemarkLevel::Warning => 30,
            RemarkLevel::Error => 40,
        };
        let args = (number, remark).into_pyobject(py)?;
        if let Err(raised) = told(py, &args) {
            if !raised.is_instance_of::<PyException>(py) {
                return Err(raised);
            }
            raised.write_unraisable(py, None);
        }
    }
}

fn told(py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<()> {
    callers::call(teller(py)?, args).map(drop)
}
