//! Commands to many drives at once, as a queue pair of each: started, then polled. A command is known by its
//! [`Ticket`], which comes back with its outcome.
//!
//! Invariants
//! 1. Every command that was started arrives once, whatever becomes of its drive.
//! 2. A queue pair belongs to the drive that it was opened on: a drive that took the place of another one gets its own.
//! 3. A drive that is silent for as long as the fleet's patience, or refuses, is taken out if the fleet spares it. Its
//!    commands may still end, into buffers that must be there then: so its queue pair is never dropped.
//! 4. Commands of a drive that the fleet does not spare wait for it: those that it refused are given to it again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_base::silence::{Given, Silence};
use esker_base::units::{to_u64, to_usize};
use esker_base::{AlignedBuf, ErrorKind, Lba, Nanos};
use esker_device::{Cause, Command, Completion, DeviceError, Op, OpKind, QueuePair, Tag};

use crate::drive::again::{Rest, place};
use crate::drive::fleet::{Drive, Fleet};
use crate::drive::latency::IoKind;
use crate::omf::label::Role;
use crate::types::id::DriveIndex;

/// Commands in flight on one drive.
const DEPTH: usize = 64;
/// How long one drive is waited for while others are busy, too.
const GLANCE: Duration = Duration::from_micros(20);
/// The longest between two looks for drives that do not answer.
const LOOK: Duration = Duration::from_millis(50);
/// How long commands wait before they are given to a drive again that refused them.
const RETRY: Duration = Duration::from_millis(250);
/// Bytes that a drive in doubt, and the others, are asked for.
const ASKED: usize = 4096;

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
    /// None for one that only asks whether the drive answers.
    ticket: Option<Ticket>,
    op: OpKind,
    rest: Rest,
    /// The kind that its latency is counted as.
    kind: Option<IoKind>,
    /// On the pool's clock.
    started: Nanos,
    /// On the one that counts the patience.
    given: Given,
}

struct Lane {
    drive: Arc<Drive>,
    queue: Box<dyn QueuePair>,
    batch: VecDeque<Command>,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Flights that have not arrived, those in the batch included.
    count: usize,
    silence: Silence,
}

/// A command that its drive refused.
struct Held {
    ticket: Ticket,
    drive: Arc<Drive>,
    offset: u64,
    op: Op,
    /// Since when it waits, if it was not given to the drive because that refused others.
    untried: Option<Nanos>,
}

/// Why a drive has no lane.
enum NoLane {
    /// The drive's name, and why nothing is asked of it.
    Out(String, String),
    Refused(Arc<Drive>, DeviceError),
}

