//! What a pool tells, as JSON: the same from a pool of this process and over the socket.

use esker_volume::{
    Examined, MemberState, Role, SpaceUse, Status, VolumeInfo, VolumeOptions, VolumeSpace,
    WriteCounts,
};
use serde::{Deserialize, Serialize};

/// How a pool is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PoolView {
    pub(crate) name: String,
    pub(crate) uuid: String,
    /// online, degraded, damaged or stopped
    pub(crate) state: String,
    pub(crate) parity: u8,
    pub(crate) width: u16,
    pub(crate) epoch: u64,
    pub(crate) incarnation: u64,
    pub(crate) members: Vec<MemberView>,
    pub(crate) space: SpaceView,
    pub(crate) log: LogView,
    /// Segments by how many of their chunks are lost: none, one, two, more.
    pub(crate) segments: [u64; 4],
    pub(crate) beyond_repair: u64,
    pub(crate) rebuild: Option<RebuildView>,
    pub(crate) scrub: Option<ScrubView>,
    pub(crate) written: WrittenView,
    pub(crate) map_bytes: u64,
    pub(crate) map_loads: u64,
    pub(crate) alarms: Vec<AlarmView>,
    pub(crate) remarks: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MemberView {
    pub(crate) index: u16,
    pub(crate) uuid: String,
    pub(crate) device: Option<String>,
    pub(crate) last_name: String,
    pub(crate) role: String,
    pub(crate) state: String,
    pub(crate) bytes: u64,
    pub(crate) free_slots: u64,
    pub(crate) slots: u64,
    pub(crate) read_errors: u64,
    pub(crate) write_errors: u64,
    pub(crate) checksum_errors: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SpaceView {
    pub(crate) raw: u64,
    pub(crate) free: u64,
    pub(crate) waiting: u64,
    pub(crate) parity: u64,
    pub(crate) garbage: u64,
    pub(crate) live: u64,
    pub(crate) metadata: u64,
    pub(crate) reserve: u64,
    pub(crate) usable: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LogView {
    pub(crate) members: Vec<u16>,
    pub(crate) bytes: u64,
    pub(crate) used: u64,
    pub(crate) pending: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RebuildView {
    pub(crate) chunks: u64,
    pub(crate) bytes_left: u64,
    pub(crate) bytes_done: u64,
    /// The drives' time that it takes while volumes are used, in thousandths.
    pub(crate) share: u64,
    pub(crate) eta_secs: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ScrubView {
    pub(crate) is_running: bool,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    /// When the last one ended that read everything, in seconds since 1970.
    pub(crate) finished: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WrittenView {
    pub(crate) user: u64,
    pub(crate) destaged: u64,
    pub(crate) cleaned: u64,
    pub(crate) metadata: u64,
    pub(crate) rebuilt: u64,
    pub(crate) checkpoints: u64,
    pub(crate) reconstructed: u64,
    pub(crate) salvaged: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AlarmView {
    pub(crate) code: String,
    pub(crate) text: String,
    pub(crate) action: String,
}

/// A volume.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct VolumeView {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) compression: bool,
    pub(crate) iops_limit: u64,
    pub(crate) bytes_limit: u64,
    pub(crate) made: u64,
    pub(crate) trashed_until: Option<u64>,
    pub(crate) snapshots: Vec<SnapshotView>,
    pub(crate) hosts: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotView {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) made: u64,
}

/// A volume that hosts may use.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ExportView {
    pub(crate) volume: String,
    pub(crate) nqn: String,
    /// NQNs, or `*` for any host.
    pub(crate) hosts: Vec<String>,
    pub(crate) addresses: Vec<String>,
}

/// The space of a volume.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DuView {
    pub(crate) provisioned: u64,
    pub(crate) used: u64,
    pub(crate) stored: u64,
    pub(crate) unique: u64,
    pub(crate) shared: u64,
}

/// The label of a device.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LabelView {
    pub(crate) device: String,
    pub(crate) pool: String,
    pub(crate) uuid: String,
    pub(crate) drive: String,
    pub(crate) index: u16,
    pub(crate) role: String,
    pub(crate) state: String,
    pub(crate) sequence: u64,
    pub(crate) epoch: u64,
    pub(crate) incarnation: u64,
    pub(crate) checkpoint: u64,
    pub(crate) is_clean: bool,
    pub(crate) members: usize,
    pub(crate) parity: u8,
}

fn role(role: Role) -> String {
    match role {
        Role::Drive => "drive",
        Role::Buffer => "buffer",
    }
    .to_owned()
}

fn state(state: MemberState) -> String {
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
    pub(crate) fn new(status: &Status, remarks: &[String]) -> PoolView {
        let has = |code: &str| status.alarms.iter().any(|alarm| alarm.code == code);
        let is_out = |state| matches!(state, MemberState::Faulted | MemberState::Missing);
        let is_faulted = status.members.iter().any(|one| is_out(one.state));
        let of_pool = if has("POOL_STOPPED") {
            "stopped"
        } else if has("DATA_LOST") {
            "damaged"
        } else if is_faulted || has("DEGRADED") || has("BUFFER_DEGRADED") {
            "degraded"
        } else {
            "online"
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
            state: of_pool.to_owned(),
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
        let (code, text) = (alarm.code.to_owned(), alarm.text.clone());
        AlarmView { code, text, action: alarm.action.clone() }
    }
}

impl VolumeView {
    pub(crate) fn new(info: &VolumeInfo) -> VolumeView {
        let VolumeOptions { compression, iops_limit, bytes_limit } = info.options;
        let snapshots = info.snapshots.iter().map(|snapshot| SnapshotView {
            id: snapshot.id.0,
            name: snapshot.name.clone(),
            bytes: snapshot.bytes,
            made: snapshot.made,
        });
        VolumeView {
            id: info.id.0,
            name: info.name.clone(),
            bytes: info.bytes,
            compression,
            iops_limit,
            bytes_limit,
            made: info.made,
            trashed_until: info.trashed_until,
            snapshots: snapshots.collect(),
            hosts: info.hosts.clone(),
        }
    }
}

impl From<VolumeSpace> for DuView {
    fn from(space: VolumeSpace) -> DuView {
        let VolumeSpace { provisioned, used, stored, unique, shared } = space;
        DuView { provisioned, used, stored, unique, shared }
    }
}

impl LabelView {
    pub(crate) fn new(device: &str, found: &Examined) -> LabelView {
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
