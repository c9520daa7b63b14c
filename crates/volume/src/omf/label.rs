//! The label: who a drive is, which pool it belongs to, with whom, and where the checkpoint is. Four copies a drive:
//! two at its head, two at its tail. A change is written to the copies of the older pair.
//!
//! Envelope: address = copy, member index; generation = sequence number of the label.
//!
//! | size | field |
//! | --- | --- |
//! | 16 | the drive |
//! | 8, 8, 8 | sequence number, configuration epoch, incarnation |
//! | 1 | flags: 1 closed cleanly |
//! | 2 + n | the pool's name |
//! | 1, 2, 1 | parities, width, percent spare |
//! | 4, 8, 8, 8 | bytes of a unit, a chunk, the write buffer of a drive, a checkpoint area |
//! | 1, 8, 4, 4 | checkpoint: area, number, bytes, CRC-32C |
//! | 8, 8 | write buffer: epoch, bytes of the ring |
//! | 4 + 2n | members that have the write buffer |
//! | 4 + n | members: id 16, role 1, state 1, epoch of the state 8, bytes 8, last label 8, seconds when it went missing 8,
//! name of its device 2 + n |
//! | 8, 8 | up to where the write buffer was durable: the next frame, its first seqno |
//!
//! The last two are not in labels of earlier software.

use esker_base::codec::Encoder;

use crate::omf::envelope::{
    self, Address, ENVELOPE, FormatError, Kind, count_of, name_of, u128_of,
};
use crate::omf::mark::LogEnd;
use crate::types::id::{DriveIndex, DriveUuid, Epoch, Incarnation, PoolUuid};
use crate::types::{MEMBERS_MAX, NAME_MAX, PARITY_MAX, WIDTH_MAX, u32_of};

/// Bytes of a copy.
pub(crate) const LABEL_BYTES: u64 = 16 << 10;
/// Copies of the label on a drive.
pub(crate) const COPIES: u8 = 4;

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It holds chunks of segments.
    Drive,
    /// It holds the write buffer.
    Buffer,
}

/// How a member stands in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It serves.
    Online,
    /// It serves, gets nothing new, and what it has is moved away.
    Draining,
    /// It failed, or was missing for too long; nothing is read from it, and it is refused if it returns.
    Faulted,
    /// It was removed or replaced, and is refused if it returns.
    Retired,
    /// It was not there when the pool was opened. What it has is computed from parities until it returns.
    Missing,
    /// It returned, and serves; what it has is still to be verified.
    Rejoining,
}

impl MemberState {
    /// Whether it votes, and is written to.
    pub(crate) fn is_active(self) -> bool {
        matches!(self, MemberState::Online | MemberState::Draining | MemberState::Rejoining)
    }
}

/// The most bytes of a device's name that a label keeps: the last ones, which tell paths apart.
const DEVICE_NAME_MAX: usize = 64;

/// A member of the pool, as its label has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) uuid: DriveUuid,
    pub(crate) role: Role,
    pub(crate) state: MemberState,
    /// Since which epoch it is in this state.
    pub(crate) since: Epoch,
    pub(crate) bytes: u64,
    /// While it is missing or out: the number of the last label that it was given.
    pub(crate) last_label: u64,
    /// While it is missing: since when, in seconds since 1970.
    pub(crate) gone_at: u64,
    /// The name that its device had when it was last there.
    pub(crate) name: String,
}

/// Sizes that were decided when the pool was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) parity: u8,
    pub(crate) width: u16,
    pub(crate) spare_percent: u8,
    pub(crate) unit_bytes: u32,
    pub(crate) chunk_bytes: u64,
    /// The write buffer's region on each drive.
    pub(crate) log_bytes: u64,
    pub(crate) root_bytes: u64,
}

/// Where a checkpoint is: in one of the two areas of every drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootPointer {
    pub(crate) area: u8,
    pub(crate) number: u64,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

/// The write buffer: which members have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogPlace {
    pub(crate) epoch: u64,
    pub(crate) ring_bytes: u64,
    pub(crate) members: Vec<DriveIndex>,
    /// Up to where it was durable when the label was written; none if earlier software wrote it.
    pub(crate) durable: Option<LogEnd>,
}

