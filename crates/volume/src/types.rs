//! Ids, limits, errors and options. The lowest room: it sees nothing of this crate.

pub mod error;
pub mod id;
pub mod options;

use esker_base::units::{to_u64, to_usize};

/// Bytes of a block: the LBA of every volume, and the unit of the map.
pub const BLOCK: u64 = 4096;
/// The same as a size in memory.
pub(crate) const BLOCK_SIZE: usize = 4096;
/// Bytes of a sector: fragments in segments begin at a multiple of it.
pub(crate) const SECTOR: u64 = 512;
/// Blocks of a leaf of the map: 2 MiB of a volume.
pub(crate) const LEAF_BLOCKS: u64 = 512;
/// Leaves of a node of the map: 1 GiB of a volume.
pub(crate) const NODE_LEAVES: u64 = 512;
/// The most drives and buffer devices of a pool, those included that were retired.
pub const MEMBERS_MAX: usize = 128;
/// The most chunks of a segment.
pub const WIDTH_MAX: u16 = 32;
/// The most parities.
pub const PARITY_MAX: u8 = 2;
/// The longest name of a pool, a volume or a snapshot, in bytes.
pub const NAME_MAX: usize = 128;
/// The largest volume: so many blocks that block numbers never overflow.
pub const VOLUME_BLOCKS_MAX: u64 = 1 << 48;

/// A `usize` as a `u32`, where limits keep it small.
pub(crate) fn u32_of(value: usize) -> u32 {
    u32::try_from(value).expect("limits keep this below 2^32")
}

/// A `u64` as a `u32`, where limits keep it small.
pub(crate) fn u32_from(value: u64) -> u32 {
    u32::try_from(value).expect("limits keep this below 2^32")
}

/// Sectors as bytes in memory.
pub(crate) fn sectors(count: u32) -> usize {
    to_usize(u64::from(count) * SECTOR)
}

/// How many sectors hold so many bytes.
pub(crate) fn sectors_of(bytes: usize) -> u32 {
    u32_from(to_u64(bytes).div_ceil(SECTOR))
}
