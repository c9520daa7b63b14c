//! Commands of a device that is silent: they are answered, and go on as late ones
//! ([`late`](crate::target::subsystem::late)).

use std::collections::VecDeque;
use std::time::Duration;

use esker_base::Nanos;

use crate::conn::Slot;
use crate::target::connection::core::Core;
use crate::target::connection::{Connection, Job, Use};
use crate::target::ids::Slots;
use crate::target::io::copy;
use crate::target::metrics;
use crate::target::subsystem::late::changes_of;
use crate::wire::status::Status;

impl Connection {
    /// Answers the commands whose device has ended nothing for `limit`, or never ends this one.
    pub(crate) fn answer_late(&mut self, core: &mut Core, now: Nanos, limit: Duration) {
        for index in 0..self.jobs.len() {
            if self.is_lost(core, &self.jobs[index], now, limit)
                && let Ok(slot) = u16::try_from(index)
            {
                self.answer_one(core, Slot(slot));
            }
        }
        let (over, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|&slot| has_waited(&self.jobs, &self.uses, slot, now, limit));
        self.waiting = VecDeque::from(left);
        over.into_iter().for_each(|slot| self.finish(core, Slot(slot), Status::PATH_INTERNAL));
        // These wait for a command that is late: nothing is to be learnt from others.
        let is_over = |slot: u16| now.since(self.jobs[usize::from(slot)].started) > limit;
        let (over, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.fenced).into_iter().partition(|(slot, _)| is_over(*slot));
        self.fenced = VecDeque::from(left);
        for (slot, data) in over {
            self.give_back(core, data);
            self.finish(core, Slot(slot), Status::PATH_INTERNAL);
        }
        while let Some(slot) =
            self.copies.cancel(|slot| has_waited(&self.jobs, &self.uses, slot.0, now, limit))
        {
            self.finish(core, slot, Status::PATH_INTERNAL);
        }
        core.mark_dirty(self);
    }

    /// Whether a command that a device has, or is about to have, is not to be waited for any longer.
    fn is_lost(&self, core: &Core, job: &Job, now: Nanos, limit: Duration) -> bool {
        let (true, None, Some(given)) = (job.pieces > 0, &job.late, job.given) else {
            return false;
        };
        if now.since(given.at) <= limit {
            return false;
        }
        let used = job.used.and_then(|id| self.uses.get(id));
        let Some(device) = used.and_then(|used| core.devices.get(used.queue)) else { return true };
        let since = device.namespace.late.silent_since(given.at);
        let depth = core.shared.limits.device_depth;
        now.since(since) > limit || device.silence.has_lost(given, now, limit, depth)
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

/// Whether a command that waits for memory has waited for too long: for `limit` its device has ended nothing.
fn has_waited(jobs: &[Job], uses: &Slots<Use>, slot: u16, now: Nanos, limit: Duration) -> bool {
    let job = &jobs[usize::from(slot)];
    let used = job.used.and_then(|id| uses.get(id));
    let since = used.map_or(job.started, |used| used.namespace.late.silent_since(job.started));
    now.since(since) > limit
}
