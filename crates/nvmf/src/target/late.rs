//! Commands that a device does not end in time, and what they keep others from.
//!
//! A host is answered when [`Limits::command`] has passed. What the device has then it still has: a read fills
//! a buffer that nobody sees, but a write may be done at any later moment, over what the host has written
//! since. So a late command that changes LBAs *fences* them: no command that touches them is given to the
//! device before the late one has ended. Commands of a connection that ends are late, too: its host may send
//! them again over another connection.
//!
//! | | a late command is answered |
//! | --- | --- |
//! | read, compare, verify, flush | 300h: nothing has changed, another path may do better |
//! | write, zeroes, discard, copy | 006h: it may still happen, and another path is not kept from its LBAs |
//!
//! Invariants
//! 1. A late command keeps its slot until the device has ended it: its buffer and its tag are not used again.
//!    The connection has one slot more meanwhile.
//! 2. At most [`MOST`] commands of a namespace are late before it gets no more, so a device that hangs for
//!    hours does not gather memory.
//!
//! [`Limits::command`]: super::config::Limits::command

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use esker_base::{AlignedBuf, Nanos};
use parking_lot::Mutex;

use super::connection::Connection;
use super::metrics;
use super::subsystem::Namespace;
use super::worker::{Core, Place};
use crate::conn::Slot;
use crate::wire::capsule::Sqe;
use crate::wire::command::{LbaRange, io};
use crate::wire::status::Status;

/// So many late commands, and the namespace gets no more.
const MOST: usize = 64;

/// The LBAs that a command touches: the first, and the one behind the last.
type Range = (u64, u64);
const ALL: Range = (0, u64::MAX);

/// The late commands of a namespace.
#[derive(Default)]
pub(crate) struct Late {
    count: AtomicUsize,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next: u64,
    /// What each changes.
    changes: BTreeMap<u64, Option<Range>>,
}

impl Late {
    fn enter(&self, changes: Option<Range>) -> u64 {
        let mut list = self.list.lock();
        list.next += 1;
        let id = list.next;
        list.changes.insert(id, changes);
        self.count.store(list.changes.len(), Ordering::Release);
        id
    }

    fn leave(&self, id: u64) {
        let mut list = self.list.lock();
        list.changes.remove(&id);
        self.count.store(list.changes.len(), Ordering::Release);
    }

    /// Whether a command has to wait for late ones.
    pub(crate) fn fences(&self, sqe: &Sqe) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let list = self.list.lock();
        let touches = |range: Range| {
            let mut changes = list.changes.values().flatten();
            changes.any(|late| range.0 < late.1 && late.0 < range.1)
        };
        list.changes.len() >= MOST || range_of(sqe).is_some_and(touches)
    }
}

/// What a command touches.
fn range_of(sqe: &Sqe) -> Option<Range> {
    match sqe.opcode {
        io::READ | io::WRITE | io::WRITE_ZEROES | io::COMPARE | io::VERIFY => {
            let range = LbaRange::of(sqe);
            Some((range.slba, range.slba.saturating_add(range.count.into())))
        }
        io::DSM | io::COPY => Some(ALL),
        _ => None,
    }
}

/// What a command changes.
fn changes_of(sqe: &Sqe) -> Option<Range> {
    let changes = matches!(sqe.opcode, io::WRITE | io::WRITE_ZEROES | io::DSM | io::COPY);
    range_of(sqe).filter(|_| changes)
}

impl Connection {
    /// The namespace of a command that was looked up.
    fn namespace_of(&self, core: &Core, slot: Slot) -> Option<Arc<Namespace>> {
        let flow = self.jobs[usize::from(slot.0)].flow?;
        Some(core.namespace(self.uses[flow].device).clone())
    }

    /// Whether a command that has no data yet has to wait for late ones: it needs no memory meanwhile.
    pub(crate) fn is_fenced(&self, core: &Core, slot: Slot) -> bool {
        let sqe = &self.jobs[usize::from(slot.0)].sqe;
        let used = self.uses.iter().rfind(|one| one.nsid == sqe.nsid);
        used.is_some_and(|one| core.namespace(one.device).late.fences(sqe))
    }

    /// A command waits for late ones; it is executed from its beginning then.
    pub(crate) fn wait_for_late(&mut self, core: &mut Core, slot: Slot, data: Option<AlignedBuf>) {
        self.fenced.push_back((slot.0, data));
        core.is_starved = true;
    }

    /// Lets the commands try again that wait for late ones.
    pub(crate) fn try_fenced(&mut self, core: &mut Core) {
        if self.is_ending {
            return;
        }
        for (slot, data) in std::mem::take(&mut self.fenced) {
            core.mark_dirty(self);
            match self.job(Slot(slot)).needs_data(data.as_ref()) {
                true => self.fetch(core, Slot(slot)),
                false => self.execute(core, Slot(slot), data),
            }
        }
    }

