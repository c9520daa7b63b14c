//! A queue pair of a remote namespace: one connection, and what happens when it is lost.
//!
//! A connection that is lost, or that leaves a command without an answer for too long, is closed,
//! and its commands go to the next one. Before that is used, the old one is *drained*: the target
//! has closed its end, and so executes nothing any more that was sent through it. Reads and writes
//! can be repeated then: no older write can come after a newer one.
//!
//! A command is *stuck* from when its connection was lost until it, or a piece of it, succeeds. One
//! that is stuck for `give_up` fails, however often it was sent meanwhile.
//!
//! Invariants
//! 1. A command that was taken is in `pending` until its completion is in `done`: it is among
//!    `waiting`, or outstanding on the link under the identifier that `by_cid` leads from.
//! 2. The buffer of a command is in `pending`, or with the link while it is outstanding.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SendError, TryRecvError};
use std::time::Duration;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Lba, LbaCount, Nanos};
use esker_device::{
    Cause, Command, Completion, DeviceError, Op, OpKind, PlacementId, QueuePair, Tag,
};

use super::link::{RECEIVES, left};
use super::shared::{Active, Keeper, Shared};
use crate::conn::{HostEvent, Payload};
use crate::error::NvmfError;
use crate::wire::capsule::{Cqe, Sqe};
use crate::wire::command::{DEALLOCATE, DSM_DEALLOCATE, DsmRange, LbaRange, io};
use crate::wire::log::AnaState;
use crate::wire::status::Status;

/// How often a command is tried again that the target asks to be.
const ATTEMPTS: u32 = 5;
/// LBAs of one Write Zeroes command.
const ZEROES_MAX: u64 = 65_536;

/// A command that was taken.
struct Pending {
    tag: Tag,
    kind: OpKind,
    lba: Lba,
    count: u64,
    /// LBAs that are done with, of a command that takes several.
    at: u64,
    /// LBAs of the command that is outstanding.
    piece: u64,
    placement: Option<PlacementId>,
    fua: bool,
    buf: Option<AlignedBuf>,
    attempts: u32,
    /// When it lost its connection, if nothing of it has succeeded since.
    stuck: Option<Nanos>,
    /// Its number among the commands that were sent.
    serial: u64,
}

enum State {
    Connected(Box<Active>),
    /// Another thread connects, until it is told that nobody waits any more.
    Connecting(Receiver<Result<Active, NvmfError>>, Arc<AtomicBool>),
    /// Connecting has failed; the next command tries again.
    Down,
}

/// A queue pair.
pub(crate) struct Queue {
    keeper: Arc<Keeper>,
    depth: usize,
    state: State,
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    waiting: VecDeque<usize>,
    by_cid: Vec<usize>,
    done: Vec<Completion>,
    /// What was sent, in this order, and when; what is answered leaves it from the front.
    sent: VecDeque<Sent>,
    serial: u64,
    /// Since when the first of `sent` is the one that was sent first.
    oldest_since: Nanos,
    /// No command gives up before.
    gives_up: Nanos,
    /// Why the last connection was lost.
    why: Option<NvmfError>,
    is_closing: bool,
}

struct Sent {
    index: usize,
    serial: u64,
    at: Nanos,
}

impl Queue {
    pub(crate) fn open(keeper: Arc<Keeper>, depth: usize) -> Result<Queue, NvmfError> {
        let shared = &keeper.shared;
        let now = shared.clock.now();
        let deadline = now + shared.config.timeout;
        let active = shared.obtain(depth, None, deadline, &AtomicBool::new(false))?;
        Ok(Queue {
            state: State::Connected(Box::new(active)),
            depth,
            pending: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::new(),
            by_cid: Vec::new(),
            done: Vec::new(),
            sent: VecDeque::new(),
            serial: 0,
            oldest_since: now,
            gives_up: Nanos(u64::MAX),
            why: None,
            is_closing: false,
            keeper,
        })
    }

    fn shared(&self) -> &Shared {
        &self.keeper.shared
    }

