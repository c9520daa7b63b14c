//! Data placement of a drive that one can send commands to, wherever it is: in this machine, or behind
//! a network. A carrier of commands implements [`Passthrough`]; their content is here.
//!
//! Everything is asked of the drive each time, but for its configurations, which do not change. A log
//! page without a fixed size is asked for twice, first its header and then no more than there is: a
//! drive may refuse a buffer that it cannot fill (status 0Fh).

use esker_base::codec::Truncated;
use esker_base::units::to_usize;
use esker_base::{AlignedBuf, ErrorKind};
use thiserror::Error;

use super::wire::command::{self, NvmeCommand, log};
use super::{
    Configuration, DataPlacement, Endurance, Event, EventType, FdpError, HandleStatus, HandleUse,
    Reporter, Statistics, wire,
};
use crate::PlacementId;

/// The most bytes that are read at once.
const MOST: usize = 1 << 20;
/// How often a log page is read that grows meanwhile.
const TRIES: u32 = 4;
/// Statuses, without "do not retry" and the bits above.
const FDP_DISABLED: u16 = 0x029;
const SEQUENCE: u16 = 0x00c;

/// Data that a command transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer<'a> {
    /// Nothing.
    None,
    /// These bytes to the controller.
    Out(&'a [u8]),
    /// So many bytes from the controller.
    In(usize),
}

/// Carries commands to a controller.
pub trait Passthrough: Send + Sync {
    /// Executes a command. Returns dword 0 of its completion (dword 1 above it), and the bytes that
    /// came from the controller, as many as were asked for.
    ///
    /// # Errors
    /// When the controller refuses it, or it cannot be carried.
    fn execute(
        &self,
        command: &NvmeCommand,
        data: Transfer<'_>,
    ) -> Result<(u64, AlignedBuf), PassthroughError>;
}

/// Why a command was not executed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PassthroughError {
    /// The controller refused it.
    #[error("{message}")]
    Refused {
        /// The status: code and, from bit 8 on, code type.
        status: u16,
        /// Which command, and why.
        message: String,
    },
    /// It could not be carried there.
    #[error("{message}")]
    Failed {
        /// The remedy for callers.
        kind: ErrorKind,
        /// Which command, and why.
        message: String,
    },
}

impl PassthroughError {
    fn truncated(command: &NvmeCommand, error: &Truncated) -> PassthroughError {
        let message = format!("{}: what came is too short: {error}", command.name);
        PassthroughError::Failed { kind: ErrorKind::Unsupported, message }
    }
}

/// Data placement of one namespace of a controller.
pub struct ControllerPlacement<P> {
    passthrough: P,
    drive: String,
    nsid: u32,
    group: u16,
    configurations: Vec<Configuration>,
    ids: u16,
}

impl<P: Passthrough> ControllerPlacement<P> {
    /// Data placement of namespace `nsid`, which is in endurance group `group`. `drive` is the name
    /// that all namespaces of the group, and no others, have.
    ///
    /// # Errors
    /// When the controller does not tell its configurations.
    pub fn new(
        passthrough: P,
        nsid: u32,
        group: u16,
        drive: String,
    ) -> Result<ControllerPlacement<P>, PassthroughError> {
        let configurations = read_in_parts(
            &passthrough,
            &|size| NvmeCommand::get_log(log::CONFIGURATIONS, 0, group, size),
            wire::CONFIGURATIONS_HEADER,
            &|head| wire::configurations_size(head).map(|size| to_usize(size.into())),
            &wire::decode_configurations,
        )?;
        let mut placement =
            ControllerPlacement { passthrough, drive, nsid, group, configurations, ids: 0 };
        let count = placement.handles().map_or(0, |handles| handles.len());
        placement.ids = u16::try_from(count).unwrap_or(u16::MAX);
        Ok(placement)
    }

    /// How many placement ids the namespace has; zero while placement is disabled.
    pub fn ids(&self) -> u16 {
        self.ids
    }

    fn execute(
        &self,
        command: &NvmeCommand,
        data: Transfer<'_>,
    ) -> Result<(u64, AlignedBuf), FdpError> {
        self.passthrough.execute(command, data).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &PassthroughError) -> FdpError {
        match error {
            PassthroughError::Refused { status, .. } => match *status {
                FDP_DISABLED => FdpError::Disabled { drive: self.drive.clone() },
                SEQUENCE => FdpError::Sequence(error.to_string()),
                _ => FdpError::Invalid(error.to_string()),
            },
            PassthroughError::Failed { .. } => {
                FdpError::Sequence(format!("{} could not be asked: {error}", self.drive))
            }
        }
    }

    /// A log page of a fixed size.
    fn log<T>(
        &self,
        which: u8,
        size: usize,
        decode: impl Fn(&[u8]) -> Result<T, Truncated>,
    ) -> Result<T, FdpError> {
        let command = NvmeCommand::get_log(which, 0, self.group, size);
        let (_, bytes) = self.execute(&command, Transfer::In(size))?;
        decode(&bytes).map_err(|error| FdpError::Invalid(error.to_string()))
    }

