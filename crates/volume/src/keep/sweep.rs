//! Removes what nobody can see any more after a volume or a snapshot was deleted, some leaves at a time. How far it is
//! stands in the catalogue, so that it goes on after a crash from the last checkpoint; doing a part twice is harmless.

use crate::drive::Io;
use crate::engine::{Keeper, Shared};
use crate::keep::checkpoint;
use crate::map::Access;
use crate::omf::frame::Change;
use crate::types::error::VolumeError;
use crate::types::id::LineageId;

/// Leaves looked at in one step.
const LEAVES: usize = 64;

/// Goes on with a sweep; false when there is none.
pub(crate) fn step(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<bool, VolumeError> {
    let has_to_spill = shared.core.lock().map.has_to_spill();
    if has_to_spill {
        checkpoint::spill_leaves(shared, keeper, io)?;
    }
    let mut core = shared.core.lock();
    let core = &mut *core;
    let swept = core.catalog.lineages.values().find_map(|row| Some((row.id, row.sweep?)));
    let Some((lineage, mut from)) = swept else { return Ok(false) };
    let points = core.catalog.points(lineage).expect("the lineage exists");
    let keeps_zero = core.catalog.has_parent(lineage);
    for _ in 0..LEAVES {
        let mut access = Access { io: &mut *io, space: &mut core.space };
        let swept = core
            .map
            .sweep(&mut access, lineage, from, &points, keeps_zero)
            .map_err(|broken| shared.damaged(&broken))?;
        let Some(leaf) = swept else {
            finish(core, lineage);
            return Ok(true);
        };
        from = leaf + 1;
        if core.map.has_to_spill() {
            break;
        }
    }
    let row = core.catalog.lineages.get_mut(&lineage).expect("the lineage exists");
    row.sweep = Some(from);
    Ok(true)
}

/// The last leaf was looked at. A lineage that nobody looks at is removed; its parent has a point less then.
fn finish(core: &mut crate::engine::Core, lineage: LineageId) {
    let row = core.catalog.lineages.get_mut(&lineage).expect("the lineage exists");
    row.sweep = None;
    let parent = row.parent.map(|(parent, _)| parent);
    let points = core.catalog.points(lineage).expect("the lineage exists");
    let is_unseen = !points.has_head && points.seqnos.is_empty();
    if is_unseen && core.map.is_empty(lineage) {
        core.catalog.apply(&Change::RemoveLineage(lineage));
        if let Some(parent) = parent.and_then(|id| core.catalog.lineages.get_mut(&id)) {
            parent.sweep = Some(0);
        }
    }
}