    /// Completes a command.
    fn finish(&mut self, index: usize, result: Result<(), DeviceError>) {
        let one = self.pending[index].take().expect("a command that was taken");
        let Pending { tag, kind, lba, placement, fua, buf, .. } = one;
        let count = LbaCount(one.count);
        let op = match (kind, buf) {
            (OpKind::Read, Some(buf)) => Op::Read { lba, buf },
            (OpKind::Write, Some(buf)) => Op::Write { lba, buf, placement, fua },
            (OpKind::Discard, _) => Op::Discard { lba, count },
            (OpKind::WriteZeroes, _) => Op::WriteZeroes { lba, count },
            _ => Op::Flush,
        };
        let shared = &self.keeper.shared;
        shared.counters.count(&op, &shared.geometry(), &result);
        self.done.push(Completion { tag, result, buf: op.into_buf() });
        self.free.push(index);
    }

    fn error(&self, index: usize, cause: Cause) -> DeviceError {
        let one = self.pending[index].as_ref().expect("a command that was taken");
        let bytes = LbaCount(one.count).bytes(self.shared().geometry().lba_size);
        DeviceError::new(&self.shared().name, one.kind, one.lba, bytes, cause)
    }

    /// Sends commands that wait, as many as the connection takes.
    fn send(&mut self) {
        let now = self.shared().clock.now();
        while let State::Connected(active) = &mut self.state
            && active.link.wire.room() > 0
            && let Some(index) = self.waiting.pop_front()
        {
            let one = self.pending[index].as_mut().expect("a command that was taken");
            let Some((sqe, payload)) = command(&self.keeper.shared, one) else {
                self.finish(index, Ok(()));
                continue;
            };
            let cid = usize::from(active.link.wire.submit(sqe, payload));
            if self.by_cid.len() <= cid {
                self.by_cid.resize(cid + 1, usize::MAX);
            }
            self.by_cid[cid] = index;
            self.serial += 1;
            one.serial = self.serial;
            if self.sent.is_empty() {
                self.oldest_since = now;
            }
            self.sent.push_back(Sent { index, serial: self.serial, at: now });
        }
        if let State::Connected(active) = &mut self.state
            && let Err(error) = active.link.flush()
        {
            self.lose(Some(error));
        }
    }

    /// Takes what has come in, without blocking.
    fn progress(&mut self) {
        match &mut self.state {
            State::Connected(_) => self.receive(),
            State::Connecting(answer, _) => match answer.try_recv() {
                Ok(outcome) => self.connected(outcome),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.connected(Err(nobody_answers())),
            },
            State::Down => {}
        }
        if !self.waiting.is_empty() {
            self.send();
        }
    }

    fn receive(&mut self) {
        let mut receives = RECEIVES;
        while receives > 0 {
            let State::Connected(active) = &mut self.state else { return };
            match active.link.event() {
                Ok(Some(HostEvent::Completion { cid, cqe, payload })) => {
                    let index = self.by_cid[usize::from(cid)];
                    self.complete(index, cqe, payload);
                }
                Ok(Some(HostEvent::Ready)) => {}
                Ok(None) => match active.link.receive() {
                    Ok(true) => receives -= 1,
                    Ok(false) => break,
                    Err(error) => return self.lose(Some(error)),
                },
                Err(error) => return self.lose(Some(error)),
            }
        }
        let now = self.keeper.shared.clock.now();
        self.forget_answered(now);
        let State::Connected(active) = &mut self.state else { return };
        if active.link.wire.has_output()
            && let Err(error) = active.link.flush()
        {
            return self.lose(Some(error));
        }
        if !self.keeper.shared.is_current(active) {
            return self.lose(None);
        }
        if active.link.wire.in_flight() == 0 && self.keeper.shared.has_better(active) {
            return self.lose(None); // nothing is under way, so nothing is repeated
        }
        if let Some(late) = self.late(now) {
            self.lose(Some(late));
        }
    }

    /// Takes what was answered from the front of `sent`.
    fn forget_answered(&mut self, now: Nanos) {
        let before = self.sent.len();
        while let Some(Sent { index, serial, .. }) = self.sent.front()
            && self.pending[*index].as_ref().is_none_or(|one| one.serial != *serial)
        {
            self.sent.pop_front();
        }
        if self.sent.len() < before {
            self.oldest_since = now;
        }
    }

