//! The life of an open KVDB: the process that it belongs to, whether it was closed, and why it was stopped. Every call
//! asks it before it goes on.

use std::sync::{Arc, OnceLock};

use esker_base::Nanos;
use esker_base::process::Owner;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::types::error::{KvError, Result};
use crate::types::options::Options;

/// Life of an open KVDB.
pub(crate) struct Life {
    /// The process that opened the KVDB.
    owner: Owner,
    is_read_only: bool,
    opened: Nanos,
    stopped: OnceLock<Arc<KvError>>,
    closing: AtomicBool,
}

impl Life {
    /// One that begins now.
    pub(crate) fn new(options: &Options) -> Life {
        Life {
            owner: Owner::here(),
            is_read_only: options.read_only,
            opened: options.clock.now(),
            stopped: OnceLock::new(),
            closing: AtomicBool::new(false),
        }
    }

    /// When the KVDB was opened.
    pub(crate) fn opened(&self) -> Nanos {
        self.opened
    }

    /// Whether the caller is in the process that opened the KVDB.
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    /// Refuses a forked child of the process that opened the KVDB. A call asks this before it takes a lock: a thread
    /// that the child does not have may hold it.
    pub(crate) fn check_owner(&self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(KvError::Forked) }
    }

    /// Notes why the KVDB is stopped, unless it was before. [`Engine::stop`](crate::engine::shared::Engine::stop) wakes
    /// all who wait as well.
    pub(super) fn note_stop(&self, cause: &KvError) {
        let _ = self.stopped.set(Arc::new(cause.clone()));
    }

    pub(crate) fn stopped(&self) -> Option<&Arc<KvError>> {
        self.stopped.get()
    }

    /// Closes the KVDB. The caller wakes all who wait.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Whether threads are to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_closing() || self.stopped().is_some()
    }

    /// Refuses to write when the KVDB is stopped, closed, or was opened to be read.
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.is_read_only {
            return Err(KvError::ReadOnly);
        }
        self.check_open()?;
        self.stopped.get().map_or(Ok(()), |cause| Err(KvError::since(cause)))
    }

    /// Refuses whatever needs the devices when the KVDB is closed, belongs to the parent process, or has panicked.
    pub(crate) fn check_open(&self) -> Result<()> {
        let is_closed = self.is_closing();
        if !is_closed && self.is_here() && self.stopped.get().is_none() {
            return Ok(());
        }
        self.check_owner()?;
        match self.stopped.get().map(|cause| &**cause) {
            Some(panicked @ KvError::Panicked { .. }) => Err(panicked.clone()),
            _ if is_closed => Err(KvError::Closed),
            _ => Ok(()), // it may still be read
        }
    }

    /// Passes the result of a read through; when the KVDB has closed meanwhile, that is why it failed.
    pub(crate) fn if_open<T>(&self, result: Result<T>) -> Result<T> {
        result.or_else(|error| self.check_open().and(Err(error)))
    }
}
