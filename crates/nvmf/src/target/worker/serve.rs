//! A connection at work: from the events of the protocol to commands, and from finished commands to responses.
//!
//! Life of a read: [`Connection::receive`] takes the capsule, `io` puts a read with a buffer of
//! the pool into the batch of the namespace's device, the worker submits the batch and hands the
//! completion to [`Connection::completed`], which queues data and response; [`Connection::flush`]
//! sends them, with those of other commands, in one call.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;

use esker_base::AlignedBuf;
use esker_base::units::to_usize;
use esker_device::{Completion, Op};

use crate::conn::{ControllerConnection, ControllerEvent, Slot};
use crate::socket::{self, SLICES};
use crate::target::admin::{self, fabrics};
use crate::target::connection::commands::status_of;
use crate::target::connection::core::Core;
use crate::target::connection::{ADMIN_CAPSULE_BYTES, Connection, Job, Role};
use crate::target::ids::Place;
use crate::target::io::{self, copy};
use crate::target::metrics;
use crate::target::refusals::RefusalReason;
use crate::tls::Progress;
use crate::wire::command::io::READ;
use crate::wire::fabrics::OPCODE;
use crate::wire::status::Status;

/// Received bytes that are handled before other connections have their turn.
const TURN_BYTES: usize = 512 << 10;
/// Bytes of data that are taken on before the devices and the socket have them: little enough to be
/// in the processor's cache all the way.
const BATCH_BYTES: usize = 128 << 10;

impl Connection {
    /// Reads the bytes at hand and acts on them. Returns true when there is more at hand, which
    /// waits for the devices and the socket to take the work done so far.
    pub(crate) fn receive(&mut self, core: &mut Core) -> bool {
        if self.parting.is_some() {
            self.drop_input(core);
            return false;
        }
        if self.is_ending || !self.shake_hands(core) {
            return false;
        }
        let mut turn = 0;
        let mut has_more = self.handle(core);
        // Nobody announces again the bytes that wait in the stream and not in the socket.
        while !has_more && !self.is_ending && (turn < TURN_BYTES || self.stream.has_pending()) {
            let mut spaces = self.wire.spaces();
            let room: usize = spaces.iter().map(|space| space.len()).sum();
            match self.stream.receive(&mut spaces) {
                Ok(Some(0)) | Err(_) => self.end(core),
                Ok(None) => break,
                Ok(Some(count)) => {
                    self.wire.received(count);
                    turn += count;
                    has_more = self.handle(core);
                    if self.stream.is_empty_after(count, room) {
                        break; // the socket is empty; if not, it says so again
                    }
                }
            }
        }
        if self.wire.has_output() {
            core.mark_dirty(self); // ICResp answers no command
        }
        has_more
    }

    /// Goes on with the handshake of TLS, if there is one; says whether it is over.
    fn shake_hands(&mut self, core: &mut Core) -> bool {
        match self.stream.handshake() {
            Ok(Progress::Done) => return true,
            #[cfg(feature = "tls")]
            Ok(Progress::Reads) => self.watch(core, false),
            #[cfg(feature = "tls")]
            Ok(Progress::Writes) => self.watch(core, true),
            Err(_) => {
                metrics::count(&core.shared.metrics.unauthenticated);
                let host = self.stream.peer().map(|peer| peer.host).unwrap_or_default();
                self.refused(core, &host, RefusalReason::TlsHandshake);
                self.end(core);
            }
        }
        false
    }

    /// Acts on the received bytes, until a batch is full: true then.
    fn handle(&mut self, core: &mut Core) -> bool {
        while !self.is_ending {
            if core.batch_bytes >= BATCH_BYTES {
                return true;
            }
            match self.wire.poll(&mut core.pool) {
                Ok(Some(event)) => self.event(core, event),
                Ok(None) => return false,
                Err(_) => {
                    metrics::count(&core.shared.metrics.violations);
                    self.part(core);
                }
            }
        }
        false
    }

    fn event(&mut self, core: &mut Core, event: ControllerEvent) {
        core.mark_dirty(self);
        // A host is alive that says something whole: bytes alone can trickle for ever.
        if let Some(controller) = self.role.controller() {
            controller.heard(core.now);
        }
        match event {
            ControllerEvent::Command { slot, sqe, data, fault } => {
                let index = usize::from(slot.0);
                if self.jobs.len() <= index {
                    self.jobs.resize_with(index + 1, Job::default);
                }
                self.jobs[index] = Job { sqe, started: core.now, ..Job::default() };
                if let Some(data) = &data {
                    self.hold(core, data.len());
                }
                let size = data.as_ref().map(|data| data.len());
                let checked = match fault {
                    Some(fault) => Err(fault),
                    None => ControllerConnection::check_sgl(&sqe.sgl, size),
                };
                match checked {
                    // A command that sends nothing has its SGL for the data it receives, which no capsule takes.
                    Ok(()) if !sqe.is_from_host() && data.is_some() => {
                        self.give_back(core, data);
                        self.finish(core, slot, Status::SGL_TYPE.final_());
                    }
                    Ok(()) if self.job(slot).needs_data(data.as_ref()) => self.fetch(core, slot),
                    Ok(()) => self.execute(core, slot, data),
                    Err(status) => {
                        self.give_back(core, data);
                        self.finish(core, slot, status);
                    }
                }
            }
            ControllerEvent::Data { slot, buf, is_good } => {
                self.job(slot).asked = None;
                self.pace.fetching -= 1;
                if self.job(slot).abort.is_some() {
                    self.give_back(core, Some(buf));
                    self.finish(core, slot, Status::ABORTED);
                } else if is_good {
                    self.execute(core, slot, Some(buf));
                } else {
                    self.give_back(core, Some(buf));
                    self.finish(core, slot, Status::TRANSIENT_TRANSPORT);
                }
            }
        }
    }

