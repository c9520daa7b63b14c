//! Cleaning: what still lives in a segment is moved to others, so that its slots become free. Moving is repairing, too:
//! what is moved was verified, and computed from parities where it had to be.
//!
//! A victim is chosen by cost and benefit: much garbage, and old, because garbage still comes to young ones; where space
//! is needed at once, by garbage alone. Survivors are told apart by how long they have lived, beside how long hot blocks
//! do (after SepBIT; Wang et al., FAST '22): those that have outlived them several times go to a class of their own.

use std::sync::atomic::Ordering;

use esker_base::units::{to_u64, to_usize};

use crate::drive::Io;
use crate::engine::{Content, Keeper, Shared};
use crate::keep::bundle::{self, Moved, Parcel};
use crate::keep::{checkpoint, destage, output};
use crate::map::{Access, fragment_bytes};
use crate::omf::leaf::{Fragment, Place};
use crate::omf::root::SegmentRow;
use crate::omf::summary::{self, Item, ItemKind};
use crate::segment::{Sum, Want, read_many};
use crate::space::{Class, Segment};
use crate::types::error::VolumeError;
use crate::types::id::{Block, DriveIndex, SegmentId};
use crate::types::sectors_of;

/// Items looked up in the map at a time.
const LOOKED_UP: usize = 512;
/// Fragments moved at a time: 16 MiB at most.
const MOVED: usize = 4096;

/// Free segments below which nothing else goes on: as many as may be opened before a checkpoint.
const URGENT: i64 = 7;

/// Whether there is less space than cleaning itself may need.
pub(crate) fn is_urgent(shared: &Shared) -> bool {
    let (free, pages) = shared.cleaning_room(&shared.core.lock(), false);
    free < URGENT + pages
}

/// Whether cleaning is due. Data that is still to be moved counts ahead: a victim at a time, beside which commands of
/// volumes wait for little.
pub(crate) fn is_due(shared: &Shared) -> bool {
    let (free, pages) = shared.cleaning_room(&shared.core.lock(), true);
    free < URGENT + pages + 3
}

/// The content of volumes now.
pub(crate) fn content(shared: &Shared) -> Content {
    let next = shared.log.lock().next_seqno();
    let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    // Repair leaves other garbage where it moves data: with each few segments of it cleaning is tried again.
    let moved = get(&shared.counts.rebuilt) / (4 * destage::segment_bytes(shared)).max(1);
    let written = get(&shared.counts.destaged) + moved;
    (next, shared.core.lock().space.live_blocks(), written)
}

/// A checkpoint has followed cleaning: notes what that has gained.
pub(crate) fn note_gain(shared: &Shared, keeper: &mut Keeper) {
    let (free, _) = shared.cleaning_room(&shared.core.lock(), true);
    keeper.gain.note(content(shared), free);
}

