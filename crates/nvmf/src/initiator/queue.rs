//! A queue pair of a remote namespace: one connection, and the way to another when it is lost.
//!
//! A connection that is lost is closed, and its commands go to the next one. So is one that answers
//! *nothing* for too long, or never this one command ([`Silence`]): a target that answers is slow,
//! however long its oldest command waits behind others. Before that is used, the old one is *drained*: the target
//! has closed its end, and so executes nothing any more that was sent through it. Reads and writes
//! can be repeated then: no older write can come after a newer one.
//!
//! A command is *stuck* from when its connection was lost until it, or a piece of it, is answered.
//! When no stuck command is for `give_up`, those that are stuck for so long fail, however often they
//! were sent meanwhile.
//!
//! | module | content |
//! | --- | --- |
//! | `gate` | when a command may be sent, which part of it is kept until it is flushed, and how it ends |
//! | `reconnect` | one connection is lost, the next one found |
//!
//! Invariants
//! 1. A command that was taken is in `pending` until its completion is in `done`: it is among
//!    `waiting`, or outstanding on the link under the identifier that `by_cid` leads from.
//! 2. The buffer of a command is in `pending`, or with the link while it is outstanding.
//! 3. `pending[depth]` is the queue pair's own flush, when kept writes fill their room.

mod causes;
mod gate;
mod reconnect;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use esker_base::Nanos;
use esker_base::silence::{Given, Silence};
use esker_device::{Cause, Command, Completion, DeviceError, Op, OpKind, QueuePair};

use super::failover::Start;
use super::link::{RECEIVES, left};
use super::multipath::{Active, Keeper, Multipath};
use super::pending::Pending;
use crate::conn::{HostEvent, Payload};
use crate::error::NvmfError;
use crate::wire::capsule::Cqe;
use crate::wire::status::Status;
use causes::{no_progress, nobody_answers, nobody_waits};
use gate::Gate;

/// How often a command is tried again that the target asks to be.
const ATTEMPTS: u32 = 5;

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
    /// Commands sent, in this order; answered ones leave it from the front.
    sent: VecDeque<Sent>,
    serial: u64,
    /// Of the connection: the commands sent over it.
    silence: Silence,
    /// Of all connections: the commands that are stuck.
    stuck: Silence,
    /// Why the last connection was lost.
    why: Option<NvmfError>,
    is_closing: bool,
    /// Writes that the target has completed, and that there was no room to keep: they are completed
    /// when a flush has that is sent after these numbers.
    held: Vec<(usize, u64)>,
    /// The sum of generations at which nothing had to be written again.
    generations: u64,
    /// Whether the first command that waits may not be sent yet, though there is room.
    is_gated: bool,
}

struct Sent {
    index: usize,
    serial: u64,
    given: Given,
}

