//! One connection of a queue pair is lost, and the next one found.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError, SendError};
use std::time::Duration;

use esker_base::Nanos;
use esker_base::silence::Silence;
use esker_device::{Cause, OpKind};

use super::causes::{no_progress, nobody_answers, nobody_waits};
use super::{Queue, Start, State};
use crate::error::NvmfError;
use crate::initiator::multipath::Active;
use crate::wire::status::Status;

/// How often a command that may not be sent yet is looked at again.
const GATED: Duration = Duration::from_millis(1);

impl Queue {
    /// When the first of those that are stuck gives up.
    pub(super) fn next_to_give_up(&self, now: Nanos) -> Nanos {
        let give_up = self.keeper.shared.config.give_up;
        let stuck = self.pending.iter().flatten().filter_map(|one| one.stuck).map(|it| it.at).min();
        let left = give_up.saturating_sub(self.stuck.lasts(now));
        stuck.map_or(Nanos(u64::MAX), |since| (since + give_up).max(now + left))
    }

    /// Whether a command gives up by `now`: it is stuck for long enough, and so are all others, or so
    /// many of them were answered meanwhile that it never will be.
    fn has_given_up(&self, index: usize, now: Nanos) -> bool {
        let give_up = self.keeper.shared.config.give_up;
        let Some(stuck) = self.pending[index].as_ref().and_then(|one| one.stuck) else {
            return true;
        };
        now.since(stuck.at) >= give_up
            && (self.stuck.lasts(now) >= give_up
                || self.stuck.has_lost(stuck, now, give_up, self.depth))
    }

    /// The path does not take commands, as it says itself: another one may.
    pub(super) fn leave_path(&mut self, status: Status) {
        let State::Connected(active) = &self.state else { return };
        let peer = active.link.peer;
        self.keeper.shared.refused(active.path, status);
        self.why = Some(NvmfError::Command { peer, command: "I/O", status });
        self.lose(None);
    }

    /// Gives up the connection; its commands wait for the next one. With a reason, its controller
    /// is given up, too.
    pub(super) fn lose(&mut self, why: Option<NvmfError>) {
        let State::Connected(active) = std::mem::replace(&mut self.state, State::Down) else {
            return;
        };
        self.keeper.shared.release(&active);
        if let Some(why) = why {
            self.keeper.shared.give_up(active.path, active.generation, &why);
            self.why = Some(why);
        }
        let stream = active.link.stream.into_tcp();
        self.end_writes();
        for (cid, payload) in active.link.wire.abandon() {
            let index = self.by_cid[usize::from(cid)];
            let one = self.pending[index].as_mut().expect("a command that was taken");
            if matches!(one.kind, OpKind::Read | OpKind::Write) {
                one.buf = payload.into_buf();
            }
            self.waiting.push_back(index);
        }
        self.sent.clear();
        self.silence = Silence::default();
        // Those that the target has completed it may have forgotten.
        self.waiting.extend(self.held.drain(..).map(|(index, _)| index));
        self.connect(stream.map_or(Start::New, Start::After), None);
    }

    /// Before the command that waits first can be sent, something has to be written again. The
    /// connection has nothing under way.
    pub(super) fn restore(&mut self, index: usize) {
        let State::Connected(active) = std::mem::replace(&mut self.state, State::Down) else {
            return;
        };
        let one = self.pending[index].as_ref().expect("a command that was taken");
        let flush = (one.kind == OpKind::Flush).then_some(one.number);
        self.connect(Start::With(active), flush);
    }

    /// Looks for a connection; with a number, the writes up to it are to be flushed on it.
    pub(super) fn connect(&mut self, start: Start, flush: Option<u64>) {
        let now = self.keeper.shared.clock.now();
        for index in &self.waiting {
            let one = self.pending[*index].as_mut().expect("a command that was taken");
            one.stuck.get_or_insert_with(|| self.stuck.give(now));
        }
        if self.is_closing {
            if let Start::With(active) = &start {
                self.keeper.shared.release(active);
            }
            return self.fail_waiting(&nobody_waits(), Nanos(u64::MAX));
        }
        // One after which every connection is lost has had its share of them.
        let peer = self.keeper.shared.paths[0].peer;
        let why = self.why.clone().unwrap_or_else(|| no_progress(peer));
        self.fail_waiting(&why, now);
        let deadline = self.next_to_give_up(now).min(now + self.keeper.shared.config.give_up);
        let (tell, answer) = mpsc::channel();
        let cancelled = Arc::new(AtomicBool::new(false));
        let (shared, depth, is_cancelled) =
            (self.keeper.shared.clone(), self.depth, cancelled.clone());
        let run = move || {
            let outcome = shared.obtain(depth, start, flush, deadline, &is_cancelled);
            if let Err(SendError(Ok(active))) = tell.send(outcome) {
                shared.release(&active); // the queue pair is gone
            }
        };
        self.state = State::Connecting(answer, cancelled);
        if esker_base::thread::spawn("nvmf-connect", run).is_err() {
            self.connected(Err(nobody_answers()));
        }
    }

    pub(super) fn connected(&mut self, outcome: Result<Active, NvmfError>) {
        self.state = State::Down;
        match outcome {
            Ok(active) => self.state = State::Connected(Box::new(active)),
            Err(error @ (NvmfError::Authentication(_) | NvmfError::Config(_))) => {
                self.fail_waiting(&error, Nanos(u64::MAX));
            }
            Err(error) if self.keeper.shared.refusal().is_some() => {
                self.fail_waiting(&error, Nanos(u64::MAX));
            }
            Err(error) => {
                let why = self.why.clone().unwrap_or(error);
                self.fail_waiting(&why, self.keeper.shared.clock.now());
                if !self.waiting.is_empty() {
                    self.connect(Start::New, None); // those have some time left
                }
            }
        }
    }

    /// Fails the commands that wait and have given up by `now`.
    fn fail_waiting(&mut self, why: &NvmfError, now: Nanos) {
        let waiting = std::mem::take(&mut self.waiting);
        let (over, left): (VecDeque<_>, _) =
            waiting.into_iter().partition(|&index| self.has_given_up(index, now));
        self.waiting = left;
        let config = &self.keeper.shared.config;
        let why = match now {
            Nanos(u64::MAX) => why.to_string(),
            _ => format!(
                "{why}; host {} gave up after {:?} without progress (give-up)",
                config.host_nqn, config.give_up
            ),
        };
        for index in over {
            let error = self.error(index, Cause::Gone(why.clone()));
            self.finish(index, Err(error));
        }
    }

    /// Sleeps until something may have happened.
    pub(super) fn sleep(&mut self, span: Duration) {
        match &mut self.state {
            State::Connected(active) => {
                // Short enough to see that the controller is lost.
                let most = if self.is_gated { GATED } else { Duration::from_millis(100) };
                let span = span.min(most);
                if let Err(error) = active.link.sleep(span) {
                    self.lose(Some(error));
                }
            }
            State::Connecting(answer, _) => match answer.recv_timeout(span) {
                Ok(outcome) => self.connected(outcome),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.connected(Err(nobody_answers())),
            },
            State::Down => self.connect(Start::New, None),
        }
    }
}
