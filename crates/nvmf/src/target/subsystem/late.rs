//! Commands that a device does not end in time, and the commands that wait for them.
//!
//! A host is answered when the device has ended *no* command for [`Limits::command`], or has passed this one over
//! for good ([`Silence`]): a slow device that ends others is waited for. It still has the command then: a read fills
//! a buffer that nobody sees, but a write may be done at any later moment, over newer data of the host.
//! So a late command that changes LBAs *fences* them: no command that touches them is given to the
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
//! [`Limits::command`]: crate::target::config::Limits::command
//! [`Silence`]: esker_base::silence::Silence

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use esker_base::Nanos;
use esker_base::sync::Mutex;

use crate::wire::capsule::Sqe;
use crate::wire::command::{LbaRange, io};

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
    /// When the device ended a command last, for whichever worker, in nanoseconds of the target's clock.
    ended: AtomicU64,
}

#[derive(Default)]
struct List {
    next: u64,
    /// The LBAs that each changes.
    changes: BTreeMap<u64, Option<Range>>,
}

/// A late command of a namespace, until it is dropped: its device has ended it.
pub(crate) struct LateCommand {
    late: Arc<Late>,
    id: u64,
}

impl LateCommand {
    /// A command is late from now on.
    pub(crate) fn new(late: &Arc<Late>, sqe: &Sqe) -> LateCommand {
        LateCommand { late: late.clone(), id: late.enter(changes_of(sqe)) }
    }
}

impl Drop for LateCommand {
    fn drop(&mut self) {
        self.late.leave(self.id);
    }
}

impl Late {
    /// The device has ended commands.
    pub(crate) fn ends(&self, now: Nanos) {
        self.ended.fetch_max(now.0, Ordering::Relaxed);
    }

    /// Since when a command waits for a device that ends nothing, if it waits since then.
    pub(crate) fn silent_since(&self, since: Nanos) -> Nanos {
        since.max(Nanos(self.ended.load(Ordering::Relaxed)))
    }

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

/// Returns the LBAs that a command touches.
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

/// Returns the LBAs that a command changes.
pub(crate) fn changes_of(sqe: &Sqe) -> Option<Range> {
    let changes = matches!(sqe.opcode, io::WRITE | io::WRITE_ZEROES | io::DSM | io::COPY);
    range_of(sqe).filter(|_| changes)
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
