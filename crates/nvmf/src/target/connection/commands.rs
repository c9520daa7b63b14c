//! The commands of a connection: given to devices, taken back, answered, and late.

use std::sync::Arc;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, ErrorKind, LbaCount};
use esker_device::{Command, DeviceError, Op, OpKind};

use crate::conn::Slot;
use crate::target::connection::core::{Core, DeviceQueue};
use crate::target::connection::reply::Reply;
use crate::target::connection::{Connection, Role, Use};
use crate::target::controller::ERROR_ENTRIES;
use crate::target::ids::{Id, Place};
use crate::target::metrics::Work;
use crate::target::subsystem::Namespace;
use crate::target::subsystem::late::LateCommand;
use crate::wire::capsule::Sqe;
use crate::wire::command::{LbaRange, io};
use crate::wire::status::Status;

impl Connection {
    /// Gives the device of a namespace a command, or a piece of one.
    pub(crate) fn submit(&mut self, core: &mut Core, slot: Slot, op: Op) {
        self.submit_piece(core, slot, 0, op);
    }

    /// Gives the device of a namespace a piece of a command that is to be told from others.
    pub(crate) fn submit_piece(&mut self, core: &mut Core, slot: Slot, piece: u8, op: Op) {
        let tag = Place { connection: self.index, slot, piece }.tag();
        let bytes = op.buf_len();
        let used = self.used(slot).expect("a command is checked before it is given to a device");
        used.bytes += bytes;
        let given = core.push(used.queue, bytes, Command { tag, op });
        if self.job(slot).pieces == 0 {
            self.job(slot).given = Some(given);
        }
        self.job(slot).pieces += 1;
        self.in_device += 1;
    }

    /// Takes back the pieces of a command that no device has yet, if they are at least so many. Says how many it took.
    pub(crate) fn take_back(&mut self, core: &mut Core, slot: Slot, at_least: usize) -> usize {
        let index = self.index;
        let Some(queue) = self.used(slot).map(|used| used.queue) else { return 0 };
        let is_its = |place: Place| place.connection == index && place.slot == slot;
        let taken = core.take_back(queue, is_its, at_least);
        self.took_back(core, taken)
    }

    /// Commands will not come to their devices. Says how many.
    fn took_back(&mut self, core: &mut Core, taken: Vec<(Place, Op)>) -> usize {
        let count = taken.len();
        for (place, op) in taken {
            let slot = place.slot;
            self.in_device -= 1;
            self.job(slot).pieces -= 1;
            self.took_back_bytes(slot, op.buf_len());
            if self.copies.has(slot) {
                self.copies.took_back(place);
            }
            self.give_back(core, op.into_buf());
        }
        count
    }

    /// The device has the bytes of a command no more.
    pub(crate) fn took_back_bytes(&mut self, slot: Slot, bytes: usize) {
        if let Some(used) = self.used(slot) {
            used.bytes -= bytes;
        }
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

    /// Answers a command without data.
    pub(crate) fn finish(&mut self, core: &mut Core, slot: Slot, status: Status) {
        self.finish_with(core, slot, 0, status);
    }

    /// Answers a command without data, and with dwords 0 and 1.
    pub(crate) fn finish_with(&mut self, core: &mut Core, slot: Slot, result: u64, status: Status) {
        if self.was_late(core, slot) {
            return self.wire.release_late(slot); // it was answered before
        }
        if self.job(slot).pieces == 0 {
            self.wire.respond(slot, result, status);
        } else {
            self.wire.respond_early(slot, status);
            self.is_late(slot);
        }
        self.is_answered(core, slot, status);
    }

    /// A device has the command still, and its slot stays in use until it has ended it.
    fn is_late(&mut self, slot: Slot) {
        let sqe = self.job(slot).sqe;
        let late = self.used(slot).map(|used| LateCommand::new(&used.namespace.late, &sqe));
        self.job(slot).late = late;
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
            core.shared.answer_abort(controller, asked, is_done);
        }
    }

    fn log_error(&mut self, slot: Slot, status: Status) {
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
        state.error_log.truncate(ERROR_ENTRIES);
    }

    pub(crate) fn count(&mut self, core: &Core, slot: Slot, is_good: bool) {
        let job = &self.jobs[usize::from(slot.0)];
        let Some(used) = job.used.and_then(|id| self.uses.get(id)) else { return };
        let (work, bytes) = work_of(&job.sqe, used.namespace.lba_size());
        let is_data = matches!(work, Work::Read | Work::Write) && is_good;
        let latency = core.now.since(job.started);
        used.flow.finish(work, if is_data { bytes } else { 0 }, is_good, latency);
    }

    /// Answers a command that was not executed; its data is given back.
    pub(crate) fn refuse(
        &mut self,
        core: &mut Core,
        slot: Slot,
        data: Option<AlignedBuf>,
        status: Status,
    ) {
        self.give_back(core, data);
        self.finish(core, slot, status);
    }

