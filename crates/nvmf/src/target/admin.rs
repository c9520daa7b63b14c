//! Admin commands, which are all answered at once, but for Asynchronous Event Requests.

pub(crate) mod abort;
pub(crate) mod fabrics;
pub(crate) mod identify;
pub(crate) mod logs;

use std::sync::Arc;

use super::config::NSID_MAX;
use super::connection::core::Core;
use super::connection::reply::{Reply, dwords};
use super::connection::{Connection, Role};
use super::controller::{AERL, Controller, LogRead};
use super::fdp;
use super::subsystem::Namespace;
use crate::conn::Slot;
use crate::wire::capsule::{NSID_ALL, Sqe};
use crate::wire::command::admin;
use crate::wire::status::Status;
use crate::wire::{feature, identify as wire_identify, log};
use identify::identify;
use logs::LogPage;

const INVALID: Status = Status::INVALID_FIELD.final_();

/// Runs a command on the admin queue.
pub(crate) fn execute(
    controller: &Arc<Controller>,
    core: &mut Core,
    slot: Slot,
    sqe: &Sqe,
    data: &[u8],
) -> Reply {
    if !controller.is_enabled() {
        return Reply::Failed(Status::SEQUENCE.final_());
    }
    let is_discovery = controller.is_discovery();
    match sqe.opcode {
        wire_identify::OPCODE => identify(&core.shared, controller, sqe)
            .map_or_else(Reply::Failed, |bytes| Reply::Data(bytes, 0)),
        log::OPCODE => get_log_page(controller, core, sqe),
        feature::SET => set_features(controller, core, sqe, data),
        feature::GET => get_features(controller, sqe),
        admin::KEEP_ALIVE => Reply::Done(0),
        admin::ASYNC_EVENT => {
            let mut state = controller.state.lock();
            if state.requests.len() > usize::from(AERL) {
                return Reply::Failed(Status::EVENT_LIMIT.final_());
            }
            state.requests.push_back((slot.0, sqe.cid));
            drop(state);
            // An event that waited for a request is sent when this command is done with.
            core.shared.look_for_events(controller);
            Reply::Later
        }
        admin::ABORT if !is_discovery => abort::ask(controller, core, slot, sqe),
        _ => Reply::Failed(Status::INVALID_OPCODE.final_()),
    }
}

/// Sends the events that a controller has, as far as the host has asked for them.
pub(crate) fn send_events(connection: &mut Connection, core: &mut Core) {
    let Role::Admin(controller) = &connection.role else { return };
    let controller = controller.clone();
    while let Some((slot, event)) = controller.next_event() {
        connection.wire.respond(Slot(slot), event.into(), Status::SUCCESS);
        core.mark_dirty(connection);
    }
}

fn get_log_page(controller: &Controller, core: &Core, sqe: &Sqe) -> Reply {
    let numd = u32::from(sqe.high(10)) | u32::from(sqe.low(11)) << 16;
    let offset = u64::from(sqe.dword(12)) | u64::from(sqe.dword(13)) << 32;
    let keeps_event = sqe.dword(10) & 1 << 15 != 0;
    // An index instead of an offset (OT) is not supported.
    if sqe.dword(14) & 1 << 23 != 0 || offset % 4 != 0 {
        return Reply::Failed(INVALID);
    }
    let page = match logs::page(&core.shared, controller, sqe) {
        Ok(page) => page,
        Err(status) => return Reply::Failed(status),
    };
    let LogPage { bytes, changed } = page;
    let rest = bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).ok_or(INVALID);
    let read = (!keeps_event).then_some(LogRead { lid: sqe.byte(10, 0), changed });
    rest.and_then(|rest| dwords(rest.to_vec(), numd))
        .map_or_else(Reply::Failed, |bytes| Reply::Log(bytes, read))
}

fn namespace(controller: &Controller, nsid: u32) -> Result<Arc<Namespace>, Status> {
    let found = controller.subsystem.as_ref().and_then(|one| one.namespace(nsid));
    found.ok_or(if (1..=NSID_MAX).contains(&nsid) {
        INVALID
    } else {
        Status::INVALID_NAMESPACE.final_()
    })
}

fn group(controller: &Controller, sqe: &Sqe) -> Result<Arc<Namespace>, Status> {
    let subsystem = controller.subsystem.as_ref().ok_or(INVALID)?;
    logs::of_group(subsystem, sqe.low(11)).map_err(|_| INVALID)
}

