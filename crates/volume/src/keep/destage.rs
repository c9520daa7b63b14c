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
    /// Any, for zeroes.
    class: Option<Class>,
}

/// Bytes of data in a segment as they are allocated now.
pub(crate) fn segment_bytes(shared: &Shared) -> u64 {
    let layout = shared.fleet.layout;
    let (width, parity) = shared.shape_now(&shared.core.lock().space);
    layout.data_bytes(usize::from(width.saturating_sub(parity.into())).max(1))
}

/// Moves as many of the oldest pending versions as fit the open segment of their class, of that class of which there are
/// most; false when there are none.
pub(crate) fn run(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<bool, VolumeError> {
    let (mut class, moving) = oldest(shared, keeper);
    if moving.is_empty() {
        return Ok(false);
    }
    let has_data = moving.iter().any(|moving| moving.data.is_some());
    let placed = match has_data {
        false => moving.iter().map(|moving| version(moving, Place::Zero)).collect(),
        true => loop {
            match write(shared, keeper, io, class, &moving) {
                Ok(Some(placed)) => break placed,
                Ok(None) => {}
                Err(VolumeError::NoSpace { .. }) if class.is_optional() => class = Class::Fresh,
                Err(error) => return Err(error),
            }
        },
    };
    apply(shared, keeper, io, &moving, &placed)?;
    Ok(true)
}

/// Of the oldest versions, several times as many as fit a segment, those of the class that has most of them. Zeroes
/// need no place, and go with any. Versions of one block reach the map in their order: all go with the oldest.
fn oldest(shared: &Shared, keeper: &Keeper) -> (Class, Vec<Moving>) {
    let most = to_usize(4 * segment_bytes(shared));
    let may_open: Vec<Class> =
        Class::ALL.into_iter().filter(|class| output::may_open(shared, keeper, *class)).collect();
    let mut core = shared.core.lock();
    let core = &mut *core;
    let mut bytes = 0;
    let mut moving = Vec::new();
    let mut sums = [0; Class::ALL.len()];
    for (lineage, block, version) in core.pending.by_age() {
        let size = version.data.as_ref().map_or(64, |data| data.len());
        bytes += size;
        if bytes > most {
            break;
        }
        let first = core.pending.first(lineage, block).expect("it has this version");
        let is_free = first.data.is_none() && first.seqno == version.seqno;
        let class = match first.stream {
            0 => {
                // As long as the version lived that it replaces.
                let before = core.map.peek(lineage, block, first.seqno).ok().flatten();
                let age = before.map(|before| first.seqno.0 - before.birth.0);
                let is_hot = age.is_some_and(|age| keeper.lifespan.is_short(age));
                if is_hot { Class::Hot } else { Class::Fresh }
            }
            handle => Class::Stream(handle),
        };
        let class = if may_open.contains(&class) { class } else { Class::Fresh };
        let class = if is_free { None } else { Some(class) };
        if let Some(class) = class {
            sums[usize::from(class.number())] += size;
        }
        let is_compressed = core.catalog.is_compressed(lineage);
        let (seqno, data) = (version.seqno, version.data.clone());
        moving.push(Moving { seqno, lineage, block, data, is_compressed, class });
    }
    let largest = (0..).zip(sums).max_by_key(|(_, sum)| *sum).map_or(0, |(number, _)| number);
    let class =
        if sums[usize::from(largest)] > 0 { Class::of_number(largest) } else { Class::Fresh };
    moving.retain(|one| one.class.is_none_or(|one| one == class));
    (class, moving)
}

fn version(moving: &Moving, place: Place) -> Version {
    Version { birth: moving.seqno, place }
}

/// Packs and writes the first of these that fit. `None` when a drive failed.
fn write(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    class: Class,
    moving: &[Moving],
) -> Result<Option<Vec<Version>>, VolumeError> {
    let mut builder = output::open(shared, keeper, io, class)?;
    let mut scratch = Vec::with_capacity(2 * BLOCK_SIZE);
    let mut places = Vec::with_capacity(moving.len());
    for one in moving {
        let Some(data) = &one.data else {
            places.push(None);
            continue;
        };
        let stored = fragment::encode(data, one.is_compressed, &mut scratch);
        if !builder.fits(stored.len(), true) {
            break;
        }
        let item = builder.push(ItemKind::Block, one.lineage, one.block.0, one.seqno, stored);
        places.push(Some(item));
    }
    let mut segment = SegmentId(0);
    if !builder.is_empty() {
        let packed = builder.finish(shared.fleet.pool);
        match output::append(shared, keeper, io, class, packed)? {
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
            version(one, Place::Fragment(Fragment { segment, sector, sectors, blocks: 1, crc }))
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
