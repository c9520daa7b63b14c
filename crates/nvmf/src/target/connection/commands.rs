//! The commands of a connection: given to devices, taken back, answered, and late.

use std::sync::Arc;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, ErrorKind, LbaCount};
use esker_device::{Command, DeviceError, Op, OpKind};

use crate::conn::Slot;
use crate::target::connection::core::Core;
use crate::target::connection::reply::Reply;
use crate::target::connection::{Connection, Role};
use crate::target::controller::ERROR_ENTRIES;
use crate::target::ids::Place;
use crate::target::metrics::Work;
use crate::target::subsystem::Namespace;
use crate::target::subsystem::late::changes_of;
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
            core.shared.answer_abort(controller.id, asked, is_done);
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
        let Some(flow) = job.flow.and_then(|index| self.uses.get(index)) else { return };
        let (work, bytes) = work_of(&job.sqe, flow.lba_size);
        let is_data = matches!(work, Work::Read | Work::Write) && is_good;
        let latency = core.now.since(job.started);
        flow.flow.finish(work, if is_data { bytes } else { 0 }, is_good, latency);
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

    /// The namespace of a command that was looked up.
    pub(crate) fn namespace_of(&self, core: &Core, slot: Slot) -> Option<Arc<Namespace>> {
        let flow = self.jobs[usize::from(slot.0)].flow?;
        Some(core.namespace(self.uses[flow].device).clone())
    }

    /// Whether a command that has no data yet has to wait for late ones: it needs no memory meanwhile.
    pub(crate) fn is_fenced(&self, core: &Core, slot: Slot) -> bool {
        let sqe = &self.jobs[usize::from(slot.0)].sqe;
        let used = self.uses.iter().rfind(|one| one.nsid == sqe.nsid);
        used.is_some_and(|one| core.namespace(one.device).late.fences(sqe))
    }

    /// A command waits for late ones; it is executed from its beginning then.
    pub(crate) fn wait_for_late(&mut self, core: &mut Core, slot: Slot, data: Option<AlignedBuf>) {
        self.fenced.push_back((slot.0, data));
        core.is_starved = true;
    }

    /// The connection ends: its commands that the devices have are late.
    pub(crate) fn all_late(&mut self, core: &Core) {
        for index in 0..self.jobs.len() {
            let job = &self.jobs[index];
            if job.pieces == 0 || job.late.is_some() {
                continue;
            }
            let Some(slot) = u16::try_from(index).ok().map(Slot) else { continue };
            let changes = changes_of(&job.sqe);
            if let Some(namespace) = self.namespace_of(core, slot) {
                self.job(slot).late = Some(namespace.late.enter(changes));
            }
        }
    }

    /// The devices are done with a command; says whether it was late, and its slot is free now.
    pub(crate) fn was_late(&mut self, core: &mut Core, slot: Slot) -> bool {
        let Some(id) = self.job(slot).late.take() else { return false };
        if let Some(namespace) = self.namespace_of(core, slot) {
            namespace.late.leave(id);
        }
        core.is_starved = true; // commands that wait for it go on
        true
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
