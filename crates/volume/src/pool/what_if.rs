//! Forecasts: a drive fails, a volume or a snapshot is deleted. Nothing is changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::buffer::Points;
use crate::catalog::Catalog;
use crate::config::is_voter;
use crate::map::{Access, fragment_bytes};
use crate::omf::frame::Change;
use crate::omf::label::Role;
use crate::omf::leaf::Place;
use crate::pool::Pool;
use crate::pool::change::purge;
use crate::space::{Lasting, Room};
use crate::types::LEAF_BLOCKS;
use crate::types::error::VolumeError;
use crate::types::id::{DriveIndex, LineageId};

/// The pool as it would be if a drive failed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveLoss {
    /// Segments by how many of their chunks would be lost then: none, one, two, more.
    pub segments: [u64; 4],
    /// Segments whose content could not be computed any more.
    pub beyond_repair: u64,
    /// Bytes that live in segments with a lost chunk: they would be moved.
    pub to_move: u64,
    /// Bytes that volumes could hold then, as they are stored.
    pub usable: u64,
    /// Bytes that they hold now.
    pub live: u64,
    /// Copies of the write buffer that would be left.
    pub log_copies: usize,
    /// Whether enough drives would be left to open the pool.
    pub opens: bool,
}

impl Pool {
    /// The pool as it would be if a drive failed now.
    ///
    /// # Errors
    /// There is no such drive, or it is retired.
    pub fn if_failed(&self, drive: DriveIndex) -> Result<DriveLoss, VolumeError> {
        let role = self.role(drive)?;
        let shared = &self.shared;
        let log_members = shared.log.lock().members.clone();
        let core = shared.core.lock();
        let is_there = |one: DriveIndex| one != drive && shared.fleet.get(one).is_some();
        let (mut segments, mut beyond_repair, mut to_move) = ([0; 4], 0, 0);
        for segment in core.space.segments() {
            let row = &segment.row;
            let lost = row.chunks.iter().filter(|(one, _)| !is_there(*one)).count();
            segments[lost.min(3)] += 1;
            let is_lost = row.live_bytes > 0 && lost > usize::from(row.parity);
            beyond_repair += u64::from(is_lost);
            to_move += if lost > 0 && !is_lost { row.live_bytes } else { 0 };
        }
        let left = core.space.slots_for(Lasting::Stay).into_iter();
        let left = left.filter(|(one, _)| role != Role::Drive || *one != drive);
        let left: Vec<u64> = left.map(|(_, slots)| slots).collect();
        let (usable, _) = shared.usable_in(Room::of(&left, shared.fleet.layout.shape.width));
        let live = core.space.live_blocks();
        let config = shared.config.lock();
        let voters: Vec<usize> =
            (0..config.members.len()).filter(|index| is_voter(&config.members[*index])).collect();
        let present =
            |index: &&usize| is_there(DriveIndex(u16::try_from(**index).unwrap_or(u16::MAX)));
        let left = voters.iter().filter(present).count();
        Ok(DriveLoss {
            segments,
            beyond_repair,
            to_move,
            usable,
            live,
            log_copies: log_members.iter().filter(|one| is_there(**one)).count(),
            opens: 2 * left > voters.len(),
        })
    }

    /// How many bytes, as they are stored, would be free if a volume were deleted with its snapshots, or one of its
    /// snapshots alone; one in the trash, too. It moves what is in the write buffer into segments, and reads the map.
    ///
    /// # Errors
    /// There is no such volume or snapshot, or the pool's.
    pub fn if_deleted(&self, name: &str, snapshot: Option<&str>) -> Result<u64, VolumeError> {
        self.drain()?;
        let shared = &self.shared;
        let not_found =
            |what, name: &str| VolumeError::NotFound { what, name: name.to_owned(), hint: "" };
        let (changed, leaves) = {
            let core = shared.core.lock();
            let row = core.catalog.volume(name).or(core.catalog.trashed(name));
            let row = row.ok_or_else(|| not_found("volume", name))?;
            let changes = match snapshot {
                Some(snapshot) => {
                    let found = core.catalog.snapshot(row.id, snapshot);
                    let found = found.ok_or_else(|| not_found("snapshot", snapshot))?;
                    vec![Change::RemoveSnapshot(found.id)]
                }
                None => purge(&core.catalog, row),
            };
            let changed = changed_points(&core.catalog, &changes);
            let leaves = core.map.all_leaves().into_iter();
            let leaves = leaves.filter(|(lineage, _)| changed.contains_key(lineage));
            let leaves: Vec<_> = leaves.collect();
            (changed, leaves)
        };
        let mut io = shared.ios.take();
        let mut freed = 0;
        for (lineage, index) in leaves {
            let (before, after) = &changed[&lineage];
            let mut core = shared.core.lock();
            let core = &mut *core;
            for within in 0..LEAF_BLOCKS {
                let within = u16::try_from(within).expect("at most 512");
                let mut access = Access { io: &mut io, space: &mut core.space };
                let versions = core.map.versions_of(&mut access, (lineage, index), within);
                let versions = versions.map_err(|broken| shared.damaged(&broken))?;
                for (number, version) in versions.iter().enumerate() {
                    let Place::Fragment(fragment) = version.place else { continue };
                    let next = versions.get(number + 1).map(|next| next.birth);
                    if before.see(version.birth, next) && !after.see(version.birth, next) {
                        freed += fragment_bytes(&fragment);
                    }
                }
            }
        }
        Ok(freed)
    }
}

/// The readers of each lineage now, and after changes, where that is not the same. Lineages go that nobody looks at, and
/// their parents are looked at by one less.
fn changed_points(
    before: &Catalog,
    changes: &[Change],
) -> BTreeMap<LineageId, (Arc<Points>, Arc<Points>)> {
    let mut after = before.clone();
    changes.iter().for_each(|change| after.apply(change));
    let unseen = |catalog: &Catalog| {
        let all = catalog.lineages.keys().copied();
        let mut found = all.filter_map(|lineage| Some((lineage, catalog.points(lineage)?)));
        found.find(|(_, points)| !points.has_head && points.seqnos.is_empty())
    };
    while let Some((lineage, _)) = unseen(&after) {
        after.apply(&Change::RemoveLineage(lineage));
    }
    let lineages = before.lineages.keys();
    let points = lineages.filter_map(|lineage| {
        let (old, new) = (before.points(*lineage)?, after.points(*lineage).unwrap_or_default());
        (old != new).then_some((*lineage, (old, new)))
    });
    points.collect()
}
