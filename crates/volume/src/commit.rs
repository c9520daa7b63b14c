//! The end of the log, shared by all queue pairs: their changes wait in an inbox and become frames, a few of which are in
//! flight at a time; when none may be begun, all that waits gathers for the next one. Each look moves it on. Sees
//! `engine` and what is below.
//!
//! Invariants
//! 1. Frames become visible, and are acknowledged, in their order: each when it and all before it are durable on all copies.
//! 2. A batch is in the inbox, in a flight, or was told to its outbox.
//! 3. A copy that missed a frame is out of the configuration before anyone is told that the frame, or one behind it, is
//!    durable. When that fails, or a frame is lost, no frame behind it is acknowledged.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_base::sync::MutexGuard;
use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, Lba};
use esker_device::{Op, PlacementId};

use crate::buffer::Ring;
use crate::buffer::pending::PendingVersion;
use crate::buffer::ring::{Started, frame_bytes};
use crate::drive::Ticket;
use crate::engine::{Batch, Flight, Front, Shared, add};
use crate::omf::frame::Record;
use crate::space::HANDLES;
use crate::stats::Stage;
use crate::types::error::VolumeError;
use crate::types::id::{Block, DriveIndex, LineageId, Seqno, VolumeId};
use crate::types::{BLOCK, BLOCK_SIZE};

/// How long a caller that has nothing else to do waits before it looks at all copies.
const LOOK: Duration = Duration::from_millis(10);
/// How often there may be no room for a frame before its batches fail.
const REFUSALS_MAX: u32 = 16;

/// Frames in flight at a time.
const FLIGHTS_MAX: usize = 8;
/// The same for small ones, and the bytes from which on a frame is not small. A frame is padded to whole LBAs, and its head
/// takes one more: many small ones would fill the log with padding, and while it is filling there is one at a time.
const SMALL_FLIGHTS_MAX: usize = 2;
const SMALL_BYTES: u64 = 64 << 10;
/// Bytes of a frame that takes no further batch: it stays in a processor's cache until it is on all copies.
const FRAME_BYTES: u64 = 1 << 20;

/// How the end of the log is after it was moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing is in flight, and nothing waits.
    Idle,
    /// Frames are in flight.
    Flying,
    /// Nothing is in flight, and there is no room for the next frame.
    Full,
}

/// Moves the end of the log on, as far as it goes without waiting.
pub(crate) fn advance(shared: &Shared, front: &mut Front) -> State {
    let _alert = Alert(shared);
    loop {
        if shared.has_failed.load(Ordering::Acquire) {
            give_up(shared, front);
            return State::Idle;
        }
        if !front.flights.is_empty() {
            front.lanes.poll(&mut front.arrived);
            land(shared, front);
        }
        let before = front.flights.len();
        let state = loop {
            if front.flights.len() == FLIGHTS_MAX {
                break State::Flying;
            }
            match take_off(shared, front) {
                State::Flying => {}
                state => break state,
            }
        };
        match (front.flights.len(), state) {
            (0, state) => return state,
            (count, _) if count == before => return State::Flying,
            _ => front.lanes.push(),
        }
    }
}

/// Stops the pool when a panic ends a turn at the end of the log.
struct Alert<'a>(&'a Shared);

impl Drop for Alert<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("a thread panicked while it wrote to the write buffer");
        }
    }
}

/// The pool has failed: all that is under way, and all that waits, is told so.
fn give_up(shared: &Shared, front: &mut Front) {
    let Err(error) = shared.check_sound(&shared.core.lock()) else { return };
    let flights = std::mem::take(&mut front.flights).into_iter();
    let flying = flights.flat_map(|flight| flight.batches).map(|(_, batch)| batch);
    let waiting: Vec<Batch> = shared.inbox.lock().drain(..).collect();
    flying.chain(waiting).for_each(|batch| tell(shared, batch, Err(error.clone())));
}

/// Waits for the frames in flight. Nobody else appends as long as the guard is held.
pub(crate) fn hold(shared: &Shared) -> MutexGuard<'_, Front> {
    let _alert = Alert(shared);
    let mut front = shared.front.lock();
    while !front.flights.is_empty() {
        if shared.has_failed.load(Ordering::Acquire) {
            give_up(shared, &mut front);
            break;
        }
        let Front { lanes, arrived, .. } = &mut *front;
        lanes.wait(arrived, LOOK);
        land(shared, &mut front);
    }
    front
}

/// There was no room for the next frame, and nobody could make some: after a while those who wait for it fail.
pub(crate) fn refuse(shared: &Shared, why: Option<VolumeError>) {
    let mut front = shared.front.lock();
    front.refusals += 1;
    if why.is_none() && front.refusals <= REFUSALS_MAX {
        return;
    }
    front.refusals = 0;
    let error = why.unwrap_or_else(|| VolumeError::NoSpace {
        pool: shared.name.clone(),
        what: "the write buffer cannot be emptied".to_owned(),
    });
    let batches: Vec<Batch> = shared.inbox.lock().drain(..).collect();
    for batch in batches {
        tell(shared, batch, Err(error.clone()));
    }
}

