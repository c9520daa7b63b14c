//! Repair: segments with chunks on drives that are out, that are damaged, or on drives that are drained, are moved to
//! other places, those first that have lost most. A scrub reads everything and finds what is damaged.

use esker_base::checksum::crc32c;
use esker_base::units::to_usize;

use crate::drive::{Io, Read};
use crate::engine::{Keeper, Scrub, Shared, add};
use crate::keep::{checkpoint, clean};
use crate::omf::label::MemberState;
use crate::omf::root::SegmentRow;
use crate::omf::seal::Seal;
use crate::space::Segment;
use crate::types::error::VolumeError;
use crate::types::id::{DriveIndex, SegmentId};

/// Goes on with what is to be repaired; false when nothing is.
pub(crate) fn step(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<bool, VolumeError> {
    if let Some(id) = most_degraded(shared, keeper) {
        move_away(shared, keeper, io, id)?;
        return Ok(true);
    }
    if retire_drained(shared, keeper, io)? {
        return Ok(true);
    }
    if keeper.scrub.is_running {
        scrub_next(shared, keeper, io);
        return Ok(true);
    }
    Ok(false)
}

/// How badly a segment needs to be moved: chunks lost, damage, chunks on drives that are drained, parities that it was
/// not given.
fn need(
    shared: &Shared,
    draining: &[DriveIndex],
    parity: u8,
    segment: &Segment,
) -> (usize, bool, usize, u8) {
    let chunks = &segment.row.chunks;
    let lost = chunks.iter().filter(|(drive, _)| shared.fleet.get(*drive).is_none());
    let drained = chunks.iter().filter(|(drive, _)| draining.contains(drive));
    let missing = parity.saturating_sub(segment.row.parity);
    (lost.count(), segment.is_damaged, drained.count(), missing)
}

fn most_degraded(shared: &Shared, keeper: &Keeper) -> Option<SegmentId> {
    let draining = draining(shared);
    let core = shared.core.lock();
    let (_, parity) = shared.shape_now(&core.space);
    let closed = core.space.segments().filter(|segment| {
        !segment.is_open && segment.row.live_bytes > 0 && !keeper.given_up.contains(&segment.row.id)
    });
    let needs = closed.map(|segment| (need(shared, &draining, parity, segment), segment.row.id));
    let worst = needs.max()?;
    (worst.0 > (0, false, 0, 0)).then_some(worst.1)
}

fn draining(shared: &Shared) -> Vec<DriveIndex> {
    let config = shared.config.lock();
    let members = (0..).zip(&config.members);
    let draining = members.filter(|(_, member)| member.state == MemberState::Draining);
    draining.map(|(index, _)| DriveIndex(index)).collect()
}

/// Moves what lives in a segment elsewhere, or reports that it cannot.
fn move_away(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    id: SegmentId,
) -> Result<(), VolumeError> {
    crate::keep::ensure_space(shared, keeper, io)?;
    let live = shared.core.lock().space.get(id).map_or(0, |segment| segment.row.live_bytes);
    clean::move_out(shared, keeper, io, id)?;
    add(&shared.counts.rebuilt, live);
    // Leaves and nodes move with the next checkpoint, and slots become free with it.
    checkpoint::run(shared, keeper, io, &checkpoint::Want::default())
}

/// Retires drives that are drained and hold nothing any more.
fn retire_drained(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<bool, VolumeError> {
    let drained: Vec<DriveIndex> = {
        let draining = draining(shared);
        let core = shared.core.lock();
        let holds = |drive: &DriveIndex| {
            core.space.segments().any(|s| s.row.chunks.iter().any(|(d, _)| d == drive))
        };
        draining.into_iter().filter(|drive| !holds(drive)).collect()
    };
    if drained.is_empty() {
        return Ok(false);
    }
    // The log moves off them, and no checkpoint names them.
    let mut failed = Vec::new();
    {
        let mut core = shared.core.lock();
        let mut config = shared.config.lock();
        let epoch = config.epoch.0 + 1;
        config.epoch.0 = epoch;
        for drive in &drained {
            let member = &mut config.members[drive.index()];
            member.state = MemberState::Retired;
            member.since.0 = epoch;
            core.space.forget_drive(*drive);
        }
    }
    for drive in drained.iter().filter_map(|drive| shared.fleet.any(*drive)) {
        drive.take_out();
    }
    checkpoint::run(shared, keeper, io, &checkpoint::Want { new_log: true, is_clean: false })?;
    let mut config = shared.config.lock();
    shared.write_config(io, &mut config, &mut failed);
    drop(config);
    shared.take_out(io, &failed)?;
    Ok(true)
}

/// Starts a scrub, or starts it over.
pub(crate) fn start_scrub(keeper: &mut Keeper) {
    keeper.scrub = Scrub { is_running: true, ..Scrub::default() };
}

/// Scrubs the next segment.
fn scrub_next(shared: &Shared, keeper: &mut Keeper, io: &mut Io) {
    let next = {
        let core = shared.core.lock();
        let mut closed = core.space.segments().filter(|segment| !segment.is_open);
        closed.find(|s| s.row.id >= keeper.scrub.next).map(|s| s.row.clone())
    };
    let Some(row) = next else {
        keeper.scrub.is_running = false;
        return;
    };
    keeper.scrub.next = SegmentId(row.id.0 + 1);
    let mut bad = 0;
    let is_there = |chunk: &usize| shared.fleet.get(row.chunks[*chunk].0).is_some();
    for chunk in (0..row.chunks.len()).filter(is_there) {
        let (bytes, is_good) = check_chunk(io, &row, chunk);
        keeper.scrub.bytes += bytes;
        if is_good {
            continue;
        }
        bad += 1;
        if let Some(drive) = shared.fleet.get(row.chunks[chunk].0) {
            drive.blame();
        }
    }
    keeper.scrub.errors += bad;
    if bad > 0
        && let Some(segment) = shared.core.lock().space.get_mut(row.id)
    {
        segment.is_damaged = true;
        keeper.given_up.retain(|id| *id != row.id);
    }
}

/// The seal of a chunk, as the table has it.
pub(crate) fn read_seal(io: &mut Io, row: &SegmentRow, chunk: usize) -> Option<Seal> {
    let layout = io.fleet().layout;
    let pool = io.fleet().pool;
    let (drive, slot) = row.chunks[chunk];
    let offset = layout.seal_offset(slot, row.seal_copy);
    let read = Read { drive, offset, size: layout.seal_size() };
    let bytes = io.read(&[read]).pop()?.ok()?;
    let seal = Seal::decode(&bytes, pool, drive, slot, row.generation).ok()?;
    let is_whole = seal.unit_crcs.len() >= to_usize(row.rows.into());
    (is_whole && seal.segment == row.id && usize::from(seal.chunk) == chunk).then_some(seal)
}

/// Reads a chunk against its seal: how many bytes, and whether they are right.
fn check_chunk(io: &mut Io, row: &SegmentRow, chunk: usize) -> (u64, bool) {
    let layout = io.fleet().layout;
    let (drive, slot) = row.chunks[chunk];
    let Some(seal) = read_seal(io, row, chunk) else { return (0, false) };
    let size = layout.unit_size();
    let reads =
        (0..row.rows).map(|row| Read { drive, offset: layout.unit_offset(slot, row), size });
    let units = io.read(&reads.collect::<Vec<_>>());
    let is_good = units
        .iter()
        .zip(&seal.unit_crcs)
        .all(|(unit, crc)| unit.as_ref().is_ok_and(|unit| crc32c(unit) == *crc));
    (u64::from(row.rows) * u64::from(layout.shape.unit_bytes), is_good)
}
