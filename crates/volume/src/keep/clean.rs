//! Cleaning: what still lives in a segment is moved to others, so that its slots become free. Moving is repairing, too:
//! what is moved was verified, and computed from parities where it had to be.
//!
//! A victim is chosen by cost and benefit: much garbage, and old, because garbage still comes to young ones; where space
//! is needed at once, by garbage alone. Survivors
//! of fresh segments go to a class of their own, those that survive again to another: they live longer.

use esker_base::checksum::crc32c;
use esker_base::units::{to_u64, to_usize};

use crate::drive::Io;
use crate::engine::{Keeper, Shared};
use crate::keep::{checkpoint, output};
use crate::map::Access;
use crate::omf::envelope::fragment_crc;
use crate::omf::leaf::{Fragment, Place};
use crate::omf::root::SegmentRow;
use crate::omf::summary::{self, Item, ItemKind};
use crate::segment::{Want, read_many, read_verified};
use crate::space::{Class, Segment};
use crate::types::error::VolumeError;
use crate::types::id::{Block, DriveIndex, SegmentId};
use crate::types::sectors_of;

/// Items looked up in the map at a time.
const LOOKED_UP: usize = 512;
/// Fragments moved at a time: 16 MiB at most.
const MOVED: usize = 4096;

/// Free segments below which nothing else goes on: as many as may be opened before a checkpoint.
const URGENT: u64 = 7;

/// Free segments, and those that a checkpoint may need for pages of the map.
fn free_segments(shared: &Shared) -> (u64, u64) {
    let core = shared.core.lock();
    let (width, _) = shared.shape_now(&core.space);
    (core.space.free_segments(width.into()), shared.page_segments(&core))
}

/// Whether there is less space than cleaning itself may need.
pub(crate) fn is_urgent(shared: &Shared) -> bool {
    let (free, pages) = free_segments(shared);
    free < URGENT + pages
}

/// Whether cleaning is due.
pub(crate) fn is_due(shared: &Shared) -> bool {
    let total = to_u64(shared.core.lock().space.segments().count());
    let (free, pages) = free_segments(shared);
    free < (total / 50).max(URGENT + pages + 3)
}

