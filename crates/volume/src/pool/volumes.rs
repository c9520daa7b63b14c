//! Volumes and snapshots. Each change is one frame of the write buffer, whatever the size of the volume; what it leaves
//! behind is swept later. A change that was made already is answered like one that was made just then.

use crate::catalog::Catalog;
use crate::omf::frame::Change;
use crate::omf::root::{LineageRow, SnapshotRow, VolumeRow};
use crate::pool::change::{self, forget, purge, seen_through, swept};
use crate::pool::create::check_name;
use crate::pool::{LOOK, Pool};
use crate::queue;
use crate::types::error::VolumeError;
use crate::types::id::{LineageId, Seqno, SnapshotId, VolumeId};
use crate::types::options::VolumeOptions;
use crate::types::{BLOCK, VOLUME_BLOCKS_MAX};

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// For ever its own.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Changes when it is set back to a snapshot.
    pub generation: u64,
    /// Its size, as a host sees it.
    pub bytes: u64,
    /// Its options.
    pub options: VolumeOptions,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// In the trash: until when, in seconds since 1970.
    pub trashed_until: Option<u64>,
    /// How many lines of versions it goes on from: what it is a clone of, and what it was before it was rolled back, as far
    /// as it still shows something of them.
    pub ancestors: usize,
    /// Its snapshots.
    pub snapshots: Vec<SnapshotInfo>,
    /// Names of hosts that may attach it; `*` for any.
    pub hosts: Vec<String>,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// For ever its own.
    pub id: SnapshotId,
    /// Its name.
    pub name: String,
    /// The volume's size then.
    pub bytes: u64,
    /// When it was made, in seconds since 1970.
    pub made: u64,
}

fn snapshot_info(row: &SnapshotRow) -> SnapshotInfo {
    let (id, name) = (row.id, row.name.clone());
    SnapshotInfo { id, name, bytes: row.blocks * BLOCK, made: row.made }
}

fn volume_info(catalog: &Catalog, row: &VolumeRow) -> VolumeInfo {
    VolumeInfo {
        id: row.id,
        name: row.name.clone(),
        generation: row.lineage.0,
        bytes: row.blocks * BLOCK,
        options: row.options,
        made: row.made,
        trashed_until: row.trashed,
        ancestors: catalog.ancestors(row.lineage).count(),
        snapshots: catalog.snapshots_of(row.id).into_iter().map(snapshot_info).collect(),
        hosts: row.hosts.clone(),
    }
}

fn blocks_of(bytes: u64) -> Result<u64, VolumeError> {
    let blocks = bytes / BLOCK;
    if bytes.is_multiple_of(BLOCK) && (1..=VOLUME_BLOCKS_MAX).contains(&blocks) {
        return Ok(blocks);
    }
    let most = VOLUME_BLOCKS_MAX;
    Err(VolumeError::Invalid(format!(
        "a volume has 1 to {most} blocks of {BLOCK} bytes, and {bytes} bytes are not as many"
    )))
}

fn exists(what: &'static str, name: &str) -> VolumeError {
    VolumeError::Exists { what, name: name.to_owned() }
}