fn tell(shared: &Shared, mut batch: Batch, result: Result<(), VolumeError>) {
    shared.admitted.fetch_sub(batch.bytes, Ordering::Relaxed);
    let changes = std::mem::take(&mut batch.changes);
    batch.outbox.lock().push((changes, result));
}

/// Begins the next frame with what waits, if there is anything.
fn take_off(shared: &Shared, front: &mut Front) -> State {
    loop {
        let mut log = shared.log.lock();
        let batches = waiting(shared, &log, front.flights.len());
        if batches.is_empty() {
            return State::Idle;
        }
        let batches = with_lineages(shared, batches);
        if batches.is_empty() {
            continue;
        }
        let started = log.start(shared.fleet.pool, &records(&batches), |size| front.buf(size));
        let Some((frame, bytes)) = started else {
            let mut inbox = shared.inbox.lock();
            batches.into_iter().rev().for_each(|(_, batch)| inbox.push_front(batch));
            return State::Full;
        };
        front.refusals = 0;
        let stamp = front.lanes.next_stamp();
        let began = shared.options.clock.now();
        let mut flight = Flight { frame, batches, stamp, left: 0, failed: Vec::new(), began };
        write_copies(shared, front, &log, &mut flight, bytes);
        front.flights.push_back(flight);
        return State::Flying;
    }
}

/// Batches that wait, as many as a frame holds; none while they are few and enough is in flight.
fn waiting(shared: &Shared, log: &Ring, in_flight: usize) -> Vec<Batch> {
    let mut inbox = shared.inbox.lock();
    let (mut bytes, mut records, mut count) = (0, 0, 0);
    for batch in inbox.iter() {
        bytes += to_usize(batch.bytes);
        records += batch.changes.len();
        if count > 0 && frame_bytes(bytes, records) > log.largest_frame().min(FRAME_BYTES) {
            break;
        }
        count += 1;
    }
    let most = if is_filling(log) { 1 } else { SMALL_FLIGHTS_MAX };
    if in_flight >= most && frame_bytes(bytes, records) < SMALL_BYTES {
        return Vec::new();
    }
    inbox.drain(..count).collect()
}

/// The batches whose volumes are there, with the lineages that those write to; the others are told that they are not.
fn with_lineages(shared: &Shared, batches: Vec<Batch>) -> Vec<(LineageId, Batch)> {
    let core = shared.core.lock();
    let lineage = |volume: VolumeId| {
        shared.check_writable(&core)?;
        let row = core.catalog.volumes.get(&volume).filter(|row| row.trashed.is_none());
        let name = || format!("{volume} of {}", shared.name);
        row.map(|row| row.lineage).ok_or_else(|| VolumeError::NotFound {
            what: "volume",
            name: name(),
            hint: "",
        })
    };
    let mut there = Vec::with_capacity(batches.len());
    for batch in batches {
        match lineage(batch.volume) {
            Ok(lineage) => there.push((lineage, batch)),
            Err(error) => tell(shared, batch, Err(error)),
        }
    }
    there
}

fn records(batches: &[(LineageId, Batch)]) -> Vec<Record<&[u8]>> {
    let changes = batches
        .iter()
        .flat_map(|(lineage, batch)| batch.changes.iter().map(|(_, op)| (*lineage, op)));
    let records = changes.map(|(lineage, op)| match op {
        Op::Write { lba, buf, .. } => {
            Record::Write { lineage, block: Block(lba.0), data: &buf[..] }
        }
        op => {
            let (lba, bytes) = op.range(4096);
            let (block, blocks) = (Block(lba.0), bytes / BLOCK);
            Record::Zero { lineage, block, blocks, at_once: false }
        }
    });
    records.collect()
}

/// Starts the writes of a frame to all copies.
fn write_copies(
    shared: &Shared,
    front: &mut Front,
    log: &Ring,
    flight: &mut Flight,
    bytes: AlignedBuf,
) {
    let mut bytes = Some(bytes);
    let last = log.members.len().saturating_sub(1);
    for (number, member) in (0..).zip(&log.members) {
        let place = log.place(&shared.fleet, *member, &flight.frame);
        let Some((place, drive)) = place.zip(shared.fleet.get(*member)) else {
            flight.failed.push(*member);
            continue;
        };
        let part = u32::from(member.0);
        let ticket = Ticket { slot: 0, stamp: flight.stamp, part };
        // The last copy takes the buffer that the others are copied from.
        if number == last
            && let Some(buf) = bytes.take_if(|bytes| bytes.len() <= drive.largest_io)
        {
            flight.left += 1;
            let op = Op::Write { lba: Lba(0), buf, placement: None, fua: true };
            front.lanes.start(ticket, *member, place, op);
            continue;
        }
        let whole = bytes.as_ref().expect("only the last one takes it");
        for (start, piece) in (0..).step_by(drive.largest_io).zip(whole.chunks(drive.largest_io)) {
            let mut buf = front.buf(piece.len());
            buf.copy_from_slice(piece);
            flight.left += 1;
            let op = Op::Write { lba: Lba(0), buf, placement: None, fua: true };
            front.lanes.start(ticket, *member, place + start, op);
        }
    }
}

