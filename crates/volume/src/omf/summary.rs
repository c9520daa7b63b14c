//! The list of what a part of a segment holds: covered by the segment's parities like any other bytes.
//!
//! Envelope: address = segment, first sector; generation = generation of the segment. A list of items, 37 bytes each:
//! 1 kind (1 block, 2 leaf, 3 node), 8 lineage, 8 index, 8 birth, 4 sector, 4 bytes, 4 CRC-32C.

use crate::omf::envelope::{self, Address, FormatError, Kind, count_of};
use crate::types::id::{Generation, LineageId, PoolUuid, SegmentId, Seqno};
use crate::types::u32_of;

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemKind {
    Block = 1,
    Leaf = 2,
    Node = 3,
}

/// Some bytes of a segment: what they are, and where they were put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) kind: ItemKind,
    pub(crate) lineage: LineageId,
    pub(crate) index: u64,
    pub(crate) birth: Seqno,
    pub(crate) sector: u32,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

/// Bytes of an item.
pub(crate) const ITEM_BYTES: usize = 37;
/// Bytes of a summary without items.
pub(crate) const SUMMARY_OVERHEAD: usize = envelope::ENVELOPE + 4;

pub(crate) fn encode(
    pool: PoolUuid,
    segment: SegmentId,
    generation: Generation,
    sector: u32,
    items: &[Item],
) -> Vec<u8> {
    let address = Address(segment.0.into(), sector.into(), generation.0);
    let mut e = envelope::begin(Kind::Summary, pool, address);
    e.u32(u32_of(items.len()));
    for item in items {
        e.u8(item.kind as u8).u64(item.lineage.0).u64(item.index).u64(item.birth.0);
        e.u32(item.sector).u32(item.bytes).u32(item.crc);
    }
    envelope::finish(e)
}

pub(crate) fn decode(
    bytes: &[u8],
    pool: PoolUuid,
    segment: SegmentId,
    generation: Generation,
    sector: u32,
) -> Result<Vec<Item>, FormatError> {
    let address = Address(segment.0.into(), sector.into(), generation.0);
    let mut d = envelope::open_at(Kind::Summary, pool, address, bytes)?;
    let count = count_of(&mut d, "items", ITEM_BYTES)?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = match d.u8("kind")? {
            1 => ItemKind::Block,
            2 => ItemKind::Leaf,
            3 => ItemKind::Node,
            other => {
                return Err(FormatError::Value { what: "a kind of item", found: other.into() });
            }
        };
        items.push(Item {
            kind,
            lineage: LineageId(d.u64("lineage")?),
            index: d.u64("index")?,
            birth: Seqno(d.u64("birth")?),
            sector: d.u32("sector")?,
            bytes: d.u32("bytes")?,
            crc: d.u32("crc")?,
        });
    }
    Ok(items)
}
