//! Buffers for the data of commands, as far as the budget of the worker goes.

use esker_base::AlignedBuf;

use crate::conn::Slot;
use crate::target::connection::Connection;
use crate::target::connection::core::Core;
use crate::target::limits::budget::{Ask, STRANGERS};

impl Connection {
    /// The host is known: memory that the connection holds counts as the host's.
    pub(crate) fn enter_share(&mut self, core: &mut Core, host: &str) {
        let before = self.share;
        self.leave_share(core);
        core.budget.let_go(before, self.buffered);
        self.share = core.budget.enter(host);
        core.budget.hold(self.share, self.buffered);
    }

    fn leave_share(&mut self, core: &mut Core) {
        core.budget.leave(self.share);
    }

    /// Gives back all that it holds, when it is closed.
    pub(crate) fn leave_memory(&mut self, core: &mut Core) {
        core.budget.let_go(self.share, std::mem::take(&mut self.buffered));
        self.leave_share(core);
        self.share = STRANGERS;
    }

    fn ask(&self, core: &Core, slot: Slot, len: usize) -> Ask {
        let used = self.jobs[usize::from(slot.0)].used.and_then(|id| self.uses.get(id));
        let of_device = used.map_or((0, 0), |one| (one.bytes, core.device_bytes(one.queue)));
        Ask { len, share: self.share, connection: self.buffered, of_device }
    }

    /// Whether there is memory for `len` bytes more of a command.
    pub(crate) fn has_room(&self, core: &Core, slot: Slot, len: usize) -> bool {
        core.budget.allows(&self.ask(core, slot, len))
    }

    /// A buffer for the data of a command, if there is memory for it; otherwise the command waits for
    /// memory, and is executed from its beginning then.
    pub(crate) fn take(&mut self, core: &mut Core, slot: Slot, len: usize) -> Option<AlignedBuf> {
        if !self.has_room(core, slot, len) {
            self.waiting.push_back(slot.0);
            core.is_starved = true;
            return None;
        }
        Some(self.take_anyway(core, len))
    }

    /// A buffer for a command that has one already.
    pub(crate) fn take_anyway(&mut self, core: &mut Core, len: usize) -> AlignedBuf {
        self.hold(core, len);
        core.pool.take(len)
    }

    pub(crate) fn hold(&mut self, core: &mut Core, len: usize) {
        self.buffered += len;
        core.budget.hold(self.share, len);
        core.batch_bytes += len;
    }

    pub(crate) fn let_go(&mut self, core: &mut Core, len: usize) {
        self.buffered -= len;
        core.budget.let_go(self.share, len);
    }

    pub(crate) fn give_back(&mut self, core: &mut Core, buf: Option<AlignedBuf>) {
        if let Some(buf) = buf {
            self.let_go(core, buf.len());
            core.pool.give(buf);
        }
    }
}
