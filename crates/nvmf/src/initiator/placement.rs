//! Data placement of a remote namespace: asked of the controller each time.

use std::sync::Arc;

use esker_base::AlignedBuf;
use esker_base::units::to_usize;
use esker_device::fdp::{
    Configuration, Endurance, Event, EventType, FdpError, HandleStatus, HandleUse, Reporter,
    Statistics, wire,
};
use esker_device::{DataPlacement, PlacementId};

use super::path::Admin;
use super::shared::Shared;
use crate::conn::Payload;
use crate::error::NvmfError;
use crate::wire::capsule::Sqe;
use crate::wire::command::io;
use crate::wire::feature;
use crate::wire::identify::CTRATT_FDPS;
use crate::wire::log::lid;
use crate::wire::status::Status;

/// Data placement of a remote namespace.
pub(crate) struct RemotePlacement {
    shared: Arc<Shared>,
    drive: String,
    group: u16,
    configurations: Vec<Configuration>,
}

impl RemotePlacement {
    /// Looks whether the namespace has data placement.
    pub(crate) fn find(shared: &Arc<Shared>) -> Option<RemotePlacement> {
        let (has_fdp, group) = on_a_path(shared, |admin| {
            let facts = &admin.facts;
            Ok((facts.controller.ctratt & CTRATT_FDPS != 0, facts.namespace.endgid))
        })
        .ok()?;
        if !has_fdp || group == 0 {
            return None;
        }
        let configurations = on_a_path(shared, |admin| {
            let peer = shared.paths[0].peer;
            let head =
                admin.get_log(lid::FDP_CONFIGURATIONS, group, wire::CONFIGURATIONS_HEADER)?;
            let size = wire::configurations_size(&head)
                .map_err(|error| NvmfError::truncated(peer, &error))?;
            let size = to_usize(size.into()).clamp(wire::CONFIGURATIONS_HEADER, 1 << 20);
            let whole = size.next_multiple_of(4);
            let bytes = admin.get_log(lid::FDP_CONFIGURATIONS, group, whole)?;
            wire::decode_configurations(&bytes).map_err(|error| NvmfError::truncated(peer, &error))
        })
        .ok()?;
        let drive = format!("{} endurance group {group}", shared.config.nqn);
        Some(RemotePlacement { shared: shared.clone(), drive, group, configurations })
    }

    /// How many placement ids writes may carry.
    pub(crate) fn count(&self) -> u16 {
        let count = self.handles().map(|handles| handles.len()).unwrap_or(0);
        u16::try_from(count).unwrap_or(u16::MAX)
    }

    fn failed(&self, error: &NvmfError) -> FdpError {
        let drive = self.drive.clone();
        match error {
            NvmfError::Command { status, .. } => match Status(status.code()) {
                Status::FDP_DISABLED => FdpError::Disabled { drive },
                Status::SEQUENCE => FdpError::Sequence(error.to_string()),
                _ => FdpError::Invalid(error.to_string()),
            },
            _ => FdpError::Sequence(format!("{drive} could not be asked: {error}")),
        }
    }

    fn admin<T>(&self, act: impl Fn(&mut Admin) -> Result<T, NvmfError>) -> Result<T, FdpError> {
        on_a_path(&self.shared, act).map_err(|error| self.failed(&error))
    }

    fn log<T>(
        &self,
        which: u8,
        parameter: u8,
        size: usize,
        decode: impl Fn(&[u8]) -> Result<T, esker_base::codec::Truncated>,
    ) -> Result<T, FdpError> {
        let group = self.group;
        let bytes = self.admin(|admin| admin.get_log_with(which, parameter, group, size))?;
        decode(&bytes).map_err(|error| FdpError::Invalid(error.to_string()))
    }

    /// Runs a command on an I/O queue that is kept for the purpose.
    fn on_io_queue(&self, name: &'static str, sqe: Sqe, data: &Data) -> Result<Payload, NvmfError> {
        let shared = &self.shared;
        let mut place = shared.management.lock();
        let mut tries = 0;
        loop {
            tries += 1;
            let mut active = match place.take() {
                Some(active) if shared.is_current(&active) => active,
                _ => shared.obtain(1, None, shared.config.timeout)?,
            };
            let payload = match data {
                Data::Out(bytes) => Payload::Out(AlignedBuf::padded(bytes, 1)),
                Data::In(size) => Payload::In(AlignedBuf::zeroed(*size)),
            };
            match active.link.execute(name, sqe, payload) {
                Ok((_, payload)) => {
                    *place = Some(active);
                    return Ok(payload);
                }
                Err(error @ NvmfError::Command { .. }) => {
                    *place = Some(active);
                    return Err(error);
                }
                Err(error) => {
                    shared.release(&active);
                    if tries > 1 {
                        return Err(error);
                    }
                }
            }
        }
    }
}

enum Data {
    Out(Vec<u8>),
    In(usize),
}

/// Does something with the controller of the first path that can.
fn on_a_path<T>(
    shared: &Shared,
    act: impl Fn(&mut Admin) -> Result<T, NvmfError>,
) -> Result<T, NvmfError> {
    let mut outcome = None;
    for path in &shared.paths {
        match path.with(&act) {
            lost @ Err(NvmfError::Lost { .. } | NvmfError::Protocol { .. }) => outcome = Some(lost),
            answered => return answered,
        }
    }
    outcome.expect("at least one path")
}

impl DataPlacement for RemotePlacement {
    fn drive(&self) -> &str {
        &self.drive
    }

    fn configurations(&self) -> Vec<Configuration> {
        self.configurations.clone()
    }