/// A queue pair of each drive that was used.
pub(crate) struct Lanes {
    fleet: Arc<Fleet>,
    lanes: Vec<Option<Lane>>,
    /// Commands that ended without a drive.
    ended: Vec<Arrival>,
    held: Vec<Held>,
    /// When those were last given to their drives.
    retried: Nanos,
    done: Vec<Completion>,
    /// The lane whose turn it is to be waited for.
    turn: usize,
    /// Of the fleet's drives, as the lanes were last compared with them.
    version: u64,
    /// When drives that do not answer were last looked for; and since when that goes on without a long break, after
    /// which a drive may answer only because it is polled.
    looked: Nanos,
    attended: Nanos,
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
            held: Vec::new(),
            retried: Nanos(0),
            done: Vec::new(),
            turn: 0,
            version,
            looked: Nanos(0),
            attended: Nanos(0),
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
                Err(NoLane::Out(name, why)) => refused = Some((name, why)),
                Err(NoLane::Refused(drive, error)) => {
                    refused = Some((drive.device.name().to_owned(), error.to_string()));
                }
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
        let now = self.fleet.moment();
        self.start_at(now, ticket, index, offset, op);
    }

    /// The same, at this moment of the pool's clock and of the one that counts the patience.
    pub(crate) fn start_at(
        &mut self,
        now: (Nanos, Nanos),
        ticket: Ticket,
        index: DriveIndex,
        offset: u64,
        op: Op,
    ) {
        self.count += 1;
        match self.fleet.get(index).filter(|drive| drive.answers.refuses()) {
            Some(drive) => self.held.push(Held { ticket, drive, offset, op, untried: Some(now.1) }),
            None => self.give(now, Some(ticket), index, offset, op),
        }
    }

    fn give(
        &mut self,
        (started, now): (Nanos, Nanos),
        ticket: Option<Ticket>,
        index: DriveIndex,
        offset: u64,
        op: Op,
    ) {
        let (kind, counted) = (op.kind(), IoKind::of(&op));
        match self.lane(index) {
            Ok(lane) => {
                let at = lane.free.pop().unwrap_or_else(|| {
                    lane.flights.push(None);
                    lane.flights.len() - 1
                });
                lane.silence.give(now);
                lane.flights[at] = Some(Flight {
                    ticket,
                    op: kind,
                    rest: Rest::of(offset, &op),
                    kind: counted.filter(|_| ticket.is_some()),
                    started,
                    given: lane.drive.answers.give(now),
                });
                lane.count += 1;
                let op = place(op, offset, lane.drive.lba_size);
                lane.batch.push_back(Command { tag: Tag(to_u64(at)), op });
            }
            Err(NoLane::Refused(drive, error)) => {
                drive.answers.refuse(now, false, error.to_string());
                let held = |ticket| Held { ticket, drive, offset, op, untried: None };
                self.held.extend(ticket.map(held));
            }
            Err(NoLane::Out(name, why)) => {
                let Some(ticket) = ticket else { return };
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
                let mut ended = std::mem::take(&mut self.ended);
                self.land(at, self.fleet.moment(), &mut ended);
                self.ended = ended;
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
                    let now = *now.get_or_insert_with(|| self.fleet.moment());
                    self.land(at, now, arrived);
                }
                Err(error) => self.take_out(at, &error.to_string()),
            }
        }
        if let Some((now, _)) = now {
            self.fleet.judge(now);
        }
        self.look(now.map_or_else(|| self.fleet.watch.now(), |(_, now)| now));
        arrived.append(&mut self.ended);
        self.count -= arrived.len() - before;
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
        let Some(at) = turns.find(|at| is_busy(&self.lanes[*at])) else {
            self.fleet.watch.sleep(limit.min(LOOK)); // all that is left was refused
            return false;
        };
        self.turn = at;
        let limit = if busy > 1 { limit.min(GLANCE) } else { limit };
        let lane = self.lanes[at].as_mut().expect("it is busy");
        match lane.queue.wait(&mut self.done, Some(limit)) {
            Ok(_) => {
                let now = self.fleet.moment();
                self.land(at, now, arrived);
                self.count -= arrived.len() - before;
                self.fleet.judge(now.0);
            }
            Err(error) => self.take_out(at, &error.to_string()),
        }
        arrived.len() > before
    }

    /// Takes what a drive handed back. Commands that it refused are kept while it may be given them again.
    fn land(&mut self, at: usize, (now, watch): (Nanos, Nanos), arrived: &mut Vec<Arrival>) {
        let Some(lane) = &mut self.lanes[at] else { return };
        let drive = &lane.drive;
        let mut answers = 0;
        for Completion { tag, result, buf } in self.done.drain(..) {
            let at = to_usize(tag.0);
            let flight = lane.flights[at].take().expect("a drive hands back what it was given");
            lane.free.push(at);
            lane.count -= 1;
            lane.silence.answer(watch);
            match &result {
                Err(error) if matches!(error.cause(), Cause::Gone(_)) && !drive.is_out() => {
                    drive.answers.refuse(watch, true, error.to_string());
                }
                _ => answers += 1,
            }
            let Some(ticket) = flight.ticket else { continue };
            match (&result, flight.kind) {
                (Ok(()), Some(kind)) => drive.latencies.record(kind, now.since(flight.started)),
                (Ok(()), None) => {}
                (Err(error), _) => drive.count(error.op()),
            }
            let is_refused =
                matches!(&result, Err(error) if matches!(error.cause(), Cause::Gone(_)));
            if is_refused && !drive.is_out() {
                match flight.rest.again(flight.op, buf) {
                    Ok(op) => {
                        let (drive, offset) = (drive.clone(), flight.rest.offset);
                        self.held.push(Held { ticket, drive, offset, op, untried: None });
                    }
                    Err(buf) => arrived.push(Arrival { ticket, result, buf }),
                }
                continue;
            }
            arrived.push(Arrival { ticket, result, buf });
        }
        if answers > 0 {
            drive.answers.answer(watch, answers);
        }
    }

    /// Looks for drives that do not answer: takes those out that the fleet spares, and waits for the others.
    fn look(&mut self, now: Nanos) {
        let patience = self.fleet.patience;
        let since = now.since(self.looked);
        if since < LOOK.min(patience / 8) {
            return;
        }
        self.looked = now;
        if since > patience / 2 {
            self.attended = now;
        }
        for at in 0..self.lanes.len() {
            self.look_at(at, now);
        }
        self.look_at_held(now);
        self.ask_others();
    }

    fn look_at(&mut self, at: usize, now: Nanos) {
        let Some(lane) = self.lanes[at].as_ref().filter(|lane| lane.count > 0) else { return };
        let (drive, patience) = (lane.drive.clone(), self.fleet.patience);
        let own = lane.silence.lasts(now).min(now.since(self.attended));
        if drive.is_out() {
            if own >= patience || drive.answers.doubted().is_some() {
                self.give_up(at, "it is out of the pool");
            }
            return;
        }
        let silence = own.min(drive.answers.silence(now));
        if silence >= patience / 2 {
            drive.answers.doubt(now);
        }
        let is_lost = |flight: &&Flight| {
            now.since(flight.given.at) >= patience
                && drive.answers.has_lost(flight.given, now, patience, DEPTH)
        };
        let lost = lane.flights.iter().flatten().find(is_lost).map(|flight| flight.given.at);
        let Some(since) = lost.or(drive.answers.doubted().filter(|_| silence >= patience)) else {
            return;
        };
        if self.fleet.spares(&drive, since, now) {
            self.take_out(at, &format!("it did not answer within {patience:?}"));
        } else if self.fleet.is_closing.load(Ordering::Relaxed) {
            self.give_up(at, "it does not answer, and the pool is being closed");
        }
    }

    /// Gives drives again what they refused; or takes them out.
    fn look_at_held(&mut self, now: Nanos) {
        let is_due = now.since(self.retried) >= RETRY.min(self.fleet.patience / 4);
        let (mut kept, mut given) = (Vec::new(), false);
        for held in std::mem::take(&mut self.held) {
            let drive = &held.drive;
            let over = drive.answers.refused(held.untried, now, self.fleet.patience);
            if let (Some(_), Some(since)) = (&over, drive.answers.doubted())
                && !drive.is_out()
                && self.fleet.spares(drive, since, now)
            {
                drive.take_out();
            }
            let is_closing = over.is_some() && self.fleet.is_closing.load(Ordering::Relaxed);
            if drive.is_out() || is_closing {
                let why = over.unwrap_or_else(|| "it is out of the pool".to_owned());
                let (name, op) = (drive.device.name(), held.op);
                let error = DeviceError::new(name, op.kind(), Lba(0), 0, Cause::Gone(why));
                let (result, buf) = (Err(error), op.into_buf());
                self.ended.push(Arrival { ticket: held.ticket, result, buf });
            } else if is_due || !drive.answers.refuses() {
                let Held { ticket, drive, offset, op, .. } = held;
                self.give(self.fleet.moment(), Some(ticket), drive.index, offset, op);
                given = true;
            } else {
                kept.push(held);
            }
        }
        self.held.append(&mut kept);
        if given {
            self.retried = now;
            self.push();
        }
    }

    /// Asks all drives something that have not answered since one that is waited for came into doubt.
    fn ask_others(&mut self) {
        let waiting = self.lanes.iter().flatten().filter(|lane| lane.count > 0);
        let waiting = waiting.map(|lane| &lane.drive).chain(self.held.iter().map(|one| &one.drive));
        let in_doubt = waiting.filter(|drive| !drive.is_out());
        let Some(since) = in_doubt.filter_map(|drive| drive.answers.doubted()).max() else {
            return;
        };
        for role in [Role::Buffer, Role::Drive] {
            for drive in self.fleet.serving(role) {
                let lane = self.lanes.get(drive.index.index()).and_then(Option::as_ref);
                let is_asked = lane.is_some_and(|lane| lane.count > 0);
                if !is_asked && !drive.answers.has_since(since) && !drive.answers.refuses() {
                    let op = Op::Read { lba: Lba(0), buf: AlignedBuf::zeroed(ASKED) };
                    self.give(self.fleet.moment(), None, drive.index, 0, op);
                }
            }
        }
        self.push();
    }

    /// Nothing is asked of this drive any more.
    fn take_out(&mut self, at: usize, why: &str) {
        if let Some(lane) = &self.lanes[at] {
            lane.drive.take_out();
        }
        self.give_up(at, why);
    }

    /// The commands of this drive fail, though it may still end them.
    fn give_up(&mut self, at: usize, why: &str) {
        let Some(mut lane) = self.lanes[at].take() else { return };
        for flight in lane.flights.drain(..).flatten() {
            let Some(ticket) = flight.ticket else { continue };
            lane.drive.count(flight.op);
            let (name, cause) = (lane.drive.device.name(), Cause::Gone(why.to_owned()));
            let error = DeviceError::new(name, flight.op, Lba(0), 0, cause);
            self.ended.push(Arrival { ticket, result: Err(error), buf: None });
        }
        std::mem::forget(lane.queue);
    }

    /// The lane of a drive, or why there is none. One that refuses is opened anew.
    fn lane(&mut self, index: DriveIndex) -> Result<&mut Lane, NoLane> {
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
        let is_current = self.lanes[at].as_ref().is_some_and(|lane| {
            !lane.drive.is_out() && (lane.count > 0 || !lane.drive.answers.refuses())
        });
        if !is_current {
            let Some(drive) = self.fleet.get(index) else {
                return Err(NoLane::Out(index.to_string(), "it is out of the pool".to_owned()));
            };
            if self.lanes[at].as_ref().is_some_and(|lane| lane.count > 0) {
                let why = "its place is taken by another one".to_owned();
                return Err(NoLane::Out(index.to_string(), why));
            }
            let queue = match drive.device.queue_pair(DEPTH) {
                Ok(queue) => queue,
                Err(error) => return Err(NoLane::Refused(drive, error)),
            };
            self.lanes[at] = Some(Lane {
                drive,
                queue,
                batch: VecDeque::new(),
                flights: Vec::new(),
                free: Vec::new(),
                count: 0,
                silence: Silence::default(),
            });
        }
        Ok(self.lanes[at].as_mut().expect("opened above"))
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        // A queue pair waits for its commands when it is dropped: one that hangs must not be waited for.
        for lane in self.lanes.drain(..).flatten() {
            if lane.count > 0 && (lane.drive.is_out() || lane.drive.answers.doubted().is_some()) {
                std::mem::forget(lane.queue);
            }
        }
    }
}
