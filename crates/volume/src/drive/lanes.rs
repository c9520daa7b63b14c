//! Commands to many drives at once, as a queue pair of each: started, then polled. A command is known by its
//! [`Ticket`], which comes back with its outcome.
//!
//! Invariants
//! 1. Every command that was started arrives once, whatever becomes of its drive.
//! 2. A queue pair belongs to the drive that it was opened on: a drive that took the place of another one gets its own.
//! 3. A drive that has not answered a command for as long as the fleet's patience is taken out. Its commands may still
//!    end, into buffers that must be there then: so its queue pair is never dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount, Nanos};
use esker_device::{Cause, Command, Completion, DeviceError, Op, OpKind, QueuePair, Tag};

use crate::drive::fleet::{Drive, Fleet};
use crate::drive::latency::IoKind;
use crate::omf::label::Role;
use crate::types::id::DriveIndex;

/// Commands in flight on one drive.
const DEPTH: usize = 64;
/// How long one drive is waited for while others are busy, too.
const GLANCE: Duration = Duration::from_micros(20);

/// The purpose of a command: numbers that its owner gives a meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) slot: u32,
    pub(crate) stamp: u32,
    pub(crate) part: u32,
}

/// The outcome of a command.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) ticket: Ticket,
    pub(crate) result: Result<(), DeviceError>,
    pub(crate) buf: Option<AlignedBuf>,
}

struct Flight {
    ticket: Ticket,
    op: OpKind,
    /// The kind that its latency is counted as.
    kind: Option<IoKind>,
    /// On the pool's clock, and on the one that counts the patience.
    started: Nanos,
    asked: Nanos,
}

struct Lane {
    drive: Arc<Drive>,
    queue: Box<dyn QueuePair>,
    batch: VecDeque<Command>,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Flights that have not arrived, those in the batch included.
    count: usize,
}

/// A queue pair of each drive that was used.
pub(crate) struct Lanes {
    fleet: Arc<Fleet>,
    lanes: Vec<Option<Lane>>,
    /// Commands that ended without a drive.
    ended: Vec<Arrival>,
    done: Vec<Completion>,
    /// The lane whose turn it is to be waited for.
    turn: usize,
    /// Of the fleet's drives, as the lanes were last compared with them.
    version: u64,
    /// When commands that were not answered were last looked for.
    looked: Nanos,
    count: usize,
    stamp: u32,
}

impl Lanes {
    pub(crate) fn new(fleet: Arc<Fleet>) -> Lanes {
        let version = fleet.version();
        Lanes {
            fleet,
            lanes: Vec::new(),
            ended: Vec::new(),
            done: Vec::new(),
            turn: 0,
            version,
            looked: Nanos(0),
            count: 0,
            stamp: 0,
        }
    }

    pub(crate) fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Opens a queue pair of each drive that serves, so that commands need no descriptors later. A drive that refuses while
    /// others do not is at fault itself, and asked again when it is used.
    pub(crate) fn open(&mut self) -> Result<(), DeviceError> {
        let of = |role| self.fleet.serving(role);
        let serving: Vec<Arc<Drive>> =
            [Role::Buffer, Role::Drive].into_iter().flat_map(of).collect();
        let (mut refused, mut witness) = (None, None);
        for drive in &serving {
            match self.lane(drive.index) {
                Ok(_) => witness = Some(drive),
                Err(why) => refused = Some(why),
            }
        }
        let Some((name, message)) = refused else { return Ok(()) };
        match witness.is_some_and(|drive| drive.device.queue_pair(DEPTH).is_ok()) {
            true => Ok(()),
            false => {
                let cause = Cause::Os { kind: ErrorKind::Retry, message };
                Err(DeviceError::new(&name, OpKind::Read, Lba(0), 0, cause))
            }
        }
    }

    /// A number that no ticket of these lanes has had for a long time.
    pub(crate) fn next_stamp(&mut self) -> u32 {
        self.stamp = self.stamp.wrapping_add(1);
        self.stamp
    }

    /// Commands that have not arrived.
    pub(crate) fn in_flight(&self) -> usize {
        self.count
    }

    /// Commands that a drive has.
    pub(crate) fn in_flight_on(&self, drive: DriveIndex) -> usize {
        self.lanes.get(drive.index()).and_then(Option::as_ref).map_or(0, |lane| lane.count)
    }