/// The part that the labels of all members have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) pool: PoolUuid,
    pub(crate) name: String,
    pub(crate) sequence: u64,
    pub(crate) epoch: Epoch,
    pub(crate) incarnation: Incarnation,
    pub(crate) is_clean: bool,
    pub(crate) shape: Shape,
    pub(crate) root: RootPointer,
    pub(crate) log: LogPlace,
    pub(crate) members: Vec<Member>,
}

/// The label of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) index: DriveIndex,
    pub(crate) drive: DriveUuid,
    pub(crate) config: Config,
}

impl Label {
    /// Whether both are labels of one member of one pool.
    pub(crate) fn is_same_drive(&self, other: &Label) -> bool {
        self.config.pool == other.config.pool && self.drive == other.drive
    }

    pub(crate) fn encode(&self, copy: u8) -> Vec<u8> {
        let Config {
            pool,
            name,
            sequence,
            epoch,
            incarnation,
            is_clean,
            shape,
            root,
            log,
            members,
        } = &self.config;
        let address = Address(copy.into(), self.index.0.into(), *sequence);
        let mut e = envelope::begin(Kind::Label, *pool, address);
        e.bytes(&self.drive.0.to_le_bytes()).u64(*sequence).u64(epoch.0).u64(incarnation.0);
        e.u8(u8::from(*is_clean)).bytes16(name.as_bytes());
        e.u8(shape.parity).u16(shape.width).u8(shape.spare_percent);
        e.u32(shape.unit_bytes).u64(shape.chunk_bytes).u64(shape.log_bytes).u64(shape.root_bytes);
        e.u8(root.area).u64(root.number).u32(root.bytes).u32(root.crc);
        e.u64(log.epoch).u64(log.ring_bytes).u32(u32_of(log.members.len()));
        log.members.iter().for_each(|member| {
            e.u16(member.0);
        });
        e.u32(u32_of(members.len()));
        members.iter().for_each(|member| member.encode(&mut e));
        log.durable.iter().for_each(|end| end.encode(&mut e));
        envelope::finish(e)
    }

    /// The label in the bytes of copy `copy`.
    pub(crate) fn decode(bytes: &[u8], copy: u8) -> Result<Label, FormatError> {
        let opened = envelope::open(Kind::Label, bytes)?;
        envelope::expect("the copy", opened.address.0.into(), copy.into())?;
        let mut d = opened.body;
        let drive = DriveUuid(u128_of(&mut d, "drive")?);
        let sequence = d.u64("sequence")?;
        let (epoch, incarnation) = (Epoch(d.u64("epoch")?), Incarnation(d.u64("incarnation")?));
        let is_clean = d.u8("flags")? & 1 != 0;
        let name = name_of(&mut d, "name")?;
        let (parity, width) = (d.u8("parity")?, d.u16("width")?);
        let shape = Shape {
            parity,
            width,
            spare_percent: d.u8("spare")?,
            unit_bytes: d.u32("unit")?,
            chunk_bytes: d.u64("chunk")?,
            log_bytes: d.u64("log")?,
            root_bytes: d.u64("root bytes")?,
        };
        shape.check()?;
        let root = RootPointer {
            area: d.u8("area")?,
            number: d.u64("root")?,
            bytes: d.u32("root length")?,
            crc: d.u32("root crc")?,
        };
        let (log_epoch, ring_bytes) = (d.u64("log epoch")?, d.u64("ring bytes")?);
        let count = count_of(&mut d, "log members", 2)?;
        let log_members = (0..count).map(|_| Ok(DriveIndex(d.u16("log member")?)));
        let log_members = log_members.collect::<Result<Vec<_>, FormatError>>()?;
        let count = count_of(&mut d, "members", Member::BYTES)?;
        if count > MEMBERS_MAX {
            return Err(FormatError::Value { what: "members", found: count as u64 });
        }
        let members = (0..count).map(|_| Member::decode(&mut d));
        let members = members.collect::<Result<Vec<_>, FormatError>>()?;
        let durable = match d.left() {
            0 => None,
            _ => Some(LogEnd::decode(&mut d)?),
        };
        let index = u16::try_from(opened.address.1).unwrap_or(u16::MAX);
        let is_there = |index: u16| usize::from(index) < members.len();
        if let Some(bad) = log_members.iter().map(|m| m.0).chain([index]).find(|i| !is_there(*i)) {
            return Err(FormatError::Value { what: "a member", found: bad.into() });
        }
        let log = LogPlace { epoch: log_epoch, ring_bytes, members: log_members, durable };
        let pool = opened.pool;
        let config = Config {
            pool,
            name,
            sequence,
            epoch,
            incarnation,
            is_clean,
            shape,
            root,
            log,
            members,
        };
        Ok(Label { index: DriveIndex(index), drive, config })
    }
}