/// Cleans the best victim; false when there is none.
pub(crate) fn run(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<bool, VolumeError> {
    let Some(victim) = best_victim(shared, keeper) else { return Ok(false) };
    move_out(shared, keeper, io, victim)?;
    Ok(true)
}

fn best_victim(shared: &Shared, keeper: &Keeper) -> Option<SegmentId> {
    let now = shared.log.lock().next_seqno();
    let is_urgent = is_urgent(shared);
    let core = shared.core.lock();
    let layout = shared.fleet.layout;
    let score = |segment: &Segment| {
        let bytes = layout.data_bytes(segment.data_chunks()).max(1);
        let live = segment.row.live_bytes;
        if live == 0 || live * 50 > bytes * 49 {
            return None; // free already, or not worth it
        }
        // Moved blocks fill up a row: with less garbage nothing is gained.
        if !is_urgent && bytes - live <= to_u64(layout.row_bytes(segment.data_chunks())) {
            return None;
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

fn chunks_of_data(row: &SegmentRow) -> usize {
    row.chunks.len() - usize::from(row.parity)
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
    let now = shared.log.lock().next_seqno();
    if row.class == Class::Hot.number() {
        keeper.lifespan.learn(now.0.saturating_sub(row.born.0));
    }
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
    // A block that was hot lately is not cold yet, whatever its age.
    let lifespan = keeper.lifespan;
    let is_warm = |(item, _): &(Item, Fragment)| {
        row.class == Class::Hot.number() || !lifespan.is_long(now.0.saturating_sub(item.birth.0))
    };
    let (mut warm, mut cold): (Vec<_>, Vec<_>) = blocks.into_iter().partition(is_warm);
    // Each append fills up a row: few blocks are not worth one of their own.
    let row_bytes = shared.fleet.layout.row_bytes(chunks_of_data(&row));
    let bytes = |blocks: &[(Item, Fragment)]| -> u64 {
        blocks.iter().map(|(_, from)| fragment_bytes(from)).sum()
    };
    if bytes(&warm).min(bytes(&cold)) < to_u64(row_bytes) {
        let (few, many) =
            if warm.len() < cold.len() { (&mut warm, &mut cold) } else { (&mut cold, &mut warm) };
        many.append(few);
    }
    // As many at once as memory allows: each append fills up a row.
    for (class, blocks) in [(Class::Warm, warm), (Class::Cold, cold)] {
        for blocks in blocks.chunks(MOVED) {
            is_whole &= move_blocks(shared, keeper, io, class, &row, blocks)?;
            spill(shared, keeper, io)?;
        }
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

/// The items that were packed in one go, from the summary behind them.
fn read_summary(
    shared: &Shared,
    io: &mut Io,
    row: &SegmentRow,
    sector: u32,
    bytes: u32,
    crc: u32,
) -> Option<Vec<Item>> {
    read_summaries(shared, io, &[(row, (sector, bytes, crc))]).pop()?
}

/// The same for many summaries, read at once.
pub(crate) fn read_summaries(
    shared: &Shared,
    io: &mut Io,
    wanted: &[(&SegmentRow, (u32, u32, u32))],
) -> Vec<Option<Vec<Item>>> {
    let chunks: Vec<_> = {
        let core = shared.core.lock();
        let of = |row: &SegmentRow| core.space.get(row.id).map(|segment| segment.chunks.clone());
        wanted.iter().map(|(row, _)| of(row)).collect()
    };
    let there = wanted.iter().zip(&chunks).filter_map(|((_, (sector, bytes, crc)), chunks)| {
        let (size, sum) = (to_usize((*bytes).into()), Sum::Plain(*crc));
        Some(Want { chunks: chunks.as_ref()?, sector: *sector, size, sum })
    });
    let mut answers = read_many(io, &there.collect::<Vec<_>>()).into_iter();
    let items = wanted.iter().zip(&chunks).map(|((row, (sector, ..)), chunks)| {
        chunks.as_ref()?;
        let (bytes, bad) = answers.next()?.ok()?;
        blame(shared, &bad);
        summary::decode(&bytes, shared.fleet.pool, row.id, row.generation, *sector).ok()
    });
    items.collect()
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
    let Some(chunks) = shared.core.lock().space.get(row.id).map(|s| s.chunks.clone()) else {
        return Ok(true);
    };
    let wants = blocks.iter().map(|(item, from)| Want {
        chunks: &chunks,
        sector: item.sector,
        size: to_usize(item.bytes.into()),
        sum: Sum::Seeded { lineage: item.lineage, index: from.seed(item.index), crc: item.crc },
    });
    let read = read_many(io, &wants.collect::<Vec<_>>());
    let mut moving: Vec<Moved> = Vec::with_capacity(blocks.len());
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
    let parcels = bundle::parcels(shared, class, moving);
    place(shared, keeper, io, class, &parcels)?;
    Ok(is_whole)
}

/// Writes blocks to open segments, and tells the map, unless they were replaced meanwhile.
pub(crate) fn place(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    class: Class,
    parcels: &[Parcel],
) -> Result<(), VolumeError> {
    let mut left = parcels;
    while !left.is_empty() {
        let mut builder = output::open(shared, keeper, io, class)?;
        let (mut placed, mut count) = (Vec::new(), 0);
        for Parcel { members, bytes } in left {
            if !builder.fits_items(bytes.len(), true, members.len()) {
                break;
            }
            count += 1;
            let blocks = u8::try_from(members.len()).expect("at most four");
            let sectors = u8::try_from(sectors_of(bytes.len())).expect("at most 31");
            for (number, (item, from)) in members.iter().enumerate() {
                let Item { lineage, index, birth, .. } = *item;
                let new = match number {
                    0 => {
                        let seed = Fragment { blocks, ..*from }.seed(index);
                        builder.push_seeded(ItemKind::Block, lineage, (index, seed), birth, bytes)
                    }
                    _ => builder.push_member(index, birth),
                };
                placed.push((*item, *from, new, sectors, blocks));
            }
        }
        if placed.is_empty() {
            output::close(shared, keeper, io, class)?;
            continue;
        }
        let packed = builder.finish(shared.fleet.pool);
        let Some(segment) = output::append(shared, keeper, io, class, packed)? else { continue };
        let mut core = shared.core.lock();
        let core = &mut *core;
        for (item, from, new, sectors, blocks) in placed {
            let to = Fragment { segment, sector: new.sector, sectors, blocks, crc: new.crc };
            let mut access = Access { io: &mut *io, space: &mut core.space };
            core.map
                .relocate(&mut access, item.lineage, Block(item.index), item.birth, &from, to)
                .map_err(|broken| shared.damaged(&broken))?;
        }
        left = &left[count..];
    }
    Ok(())
}