/// Takes what has arrived, and ends the frames that have landed, as far as all before them have.
fn land(shared: &Shared, front: &mut Front) {
    for arrival in std::mem::take(&mut front.arrived) {
        let stamp = arrival.ticket.stamp;
        if let Some(flight) = front.flights.iter_mut().find(|flight| flight.stamp == stamp) {
            flight.left -= 1;
            let member = DriveIndex(u16::try_from(arrival.ticket.part).unwrap_or(u16::MAX));
            if arrival.result.is_err() && !flight.failed.contains(&member) {
                flight.failed.push(member);
            }
        }
        arrival.buf.into_iter().for_each(|buf| front.keep(buf));
    }
    while let Some(flight) = front.flights.pop_front_if(|flight| flight.left == 0) {
        end(shared, flight);
    }
}

/// A frame has arrived on all copies that are left, and so have all before it: it becomes visible, and those who wait for
/// it are told.
fn end(shared: &Shared, flight: Flight) {
    let Flight { frame, batches, failed, began, .. } = flight;
    let log = &mut *shared.log.lock();
    let result = finish(shared, log, &frame, &failed);
    if result.is_ok() {
        let changes = batches.iter().flat_map(|(_, batch)| &batch.changes);
        apply(shared, frame.head.first, &records(&batches), changes.map(|(_, op)| stream_of(op)));
    }
    let is_filling = is_filling(log);
    let time = shared.options.clock.now().since(began);
    for (_, batch) in batches {
        batch.tally.spend(Stage::Log, time);
        tell(shared, batch, result.clone());
    }
    if is_filling {
        shared.ring();
    }
}

/// Whether a frame is durable that has arrived on all copies but these; without them it is, when they are out.
fn finish(
    shared: &Shared,
    log: &mut Ring,
    frame: &Started,
    failed: &[DriveIndex],
) -> Result<(), VolumeError> {
    // A frame before it was lost, or not everybody knows that a copy missed it.
    shared.check_writable(&shared.core.lock())?;
    if log.members.iter().all(|member| failed.contains(member)) {
        let copies = log.members.len();
        let why = format!("the write buffer failed: none of the {copies} copies could be written");
        return Err(shared.stop(why));
    }
    let was_in = |member: &&DriveIndex| log.members.contains(member);
    let failed: Vec<DriveIndex> = failed.iter().filter(was_in).copied().collect();
    log.finish(frame, &failed);
    *shared.durable.lock() = log.end();
    match failed.is_empty() {
        true => Ok(()),
        false => shared.take_out(&mut shared.ios.take(), &failed),
    }
}

/// Whether maintenance has to make room in the log.
fn is_filling(log: &Ring) -> bool {
    log.used() > log.bytes / 2
}

/// The placement handle of a write; 0 for none.
fn stream_of(op: &Op) -> u8 {
    match op {
        Op::Write { placement: Some(PlacementId(handle)), .. } => {
            u8::try_from(*handle).ok().filter(|handle| *handle < HANDLES).unwrap_or(0)
        }
        _ => 0,
    }
}

/// Makes records visible, each with its placement handle. The log is locked, so that they become so in their order.
pub(crate) fn apply(
    shared: &Shared,
    first: Seqno,
    records: &[Record<&[u8]>],
    streams: impl Iterator<Item = u8>,
) {
    let mut core = shared.core.lock();
    for ((seqno, record), stream) in (first.0..).map(Seqno).zip(records).zip(streams) {
        match record {
            Record::Write { lineage, block, data } => {
                add(&shared.counts.user_written, to_u64(data.len()));
                for (at, bytes) in (block.0..).zip(data.chunks(BLOCK_SIZE)) {
                    let data = Some(Arc::from(bytes));
                    core.take_block(*lineage, Block(at), PendingVersion { seqno, data, stream });
                }
            }
            Record::Zero { lineage, block, blocks, at_once: false } => {
                for at in block.0..block.0 + blocks {
                    core.take_block(
                        *lineage,
                        Block(at),
                        PendingVersion { seqno, data: None, stream },
                    );
                }
            }
            Record::Zero { lineage, block, blocks, at_once: true } => {
                if let Some(points) = core.catalog.points(*lineage) {
                    core.pending.clear(*lineage, block.0..block.0 + blocks, seqno, &points);
                }
            }
            Record::Change(change) => core.take_change(change),
        }
    }
}
