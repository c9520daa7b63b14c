//! The end of a KVDB whose process exits: acknowledged writes become durable, and later ones are refused.

use std::sync::Arc;
use std::time::Duration;

use esker_base::process::{self, AtExit};

use crate::engine::shared::Engine;
use crate::types::error::KvError;

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
}