fn set_features(controller: &Controller, core: &Core, sqe: &Sqe, data: &[u8]) -> Reply {
    if sqe.dword(10) & 1 << 31 != 0 {
        return Reply::Failed(Status::NOT_SAVEABLE.final_());
    }
    let value = sqe.dword(11);
    let is_discovery = controller.is_discovery();
    match sqe.byte(10, 0) {
        feature::EVENTS => {
            controller.state.lock().event_mask = value;
            Reply::Done(0)
        }
        feature::KEEP_ALIVE => {
            controller.set_keep_alive(value);
            Reply::Done(0)
        }
        _ if is_discovery => Reply::Failed(INVALID),
        feature::QUEUES => {
            let (submission, completion) = (sqe.low(11), sqe.high(11));
            let mut state = controller.state.lock();
            if submission == u16::MAX || completion == u16::MAX {
                return Reply::Failed(INVALID);
            }
            if !state.connected.is_empty() {
                return Reply::Failed(Status::SEQUENCE.final_());
            }
            state.io_queues = core.shared.limits.io_queues.min(submission + 1);
            let last = u64::from(state.io_queues - 1);
            Reply::Done(last | last << 16)
        }
        feature::FDP => group(controller, sqe).map_or_else(Reply::Failed, |namespace| {
            namespace.placement().map_or(Reply::Failed(INVALID), |fdp| fdp::enable(fdp, sqe))
        }),
        feature::FDP_EVENTS => namespace(controller, sqe.nsid)
            .map_or_else(Reply::Failed, |namespace| fdp::report(&namespace, sqe, data)),
        feature::RESERVATION_PERSISTENCE => set_persistence(controller, sqe.nsid, value & 1 == 1),
        // Without a cache there is no such feature (Base 2.1, 5.1.25.1.4); one that is there stays on.
        feature::WRITE_CACHE if !has_write_cache(controller) => Reply::Failed(INVALID),
        feature::WRITE_CACHE if value & 1 == 1 => Reply::Done(0),
        feature::ARBITRATION
        | feature::POWER
        | feature::TEMPERATURE
        | feature::ERROR_RECOVERY
        | feature::WRITE_CACHE
        | feature::ATOMICITY
        | feature::HOST_ID
        | feature::RESERVATION_MASK => Reply::Failed(Status::NOT_CHANGEABLE.final_()),
        _ => Reply::Failed(INVALID),
    }
}

fn has_write_cache(controller: &Controller) -> bool {
    controller.subsystem.as_ref().is_some_and(|one| one.is_volatile())
}

/// Sets whether the reservations of a namespace, or of all of them, persist.
fn set_persistence(controller: &Controller, nsid: u32, persists: bool) -> Reply {
    let chosen = if nsid == NSID_ALL {
        Ok(controller.subsystem.as_ref().map(|one| one.namespaces()).unwrap_or_default())
    } else {
        namespace(controller, nsid).map(|one| vec![one])
    };
    let set = |all: Vec<Arc<Namespace>>| {
        all.iter().try_for_each(|one| one.reservations.set_persists(persists))
    };
    chosen.and_then(set).map_or_else(Reply::Failed, |()| Reply::Done(0))
}

fn get_features(controller: &Controller, sqe: &Sqe) -> Reply {
    let which = sqe.byte(10, 0);
    let select = sqe.byte(10, 1) & 7;
    if select == 3 {
        // Capabilities: changeable, and for each namespace.
        let changeable = matches!(
            which,
            feature::EVENTS | feature::KEEP_ALIVE | feature::QUEUES | feature::FDP_EVENTS
        ) || which == feature::RESERVATION_PERSISTENCE
            && namespace(controller, sqe.nsid).is_ok_and(|one| one.reservations.can_persist());
        let per_namespace = matches!(which, feature::FDP_EVENTS | feature::RESERVATION_PERSISTENCE);
        return Reply::Done(u64::from(changeable) << 2 | u64::from(per_namespace) << 1);
    }
    let state = controller.state.lock();
    let is_discovery = controller.is_discovery();
    match which {
        feature::EVENTS => Reply::Done(state.event_mask.into()),
        feature::KEEP_ALIVE => Reply::Done(controller.keep_alive_ms().into()),
        feature::HOST_ID if sqe.dword(11) & 1 == 1 => Reply::Data(controller.host.id.to_vec(), 0),
        _ if is_discovery => Reply::Failed(INVALID),
        feature::QUEUES => {
            let last = u64::from(state.io_queues.max(1) - 1);
            Reply::Done(last | last << 16)
        }
        feature::ARBITRATION | feature::POWER | feature::ERROR_RECOVERY | feature::ATOMICITY => {
            Reply::Done(0)
        }
        feature::TEMPERATURE => Reply::Done(343),
        feature::WRITE_CACHE => {
            if has_write_cache(controller) {
                Reply::Done(1)
            } else {
                Reply::Failed(INVALID)
            }
        }
        feature::RESERVATION_MASK => Reply::Done(0x0e), // all kinds of notification are masked
        feature::RESERVATION_PERSISTENCE => {
            if sqe.nsid == NSID_ALL {
                return Reply::Failed(Status::INVALID_NAMESPACE.final_());
            }
            namespace(controller, sqe.nsid).map_or_else(Reply::Failed, |namespace| {
                Reply::Done(namespace.reservations.persists().into())
            })
        }
        feature::FDP => group(controller, sqe).map_or_else(Reply::Failed, |namespace| {
            namespace.placement().map_or(Reply::Failed(INVALID), fdp::enabled)
        }),
        feature::FDP_EVENTS => namespace(controller, sqe.nsid)
            .map_or_else(Reply::Failed, |namespace| fdp::reported(&namespace, sqe)),
        _ => Reply::Failed(INVALID),
    }
}
