//! A model under emulation: its commands in flight, and the lists of those that are finished.

use std::sync::Arc;

use esker_base::sync::{Mutex, MutexGuard};
use esker_base::{Clock, Nanos};
use esker_device::{DeviceError, Op, Tag};

use super::waiters::{Waiters, Waits, Watch};
use super::{ListId, Model, Pace, Start, Ticket};

/// A model with a pace, for the devices that stand on it ([`super::Emulated`]).
pub struct Emulation<M> {
    pace: Pace,
    state: Mutex<State<M>>,
    pub(super) watch: Watch,
}

/// The times of one command: the model's, and when its queue pair handed it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handout {
    /// The start: the command was submitted.
    pub started: Nanos,
    /// When it went to the media: the start, unless the model holds commands back.
    pub issued: Nanos,
    /// The end, by the model.
    pub finished: Nanos,
    /// When poll or wait returned it, by the clock.
    pub handed_out: Nanos,
}

impl<M: Model> Emulation<M> {
    /// An emulation of `model`.
    #[must_use]
    pub fn new(model: M, pace: Pace) -> Arc<Emulation<M>> {
        let state = State {
            model,
            flights: Vec::new(),
            free_tickets: Vec::new(),
            lists: Vec::new(),
            free_lists: Vec::new(),
            finished: Vec::new(),
            record: None,
            waiters: Waiters::new(pace.factor()),
        };
        Arc::new(Emulation { pace, state: Mutex::new(state), watch: Watch::default() })
    }

    /// How its time passes.
    #[must_use]
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Looks at the model, or changes it, as it is now. Queue pairs wait meanwhile.
    pub fn with<R>(&self, look: impl FnOnce(&mut M) -> R) -> R {
        let mut state = self.state.lock();
        if let Some(clock) = self.pace.clock() {
            state.advance(clock.now());
        }
        let seen = look(&mut state.model);
        self.hasten(&mut state);
        seen
    }

    /// How often threads have slept for it so far, and why they were woken.
    #[must_use]
    pub fn waits(&self) -> Waits {
        self.state.lock().waiters.waits
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock()
    }

    /// Keeps the times of every command handed out from now on.
    pub fn start_record(&self) {
        self.state.lock().record = Some(Vec::new());
    }

    /// The times kept, in the order of handing out; ends the record.
    pub fn take_record(&self) -> Vec<Handout> {
        self.state.lock().record.take().unwrap_or_default()
    }

    /// Starts commands, taken by `next` one by one, for the queue pair with this list. Those that
    /// end at once go to `ended`.
    pub(super) fn start(
        &self,
        list: ListId,
        part: &M::Part,
        mut next: impl FnMut() -> Option<(Tag, Op, Result<(), DeviceError>)>,
        mut ended: impl FnMut(Ended),
    ) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let now = self.pace.clock().map(Clock::now);
        if let Some(now) = now {
            state.advance(now);
        }
        while let Some((tag, mut op, checked)) = next() {
            let start = now.map(|now| Start { now, ticket: state.free_ticket() });
            let result = checked.and_then(|()| state.model.start(part, &mut op, start));
            match start {
                Some(Start { now, ticket }) if result.is_ok() => {
                    state.flights[index(ticket.0)] = Some(Flight { list, tag, op, started: now });
                }
                _ => {
                    state.free_tickets.extend(start.map(|start| start.ticket));
                    let now = now.unwrap_or_default();
                    ended(Ended { tag, op, result, started: now, issued: now, finished: now });
                }
            }
        }
        self.hasten(state);
    }

    /// Moves commands that are finished by now from a list to `ended`.
    pub(super) fn finish(&self, list: ListId, ended: impl FnMut(Ended)) {
        let Some(clock) = self.pace.clock() else { return };
        let mut state = self.state.lock();
        state.advance(clock.now());
        state.take(list, clock, ended);
    }

    /// Moves virtual time from event to event until a command of the list is finished, or to the
    /// deadline.
    pub(super) fn run(&self, list: ListId, deadline: Option<Nanos>, ended: impl FnMut(Ended)) {
        let Some(clock) = self.pace.clock() else { return };
        let mut state = self.state.lock();
        let mut now = clock.now();
        state.advance(now);
        while state.lists[index(list.0)].is_empty() && deadline.is_none_or(|end| now < end) {
            let next = state.next_event();
            let to = deadline.map_or(next, |end| next.min(end));
            clock.advance(to - now);
            now = clock.now();
            state.advance(now);
        }
        state.take(list, clock, ended);
    }

    /// A list for a new queue pair of this depth.
    pub(super) fn open_list(&self, depth: usize) -> ListId {
        let mut state = self.state.lock();
        let id = state.free_lists.pop().unwrap_or_else(|| {
            state.lists.push(Vec::new());
            ListId(u32::try_from(state.lists.len() - 1).expect("fewer queue pairs than 2^32"))
        });
        state.lists[index(id.0)].reserve(depth);
        // More tickets than commands in flight are never needed.
        let in_all = state.flights.len() + depth;
        state.free_tickets.reserve(in_all);
        state.finished.reserve(in_all);
        let queues = state.lists.len();
        state.waiters.reserve(queues);
        id
    }

    /// Nobody waits for a list any more: another thread takes over the work that its thread did for others.
    pub(super) fn leave(&self, list: ListId) {
        self.state.lock().waiters.leave(list);
    }

    /// Ends a list, which has nothing in flight.
    pub(super) fn close_list(&self, list: ListId) {
        let mut state = self.state.lock();
        state.lists[index(list.0)] = Vec::new();
        state.free_lists.push(list);
    }
}

