//! State that the connections of a worker share: its clock, memory, poller, and queue pairs on devices.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_base::{BufPool, Nanos};
use esker_device::{Command, Op};

use crate::error::NvmfError;
use crate::socket::Poller;
use crate::target::connection::Connection;
use crate::target::connection::backend::Backend;
use crate::target::ids::Place;
use crate::target::limits::budget::Budget;
use crate::target::shared::Shared;
use crate::target::subsystem::Namespace;

/// Free buffers that are kept.
const POOL_BYTES: usize = 32 << 20;
/// The first of the poller's tokens for connections; those below are the worker's.
pub(crate) const CONNECTIONS: u64 = 1 << 32;

/// A queue pair on the device of a namespace.
pub(crate) struct DeviceQueue {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) queue: Backend,
    pub(crate) batch: VecDeque<Command>,
    /// Bytes of the commands that it has or will get.
    pub(crate) bytes: usize,
}

/// The part of a worker that its connections use.
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) now: Nanos,
    pub(crate) pool: BufPool,
    /// Memory for data of connections.
    pub(crate) budget: Budget,
    /// Bytes of the buffers taken since the devices had their turn.
    pub(crate) batch_bytes: usize,
    /// Commands wait for memory.
    pub(crate) is_starved: bool,
    pub(crate) poller: Poller,
    pub(crate) devices: Vec<Option<DeviceQueue>>,
    pub(crate) dirty: Vec<usize>,
}

impl Core {
    pub(crate) fn new(shared: Arc<Shared>, index: usize, poller: Poller) -> Core {
        let (now, budget) = (shared.clock.now(), Budget::new(&shared.limits));
        Core {
            shared,
            index,
            now,
            pool: BufPool::new(POOL_BYTES),
            budget,
            batch_bytes: 0,
            is_starved: false,
            poller,
            devices: Vec::new(),
            dirty: Vec::new(),
        }
    }

    /// The connection has something to send, or ends.
    pub(crate) fn mark_dirty(&mut self, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.is_dirty, true) {
            self.dirty.push(connection.index);
        }
    }

    pub(crate) fn ending(&mut self, connection: &mut Connection) {
        self.poller.remove(connection.stream.tcp());
        self.mark_dirty(connection);
    }

    /// Watches for input of a connection, and for room in its socket. A host that does not read is not served
    /// further: no more input is taken from it.
    pub(crate) fn watch(&self, connection: &Connection, reads: bool, writes: bool) {
        let token = CONNECTIONS + u64::try_from(connection.index).expect("64 bits");
        // An error means that the socket is broken, which reading it shows.
        let _ = self.poller.set(connection.stream.tcp(), token, reads, writes);
    }

    /// The index of this worker's queue on the device of a namespace.
    pub(crate) fn device(&mut self, namespace: &Arc<Namespace>) -> Result<usize, NvmfError> {
        let is_its = |one: &Option<DeviceQueue>| {
            one.as_ref().is_some_and(|one| Arc::ptr_eq(&one.namespace, namespace))
        };
        if let Some(index) = self.devices.iter().position(is_its) {
            return Ok(index);
        }
        let queue = Backend::open(&namespace.device, &self.shared, self.index)?;
        let opened = Some(DeviceQueue {
            namespace: namespace.clone(),
            queue,
            batch: VecDeque::new(),
            bytes: 0,
        });
        match self.devices.iter().position(Option::is_none) {
            Some(index) => {
                self.devices[index] = opened;
                Ok(index)
            }
            None => {
                self.devices.push(opened);
                Ok(self.devices.len() - 1)
            }
        }
    }

    pub(crate) fn namespace(&self, device: usize) -> &Arc<Namespace> {
        &self.devices[device].as_ref().expect("a device in use").namespace
    }

    pub(crate) fn push(&mut self, device: usize, bytes: usize, command: Command) {
        let device = self.devices[device].as_mut().expect("a device in use");
        device.bytes += bytes;
        device.batch.push_back(command);
    }

    /// Bytes of the commands that a device has or will get.
    pub(crate) fn device_bytes(&self, device: usize) -> usize {
        self.devices[device].as_ref().map_or(0, |one| one.bytes)
    }

    /// Takes commands back that no device has yet.
    pub(crate) fn take_back(&mut self, is_it: impl Fn(Place) -> bool) -> Vec<(Place, Op)> {
        let mut taken = Vec::new();
        for device in self.devices.iter_mut().flatten() {
            let is_its = |command: &Command| is_it(Place::of(command.tag));
            let batch = std::mem::take(&mut device.batch);
            let (its, others): (Vec<_>, Vec<_>) = batch.into_iter().partition(&is_its);
            device.batch = VecDeque::from(others);
            for Command { tag, op } in device.queue.take_back(&is_its).into_iter().chain(its) {
                device.bytes -= op.buf_len();
                taken.push((Place::of(tag), op));
            }
        }
        taken
    }

    /// How many commands no device has yet are of a slot of a connection.
    pub(crate) fn count_back(&self, is_it: impl Fn(Place) -> bool) -> usize {
        let is_its = |command: &Command| is_it(Place::of(command.tag));
        let of = |device: &DeviceQueue| {
            let waiting = device.batch.iter().filter(|command| is_its(command)).count();
            waiting + device.queue.count_back(&is_its)
        };
        self.devices.iter().flatten().map(of).sum()
    }

    /// Whether devices have to be polled: nobody announces their completions, or they take no more.
    pub(crate) fn has_devices_to_poll(&self) -> bool {
        let is_polled = |one: &DeviceQueue| {
            !one.batch.is_empty() && one.queue.may_have_room() || one.queue.is_polled()
        };
        self.devices.iter().flatten().any(is_polled)
    }

    pub(crate) fn has_work_in_devices(&self) -> bool {
        self.devices.iter().flatten().any(|one| !one.batch.is_empty() || one.queue.in_flight() > 0)
    }
}
