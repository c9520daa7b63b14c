//! A frame of the write buffer: some records, all or none of which count.
//!
//! Envelope: address = offset in the ring, epoch of the ring; generation = number of the frame. Body: 8 seqno of the
//! first record, 4 CRC of the frame before, then records behind their count of 4 bytes, then 8 incarnation, 1 frames before
//! it that were in flight. The last two are not in frames of earlier software, which had one frame in flight. Records:
//!
//! | kind | fields |
//! | --- | --- |
//! | 1 write | 8 lineage, 8 block, 4 bytes, data |
//! | 2 zero | 8 lineage, 8 block, 8 blocks, 1 whether it is applied at once |
//! | 3 to 7 | a row of the catalogue to put, or an id to remove |
//!
//! Each record has a seqno, one more than the record before it.

use esker_base::codec::{Decoder, Encoder};
use esker_base::units::to_usize;

use crate::omf::envelope::{self, Address, FormatError, Kind};
use crate::omf::root::{LineageRow, SnapshotRow, VolumeRow};
use crate::types::id::{
    Block, FrameSeq, Incarnation, LineageId, PoolUuid, Seqno, SnapshotId, VolumeId,
};
use crate::types::{BLOCK_SIZE, u32_of};

/// A change of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    PutLineage(LineageRow),
    PutVolume(VolumeRow),
    PutSnapshot(SnapshotRow),
    RemoveLineage(LineageId),
    RemoveVolume(VolumeId),
    RemoveSnapshot(SnapshotId),
}

/// A record. `D` holds the data: a slice on its way to the medium, a vector on its way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<D> {
    /// Blocks from `block` on.
    Write { lineage: LineageId, block: Block, data: D },
    /// Blocks that read as zeroes from now on.
    Zero { lineage: LineageId, block: Block, blocks: u64, at_once: bool },
    /// The catalogue changed.
    Change(Change),
}

/// Bytes before the data of a write; behind it are none.
pub(crate) const WRITE_OVERHEAD: usize = 21;
/// Bytes of a frame without records.
pub(crate) const FRAME_OVERHEAD: usize = envelope::ENVELOPE + 16 + 9;

/// The head of a frame: all but its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) offset: u64,
    pub(crate) epoch: u64,
    pub(crate) number: FrameSeq,
    pub(crate) first: Seqno,
    pub(crate) previous_crc: u32,
    /// The one of the pool that wrote it; 0 if earlier software did.
    pub(crate) incarnation: Incarnation,
    /// Frames right before it that were not known to be durable when it was begun.
    pub(crate) in_flight: u8,
}

impl FrameHead {
    /// The first of the frames that were not known to be durable when it was begun; itself if all before it were.
    pub(crate) fn first_in_flight(&self) -> FrameSeq {
        FrameSeq(self.number.0.saturating_sub(self.in_flight.into()))
    }

    /// Whether software wrote it that had one frame in flight.
    pub(crate) fn is_of_earlier_software(&self) -> bool {
        self.incarnation == Incarnation(0)
    }
}

/// A frame that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) head: FrameHead,
    pub(crate) records: Vec<Record<Vec<u8>>>,
    /// Its bytes, without padding.
    pub(crate) length: usize,
    pub(crate) crc: u32,
}

/// Lays a frame out at the start of `into`, which has room for it, and zeroes behind it. Returns its checksum.
pub(crate) fn encode_into(
    pool: PoolUuid,
    head: &FrameHead,
    records: &[Record<&[u8]>],
    into: &mut [u8],
) -> u32 {
    let address = Address(head.offset, head.epoch, head.number.0);
    let mut e = envelope::begin(Kind::Frame, pool, address);
    e.u64(head.first.0).u32(head.previous_crc).u32(u32_of(records.len()));
    let mut end = 0;
    let mut put = |bytes: &[u8]| {
        into[end..end + bytes.len()].copy_from_slice(bytes);
        end += bytes.len();
    };
    for record in records {
        match record {
            Record::Write { lineage, block, data } => {
                e.u8(1).u64(lineage.0).u64(block.0).u32(u32_of(data.len()));
                put(&e.0);
                put(data);
                e.0.clear();
            }
            Record::Zero { lineage, block, blocks, at_once } => {
                e.u8(2).u64(lineage.0).u64(block.0).u64(*blocks).u8(u8::from(*at_once));
            }
            Record::Change(change) => change.encode(&mut e),
        }
    }
    e.u64(head.incarnation.0).u8(head.in_flight);
    put(&e.0);
    into[end..].fill(0);
    envelope::finish_in(&mut into[..end])
}

