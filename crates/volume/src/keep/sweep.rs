//! Removes what nobody can see any more, some leaves at a time: after a volume or a snapshot was deleted, and where a clone
//! wrote over what only it had seen of its ancestors. How far it is stands in the catalogue, so that it goes on after a crash
//! from the last checkpoint; doing a part twice is harmless.
//!
//! A sweep looks for overwritten blocks leaf by leaf, as the map has them (`Map::shadows`). Blocks that wait in the write
//! buffer hide nothing yet: without them, after `lose_buffer`, what they had hidden would be gone, too.

use std::time::Duration;

use esker_base::units::to_u64;

use crate::drive::Io;
use crate::engine::{AtLeaf, Core, Keeper, Shared, Viewers};
use crate::keep::{checkpoint, destage};
use crate::map::{Access, LeafKey};
use crate::omf::frame::Change;
use crate::omf::root::LineageRow;
use crate::segment::Broken;
use crate::types::error::VolumeError;
use crate::types::id::LineageId;

/// Leaves looked at in one step.
const LEAVES: usize = 64;
/// How long a sweep waits for more urgent maintenance to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long blocks that may hide an ancestor's wait in the write buffer.
const BUFFERED: Duration = Duration::from_secs(20);

/// Goes on with a sweep; false when there is none.
pub(crate) fn step(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<bool, VolumeError> {
    let has_to_spill = shared.core.lock().map.has_to_spill();
    if has_to_spill {
        checkpoint::spill_leaves(shared, keeper, io)?;
    }
    let mut is_busy = false;
    for _ in 0..LEAVES {
        let mut core = shared.core.lock();
        let core = &mut *core;
        keeper.viewers.refresh(&core.catalog);
        if !look(core, io, &keeper.viewers).map_err(|broken| shared.damaged(&broken))? {
            break;
        }
        is_busy = true;
        if core.map.has_to_spill() {
            break;
        }
    }
    Ok(is_busy)
}

/// Goes on with a sweep that more urgent maintenance has kept waiting; and has blocks leave the write buffer that may
/// hide something. Whether anything was done.
pub(crate) fn catch_up(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
) -> Result<bool, VolumeError> {
    let now = shared.options.clock.now();
    let (is_due, is_buffered) = {
        let core = shared.core.lock();
        keeper.viewers.refresh(&core.catalog);
        let is_due = core.catalog.lineages.values().any(|row| is_due(&core, row));
        (is_due || !core.map.shadows.is_empty(), is_buffered(&core, &keeper.viewers))
    };
    let is_late = |since: &mut Option<_>, is_wanted: bool, limit| {
        *since = is_wanted.then(|| since.unwrap_or(now));
        since.is_some_and(|since| now.since(since) >= limit)
    };
    let mut is_busy = is_late(&mut keeper.sweep_since, is_due, PATIENCE);
    if is_busy {
        is_busy = step(shared, keeper, io)?;
    }
    if is_late(&mut keeper.buffered_since, is_buffered, BUFFERED) {
        is_busy |= match destage::run(shared, keeper, io) {
            Err(VolumeError::NoSpace { .. }) => false, // sweeps make some
            result => result?,
        };
    }
    Ok(is_busy)
}

/// Lineages that are to be swept.
pub(crate) fn waiting(core: &Core) -> u64 {
    let marked = core.map.shadows.iter().map(|(lineage, _)| *lineage);
    let swept = core.catalog.lineages.values().filter(|row| is_due(core, row)).map(|row| row.id);
    let mut lineages: Vec<LineageId> = swept.chain(marked).collect();
    lineages.sort_unstable();
    lineages.dedup();
    to_u64(lineages.len())
}

/// A lineage with a head is seen: of the many that have one, nothing else is looked up.
fn is_due(core: &Core, row: &LineageRow) -> bool {
    row.sweep.is_some() || row.head.is_none() && core.catalog.is_unseen(row.id)
}

/// Whether blocks wait in the write buffer that may hide the last ones of an ancestor.
fn is_buffered(core: &Core, viewers: &Viewers) -> bool {
    core.catalog.lineages.values().any(|row| {
        let hides = |(parent, at)| !viewers.has_snapshot_at(parent, at);
        let mut clones = viewers.clones_of(row.id).iter();
        let mut keeps = || clones.any(|(at, _)| !viewers.has_snapshot_at(row.id, *at));
        (row.parent.is_some_and(hides) || keeps()) && core.pending.has_lineage(row.id)
    })
}

/// Looks at the next leaf, or leaves; false when there is none.
fn look(core: &mut Core, io: &mut Io, viewers: &Viewers) -> Result<bool, Broken> {
    if let Some(&key) = core.map.shadows.first() {
        look_behind(core, io, viewers, key)?;
        core.map.shadows.remove(&key);
        return Ok(true);
    }
    let due = core.catalog.lineages.values().find(|row| is_due(core, row));
    let Some((lineage, from)) = due.map(|row| (row.id, row.sweep.unwrap_or(0))) else {
        return Ok(false);
    };
    match core.map.next_leaf(lineage, from) {
        Some(index) => {
            look_at(core, io, viewers, (lineage, index), &mut AtLeaf::default())?;
            let row = core.catalog.lineages.get_mut(&lineage).expect("the lineage exists");
            row.sweep = Some(index + 1);
        }
        None => finish(core, lineage),
    }
    Ok(true)
}

/// Drops the versions of a leaf that nobody sees.
fn look_at(
    core: &mut Core,
    io: &mut Io,
    viewers: &Viewers,
    key: LeafKey,
    seen: &mut AtLeaf,
) -> Result<(), Broken> {
    let mut access = Access { io, space: &mut core.space };
    let sight = viewers.sight(&mut core.map, &mut access, key, seen)?;
    let keeps_zero = core.catalog.has_parent(key.0);
    core.map.sweep(&mut access, key, |block, birth, next| sight.see(block, birth, next), keeps_zero)
}

/// Looks at a leaf that got versions, and at the leaves of the ancestors behind it.
fn look_behind(
    core: &mut Core,
    io: &mut Io,
    viewers: &Viewers,
    (lineage, index): LeafKey,
) -> Result<(), Broken> {
    let ancestors: Vec<_> = core.catalog.ancestors(lineage).collect();
    let ancestors = ancestors.into_iter();
    let hidden = ancestors.take_while(|(id, at)| !viewers.has_snapshot_at(*id, *at));
    let mut chain = vec![lineage];
    chain.extend(hidden.map(|(id, _)| id));
    let mut seen = AtLeaf::default();
    for id in &chain {
        if core.map.has_leaf((*id, index)) {
            look_at(core, io, viewers, (*id, index), &mut seen)?;
        }
    }
    chain.into_iter().for_each(|id| splice(core, id));
    Ok(())
}

/// The last leaf was looked at. A lineage that nobody looks at is removed.
fn finish(core: &mut Core, lineage: LineageId) {
    let row = core.catalog.lineages.get_mut(&lineage).expect("the lineage exists");
    row.sweep = None;
    if !core.catalog.is_unseen(lineage) {
        return splice(core, lineage);
    }
    if core.map.is_empty(lineage) {
        core.pending.forget_lineage(lineage);
        core.catalog.apply(&Change::RemoveLineage(lineage));
    }
}

/// Takes a lineage out of its chain that is empty, and that only others go on from: they go on from its parent.
fn splice(core: &mut Core, lineage: LineageId) {
    let catalog = &mut core.catalog;
    let is_needed = catalog.is_unseen(lineage) // then it is removed as a whole
        || !core.map.is_empty(lineage)
        || core.pending.has_lineage(lineage)
        || catalog.snapshots.values().any(|row| row.lineage == lineage);
    let row = catalog.lineages.get(&lineage).filter(|row| row.head.is_none() && !is_needed);
    let Some(LineageRow { parent, .. }) = row.cloned() else { return };
    let goes_on = |row: &&LineageRow| row.parent.is_some_and(|(parent, _)| parent == lineage);
    let clones: Vec<LineageRow> = catalog.lineages.values().filter(goes_on).cloned().collect();
    for row in clones {
        catalog.apply(&Change::PutLineage(LineageRow { parent, ..row }));
    }
    catalog.apply(&Change::RemoveLineage(lineage));
    core.map.sweeps += 1;
}