    /// The namespace of a command: the one that has its number when it is asked for first.
    ///
    /// # Errors
    /// There is none, it is gone, or its device cannot be used.
    pub(crate) fn namespace(
        &mut self,
        core: &mut Core,
        slot: Slot,
    ) -> Result<Arc<Namespace>, Status> {
        let gone = Status::INVALID_NAMESPACE.final_();
        if self.job(slot).used.is_some() {
            let used = self.used(slot).filter(|used| !used.namespace.is_removed());
            return used.map(|used| used.namespace.clone()).ok_or(gone);
        }
        let nsid = self.job(slot).sqe.nsid;
        let controller = self.role.controller();
        let Some((controller, subsystem)) =
            controller.and_then(|one| Some((one, one.subsystem.as_ref()?)))
        else {
            return Err(Status::INVALID_OPCODE.final_());
        };
        let generation = subsystem.generation();
        let is_current = |used: &Use| used.namespace.nsid == nsid && used.generation == generation;
        let known = self.uses.iter().find(|(_, used)| is_current(used)).map(|(id, _)| id);
        let id = match known {
            Some(id) => id,
            None => {
                let namespace = subsystem.namespace(nsid).ok_or(gone)?;
                let is_it = |(_, used): &(_, &mut Use)| Arc::ptr_eq(&used.namespace, &namespace);
                if let Some((id, used)) = self.uses.iter_mut().find(is_it) {
                    used.generation = generation;
                    id
                } else {
                    let opened = core.device(&namespace);
                    let queue = opened.map_err(|error| Status::from(error.kind()))?;
                    let (host, shared) = (&controller.host.nqn, &core.shared);
                    let is_listed = shared.is_listed(host);
                    let flow = shared.metrics.flow(host, &subsystem.nqn, nsid, is_listed);
                    self.uses.insert(Use { namespace, generation, queue, bytes: 0, flow })
                }
            }
        };
        self.job(slot).used = Some(id);
        let used = self.uses.get(id).expect("it was found");
        used.flow.start();
        Ok(used.namespace.clone())
    }

    /// Opens the worker's queue pairs on the namespaces of an I/O queue's subsystem, before commands come for them:
    /// descriptors and memory may be gone later.
    pub(crate) fn open_devices(&mut self, core: &mut Core) {
        let Role::Io(controller, _) = &self.role else { return };
        let Some(subsystem) = controller.subsystem.clone() else { return };
        let generation = subsystem.generation();
        if self.is_unproven() || self.opened == Some(generation) {
            return;
        }
        self.opened = Some(generation);
        for namespace in subsystem.namespaces() {
            let _ = core.device(&namespace); // the first command tries again, and is told why
        }
    }

    /// The worker closes a queue pair: no command that it has is of this connection.
    pub(crate) fn closed(&mut self, core: &Core, queue: Id<DeviceQueue>) {
        for (_, used) in self.uses.take(|used| used.queue == queue) {
            core.shared.metrics.end(&used.flow);
        }
    }

    /// A command waits for late ones; it is executed from its beginning then.
    pub(crate) fn wait_for_late(&mut self, core: &mut Core, slot: Slot, data: Option<AlignedBuf>) {
        self.fenced.push_back((slot.0, data));
        core.is_starved = true;
    }

    /// The connection ends: its commands that the devices have are late, and those that limits hold are not executed.
    pub(crate) fn all_late(&mut self, core: &mut Core) {
        let held = core.take_held(self.index);
        self.took_back(core, held);
        for (index, slot) in (0..self.jobs.len()).zip(0..) {
            let job = &self.jobs[index];
            if job.pieces > 0 && job.late.is_none() {
                self.is_late(Slot(slot));
            }
        }
    }

    /// The devices are done with a command; says whether it was late, and its slot is free now.
    pub(crate) fn was_late(&mut self, core: &mut Core, slot: Slot) -> bool {
        let is_late = self.job(slot).late.take().is_some();
        core.is_starved |= is_late; // commands that wait for it go on
        is_late
    }
}

/// Returns the status that tells a host the same as a device's error tells its caller.
pub(crate) fn status_of(error: &DeviceError) -> Status {
    match (error.kind(), error.op()) {
        (ErrorKind::Io | ErrorKind::Corrupt, OpKind::Read) => Status::READ_ERROR.final_(),
        (ErrorKind::Io | ErrorKind::Corrupt, OpKind::Write) => Status::WRITE_FAULT.final_(),
        (ErrorKind::Invalid, _) => Status::LBA_RANGE.final_(),
        (kind, _) => Status::from(kind),
    }
}

/// Returns the kind of work of a command, and the bytes it moves.
fn work_of(sqe: &Sqe, lba_size: u32) -> (Work, u64) {
    let bytes = || LbaCount(LbaRange::of(sqe).count.into()).bytes(lba_size);
    match sqe.opcode {
        io::READ => (Work::Read, bytes()),
        io::WRITE => (Work::Write, bytes()),
        _ => (Work::Other, 0),
    }
}
