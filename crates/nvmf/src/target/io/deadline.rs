//! Commands that a device does not end in time: they are answered, and go on as late ones
//! ([`late`](crate::target::subsystem::late)).

use std::collections::VecDeque;
use std::time::Duration;

use esker_base::Nanos;

use crate::conn::Slot;
use crate::target::connection::core::Core;
use crate::target::connection::{Connection, Job};
use crate::target::io::copy;
use crate::target::metrics;
use crate::target::subsystem::late::changes_of;
use crate::wire::status::Status;

impl Connection {
    /// Answers the commands that were given to a device, or wait, for longer than `limit`.
    pub(crate) fn answer_late(&mut self, core: &mut Core, now: Nanos, limit: Duration) {
        for index in 0..self.jobs.len() {
            let job = &self.jobs[index];
            let is_over = job.pieces > 0 && job.late.is_none() && now.since(job.given) > limit;
            if is_over && let Ok(slot) = u16::try_from(index) {
                self.answer_one(core, Slot(slot));
            }
        }
        let is_over = |jobs: &[Job], slot: u16| now.since(jobs[usize::from(slot)].started) > limit;
        let (over, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|&slot| is_over(&self.jobs, slot));
        self.waiting = VecDeque::from(left);
        over.into_iter().for_each(|slot| self.finish(core, Slot(slot), Status::PATH_INTERNAL));
        let (over, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.fenced)
            .into_iter()
            .partition(|(slot, _)| is_over(&self.jobs, *slot));
        self.fenced = VecDeque::from(left);
        for (slot, data) in over {
            self.give_back(core, data);
            self.finish(core, Slot(slot), Status::PATH_INTERNAL);
        }
        while let Some(slot) = self.copies.cancel(|slot| is_over(&self.jobs, slot.0)) {
            self.finish(core, slot, Status::PATH_INTERNAL);
        }
        core.mark_dirty(self);
    }

    fn answer_one(&mut self, core: &mut Core, slot: Slot) {
        let is_copy = self.copies.halt(slot);
        self.take_back(core, slot, 0);
        metrics::count(&core.shared.metrics.late);
        let changes = changes_of(&self.job(slot).sqe);
        let status = if changes.is_some() { Status::INTERNAL } else { Status::PATH_INTERNAL };
        if self.job(slot).pieces == 0 {
            // No device ever had it, so it does not happen.
            if is_copy {
                return copy::advance(self, core);
            }
            let expected = self.job(slot).expected.take();
            self.give_back(core, expected);
            return self.finish(core, slot, Status::PATH_INTERNAL);
        }
        self.finish(core, slot, status);
    }
}
