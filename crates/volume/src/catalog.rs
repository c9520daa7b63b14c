//! Volumes, snapshots and the lineages behind them. Sees `types`, `omf` and `buffer`.
//!
//! A volume writes to a lineage. A snapshot is a seqno of a lineage: it sees, of every block, the newest version up to
//! there. A clone is a volume with a lineage of its own that goes on from a seqno of another one; a rollback gives the
//! volume such a lineage. So each takes one record, whatever the size.
//!
//! Invariants
//! 1. The points of a lineage are the seqnos of its snapshots and those that other lineages go on from.
//! 2. A lineage without head and points is empty once it was swept, and is removed then.
//! 3. A lineage that is empty, and that only others go on from, is removed: they go on from its parent then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_base::units::to_u64;

use crate::buffer::Points;
use crate::omf::frame::Change;
use crate::omf::root::{LineageRow, SnapshotRow, VolumeRow};
use crate::types::error::VolumeError;
use crate::types::id::{LineageId, Seqno, SnapshotId, VolumeId};

/// The most bytes of a lineage's row in a checkpoint.
const LINEAGE_BYTES: u64 = 48;

/// The most bytes of a volume's row in a checkpoint.
fn volume_bytes(row: &VolumeRow) -> u64 {
    let hosts: usize = row.hosts.iter().map(|host| host.len() + 4).sum();
    to_u64(row.name.len() + hosts) + 80
}

/// The most bytes of a snapshot's row in a checkpoint.
fn snapshot_bytes(row: &SnapshotRow) -> u64 {
    to_u64(row.name.len()) + 56
}

/// The most bytes of the row that a change puts.
fn row_bytes(change: &Change) -> u64 {
    match change {
        Change::PutLineage(_) => LINEAGE_BYTES,
        Change::PutVolume(row) => volume_bytes(row),
        Change::PutSnapshot(row) => snapshot_bytes(row),
        Change::RemoveLineage(_) | Change::RemoveVolume(_) | Change::RemoveSnapshot(_) => 0,
    }
}

/// Volumes, snapshots and lineages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) lineages: BTreeMap<LineageId, LineageRow>,
    pub(crate) volumes: BTreeMap<VolumeId, VolumeRow>,
    pub(crate) snapshots: BTreeMap<SnapshotId, SnapshotRow>,
    pub(crate) next_id: u64,
    points: BTreeMap<LineageId, Arc<Points>>,
    /// The snapshots of each volume by their names.
    names: BTreeMap<VolumeId, BTreeMap<String, SnapshotId>>,
    /// Volumes by their names, those in the trash included: of these, several may have one name.
    by_name: BTreeMap<String, BTreeSet<VolumeId>>,
    /// Bytes of all rows in a checkpoint.
    bytes: u64,
    /// Counts the changes.
    version: u64,
}

impl Catalog {
    pub(crate) fn new(
        lineages: Vec<LineageRow>,
        volumes: Vec<VolumeRow>,
        snapshots: Vec<SnapshotRow>,
        next_id: u64,
    ) -> Catalog {
        let mut catalog = Catalog {
            lineages: lineages.into_iter().map(|row| (row.id, row)).collect(),
            volumes: volumes.into_iter().map(|row| (row.id, row)).collect(),
            snapshots: snapshots.into_iter().map(|row| (row.id, row)).collect(),
            next_id,
            points: BTreeMap::new(),
            names: BTreeMap::new(),
            by_name: BTreeMap::new(),
            bytes: 0,
            version: 1,
        };
        for row in catalog.volumes.values() {
            catalog.by_name.entry(row.name.clone()).or_default().insert(row.id);
        }
        for row in catalog.snapshots.values() {
            let names = catalog.names.entry(row.volume).or_default();
            names.insert(row.name.clone(), row.id);
        }
        let lineages = catalog.lineages.values().map(|_| LINEAGE_BYTES);
        let volumes = catalog.volumes.values().map(volume_bytes);
        let snapshots = catalog.snapshots.values().map(snapshot_bytes);
        catalog.bytes = lineages.chain(volumes).chain(snapshots).sum();
        for lineage in catalog.lineages.keys().copied().collect::<Vec<_>>() {
            catalog.count_points(lineage);
        }
        catalog
    }

