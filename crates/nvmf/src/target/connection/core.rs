//! State that the connections of a worker share: its clock, memory, poller, and queue pairs on devices.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_base::silence::{Given, Silence};
use esker_base::units::to_u64;
use esker_base::{BufPool, Nanos};
use esker_device::{Command, Completion, Op};

use crate::error::NvmfError;
use crate::socket::Poller;
use crate::target::connection::Connection;
use crate::target::connection::backend::Backend;
use crate::target::ids::{Id, Place, Slots};
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
    /// Commands that the limit of the namespace holds back, in the order in which they came.
    pub(crate) held: VecDeque<Command>,
    /// Until when the first of them is held, and by which limit.
    due: Option<(Nanos, u64)>,
    /// Bytes of the commands that it has or will get.
    pub(crate) bytes: usize,
    /// These commands.
    pub(crate) silence: Silence,
}

impl DeviceQueue {
    /// Has the device get the commands whose time has come.
    pub(crate) fn let_through(&mut self, now: Nanos) {
        let throttle = &self.namespace.throttle;
        let epoch = throttle.epoch();
        while let Some(command) = self.held.front() {
            let (due, by) = self.due.unwrap_or_default();
            let due = match epoch {
                0 => now,
                _ if by == epoch => due,
                _ => now + throttle.pass(now, to_u64(command.op.buf_len())),
            };
            if due > now {
                self.due = Some((due, epoch));
                break;
            }
            self.due = None;
            self.batch.extend(self.held.pop_front());
        }
        // The limit is what makes them wait, and not the device.
        if !self.held.is_empty() && self.batch.is_empty() && self.queue.in_flight() == 0 {
            self.namespace.late.ends(now);
        }
    }

    /// Takes back commands that the limit holds.
    fn take_held(&mut self, is_it: impl Fn(Place) -> bool) -> Vec<(Place, Op)> {
        let is_its = |command: &Command| is_it(Place::of(command.tag));
        if self.held.front().is_some_and(is_its) {
            self.due = None;
        }
        let held = std::mem::take(&mut self.held).into_iter();
        let (its, others): (Vec<_>, Vec<_>) = held.partition(is_its);
        self.held = VecDeque::from(others);
        self.took_back(its)
    }

    /// It will not have these commands.
    fn took_back(&mut self, all: Vec<Command>) -> Vec<(Place, Op)> {
        let all: Vec<_> = all.into_iter().map(|Command { tag, op }| (Place::of(tag), op)).collect();
        self.bytes -= all.iter().map(|(_, op)| op.buf_len()).sum::<usize>();
        all.iter().for_each(|_| self.silence.take_back());
        all
    }

    /// The device has ended these commands.
    pub(crate) fn ended(&mut self, done: &[Completion], now: Nanos) {
        if done.is_empty() {
            return;
        }
        self.bytes -=
            done.iter().map(|one| one.buf.as_ref().map_or(0, |buf| buf.len())).sum::<usize>();
        done.iter().for_each(|_| self.silence.answer(now));
        self.namespace.late.ends(now);
    }
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
    pub(crate) devices: Slots<DeviceQueue>,
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
            devices: Slots::default(),
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

    /// This worker's queue pair on the device of a namespace.
    pub(crate) fn device(
        &mut self,
        namespace: &Arc<Namespace>,
    ) -> Result<Id<DeviceQueue>, NvmfError> {
        let is_its = |(_, one): &(_, &DeviceQueue)| Arc::ptr_eq(&one.namespace, namespace);
        if let Some((id, _)) = self.devices.iter().find(is_its) {
            return Ok(id);
        }
        let queue = Backend::open(&namespace.device, &self.shared, self.index)?;
        let (namespace, batch, held) = (namespace.clone(), VecDeque::new(), VecDeque::new());
        let silence = Silence::default();
        Ok(self.devices.insert(DeviceQueue {
            namespace,
            queue,
            batch,
            held,
            due: None,
            bytes: 0,
            silence,
        }))
    }

    pub(crate) fn push(&mut self, queue: Id<DeviceQueue>, bytes: usize, command: Command) -> Given {
        let device = self.devices.get_mut(queue).expect("it is open as long as it is used");
        device.bytes += bytes;
        if device.held.is_empty() && device.namespace.throttle.epoch() == 0 {
            device.batch.push_back(command);
        } else {
            device.held.push_back(command);
        }
        device.silence.give(self.now)
    }

    /// Bytes of the commands that a device has or will get.
    pub(crate) fn device_bytes(&self, queue: Id<DeviceQueue>) -> usize {
        self.devices.get(queue).map_or(0, |one| one.bytes)
    }

    /// Takes commands back that no device has yet, if they are at least so many.
    pub(crate) fn take_back(
        &mut self,
        queue: Id<DeviceQueue>,
        is_it: impl Fn(Place) -> bool,
        at_least: usize,
    ) -> Vec<(Place, Op)> {
        let Some(device) = self.devices.get_mut(queue) else { return Vec::new() };
        let is_its = |command: &Command| is_it(Place::of(command.tag));
        let waiting = device.batch.iter().chain(&device.held);
        let count = waiting.filter(|command| is_its(command)).count();
        let Some(mut all) = device.queue.take_back(&is_its, at_least.saturating_sub(count)) else {
            return Vec::new();
        };
        let batch = std::mem::take(&mut device.batch).into_iter();
        let (its, others): (Vec<_>, Vec<_>) = batch.partition(is_its);
        device.batch = VecDeque::from(others);
        all.extend(its);
        device.took_back(all).into_iter().chain(device.take_held(is_it)).collect()
    }

    /// Takes back the commands of a connection that limits hold.
    pub(crate) fn take_held(&mut self, connection: usize) -> Vec<(Place, Op)> {
        let is_its = |place: Place| place.connection == connection;
        self.devices.iter_mut().flat_map(|(_, device)| device.take_held(is_its)).collect()
    }

    /// Whether devices have to be polled: nobody announces their completions, or they take no more.
    pub(crate) fn has_devices_to_poll(&self) -> bool {
        let is_polled = |one: &DeviceQueue| {
            !one.batch.is_empty() && one.queue.may_have_room() || one.queue.is_polled()
        };
        self.devices.iter().any(|(_, one)| is_polled(one))
    }

    /// When the first command is let through that a limit holds back.
    pub(crate) fn next_due(&self) -> Nanos {
        let due = self.devices.iter().filter_map(|(_, one)| one.due).map(|(due, _)| due);
        due.min().unwrap_or(Nanos(u64::MAX))
    }

    pub(crate) fn has_work_in_devices(&self) -> bool {
        let has_work = |one: &DeviceQueue| !one.batch.is_empty() || one.queue.in_flight() > 0;
        self.devices.iter().any(|(_, one)| has_work(one))
    }
}