impl Pool {
    /// All volumes, those in the trash included.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let core = self.shared.core.lock();
        core.catalog.volumes.values().map(|row| volume_info(&core.catalog, row)).collect()
    }

    /// Volumes that hosts may attach, without those in the trash.
    #[must_use]
    pub fn exported_volumes(&self) -> Vec<VolumeInfo> {
        let core = self.shared.core.lock();
        let rows = core.catalog.volumes.values();
        let rows = rows.filter(|row| row.trashed.is_none() && !row.hosts.is_empty());
        rows.map(|row| volume_info(&core.catalog, row)).collect()
    }

    /// The sizes of all volumes together, in bytes, without those in the trash: what hosts may come to write.
    #[must_use]
    pub fn provisioned_bytes(&self) -> u64 {
        let core = self.shared.core.lock();
        let rows = core.catalog.volumes.values().filter(|row| row.trashed.is_none());
        rows.map(|row| row.blocks * BLOCK).fold(0, u64::saturating_add)
    }

    /// All volumes, as they were seen last where somebody holds the pool's state, who may wait for a drive.
    pub fn volumes_seen(&self) -> Vec<VolumeInfo> {
        let mut seen = self.seen_volumes.lock();
        if let Some(core) = self.shared.core.try_lock_for(LOOK) {
            let volumes = core.catalog.volumes.values();
            *seen = volumes.map(|row| volume_info(&core.catalog, row)).collect();
        }
        seen.clone()
    }

    /// The volume of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn show(&self, name: &str) -> Result<VolumeInfo, VolumeError> {
        let core = self.shared.core.lock();
        let row = core.catalog.find_volume(name)?;
        Ok(volume_info(&core.catalog, row))
    }

    /// Makes a thin volume. If there is one with the same name, size and options, that is the answer.
    ///
    /// # Errors
    /// A name that is taken or bad, a size that no volume has, or the pool's.
    pub fn create_volume(
        &self,
        name: &str,
        bytes: u64,
        options: VolumeOptions,
    ) -> Result<VolumeInfo, VolumeError> {
        check_name("volume", name)?;
        let blocks = blocks_of(bytes)?;
        let made = self.now();
        self.change(|catalog, _| {
            if let Some(row) = catalog.volume(name) {
                let is_same = row.blocks == blocks && row.options == options;
                return if is_same { Ok(Vec::new()) } else { Err(exists("volume", name)) };
            }
            let id = VolumeId(catalog.new_id());
            let lineage = LineageId(catalog.new_id());
            Ok(vec![
                Change::PutLineage(LineageRow {
                    id: lineage,
                    parent: None,
                    head: Some(id),
                    sweep: None,
                }),
                Change::PutVolume(VolumeRow {
                    id,
                    name: name.to_owned(),
                    lineage,
                    blocks,
                    options,
                    made,
                    trashed: None,
                    hosts: Vec::new(),
                }),
            ])
        })?;
        self.show(name)
    }

    /// Gives a volume another size. What a smaller one had behind its end is gone.
    ///
    /// # Errors
    /// There is no such volume, a size that none has, or the pool's.
    pub fn resize(&self, name: &str, bytes: u64) -> Result<VolumeInfo, VolumeError> {
        let blocks = blocks_of(bytes)?;
        let mut old = None;
        self.change(|catalog, _| {
            let row = catalog.find_volume(name)?;
            old = Some((row.lineage, row.blocks));
            Ok(vec![Change::PutVolume(VolumeRow { blocks, ..row.clone() })])
        })?;
        if let Some((lineage, before)) = old
            && before > blocks
        {
            queue::zero(&self.shared, &mut self.shared.ios.take(), lineage, blocks..before)?;
        }
        self.show(name)
    }

    /// Changes compression and limits of a volume, and which hosts may attach it.
    ///
    /// # Errors
    /// There is no such volume, or the pool's.
    pub fn configure(
        &self,
        name: &str,
        options: VolumeOptions,
        hosts: &[String],
    ) -> Result<VolumeInfo, VolumeError> {
        self.change(|catalog, _| {
            let row = catalog.find_volume(name)?;
            let hosts = hosts.to_vec();
            Ok(vec![Change::PutVolume(VolumeRow { options, hosts, ..row.clone() })])
        })?;
        self.show(name)
    }

    /// Keeps a volume as it is now. If there is a snapshot of this name already, that is the answer.
    ///
    /// # Errors
    /// There is no such volume, a bad name, or the pool's.
    pub fn snapshot(&self, volume: &str, name: &str) -> Result<SnapshotInfo, VolumeError> {
        check_name("snapshot", name)?;
        let made = self.now();
        self.change(|catalog, at| {
            let row = catalog.find_volume(volume)?.clone();
            if catalog.snapshot(row.id, name).is_some() {
                return Ok(Vec::new());
            }
            Ok(vec![Change::PutSnapshot(SnapshotRow {
                id: SnapshotId(catalog.new_id()),
                name: name.to_owned(),
                volume: row.id,
                lineage: row.lineage,
                at,
                blocks: row.blocks,
                made,
            })])
        })?;
        let core = self.shared.core.lock();
        core.catalog.find_snapshot(volume, name).map(|row| snapshot_info(&row))
    }

    /// Deletes a snapshot. Its space is swept later.
    ///
    /// # Errors
    /// There is no such volume or snapshot, or the pool's.
    pub fn delete_snapshot(&self, volume: &str, name: &str) -> Result<(), VolumeError> {
        self.change(|catalog, _| {
            let snapshot = catalog.find_snapshot(volume, name)?;
            Ok(forget(catalog, &snapshot))
        })
    }

    /// Makes a volume that begins as a snapshot of another one.
    ///
    /// # Errors
    /// There is no such volume or snapshot, a name that is taken or bad, or the pool's.
    pub fn clone_volume(
        &self,
        volume: &str,
        snapshot: &str,
        name: &str,
    ) -> Result<VolumeInfo, VolumeError> {
        check_name("volume", name)?;
        let made = self.now();
        self.change(|catalog, _| {
            let snapshot = catalog.find_snapshot(volume, snapshot)?;
            if let Some(row) = catalog.volume(name) {
                let parent = catalog.lineages.get(&row.lineage).and_then(|row| row.parent);
                let is_same = parent == Some((snapshot.lineage, snapshot.at));
                return if is_same { Ok(Vec::new()) } else { Err(exists("volume", name)) };
            }
            let options = catalog.volume(volume).map(|row| row.options).unwrap_or_default();
            let (id, lineage) = (VolumeId(catalog.new_id()), LineageId(catalog.new_id()));
            Ok(vec![
                Change::PutLineage(LineageRow {
                    id: lineage,
                    parent: Some((snapshot.lineage, snapshot.at)),
                    head: Some(id),
                    sweep: None,
                }),
                Change::PutVolume(VolumeRow {
                    id,
                    name: name.to_owned(),
                    lineage,
                    blocks: snapshot.blocks,
                    options,
                    made,
                    trashed: None,
                    hosts: Vec::new(),
                }),
            ])
        })?;
        self.show(name)
    }

    /// Sets a volume back to one of its snapshots. Its other snapshots stay.
    ///
    /// # Errors
    /// There is no such volume or snapshot, or the pool's.
    pub fn rollback(&self, volume: &str, snapshot: &str) -> Result<VolumeInfo, VolumeError> {
        self.change(|catalog, _| {
            let snapshot = catalog.find_snapshot(volume, snapshot)?;
            let row = catalog.find_volume(volume)?.clone();
            let lineage = LineageId(catalog.new_id());
            let mut changes = vec![
                Change::PutLineage(LineageRow {
                    id: lineage,
                    parent: Some((snapshot.lineage, snapshot.at)),
                    head: Some(row.id),
                    sweep: None,
                }),
                Change::PutVolume(VolumeRow { lineage, blocks: snapshot.blocks, ..row.clone() }),
            ];
            let through = seen_through(catalog, row.lineage, Seqno::HEAD);
            changes.extend(swept(catalog, &through, Some(row.lineage)));
            Ok(changes)
        })?;
        self.show(volume)
    }

    /// Whether a volume goes on from this snapshot of its own: it was set back to it last.
    ///
    /// # Errors
    /// There is no such volume or snapshot.
    pub fn is_from(&self, volume: &str, snapshot: &str) -> Result<bool, VolumeError> {
        let catalog = &self.shared.core.lock().catalog;
        let snapshot = catalog.find_snapshot(volume, snapshot)?;
        let lineage = catalog.find_volume(volume)?.lineage;
        let parent = catalog.lineages.get(&lineage).and_then(|row| row.parent);
        Ok(parent == Some((snapshot.lineage, snapshot.at)))
    }

    /// Puts a volume into the trash for so many seconds; with 0 it is deleted at once, from the trash too. Its
    /// snapshots go with it.
    ///
    /// # Errors
    /// There is no such volume, or the pool's.
    pub fn delete_volume(&self, name: &str, keep_secs: u64) -> Result<(), VolumeError> {
        let until = self.now().saturating_add(keep_secs);
        self.change(|catalog, _| {
            let in_trash = catalog.trashed(name).filter(|_| keep_secs == 0);
            let row = catalog.find_volume(name).or_else(|error| in_trash.ok_or(error))?.clone();
            match keep_secs {
                0 => Ok(purge(catalog, &row)),
                _ => Ok(vec![Change::PutVolume(VolumeRow { trashed: Some(until), ..row })]),
            }
        })
    }

    /// Takes a volume out of the trash.
    ///
    /// # Errors
    /// None of this name is there, its name was taken meanwhile, or the pool's.
    pub fn restore(&self, name: &str) -> Result<VolumeInfo, VolumeError> {
        self.change(|catalog, _| {
            if catalog.volume(name).is_some() {
                return Err(exists("volume", name));
            }
            let absent = || VolumeError::NotFound {
                what: "volume in the trash",
                name: name.to_owned(),
                hint: "",
            };
            let row = catalog.trashed(name).ok_or_else(absent)?;
            Ok(vec![Change::PutVolume(VolumeRow { trashed: None, ..row.clone() })])
        })?;
        self.show(name)
    }

    fn now(&self) -> u64 {
        change::now(&self.shared)
    }

    /// Makes changes of the catalogue durable, then visible: all or none.
    fn change(
        &self,
        build: impl FnMut(&mut Catalog, Seqno) -> Result<Vec<Change>, VolumeError>,
    ) -> Result<(), VolumeError> {
        change::run(&self.shared, &mut self.shared.ios.take(), build)
    }
}
