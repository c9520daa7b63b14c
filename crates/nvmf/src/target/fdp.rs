//! Data placement over the network: the device's state in the bytes of the specification, and the
//! hosts' settings.

use esker_device::DataPlacement;
use esker_device::PlacementId;
use esker_device::fdp::{EventType, FdpError, Reporter, wire};

use super::connection::reply::Reply;
use super::subsystem::Namespace;
use crate::wire::capsule::Sqe;
use crate::wire::log::lid;
use crate::wire::status::Status;

fn status_of(error: &FdpError) -> Status {
    let status = match error {
        FdpError::Disabled { .. } => Status::FDP_DISABLED,
        FdpError::Sequence(_) => Status::SEQUENCE,
        // Status 2Ah is about the list that a namespace is created with (Base 2.1, 7.4).
        FdpError::InvalidId { .. } | FdpError::Invalid(_) => Status::INVALID_FIELD,
    };
    status.final_()
}

fn placement(namespace: &Namespace) -> Result<&dyn DataPlacement, Status> {
    namespace.placement().ok_or(Status::INVALID_OPCODE.final_())
}

fn reply<T>(result: Result<T, Status>, done: impl FnOnce(T) -> Reply) -> Reply {
    result.map_or_else(Reply::Failed, done)
}

/// A log page of an endurance group.
pub(crate) fn log(fdp: &dyn DataPlacement, sqe: &Sqe) -> Result<Vec<u8>, Status> {
    let page = match sqe.byte(10, 0) {
        lid::ENDURANCE => Ok(wire::encode_endurance(&fdp.endurance()).to_vec()),
        lid::FDP_CONFIGURATIONS => Ok(wire::encode_configurations(&fdp.configurations())),
        lid::FDP_USAGE => fdp.usage().map(|usage| wire::encode_usage(&usage)),
        lid::FDP_STATISTICS => {
            fdp.statistics().map(|statistics| wire::encode_statistics(&statistics).to_vec())
        }
        lid::FDP_EVENTS => {
            let is_host = sqe.byte(10, 1) & 1 == 1;
            let reporter = if is_host { Reporter::Host } else { Reporter::Controller };
            fdp.events(reporter).map(|events| wire::encode_events(&events))
        }
        _ => return Err(Status::INVALID_LOG.final_()),
    };
    page.map_err(|error| status_of(&error))
}

/// I/O Management Receive: the status of the handles.
pub(crate) fn receive(namespace: &Namespace, sqe: &Sqe) -> Reply {
    let status = || {
        let fdp = placement(namespace)?;
        if sqe.byte(10, 0) != 1 {
            return Err(Status::INVALID_FIELD.final_());
        }
        let handles = fdp.handles().map_err(|error| status_of(&error))?;
        Ok(wire::encode_handles(&handles))
    };
    reply(status(), |bytes| Reply::dwords(bytes, sqe.dword(11)))
}

/// I/O Management Send: handles go to empty reclaim units.
pub(crate) fn send(namespace: &Namespace, sqe: &Sqe, data: &[u8]) -> Reply {
    let update = || {
        let fdp = placement(namespace)?;
        if sqe.byte(10, 0) != 1 {
            return Err(Status::INVALID_FIELD.final_());
        }
        let count = usize::from(sqe.high(10)) + 1;
        let pairs = data.as_chunks::<2>().0;
        let ids = pairs.get(..count).ok_or(Status::DATA_LENGTH.final_())?;
        let ids: Vec<PlacementId> =
            ids.iter().map(|&id| PlacementId(u16::from_le_bytes(id))).collect();
        let configuration =
            fdp.enabled().and_then(|index| fdp.configurations().into_iter().nth(index));
        if configuration.is_some_and(|one| count > one.max_placement_ids.into()) {
            return Err(Status::INVALID_FIELD.final_());
        }
        fdp.update(&ids).map_err(|error| status_of(&error))
    };
    reply(update(), |()| Reply::Done(0))
}

/// Get Features 1Dh: the configuration in force.
pub(crate) fn enabled(fdp: &dyn DataPlacement) -> Reply {
    Reply::Done(wire::encode_enabled(fdp.enabled()).into())
}

/// Set Features 1Dh: enables or disables a configuration.
pub(crate) fn enable(fdp: &dyn DataPlacement, sqe: &Sqe) -> Reply {
    let done = fdp.enable(wire::decode_enabled(sqe.dword(12)));
    reply(done.map_err(|error| status_of(&error)), |()| Reply::Done(0))
}

/// Get Features 1Eh: which events a handle reports.
pub(crate) fn reported(namespace: &Namespace, sqe: &Sqe) -> Reply {
    let get = || {
        let fdp = placement(namespace).map_err(|_| Status::INVALID_FIELD.final_())?;
        let events = fdp.reported_events(PlacementId(sqe.low(11)));
        let mut events = events.map_err(|error| status_of(&error))?;
        events.truncate(usize::from(sqe.byte(11, 2)));
        Ok(events)
    };
    reply(get(), |events| {
        let count = u64::try_from(events.len()).expect("64 bits");
        let mut bytes = wire::encode_reported(&events);
        bytes.resize(to_data_size(sqe, bytes.len()), 0);
        Reply::Data(bytes, count)
    })
}

/// As much as the host has room for, but at most 512 bytes: 255 kinds of event, two bytes each.
fn to_data_size(sqe: &Sqe, size: usize) -> usize {
    usize::try_from(sqe.sgl.length).expect("32 bits").clamp(size, 512)
}

/// Set Features 1Eh: which events a handle reports.
pub(crate) fn report(namespace: &Namespace, sqe: &Sqe, data: &[u8]) -> Reply {
    let set = || {
        let invalid = Status::INVALID_FIELD.final_();
        let fdp = placement(namespace).map_err(|_| invalid)?;
        let count = usize::from(sqe.byte(11, 2));
        let numbers = data.get(..count).ok_or(Status::DATA_LENGTH.final_())?;
        let kinds: Option<Vec<EventType>> =
            numbers.iter().map(|&number| wire::event_type(number)).collect();
        let kinds = kinds.ok_or(invalid)?;
        let enable = sqe.dword(12) & 1 == 1;
        fdp.report_events(PlacementId(sqe.low(11)), &kinds, enable).map_err(|e| status_of(&e))
    };
    reply(set(), |()| Reply::Done(0))
}
