//! Work that has become possible, or is due: it calls the other files, and none calls it.

use std::time::Duration;

use esker_base::Nanos;
use esker_base::units::{human_bytes, to_u64};
use esker_device::Completion;

use super::{Engine, WRITE};
use crate::types::PAGE;

/// Less memory outside of regions is code, stacks and small mappings, however small the budget.
const WORTH_SAYING: u64 = 32 << 20;
/// How often memory outside of regions is looked at.
const LOOK_OUTSIDE: Duration = Duration::from_millis(200);

impl Engine {
    /// Does the work that has become possible, and says whether there was anything.
    pub(crate) fn step(&mut self) -> bool {
        let mut did = false;
        for completion in std::mem::take(&mut self.again) {
            did |= self.complete(completion);
        }
        did |= self.answer_requests();
        did |= self.answer_calls();
        did |= self.settle_strays();
        did |= self.settle_followers();
        did |= self.evict();
        did |= self.retire_ahead();
        did |= self.start_deferred();
        if !self.waiting.is_empty() && self.has_room(1) {
            let before = self.waiting.len();
            for (id, page, write) in std::mem::take(&mut self.waiting) {
                self.take_fault(id, page, write, false);
            }
            did |= self.waiting.len() < before;
        }
        did
    }

    /// Does checks that are due now and then: failed writes, ended processes.
    pub(crate) fn tick(&mut self) {
        let now = self.clock.now();
        let (due, later) = self.failed.iter().partition(|(_, at)| *at <= now);
        self.failed = later;
        let due: Vec<(usize, Nanos)> = due;
        for (chunk, _) in due {
            self.write_chunk(chunk);
        }
        for space in self.spaces.values_mut() {
            space.heat -= space.heat / 64;
        }
        let refused = self.awake.as_mut().and_then(|awake| awake.tick(self.stats.faults).err());
        if let Some(error) = refused {
            self.awake = None;
            self.reports.push(format!("processors may sleep between faults: {error}"));
        }
        self.empty_windows();
        self.bury();
        if now.since(self.looked_outside) >= LOOK_OUTSIDE {
            self.looked_outside = now;
            self.look_outside();
        }
    }

    /// Counts memory of programs that is not paged, and says so when it is more than all of the budget.
    fn look_outside(&mut self) {
        let mut outside = 0;
        for space in self.spaces.values_mut().filter(|space| !space.is_snapshot) {
            let Some(link) = &space.link else { continue };
            let inside = to_u64(space.resident * PAGE);
            let its = link.anonymous_bytes().unwrap_or(0).saturating_sub(inside);
            outside += its;
            let most = to_u64(self.options.budget_bytes).max(WORTH_SAYING);
            if its > most && !space.is_said_outside {
                space.is_said_outside = true;
                let what = match self.strict {
                    true => "it is ended, as --strict asks",
                    false => "it takes it in a way that is not followed",
                };
                self.reports.push(format!(
                    "process {}: {} of its memory are not paged, more than --memory: {what}",
                    link.pid(),
                    human_bytes(its)
                ));
                if self.strict {
                    link.kill();
                }
            }
        }
        self.stats.outside_bytes = outside;
        self.stats.most_outside_bytes = self.stats.most_outside_bytes.max(outside);
    }

    /// Takes a completion of the device.
    pub(crate) fn complete(&mut self, completion: Completion) -> bool {
        if completion.tag.0 >= WRITE {
            self.written(completion);
            return true;
        }
        self.landed(completion)
    }
}
