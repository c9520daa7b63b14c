//! The end of a KVDB that is closed, or whose process exits: acknowledged writes become durable, and later ones are
//! refused.

use std::sync::Arc;
use std::time::Duration;

use esker_base::process::{self, AtExit};

use crate::engine::shared::Engine;
use crate::tree::memtable::Memtable;
use crate::tree::view::View;
use crate::types::error::{KvError, Result};

/// How long the exit of the process waits for a lock: the thread that exits may hold it itself.
const EXIT_PATIENCE: Duration = Duration::from_secs(5);

impl Engine {
    /// Has acknowledged writes made durable when the process exits and the KVDB is open.
    pub(crate) fn flush_at_exit(self: &Arc<Self>) -> Option<AtExit> {
        let engine = Arc::downgrade(self);
        let call = move || engine.upgrade().iter().for_each(|engine| engine.exits());
        (!self.options.read_only).then(|| process::at_exit(call))
    }

    fn exits(&self) {
        let Some(writer) = self.log.tail_within(EXIT_PATIENCE) else { return };
        // Under the lock: a write is acknowledged before this, or refused.
        self.stop(&KvError::Exiting);
        drop(writer);
        let leader = self.log.lead_within(EXIT_PATIENCE);
        // A failure has no caller to be told to.
        let _ = leader.map(|leader| self.flush_as(leader, self.log.visible()));
    }

    /// Cuts the log and the reserve to what the next opening needs, as nothing is left to ingest, and discards all that the
    /// manifest does not name. The log keeps the room that it was given where the file system is full: the next process
    /// takes it into the reserve.
    pub(crate) fn give_back(&self) -> Result<()> {
        if self.reserve.bears_log() {
            return self.classes.all().iter().try_for_each(|media| media.save_reserve());
        }
        match self.cut_log() {
            // It stays as long as it is.
            Err(error) if error.lacks_space() => {}
            cut => cut?,
        }
        // A KVDB with little on it gets little to ingest before it has grown.
        self.classes.all().iter().try_for_each(|media| media.reclaim().map(drop))?;
        let log_bytes = self.log.tail().segment_bytes();
        self.reserve.keep_last(&self.view.load(), log_bytes)?;
        let live = self.manifest.state().extents();
        self.classes.all().iter().try_for_each(|media| media.discard_rest(&live))
    }

    /// Has the log end where nothing more is written to it.
    fn cut_log(&self) -> Result<()> {
        let edits = self.log.tail().cuts();
        if edits.is_empty() { Ok(()) } else { self.commit(edits) }
    }

    /// Lets go of what it holds for reads, when it was closed: handles that are left answer `Closed`.
    pub(crate) fn free_memory(&self) {
        let nothing = || View::new(Arc::new(Memtable::new(0)), Vec::new());
        self.view.publish(|view| *view = nothing());
        self.budget.free(&self.values);
    }
}
