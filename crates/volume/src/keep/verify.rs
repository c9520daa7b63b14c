//! Verification: chunks are read and compared with their seals. Three reasons: a drive returned, somebody asked for a
//! scrub, or one is due. What is wrong is left to `repair`.

use esker_base::checksum::crc32c;
use esker_base::units::to_usize;

use crate::drive::{Io, Read};
use crate::engine::{Keeper, Scrub, Shared};
use crate::keep::checkpoint::{self, Want};
use crate::omf::label::MemberState;
use crate::omf::root::SegmentRow;
use crate::omf::seal::Seal;
use crate::types::error::VolumeError;
use crate::types::id::{DriveIndex, SegmentId};

/// Verifies the next of what is to be verified; false when nothing is.
pub(crate) fn step(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<bool, VolumeError> {
    if let Some(drive) = shared.in_state(MemberState::Rejoining).first() {
        verify_returned(shared, keeper, io, *drive)?;
        return Ok(true);
    }
    if keeper.scrub.is_running {
        scrub_next(shared, keeper, io);
        return Ok(true);
    }
    Ok(false)
}

/// Starts a scrub, or starts it over.
pub(crate) fn start_scrub(keeper: &mut Keeper) {
    keeper.scrub = Scrub { is_running: true, ..Scrub::default() };
}

/// The first closed segment from `from` on for which this holds.
fn next_closed(
    shared: &Shared,
    from: SegmentId,
    is_wanted: impl Fn(&SegmentRow) -> bool,
) -> Option<SegmentRow> {
    let core = shared.core.lock();
    let mut closed = core.space.segments().filter(|segment| !segment.is_open);
    closed.find(|s| s.row.id >= from && is_wanted(&s.row)).map(|s| s.row.clone())
}

/// Verifies the next chunk of a drive that was missing; it is as good as the others when all were.
fn verify_returned(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    drive: DriveIndex,
) -> Result<(), VolumeError> {
    let chunk_on = |row: &SegmentRow| row.chunks.iter().position(|(owner, _)| *owner == drive);
    let next = next_closed(shared, keeper.returned_next, |row| chunk_on(row).is_some());
    let Some((row, chunk)) = next.and_then(|row| chunk_on(&row).map(|chunk| (row, chunk))) else {
        keeper.returned_next = SegmentId(0);
        checkpoint::run(shared, keeper, io, &Want::default())?; // it has none since it was missing
        return shared.set_states(io, &[(drive, MemberState::Online)]);
    };
    keeper.returned_next = SegmentId(row.id.0 + 1);
    verify_chunks(shared, keeper, io, &row, chunk..chunk + 1);
    Ok(())
}

/// Scrubs the next segment.
fn scrub_next(shared: &Shared, keeper: &mut Keeper, io: &mut Io) {
    let Some(row) = next_closed(shared, keeper.scrub.next, |_| true) else {
        keeper.scrub.is_running = false;
        return;
    };
    keeper.scrub.next = SegmentId(row.id.0 + 1);
    let (bytes, bad) = verify_chunks(shared, keeper, io, &row, 0..row.chunks.len());
    keeper.scrub.bytes += bytes;
    keeper.scrub.errors += bad;
}

/// Verifies these chunks of a segment, as far as their drives are there: bytes read, and chunks that are wrong.
fn verify_chunks(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
    row: &SegmentRow,
    chunks: std::ops::Range<usize>,
) -> (u64, u64) {
    let (mut sum, mut bad) = (0, 0);
    for chunk in chunks {
        let Some(drive) = shared.fleet.get(row.chunks[chunk].0) else { continue };
        let (bytes, is_good) = check_chunk(io, row, chunk);
        sum += bytes;
        if !is_good {
            bad += 1;
            drive.blame();
        }
    }
    if bad > 0
        && let Some(segment) = shared.core.lock().space.get_mut(row.id)
        && segment.row.generation == row.generation
    {
        segment.is_damaged = true;
        keeper.given_up.retain(|id| *id != row.id);
    }
    (sum, bad)
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
pub(crate) fn check_chunk(io: &mut Io, row: &SegmentRow, chunk: usize) -> (u64, bool) {
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
