//! The backlog: data in the roots that is to be spilled. How much of it makes a spill due, and how much memory and staging
//! bear before writers are slowed down.

use crate::engine::shared::Engine;
use crate::sync::atomic::Ordering;

/// So much over the goal for space, in percent of the live bytes, staging bears nothing.
const OVER_GOAL: u64 = 50;

impl Engine {
    /// Bytes in the roots at which the fullest one spills. Each write asks.
    pub(crate) fn spill_bytes(&self) -> u64 {
        self.tuning.spill_bytes_on(self.classes.log_capacity_bytes())
    }

    /// The soft and the hard limit of the backlog, in bytes: writers are slowed from the first one on, and the second one
    /// is too much. They are some more than roots spill at; and where there is staging, half and three quarters of its
    /// room, or less while the media hold more garbage than the goal for space allows.
    pub(crate) fn backlog_limits(&self) -> (u64, u64) {
        let spill_bytes = self.spill_bytes();
        let left =
            OVER_GOAL.saturating_sub(self.write_controller.over_goal.load(Ordering::Relaxed));
        let room = self.classes.staging_room() / OVER_GOAL * left;
        ((2 * spill_bytes).max(room / 2), (3 * spill_bytes).max(room / 4 * 3))
    }

    /// Whether staging bears more than the roots hold, so that spills are in no hurry.
    pub(crate) fn bears_backlog(&self) -> bool {
        self.classes.staging_room() > 0 && self.view.load().root_bytes() < self.backlog_limits().0
    }

    /// Whether writers wait for the log, and staging can hold the data that does not spill meanwhile.
    pub(crate) fn absorbs_burst(&self) -> bool {
        self.log.is_much(self.log.unflushed_bytes()) && self.bears_backlog()
    }
}