    /// Whether a command should have been answered by now. Deadlines are those of commands, and
    /// nothing but answers moves them: the one that was sent first has `timeout` from when it was
    /// first; and no command takes longer than `give_up`, or `timeout` if that is longer.
    fn late(&mut self, now: Nanos) -> Option<NvmfError> {
        let State::Connected(active) = &self.state else { return None };
        let (peer, config) = (active.link.peer, &self.keeper.shared.config);
        let oldest = self.sent.front()?;
        let whole = config.timeout.max(config.give_up);
        if now >= self.oldest_since + config.timeout || now >= oldest.at + whole {
            let kind = self.pending[oldest.index].as_ref().map_or(OpKind::Open, |one| one.kind);
            let what = format!("no answer to a {kind} within {:?}", config.timeout);
            return Some(NvmfError::Lost { peer, what });
        }
        if now >= self.gives_up {
            self.gives_up = self.next_to_give_up();
            if now >= self.gives_up {
                let what = "a command has made no progress over any connection".to_owned();
                return Some(NvmfError::Lost { peer, what });
            }
        }
        None
    }

    /// When the first command gives up, of those that are stuck.
    fn next_to_give_up(&self) -> Nanos {
        let stuck = self.pending.iter().flatten().filter_map(|one| one.stuck).min();
        stuck.map_or(Nanos(u64::MAX), |stuck| stuck + self.shared().config.give_up)
    }

    /// A command of the link is completed.
    fn complete(&mut self, index: usize, cqe: Cqe, payload: Payload) {
        let one = self.pending[index].as_mut().expect("a command that was taken");
        if matches!(one.kind, OpKind::Read | OpKind::Write) {
            one.buf = payload.into_buf();
        }
        let status = cqe.status;
        if status.is_success() {
            if let State::Connected(active) = &self.state {
                self.keeper.shared.paths[active.path].health.works();
            }
            one.stuck = None;
            one.at += one.piece;
            one.serial = 0; // the next piece is sent anew
            return if one.at < one.count {
                self.waiting.push_back(index);
            } else {
                self.finish(index, Ok(()));
            };
        }
        if status.is_path_error() {
            self.waiting.push_back(index);
            return self.leave_path(status);
        }
        if status.may_retry() && one.attempts < ATTEMPTS {
            one.attempts += 1;
            one.serial = 0;
            return self.waiting.push_back(index);
        }
        let cause = match status {
            Status(code) if code & 0x7ff == Status::LBA_RANGE.0 => {
                Cause::Invalid(format!("the target says: {status}"))
            }
            _ => Cause::Os { kind: status.kind(), message: format!("the target says: {status}") },
        };
        let error = self.error(index, cause);
        self.finish(index, Err(error));
    }

    /// The path does not take commands, as it says itself: another one may.
    fn leave_path(&mut self, status: Status) {
        let State::Connected(active) = &self.state else { return };
        let (shared, path, peer) = (self.shared(), active.path, active.link.peer);
        // Until the log page says otherwise.
        match status.code() {
            code if code == Status::ANA_LOST.code() => {
                shared.paths[path].set_ana(AnaState::PersistentLoss);
            }
            code if code == Status::ANA_INACCESSIBLE.code() => {
                shared.paths[path].set_ana(AnaState::Inaccessible);
            }
            code if code == Status::ANA_TRANSITION.code() => {
                shared.paths[path].set_ana(AnaState::Change);
            }
            _ => {}
        }
        shared.rest(path, status);
        self.why = Some(NvmfError::Command { peer, command: "I/O", status });
        self.lose(None);
    }

    /// Gives up the connection; its commands wait for the next one. With a reason, its controller
    /// is given up, too.
    fn lose(&mut self, why: Option<NvmfError>) {
        let State::Connected(active) = std::mem::replace(&mut self.state, State::Down) else {
            return;
        };
        self.shared().release(&active);
        if let Some(why) = why {
            self.shared().give_up(active.path, active.generation, &why);
            self.why = Some(why);
        }
        let stream = active.link.stream.into_tcp();
        for (cid, payload) in active.link.wire.abandon() {
            let index = self.by_cid[usize::from(cid)];
            let one = self.pending[index].as_mut().expect("a command that was taken");
            if matches!(one.kind, OpKind::Read | OpKind::Write) {
                one.buf = payload.into_buf();
            }
            self.waiting.push_back(index);
        }
        self.sent.clear();
        self.connect(stream);
    }

