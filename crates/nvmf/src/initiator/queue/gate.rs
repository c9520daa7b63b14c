//! When a command may be sent, which part of it is kept until it is flushed, and how it ends
//! ([`unflushed`](crate::initiator::unflushed)).

use std::sync::atomic::Ordering;

use esker_base::{ErrorKind, Lba, LbaCount};
use esker_device::{Cause, Completion, DeviceError, Op, OpKind, Tag};

use super::{Pending, Queue, State};
use crate::initiator::multipath::Multipath;
use crate::initiator::unflushed::{Clear, ControllerId, Kept, Ticket, Written};

/// Number of times that a flush waits for writes through other controllers.
const DETOURS: u32 = 20;

/// Whether a command may be sent now.
pub(super) enum Gate {
    Open,
    /// Not before another one is done.
    Later,
    /// Not before something is written again, or flushed elsewhere.
    Restore,
    /// Never.
    Refused(Cause),
}

/// Whether a command may be sent now to a controller; if so, and if it writes, it is in flight from
/// now on. Whether something has to be written again is looked at when `generations` have changed.
pub(super) fn check(
    shared: &Multipath,
    one: &mut Pending,
    is_own: bool,
    by: ControllerId,
    generations: &mut u64,
) -> Gate {
    let Some(unflushed) = &shared.unflushed else { return Gate::Open };
    let is_live = |one: ControllerId| shared.is_live(one);
    let of_today = shared.generations();
    if *generations != of_today {
        if unflushed.lock().has_orphans(is_live) {
            return Gate::Restore;
        }
        *generations = of_today;
    }
    let (lba, count) = (one.lba.0 + one.at, one.piece);
    match one.kind {
        OpKind::Read if !shared.has_lost.load(Ordering::Relaxed) => Gate::Open,
        OpKind::Read => match unflushed.lock().lost_in(one.lba, one.count) {
            Some(what) => Gate::Refused(lost(what)),
            None => Gate::Open,
        },
        OpKind::Flush if is_own => {
            one.number = unflushed.lock().number();
            Gate::Open
        }
        OpKind::Flush => {
            let mut unflushed = unflushed.lock();
            match unflushed.is_clear(one.number, by, is_live) {
                Clear::Yes => {
                    one.number = unflushed.number();
                    Gate::Open
                }
                Clear::Later => Gate::Later,
                Clear::Restore if one.attempts >= DETOURS => {
                    let what = "another controller does not flush what was written through it";
                    Gate::Refused(lost(what.to_owned()))
                }
                Clear::Restore => {
                    one.attempts += 1;
                    Gate::Restore
                }
                Clear::Lost(what) => Gate::Refused(lost(what)),
            }
        }
        _ if !writes(shared, one) || count == 0 => Gate::Open,
        _ => {
            one.ticket = unflushed.lock().begin(lba, count, by);
            if one.ticket.is_some() { Gate::Open } else { Gate::Later }
        }
    }
}

fn lost(message: String) -> Cause {
    Cause::Os { kind: ErrorKind::Io, message }
}

/// Whether it has to be there after a flush.
fn writes(shared: &Multipath, one: &Pending) -> bool {
    match one.kind {
        OpKind::Write | OpKind::WriteZeroes => true,
        OpKind::Discard => shared.discards_zero,
        _ => false,
    }
}

