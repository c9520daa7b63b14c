//! An open KVDB, which its children keep open, and what belongs to the process that opened it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use esker_base::process::Owner;
use esker_kv::{KvError, Kvdb};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::error::OrRaise;

/// A KVDB that is open until it is closed, or until it and all its children are gone.
pub(crate) struct Opened {
    db: Own<Kvdb>,
    pub(crate) path: String,
    closed: AtomicBool,
    owner: Owner,
}

impl Opened {
    pub(crate) fn new(db: Kvdb, path: String) -> Arc<Opened> {
        let owner = Owner::here();
        Arc::new(Opened { db: Own::new(db), path, closed: AtomicBool::new(false), owner })
    }

    pub(crate) fn db(&self) -> &Kvdb {
        self.db.get()
    }

    /// Whether this is the process that opened it, and no forked child.
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Refuses a child after it was closed, and in a forked process.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_here() {
            return Err(KvError::Forked).or_raise(py);
        }
        if self.is_closed() {
            return Err(KvError::Closed).or_raise(py);
        }
        Ok(())
    }

    /// Closes it. No row that was read ahead is handed out from now on.
    pub(crate) fn close(&self) -> Result<(), KvError> {
        if self.is_here() {
            self.closed.store(true, Ordering::Release);
        }
        self.db().close()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // The end of the last handle waits for devices and threads, so not with the GIL; the process may be at its end.
        let db = &mut self.db;
        if Python::try_attach(|py| py.detach(|| db.end())).is_none() {
            db.end();
        }
    }
}

/// A part of the engine that only the process that made it ends: a forked child leaves it as it is, for it may hold locks
/// of threads that the child does not have.
pub(crate) struct Own<T> {
    value: Option<T>,
    owner: Owner,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Own<T> {
        Own { value: Some(value), owner: Owner::here() }
    }

    pub(crate) fn get(&self) -> &T {
        self.value.as_ref().expect("it is there until it is dropped")
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until it is dropped")
    }

    /// The value itself, where this is its process.
    pub(crate) fn into_inner(mut self) -> Result<T, KvError> {
        if !self.owner.is_here() {
            return Err(KvError::Forked);
        }
        Ok(self.value.take().expect("it is there until it is dropped"))
    }

    fn end(&mut self) {
        let value = self.value.take();
        if self.owner.is_here() { drop(value) } else { std::mem::forget(value) }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Locks without the GIL, unless nobody else has it: its holder may wait for the GIL.
pub(crate) fn lock<'a, T>(py: Python<'_>, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(_) => mutex.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner),
    }
}

/// Locks in a part of a call that has released the GIL.
pub(crate) fn lock_released<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
