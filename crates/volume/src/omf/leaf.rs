//! A leaf of the map, 512 blocks of a lineage; and a node, 512 leaves of it.
//!
//! Envelope: address = lineage, index; generation = generation of the segment it lies in. A leaf is a list of
//! versions, sorted by block and birth, 23 bytes each: 2 block in the leaf, 8 birth, 1 sectors (0: zeroes; from 80h on a
//! bundle: bits 5 and 6 its blocks less one, bits 0 to 4 its sectors), 4 segment, 4 sector, 4 CRC-32C. A *delta* is a leaf's page that says what changed: behind its list of versions a list of the blocks
//! (2 bytes each) whose older versions it replaces, all of them. A node is a list of extents, 18 bytes each: 2 leaf in the
//! node, 16 extent; of a leaf the whole page first, then its deltas from the oldest on.

use crate::omf::envelope::{self, Address, FormatError, Kind, count_of};
use crate::omf::root::Extent;
use crate::types::id::{Generation, LineageId, PoolUuid, SegmentId, Seqno};
use crate::types::{LEAF_BLOCKS, NODE_LEAVES, u32_of};

/// Where a version of a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: it reads as zeroes.
    Zero,
    /// In a segment.
    Fragment(Fragment),
}

/// The bytes of a block in a segment, compressed where they take fewer than eight sectors; or of a bundle of blocks that
/// were compressed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) segment: SegmentId,
    pub(crate) sector: u32,
    pub(crate) sectors: u8,
    /// Blocks that were put there together.
    pub(crate) blocks: u8,
    pub(crate) crc: u32,
}

/// Blocks of a bundle at most: neighbours, the first of which has a number that is a multiple of this.
pub(crate) const BUNDLE_BLOCKS: u64 = 4;
/// Sectors of a bundle at most.
pub(crate) const BUNDLE_SECTORS_MAX: u8 = 31;

impl Fragment {
    /// The seed of the checksum, besides the lineage: the block, or the first of those of its bundle.
    pub(crate) fn seed(&self, block: u64) -> u64 {
        if self.blocks > 1 { block - block % BUNDLE_BLOCKS } else { block }
    }

    fn pack(&self) -> u8 {
        match self.blocks {
            0 | 1 => self.sectors,
            blocks => 0x80 | (blocks - 1) << 5 | self.sectors,
        }
    }

    /// Sectors and blocks.
    fn unpack(byte: u8) -> (u8, u8) {
        if byte < 0x80 { (byte, 1) } else { (byte & 0x1f, (byte >> 5 & 3) + 1) }
    }
}

/// A version of a block: since which record, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) birth: Seqno,
    pub(crate) place: Place,
}

/// A page that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) versions: Vec<(u16, Version)>,
    /// Blocks whose versions before it do not count.
    pub(crate) replaced: Vec<u16>,
}

const VERSION_BYTES: usize = 23;
const LEAF_POINTER_BYTES: usize = 18;

pub(crate) fn encode(
    pool: PoolUuid,
    lineage: LineageId,
    index: u64,
    generation: Generation,
    versions: &[(u16, Version)],
    replaced: &[u16],
) -> Vec<u8> {
    let address = Address(lineage.0, index, generation.0);
    let mut e = envelope::begin(Kind::Leaf, pool, address);
    e.u32(u32_of(versions.len()));
    for (block, Version { birth, place }) in versions {
        e.u16(*block).u64(birth.0);
        match place {
            Place::Zero => drop(e.u8(0).u32(0).u32(0).u32(0)),
            Place::Fragment(f) => drop(e.u8(f.pack()).u32(f.segment.0).u32(f.sector).u32(f.crc)),
        }
    }
    e.u32(u32_of(replaced.len()));
    replaced.iter().for_each(|block| {
        e.u16(*block);
    });
    envelope::finish(e)
}

pub(crate) fn decode(
    bytes: &[u8],
    pool: PoolUuid,
    lineage: LineageId,
    index: u64,
    generation: Generation,
) -> Result<Page, FormatError> {
    let address = Address(lineage.0, index, generation.0);
    let mut d = envelope::open_at(Kind::Leaf, pool, address, bytes)?;
    let count = count_of(&mut d, "versions", VERSION_BYTES)?;
    let mut versions = Vec::with_capacity(count);
    for _ in 0..count {
        let (block, birth) = (d.u16("block")?, Seqno(d.u64("birth")?));
        let (sectors, blocks) = Fragment::unpack(d.u8("sectors")?);
        let segment = SegmentId(d.u32("segment")?);
        let (sector, crc) = (d.u32("sector")?, d.u32("crc")?);
        let is_wrong = if blocks > 1 { sectors == 0 } else { sectors > 8 };
        if u64::from(block) >= LEAF_BLOCKS || is_wrong {
            return Err(FormatError::Value { what: "a version", found: block.into() });
        }
        let place = match sectors {
            0 => Place::Zero,
            _ => Place::Fragment(Fragment { segment, sector, sectors, blocks, crc }),
        };
        versions.push((block, Version { birth, place }));
    }
    let count = count_of(&mut d, "replaced blocks", 2)?;
    let replaced = (0..count).map(|_| Ok(d.u16("replaced block")?));
    let replaced = replaced.collect::<Result<_, FormatError>>()?;
    Ok(Page { versions, replaced })
}

pub(crate) fn encode_node(
    pool: PoolUuid,
    lineage: LineageId,
    index: u64,
    generation: Generation,
    leaves: &[(u16, Extent)],
) -> Vec<u8> {
    let address = Address(lineage.0, index, generation.0);
    let mut e = envelope::begin(Kind::Node, pool, address);
    e.u32(u32_of(leaves.len()));
    for (leaf, extent) in leaves {
        e.u16(*leaf);
        extent.encode(&mut e);
    }
    envelope::finish(e)
}

pub(crate) fn decode_node(
    bytes: &[u8],
    pool: PoolUuid,
    lineage: LineageId,
    index: u64,
    generation: Generation,
) -> Result<Vec<(u16, Extent)>, FormatError> {
    let address = Address(lineage.0, index, generation.0);
    let mut d = envelope::open_at(Kind::Node, pool, address, bytes)?;
    let count = count_of(&mut d, "leaves", LEAF_POINTER_BYTES)?;
    let mut leaves = Vec::with_capacity(count);
    for _ in 0..count {
        let leaf = d.u16("leaf")?;
        if u64::from(leaf) >= NODE_LEAVES {
            return Err(FormatError::Value { what: "a leaf", found: leaf.into() });
        }
        leaves.push((leaf, Extent::decode(&mut d)?));
    }
    Ok(leaves)
}
