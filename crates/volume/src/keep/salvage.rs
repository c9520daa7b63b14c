//! Blocks that are lost in segments, and still in the write buffer: frames that a checkpoint does not need stay there until they
//! are overwritten. So more drives than there are parities may have lied about a flush, and nothing is lost, if it was
//! not long ago.

use std::collections::BTreeMap;

use crate::drive::Io;
use crate::engine::{Keeper, Shared, add};
use crate::fragment;
use crate::keep::bundle::Parcel;
use crate::keep::clean;
use crate::map::Access;
use crate::omf::frame::Record;
use crate::omf::leaf::{Fragment, Place};
use crate::omf::root::SegmentRow;
use crate::omf::summary::{Item, ItemKind};
use crate::segment::{Sum, read_verified};
use crate::space::Class;
use crate::types::error::VolumeError;
use crate::types::id::{Block, LineageId, Seqno};
use crate::types::{BLOCK_SIZE, LEAF_BLOCKS, sectors, u32_of};
use esker_base::units::to_u64;

/// A version of a block.
type Version = (LineageId, Block, Seqno);

/// Takes blocks of a segment that cannot be read there from the write buffer, as far as it has them.
pub(crate) fn run(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    row: &SegmentRow,
) -> Result<(), VolumeError> {
    let lost = lost_blocks(shared, io, row);
    if lost.is_empty() {
        return Ok(());
    }
    let mut found: BTreeMap<Version, Vec<u8>> = BTreeMap::new();
    shared.log.lock().scan(io, |frame| {
        for (seqno, record) in (frame.head.first.0..).map(Seqno).zip(frame.records) {
            let Record::Write { lineage, block, data } = record else { continue };
            for (at, bytes) in (block.0..).map(Block).zip(data.chunks(BLOCK_SIZE)) {
                if lost.contains_key(&(lineage, at, seqno)) {
                    found.insert((lineage, at, seqno), bytes.to_vec());
                }
            }
        }
    });
    let moving = found.into_iter().filter_map(|(version, data)| {
        let (lineage, block, birth) = version;
        let is_compressed = shared.core.lock().catalog.is_compressed(lineage);
        let mut scratch = Vec::new();
        let bytes = fragment::encode(&data, is_compressed, &mut scratch).to_vec();
        let (kind, index, size) = (ItemKind::Block, block.0, u32_of(bytes.len()));
        let item = Item { kind, lineage, index, birth, sector: 0, bytes: size, crc: 0 };
        Some(Parcel { members: vec![(item, *lost.get(&version)?)], bytes })
    });
    let moving: Vec<Parcel> = moving.collect();
    add(&shared.counts.salvaged, to_u64(moving.len()));
    clean::place(shared, keeper, io, Class::Fresh, &moving)
}

/// The versions that the map has in a segment, and that cannot be read there.
fn lost_blocks(shared: &Shared, io: &mut Io, row: &SegmentRow) -> BTreeMap<Version, Fragment> {
    let keys = shared.core.lock().map.all_leaves();
    let mut lost = BTreeMap::new();
    for key in keys {
        let versions = {
            let mut core = shared.core.lock();
            let core = &mut *core;
            let mut access = Access { io: &mut *io, space: &mut core.space };
            core.map.versions(&mut access, key).unwrap_or_default()
        };
        for (within, version) in versions {
            let Place::Fragment(fragment) = version.place else { continue };
            if fragment.segment != row.id {
                continue;
            }
            let block = Block(key.1 * LEAF_BLOCKS + u64::from(within));
            let Some(chunks) = shared.core.lock().space.get(row.id).map(|s| s.chunks.clone())
            else {
                return lost;
            };
            let (index, crc) = (fragment.seed(block.0), fragment.crc);
            let sum = Sum::Seeded { lineage: key.0, index, crc };
            let size = sectors(fragment.sectors.into());
            if read_verified(io, &chunks, fragment.sector, size, sum).is_err() {
                lost.insert((key.0, block, version.birth), fragment);
            }
        }
    }
    lost
}
