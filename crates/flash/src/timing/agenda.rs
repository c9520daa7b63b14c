//! The events to come, in the order of their time; those of the same time in the order in which
//! they were scheduled.
//!
//! Events of one kind are mostly scheduled in the order of their time: all reads take a die equally
//! long, a link serves one after the other. So each kind has a queue, to which an event is
//! appended unless it comes before the last one there, and only then it goes to a heap. The next
//! event is the least of the queues' first ones and the heap's.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// An event on a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The firmware has started a read.
    ReadStarted { ticket: u32 },
    /// The firmware has started a write.
    WriteStarted { ticket: u32 },
    /// The oldest piece of data on the link from the host has arrived in the buffer.
    Arrived,
    /// A die has done its operation, unless it was suspended since (then its turn differs).
    DieDone { die: u32, turn: u32 },
    /// A channel has carried a page.
    ChannelDone { channel: u32 },
    /// The host sees that a command is finished.
    Finished { ticket: u32 },
    /// The controller's data path is free for a program.
    Prepared { job: u32 },
}

impl Event {
    fn queue(self) -> usize {
        match self {
            Event::ReadStarted { .. } => 0,
            Event::WriteStarted { .. } => 1,
            Event::Arrived => 2,
            Event::DieDone { .. } => 3,
            Event::ChannelDone { .. } => 4,
            Event::Finished { .. } => 5,
            Event::Prepared { .. } => 6,
        }
    }
}

const QUEUES: usize = 7;
/// The heap, in the list of first events.
const HEAP: usize = QUEUES;

/// The time of an event in nanoseconds, and below it how many were scheduled before: one number,
/// so that the least of many is found without a branch.
type Moment = u128;
const NEVER: Moment = Moment::MAX;

pub(super) struct Agenda {
    queues: [VecDeque<(Moment, Event)>; QUEUES],
    heap: BinaryHeap<Reverse<(Moment, Event)>>,
    /// The first moment of each queue, and of the heap.
    firsts: [Moment; QUEUES + 1],
    /// The index of the least of them.
    next: usize,
    scheduled: u64,
}

impl Default for Agenda {
    fn default() -> Agenda {
        Agenda {
            queues: Default::default(),
            heap: BinaryHeap::new(),
            firsts: [NEVER; QUEUES + 1],
            next: 0,
            scheduled: 0,
        }
    }
}

impl Agenda {
    pub(super) fn schedule(&mut self, at_ns: u64, event: Event) {
        let moment = Moment::from(at_ns) << 64 | Moment::from(self.scheduled);
        self.scheduled += 1;
        let mut index = event.queue();
        match self.queues[index].back() {
            Some(&(last, _)) if last > moment => {
                index = HEAP;
                self.heap.push(Reverse((moment, event)));
            }
            _ => self.queues[index].push_back((moment, event)),
        }
        self.firsts[index] = self.firsts[index].min(moment);
        if moment < self.firsts[self.next] {
            self.next = index;
        }
    }

    /// The time of the next event.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let first = self.firsts[self.next];
        (first != NEVER).then(|| time_of(first))
    }

    /// Takes the next event, if its time is not after `to_ns`.
    pub(super) fn pop(&mut self, to_ns: u64) -> Option<(u64, Event)> {
        let (index, at_ns) = (self.next, self.next_ns()?);
        if at_ns > to_ns {
            return None;
        }
        let (event, first) = if index == HEAP {
            let Reverse((_, event)) = self.heap.pop()?;
            (event, self.heap.peek().map(|Reverse((moment, _))| *moment))
        } else {
            let (_, event) = self.queues[index].pop_front()?;
            (event, self.queues[index].front().map(|(moment, _)| *moment))
        };
        self.firsts[index] = first.unwrap_or(NEVER);
        self.next = self.least();
        Some((at_ns, event))
    }

    /// All events to come, with their times, in no order.
    pub(super) fn upcoming(&self) -> impl Iterator<Item = (u64, Event)> {
        let heap = self.heap.iter().map(|Reverse(entry)| entry);
        let queues = self.queues.iter().flatten();
        queues.chain(heap).map(|&(moment, event)| (time_of(moment), event))
    }

    fn least(&self) -> usize {
        let (mut index, mut least) = (0, self.firsts[0]);
        for (other, &moment) in self.firsts.iter().enumerate().skip(1) {
            let is_less = moment < least;
            index = if is_less { other } else { index };
            least = if is_less { moment } else { least };
        }
        index
    }
}

fn time_of(moment: Moment) -> u64 {
    u64::try_from(moment >> 64).expect("the upper half")
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_scheduling() {
        let mut rng = Rng::new(7);
        let mut agenda = Agenda::default();
        let (mut plain, mut now_ns) = (Vec::new(), 0);
        for round in 0..20_000u32 {
            for ticket in 0..u32::try_from(rng.below(4)).unwrap() {
                let at_ns = now_ns + rng.below(8);
                let event = match rng.below(3) {
                    0 => Event::ReadStarted { ticket },
                    1 => Event::DieDone { die: ticket, turn: round },
                    _ => Event::Finished { ticket },
                };
                agenda.schedule(at_ns, event);
                plain.push((at_ns, event));
            }
            now_ns += rng.below(3);
            while let Some(popped) = agenda.pop(now_ns) {
                let first = plain.iter().map(|(at_ns, _)| *at_ns).min().unwrap();
                let index = plain.iter().position(|(at_ns, _)| *at_ns == first).unwrap();
                assert_eq!(popped, plain.remove(index));
            }
            assert!(plain.iter().all(|(at_ns, _)| *at_ns > now_ns));
            assert_eq!(agenda.next_ns(), plain.iter().map(|(at_ns, _)| *at_ns).min());
        }
    }
}