    /// A number that nothing has.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Bytes of all rows in a checkpoint.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The most bytes that the row takes in a checkpoint which a change replaces or removes.
    fn replaced_bytes(&self, change: &Change) -> u64 {
        let found = match change {
            Change::PutLineage(LineageRow { id, .. }) | Change::RemoveLineage(id) => {
                self.lineages.get(id).map(|_| LINEAGE_BYTES)
            }
            Change::PutVolume(VolumeRow { id, .. }) | Change::RemoveVolume(id) => {
                self.volumes.get(id).map(volume_bytes)
            }
            Change::PutSnapshot(SnapshotRow { id, .. }) | Change::RemoveSnapshot(id) => {
                self.snapshots.get(id).map(snapshot_bytes)
            }
        };
        found.unwrap_or(0)
    }

    /// Bytes that a change adds to a checkpoint, if it adds a row.
    pub(crate) fn growth(&self, change: &Change) -> u64 {
        let is_new = match change {
            Change::PutLineage(row) => !self.lineages.contains_key(&row.id),
            Change::PutVolume(row) => !self.volumes.contains_key(&row.id),
            Change::PutSnapshot(row) => !self.snapshots.contains_key(&row.id),
            Change::RemoveLineage(_) | Change::RemoveVolume(_) | Change::RemoveSnapshot(_) => false,
        };
        if is_new { row_bytes(change) } else { 0 }
    }