    /// Something whose header says how large it is.
    fn in_parts<T>(
        &self,
        command: &dyn Fn(usize) -> NvmeCommand,
        header: usize,
        size_of: &dyn Fn(&[u8]) -> Result<usize, Truncated>,
        decode: &dyn Fn(&[u8]) -> Result<T, Truncated>,
    ) -> Result<T, FdpError> {
        read_in_parts(&self.passthrough, command, header, size_of, decode)
            .map_err(|error| self.failed(&error))
    }
}

/// Reads something whose header says how large it is. `command` asks for its first bytes.
fn read_in_parts<T>(
    passthrough: &impl Passthrough,
    command: &dyn Fn(usize) -> NvmeCommand,
    header: usize,
    size_of: &dyn Fn(&[u8]) -> Result<usize, Truncated>,
    decode: &dyn Fn(&[u8]) -> Result<T, Truncated>,
) -> Result<T, PassthroughError> {
    let mut size = header;
    let mut tries = 0;
    loop {
        tries += 1;
        let asked = command(size);
        let truncated = |error| PassthroughError::truncated(&asked, &error);
        let (_, bytes) = passthrough.execute(&asked, Transfer::In(size))?;
        let whole = size_of(&bytes).map_err(truncated)?;
        let whole = whole.clamp(header, MOST).next_multiple_of(4);
        if whole <= size || tries == TRIES {
            return decode(&bytes).map_err(truncated);
        }
        size = whole;
    }
}

impl<P: Passthrough> DataPlacement for ControllerPlacement<P> {
    fn drive(&self) -> &str {
        &self.drive
    }

    fn configurations(&self) -> Vec<Configuration> {
        self.configurations.clone()
    }

    fn enabled(&self) -> Option<usize> {
        let command = NvmeCommand::get_enabled(self.nsid, self.group);
        match self.execute(&command, Transfer::None) {
            Ok((result, _)) => {
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
        let command = NvmeCommand::set_enabled(self.group, configuration);
        self.execute(&command, Transfer::None).map(drop)
    }

    fn usage(&self) -> Result<Vec<HandleUse>, FdpError> {
        let command = |size| NvmeCommand::get_log(log::USAGE, 0, self.group, size);
        self.in_parts(&command, wire::USAGE_HEADER, &wire::usage_size, &wire::decode_usage)
    }

    fn statistics(&self) -> Result<Statistics, FdpError> {
        self.log(log::STATISTICS, wire::STATISTICS_SIZE, wire::decode_statistics)
    }

    fn events(&self, reporter: Reporter) -> Result<Vec<Event>, FdpError> {
        let parameter = u8::from(reporter == Reporter::Host);
        let command = |size| NvmeCommand::get_log(log::EVENTS, parameter, self.group, size);
        self.in_parts(&command, wire::EVENT_SIZE, &wire::events_size, &wire::decode_events)
    }

    fn endurance(&self) -> Endurance {
        let size = wire::ENDURANCE_SIZE;
        self.log(log::ENDURANCE, size, wire::decode_endurance).unwrap_or_default()
    }

    fn handles(&self) -> Result<Vec<HandleStatus>, FdpError> {
        let command = |size| NvmeCommand::handle_status(self.nsid, size);
        self.in_parts(&command, wire::STATUS_HEADER, &wire::handles_size, &wire::decode_handles)
    }

    fn update(&self, ids: &[PlacementId]) -> Result<(), FdpError> {
        let Some(last) = ids.len().checked_sub(1) else { return Ok(()) };
        let last = u16::try_from(last)
            .map_err(|_| FdpError::Invalid("at most 65,536 placement ids at once".to_owned()))?;
        let command = NvmeCommand::handle_update(self.nsid, last);
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.0.to_le_bytes()).collect();
        self.execute(&command, Transfer::Out(&bytes)).map(drop).map_err(|error| {
            // The status is the same for every field that is wrong: which one, the ids say.
            match (ids.iter().find(|id| id.0 >= self.ids), error) {
                (Some(wrong), FdpError::Invalid(_)) => {
                    FdpError::InvalidId { id: wrong.0, count: self.ids.into() }
                }
                (_, failed) => failed,
            }
        })
    }

    fn reported_events(&self, id: PlacementId) -> Result<Vec<(EventType, bool)>, FdpError> {
        let command = NvmeCommand::get_reported(self.nsid, id);
        let (count, bytes) = self.execute(&command, Transfer::In(command::REPORTED_SIZE))?;
        Ok(wire::decode_reported(&bytes, usize::from(count.to_le_bytes()[0])))
    }

    fn report_events(
        &self,
        id: PlacementId,
        events: &[EventType],
        enable: bool,
    ) -> Result<(), FdpError> {
        let kinds: Vec<u8> = events.iter().take(255).map(|kind| *kind as u8).collect();
        let count = u8::try_from(kinds.len()).expect("at most 255");
        let command = NvmeCommand::set_reported(self.nsid, id, count, enable);
        self.execute(&command, Transfer::Out(&kinds)).map(drop)
    }
}

#[cfg(test)]
mod tests;
