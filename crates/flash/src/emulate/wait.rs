//! How threads wait on a clock that moves by itself.
//!
//! One of them, the leader, sleeps until the next moment at which a command can finish, and lets the
//! model's events up to then run in one go. The others follow: each sleeps until the leader, or a
//! thread that submits or polls meanwhile, finds a command of its own finished. A leader that leaves
//! wakes one of them to take its place. A command that may finish before the moment for which the
//! leader sleeps brings it forward.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_base::{Clock, Nanos, thread};
use parking_lot::{Condvar, MutexGuard};

use super::Model;
use super::emulation::{Emulation, Ended, ListId, State};
use super::lateness::Lateness;

/// How often threads slept for an emulation, and why they were woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Moments for which a leader slept or spun.
    pub moments: u64,
    /// Of these, moments that a command submitted meanwhile brought forward.
    pub hastened: u64,
    /// Followers woken because a command of theirs had finished.
    pub served: u64,
    /// Followers woken to lead.
    pub promoted: u64,
}

/// The threads that wait.
pub(super) struct Waiters {
    /// Who sleeps for the model, or was woken to.
    leader: Option<ListId>,
    /// The others, with what wakes them.
    followers: Vec<(ListId, Arc<Condvar>)>,
    lateness: Lateness,
    pub(super) waits: Waits,
}

impl Waiters {
    pub(super) fn new(factor: u32) -> Waiters {
        let (followers, lateness) = (Vec::new(), Lateness::new(factor));
        Waiters { leader: None, followers, lateness, waits: Waits::default() }
    }

    /// Room for so many.
    pub(super) fn reserve(&mut self, queues: usize) {
        self.followers.reserve(queues);
    }

    /// A command of this list has finished: whoever follows for it is woken.
    pub(super) fn serve(&mut self, list: ListId) {
        if let Some(at) = self.followers.iter().position(|(other, _)| *other == list) {
            self.waits.served += 1;
            self.followers.swap_remove(at).1.notify_one();
        }
    }

    /// If this list leads, the one that began to follow last leads from now on: what it waits for
    /// is likely to come last.
    pub(super) fn leave(&mut self, list: ListId) {
        if self.leader != Some(list) {
            return;
        }
        let next = self.followers.pop();
        self.leader = next.as_ref().map(|(next, _)| *next);
        if let Some((_, bell)) = next {
            self.waits.promoted += 1;
            bell.notify_one();
        }
    }
}

/// What the leader waits for, where it looks while it spins and submitters while it sleeps.
#[derive(Default)]
pub(super) struct Watch {
    until_ns: AtomicU64,
    bell: Condvar,
}

impl Watch {
    fn until(&self) -> Nanos {
        Nanos(self.until_ns.load(Ordering::Relaxed))
    }
}

impl<M: Model> Emulation<M> {
    /// Commands were started: if one of them may finish before the leader's moment, that comes
    /// earlier.
    pub(super) fn hasten(&self, state: &mut State<M>) {
        let until = self.watch.until();
        let is_early = |next: Option<Nanos>| next.filter(|next| *next < until);
        if state.waiters.leader.is_none() || is_early(state.model.next_event()).is_none() {
            return;
        }
        if let Some(next) = is_early(state.model.next_finish()) {
            state.waiters.waits.hastened += 1;
            self.watch.until_ns.store(next.0, Ordering::Relaxed);
            self.watch.bell.notify_one();
        }
    }

    /// Blocks until a command of the list has finished, or to the deadline, and moves what is
    /// finished to `ended`. Commands of the list are in flight, and the clock moves by itself.
    pub(super) fn sit(
        &self,
        list: ListId,
        bell: &Arc<Condvar>,
        deadline: Option<Nanos>,
        ended: impl FnMut(Ended),
    ) {
        let Some(clock) = self.pace().clock() else { return };
        let mut state = self.state();
        loop {
            let now = clock.now();
            state.advance(now);
            if state.has_ended(list) || deadline.is_some_and(|end| end <= now) {
                break;
            }
            if state.waiters.leader.is_none_or(|leader| leader == list) {
                state.waiters.leader = Some(list);
                self.lead(clock, &mut state, deadline);
            } else {
                self.follow(clock, &mut state, list, bell, deadline);
            }
        }
        state.waiters.leave(list);
        state.take(list, clock, ended);
    }

    /// Lets time pass until the next moment.
    fn lead(&self, clock: &Clock, state: &mut MutexGuard<'_, State<M>>, deadline: Option<Nanos>) {
        let next = state.next_finish();
        let until = deadline.map_or(next, |end| next.min(end));
        self.watch.until_ns.store(until.0, Ordering::Relaxed);
        state.waiters.waits.moments += 1;
        let spin = state.waiters.lateness.spin();
        let left = self.pace().in_real_time(until - clock.now());
        if left > spin {
            thread::sleep_exactly();
            let (asked, span) = (clock.now(), left - spin);
            if !self.watch.bell.wait_for(state, span).timed_out() {
                return; // brought forward
            }
            let slept = self.pace().in_real_time(clock.now() - asked);
            state.waiters.lateness.saw(slept.saturating_sub(span));
        }
        if clock.now() < until {
            MutexGuard::unlocked(state, || {
                while clock.now() < self.watch.until() {
                    spin_loop();
                }
            });
        }
    }

    /// Sleeps until a command of the list has finished, the lead is free, or to the deadline.
    fn follow(
        &self,
        clock: &Clock,
        state: &mut MutexGuard<'_, State<M>>,
        list: ListId,
        bell: &Arc<Condvar>,
        deadline: Option<Nanos>,
    ) {
        state.waiters.followers.push((list, Arc::clone(bell)));
        match deadline {
            Some(end) => {
                bell.wait_for(state, self.pace().in_real_time(end - clock.now()));
            }
            None => bell.wait(state),
        }
        state.waiters.followers.retain(|(other, _)| *other != list);
    }
}
