//! One TCP connection of a target, which is one queue: from the events of the protocol to commands,
//! and from finished commands to responses.
//!
//! Life of a read: [`Connection::receive`] takes the capsule, `io.rs` puts a read with a buffer of
//! the pool into the batch of the namespace's device, the worker submits the batch and hands the
//! completion to [`Connection::completed`], which queues data and response; [`Connection::flush`]
//! sends them, with those of other commands, in one call.
//!
//! Invariants
//! 1. `in_device` is the number of commands of this connection that a device has or will get; the
//!    connection is not dropped, nor its socket closed, while there are any. So a host that sees
//!    the connection end knows that nothing it sent through it is still going to happen.
//! 2. `buffered` is the size of all buffers that hold data of this connection.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::sync::Arc;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Nanos};
use esker_device::{Command, Completion, Op};

use super::admin::Reply;
use super::admission::Visitor;
use super::controller::{AbortId, Address, Controller};
use super::copy::{self, Copies};
use super::memory::STRANGERS;
use super::metrics::{self, Flow, Work};
use super::pace::Pace;
use super::worker::{Core, Place};
use super::{abort, fabrics, io};
use crate::auth::Verifier;
use crate::conn::{ControllerConnection, ControllerEvent, ControllerSettings, Slot};
use crate::socket::{self, SLICES};
use crate::stream::Stream;
use crate::tls::Progress;
use crate::wire::capsule::Sqe;
use crate::wire::fabrics::OPCODE;
use crate::wire::status::Status;

/// Data of commands before the admin queue is connected, and on it, in a capsule (TCP 1.1, 3.2).
const ADMIN_CAPSULE_BYTES: u32 = 8192;
/// Commands until Connect says how many the queue holds: itself.
const FIRST_SLOTS: u16 = 1;
/// Received bytes that are handled before other connections have their turn.
const TURN_BYTES: usize = 512 << 10;
/// Bytes of data that are taken on before the devices and the socket have them: little enough to be
/// in the processor's cache all the way.
const BATCH_BYTES: usize = 128 << 10;

/// What a connection is for.
pub(crate) enum Role {
    /// Not known before Connect.
    New,
    /// The admin queue of a controller.
    Admin(Arc<Controller>),
    /// An I/O queue of a controller.
    Io(Arc<Controller>, u16),
}

impl Role {
    pub(crate) fn controller(&self) -> Option<&Arc<Controller>> {
        match self {
            Role::New => None,
            Role::Admin(controller) | Role::Io(controller, _) => Some(controller),
        }
    }
}

/// A command in progress.
#[derive(Default)]
pub(crate) struct Job {
    pub(crate) sqe: Sqe,
    pub(crate) started: Nanos,
    /// When the device was given the first of its commands that it has.
    pub(crate) given: Nanos,
    /// It was answered before its devices were done, or the connection ends: the number that its namespace
    /// knows it by.
    pub(crate) late: Option<u64>,
    /// Commands that the device has of it.
    pub(crate) pieces: u32,
    /// The first error of these.
    status: Status,
    /// It is done when the device is flushed behind it: FUA of what has no data of its own.
    pub(crate) owes_flush: bool,
    /// What a Compare compares with.
    pub(crate) expected: Option<AlignedBuf>,
    /// When the host was asked for its data, which has not come.
    pub(crate) asked: Option<Nanos>,
    /// It is to be aborted when its data has come, or its devices are done: by this Abort.
    pub(crate) abort: Option<AbortId>,
    /// Index in `flows`.
    pub(crate) flow: Option<usize>,
}

impl Job {
    /// Whether the host has to be asked for its data.
    pub(crate) fn needs_data(&self, data: Option<&AlignedBuf>) -> bool {
        self.sqe.is_from_host() && data.is_none() && self.sqe.sgl.length > 0
    }
}

