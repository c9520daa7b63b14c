//! Answers of a pool, as JSON: the same from a pool of this process and over the socket.

#![allow(missing_docs)] // a comment on a field becomes its description in the description of all requests

use esker_volume::{
    Examined, MemberState, Role, SnapshotInfo, SpaceUse, Status, VolumeInfo, VolumeOptions,
    VolumeSpace, WriteCounts,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hosts::{HostView, Hosts};

/// How a pool is, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PoolState {
    /// All is well, but for what the alarms say.
    Online,
    /// Something is missing that can be made good.
    Degraded,
    /// Something is lost.
    Damaged,
    /// Nothing is written any more.
    Stopped,
}

impl PoolState {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PoolState::Online => "online",
            PoolState::Degraded => "degraded",
            PoolState::Damaged => "damaged",
            PoolState::Stopped => "stopped",
        }
    }
}

/// How a pool is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PoolView {
    pub name: String,
    pub uuid: String,
    pub state: PoolState,
    pub parity: u8,
    pub width: u16,
    pub epoch: u64,
    pub incarnation: u64,
    pub members: Vec<MemberView>,
    pub space: SpaceView,
    pub log: LogView,
    /// Segments by how many of their chunks are lost: none, one, two, more.
    pub segments: [u64; 4],
    pub beyond_repair: u64,
    pub rebuild: Option<RebuildView>,
    /// Lineages that are being swept: something of them was deleted, or was written over by a clone.
    pub sweeping: u64,
    pub scrub: Option<ScrubView>,
    pub written: WrittenView,
    pub map_bytes: u64,
    pub map_loads: u64,
    pub alarms: Vec<AlarmView>,
    pub remarks: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemberView {
    pub index: u16,
    pub uuid: String,
    pub device: Option<String>,
    pub last_name: String,
    pub role: String,
    pub state: String,
    pub bytes: u64,
    pub free_slots: u64,
    pub slots: u64,
    pub read_errors: u64,
    pub write_errors: u64,
    pub checksum_errors: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SpaceView {
    pub raw: u64,
    pub free: u64,
    pub waiting: u64,
    pub parity: u64,
    pub garbage: u64,
    pub live: u64,
    pub metadata: u64,
    pub reserve: u64,
    /// Bytes that volumes can hold at most, as they are stored.
    pub usable: u64,
    /// Of that, what nothing has yet.
    pub available: u64,
    /// Sizes of all volumes together, without those in the trash. More than usable is overcommitted: writes fail
    /// when the space is full, and before volumes are.
    pub provisioned: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogView {
    pub members: Vec<u16>,
    pub bytes: u64,
    pub used: u64,
    pub pending: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RebuildView {
    pub chunks: u64,
    pub bytes_left: u64,
    pub bytes_done: u64,
    /// The drives' time that it takes while volumes are used, in thousandths.
    pub share: u64,
    pub eta_secs: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ScrubView {
    pub is_running: bool,
    pub bytes: u64,
    pub errors: u64,
    /// When the last one ended that read everything, in seconds since 1970.
    pub finished: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WrittenView {
    pub user: u64,
    pub destaged: u64,
    pub cleaned: u64,
    pub metadata: u64,
    pub rebuilt: u64,
    pub checkpoints: u64,
    pub reconstructed: u64,
    pub salvaged: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AlarmView {
    /// For ever the same, for programs.
    pub code: String,
    /// One sentence.
    pub text: String,
    /// The cure.
    pub action: String,
    /// The command to run; words in capitals stand for what has to be chosen.
    pub command: String,
}

/// A volume.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct VolumeView {
    pub id: u64,
    pub name: String,
    /// Changes when it is set back to a snapshot.
    pub generation: u64,
    /// Its size, as a host sees it.
    pub bytes: u64,
    /// Whether its blocks are compressed when they leave the write buffer.
    pub compression: bool,
    /// The most operations a second; 0 for no limit.
    pub iops_limit: u64,
    /// The most bytes a second; 0 for no limit.
    pub bytes_limit: u64,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// In the trash: until when, in seconds since 1970.
    pub trashed_until: Option<u64>,
    pub snapshots: Vec<SnapshotView>,
    /// Hosts that may use it.
    pub hosts: Vec<HostView>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotView {
    /// The volume.
    pub volume: String,
    pub id: u64,
    pub name: String,
    pub bytes: u64,
    pub made: u64,
}

/// A volume that hosts may use.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExportView {
    pub(crate) volume: String,
    /// The snapshot, where one is exported.
    pub(crate) snapshot: Option<String>,
    /// Under which NQN hosts find it.
    pub(crate) nqn: String,
    /// Hosts that may use it.
    pub(crate) hosts: Vec<HostView>,
    /// Where hosts reach it.
    pub(crate) addresses: Vec<String>,
    /// Where hosts with a key for TLS reach it.
    pub(crate) tls_addresses: Vec<String>,
}

/// The space of a volume.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DuView {
    pub provisioned: u64,
    pub used: u64,
    pub stored: u64,
    pub unique: u64,
    pub shared: u64,
    /// Of what is stored, that which its ancestors hold.
    #[serde(default)]
    pub inherited: u64,
    /// Bytes that its ancestors hold and nobody shows any more: they are freed within a minute.
    #[serde(default)]
    pub unswept: u64,
}

/// The label of a device.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LabelView {
    pub device: String,
    pub pool: String,
    pub uuid: String,
    pub drive: String,
    pub index: u16,
    pub role: String,
    pub state: String,
    pub sequence: u64,
    pub epoch: u64,
    pub incarnation: u64,
    pub checkpoint: u64,
    pub is_clean: bool,
    pub members: usize,
    pub parity: u8,
}

fn role(role: Role) -> String {
    match role {
        Role::Drive => "drive",
        Role::Buffer => "buffer",
    }
    .to_owned()
}

pub(super) fn state(state: MemberState) -> String {
    match state {
        MemberState::Online => "online",
        MemberState::Draining => "draining",
        MemberState::Faulted => "faulted",
        MemberState::Retired => "retired",
        MemberState::Missing => "missing",
        MemberState::Rejoining => "rejoining",
    }
    .to_owned()
}

impl PoolView {
    pub(crate) fn new(status: &Status, provisioned: u64, remarks: &[String]) -> PoolView {
        let has = |code: &str| status.alarms.iter().any(|alarm| alarm.code == code);
        let is_out = |state| matches!(state, MemberState::Faulted | MemberState::Missing);
        let is_faulted = status.members.iter().any(|one| is_out(one.state));
        let of_pool = if has("POOL_STOPPED") {
            PoolState::Stopped
        } else if has("DATA_LOST") {
            PoolState::Damaged
        } else if is_faulted || has("DEGRADED") || has("BUFFER_DEGRADED") {
            PoolState::Degraded
        } else {
            PoolState::Online
        };
        let SpaceUse { raw, free, waiting, parity, garbage, live, metadata, reserve, usable } =
            status.space;
        let WriteCounts {
            user,
            destaged,
            cleaned,
            metadata: map,
            rebuilt,
            checkpoints,
            reconstructed,
            salvaged,
        } = status.written;
        let log = &status.log;
        PoolView {
            name: status.name.clone(),
            uuid: status.uuid.to_string(),
            state: of_pool,
            parity: status.parity,
            width: status.width,
            epoch: status.epoch.0,
            incarnation: status.incarnation.0,
            members: status.members.iter().map(MemberView::new).collect(),
            space: SpaceView {
                raw,
                free,
                waiting,
                parity,
                garbage,
                live,
                metadata,
                reserve,
                usable,
                available: usable.saturating_sub(live),
                provisioned,
            },
            log: LogView {
                members: log.members.iter().map(|index| index.0).collect(),
                bytes: log.bytes,
                used: log.used,
                pending: log.pending,
            },
            segments: status.segments,
            beyond_repair: status.beyond_repair,
            rebuild: status.rebuild.map(|rebuild| RebuildView {
                chunks: rebuild.chunks,
                bytes_left: rebuild.bytes_left,
                bytes_done: rebuild.bytes_done,
                share: rebuild.share,
                eta_secs: rebuild.eta.map(|eta| eta.as_secs()),
            }),
            sweeping: status.sweeping,
            scrub: status.scrub.as_ref().map(|scrub| ScrubView {
                is_running: scrub.is_running,
                bytes: scrub.bytes,
                errors: scrub.errors,
                finished: scrub.finished,
            }),
            written: WrittenView {
                user,
                destaged,
                cleaned,
                metadata: map,
                rebuilt,
                checkpoints,
                reconstructed,
                salvaged,
            },
            map_bytes: status.map_bytes,
            map_loads: status.map_loads,
            alarms: status.alarms.iter().map(AlarmView::new).collect(),
            remarks: remarks.to_vec(),
        }
    }
}

impl MemberView {
    fn new(member: &esker_volume::MemberStatus) -> MemberView {
        MemberView {
            index: member.index.0,
            uuid: member.uuid.to_string(),
            device: member.device.clone(),
            last_name: member.last_name.clone(),
            role: role(member.role),
            state: state(member.state),
            bytes: member.bytes,
            free_slots: member.slots.0,
            slots: member.slots.1,
            read_errors: member.read_errors,
            write_errors: member.write_errors,
            checksum_errors: member.checksum_errors,
        }
    }
}

impl AlarmView {
    fn new(alarm: &esker_volume::Alarm) -> AlarmView {
        AlarmView {
            code: alarm.code.to_owned(),
            text: alarm.text.clone(),
            action: alarm.action.clone(),
            command: alarm.command.clone(),
        }
    }
}

impl SnapshotView {
    pub(crate) fn new(volume: &str, info: &SnapshotInfo) -> SnapshotView {
        let (volume, name) = (volume.to_owned(), info.name.clone());
        SnapshotView { volume, id: info.id.0, name, bytes: info.bytes, made: info.made }
    }
}

impl VolumeView {
    pub(crate) fn new(info: &VolumeInfo) -> VolumeView {
        let VolumeOptions { compression, iops_limit, bytes_limit } = info.options;
        let snapshots = info.snapshots.iter().map(|one| SnapshotView::new(&info.name, one));
        VolumeView {
            id: info.id.0,
            name: info.name.clone(),
            generation: info.generation,
            bytes: info.bytes,
            compression,
            iops_limit,
            bytes_limit,
            made: info.made,
            trashed_until: info.trashed_until,
            snapshots: snapshots.collect(),
            hosts: Hosts::of(info).0,
        }
    }
}

impl From<VolumeSpace> for DuView {
    fn from(space: VolumeSpace) -> DuView {
        let VolumeSpace { provisioned, used, stored, unique, shared, inherited, unswept } = space;
        DuView { provisioned, used, stored, unique, shared, inherited, unswept }
    }
}

impl LabelView {
    #[must_use]
    pub fn new(device: &str, found: &Examined) -> LabelView {
        LabelView {
            device: device.to_owned(),
            pool: found.pool.clone(),
            uuid: found.uuid.to_string(),
            drive: found.drive.to_string(),
            index: found.index.0,
            role: role(found.role),
            state: state(found.state),
            sequence: found.sequence,
            epoch: found.epoch.0,
            incarnation: found.incarnation.0,
            checkpoint: found.checkpoint,
            is_clean: found.is_clean,
            members: found.members,
            parity: found.parity,
        }
    }
}