    /// Readies a command, whose place is a byte of the drive; [`Lanes::push`] starts it.
    pub(crate) fn start(&mut self, ticket: Ticket, index: DriveIndex, offset: u64, op: Op) {
        let now = (self.fleet.clock.now(), self.fleet.watch.now());
        self.start_at(now, ticket, index, offset, op);
    }

    /// The same, at this moment of the pool's clock and of the one that counts the patience.
    pub(crate) fn start_at(
        &mut self,
        (started, asked): (Nanos, Nanos),
        ticket: Ticket,
        index: DriveIndex,
        offset: u64,
        op: Op,
    ) {
        self.count += 1;
        let (kind, counted) = (op.kind(), IoKind::of(&op));
        match self.lane(index) {
            Ok(lane) => {
                let at = lane.free.pop().unwrap_or_else(|| {
                    lane.flights.push(None);
                    lane.flights.len() - 1
                });
                lane.flights[at] = Some(Flight { ticket, op: kind, kind: counted, started, asked });
                lane.count += 1;
                let op = place(op, offset, lane.drive.lba_size);
                lane.batch.push_back(Command { tag: Tag(to_u64(at)), op });
            }
            Err((name, why)) => {
                let error = DeviceError::new(&name, kind, Lba(offset / 512), 0, Cause::Gone(why));
                self.ended.push(Arrival { ticket, result: Err(error), buf: op.into_buf() });
            }
        }
    }

    /// Gives the drives what is ready, as far as they take it.
    pub(crate) fn push(&mut self) {
        for at in 0..self.lanes.len() {
            let Some(lane) = &mut self.lanes[at] else { continue };
            if !lane.batch.is_empty()
                && let Err(error) = lane.queue.submit(&mut lane.batch)
            {
                // It is broken: what it has not taken fails.
                for Command { tag, op } in lane.batch.drain(..) {
                    let (result, buf) = (Err(error.clone()), op.into_buf());
                    self.done.push(Completion { tag, result, buf });
                }
                self.ended.extend(lane.take(&mut self.done, Nanos(0)));
            }
        }
    }

    /// Appends what has arrived.
    pub(crate) fn poll(&mut self, arrived: &mut Vec<Arrival>) {
        let before = arrived.len();
        if self.count == 0 {
            return;
        }
        self.push();
        let mut now = None;
        for at in 0..self.lanes.len() {
            let Some(lane) = &mut self.lanes[at] else { continue };
            if lane.queue.in_flight() == 0 {
                continue;
            }
            match lane.queue.poll(&mut self.done) {
                Ok(0) => {}
                Ok(_) => {
                    let now = *now.get_or_insert_with(|| self.fleet.clock.now());
                    arrived.extend(lane.take(&mut self.done, now));
                }
                Err(error) => self.give_up(at, &error.to_string()),
            }
        }
        arrived.append(&mut self.ended);
        let count = arrived.len() - before;
        self.count -= count;
        if let Some(now) = now {
            self.fleet.judge(now);
        }
        if count == 0 {
            self.look_for_silence();
            let ended = arrived.len();
            arrived.append(&mut self.ended);
            self.count -= arrived.len() - ended;
        }
    }

    /// Polls, and waits a little or up to `limit` if nothing has arrived. Returns whether something has.
    pub(crate) fn wait(&mut self, arrived: &mut Vec<Arrival>, limit: Duration) -> bool {
        let before = arrived.len();
        self.poll(arrived);
        if arrived.len() > before || self.count == 0 {
            return arrived.len() > before;
        }
        let count = self.lanes.len();
        let is_busy =
            |lane: &Option<Lane>| lane.as_ref().is_some_and(|lane| lane.queue.in_flight() > 0);
        let busy = self.lanes.iter().filter(|lane| is_busy(lane)).count();
        let mut turns = (1..=count).map(|step| (self.turn + step) % count);
        let Some(at) = turns.find(|at| is_busy(&self.lanes[*at])) else { return false };
        self.turn = at;
        let limit = if busy > 1 { limit.min(GLANCE) } else { limit };
        let lane = self.lanes[at].as_mut().expect("it is busy");
        match lane.queue.wait(&mut self.done, Some(limit)) {
            Ok(_) => {
                let now = self.fleet.clock.now();
                arrived.extend(lane.take(&mut self.done, now));
                self.count -= arrived.len() - before;
                self.fleet.judge(now);
            }
            Err(error) => self.give_up(at, &error.to_string()),
        }
        arrived.len() > before
    }

