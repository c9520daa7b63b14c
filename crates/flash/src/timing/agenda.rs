//! The events to come, in the order of their time; those of the same time in the order in which
//! they were scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The firmware has started a read.
    ReadStarted { ticket: u32 },
    /// The firmware has started a write.
    WriteStarted { ticket: u32 },
    /// The oldest piece of data on the link from the host has arrived in the buffer.
    Arrived,
    /// A die has done what it was doing, unless it was suspended since (then its turn differs).
    DieDone { die: u32, turn: u32 },
    /// A channel has carried a page.
    ChannelDone { channel: u32 },
    /// The host sees that a command is finished.
    Finished { ticket: u32 },
}

#[derive(Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
}

impl Agenda {
    pub(super) fn schedule(&mut self, at_ns: u64, event: Event) {
        self.heap.push(Reverse((at_ns, self.scheduled, event)));
        self.scheduled += 1;
    }

    /// The time of the next event.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// Takes the next event, if its time is not after `to_ns`.
    pub(super) fn pop(&mut self, to_ns: u64) -> Option<(u64, Event)> {
        if self.next_ns()? > to_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((at_ns, _, event))| (at_ns, event))
    }
}
