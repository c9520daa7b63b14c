//! A device that is slow: it ends one command in each interval, however many it has.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, Nanos};
use esker_device::{Command, Completion, Device, DeviceError, DeviceStats, Geometry, QueuePair};

/// The command that is ended next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    OldestFirst,
    NewestFirst,
}

pub(crate) struct Paced {
    below: Arc<dyn Device>,
    interval: Duration,
    order: Order,
}

impl Paced {
    pub(crate) fn over(below: Arc<dyn Device>, interval: Duration, order: Order) -> Arc<Paced> {
        Arc::new(Paced { below, interval, order })
    }
}

impl Device for Paced {
    fn name(&self) -> &str {
        "paced"
    }
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let (below, clock) = (self.below.queue_pair(depth)?, Clock::real());
        let Paced { interval, order, .. } = *self;
        let next = clock.now();
        Ok(Box::new(Queue { below, clock, interval, order, next, held: VecDeque::new() }))
    }
    fn stats(&self) -> DeviceStats {
        self.below.stats()
    }
}

struct Queue {
    below: Box<dyn QueuePair>,
    clock: Clock,
    interval: Duration,
    order: Order,
    /// When the next command ends.
    next: Nanos,
    held: VecDeque<Command>,
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        if self.held.is_empty() {
            self.next = self.clock.now() + self.interval;
        }
        let count = commands.len();
        self.held.extend(commands.drain(..));
        Ok(count)
    }
    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let now = self.clock.now();
        if now >= self.next
            && let Some(command) = match self.order {
                Order::OldestFirst => self.held.pop_front(),
                Order::NewestFirst => self.held.pop_back(),
            }
        {
            self.next = now + self.interval;
            self.below.submit(&mut [command].into())?;
        }
        self.below.poll(done)
    }
    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let pause = Duration::from_millis(1);
        self.clock.sleep(timeout.map_or(pause, |timeout| timeout.min(pause)));
        self.poll(done)
    }
    fn in_flight(&self) -> usize {
        self.held.len() + self.below.in_flight()
    }
}
