//! Verification: chunks are read and compared with their seals. Four reasons: the pool was not closed, a drive returned,
//! somebody asked for a scrub, or one is due. What is wrong is left to `repair`.

use std::time::Duration;

use esker_base::checksum::crc32c;
use esker_base::units::{to_u64, to_usize};

use crate::drive::{Io, Read};
use crate::engine::{Keeper, Scrub, Shared};
use crate::keep::checkpoint::{self, Options};
use crate::keep::output;
use crate::keep::salvage;
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
    if scrub_is_due(shared, keeper) {
        scrub_next(shared, keeper, io)?;
        return Ok(true);
    }
    Ok(false)
}

/// Verifies the next of the segments that were written last before an unclean end; false when all were. A drive that
/// lied about a flush is found out so, before what is lost is overwritten in the write buffer.
pub(crate) fn newest(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
) -> Result<bool, VolumeError> {
    let Some(id) = keeper.window.pop() else { return Ok(false) };
    let Some(row) = next_closed(shared, id, |row| row.id == id) else { return Ok(true) };
    let (_, bad) = verify_chunks(shared, keeper, io, &row, 0..row.chunks.len());
    let gone = row.chunks.iter().filter(|(drive, _)| shared.fleet.get(*drive).is_none()).count();
    if bad + to_u64(gone) > row.parity.into() {
        salvage::run(shared, keeper, io, &row)?;
    }
    Ok(true)
}

/// Starts a scrub that ends as soon as it can, or starts it over.
pub(crate) fn start_scrub(shared: &Shared, keeper: &mut Keeper) {
    start(shared, keeper, None);
}

fn start(shared: &Shared, keeper: &mut Keeper, due: Option<Duration>) {
    let (began, finished) = (now(shared).as_secs().max(1), keeper.scrub.finished);
    keeper.scrub = Scrub { is_running: true, due, began, finished, ..Scrub::default() };
}

fn now(shared: &Shared) -> Duration {
    shared.options.clock.unix_time()
}

/// How long a pass may take: half of the time, or what is written behind one would be read too late by the next.
fn time_of_pass(shared: &Shared) -> Option<Duration> {
    shared.options.scrub_within.map(|within| within / 2)
}

/// Whether the next segment is to be scrubbed now.
fn scrub_is_due(shared: &Shared, keeper: &mut Keeper) -> bool {
    let is_asked_for = keeper.scrub.is_running && keeper.scrub.due.is_none();
    let Some(pass) = time_of_pass(shared).filter(|_| !is_asked_for) else { return is_asked_for };
    if !keeper.scrub.is_running {
        let began = Duration::from_secs(keeper.scrub.began);
        if keeper.scrub.began > 0 && now(shared) < began + pass {
            return false;
        }
        start(shared, keeper, Some(Duration::ZERO));
    }
    keeper.scrub.due.is_some_and(|due| due <= now(shared))
}

/// When the next segment of a scrub that has time is due.
fn next_due(shared: &Shared, keeper: &Keeper) -> Option<Duration> {
    let pass = time_of_pass(shared).filter(|_| keeper.scrub.due.is_some())?;
    let core = shared.core.lock();
    let before = core.space.segments().filter(|s| s.row.id < keeper.scrub.next).count();
    let part = before as f64 / core.space.segments().count().max(1) as f64;
    Some(Duration::from_secs(keeper.scrub.began) + pass.mul_f64(part))
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
    let from = keeper.returned.filter(|(one, _)| *one == drive).map_or(SegmentId(0), |(_, id)| id);
    let next = next_closed(shared, from, |row| chunk_on(row).is_some());
    let Some((row, chunk)) = next.and_then(|row| chunk_on(&row).map(|chunk| (row, chunk))) else {
        keeper.returned = None;
        checkpoint::run(shared, keeper, io, &Options::default())?; // it has none since it was missing
        return shared.set_states(io, &[(drive, MemberState::Online)]);
    };
    keeper.returned = Some((drive, SegmentId(row.id.0 + 1)));
    verify_chunks(shared, keeper, io, &row, chunk..chunk + 1);
    Ok(())
}

/// Scrubs the next segment.
fn scrub_next(shared: &Shared, keeper: &mut Keeper, io: &mut Io) -> Result<(), VolumeError> {
    if let Some(row) = next_to_scrub(shared, keeper, io)? {
        keeper.scrub.next = SegmentId(row.id.0 + 1);
        keeper.scrub.due = next_due(shared, keeper);
        let (bytes, bad) = verify_chunks(shared, keeper, io, &row, 0..row.chunks.len());
        keeper.scrub.bytes += bytes;
        keeper.scrub.errors += bad;
    }
    if next_written(shared, keeper.scrub.next).is_none() {
        keeper.scrub.is_running = false;
        keeper.scrub.finished = now(shared).as_secs().max(1);
    }
    Ok(())
}

/// The next segment of a scrub. An open one is sealed as far as it is written: its units are compared with that seal.
fn next_to_scrub(
    shared: &Shared,
    keeper: &mut Keeper,
    io: &mut Io,
) -> Result<Option<SegmentRow>, VolumeError> {
    let Some(id) = next_written(shared, keeper.scrub.next) else { return Ok(None) };
    let open = keeper.writers.iter().find(|(_, writer)| writer.row.id == id);
    if let Some(class) = open.map(|(class, _)| *class) {
        output::seal(shared, keeper, io, class)?;
    }
    Ok(shared.core.lock().space.get(id).map(|segment| segment.row.clone()))
}

/// The first segment from `from` on that something was written to.
fn next_written(shared: &Shared, from: SegmentId) -> Option<SegmentId> {
    let core = shared.core.lock();
    let mut rows = core.space.segments().map(|segment| &segment.row);
    rows.find(|row| row.id >= from && row.rows > 0).map(|row| row.id)
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
fn read_seal(io: &mut Io, row: &SegmentRow, chunk: usize) -> Option<Seal> {
    let read = place_of_seal(io, row, chunk);
    let bytes = io.read(&[read]).pop()?.ok()?;
    decode_seal(io, row, chunk, &bytes)
}

/// The seals of all chunks of these segments, read at once.
pub(crate) fn read_seals(io: &mut Io, rows: &[&SegmentRow]) -> Vec<Vec<Option<Seal>>> {
    let chunks = rows.iter().flat_map(|row| (0..row.chunks.len()).map(|chunk| (*row, chunk)));
    let reads: Vec<Read> = chunks.map(|(row, chunk)| place_of_seal(io, row, chunk)).collect();
    let mut answers = io.read(&reads).into_iter();
    let seals = rows.iter().map(|row| {
        let own = answers.by_ref().take(row.chunks.len()).enumerate();
        own.map(|(chunk, bytes)| decode_seal(io, row, chunk, &bytes.ok()?)).collect()
    });
    seals.collect()
}

fn place_of_seal(io: &Io, row: &SegmentRow, chunk: usize) -> Read {
    let layout = io.fleet().layout;
    let (drive, slot) = row.chunks[chunk];
    Read { drive, offset: layout.seal_offset(slot, row.seal_copy), size: layout.seal_size() }
}

fn decode_seal(io: &Io, row: &SegmentRow, chunk: usize, bytes: &[u8]) -> Option<Seal> {
    let (drive, slot) = row.chunks[chunk];
    let seal = Seal::decode(bytes, io.fleet().pool, drive, slot, row.generation).ok()?;
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