    /// Counts the changes.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn apply(&mut self, change: &Change) {
        self.version += 1;
        let (old, new) = (self.replaced_bytes(change), row_bytes(change));
        let mut touched = Vec::new();
        match change {
            Change::PutLineage(row) => {
                let last = self.lineages.last_key_value();
                let is_newest = last.is_none_or(|(last, _)| *last < row.id);
                self.next_id = self.next_id.max(row.id.0);
                let old = self.lineages.insert(row.id, row.clone());
                match (old, self.points.get_mut(&row.id)) {
                    (Some(old), Some(points)) if old.parent == row.parent => {
                        Arc::make_mut(points).has_head = row.head.is_some();
                    }
                    // Nothing goes on from the newest, and nothing shows it: no other row has to be looked at.
                    (None, None) if row.parent.is_none() && is_newest => {
                        let has_head = row.head.is_some();
                        let points = Points { seqnos: Vec::new(), has_head, has_clones: false };
                        self.points.insert(row.id, Arc::new(points));
                    }
                    (old, _) => {
                        touched.push(row.id);
                        touched.extend(row.parent.map(|(parent, _)| parent));
                        touched.extend(old.and_then(|old| old.parent).map(|(parent, _)| parent));
                    }
                }
            }
            Change::PutVolume(row) => {
                self.next_id = self.next_id.max(row.id.0);
                if let Some(old) = self.volumes.insert(row.id, row.clone())
                    && old.name != row.name
                {
                    self.unname(&old);
                }
                self.by_name.entry(row.name.clone()).or_default().insert(row.id);
            }
            Change::PutSnapshot(row) => {
                self.next_id = self.next_id.max(row.id.0);
                self.names.entry(row.volume).or_default().insert(row.name.clone(), row.id);
                if self.snapshots.insert(row.id, row.clone()).is_some() || !self.add_point(row) {
                    touched.push(row.lineage);
                }
            }
            Change::RemoveLineage(id) => {
                let old = self.lineages.remove(id);
                touched.push(*id);
                touched.extend(old.and_then(|old| old.parent).map(|(parent, _)| parent));
            }
            Change::RemoveVolume(id) => {
                if let Some(old) = self.volumes.remove(id) {
                    self.unname(&old);
                }
            }
            Change::RemoveSnapshot(id) => {
                if let Some(row) = self.snapshots.remove(id) {
                    if let Some(names) = self.names.get_mut(&row.volume) {
                        names.remove(&row.name);
                        if names.is_empty() {
                            self.names.remove(&row.volume);
                        }
                    }
                    self.remove_point(&row);
                }
            }
        }
        self.bytes = self.bytes + new - old;
        for lineage in touched {
            self.count_points(lineage);
        }
    }

    /// A volume does not have its name any more.
    fn unname(&mut self, row: &VolumeRow) {
        if let Some(ids) = self.by_name.get_mut(&row.name) {
            ids.remove(&row.id);
            if ids.is_empty() {
                self.by_name.remove(&row.name);
            }
        }
    }

    /// The volumes of this name, the oldest first.
    fn named(&self, name: &str) -> impl DoubleEndedIterator<Item = &VolumeRow> {
        let ids = self.by_name.get(name).into_iter().flatten();
        ids.filter_map(|id| self.volumes.get(id))
    }

    /// The snapshots of a volume, the oldest first.
    pub(crate) fn snapshots_of(&self, volume: VolumeId) -> Vec<&SnapshotRow> {
        let ids = self.names.get(&volume).into_iter().flat_map(BTreeMap::values);
        let mut rows: Vec<_> = ids.filter_map(|id| self.snapshots.get(id)).collect();
        rows.sort_unstable_by_key(|row| row.id);
        rows
    }

    /// Adds the point of a snapshot that is the newest of its lineage; false where it is not.
    fn add_point(&mut self, row: &SnapshotRow) -> bool {
        let Some(points) = self.points.get_mut(&row.lineage) else { return false };
        let is_newest = points.seqnos.last().is_none_or(|last| *last < row.at);
        if is_newest {
            Arc::make_mut(points).seqnos.push(row.at);
        }
        is_newest
    }

    /// Removes the point of a snapshot, unless a clone goes on from it.
    fn remove_point(&mut self, row: &SnapshotRow) {
        let point = Some((row.lineage, row.at));
        if self.lineages.values().any(|other| other.parent == point) {
            return;
        }
        let Some(points) = self.points.get_mut(&row.lineage) else { return };
        if let Ok(found) = points.seqnos.binary_search(&row.at) {
            Arc::make_mut(points).seqnos.remove(found);
        }
    }

    fn count_points(&mut self, lineage: LineageId) {
        let Some(row) = self.lineages.get(&lineage) else {
            self.points.remove(&lineage);
            return;
        };
        let snapshots = self.snapshots.values().filter(|row| row.lineage == lineage);
        let clones = self.lineages.values().filter_map(|row| row.parent);
        let clones = clones.filter(|(parent, _)| *parent == lineage).map(|(_, at)| at);
        let mut seqnos: Vec<Seqno> = clones.collect();
        let has_clones = !seqnos.is_empty();
        seqnos.extend(snapshots.map(|row| row.at));
        seqnos.sort_unstable();
        seqnos.dedup();
        let points = Points { seqnos, has_head: row.head.is_some(), has_clones };
        self.points.insert(lineage, Arc::new(points));
    }

    /// The points of a lineage, if it exists.
    pub(crate) fn points(&self, lineage: LineageId) -> Option<Arc<Points>> {
        self.points.get(&lineage).cloned()
    }

    /// Whether blocks that a lineage does not have are another one's.
    pub(crate) fn has_parent(&self, lineage: LineageId) -> bool {
        self.lineages.get(&lineage).is_some_and(|row| row.parent.is_some())
    }

    /// The lineages that this one goes on from, the nearest first, each with the seqno up to which it is seen.
    pub(crate) fn ancestors(
        &self,
        lineage: LineageId,
    ) -> impl Iterator<Item = (LineageId, Seqno)> + '_ {
        let parent = |id| self.lineages.get(&id).and_then(|row| row.parent);
        std::iter::successors(parent(lineage), move |(id, _)| parent(*id))
    }

    /// Whether a snapshot shows a lineage as it was at this seqno.
    pub(crate) fn has_snapshot_at(&self, lineage: LineageId, at: Seqno) -> bool {
        self.snapshots.values().any(|row| row.lineage == lineage && row.at == at)
    }

    /// The ancestors of which a lineage may be the last that sees something: up to one that a snapshot shows as it does.
    pub(crate) fn dependent_ancestors(&self, lineage: LineageId) -> Vec<LineageId> {
        let ancestors = self.ancestors(lineage);
        let hidden = ancestors.take_while(|(id, at)| !self.has_snapshot_at(*id, *at));
        hidden.map(|(id, _)| id).collect()
    }

    /// Whether nobody looks at a lineage.
    pub(crate) fn is_unseen(&self, lineage: LineageId) -> bool {
        let points = self.points.get(&lineage);
        points.is_none_or(|points| !points.has_head && points.seqnos.is_empty())
    }

    /// Whether blocks that are written to this lineage are compressed later.
    pub(crate) fn is_compressed(&self, lineage: LineageId) -> bool {
        let head = self.lineages.get(&lineage).and_then(|row| row.head);
        let volume = head.and_then(|head| self.volumes.get(&head));
        volume.is_some_and(|volume| volume.options.compression)
    }

    /// The volume of this name that is not in the trash.
    pub(crate) fn volume(&self, name: &str) -> Option<&VolumeRow> {
        self.named(name).find(|row| row.trashed.is_none())
    }

    /// The volume of this name in the trash: the one that came last.
    pub(crate) fn trashed(&self, name: &str) -> Option<&VolumeRow> {
        self.named(name).rev().find(|row| row.trashed.is_some())
    }

    /// The snapshot of this name of a volume.
    pub(crate) fn snapshot(&self, volume: VolumeId, name: &str) -> Option<&SnapshotRow> {
        self.snapshots.get(self.names.get(&volume)?.get(name)?)
    }

    /// The volume of this name that is not in the trash, or an error that says whether the trash has it.
    pub(crate) fn find_volume(&self, name: &str) -> Result<&VolumeRow, VolumeError> {
        let hint = match self.trashed(name) {
            Some(_) => ": it is in the trash, from which `restore` takes it",
            None => "",
        };
        let absent = || VolumeError::NotFound { what: "volume", name: name.to_owned(), hint };
        self.volume(name).ok_or_else(absent)
    }

    /// The snapshot of a volume, both by their names.
    pub(crate) fn find_snapshot(
        &self,
        volume: &str,
        name: &str,
    ) -> Result<SnapshotRow, VolumeError> {
        let row = self.find_volume(volume)?;
        let absent = || VolumeError::NotFound { what: "snapshot", name: name.to_owned(), hint: "" };
        self.snapshot(row.id, name).cloned().ok_or_else(absent)
    }

    /// The volume that a lineage or a snapshot of it belongs to, for messages.
    pub(crate) fn owner_of(&self, lineage: LineageId) -> String {
        let head = self.lineages.get(&lineage).and_then(|row| row.head);
        let volume = head.and_then(|head| self.volumes.get(&head));
        volume.map_or_else(|| lineage.to_string(), |volume| volume.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lineage(id: u64, parent: Option<(u64, u64)>, head: Option<u64>) -> LineageRow {
        let parent = parent.map(|(lineage, at)| (LineageId(lineage), Seqno(at)));
        LineageRow { id: LineageId(id), parent, head: head.map(VolumeId), sweep: None }
    }

    fn snapshot(id: u64, lineage: u64, at: u64) -> SnapshotRow {
        SnapshotRow {
            id: SnapshotId(id),
            name: id.to_string(),
            volume: VolumeId(1),
            lineage: LineageId(lineage),
            at: Seqno(at),
            blocks: 1,
            made: 0,
        }
    }

    #[test]
    fn points_follow_snapshots_and_clones() {
        let mut catalog = Catalog::default();
        let points = |catalog: &Catalog| {
            let points = catalog.points(LineageId(1)).unwrap();
            (points.seqnos.iter().map(|s| s.0).collect::<Vec<_>>(), points.has_head)
        };
        catalog.apply(&Change::PutLineage(lineage(1, None, Some(9))));
        catalog.apply(&Change::PutSnapshot(snapshot(2, 1, 20)));
        catalog.apply(&Change::PutLineage(lineage(3, Some((1, 10)), Some(8))));
        assert_eq!(points(&catalog), (vec![10, 20], true));
        catalog.apply(&Change::RemoveSnapshot(SnapshotId(2)));
        catalog.apply(&Change::PutLineage(lineage(1, None, None)));
        assert_eq!(points(&catalog), (vec![10], false));
        catalog.apply(&Change::RemoveLineage(LineageId(3)));
        assert_eq!(points(&catalog), (vec![], false));
        assert_eq!(catalog.next_id, 3);
    }

    fn volume(id: u64, name: &str, trashed: Option<u64>) -> Change {
        Change::PutVolume(VolumeRow {
            id: VolumeId(id),
            name: name.to_owned(),
            lineage: LineageId(id),
            blocks: 1,
            options: Default::default(),
            made: 0,
            trashed,
            hosts: Vec::new(),
        })
    }

    #[test]
    fn volumes_are_found_by_name_in_and_out_of_the_trash() {
        let mut catalog = Catalog::default();
        let ids = |catalog: &Catalog, name: &str| {
            (catalog.volume(name).map(|row| row.id.0), catalog.trashed(name).map(|row| row.id.0))
        };
        catalog.apply(&volume(1, "a", None));
        catalog.apply(&volume(2, "b", None));
        assert_eq!(ids(&catalog, "a"), (Some(1), None));
        catalog.apply(&volume(1, "a", Some(9)));
        catalog.apply(&volume(3, "a", Some(9)));
        catalog.apply(&volume(4, "a", None));
        assert_eq!(ids(&catalog, "a"), (Some(4), Some(3)));
        catalog.apply(&volume(4, "c", None));
        assert_eq!((ids(&catalog, "a"), ids(&catalog, "c")), ((None, Some(3)), (Some(4), None)));
        catalog.apply(&Change::RemoveVolume(VolumeId(3)));
        assert_eq!(ids(&catalog, "a"), (None, Some(1)));
        let rows = |catalog: &Catalog| catalog.volumes.values().cloned().collect();
        let again = Catalog::new(Vec::new(), rows(&catalog), Vec::new(), 4);
        for name in ["a", "b", "c", "d"] {
            assert_eq!(ids(&catalog, name), ids(&again, name), "{name}");
        }
    }

    #[test]
    fn snapshots_of_a_volume_are_in_the_order_they_were_made() {
        let mut catalog = Catalog::default();
        for id in [9, 10, 11] {
            catalog.apply(&Change::PutSnapshot(snapshot(id, 1, id)));
        }
        let of_other = SnapshotRow { volume: VolumeId(2), ..snapshot(12, 2, 12) };
        catalog.apply(&Change::PutSnapshot(of_other));
        let ids = |volume| -> Vec<u64> {
            catalog.snapshots_of(VolumeId(volume)).iter().map(|row| row.id.0).collect()
        };
        assert_eq!((ids(1), ids(2), ids(3)), (vec![9, 10, 11], vec![12], vec![]));
    }

    #[test]
    fn version_is_seen_up_to_the_next_one() {
        let seqnos = vec![Seqno(10), Seqno(20)];
        let points = Points { seqnos, has_head: false, has_clones: false };
        let sees = |birth, next: Option<u64>| points.see(Seqno(birth), next.map(Seqno));
        assert!(sees(5, Some(11)) && sees(10, Some(11)) && sees(11, Some(21)) && sees(20, None));
        assert!(!sees(5, Some(10)) && !sees(11, Some(20)) && !sees(21, None));
    }
}