    fn connect(&mut self, old: Option<std::net::TcpStream>) {
        let now = self.shared().clock.now();
        for index in &self.waiting {
            let one = self.pending[*index].as_mut().expect("a command that was taken");
            one.stuck.get_or_insert(now);
        }
        if self.is_closing {
            return self.fail_waiting(&nobody_waits(), Nanos(u64::MAX));
        }
        self.gives_up = self.next_to_give_up();
        let deadline = self.gives_up.min(now + self.shared().config.give_up);
        let (tell, answer) = mpsc::channel();
        let cancelled = Arc::new(AtomicBool::new(false));
        let (shared, depth, is_cancelled) =
            (self.keeper.shared.clone(), self.depth, cancelled.clone());
        let run = move || {
            let outcome = shared.obtain(depth, old, deadline, &is_cancelled);
            if let Err(SendError(Ok(active))) = tell.send(outcome) {
                shared.release(&active); // the queue pair is gone
            }
        };
        self.state = State::Connecting(answer, cancelled);
        if esker_base::thread::spawn("nvmf-connect", run).is_err() {
            self.connected(Err(nobody_answers()));
        }
    }

    fn connected(&mut self, outcome: Result<Active, NvmfError>) {
        self.state = State::Down;
        match outcome {
            Ok(active) => self.state = State::Connected(Box::new(active)),
            Err(error @ (NvmfError::Authentication(_) | NvmfError::Config(_))) => {
                self.fail_waiting(&error, Nanos(u64::MAX));
            }
            Err(error) => {
                let why = self.why.clone().unwrap_or(error);
                self.fail_waiting(&why, self.shared().clock.now());
                if !self.waiting.is_empty() {
                    self.connect(None); // those have some time left
                }
            }
        }
    }

    /// Fails the commands that wait and give up before `now`.
    fn fail_waiting(&mut self, why: &NvmfError, now: Nanos) {
        let give_up = self.shared().config.give_up;
        for _ in 0..self.waiting.len() {
            let Some(index) = self.waiting.pop_front() else { return };
            let one = self.pending[index].as_ref().expect("a command that was taken");
            if one.stuck.is_some_and(|stuck| stuck + give_up > now) {
                self.waiting.push_back(index);
                continue;
            }
            let error = self.error(index, Cause::Gone(why.to_string()));
            self.finish(index, Err(error));
        }
    }

    /// Sleeps until something may have happened.
    fn sleep(&mut self, span: Duration) {
        match &mut self.state {
            State::Connected(active) => {
                // Short enough to see that the controller is lost.
                let span = span.min(Duration::from_millis(100));
                if let Err(error) = active.link.sleep(span) {
                    self.lose(Some(error));
                }
            }
            State::Connecting(answer, _) => match answer.recv_timeout(span) {
                Ok(outcome) => self.connected(outcome),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.connected(Err(nobody_answers())),
            },
            State::Down => self.connect(None),
        }
    }
}

fn nobody_waits() -> NvmfError {
    NvmfError::Config("the queue pair was dropped".to_owned())
}

fn nobody_answers() -> NvmfError {
    NvmfError::Config("the thread that connects has ended".to_owned())
}