impl Shape {
    /// Checks what places are computed from.
    pub(crate) fn check(&self) -> Result<(), FormatError> {
        let unit = u64::from(self.unit_bytes);
        let values: [(&'static str, u64, bool); 6] = [
            ("parities", self.parity.into(), self.parity <= PARITY_MAX),
            (
                "the width",
                self.width.into(),
                self.width > self.parity.into() && self.width <= WIDTH_MAX,
            ),
            ("bytes of a unit", unit, is_size(unit, 1 << 24)),
            (
                "bytes of a chunk",
                self.chunk_bytes,
                is_size(self.chunk_bytes, 1 << 30) && self.chunk_bytes > unit,
            ),
            ("bytes of the write buffer", self.log_bytes, is_size(self.log_bytes, 1 << 40)),
            ("bytes of a checkpoint", self.root_bytes, is_size(self.root_bytes, 1 << 30)),
        ];
        match values.into_iter().find(|(_, _, is_good)| !is_good) {
            Some((what, found, _)) => Err(FormatError::Value { what, found }),
            None => Ok(()),
        }
    }
}

fn is_size(bytes: u64, most: u64) -> bool {
    bytes.is_multiple_of(4096) && (4096..=most).contains(&bytes)
}

impl Member {
    /// The least bytes of one.
    const BYTES: usize = 52;

    /// One that serves from `since` on.
    pub(crate) fn online(
        uuid: DriveUuid,
        role: Role,
        since: Epoch,
        bytes: u64,
        name: &str,
    ) -> Member {
        Member {
            uuid,
            role,
            state: MemberState::Online,
            since,
            bytes,
            last_label: 0,
            gone_at: 0,
            name: kept_name(name),
        }
    }

    fn encode(&self, e: &mut Encoder) {
        let role = match self.role {
            Role::Drive => 0,
            Role::Buffer => 1,
        };
        let state = match self.state {
            MemberState::Online => 0,
            MemberState::Draining => 1,
            MemberState::Faulted => 2,
            MemberState::Retired => 3,
            MemberState::Missing => 4,
            MemberState::Rejoining => 5,
        };
        e.bytes(&self.uuid.0.to_le_bytes()).u8(role).u8(state).u64(self.since.0).u64(self.bytes);
        e.u64(self.last_label).u64(self.gone_at).bytes16(self.name.as_bytes());
    }

    fn decode(d: &mut esker_base::codec::Decoder<'_>) -> Result<Member, FormatError> {
        let uuid = DriveUuid(u128_of(d, "member")?);
        let role = match d.u8("role")? {
            0 => Role::Drive,
            1 => Role::Buffer,
            other => return Err(FormatError::Value { what: "a role", found: other.into() }),
        };
        let state = match d.u8("state")? {
            0 => MemberState::Online,
            1 => MemberState::Draining,
            2 => MemberState::Faulted,
            3 => MemberState::Retired,
            4 => MemberState::Missing,
            5 => MemberState::Rejoining,
            other => return Err(FormatError::Value { what: "a state", found: other.into() }),
        };
        let (since, bytes) = (Epoch(d.u64("since")?), d.u64("bytes")?);
        let (last_label, gone_at) = (d.u64("last label")?, d.u64("gone at")?);
        let name = std::str::from_utf8(d.bytes16("device")?);
        let name = name.map_err(|_| FormatError::Value { what: "a device's name", found: 0 })?;
        let name = name.to_owned();
        Ok(Member { uuid, role, state, since, bytes, last_label, gone_at, name })
    }
}

/// As much of a device's name as a label keeps.
pub(crate) fn kept_name(name: &str) -> String {
    let mut start = name.len().saturating_sub(DEVICE_NAME_MAX);
    while !name.is_char_boundary(start) {
        start += 1;
    }
    name[start..].to_owned()
}

const _: () = {
    // All that a label may hold fits a copy of it.
    let members = MEMBERS_MAX * (Member::BYTES + DEVICE_NAME_MAX + 2);
    assert!((ENVELOPE + 100 + NAME_MAX + 100 + members) as u64 <= LABEL_BYTES);
};
