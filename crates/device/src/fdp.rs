//! Flexible Data Placement (NVMe TP4146; NVM Express Base 2.1, 3.2.4): a drive that lets its host
//! say which writes belong together, and reports the outcome.
//!
//! A *reclaim unit* is the unit that the drive erases as a whole. A *reclaim unit handle* points to the
//! reclaim unit that is being filled; writes with different handles never share one. A namespace
//! has a list of handles, and a [`PlacementId`] on a write is an index into it.
//!
//! The structures here carry the fields of the specification under plainer names, each with its
//! abbreviation. A model of a drive fills them in; a network target, an initiator or a passthrough
//! to a real drive turns them into bytes and back.

pub mod controller;
pub mod wire;

use esker_base::{ErrorKind, Lba, LbaCount};
use thiserror::Error;

use crate::PlacementId;

/// Data placement of one namespace, and of the endurance group that its drive is.
///
/// Everything but [`DataPlacement::handles`], [`DataPlacement::update`] and the event settings
/// concerns the whole drive and reads the same through each of its namespaces.
pub trait DataPlacement: Send + Sync {
    /// The drive's name: namespaces of one drive, and no others, say the same.
    fn drive(&self) -> &str;

    /// Configurations that the drive offers (log page 20h); never empty.
    fn configurations(&self) -> Vec<Configuration>;

    /// The configuration in force, by index; `None` while placement is disabled (feature 1Dh).
    fn enabled(&self) -> Option<usize>;

    /// Enables a configuration, or disables placement (feature 1Dh).
    ///
    /// # Errors
    /// While namespaces exist, or when there is no such configuration.
    fn enable(&self, configuration: Option<usize>) -> Result<(), FdpError>;

    /// Returns the user of each reclaim unit handle (log page 21h).
    ///
    /// # Errors
    /// While placement is disabled.
    fn usage(&self) -> Result<Vec<HandleUse>, FdpError>;

    /// Bytes written by the host and to the media (log page 22h), exact.
    ///
    /// # Errors
    /// While placement is disabled.
    fn statistics(&self) -> Result<Statistics, FdpError>;

    /// The most recent events, oldest first (log page 23h).
    ///
    /// # Errors
    /// While placement is disabled.
    fn events(&self, reporter: Reporter) -> Result<Vec<Event>, FdpError>;

    /// The state of the drive's media (log page 09h); known with placement disabled too.
    fn endurance(&self) -> Endurance;

    /// The namespace's handles in the order of its placement ids (reclaim unit handle status).
    ///
    /// # Errors
    /// While placement is disabled.
    fn handles(&self) -> Result<Vec<HandleStatus>, FdpError>;

    /// Points the handles of these placement ids to empty reclaim units (reclaim unit handle
    /// update). All of them or, when an id is wrong, none.
    ///
    /// # Errors
    /// While placement is disabled, or when an id is not the namespace's.
    fn update(&self, ids: &[PlacementId]) -> Result<(), FdpError>;

    /// Which events the handle of a placement id reports, of all kinds it could (feature 1Eh).
    ///
    /// # Errors
    /// While placement is disabled, or when the id is not the namespace's.
    fn reported_events(&self, id: PlacementId) -> Result<Vec<(EventType, bool)>, FdpError>;

    /// Makes the handle of a placement id report events of these kinds, or no longer
    /// (feature 1Eh).
    ///
    /// # Errors
    /// While placement is disabled, or when the id is not the namespace's.
    fn report_events(
        &self,
        id: PlacementId,
        events: &[EventType],
        enable: bool,
    ) -> Result<(), FdpError>;
}

/// One configuration (FDP configuration descriptor).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Reclaim groups (NRG). Hosts leave drives with more than one alone.
    pub reclaim_groups: u32,
    /// How many of the upper bits of a placement id name the reclaim group (RGIF).
    pub group_bits: u8,
    /// The handles, each one's isolation (NRUH of them).
    pub handles: Vec<Isolation>,
    /// Placement ids a namespace may have (MAXPIDS + 1).
    pub max_placement_ids: u16,
    /// Namespaces the endurance group may have (NNSS).
    pub max_namespaces: u32,
    /// The nominal size of a reclaim unit in bytes (RUNS).
    pub reclaim_unit_bytes: u64,
    /// Seconds after which an unfinished reclaim unit may be taken from its handle (ERUTL); zero
    /// is never.
    pub time_limit_s: u32,
    /// Whether a volatile write cache is present with this configuration (FDPVWC).
    pub volatile_write_cache: bool,
    /// Whether the configuration may be enabled.
    pub is_valid: bool,
}

/// Separation that a handle gives (reclaim unit handle type).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Host writes are apart; data moved by cleaning may be mixed with that of other handles.
    Initially,
    /// Apart for ever: cleaning moves it only to reclaim units of the same handle.
    Persistently,
}

/// User of a handle (reclaim unit handle attributes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleUse {
    /// Nobody.
    Unused,
    /// A namespace, which named it when it was created.
    Host,
    /// The drive, for namespaces that named none.
    Controller,
}

