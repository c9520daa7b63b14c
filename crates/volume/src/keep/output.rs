//! Appends to the open segment of a class, in one go: room, packing, writing, and the table.
//!
//! A drive that fails meanwhile is taken out of the pool, the segment is closed as it was, and the caller packs again.

use std::collections::btree_map::Entry;

use esker_base::units::to_u64;

use crate::drive::Io;
use crate::engine::{Keeper, Shared, add};
use crate::omf::root::SegmentRow;
use crate::segment::builder::Packed;
use crate::segment::{Builder, Writer};
use crate::space::{Class, Lasting};
use crate::types::BLOCK;
use crate::types::error::VolumeError;
use crate::types::id::{DriveIndex, SegmentId};

/// The most appends to a segment: each has a summary that the table lists.
const APPENDS_MAX: usize = 32;

/// Free segments that cleaning leaves to checkpoints, beside those for pages of the map.
const KEPT_FROM_CLEANING: u64 = 2;

/// Free segments that a class leaves to those that make space: a checkpoint always has some, and cleaning has more
/// than what is new.
fn kept_for_others(class: Class, pages: u64) -> u64 {
    match class {
        Class::Metadata => 0,
        Class::Warm | Class::Cold => KEPT_FROM_CLEANING + pages,
        Class::Fresh => 4 + pages,
        Class::Hot | Class::Stream(_) => 8 + pages,
    }
}

/// Whether a class has an open segment, or there is space for one.
pub(crate) fn may_open(shared: &Shared, keeper: &Keeper, class: Class) -> bool {
    if keeper.writers.contains_key(&class) {
        return true;
    }
    let core = shared.core.lock();
    let (width, _) = shared.shape_now(&core.space);
    core.space.free_segments(width.into()) > kept_for_others(class, shared.page_segments(&core))
}

/// Closes the open segments of optional classes, so that they can be cleaned.
pub(crate) fn close_optional(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
) -> Result<(), VolumeError> {
    let open: Vec<Class> = keeper.writers.keys().copied().filter(|c| c.is_optional()).collect();
    open.into_iter().try_for_each(|class| close(shared, keeper, io, class))
}

/// A builder for the open segment of a class; a new segment where that has no room.
pub(crate) fn open(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    class: Class,
) -> Result<Builder, VolumeError> {
    let avoided = avoided(shared);
    let is_full = keeper.writers.get(&class).is_some_and(|writer| {
        writer.room(io) < 4 * BLOCK
            || writer.row.summaries.len() >= APPENDS_MAX
            || writer
                .row
                .chunks
                .iter()
                .any(|(drive, _)| shared.fleet.get(*drive).is_none() || avoided.contains(drive))
    });
    if is_full {
        close(shared, keeper, io, class)?;
    }
    let writer = match keeper.writers.entry(class) {
        Entry::Occupied(open) => open.into_mut(),
        Entry::Vacant(place) => place.insert(Writer::new(allocate(shared, class)?)),
    };
    let (data_chunks, row) = (writer.data_chunks(), &writer.row);
    let memory = std::mem::take(&mut keeper.packing);
    let layout = &shared.fleet.layout;
    Ok(Builder::new(layout, row.id, row.generation, data_chunks, row.rows, memory))
}

/// Drives that new segments are not put on: the slow ones, if the others suffice.
fn avoided(shared: &Shared) -> Vec<DriveIndex> {
    let slow = shared.fleet.slow();
    if slow.is_empty() {
        return slow;
    }
    let core = shared.core.lock();
    let (width, _) = shared.shape_now(&core.space);
    let fits = core.space.can_allocate(width, &slow);
    if fits { slow } else { Vec::new() }
}

fn allocate(shared: &Shared, class: Class) -> Result<SegmentRow, VolumeError> {
    let avoided = avoided(shared);
    let mut core = shared.core.lock();
    if core.space.uses_emptying() && shared.fits_elsewhere(&core) {
        // Only where the others have no room for it.
        let (free, pages) = shared.free_elsewhere(&core);
        if free > kept_for_others(class, pages) {
            let (width, parity) = shared.shape_on(core.space.room(Lasting::Stay).drives);
            let excluded = core.space.emptying();
            if let Some(id) = core.space.allocate(class, width, parity, &excluded) {
                return Ok(core.space.get(id).expect("just allocated").row.clone());
            }
        }
    }
    let (width, parity) = shared.shape_now(&core.space);
    let no_space = |what: String| VolumeError::NoSpace { pool: shared.name.clone(), what };
    let kept = kept_for_others(class, shared.page_segments(&core));
    if core.space.free_segments(width.into()) <= kept {
        let what = "its last free segments are kept for cleaning and for checkpoints";
        return Err(no_space(what.to_owned()));
    }
    let Some(id) = core.space.allocate(class, width, parity, &avoided) else {
        return Err(no_space(format!("no {width} drives have a free slot for another segment")));
    };
    Ok(core.space.get(id).expect("just allocated").row.clone())
}

/// Writes what was packed for the open segment of a class. `None` when a drive failed, which is taken out then:
/// nothing was written that counts.
pub(crate) fn append(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    class: Class,
    packed: Packed,
) -> Result<Option<SegmentId>, VolumeError> {
    let Packed { mut bytes, items, summary } = packed;
    let writer = keeper.writers.get_mut(&class).expect("opened before");
    let appended = writer.append(io, &bytes);
    let size = to_u64(bytes.len());
    bytes.clear();
    keeper.packing = bytes;
    if let Err(failed) = appended {
        shared.take_out(io, &failed)?;
        close(shared, keeper, io, class)?;
        return Ok(None);
    }
    writer.row.summaries.push(summary);
    let counter = match class {
        Class::Metadata => &shared.counts.metadata,
        Class::Fresh | Class::Hot | Class::Stream(_) => &shared.counts.destaged,
        Class::Warm | Class::Cold => &shared.counts.cleaned,
    };
    add(counter, size);
    let newest = items.iter().map(|item| item.birth).max().unwrap_or_default();
    let mut core = shared.core.lock();
    let segment = core.space.get_mut(writer.row.id).expect("it is open");
    segment.row.rows = writer.row.rows;
    segment.row.summaries.clone_from(&writer.row.summaries);
    segment.row.born = segment.row.born.max(newest);
    Ok(Some(writer.row.id))
}

/// Seals the open segment of a class, and appends no more to it.
pub(crate) fn close(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    class: Class,
) -> Result<(), VolumeError> {
    seal(shared, keeper, io, class)?;
    if let Some(writer) = keeper.writers.remove(&class) {
        keeper.durable_seals.remove(&writer.row.id);
        let mut core = shared.core.lock();
        if let Some(segment) = core.space.get_mut(writer.row.id) {
            segment.is_open = false;
        }
    }
    Ok(())
}

/// Seals the open segment of a class as it is.
pub(crate) fn seal(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    class: Class,
) -> Result<(), VolumeError> {
    let Some(writer) = keeper.writers.get_mut(&class).filter(|writer| writer.is_unsealed) else {
        return Ok(());
    };
    let durable = keeper.durable_seals.get(&writer.row.id).copied().unwrap_or(1);
    if let Err(failed) = writer.seal(io, durable) {
        // The others have their seal: the segment is degraded, like any other with a chunk on that drive.
        shared.take_out(io, &failed)?;
    }
    let mut core = shared.core.lock();
    if let Some(segment) = core.space.get_mut(writer.row.id) {
        segment.row.seal_copy = writer.row.seal_copy;
    }
    Ok(())
}
