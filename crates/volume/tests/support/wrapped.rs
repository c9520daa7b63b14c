//! A device whose commands a test sees, and may change, before they are submitted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_device::{Command, Completion, Device, DeviceError, DeviceStats, Geometry, QueuePair};

/// `inner`, which `look` stands before.
pub(crate) struct Wrapped<L> {
    pub(crate) inner: Arc<dyn Device>,
    pub(crate) geometry: Geometry,
    pub(crate) look: L,
}

impl<L: Fn(&mut VecDeque<Command>) + Clone + Send + Sync + 'static> Wrapped<L> {
    /// A device with the geometry of `inner`.
    pub(crate) fn new(inner: Arc<dyn Device>, look: L) -> Wrapped<L> {
        let geometry = inner.geometry();
        Wrapped { inner, geometry, look }
    }
}

struct Queue<L> {
    inner: Box<dyn QueuePair>,
    look: L,
}

impl<L: Fn(&mut VecDeque<Command>) + Clone + Send + Sync + 'static> Device for Wrapped<L> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        Ok(Box::new(Queue { inner: self.inner.queue_pair(depth)?, look: self.look.clone() }))
    }

    fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }
}

impl<L: Fn(&mut VecDeque<Command>) + Send> QueuePair for Queue<L> {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        (self.look)(commands);
        self.inner.submit(commands)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.inner.poll(done)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.inner.wait(done, timeout)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