/// Cleans the best victim; false when there is none.
pub(crate) fn run(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<bool, VolumeError> {
    let Some(victim) = best_victim(shared, keeper) else { return Ok(false) };
    move_out(shared, keeper, io, victim)?;
    Ok(true)
}

fn best_victim(shared: &Shared, keeper: &Keeper) -> Option<SegmentId> {
    let now = shared.log.lock().next_seqno;
    let is_urgent = is_urgent(shared);
    let core = shared.core.lock();
    let layout = shared.fleet.layout;
    let score = |segment: &Segment| {
        let bytes = layout.data_bytes(segment.data_chunks()).max(1);
        let live = segment.row.live_bytes;
        if live == 0 || live * 50 > bytes * 49 {
            return None; // free already, or not worth it
        }
        if is_urgent {
            return Some(u128::from(bytes - live)); // space now, whatever it will have cost later
        }
        let age = now.0.saturating_sub(segment.row.born.0) + 1;
        let benefit = u128::from(bytes.saturating_sub(live)) * u128::from(age);
        Some(benefit / u128::from(bytes + live))
    };
    let closed = core.space.segments().filter(|segment| {
        let id = segment.row.id;
        !segment.is_open && !keeper.given_up.contains(&id) && !keeper.marked.contains(&id)
    });
    let scored = closed.filter_map(|segment| Some((score(segment)?, segment.row.id)));
    scored.max().map(|(_, id)| id)
}

/// Moves all that lives in a segment to others. What is lost stays, and is reported when it is read.
pub(crate) fn move_out(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    victim: SegmentId,
) -> Result<(), VolumeError> {
    let row = match shared.core.lock().space.get(victim) {
        Some(segment) => segment.row.clone(),
        None => return Ok(()),
    };
    let class = if row.class == Class::Fresh.number() { Class::Warm } else { Class::Cold };
    let (mut is_whole, mut blocks) = (true, Vec::new());
    for (sector, bytes, crc) in row.summaries.clone() {
        let Some(items) = read_summary(shared, io, &row, sector, bytes, crc) else {
            is_whole = false;
            continue;
        };
        for items in items.chunks(LOOKED_UP) {
            blocks.append(&mut living(shared, io, &row, items)?);
            spill(shared, keeper, io)?;
        }
    }
    // As many at once as memory allows: each append fills up a row.
    for blocks in blocks.chunks(MOVED) {
        is_whole &= move_blocks(shared, keeper, io, class, &row, blocks)?;
        spill(shared, keeper, io)?;
    }
    if row.class == Class::Metadata.number() && is_whole {
        keeper.marked.push(victim); // what it has is written anew by the next checkpoint
        return Ok(());
    }
    let is_left = {
        let mut core = shared.core.lock();
        let segment = core.space.get_mut(victim);
        segment.is_some_and(|segment| {
            segment.is_damaged = false;
            segment.row.live_bytes > 0
        })
    };
    if (is_left || !is_whole) && !keeper.given_up.contains(&victim) {
        keeper.given_up.push(victim);
    }
    Ok(())
}

fn spill(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<(), VolumeError> {
    let has_to_spill = shared.core.lock().map.has_to_spill();
    match has_to_spill {
        true => checkpoint::spill_leaves(shared, keeper, io),
        false => Ok(()),
    }
}

/// What was packed in one go, from the summary behind it.
pub(crate) fn read_summary(
    shared: &Shared,
    io: &mut Io,
    row: &SegmentRow,
    sector: u32,
    bytes: u32,
    crc: u32,
) -> Option<Vec<Item>> {
    let is_good = |bytes: &[u8]| crc32c(bytes) == crc;
    let read = read_verified(io, row, sector, to_usize(bytes.into()), &is_good);
    let (bytes, bad) = read.ok()?;
    blame(shared, &bad);
    summary::decode(&bytes, shared.fleet.pool, row.id, row.generation, sector).ok()
}

fn blame(shared: &Shared, bad: &[DriveIndex]) {
    for drive in bad.iter().filter_map(|drive| shared.fleet.get(*drive)) {
        drive.blame();
    }
}

/// The blocks among these items that the map still points to. Leaves and nodes are marked to be written anew.
fn living(
    shared: &Shared,
    io: &mut Io,
    row: &SegmentRow,
    items: &[Item],
) -> Result<Vec<(Item, Fragment)>, VolumeError> {
    let mut core = shared.core.lock();
    let core = &mut *core;
    let mut blocks = Vec::new();
    for item in items {
        let mut access = Access { io: &mut *io, space: &mut core.space };
        let key = (item.lineage, item.index);
        match item.kind {
            ItemKind::Leaf => core
                .map
                .move_leaf(&mut access, key, row.id, item.sector)
                .map_err(|broken| shared.damaged(&broken))?,
            ItemKind::Node => core.map.move_node(key, row.id, item.sector),
            ItemKind::Block => {
                let found = core
                    .map
                    .get(&mut access, item.lineage, Block(item.index), item.birth)
                    .map_err(|broken| shared.damaged(&broken))?;
                let Some(version) = found.filter(|version| version.birth == item.birth) else {
                    continue;
                };
                if let Place::Fragment(fragment) = version.place
                    && (fragment.segment, fragment.sector) == (row.id, item.sector)
                {
                    blocks.push((*item, fragment));
                }
            }
        }
    }
    Ok(blocks)
}

/// Moves blocks; false if some are lost.
fn move_blocks(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    class: Class,
    row: &SegmentRow,
    blocks: &[(Item, Fragment)],
) -> Result<bool, VolumeError> {
    let checks: Vec<_> = blocks
        .iter()
        .map(|(item, _)| {
            move |bytes: &[u8]| {
                fragment_crc(item.lineage, item.index, row.generation, bytes) == item.crc
            }
        })
        .collect();
    let wants = blocks.iter().zip(&checks).map(|((item, _), is_good)| Want {
        row,
        sector: item.sector,
        size: to_usize(item.bytes.into()),
        is_good,
    });
    let read = read_many(io, &wants.collect::<Vec<_>>());
    let mut moving: Vec<Moving> = Vec::with_capacity(blocks.len());
    let mut is_whole = true;
    for ((item, from), answer) in blocks.iter().zip(read) {
        match answer {
            Ok((bytes, bad)) => {
                blame(shared, &bad);
                moving.push((*item, *from, bytes));
            }
            Err(_) => is_whole = false,
        }
    }
    place(shared, keeper, io, class, &moving)?;
    Ok(is_whole)
}

/// A block on its way: what it is, where the map has it, and its bytes as they are stored.
pub(crate) type Moving = (Item, Fragment, Vec<u8>);

/// Writes blocks to open segments, and tells the map, unless they were replaced meanwhile.
pub(crate) fn place(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    class: Class,
    moving: &[Moving],
) -> Result<(), VolumeError> {
    let mut left = moving;
    while !left.is_empty() {
        let mut builder = output::open(shared, keeper, io, class)?;
        let mut placed = Vec::new();
        for (item, _, bytes) in left {
            if !builder.fits(bytes.len(), true) {
                break;
            }
            placed.push(builder.push(item.kind, item.lineage, item.index, item.birth, bytes));
        }
        if placed.is_empty() {
            output::close(shared, keeper, io, class)?;
            continue;
        }
        let packed = builder.finish(shared.fleet.pool);
        let Some(segment) = output::append(shared, keeper, io, class, &packed)? else { continue };
        let mut core = shared.core.lock();
        let core = &mut *core;
        for ((item, from, _), new) in left.iter().zip(&placed) {
            let sectors = sectors_of(to_usize(new.bytes.into()));
            let sectors = u8::try_from(sectors).expect("a block has at most eight");
            let to = Fragment { segment, sector: new.sector, sectors, crc: new.crc };
            let mut access = Access { io: &mut *io, space: &mut core.space };
            core.map
                .relocate(&mut access, item.lineage, Block(item.index), item.birth, from, to)
                .map_err(|broken| shared.damaged(&broken))?;
        }
        left = &left[placed.len()..];
    }
    Ok(())
}