/// The next command of a piece of work; `None` when there is nothing to be done for it.
fn command(shared: &Shared, one: &mut Pending) -> Option<(Sqe, Payload)> {
    let nsid = shared.config.nsid;
    let geometry = shared.geometry();
    let lba_size = geometry.lba_size;
    let slba = one.lba.0 + one.at;
    let rest = one.count - one.at;
    let ranged = |opcode, count: u64, placement, fua| {
        let count = u32::try_from(count).expect("at most 65,536 LBAs");
        LbaRange { slba, count, fua, placement }.put(Sqe::new(opcode, nsid))
    };
    match one.kind {
        OpKind::Read => {
            one.piece = rest;
            let buf = one.buf.take().expect("a read has a buffer");
            Some((ranged(io::READ, rest, None, false), Payload::In(buf)))
        }
        OpKind::Write => {
            one.piece = rest;
            let buf = one.buf.take().expect("a write has a buffer");
            Some((ranged(io::WRITE, rest, one.placement, one.fua), Payload::Out(buf)))
        }
        OpKind::Discard if shared.discards_zero => {
            one.piece = rest.min(ZEROES_MAX);
            let sqe = ranged(io::WRITE_ZEROES, one.piece, None, false);
            let cdw12 = sqe.dword(12) | DEALLOCATE;
            Some((sqe.with_dword(12, cdw12), Payload::None))
        }
        OpKind::Discard if !shared.has_discard => None,
        OpKind::Discard => {
            let count = u32::try_from(rest).unwrap_or(u32::MAX);
            one.piece = count.into();
            let range = DsmRange { attributes: 0, count, slba }.encode();
            let sqe = Sqe::new(io::DSM, nsid).with_dword(11, DSM_DEALLOCATE);
            Some((sqe, Payload::Out(AlignedBuf::padded(&range, 1))))
        }
        OpKind::WriteZeroes if shared.has_write_zeroes => {
            one.piece = rest.min(ZEROES_MAX);
            Some((ranged(io::WRITE_ZEROES, one.piece, None, false), Payload::None))
        }
        OpKind::WriteZeroes => {
            one.piece = rest.min(u64::from(geometry.max_transfer_size / lba_size));
            let zeroes = AlignedBuf::zeroed(to_usize(LbaCount(one.piece).bytes(lba_size)));
            Some((ranged(io::WRITE, one.piece, None, false), Payload::Out(zeroes)))
        }
        OpKind::Flush | OpKind::Open => {
            one.piece = rest;
            Some((Sqe::new(io::FLUSH, nsid), Payload::None))
        }
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let mut taken = 0;
        let geometry = self.shared().geometry();
        let is_stuck = !matches!(self.state, State::Connected(_));
        let stuck = is_stuck.then(|| self.shared().clock.now());
        while self.in_flight() < self.depth
            && let Some(Command { tag, op }) = commands.pop_front()
        {
            taken += 1;
            let checked = op.check(&self.shared().name, &geometry);
            let (kind, (lba, bytes)) = (op.kind(), op.range(geometry.lba_size));
            let (placement, fua) = match &op {
                Op::Write { placement, fua, .. } => (*placement, *fua),
                _ => (None, false),
            };
            if let Err(error) = checked {
                let result = Err(error);
                self.shared().counters.count(&op, &geometry, &result);
                self.done.push(Completion { tag, result, buf: op.into_buf() });
                continue;
            }
            let count = match &op {
                Op::Discard { count, .. } | Op::WriteZeroes { count, .. } => count.0,
                _ => (bytes / u64::from(geometry.lba_size)).max(1),
            };
            let index = self.free.pop().expect("fewer commands than the depth");
            self.pending[index] = Some(Pending {
                tag,
                kind,
                lba,
                count,
                at: 0,
                piece: 0,
                placement,
                fua,
                buf: op.into_buf(),
                attempts: 0,
                stuck,
                serial: 0,
            });
            self.waiting.push_back(index);
        }
        if matches!(self.state, State::Down) && !self.waiting.is_empty() {
            self.connect(None);
        }
        self.send();
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.progress();
        let count = self.done.len();
        done.append(&mut self.done);
        Ok(count)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let clock = self.shared().clock.clone();
        let start = clock.now();
        let deadline = timeout.map(|timeout| start + timeout);
        loop {
            let count = self.poll(done)?;
            if count > 0 || self.in_flight() == 0 {
                return Ok(count);
            }
            let now = clock.now();
            let left = left(deadline, now);
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(0);
            }
            if now.since(start) >= self.shared().config.spin {
                self.sleep(left.unwrap_or(Duration::from_secs(1)));
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.depth - self.free.len() + self.done.len()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        self.is_closing = true;
        if let State::Connecting(_, cancelled) = &self.state {
            cancelled.store(true, Ordering::Relaxed);
            self.connected(Err(nobody_waits()));
        }
        // Commands in flight have buffers; that they end is what dropping waits for. It ends with the
        // connection: no other one is looked for.
        while self.in_flight() > 0 && self.wait(&mut done, None).is_ok() {
            done.clear();
        }
        if let State::Connected(active) = &self.state {
            self.shared().release(active);
        }
    }
}
