//! The ends of a KVDB that nobody asks for: its process forks, exits, or panics.
//!
//! Invariants
//! 1. In a forked child each call fails before it takes a lock: a thread that the child does not have may hold it.
//! 2. A panic stops the KVDB, and counts as a failure of the work that it has interrupted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use esker_base::process::{self, AtExit};
use esker_base::thread::said;

use crate::engine::shared::Engine;
use crate::types::error::{KvError, Result};

/// How long the exit of the process waits for a lock: the thread that exits may hold it itself.
const EXIT_PATIENCE: Duration = Duration::from_secs(5);

impl Engine {
    /// Refuses a forked child of the process that opened the KVDB.
    pub(crate) fn check_owner(&self) -> Result<()> {
        if self.owner.is_here() { Ok(()) } else { Err(KvError::Forked) }
    }

    /// Does `work`; a panic of it stops the KVDB and is the error.
    pub(crate) fn caught<T>(&self, task: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let error = KvError::Panicked { task: task.to_owned(), message: said(&*panic) };
            self.stop(&error);
            Err(error)
        })
    }

    /// Has acknowledged writes made durable when the process exits and the KVDB is open.
    pub(crate) fn flush_at_exit(self: &Arc<Self>) -> Option<AtExit> {
        let engine = Arc::downgrade(self);
        let call = move || engine.upgrade().iter().for_each(|engine| engine.exits());
        (!self.options.read_only).then(|| process::at_exit(call))
    }

    fn exits(&self) {
        let Some(writer) = self.writer.try_lock_for(EXIT_PATIENCE) else { return };
        // Under the lock: a write is acknowledged before this, or refused.
        self.stop(&KvError::Exiting);
        drop(writer);
        let leader = self.flushing.try_lock_for(EXIT_PATIENCE);
        // A failure has no caller to be told to.
        let _ = leader.map(|leader| self.flush_as(leader, self.visible.load()));
    }
}
