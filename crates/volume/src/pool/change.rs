//! Changes of the catalogue: one frame of the log each.

use std::collections::BTreeSet;

use crate::append;
use crate::catalog::Catalog;
use crate::drive::Io;
use crate::engine::{Core, Shared};
use crate::keep::checkpoint::{NODE_ROW_BYTES, segments_bytes};
use crate::omf::frame::{Change, Record};
use crate::omf::root::{LineageRow, SnapshotRow, VolumeRow};
use crate::types::BLOCK;
use crate::types::error::VolumeError;
use crate::types::id::{LineageId, Seqno};

/// The moment of a change, in seconds since 1970.
pub(super) fn now(shared: &Shared) -> u64 {
    shared.options.clock.unix_time().as_secs()
}

/// Makes changes of the catalogue durable, then visible: all or none.
pub(super) fn run(
    shared: &Shared,
    io: &mut Io,
    mut build: impl FnMut(&mut Catalog, Seqno) -> Result<Vec<Change>, VolumeError>,
) -> Result<(), VolumeError> {
    append::run(shared, None, io, |at| {
        let mut core = shared.core.lock();
        let changes = build(&mut core.catalog, at)?;
        check_room(shared, &core, &changes)?;
        Ok(changes.into_iter().map(Record::Change).collect())
    })?;
    shared.ring();
    Ok(())
}

/// Refuses rows for which a checkpoint has no room.
fn check_room(shared: &Shared, core: &Core, changes: &[Change]) -> Result<(), VolumeError> {
    let growth: u64 = changes.iter().map(|change| core.catalog.growth(change)).sum();
    let shape = shared.fleet.layout.shape;
    let segments = segments_bytes(core.space.all_slots(), shape.width).min(shape.root_bytes / 2);
    let rest = segments + core.map.node_count() * NODE_ROW_BYTES + BLOCK;
    if growth == 0 || core.catalog.bytes() + growth + rest <= shape.root_bytes {
        return Ok(());
    }
    let rows = core.catalog.snapshots.len() + core.catalog.volumes.len();
    let what = format!(
        "the catalogue is full with {rows} volumes and snapshots; delete some, or make a pool with larger `root_bytes`"
    );
    Err(VolumeError::NoSpace { pool: shared.name.clone(), what })
}

/// Deletes the volumes whose time in the trash is over.
pub(super) fn purge_expired(shared: &Shared, io: &mut Io) -> Result<bool, VolumeError> {
    let now = now(shared);
    let is_expired = |row: &VolumeRow| row.trashed.is_some_and(|until| until <= now);
    let expired = shared.core.lock().catalog.volumes.values().any(is_expired);
    if !expired {
        return Ok(false);
    }
    run(shared, io, |catalog, _| {
        let row = catalog.volumes.values().find(|row| is_expired(row)).cloned();
        Ok(row.map(|row| purge(catalog, &row)).unwrap_or_default())
    })?;
    Ok(true)
}

/// The changes that delete a volume with its snapshots.
pub(super) fn purge(catalog: &Catalog, row: &VolumeRow) -> Vec<Change> {
    let snapshots = catalog.snapshots.values().filter(|snapshot| snapshot.volume == row.id);
    let lineages = snapshots.clone().map(|snapshot| snapshot.lineage).chain([row.lineage]);
    let through = lineages.flat_map(|lineage| seen_through(catalog, lineage, Seqno(0))).collect();
    // The newest first: the points of a lineage are in their order.
    let mut changes: Vec<Change> =
        snapshots.rev().map(|snapshot| Change::RemoveSnapshot(snapshot.id)).collect();
    changes.push(Change::RemoveVolume(row.id));
    changes.extend(swept(catalog, &through, Some(row.lineage)));
    changes
}

/// The changes that delete a snapshot.
pub(super) fn forget(catalog: &Catalog, row: &SnapshotRow) -> Vec<Change> {
    let through = seen_through(catalog, row.lineage, row.at);
    let mut changes = vec![Change::RemoveSnapshot(row.id)];
    changes.extend(swept(catalog, &through, None));
    changes
}

/// The lineages that a reader of one sees at a seqno and no older snapshot of it: the lineage, and ancestors behind it.
pub(super) fn seen_through(
    catalog: &Catalog,
    lineage: LineageId,
    at: Seqno,
) -> BTreeSet<LineageId> {
    let is_older = |row: &SnapshotRow| row.lineage == lineage && row.at < at;
    let ancestors = match catalog.snapshots.values().any(is_older) {
        true => Vec::new(),
        false => catalog.dependent_ancestors(lineage),
    };
    ancestors.into_iter().chain([lineage]).collect()
}

/// The changes that have lineages swept, because a reader of them is deleted; one of them without its head.
pub(super) fn swept(
    catalog: &Catalog,
    lineages: &BTreeSet<LineageId>,
    headless: Option<LineageId>,
) -> Vec<Change> {
    let rows = lineages.iter().filter_map(|lineage| catalog.lineages.get(lineage).cloned());
    let rows = rows.map(|row| LineageRow {
        head: row.head.filter(|_| headless != Some(row.id)),
        sweep: Some(0),
        ..row
    });
    rows.map(Change::PutLineage).collect()
}
