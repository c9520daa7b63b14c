//! Work that has become possible, or is due: it calls the other files, and none calls it.

use esker_base::Nanos;
use esker_device::Completion;

use super::{Engine, WRITE};

impl Engine {
    /// Does the work that has become possible, and says whether there was anything.
    pub(crate) fn step(&mut self) -> bool {
        let mut did = false;
        for completion in std::mem::take(&mut self.again) {
            did |= self.complete(completion);
        }
        did |= self.answer_requests();
        did |= self.settle_followers();
        did |= self.evict();
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
        self.empty_windows();
        self.bury();
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