/// A namespace as this connection uses it.
pub(crate) struct Use {
    pub(crate) nsid: u32,
    /// Of the subsystem when this was looked up. An older one is used no more, but commands in
    /// progress refer to it.
    pub(crate) generation: u64,
    pub(crate) lba_size: u32,
    /// Index of the device's queue in the worker.
    pub(crate) device: usize,
    /// Bytes of this connection's commands that the device has or will get.
    pub(crate) bytes: usize,
    pub(crate) flow: Arc<Flow>,
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) index: usize,
    pub(crate) portal: usize,
    pub(crate) visitor: Visitor,
    pub(crate) since: Nanos,
    pub(crate) wire: ControllerConnection,
    pub(crate) role: Role,
    pub(crate) verifier: Option<Verifier>,
    /// The host against whose limit it is counted.
    pub(crate) counted: Option<String>,
    pub(crate) jobs: Vec<Job>,
    /// Commands that wait for memory.
    pub(crate) waiting: VecDeque<u16>,
    /// Commands that wait for late ones, and the data of those that have it.
    pub(crate) fenced: VecDeque<(u16, Option<AlignedBuf>)>,
    pub(crate) copies: Copies,
    pub(crate) buffered: usize,
    /// Whose memory it holds, among those of the worker.
    pub(crate) share: usize,
    pub(crate) pace: Pace,
    in_device: usize,
    pub(crate) uses: Vec<Use>,
    /// No more input: it is closed when the devices are done with it.
    pub(crate) is_ending: bool,
    /// Until when the host has time to take a termination request. What it still sends is dropped meanwhile: a
    /// socket that is closed with received bytes in it is reset, and the reset overtakes what was sent.
    parting: Option<Nanos>,
    /// Whether the socket takes no more for now.
    is_blocked: bool,
    /// Whether it is among the worker's connections to be flushed.
    pub(crate) is_dirty: bool,
}

impl Connection {
    pub(crate) fn new(
        stream: Stream,
        index: usize,
        (portal, visitor): (usize, Visitor),
        core: &Core,
    ) -> Connection {
        let limits = &core.shared.limits;
        let settings = ControllerSettings {
            slots: FIRST_SLOTS,
            in_capsule_bytes: ADMIN_CAPSULE_BYTES,
            max_h2c_bytes: limits.transfer_bytes,
            digests: limits.digests,
            staging_bytes: 16 << 10,
        };
        Connection {
            stream,
            index,
            portal,
            visitor,
            since: core.now,
            wire: ControllerConnection::new(settings),
            role: Role::New,
            verifier: None,
            counted: None,
            jobs: Vec::new(),
            waiting: VecDeque::new(),
            fenced: VecDeque::new(),
            copies: Copies::default(),
            buffered: 0,
            share: STRANGERS,
            pace: Pace::default(),
            in_device: 0,
            uses: Vec::new(),
            is_ending: false,
            parting: None,
            is_blocked: false,
            is_dirty: false,
        }
    }

    /// Whose it is, for people.
    pub(crate) fn who(&self) -> String {
        let peer = self.stream.tcp().peer_addr();
        let at = peer.map_or_else(|_| "a host that is gone".to_owned(), |peer| peer.to_string());
        match &self.role {
            Role::New => format!("{at}, before Connect"),
            Role::Admin(controller) => format!("{at}, admin queue of {}", controller.host.nqn),
            Role::Io(controller, qid) => format!("{at}, queue {qid} of {}", controller.host.nqn),
        }
    }

