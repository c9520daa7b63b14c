//! The threads that wait for an emulation: the leader, the followers, and how often they were
//! woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_base::Nanos;
use esker_base::sync::Condvar;

use super::ListId;
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
    /// The list whose thread sleeps for the model, or was woken to.
    pub(super) leader: Option<ListId>,
    /// The others, with their bells.
    pub(super) followers: Vec<(ListId, Arc<Condvar>)>,
    pub(super) lateness: Lateness,
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

    /// A command of this list has finished: the thread that follows for it is woken.
    pub(super) fn serve(&mut self, list: ListId) {
        if let Some(at) = self.followers.iter().position(|(other, _)| *other == list) {
            self.waits.served += 1;
            self.followers.swap_remove(at).1.notify_one();
        }
    }

    /// If this list leads, the one that began to follow last leads from now on: the end that it
    /// waits for is likely to come last.
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

/// The time until which the leader waits. The leader looks there while it spins, and submitters
/// while it sleeps.
#[derive(Default)]
pub(super) struct Watch {
    until_ns: AtomicU64,
    pub(super) bell: Condvar,
}

impl Watch {
    pub(super) fn until(&self) -> Nanos {
        Nanos(self.until_ns.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, until: Nanos) {
        self.until_ns.store(until.0, Ordering::Relaxed);
    }
}