    /// Answers the commands that were given to a device, or wait, for longer than `limit`.
    pub(crate) fn answer_late(&mut self, core: &mut Core, now: Nanos, limit: Duration) {
        for index in 0..self.jobs.len() {
            let job = &self.jobs[index];
            let is_over = job.pieces > 0 && job.late.is_none() && now.since(job.given) > limit;
            if is_over && let Ok(slot) = u16::try_from(index) {
                self.answer_one(core, Slot(slot));
            }
        }
        let is_over = |jobs: &[super::connection::Job], slot: u16| {
            now.since(jobs[usize::from(slot)].started) > limit
        };
        let (over, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|&slot| is_over(&self.jobs, slot));
        self.waiting = VecDeque::from(left);
        over.into_iter().for_each(|slot| self.finish(core, Slot(slot), Status::PATH_INTERNAL));
        let (over, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.fenced)
            .into_iter()
            .partition(|(slot, _)| is_over(&self.jobs, *slot));
        self.fenced = VecDeque::from(left);
        for (slot, data) in over {
            self.give_back(core, data);
            self.finish(core, Slot(slot), Status::PATH_INTERNAL);
        }
        while let Some(slot) = self.copies.cancel(|slot| is_over(&self.jobs, slot.0)) {
            self.finish(core, slot, Status::PATH_INTERNAL);
        }
        core.mark_dirty(self);
    }

    fn answer_one(&mut self, core: &mut Core, slot: Slot) {
        let index = self.index;
        let is_its = |place: Place| place.connection == index && place.slot == slot;
        let is_copy = self.copies.halt(slot);
        let taken = core.take_back(is_its);
        self.took_back(slot, taken.len());
        for (place, op) in taken {
            if is_copy {
                self.copies.took_back(place);
            }
            self.took_back_bytes(slot, op.buf_len());
            self.give_back(core, op.into_buf());
        }
        metrics::count(&core.shared.metrics.late);
        let sqe = self.job(slot).sqe;
        let changes = changes_of(&sqe);
        let status = if changes.is_some() { Status::INTERNAL } else { Status::PATH_INTERNAL };
        if self.job(slot).pieces == 0 {
            // No device ever had it, so it does not happen.
            if is_copy {
                return super::copy::advance(self, core);
            }
            let expected = self.job(slot).expected.take();
            self.give_back(core, expected);
            return self.finish(core, slot, Status::PATH_INTERNAL);
        }
        if let Some(namespace) = self.namespace_of(core, slot) {
            self.finish_early(core, slot, status);
            self.job(slot).late = Some(namespace.late.enter(changes));
        }
    }

    /// The connection ends: what the devices have of it is late.
    pub(crate) fn all_late(&mut self, core: &Core) {
        for index in 0..self.jobs.len() {
            let job = &self.jobs[index];
            if job.pieces == 0 || job.late.is_some() {
                continue;
            }
            let Some(slot) = u16::try_from(index).ok().map(Slot) else { continue };
            let changes = changes_of(&job.sqe);
            if let Some(namespace) = self.namespace_of(core, slot) {
                self.job(slot).late = Some(namespace.late.enter(changes));
            }
        }
    }

    /// The devices are done with a command; says whether it was late, and its slot is free now.
    pub(crate) fn was_late(&mut self, core: &mut Core, slot: Slot) -> bool {
        let Some(id) = self.job(slot).late.take() else { return false };
        if let Some(namespace) = self.namespace_of(core, slot) {
            namespace.late.leave(id);
        }
        core.is_starved = true; // commands that wait for it go on
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_write_fences_its_lbas_and_no_others() {
        let command = |opcode, slba, count| {
            LbaRange { slba, count, fua: false, placement: None }.put(Sqe::new(opcode, 1))
        };
        let late = Late::default();
        let first = late.enter(changes_of(&command(io::WRITE, 8, 8)));
        late.enter(changes_of(&command(io::READ, 100, 8)));
        for (opcode, slba, count, is_fenced) in [
            (io::WRITE, 0, 8, false),
            (io::WRITE, 0, 9, true),
            (io::READ, 15, 1, true),
            (io::READ, 16, 8, false),
            (io::WRITE, 100, 8, false),
            (io::FLUSH, 0, 1, false),
        ] {
            let sqe = command(opcode, slba, count);
            assert_eq!(late.fences(&sqe), is_fenced, "{opcode:#x} {slba} {count}");
        }
        late.leave(first);
        assert!(!late.fences(&command(io::WRITE, 8, 8)));
        for _ in 0..MOST {
            late.enter(None);
        }
        assert!(late.fences(&command(io::READ, 0, 1)), "so many are late that nothing is given on");
    }
}
