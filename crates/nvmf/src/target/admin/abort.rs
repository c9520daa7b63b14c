//! Abort: stops commands of an I/O queue that no device has yet.
//!
//! The admin queue and the I/O queue may be on different workers, so an Abort is asked for and
//! answered by mail. An aborted command ends with status 07h before the Abort is answered:
//!
//! | the command | is aborted |
//! | --- | --- |
//! | waits for memory, for late commands, for its turn (Copy), or for room in the device's queue | at once |
//! | waits for the host's data | when the data has come, and is dropped |
//! | is a Copy at work | when the pieces that the device has are done |
//! | is an Asynchronous Event Request | at once |
//! | is in the device, or is done | not: dword 0 of the answer is 1 |

use std::sync::Arc;

use esker_base::units::to_usize;

use crate::conn::Slot;
use crate::target::connection::Connection;
use crate::target::connection::core::Core;
use crate::target::connection::reply::Reply;
use crate::target::controller::{ABORTS, Controller};
use crate::target::ids::AbortId;
use crate::target::io::copy;
use crate::target::shared::WorkerMessage;
use crate::wire::capsule::Sqe;
use crate::wire::status::Status;

/// Runs Abort on the admin queue.
pub(crate) fn ask(controller: &Arc<Controller>, core: &Core, slot: Slot, sqe: &Sqe) -> Reply {
    let (sqid, cid) = (sqe.low(10), sqe.high(10));
    let mut state = controller.state.lock();
    if sqid == 0 {
        let found = state.requests.iter().position(|&(_, one)| one == cid);
        let Some((request, _)) = found.and_then(|at| state.requests.remove(at)) else {
            return Reply::Done(1);
        };
        return Reply::Aborted(Slot(request));
    }
    let Some(&at) = state.connected.get(&sqid) else { return Reply::Done(1) };
    if state.aborts.len() >= usize::from(ABORTS) {
        return Reply::Failed(Status::ABORT_LIMIT.final_());
    }
    state.abort_count += 1;
    let asked = AbortId(state.abort_count);
    state.aborts.insert(asked, slot);
    drop(state);
    let controller = controller.clone();
    core.shared.tell(at.worker, WorkerMessage::Abort { at, controller, cid, asked });
    Reply::Later
}

/// Answers an Abort, on the admin queue.
pub(crate) fn answered(
    connection: &mut Connection,
    core: &mut Core,
    asked: AbortId,
    is_done: bool,
) {
    let controller = connection.role.controller();
    // A reset has answered it already.
    let Some(slot) = controller.and_then(|one| one.state.lock().aborts.remove(&asked)) else {
        return;
    };
    connection.reply(core, slot, Reply::Done(u64::from(!is_done)));
    core.mark_dirty(connection);
}

/// Aborts a command of an I/O queue, if that is still possible.
pub(crate) fn abort(connection: &mut Connection, core: &mut Core, cid: u16, asked: AbortId) {
    let Some(controller) = connection.role.controller().cloned() else { return };
    core.mark_dirty(connection);
    if connection.is_ending {
        return core.shared.answer_abort(&controller, asked, false);
    }
    let jobs = &connection.jobs;
    let is_it = |slot: u16| jobs.get(usize::from(slot)).is_some_and(|job| job.sqe.cid == cid);
    if let Some(at) = connection.waiting.iter().position(|&slot| is_it(slot)) {
        let slot = connection.waiting.remove(at).map(Slot).expect("it was found there");
        return stop(connection, core, slot, asked);
    }
    if let Some(at) = connection.fenced.iter().position(|(slot, _)| is_it(*slot))
        && let Some((slot, data)) = connection.fenced.remove(at)
    {
        connection.give_back(core, data);
        return stop(connection, core, Slot(slot), asked);
    }
    if let Some(slot) = connection.copies.cancel(|slot| is_it(slot.0)) {
        return stop(connection, core, slot, asked);
    }
    let index = connection.jobs.iter().position(|job| {
        let is_at_work = job.abort.is_none() && job.late.is_none();
        job.sqe.cid == cid && is_at_work && (job.asked.is_some() || job.pieces > 0)
    });
    let Some(slot) = index.and_then(|index| u16::try_from(index).ok()).map(Slot) else {
        return core.shared.answer_abort(&controller, asked, false);
    };
    if connection.job(slot).asked.is_some() {
        connection.job(slot).abort = Some(asked);
        return;
    }
    if connection.copies.stop(slot) {
        connection.take_back(core, slot, 0);
        connection.job(slot).abort = Some(asked);
        return copy::advance(connection, core);
    }
    // All of it or nothing: what a device has is done, and answered so.
    let pieces = to_usize(connection.job(slot).pieces.into());
    if connection.take_back(core, slot, pieces) < pieces {
        return core.shared.answer_abort(&controller, asked, false);
    }
    let expected = connection.job(slot).expected.take();
    connection.give_back(core, expected);
    stop(connection, core, slot, asked);
}

/// Answers the aborted command, and then the Abort.
fn stop(connection: &mut Connection, core: &mut Core, slot: Slot, asked: AbortId) {
    connection.job(slot).abort = Some(asked);
    connection.finish(core, slot, Status::ABORTED);
}