impl Queue {
    /// Completes a command.
    pub(super) fn finish(&mut self, index: usize, result: Result<(), DeviceError>) {
        let one = self.pending[index].take().expect("a command that was taken");
        self.end_write(one.ticket.as_ref());
        if one.stuck.is_some() {
            self.stuck.take_back();
        }
        if index == self.depth {
            return self.own_flush_ended(result, one.number);
        }
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

    pub(super) fn error(&self, index: usize, cause: Cause) -> DeviceError {
        let one = self.pending[index].as_ref().expect("a command that was taken");
        let bytes = LbaCount(one.count).bytes(self.keeper.shared.geometry().lba_size);
        DeviceError::new(&self.keeper.shared.name, one.kind, one.lba, bytes, cause)
    }

    /// The number of the last write that has completed.
    pub(super) fn last_write(&self) -> u64 {
        self.keeper.shared.unflushed.as_ref().map_or(0, |unflushed| unflushed.lock().number())
    }

    /// A write is not in flight any more, if it was.
    pub(super) fn end_write(&self, ticket: Option<&Ticket>) {
        if let (Some(unflushed), Some(ticket)) = (&self.keeper.shared.unflushed, ticket) {
            unflushed.lock().end(ticket);
        }
    }

    /// No write of this queue pair is in flight any more.
    pub(super) fn end_writes(&mut self) {
        let Some(unflushed) = &self.keeper.shared.unflushed else { return };
        let mut unflushed = unflushed.lock();
        for one in self.pending.iter_mut().flatten() {
            if let Some(ticket) = one.ticket.take() {
                unflushed.end(&ticket);
            }
        }
    }

    /// The target has completed the piece of a command that was outstanding.
    pub(super) fn keep(&mut self, index: usize) {
        let State::Connected(active) = &self.state else { return };
        let shared = &self.keeper.shared;
        let one = self.pending[index].as_mut().expect("a command that was taken");
        let Some(unflushed) = &shared.unflushed else { return self.advance(index) };
        let (lba, count) = (one.lba.0 + one.at, one.piece);
        if one.kind == OpKind::Flush {
            unflushed.lock().flushed(one.number, active.controller());
            return self.advance(index);
        }
        let Some(ticket) = &one.ticket else {
            if one.kind == OpKind::Discard {
                shared.with(unflushed, |unflushed| unflushed.find(lba, count));
            }
            return self.advance(index);
        };
        let written = match (one.kind, &one.buf) {
            (OpKind::Write, Some(buf)) => Written::Data(buf, one.placement),
            _ => Written::Zeroes,
        };
        let is_live = |one: ControllerId| shared.is_live(one);
        let kept = shared
            .with(unflushed, |unflushed| unflushed.complete(ticket, written, one.fua, is_live));
        match kept {
            Kept::Yes { is_filling } => {
                one.ticket = None;
                self.advance(index);
                if is_filling {
                    self.flush_early();
                }
            }
            Kept::Full(number) => {
                self.held.push((index, number));
                self.flush_early();
            }
            // The connection is found to be lost, too, before anything else is sent.
            Kept::Stale => {
                let ticket = one.ticket.take();
                self.end_write(ticket.as_ref());
                self.waiting.push_back(index);
            }
        }
    }

    /// A piece of a command is done.
    fn advance(&mut self, index: usize) {
        let one = self.pending[index].as_mut().expect("a command that was taken");
        one.at += one.piece;
        if one.at < one.count {
            self.waiting.push_back(index);
        } else {
            self.finish(index, Ok(()));
        }
    }

    /// Flushes, if this queue pair does not do so already.
    fn flush_early(&mut self) {
        if self.pending[self.depth].is_some() {
            return;
        }
        self.pending[self.depth] = Some(Pending {
            tag: Tag(0),
            kind: OpKind::Flush,
            lba: Lba(0),
            count: 1,
            at: 0,
            piece: 0,
            placement: None,
            fua: false,
            buf: None,
            attempts: 0,
            stuck: None,
            serial: 0,
            ticket: None,
            number: 0,
        });
        self.waiting.push_front(self.depth);
    }

    /// The queue pair's own flush has ended. The writes that it covers are complete; for others
    /// there may be room now.
    pub(super) fn own_flush_ended(&mut self, result: Result<(), DeviceError>, number: u64) {
        for (index, its) in std::mem::take(&mut self.held) {
            let one = self.pending[index].as_mut().expect("a command that was taken");
            match &result {
                Err(error) => {
                    let message = format!("a flush that it needs has failed: {error}");
                    let error = self.error(index, Cause::Os { kind: error.kind(), message });
                    self.finish(index, Err(error));
                }
                Ok(()) if its > number => self.keep(index),
                Ok(()) => {
                    if let (Some(unflushed), Some(ticket)) =
                        (&self.keeper.shared.unflushed, one.ticket.take())
                    {
                        let shared = &self.keeper.shared;
                        shared.with(unflushed, |unflushed| unflushed.written_through(&ticket));
                    }
                    self.advance(index);
                }
            }
        }
    }
}
