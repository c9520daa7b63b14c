//! A device for as long as a KVDB is open. Handles of a KVDB outlive it. Their hold on the device, queue pairs with
//! reads in flight among it, is taken from them when the KVDB closes: the next to open the device can lock it.
//!
//! Invariants
//! 1. After [`Lease::end`] neither the lease nor any queue pair that came of it holds anything of the device.
//! 2. A command that was submitted is completed before its queue pair goes. Its submitter is told that the device is
//!    gone, and never that the command succeeded or that there was none.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use esker_base::{Clock, Lba, LbaCount};
use esker_device::{
    Cause, Command, Completion, Device, DeviceError, DeviceStats, Geometry, Identity, OpKind,
    QueuePair,
};

use crate::media::busy::Busy;
use crate::sync::{Mutex, RwLock};

/// A device that can be taken away.
pub(crate) struct Lease {
    name: String,
    discards_zero: bool,
    /// The device, locked as long as it is used other than by a queue pair; or its geometry when it went.
    device: RwLock<Result<Arc<dyn Device>, Geometry>>,
    queues: Mutex<Vec<Weak<Held>>>,
    busy: Arc<Busy>,
}

/// A queue pair until it is taken away; then how many of its commands were in flight.
type Held = Mutex<Result<Box<dyn QueuePair>, usize>>;

impl Lease {
    pub(crate) fn new(device: Arc<dyn Device>, clock: &Clock) -> Lease {
        Lease {
            name: device.name().to_owned(),
            discards_zero: device.discards_zero(),
            device: RwLock::new(Ok(device)),
            queues: Mutex::default(),
            busy: Arc::new(Busy::new(clock)),
        }
    }

    /// Whether it is of this device.
    pub(crate) fn is_of(&self, device: &Arc<dyn Device>) -> bool {
        self.device.read().as_ref().is_ok_and(|own| Arc::ptr_eq(own, device))
    }

    /// How long commands were in flight, in nanoseconds.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy.ns()
    }

    /// Lets go of the device, as soon as the commands in flight have ended.
    pub(crate) fn end(&self) {
        let mut device = self.device.write();
        if let Ok(leased) = &*device {
            *device = Err(leased.geometry());
        }
        // No queue pair is opened any more.
        drop(device);
        for queue in self.queues.lock().drain(..).filter_map(|queue| queue.upgrade()) {
            let mut queue = queue.lock();
            if let Ok(held) = &*queue {
                // Dropping it waits for its commands.
                *queue = Err(held.in_flight());
            }
        }
    }

    /// Returns the device's answer, or a default when the device is gone.
    fn ask<R: Default>(&self, ask: impl FnOnce(&dyn Device) -> R) -> R {
        self.device.read().as_ref().map_or_else(|_| R::default(), |device| ask(&**device))
    }
}

fn gone(name: &str) -> DeviceError {
    let why = "the KVDB that had it open is closed".to_owned();
    DeviceError::new(name, OpKind::Open, Lba(0), 0, Cause::Gone(why))
}

impl Device for Lease {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> Geometry {
        self.device.read().as_ref().map_or_else(|last| *last, |device| device.geometry())
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        // Locked until the queue pair is among those that are taken away.
        let device = self.device.read();
        let device = device.as_ref().map_err(|_| gone(&self.name))?;
        let queue = Arc::new(Mutex::new(Ok(device.queue_pair(depth)?)));
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(&queue));
        let (name, busy) = (self.name.clone(), self.busy.clone());
        Ok(Box::new(LeasedQueue { queue, name, busy, in_flight: 0 }))
    }

    fn discards_zero(&self) -> bool {
        self.discards_zero
    }

    fn usable_bytes(&self) -> Option<u64> {
        self.ask(|device| device.usable_bytes())
    }

    fn left_bytes(&self) -> Option<u64> {
        self.ask(|device| device.left_bytes())
    }

    fn allocate(&self, lba: Lba, count: LbaCount) -> Result<bool, DeviceError> {
        let device = self.device.read();
        device.as_ref().map_err(|_| gone(&self.name))?.allocate(lba, count)
    }

    fn identity(&self) -> Option<Identity> {
        self.ask(|device| device.identity())
    }

    fn stats(&self) -> DeviceStats {
        self.ask(|device| device.stats())
    }

    fn remarks(&self) -> Vec<String> {
        self.ask(|device| device.remarks())
    }
}

/// A queue pair of a [`Lease`].
struct LeasedQueue {
    queue: Arc<Held>,
    name: String,
    busy: Arc<Busy>,
    in_flight: usize,
}

impl LeasedQueue {
    fn ended(&mut self, commands: usize) -> usize {
        self.in_flight -= commands;
        self.busy.end(commands);
        commands
    }

    fn with(
        &self,
        run: impl FnOnce(&mut dyn QueuePair) -> Result<usize, DeviceError>,
    ) -> Result<usize, DeviceError> {
        self.queue.lock().as_mut().map_or_else(|_| Err(gone(&self.name)), |queue| run(&mut **queue))
    }
}

impl Drop for LeasedQueue {
    fn drop(&mut self) {
        self.busy.end(self.in_flight);
    }
}

impl QueuePair for LeasedQueue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let taken = self.with(|queue| queue.submit(commands))?;
        self.in_flight += taken;
        self.busy.begin(taken);
        Ok(taken)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let ended = self.with(|queue| queue.poll(done))?;
        Ok(self.ended(ended))
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let ended = self.with(|queue| queue.wait(done, timeout))?;
        Ok(self.ended(ended))
    }

    fn in_flight(&self) -> usize {
        self.queue.lock().as_ref().map_or_else(|lost| *lost, |queue| queue.in_flight())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use esker_base::AlignedBuf;
    use esker_device::{Op, Port, Tag};

    #[test]
    fn ended_lease_holds_nothing_and_says_that_the_device_is_gone() {
        let device = testing::device("m");
        let lease = Lease::new(device.clone(), &Clock::virtual_time());
        let (geometry, mut port) = (lease.geometry(), Port::open(&lease, 1).unwrap());
        assert!(lease.is_of(&device));
        port.flush().unwrap();
        lease.end();
        assert_eq!(Arc::strong_count(&device), 1);
        assert!(!lease.is_of(&device));
        assert_eq!(lease.geometry(), geometry);
        assert!(matches!(port.flush().unwrap_err().cause(), Cause::Gone(_)));
        assert!(matches!(lease.queue_pair(1).map(drop).unwrap_err().cause(), Cause::Gone(_)));
        lease.end();
    }

    #[test]
    fn command_in_flight_when_a_lease_ends_is_no_command_that_succeeded() {
        let lease = Lease::new(testing::device("m"), &Clock::virtual_time());
        let mut queue = lease.queue_pair(2).unwrap();
        let op = Op::Read { lba: Lba(0), buf: AlignedBuf::zeroed(4096) };
        queue.submit(&mut VecDeque::from([Command { tag: Tag(1), op }])).unwrap();
        lease.end();
        assert_eq!(queue.in_flight(), 1, "or a port took it for done");
        let error = queue.wait(&mut Vec::new(), None).unwrap_err();
        assert!(matches!(error.cause(), Cause::Gone(_)), "{error}");
    }
}
