//! The limit of a namespace: how many operations and bytes a second all its hosts have together.
//!
//! A command that has to wait stays with the worker, before the queue pair on the device: it holds its slot and its
//! memory, of which a connection has a bounded part for each namespace, and no other namespace waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::Nanos;
use esker_base::pace::{Pace, Rate};
use esker_base::sync::Mutex;

/// A limit that may change, and how far the namespace is.
#[derive(Default)]
pub(crate) struct Throttle {
    state: Mutex<State>,
    /// Which limit it is; 0 for none, which all commands look at.
    epoch: AtomicU64,
}

#[derive(Default)]
struct State {
    rate: Rate,
    pace: Pace,
    /// How many limits there were.
    limits: u64,
}

impl Throttle {
    /// Sets the limit. What was let through under another one is forgotten.
    pub(crate) fn set(&self, rate: Rate) {
        let mut state = self.state.lock();
        if state.rate != rate {
            let limits = state.limits + 1;
            *state = State { rate, pace: Pace::default(), limits };
            self.epoch.store(if rate == Rate::default() { 0 } else { limits }, Ordering::Release);
        }
    }

    /// Which limit it is; 0 for none.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Lets a command through, and says how long it has to wait.
    pub(crate) fn pass(&self, now: Nanos, bytes: u64) -> Duration {
        let mut state = self.state.lock();
        let rate = state.rate;
        state.pace.pass(rate, now, 1, bytes)
    }
}