fn crc_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes"))
}

/// How long the frame at the start of `bytes` says it is: enough to know how much to read.
pub(crate) fn length_of(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
    Some(to_usize(length.into()))
}

/// Offset, epoch and number of a frame, as an envelope at the start of `bytes` says, unverified.
pub(crate) fn peek(bytes: &[u8]) -> Option<(u64, u64, FrameSeq)> {
    let mut head = Decoder::new(bytes);
    let is_frame = head.u32("magic").ok()? == u32::from_le_bytes(*b"EKVP")
        && head.u16("version").ok()? == envelope::VERSION
        && head.u16("kind").ok()? == Kind::Frame as u16;
    let mut address = Decoder::new(bytes.get(32..)?);
    let found = (
        address.u64("offset").ok()?,
        address.u64("epoch").ok()?,
        FrameSeq(address.u64("number").ok()?),
    );
    is_frame.then_some(found)
}

/// The frame of this pool at this offset of the ring of this epoch.
pub(crate) fn decode(
    bytes: &[u8],
    pool: PoolUuid,
    offset: u64,
    epoch: u64,
) -> Result<Frame, FormatError> {
    let opened = envelope::open(Kind::Frame, bytes)?;
    envelope::expect("the pool", opened.pool.0, pool.0)?;
    envelope::expect("the offset", opened.address.0.into(), offset.into())?;
    envelope::expect("the epoch", opened.address.1.into(), epoch.into())?;
    let number = FrameSeq(opened.address.2);
    let mut d = opened.body;
    let first = Seqno(d.u64("seqno")?);
    let previous_crc = d.u32("previous crc")?;
    let count = envelope::count_of(&mut d, "records", 9)?;
    let mut records = Vec::with_capacity(count);
    for _ in 0..count {
        records.push(decode_record(&mut d)?);
    }
    let (incarnation, in_flight) = match d.left() {
        0 => (Incarnation(0), 0),
        _ => (Incarnation(d.u64("incarnation")?), d.u8("in flight")?),
    };
    let head = FrameHead { offset, epoch, number, first, previous_crc, incarnation, in_flight };
    Ok(Frame { head, records, length: opened.length, crc: crc_of(bytes) })
}

fn decode_record(d: &mut Decoder<'_>) -> Result<Record<Vec<u8>>, FormatError> {
    let kind = d.u8("record")?;
    Ok(match kind {
        1 => {
            let (lineage, block) = (LineageId(d.u64("lineage")?), Block(d.u64("block")?));
            let bytes = to_usize(d.u32("bytes")?.into());
            if bytes == 0 || !bytes.is_multiple_of(BLOCK_SIZE) {
                return Err(FormatError::Value { what: "bytes of a write", found: bytes as u64 });
            }
            Record::Write { lineage, block, data: d.bytes(bytes, "data")?.to_vec() }
        }
        2 => Record::Zero {
            lineage: LineageId(d.u64("lineage")?),
            block: Block(d.u64("block")?),
            blocks: d.u64("blocks")?,
            at_once: d.u8("at once")? != 0,
        },
        _ => Record::Change(Change::decode(kind, d)?),
    })
}

impl Change {
    /// Bytes in a frame.
    pub(crate) fn size(&self) -> usize {
        let mut e = Encoder::default();
        self.encode(&mut e);
        e.0.len()
    }

    fn encode(&self, e: &mut Encoder) {
        match self {
            Change::PutLineage(row) => row.encode(e.u8(3)),
            Change::PutVolume(row) => row.encode(e.u8(4)),
            Change::PutSnapshot(row) => row.encode(e.u8(5)),
            Change::RemoveLineage(id) => drop(e.u8(6).u64(id.0)),
            Change::RemoveVolume(id) => drop(e.u8(7).u64(id.0)),
            Change::RemoveSnapshot(id) => drop(e.u8(8).u64(id.0)),
        }
    }

    fn decode(kind: u8, d: &mut Decoder<'_>) -> Result<Change, FormatError> {
        Ok(match kind {
            3 => Change::PutLineage(LineageRow::decode(d)?),
            4 => Change::PutVolume(VolumeRow::decode(d)?),
            5 => Change::PutSnapshot(SnapshotRow::decode(d)?),
            6 => Change::RemoveLineage(LineageId(d.u64("lineage")?)),
            7 => Change::RemoveVolume(VolumeId(d.u64("volume")?)),
            8 => Change::RemoveSnapshot(SnapshotId(d.u64("snapshot")?)),
            _ => return Err(FormatError::Value { what: "a kind of record", found: kind.into() }),
        })
    }
}