/// A command that ended, with the times of start and end.
pub(super) struct Ended {
    pub(super) tag: Tag,
    pub(super) op: Op,
    pub(super) result: Result<(), DeviceError>,
    started: Nanos,
    issued: Nanos,
    finished: Nanos,
}

struct Flight {
    list: ListId,
    tag: Tag,
    op: Op,
    started: Nanos,
}

pub(super) struct State<M> {
    pub(super) model: M,
    flights: Vec<Option<Flight>>,
    free_tickets: Vec<Ticket>,
    lists: Vec<Vec<Ended>>,
    free_lists: Vec<ListId>,
    finished: Vec<(Ticket, Nanos)>,
    record: Option<Vec<Handout>>,
    pub(super) waiters: Waiters,
}

impl<M: Model> State<M> {
    fn free_ticket(&mut self) -> Ticket {
        self.free_tickets.pop().unwrap_or_else(|| {
            self.flights.push(None);
            Ticket(u32::try_from(self.flights.len() - 1).expect("fewer commands than 2^32"))
        })
    }

    /// Runs the events up to `now`, sorts finished commands into the lists, and wakes those who wait
    /// for them.
    pub(super) fn advance(&mut self, now: Nanos) {
        if self.model.next_event().is_none_or(|next| next > now) {
            return;
        }
        let earliest = if cfg!(debug_assertions) { self.model.next_finish() } else { None };
        self.model.advance(now, &mut self.finished);
        debug_assert!(
            self.finished.iter().all(|(_, end)| Some(*end) >= earliest),
            "a command finished before the moment for which threads sleep"
        );
        for (ticket, finished) in self.finished.drain(..) {
            let flight = self.flights[index(ticket.0)].take();
            let Flight { list, tag, op, started } = flight.expect("a model finishes a start once");
            self.free_tickets.push(ticket);
            let issued = self.model.issued(ticket).unwrap_or(started);
            let ended = Ended { tag, op, result: Ok(()), started, issued, finished };
            self.lists[index(list.0)].push(ended);
            self.waiters.serve(list);
        }
    }

    fn next_event(&self) -> Nanos {
        self.model.next_event().expect("a model with unfinished commands has an event to come")
    }

    /// A moment before which no command finishes unless more start.
    pub(super) fn next_finish(&self) -> Nanos {
        self.model.next_finish().expect("a model with unfinished commands has an event to come")
    }

    /// Whether a command of the list has finished.
    pub(super) fn has_ended(&self, list: ListId) -> bool {
        !self.lists[index(list.0)].is_empty()
    }

    pub(super) fn take(&mut self, list: ListId, clock: &Clock, mut ended: impl FnMut(Ended)) {
        let list = &mut self.lists[index(list.0)];
        if let Some(record) = &mut self.record {
            let handed_out = clock.now();
            record.extend(list.iter().map(|&Ended { started, issued, finished, .. }| Handout {
                started,
                issued,
                finished,
                handed_out,
            }));
        }
        list.drain(..).for_each(&mut ended);
    }
}

fn index(id: u32) -> usize {
    id as usize
}