    /// Takes drives out that have not answered a command for too long.
    fn look_for_silence(&mut self) {
        let (now, patience) = (self.fleet.watch.now(), self.fleet.patience);
        let since = now.since(self.looked);
        if since < patience / 8 {
            return;
        }
        self.looked = now;
        // Nobody looked for so long that a drive may have answered only now that it was asked.
        if since > patience / 2 {
            return;
        }
        for at in 0..self.lanes.len() {
            let Some(lane) = &self.lanes[at] else { continue };
            let oldest = lane.flights.iter().flatten().map(|flight| flight.asked).min();
            if oldest.is_some_and(|asked| now.since(asked) >= patience) {
                self.give_up(at, &format!("it did not answer within {patience:?}"));
            }
        }
    }

    /// Nothing is asked of this drive any more, and its commands fail.
    fn give_up(&mut self, at: usize, why: &str) {
        let Some(mut lane) = self.lanes[at].take() else { return };
        lane.drive.take_out();
        for flight in lane.flights.drain(..).flatten() {
            lane.drive.count(flight.op);
            let (name, cause) = (lane.drive.device.name(), Cause::Gone(why.to_owned()));
            let error = DeviceError::new(name, flight.op, Lba(0), 0, cause);
            self.ended.push(Arrival { ticket: flight.ticket, result: Err(error), buf: None });
        }
        std::mem::forget(lane.queue);
    }

    /// The lane of a drive; or its name, and why there is none.
    fn lane(&mut self, index: DriveIndex) -> Result<&mut Lane, (String, String)> {
        let at = index.index();
        if self.lanes.len() <= at {
            self.lanes.resize_with(at + 1, || None);
        }
        let version = self.fleet.version();
        if version != self.version {
            self.version = version;
            for (at, place) in (0..).zip(&mut self.lanes) {
                let Some(lane) = place else { continue };
                let current = self.fleet.any(DriveIndex(at));
                // The old one ends what it has, and is waited for when it is dropped.
                if lane.count == 0 && !current.is_some_and(|drive| Arc::ptr_eq(&drive, &lane.drive))
                {
                    *place = None;
                }
            }
        }
        let is_current = self.lanes[at].as_ref().is_some_and(|lane| !lane.drive.is_out());
        if !is_current {
            let Some(drive) = self.fleet.get(index) else {
                return Err((index.to_string(), "it is out of the pool".to_owned()));
            };
            if self.lanes[at].as_ref().is_some_and(|lane| lane.count > 0) {
                return Err((index.to_string(), "its place is taken by another one".to_owned()));
            }
            let queue = match drive.device.queue_pair(DEPTH) {
                Ok(queue) => queue,
                Err(error) => return Err((drive.device.name().to_owned(), error.to_string())),
            };
            self.lanes[at] = Some(Lane {
                drive,
                queue,
                batch: VecDeque::new(),
                flights: Vec::new(),
                free: Vec::new(),
                count: 0,
            });
        }
        Ok(self.lanes[at].as_mut().expect("opened above"))
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        // A queue pair waits for its commands when it is dropped: one that hangs must not be waited for.
        for lane in self.lanes.drain(..).flatten() {
            if lane.count > 0 && lane.drive.is_out() {
                std::mem::forget(lane.queue);
            }
        }
    }
}

impl Lane {
    /// The arrivals of what the drive handed back, at this moment.
    fn take(&mut self, done: &mut Vec<Completion>, now: Nanos) -> impl Iterator<Item = Arrival> {
        done.drain(..).map(move |Completion { tag, result, buf }| {
            let at = to_usize(tag.0);
            let flight = self.flights[at].take().expect("a drive hands back what it was given");
            self.free.push(at);
            self.count -= 1;
            match (&result, flight.kind) {
                (Ok(()), Some(kind)) => {
                    self.drive.latencies.record(kind, now.since(flight.started));
                }
                (Ok(()), None) => {}
                (Err(error), _) => self.drive.count(error.op()),
            }
            Arrival { ticket: flight.ticket, result, buf }
        })
    }
}

/// The command at this byte of a device with such LBAs.
fn place(op: Op, offset: u64, lba_size: u32) -> Op {
    let lba = Lba(offset / u64::from(lba_size));
    match op {
        Op::Read { buf, .. } => Op::Read { lba, buf },
        Op::Write { buf, placement, fua, .. } => Op::Write { lba, buf, placement, fua },
        Op::Discard { count, .. } => {
            Op::Discard { lba, count: LbaCount(count.0 / u64::from(lba_size)) }
        }
        other => other,
    }
}