    /// Whether a command is one of those that are for a namespace, and its host may run them.
    fn is_for_namespace(&mut self, slot: Slot) -> bool {
        let is_fabrics = self.job(slot).sqe.opcode == OPCODE;
        matches!(self.role, Role::Io(..)) && !is_fabrics && !self.is_unproven()
    }

    /// Asks the host for the data of a command, now or when there is memory. The namespace that it is for is
    /// settled first: another device may have its number when the data comes.
    pub(crate) fn fetch(&mut self, core: &mut Core, slot: Slot) {
        let length = to_usize(self.job(slot).sqe.sgl.length.into());
        // A host's names and proofs fit into a capsule; before they are known, nothing larger has to come.
        let most = match self.role {
            Role::New => ADMIN_CAPSULE_BYTES,
            _ if self.is_unproven() => ADMIN_CAPSULE_BYTES,
            _ => core.shared.limits.transfer_bytes,
        };
        if length > to_usize(most.into()) {
            return self.finish(core, slot, Status::INVALID_FIELD.final_());
        }
        if self.is_for_namespace(slot) {
            match self.namespace(core, slot) {
                Ok(namespace) if namespace.late.fences(&self.job(slot).sqe) => {
                    return self.wait_for_late(core, slot, None);
                }
                Ok(_) => {}
                Err(status) => return self.finish(core, slot, status),
            }
        }
        if let Some(buf) = self.take(core, slot, length) {
            self.job(slot).asked = Some(core.now);
            self.pace.fetching += 1;
            self.wire.request_data(slot, buf);
        }
    }

    pub(crate) fn execute(&mut self, core: &mut Core, slot: Slot, data: Option<AlignedBuf>) {
        let sqe = self.job(slot).sqe;
        if sqe.opcode == OPCODE {
            return fabrics::execute(self, core, slot, data);
        }
        let status = match &self.role {
            Role::New => Some(Status::SEQUENCE),
            _ if self.is_unproven() => Some(Status::AUTHENTICATION_REQUIRED),
            Role::Io(..) => return io::execute(self, core, slot, data),
            Role::Admin(controller) => {
                let controller = controller.clone();
                let bytes = data.as_deref().unwrap_or(&[]);
                let reply = admin::execute(&controller, core, slot, &sqe, bytes);
                self.give_back(core, data);
                return self.reply(core, slot, reply);
            }
        };
        self.give_back(core, data);
        self.finish(core, slot, status.unwrap_or(Status::INTERNAL).final_());
    }

    /// A device has finished a piece of a command.
    pub(crate) fn completed(&mut self, core: &mut Core, place: Place, completion: Completion) {
        let slot = place.slot;
        self.in_device -= 1;
        let bytes = completion.buf.as_ref().map_or(0, |buf| buf.len());
        self.took_back_bytes(slot, bytes);
        self.job(slot).pieces -= 1;
        if self.copies.has(slot) {
            copy::completed(self, core, place, completion);
            if self.is_ending && self.job(slot).pieces == 0 {
                self.was_late(core, slot);
            }
            return;
        }
        let job = self.job(slot);
        let Completion { result, buf, .. } = completion;
        if let Err(error) = &result
            && job.status.is_success()
        {
            job.status = status_of(error);
        }
        let (status, is_whole) = (job.status, job.pieces == 0);
        let expected = job.expected.take();
        let owes_flush = std::mem::take(&mut job.owes_flush);
        let sends_data = job.sqe.opcode == READ;
        let is_late = job.late.is_some();
        if self.is_ending || is_late {
            self.give_back(core, buf);
            self.give_back(core, expected);
            if is_whole && self.was_late(core, slot) && !self.is_ending {
                self.wire.release_late(slot);
            }
            return;
        }
        if !is_whole {
            return self.give_back(core, buf);
        }
        if owes_flush && status.is_success() {
            return self.submit(core, slot, Op::Flush);
        }
        core.mark_dirty(self);
        match buf {
            Some(buf) if sends_data && status.is_success() => {
                self.wire.respond_with_data(slot, buf, 0);
                self.count(core, slot, true);
            }
            buf => {
                let mut status = status;
                if let (Some(expected), Some(buf)) = (&expected, &buf)
                    && status.is_success()
                    && expected[..] != buf[..]
                {
                    status = Status::COMPARE.final_();
                }
                self.give_back(core, expected);
                self.give_back(core, buf);
                self.finish(core, slot, status);
            }
        }
    }