impl Queue {
    pub(crate) fn open(keeper: Arc<Keeper>, depth: usize) -> Result<Queue, NvmfError> {
        let shared = &keeper.shared;
        let now = shared.clock.now();
        let deadline = now + shared.config.timeout.min(shared.config.give_up);
        let never = AtomicBool::new(false);
        let active = shared.obtain(depth, Start::New, None, deadline, &never)?;
        Ok(Queue {
            state: State::Connected(Box::new(active)),
            depth,
            pending: (0..=depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::new(),
            by_cid: Vec::new(),
            done: Vec::new(),
            sent: VecDeque::new(),
            serial: 0,
            silence: Silence::default(),
            stuck: Silence::default(),
            why: None,
            is_closing: false,
            held: Vec::new(),
            generations: 0,
            is_gated: false,
            keeper,
        })
    }

    fn shared(&self) -> &Multipath {
        &self.keeper.shared
    }

    /// Sends commands that wait, as many as the connection takes.
    fn send(&mut self) {
        let now = self.shared().clock.now();
        self.is_gated = false;
        while let State::Connected(active) = &mut self.state
            && active.link.wire.room() > 0
            && let Some(&index) = self.waiting.front()
        {
            let (by, path) = (active.controller(), active.path);
            let shared = &self.keeper.shared;
            let one = self.pending[index].as_mut().expect("a command that was taken");
            one.piece = shared.next_piece(one);
            match gate::check(shared, one, index == self.depth, by, &mut self.generations) {
                Gate::Open => {}
                Gate::Later => {
                    self.is_gated = true;
                    break;
                }
                Gate::Restore => {
                    self.is_gated = true;
                    if active.link.wire.in_flight() == 0 {
                        self.restore(index);
                    }
                    break;
                }
                Gate::Refused(cause) => {
                    self.waiting.pop_front();
                    let error = self.error(index, cause);
                    self.finish(index, Err(error));
                    continue;
                }
            }
            self.waiting.pop_front();
            if one.piece == 0 {
                self.finish(index, Ok(()));
                continue;
            }
            let is_durable = one.fua || shared.must_be_durable(path);
            let (sqe, payload) = shared.command(one, is_durable);
            let cid = usize::from(active.link.wire.submit(sqe, payload));
            if self.by_cid.len() <= cid {
                self.by_cid.resize(cid + 1, usize::MAX);
            }
            self.by_cid[cid] = index;
            self.serial += 1;
            one.serial = self.serial;
            let given = self.silence.give(now);
            self.sent.push_back(Sent { index, serial: self.serial, given });
        }
        if let State::Connected(active) = &mut self.state
            && let Err(error) = active.link.flush()
        {
            self.lose(Some(error));
        }
    }

    /// Takes the answers that have come, without blocking.
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
        let now = self.keeper.shared.clock.now();
        let mut receives = RECEIVES;
        while receives > 0 {
            let State::Connected(active) = &mut self.state else { return };
            match active.link.event() {
                Ok(Some(HostEvent::Completion { cid, cqe, payload })) => {
                    let index = self.by_cid[usize::from(cid)];
                    self.complete(index, cqe, payload, now);
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
        self.forget_answered();
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

    /// Takes answered commands from the front of `sent`.
    fn forget_answered(&mut self) {
        while let Some(Sent { index, serial, .. }) = self.sent.front()
            && self.pending[*index].as_ref().is_none_or(|one| one.serial != *serial)
        {
            self.sent.pop_front();
        }
    }

    /// Why the connection is to be left, if it is: it answers nothing, or never the oldest command.
    fn late(&self, now: Nanos) -> Option<NvmfError> {
        let State::Connected(active) = &self.state else { return None };
        let (oldest, config) = (self.sent.front()?, &self.keeper.shared.config);
        let kind = self.pending[oldest.index].as_ref().map_or(OpKind::Open, |one| one.kind);
        let silent = self.silence.lasts(now);
        let what = if silent >= config.timeout {
            format!("no answer to a {kind} within {:?}", config.timeout)
        } else if self.silence.has_lost(oldest.given, now, config.timeout, self.depth) {
            format!("no answer to a {kind}, though later commands were answered")
        } else if silent >= config.give_up && self.next_to_give_up(now) <= now {
            return Some(no_progress(active.link.peer));
        } else {
            return None;
        };
        Some(NvmfError::Lost { peer: active.link.peer, what })
    }

    /// A command of the link is completed.
    fn complete(&mut self, index: usize, cqe: Cqe, payload: Payload, now: Nanos) {
        self.silence.answer(now);
        let one = self.pending[index].as_mut().expect("a command that was taken");
        if matches!(one.kind, OpKind::Read | OpKind::Write) {
            one.buf = payload.into_buf();
        }
        let status = cqe.status;
        if status.is_success() {
            if let State::Connected(active) = &self.state {
                self.keeper.shared.paths[active.path].health.works();
            }
            if one.stuck.take().is_some() {
                self.stuck.answer(now);
            }
            one.serial = 0; // the next piece is sent anew
            return self.keep(index);
        }
        let ticket = one.ticket.take();
        one.serial = 0;
        self.end_write(ticket.as_ref());
        let one = self.pending[index].as_mut().expect("a command that was taken");
        if status.is_path_error() {
            self.waiting.push_back(index);
            return self.leave_path(status);
        }
        if status.may_retry() && one.attempts < ATTEMPTS {
            one.attempts += 1;
            return self.waiting.push_back(index);
        }
        if one.stuck.take().is_some() {
            self.stuck.answer(now);
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
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        self.shared().check_owner()?;
        let mut taken = 0;
        let geometry = self.shared().geometry();
        let is_stuck = !matches!(self.state, State::Connected(_));
        let now = is_stuck.then(|| self.shared().clock.now());
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
            // The writes that it has to cover have completed by now.
            let number = if kind == OpKind::Flush { self.last_write() } else { 0 };
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
                stuck: now.map(|now| self.stuck.give(now)),
                serial: 0,
                ticket: None,
                number,
            });
            self.waiting.push_back(index);
        }
        if matches!(self.state, State::Down) && !self.waiting.is_empty() {
            self.connect(Start::New, None);
        }
        self.send();
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.shared().check_owner()?;
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
        if !self.shared().owner.is_here() {
            // The connection is the parent's.
            std::mem::forget(std::mem::replace(&mut self.state, State::Down));
            return;
        }
        let mut done = Vec::new();
        self.is_closing = true;
        if let State::Connecting(_, cancelled) = &self.state {
            cancelled.store(true, Ordering::Relaxed);
            self.connected(Err(nobody_waits()));
        }
        // Commands in flight have buffers; dropping waits for their end. It ends with the
        // connection: no other one is looked for.
        while self.in_flight() > 0 && self.wait(&mut done, None).is_ok() {
            done.clear();
        }
        if let State::Connected(active) = &self.state {
            self.shared().release(active);
        }
    }
}
