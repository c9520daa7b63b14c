//! Iterators over keys and values. Each reads some rows at a time without the GIL, more of them as the walk goes on.

use std::sync::{Arc, Mutex};

use esker_kv::{Cursor, KvError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::OrRaise;
use crate::opened::{Opened, Own, lock};
use crate::range::Keyspan;
use crate::remarks::hand_on;
use crate::work::released;

/// Rows that a walk of unknown length reads first.
const ROWS_FIRST: usize = 16;
/// The most rows that it reads at a time, and the bytes after which it reads no more of them.
const ROWS_MAX: usize = 256;
const BYTES_MAX: usize = 256 << 10;

/// How a walk goes.
pub(crate) struct Plan {
    pub(crate) keys: Keyspan,
    pub(crate) reverse: bool,
    pub(crate) limit: Option<usize>,
    pub(crate) keys_only: bool,
}

/// A walk over a KVS.
pub(crate) struct Walk {
    opened: Arc<Opened>,
    reverse: bool,
    ahead: Mutex<Ahead>,
}

/// Rows that were read and not handed out yet, and the cursor that has the others.
struct Ahead {
    /// None when there are no others.
    cursor: Option<Own<Cursor>>,
    /// The ends of each row's key and value in `bytes`.
    ends: Vec<(usize, usize)>,
    next: usize,
    bytes: Vec<u8>,
    /// How many rows are read next.
    chunk: usize,
    /// How many the walk may still read.
    left: usize,
}

impl Ahead {
    /// Reads the next rows in the place of those that were handed out.
    fn refill(&mut self, reverse: bool) -> Result<(), KvError> {
        self.ends.clear();
        self.bytes.clear();
        self.next = 0;
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        let wanted = self.chunk.min(self.left);
        let mut result = Ok(());
        while self.ends.len() < wanted && self.bytes.len() < BYTES_MAX {
            let cursor = cursor.get_mut();
            let row = if reverse { cursor.prev() } else { cursor.next() };
            match row {
                Ok(Some((key, value))) => {
                    self.bytes.extend_from_slice(key);
                    let key_end = self.bytes.len();
                    self.bytes.extend_from_slice(value);
                    self.ends.push((key_end, self.bytes.len()));
                    if self.ends.len() == 1 {
                        // Rows are mostly of about a size.
                        self.ends.reserve(wanted);
                        let others = self.bytes.len().saturating_mul(wanted - 1);
                        self.bytes.reserve(others.min(BYTES_MAX));
                    }
                }
                Ok(None) => {
                    self.left = 0;
                    break;
                }
                // It comes again after the rows before it.
                Err(_) if !self.ends.is_empty() => break,
                Err(error) => {
                    result = Err(error);
                    self.left = 0;
                    break;
                }
            }
        }
        self.left -= self.ends.len().min(self.left);
        self.chunk = (self.chunk * 2).min(ROWS_MAX);
        if self.left == 0 {
            self.cursor = None;
        }
        result
    }
}

impl Walk {
    /// Begins a walk with a cursor that `cursor` makes, without the GIL.
    pub(crate) fn begin(
        py: Python<'_>,
        opened: &Arc<Opened>,
        plan: &Plan,
        cursor: impl FnOnce() -> Result<Cursor, KvError> + Send,
    ) -> PyResult<Walk> {
        opened.check(py)?;
        let cursor = released(py, || {
            let mut cursor = cursor()?;
            if plan.keys_only {
                cursor = cursor.keys_only();
            }
            if let Some(limit) = plan.limit {
                cursor = cursor.expecting(limit);
            }
            plan.keys.narrow(cursor, plan.reverse).map(Own::new)
        })?;
        let ahead = Ahead {
            cursor: Some(cursor),
            ends: Vec::new(),
            next: 0,
            bytes: Vec::new(),
            chunk: plan.limit.map_or(ROWS_FIRST, |limit| limit.min(ROWS_MAX)),
            left: plan.limit.unwrap_or(usize::MAX),
        };
        Ok(Walk { opened: opened.clone(), reverse: plan.reverse, ahead: Mutex::new(ahead) })
    }

    /// The next row as `made` makes it, which runs no code of Python's.
    fn step<T>(&self, py: Python<'_>, made: impl FnOnce(&[u8], &[u8]) -> T) -> PyResult<Option<T>> {
        self.opened.check(py)?;
        let mut guard = lock(py, &self.ahead);
        if guard.next == guard.ends.len() {
            // Loops in C look for no signals. A handler may come here.
            drop(guard);
            py.check_signals()?;
            hand_on(py)?;
            guard = lock(py, &self.ahead);
        }
        if guard.next == guard.ends.len() {
            let ahead = &mut *guard;
            py.detach(|| ahead.refill(self.reverse)).or_raise(py)?;
            // Closed meanwhile, perhaps.
            self.opened.check(py)?;
        }
        let ahead = &mut *guard;
        let Some(&(key_end, end)) = ahead.ends.get(ahead.next) else { return Ok(None) };
        let start = ahead.next.checked_sub(1).map_or(0, |before| ahead.ends[before].1);
        ahead.next += 1;
        Ok(Some(made(&ahead.bytes[start..key_end], &ahead.bytes[key_end..end])))
    }

    /// Lets go of the data that it may read.
    fn end(&self, py: Python<'_>) {
        if self.opened.is_here() {
            let mut guard = lock(py, &self.ahead);
            guard.left = 0;
            guard.ends = Vec::new();
            guard.next = 0;
            guard.bytes = Vec::new();
            let cursor = guard.cursor.take();
            drop(guard);
            py.detach(|| drop(cursor));
        }
    }
}

macro_rules! rows {
    ($(#[$doc:meta])* $name:ident, $item:ty, $step:expr) => {
        $(#[$doc])*
        #[pyclass(frozen, module = "esker")]
        pub(crate) struct $name(pub(crate) Walk);

        #[pymethods]
        impl $name {
            fn __iter__(this: Bound<'_, $name>) -> Bound<'_, $name> {
                this
            }

            fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<$item>> {
                let step: fn(&Walk, Python<'py>) -> PyResult<Option<$item>> = $step;
                step(&self.0, py)
            }

            /// Ends the walk, and lets go of the data that it may read.
            fn close(&self, py: Python<'_>) {
                self.0.end(py);
            }

            fn __enter__(this: Bound<'_, $name>) -> Bound<'_, $name> {
                this
            }

            #[pyo3(signature = (*_args))]
            fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyAny>) -> bool {
                self.0.end(py);
                false
            }
        }
    };
}

rows! {
    /// Keys and values in the order of their keys, as they were when the walk began.
    Items, (Bound<'py, PyBytes>, Bound<'py, PyBytes>),
    |walk, py| walk.step(py, |key, value| (PyBytes::new(py, key), PyBytes::new(py, value)))
}

rows! {
    /// Keys in their order; values are not read.
    Keys, Bound<'py, PyBytes>,
    |walk, py| walk.step(py, |key, _| PyBytes::new(py, key))
}

rows! {
    /// Values in the order of their keys.
    Values, Bound<'py, PyBytes>,
    |walk, py| walk.step(py, |_, value| PyBytes::new(py, value))
}
