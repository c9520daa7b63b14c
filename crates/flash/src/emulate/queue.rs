//! Queue pairs of emulated devices.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::sync::Condvar;
use esker_device::{Command, Completion, DeviceError, QueuePair};

use super::device::Namespace;
use super::emulation::Emulation;
use super::{ListId, Model};

pub(super) struct Queue<M: Model> {
    emulation: Arc<Emulation<M>>,
    namespace: Arc<Namespace<M::Part>>,
    depth: usize,
    list: ListId,
    in_flight: usize,
    /// Commands that ended within `submit`.
    ready: Vec<Completion>,
    /// Rung when a command has finished while the thread waits behind another.
    bell: Arc<Condvar>,
}

impl<M: Model> Queue<M> {
    pub(super) fn new(
        emulation: Arc<Emulation<M>>,
        namespace: Arc<Namespace<M::Part>>,
        depth: usize,
    ) -> Queue<M> {
        let list = emulation.open_list(depth);
        let (ready, bell) = (Vec::with_capacity(depth), Arc::new(Condvar::new()));
        Queue { emulation, namespace, depth, list, in_flight: 0, ready, bell }
    }

    /// Hands out commands that are finished now.
    fn take(&mut self, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        done.append(&mut self.ready);
        let namespace = &*self.namespace;
        self.emulation.finish(self.list, |ended| done.push(namespace.complete(ended)));
        self.count(done.len() - before)
    }

    /// Hands out finished commands, after waiting for one if there are none.
    fn await_some(&mut self, done: &mut Vec<Completion>, timeout: Option<Duration>) -> usize {
        let Queue { emulation, namespace, list, .. } = &*self;
        let clock = match emulation.pace().clock() {
            Some(clock) if self.in_flight > 0 && self.ready.is_empty() => clock,
            _ => return self.take(done),
        };
        let before = done.len();
        let deadline = timeout.map(|timeout| clock.now() + timeout);
        let ended = |ended| done.push(namespace.complete(ended));
        if clock.is_virtual() {
            emulation.run(*list, deadline, ended);
        } else {
            emulation.sit(*list, &self.bell, deadline, ended);
        }
        self.count(done.len() - before)
    }

    /// So many commands were handed out.
    fn count(&mut self, done: usize) -> usize {
        self.in_flight -= done;
        done
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
        Ok(self.take(done))
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
            self.emulation.leave(self.list);
            return;
        }
        let mut done = Vec::new();
        while self.in_flight > 0 {
            self.await_some(&mut done, None);
        }
        self.emulation.close_list(self.list);
    }
}
