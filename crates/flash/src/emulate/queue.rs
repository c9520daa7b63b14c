//! Queue pairs of emulated devices.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, Nanos};
use esker_device::{Command, Completion, DeviceError, QueuePair};

use super::device::Namespace;
use super::emulation::{Emulation, ListId};
use super::{Model, Pace};

pub(super) struct Queue<M: Model> {
    emulation: Arc<Emulation<M>>,
    namespace: Arc<Namespace<M::Part>>,
    depth: usize,
    list: ListId,
    in_flight: usize,
    /// What ended within `submit`.
    ready: Vec<Completion>,
}

impl<M: Model> Queue<M> {
    pub(super) fn new(
        emulation: Arc<Emulation<M>>,
        namespace: Arc<Namespace<M::Part>>,
        depth: usize,
    ) -> Queue<M> {
        let list = emulation.open_list(depth);
        Queue { emulation, namespace, depth, list, in_flight: 0, ready: Vec::with_capacity(depth) }
    }

    /// Hands out what is finished now: how many commands, and when the next event is.
    fn take(&mut self, done: &mut Vec<Completion>) -> (usize, Option<Nanos>) {
        let before = done.len();
        done.append(&mut self.ready);
        let namespace = &*self.namespace;
        let next = self.emulation.finish(self.list, |ended| done.push(namespace.complete(ended)));
        let count = done.len() - before;
        self.in_flight -= count;
        (count, next)
    }

    /// Hands out what is finished, after waiting for it if nothing is.
    fn await_some(&mut self, done: &mut Vec<Completion>, timeout: Option<Duration>) -> usize {
        let clock = match self.emulation.pace().clock() {
            Some(clock) if self.in_flight > 0 && self.ready.is_empty() => clock.clone(),
            _ => return self.take(done).0,
        };
        let deadline = timeout.map(|timeout| clock.now() + timeout);
        if clock.is_virtual() { self.run(done, deadline) } else { self.sit(&clock, done, deadline) }
    }

    /// Moves a virtual clock until something is finished.
    fn run(&mut self, done: &mut Vec<Completion>, deadline: Option<Nanos>) -> usize {
        let before = done.len();
        let namespace = &*self.namespace;
        self.emulation.run(self.list, deadline, |ended| done.push(namespace.complete(ended)));
        let count = done.len() - before;
        self.in_flight -= count;
        count
    }

    /// Waits on a clock that moves by itself.
    fn sit(&mut self, clock: &Clock, done: &mut Vec<Completion>, deadline: Option<Nanos>) -> usize {
        loop {
            let (count, next) = self.take(done);
            if count > 0 || deadline.is_some_and(|end| end <= clock.now()) {
                return count;
            }
            let next = next.expect("a model with unfinished commands has an event to come");
            sleep(clock, self.emulation.pace(), deadline.map_or(next, |end| next.min(end)));
        }
    }
}

/// Sleeps until shortly before a moment, then spins: a sleeping thread is not woken in time.
fn sleep(clock: &Clock, pace: &Pace, until: Nanos) {
    let left = until - clock.now();
    if left > pace.spin() {
        clock.sleep(left - pace.spin());
    }
    while clock.now() < until {
        std::hint::spin_loop();
    }
}

impl<M: Model + 'static> QueuePair for Queue<M> {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let taken = commands.len().min(self.depth - self.in_flight);
        let Namespace { name, geometry, part, .. } = &*self.namespace;
        let mut batch = commands.drain(..taken);
        self.emulation.start(
            self.list,
            part,
            || {
                let Command { tag, op } = batch.next()?;
                let checked = op.check(name, geometry);
                Some((tag, op, checked))
            },
            |ended| self.ready.push(self.namespace.complete(ended)),
        );
        self.in_flight += taken;
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        Ok(self.take(done).0)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        Ok(self.await_some(done, timeout))
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl<M: Model> Drop for Queue<M> {
    fn drop(&mut self) {
        // After a panic the model may be in any state: it is not asked, its list not used again.
        if std::thread::panicking() {
            return;
        }
        let mut done = Vec::new();
        while self.in_flight > 0 {
            self.await_some(&mut done, None);
        }
        self.emulation.close_list(self.list);
    }
}
