//! Forecasts: a drive fails, a volume or a snapshot is deleted. Nothing is changed.

use crate::config::is_voter;
use crate::engine::{AtLeaf, Viewers, bytes_of};
use crate::map::Access;
use crate::omf::frame::Change;
use crate::omf::label::Role;
use crate::pool::Pool;
use crate::pool::change::{forget, purge};
use crate::segment::Broken;
use crate::space::{Lasting, Room};
use crate::types::error::VolumeError;
use crate::types::id::DriveIndex;

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
        let (before, after, leaves) = {
            let core = shared.core.lock();
            let row = core.catalog.volume(name).or(core.catalog.trashed(name));
            let row = row.ok_or_else(|| not_found("volume", name))?;
            let changes = match snapshot {
                Some(snapshot) => {
                    let found = core.catalog.snapshot(row.id, snapshot);
                    let found = found.ok_or_else(|| not_found("snapshot", snapshot))?;
                    forget(&core.catalog, found)
                }
                None => purge(&core.catalog, row),
            };
            let mut after = core.catalog.clone();
            changes.iter().for_each(|change| after.apply(change));
            let is_swept = |lineage| {
                let of = |change: &Change| matches!(change, Change::PutLineage(row) if row.id == lineage);
                changes.iter().any(of)
            };
            let leaves = core.map.all_leaves().into_iter();
            let leaves: Vec<_> = leaves.filter(|(lineage, _)| is_swept(*lineage)).collect();
            (Viewers::of(&core.catalog), Viewers::of(&after), leaves)
        };
        let mut io = shared.ios.take();
        let mut freed = 0;
        for key in leaves {
            let mut core = shared.core.lock();
            let core = &mut *core;
            let mut access = Access { io: &mut io, space: &mut core.space };
            let mut free = || -> Result<u64, Broken> {
                let before =
                    before.sight(&mut core.map, &mut access, key, &mut AtLeaf::default())?;
                let after = after.sight(&mut core.map, &mut access, key, &mut AtLeaf::default())?;
                let versions = core.map.versions(&mut access, key)?;
                Ok(bytes_of(&versions, |block, birth, next| {
                    before.see(block, birth, next) && !after.see(block, birth, next)
                }))
            };
            freed += free().map_err(|broken| shared.damaged(&broken))?;
        }
        Ok(freed)
    }
}