    /// Whether it can be closed: it ends, the devices are done, and what was left to say is said.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ending && self.in_device == 0 && self.parting.is_none()
    }

    /// Whether its host has had time enough to take the last words.
    pub(crate) fn is_parted(&self, now: Nanos) -> bool {
        self.parting.is_some_and(|end| now >= end)
    }

    /// Whether the host has still to prove who it is.
    pub(crate) fn is_unproven(&self) -> bool {
        self.verifier.as_ref().is_some_and(|verifier| !verifier.is_done())
    }

    /// Reads what is there and acts on it. Returns true when there is more at hand, which waits for
    /// the devices and the socket to take what was done so far.
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
        // Of what waits in the stream and not in the socket, nobody tells again.
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
                self.end(core);
            }
        }
        false
    }

    /// Acts on what was received, until a batch is full: true then.
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
                    // What sends nothing has its SGL for what it receives, which no capsule takes.
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

    /// Asks the host for the data of a command, now or when there is memory.
    pub(crate) fn fetch(&mut self, core: &mut Core, slot: Slot) {
        let length = to_usize(self.job(slot).sqe.sgl.length.into());
        // Who it is has room in a capsule; before that is known, nothing larger has to come.
        let most = match self.role {
            Role::New => ADMIN_CAPSULE_BYTES,
            _ if self.is_unproven() => ADMIN_CAPSULE_BYTES,
            _ => core.shared.limits.transfer_bytes,
        };
        if length > to_usize(most.into()) {
            return self.finish(core, slot, Status::INVALID_FIELD.final_());
        }
        if self.is_fenced(core, slot) {
            return self.wait_for_late(core, slot, None);
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
                let reply = super::admin::execute(&controller, core, slot, &sqe, bytes);
                self.give_back(core, data);
                return self.reply(core, slot, reply);
            }
        };
        self.give_back(core, data);
        self.finish(core, slot, status.unwrap_or(Status::INTERNAL).final_());
    }

    /// Answers a command that is executed at once.
    pub(crate) fn reply(&mut self, core: &mut Core, slot: Slot, reply: Reply) {
        match reply {
            Reply::Done(result) => {
                self.wire.respond(slot, result, Status::SUCCESS);
                self.count(core, slot, true);
            }
            Reply::Failed(status) => self.finish(core, slot, status),
            Reply::Aborted(other) => {
                self.finish(core, other, Status::ABORTED);
                self.reply(core, slot, Reply::Done(0));
            }
            Reply::Later => {}
            Reply::Data(bytes, result) => {
                self.reply_with(core, slot, &bytes, result);
            }
            Reply::Log(bytes, read) => {
                if self.reply_with(core, slot, &bytes, 0)
                    && let (Some(read), Some(controller)) = (read, self.role.controller())
                {
                    controller.log_was_read(&read);
                    core.shared.look_for_events(controller);
                }
            }
        }
    }

    /// Answers a command with data, if the host has room for it; says whether it has.
    fn reply_with(&mut self, core: &mut Core, slot: Slot, bytes: &[u8], result: u64) -> bool {
        let wanted = to_usize(self.job(slot).sqe.sgl.length.into());
        if wanted < bytes.len() {
            self.finish(core, slot, Status::DATA_LENGTH.final_());
            return false;
        }
        let mut buf = core.pool.take(bytes.len());
        buf.copy_from_slice(bytes);
        self.hold(core, buf.len());
        self.wire.respond_with_data(slot, buf, result);
        self.count(core, slot, true);
        true
    }

    pub(crate) fn job(&mut self, slot: Slot) -> &mut Job {
        &mut self.jobs[usize::from(slot.0)]
    }

    /// Gives the device of a namespace a command, or a piece of one.
    pub(crate) fn submit(&mut self, core: &mut Core, slot: Slot, op: Op) {
        self.submit_piece(core, slot, 0, op);
    }

    /// Gives the device of a namespace a piece of a command that is to be told from others.
    pub(crate) fn submit_piece(&mut self, core: &mut Core, slot: Slot, piece: u8, op: Op) {
        let tag = Place { connection: self.index, slot, piece }.tag();
        let flow = self.job(slot).flow.expect("a command for a namespace");
        let bytes = op.buf_len();
        self.uses[flow].gave(bytes);
        core.push(self.uses[flow].device, bytes, Command { tag, op });
        if self.job(slot).pieces == 0 {
            self.job(slot).given = core.now;
        }
        self.job(slot).pieces += 1;
        self.in_device += 1;
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
            job.status = io::status_of(error);
        }
        let (status, is_whole) = (job.status, job.pieces == 0);
        let expected = job.expected.take();
        let owes_flush = std::mem::take(&mut job.owes_flush);
        let sends_data = job.sqe.opcode == crate::wire::command::io::READ;
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

    /// Commands that no device has yet are taken back: they were counted as the device's.
    pub(crate) fn took_back(&mut self, slot: Slot, count: usize) {
        self.in_device -= count;
        self.job(slot).pieces -= u32::try_from(count).expect("few pieces");
    }

    /// The bytes of a command that was taken back.
    pub(crate) fn took_back_bytes(&mut self, slot: Slot, bytes: usize) {
        if let Some(flow) = self.job(slot).flow {
            self.uses[flow].got(bytes);
        }
    }

    /// Answers a command without data.
    pub(crate) fn finish(&mut self, core: &mut Core, slot: Slot, status: Status) {
        self.finish_with(core, slot, 0, status);
    }

    /// Answers a command without data, and with dwords 0 and 1.
    pub(crate) fn finish_with(&mut self, core: &mut Core, slot: Slot, result: u64, status: Status) {
        if self.was_late(core, slot) {
            return self.wire.release_late(slot); // it was answered before
        }
        self.wire.respond(slot, result, status);
        self.is_answered(core, slot, status);
    }

    /// Answers a command that its device still has.
    pub(crate) fn finish_early(&mut self, core: &Core, slot: Slot, status: Status) {
        self.wire.respond_early(slot, status);
        self.is_answered(core, slot, status);
    }

    fn is_answered(&mut self, core: &Core, slot: Slot, status: Status) {
        if !status.is_success() {
            self.log_error(slot, status);
        }
        self.count(core, slot, status.is_success());
        if let Some(asked) = self.job(slot).abort.take()
            && let Some(controller) = self.role.controller()
        {
            let is_done = status.code() == Status::ABORTED.code();
            abort::answer(&core.shared, controller.id, asked, is_done);
        }
    }

    fn log_error(&mut self, slot: Slot, status: Status) {
        const KEPT: usize = super::identify::ERROR_ENTRIES;
        let sqe = self.job(slot).sqe;
        let Some(controller) = self.role.controller() else { return };
        let sqid = if let Role::Io(_, qid) = &self.role { *qid } else { 0 };
        let mut state = controller.state.lock();
        state.errors += 1;
        let entry = crate::wire::log::ErrorEntry {
            error_count: state.errors,
            sqid,
            cid: sqe.cid,
            status: status.0 << 1,
            parameter: 0xffff,
            lba: if sqid > 0 { sqe.slba() } else { 0 },
            nsid: sqe.nsid,
        };
        state.error_log.push_front(entry);
        state.error_log.truncate(KEPT);
    }

    fn count(&mut self, core: &Core, slot: Slot, is_good: bool) {
        let job = &self.jobs[usize::from(slot.0)];
        let Some(flow) = job.flow.and_then(|index| self.uses.get(index)) else { return };
        let (work, bytes) = io::work_of(&job.sqe, flow.lba_size);
        let is_data = matches!(work, Work::Read | Work::Write) && is_good;
        let latency = core.now.since(job.started);
        flow.flow.finish(work, if is_data { bytes } else { 0 }, is_good, latency);
    }

    /// Sends what is to be sent, as far as the socket takes it.
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
            // What a host sends that is being parted from is dropped, whether it takes what it is sent or not.
            core.watch(self, !is_blocked || self.parting.is_some(), is_blocked);
        }
    }

    /// Drops what a host sends that is being parted from, until it has closed its end.
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
    /// only when the host has had time to take what it is told.
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
                core.shared.close(at, controller.id);
            }
            controller.forget_reservations();
        }
    }

    /// Gives back what it held, when it is closed.
    pub(crate) fn retire(&mut self, core: &mut Core) {
        if let Role::Io(controller, qid) = &self.role {
            controller.leave(*qid, Address { worker: core.index, connection: self.index });
            controller.forget_reservations();
        }
        for asked in self.jobs.iter_mut().filter_map(|job| job.abort.take()) {
            let controller = self.role.controller().expect("only I/O queues have Aborts asked of");
            abort::answer(&core.shared, controller.id, asked, false);
        }
        for one in self.uses.drain(..) {
            core.shared.metrics.end(&one.flow);
        }
        self.leave_memory(core);
        core.shared.admission.leave(self.visitor);
        if let Some(nqn) = self.counted.take() {
            core.shared.leave_host(&nqn);
        }
    }
}
