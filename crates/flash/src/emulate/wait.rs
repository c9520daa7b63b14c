//! How threads wait on a clock that moves by itself.
//!
//! One of them, the leader, sleeps until the next moment at which a command can finish, and lets the
//! model's events up to then run in one go. The others follow: each sleeps until the leader, or a
//! thread that submits or polls meanwhile, finds a command of its own finished. A leader that leaves
//! wakes one of them to take its place. A command that may finish before the moment for which the
//! leader sleeps brings it forward.

use std::hint::spin_loop;
use std::sync::Arc;

use esker_base::sync::{Condvar, MutexGuard};
use esker_base::{Clock, Nanos, thread};

use super::emulation::{Emulation, Ended, State};
use super::{ListId, Model};

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
            self.watch.set(next);
            self.watch.bell.notify_one();
        }
    }

    /// Blocks until a command of the list has finished, or to the deadline, and moves finished commands to `ended`.
    /// Commands of the list are in flight, and the clock moves by itself.
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
        self.watch.set(until);
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