    /// Sends the output, as far as the socket takes it.
    pub(crate) fn flush(&mut self, core: &mut Core) {
        if self.is_ending && self.parting.is_none() || !self.shake_hands(core) {
            return;
        }
        while self.wire.has_output() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.wire.slices(&mut slices);
            let total: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            match self.stream.send(&slices[..count]) {
                Ok(Some(sent)) => {
                    let freed = self.wire.sent(sent, &mut core.pool);
                    self.let_go(core, freed);
                    if self.stream.is_full_after(sent, total) {
                        return self.watch(core, true);
                    }
                }
                Ok(None) => return self.watch(core, true),
                Err(_) => return self.end(core),
            }
        }
        self.watch(core, false);
        if self.parting.is_some() && self.stream.tcp().shutdown(Shutdown::Write).is_err() {
            self.end(core); // the host is gone
        }
    }

    fn watch(&mut self, core: &Core, is_blocked: bool) {
        if self.is_blocked != is_blocked && (!self.is_ending || self.parting.is_some()) {
            self.is_blocked = is_blocked;
            // Bytes of a host that is being parted from are dropped, whether it takes its output or not.
            core.watch(self, !is_blocked || self.parting.is_some(), is_blocked);
        }
    }

    /// Drops the bytes of a host that is being parted from, until it has closed its end.
    fn drop_input(&mut self, core: &mut Core) {
        let (mut some, mut more) = ([0; 4096], [0; 4096]);
        for _ in 0..TURN_BYTES / (some.len() + more.len()) {
            let mut spaces = [IoSliceMut::new(&mut some), IoSliceMut::new(&mut more)];
            match socket::receive(self.stream.tcp(), &mut spaces) {
                Ok(Some(0)) | Err(_) => return self.end(core),
                Ok(None) => return,
                Ok(Some(_)) => {}
            }
        }
    }

    /// Ends the connection after its last words: nothing that comes in counts any more, but the socket is closed
    /// only when the host has had time to take those words.
    fn part(&mut self, core: &mut Core) {
        self.parting = Some(core.now + core.shared.limits.handshake);
        self.stop(core);
        core.mark_dirty(self);
    }

    /// Ends the connection: nothing more comes in, and with an admin queue its controller goes.
    pub(crate) fn end(&mut self, core: &mut Core) {
        let was_parting = self.parting.take().is_some();
        if was_parting || !self.is_ending {
            core.ending(self);
        }
        if !self.is_ending {
            self.stop(core);
        }
    }

    fn stop(&mut self, core: &mut Core) {
        self.is_ending = true;
        self.all_late(core);
        if let Role::Admin(controller) = &self.role {
            core.shared.controllers.lock().remove(&controller.id);
            for at in controller.end() {
                core.shared.close(at);
            }
            controller.forget_reservations();
        }
    }

    /// Gives back everything it held, when it is closed.
    pub(crate) fn retire(&mut self, core: &mut Core) {
        if let Role::Io(controller, qid) = &self.role {
            controller.leave(*qid, self.address(core.index));
            controller.forget_reservations();
        }
        for asked in self.jobs.iter_mut().filter_map(|job| job.abort.take()) {
            let controller = self.role.controller().expect("only I/O queues have Aborts asked of");
            core.shared.answer_abort(controller, asked, false);
        }
        for (_, used) in self.uses.take(|_| true) {
            core.shared.metrics.end(&used.flow);
        }
        self.leave_memory(core);
        core.shared.admission.leave(self.visitor);
        if let Some(nqn) = self.counted.take() {
            core.shared.leave_host(&nqn);
        }
    }

    /// Lets the commands try again that wait for late ones.
    pub(crate) fn try_fenced(&mut self, core: &mut Core) {
        if self.is_ending {
            return;
        }
        for (slot, data) in std::mem::take(&mut self.fenced) {
            core.mark_dirty(self);
            match self.job(Slot(slot)).needs_data(data.as_ref()) {
                true => self.fetch(core, Slot(slot)),
                false => self.execute(core, Slot(slot), data),
            }
        }
    }

    /// Lets commands go on that wait for memory. Those of one namespace wait in line; another namespace
    /// does not wait behind it.
    pub(crate) fn resume(&mut self, core: &mut Core) {
        self.try_fenced(core);
        if self.waiting.is_empty() || self.is_ending {
            return;
        }
        let mut line = std::mem::take(&mut self.waiting);
        let (mut still, mut stuck) = (VecDeque::new(), Vec::new());
        while let Some(slot) = line.pop_front() {
            let nsid = self.job(Slot(slot)).sqe.nsid;
            if stuck.contains(&nsid) {
                still.push_back(slot);
                continue;
            }
            core.mark_dirty(self);
            match self.job(Slot(slot)).sqe.is_from_host() {
                true => self.fetch(core, Slot(slot)),
                false => self.execute(core, Slot(slot), None),
            }
            if !self.waiting.is_empty() {
                still.append(&mut self.waiting);
                stuck.push(nsid);
            }
        }
        self.waiting = still;
        core.is_starved |= !self.waiting.is_empty();
    }
}