/// Counted since the configuration was enabled, in bytes. Media over host is the write
/// amplification factor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Host bytes with metadata written (HBMW).
    pub host_bytes: u128,
    /// Media bytes with metadata written (MBMW): the host's and the copies made by cleaning.
    pub media_bytes: u128,
    /// Media bytes erased (MBE).
    pub erased_bytes: u128,
}

impl Statistics {
    /// The write amplification factor, media bytes over host bytes; 1 before anything is written.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a ratio of counters
    pub fn write_amplification(&self) -> f64 {
        if self.host_bytes == 0 { 1.0 } else { self.media_bytes as f64 / self.host_bytes as f64 }
    }
}

/// Cause of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reporter {
    /// Actions of the host (types 00h to 7Fh).
    Host,
    /// Actions of the drive (types 80h to FFh).
    Controller,
}

/// The kinds of event, with the numbers of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum EventType {
    /// A handle left its reclaim unit before that was full.
    NotFullyWritten = 0x00,
    /// A reclaim unit was left unfinished for longer than the time limit.
    TimeLimitExceeded = 0x01,
    /// A reset of the controller changed the reclaim units that handles point to.
    ControllerReset = 0x02,
    /// A write carried a placement id that is not the namespace's.
    InvalidPlacementId = 0x03,
    /// Cleaning moved valid data of the host.
    MediaReallocated = 0x80,
    /// The drive pointed a handle to another reclaim unit without being told.
    HandleModified = 0x81,
}

impl EventType {
    /// Every kind, in the order of the numbers.
    pub const ALL: [EventType; 6] = [
        EventType::NotFullyWritten,
        EventType::TimeLimitExceeded,
        EventType::ControllerReset,
        EventType::InvalidPlacementId,
        EventType::MediaReallocated,
        EventType::HandleModified,
    ];

    /// Whose events these are.
    #[must_use]
    pub fn reporter(self) -> Reporter {
        if (self as u8) < 0x80 { Reporter::Host } else { Reporter::Controller }
    }
}

/// One event (FDP event descriptor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind of event.
    pub kind: EventType,
    /// When, in milliseconds of the drive's clock.
    pub timestamp_ms: u64,
    /// The placement id it concerns (valid: PIV).
    pub placement: Option<PlacementId>,
    /// The namespace it concerns (valid: NSIDV).
    pub namespace: Option<u32>,
    /// The reclaim group and the reclaim unit handle it concerns (valid: LV).
    pub location: Option<(u16, u16)>,
    /// For [`EventType::MediaReallocated`]: how many LBAs were moved, and the first of them if the
    /// drive tells.
    pub moved: Option<(u16, Option<Lba>)>,
}

/// One handle of a namespace (reclaim unit handle status descriptor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleStatus {
    /// The id that writes carry to use it (PID).
    pub placement: PlacementId,
    /// The handle's number on the drive (RUHID).
    pub handle: u16,
    /// Seconds until its reclaim unit's time limit (EARUTR); zero when there is none.
    pub time_left_s: u32,
    /// How many LBAs its reclaim unit still takes (RUAMW).
    pub writable: LbaCount,
}

/// The state of a drive's media (endurance group information).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endurance {
    /// Rated life used up, in percent; may exceed 100.
    pub used_percent: u8,
    /// Spare capacity left, in percent of the drive's initial spare.
    pub spare_percent: u8,
    /// Bytes the host has read.
    pub host_read_bytes: u128,
    /// Bytes the host has written.
    pub host_written_bytes: u128,
    /// Bytes written to the media.
    pub media_written_bytes: u128,
    /// Read commands of the host.
    pub host_reads: u128,
    /// Write commands of the host.
    pub host_writes: u128,
    /// Bytes the drive offers to namespaces.
    pub capacity_bytes: u128,
    /// Bytes of these that no namespace has.
    pub unallocated_bytes: u128,
}

/// Why a drive refused something about placement.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FdpError {
    /// Placement is disabled (status 29h, FDP Disabled).
    #[error("data placement is disabled on {drive}: enable a configuration first")]
    Disabled {
        /// The drive.
        drive: String,
    },
    /// An id is not one of the namespace's (status 02h, Invalid Field in Command).
    #[error("placement id {id} is not one of the namespace's: it has 0 to {count}, exclusive")]
    InvalidId {
        /// The wrong id.
        id: u16,
        /// How many ids the namespace has.
        count: usize,
    },
    /// Not now (status 0Ch, Command Sequence Error).
    #[error("{0}")]
    Sequence(String),
    /// There is no such thing (status 02h, Invalid Field in Command).
    #[error("{0}")]
    Invalid(String),
}

impl FdpError {
    /// The remedy for callers.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            FdpError::Disabled { .. } => ErrorKind::Unsupported,
            FdpError::InvalidId { .. } | FdpError::Invalid(_) => ErrorKind::Invalid,
            FdpError::Sequence(_) => ErrorKind::Conflict,
        }
    }
}
