//! Moves blocks from the write buffer into segments, from the oldest on. A block stays pending until the map knows
//! where it is; the log keeps it until a checkpoint knows.

use crate::buffer::Data;
use crate::drive::Io;
use crate::engine::{Keeper, Shared};
use crate::fragment;
use crate::keep::{checkpoint, output};
use crate::map::Access;
use crate::omf::leaf::{Fragment, Place, Version};
use crate::omf::summary::ItemKind;
use crate::space::Class;
use crate::types::error::VolumeError;
use crate::types::id::{Block, LineageId, SegmentId, Seqno};
use crate::types::{BLOCK_SIZE, sectors_of};
use esker_base::units::to_usize;

/// A version on its way.
struct Moving {
    seqno: Seqno,
    lineage: LineageId,
    block: Block,
    data: Data,
    is_compressed: bool,
}

/// Bytes of data in a segment as they are allocated now.
pub(crate) fn segment_bytes(shared: &Shared) -> u64 {
    let layout = shared.fleet.layout;
    let (width, parity) = shared.shape_now(&shared.core.lock().space);
    layout.data_bytes(usize::from(width.saturating_sub(parity.into())).max(1))
}

/// Moves as many of the oldest pending versions as fit the open segment; false when there are none.
pub(crate) fn run(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<bool, VolumeError> {
    let moving = oldest(shared);
    if moving.is_empty() {
        return Ok(false);
    }
    let has_data = moving.iter().any(|moving| moving.data.is_some());
    let placed = match has_data {
        false => moving.iter().map(|moving| version(moving, Place::Zero)).collect(),
        true => loop {
            if let Some(placed) = write(shared, keeper, io, &moving)? {
                break placed;
            }
        },
    };
    apply(shared, keeper, io, &moving, &placed)?;
    Ok(true)
}

/// The oldest versions, somewhat more than fit a segment.
fn oldest(shared: &Shared) -> Vec<Moving> {
    let most = to_usize(2 * segment_bytes(shared));
    let core = shared.core.lock();
    let mut bytes = 0;
    let mut moving = Vec::new();
    for (seqno, lineage, block, data) in core.pending.by_age() {
        bytes += data.as_ref().map_or(64, |data| data.len());
        if bytes > most {
            break;
        }
        let is_compressed = core.catalog.is_compressed(lineage);
        moving.push(Moving { seqno, lineage, block, data: data.clone(), is_compressed });
    }
    moving
}

fn version(moving: &Moving, place: Place) -> Version {
    Version { birth: moving.seqno, place }
}

/// Packs and writes the first of these that fit. `None` when a drive failed.
fn write(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    moving: &[Moving],
) -> Result<Option<Vec<Version>>, VolumeError> {
    let mut builder = output::open(shared, keeper, io, Class::Fresh)?;
    let mut stored = Vec::with_capacity(2 * BLOCK_SIZE);
    let mut places = Vec::with_capacity(moving.len());
    for one in moving {
        let Some(data) = &one.data else {
            places.push(None);
            continue;
        };
        fragment::encode(data, one.is_compressed, &mut stored);
        if !builder.fits(stored.len(), true) {
            break;
        }
        let item = builder.push(ItemKind::Block, one.lineage, one.block.0, one.seqno, &stored);
        places.push(Some(item));
    }
    let mut segment = SegmentId(0);
    if !builder.is_empty() {
        let packed = builder.finish(shared.fleet.pool);
        match output::append(shared, keeper, io, Class::Fresh, &packed)? {
            Some(id) => segment = id,
            None => return Ok(None),
        }
    }
    let versions = moving.iter().zip(places).map(|(one, item)| match item {
        None => version(one, Place::Zero),
        Some(item) => {
            let sectors = sectors_of(to_usize(item.bytes.into()));
            let sectors = u8::try_from(sectors).expect("a block has at most eight");
            let (sector, crc) = (item.sector, item.crc);
            version(one, Place::Fragment(Fragment { segment, sector, sectors, crc }))
        }
    });
    Ok(Some(versions.collect()))
}

/// Enters the versions into the map, writing leaves out where they would take more memory than there is.
fn apply(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    moving: &[Moving],
    placed: &[Version],
) -> Result<(), VolumeError> {
    let mut done = 0;
    while done < placed.len() {
        let has_to_spill = shared.core.lock().map.has_to_spill();
        if has_to_spill {
            checkpoint::spill_leaves(shared, keeper, io)?;
        }
        let mut core = shared.core.lock();
        let core = &mut *core;
        for (one, version) in moving.iter().zip(placed).skip(done) {
            if let Some(points) = core.catalog.points(one.lineage) {
                let keeps_zero = core.catalog.has_parent(one.lineage);
                let mut access = Access { io, space: &mut core.space };
                core.map
                    .insert(&mut access, one.lineage, one.block, *version, &points, keeps_zero)
                    .map_err(|broken| shared.damaged(&broken))?;
            }
            core.pending.remove(one.seqno, one.lineage, one.block);
            done += 1;
            if core.map.has_to_spill() {
                break;
            }
        }
    }
    Ok(())
}