    fn enabled(&self) -> Option<usize> {
        let sqe = Sqe::new(feature::GET, self.shared.config.nsid)
            .with_dword(10, feature::FDP.into())
            .with_dword(11, self.group.into());
        match self.admin(|admin| admin.execute("Get Features (FDP)", sqe)) {
            Ok(result) => {
                let [a, b, c, d, ..] = result.to_le_bytes();
                wire::decode_enabled(u32::from_le_bytes([a, b, c, d]))
            }
            // The kernel's target passes a drive's log pages on, but not this feature. Usage is
            // answered only while a configuration is in force.
            Err(FdpError::Invalid(_)) if self.configurations.len() == 1 => {
                self.usage().is_ok().then_some(0)
            }
            Err(_) => None,
        }
    }

    fn enable(&self, configuration: Option<usize>) -> Result<(), FdpError> {
        let sqe = Sqe::new(feature::SET, 0)
            .with_dword(10, feature::FDP.into())
            .with_dword(11, self.group.into())
            .with_dword(12, wire::encode_enabled(configuration));
        self.admin(|admin| admin.execute("Set Features (FDP)", sqe)).map(drop)
    }

    fn usage(&self) -> Result<Vec<HandleUse>, FdpError> {
        let most = self.configurations.iter().map(|one| one.handles.len()).max().unwrap_or(0);
        self.log(lid::FDP_USAGE, 0, 8 + 8 * most, wire::decode_usage)
    }

    fn statistics(&self) -> Result<Statistics, FdpError> {
        self.log(lid::FDP_STATISTICS, 0, wire::STATISTICS_SIZE, wire::decode_statistics)
    }

    fn events(&self, reporter: Reporter) -> Result<Vec<Event>, FdpError> {
        let size = wire::EVENT_SIZE * (1 + wire::EVENTS_MAX);
        let parameter = u8::from(reporter == Reporter::Host);
        self.log(lid::FDP_EVENTS, parameter, size, wire::decode_events)
    }

    fn endurance(&self) -> Endurance {
        let size = wire::ENDURANCE_SIZE;
        self.log(lid::ENDURANCE, 0, size, wire::decode_endurance).unwrap_or_default()
    }

    fn handles(&self) -> Result<Vec<HandleStatus>, FdpError> {
        let most = self.configurations.iter().map(|one| one.max_placement_ids).max().unwrap_or(1);
        let size = wire::STATUS_HEADER + usize::from(most.min(128)) * wire::STATUS_SIZE;
        let numd = u32::try_from(size / 4 - 1).expect("a few KiB");
        let sqe = Sqe::new(io::IO_MANAGEMENT_RECEIVE, self.shared.config.nsid)
            .with_dword(10, 1)
            .with_dword(11, numd);
        let payload = self
            .on_io_queue("I/O Management Receive", sqe, &Data::In(size))
            .map_err(|error| self.failed(&error))?;
        let bytes = payload.into_buf().expect("a command with a buffer gives it back");
        wire::decode_handles(&bytes).map_err(|error| FdpError::Invalid(error.to_string()))
    }

    fn update(&self, ids: &[PlacementId]) -> Result<(), FdpError> {
        let Some(last) = ids.len().checked_sub(1) else { return Ok(()) };
        let last = u16::try_from(last)
            .map_err(|_| FdpError::Invalid("at most 65,536 placement ids at once".to_owned()))?;
        let sqe = Sqe::new(io::IO_MANAGEMENT_SEND, self.shared.config.nsid)
            .with_dword(10, 1 | u32::from(last) << 16);
        let bytes = ids.iter().flat_map(|id| id.0.to_le_bytes()).collect();
        self.on_io_queue("I/O Management Send", sqe, &Data::Out(bytes)).map(drop).map_err(|error| {
            // The status is the same for every field that is wrong: which one, the ids say.
            let count = self.shared.geometry().placement_handles;
            match (ids.iter().find(|id| id.0 >= count), self.failed(&error)) {
                (Some(wrong), FdpError::Invalid(_)) => {
                    FdpError::InvalidId { id: wrong.0, count: count.into() }
                }
                (_, failed) => failed,
            }
        })
    }

    fn reported_events(&self, id: PlacementId) -> Result<Vec<(EventType, bool)>, FdpError> {
        let sqe = Sqe::new(feature::GET, self.shared.config.nsid)
            .with_dword(10, feature::FDP_EVENTS.into())
            .with_dword(11, u32::from(id.0) | 255 << 16);
        let name = "Get Features (FDP events)";
        let answered = on_a_path(&self.shared, |admin| admin.fetch_with_result(name, sqe, 512));
        let (count, bytes) = answered.map_err(|error| self.failed(&error))?;
        Ok(wire::decode_reported(&bytes, usize::from(count.to_le_bytes()[0])))
    }

    fn report_events(
        &self,
        id: PlacementId,
        events: &[EventType],
        enable: bool,
    ) -> Result<(), FdpError> {
        let count = u32::try_from(events.len().min(255)).expect("at most 255");
        let sqe = Sqe::new(feature::SET, self.shared.config.nsid)
            .with_dword(10, feature::FDP_EVENTS.into())
            .with_dword(11, u32::from(id.0) | count << 16)
            .with_dword(12, u32::from(enable));
        let kinds: Vec<u8> = events.iter().map(|kind| *kind as u8).collect();
        on_a_path(&self.shared, |admin| admin.send("Set Features (FDP events)", sqe, &kinds))
            .map_err(|error| self.failed(&error))
    }
}
