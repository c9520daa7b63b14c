//! A virtual clock that several threads wait on. It moves when all of them wait, to the earliest moment that one of them
//! waits for. So what threads do beside one another takes as long as on real drives.

#![allow(dead_code)] // each test file uses a part

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use esker_base::sync::{Condvar, Mutex};
use esker_base::{Clock, Nanos};

/// How long, in real time, a thread may do something else than wait. Then it is taken to wait for another thread.
const PATIENCE: Duration = Duration::from_millis(2);

#[derive(Default)]
struct State {
    threads: usize,
    /// The moment that each waiting thread waits for.
    waiting: BTreeMap<u64, Nanos>,
    last: u64,
}

/// The threads that share a virtual clock.
pub(crate) struct Turns {
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

impl Turns {
    pub(crate) fn new(clock: &Clock) -> Arc<Turns> {
        let (clock, state) = (clock.clone(), Mutex::default());
        Arc::new(Turns { clock, state, changed: Condvar::new() })
    }

    /// A thread more shares the clock.
    pub(crate) fn join(&self) {
        self.state.lock().threads += 1;
    }

    /// A thread less.
    pub(crate) fn leave(&self) {
        self.state.lock().threads -= 1;
        self.changed.notify_all();
    }

    /// Waits until the clock says so.
    pub(crate) fn wait_until(&self, until: Nanos) {
        let mut state = self.state.lock();
        state.last += 1;
        let id = state.last;
        state.waiting.insert(id, until);
        self.changed.notify_all();
        let mut is_overdue = false;
        while self.clock.now() < until {
            let earliest = state.waiting.values().min().copied();
            if earliest == Some(until) && (state.waiting.len() >= state.threads || is_overdue) {
                self.clock.advance(until.since(self.clock.now()));
                break;
            }
            is_overdue = self.changed.wait_for(&mut state, PATIENCE).timed_out();
        }
        state.waiting.remove(&id);
        self.changed.notify_all();
    }
}
