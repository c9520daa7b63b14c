//! One event loop on one thread: its connections, its queue pairs on the devices, its buffers.
//!
//! A round is: bytes at hand are received and acted on; the devices get their batches and give back
//! the commands they have finished; responses go out. Each is done for all commands at hand at
//! once, so that the cost of a system call is shared.
//!
//! When a round found nothing, the loop goes on looking for a while ([`Limits::spin`]), and then
//! sleeps until a socket is ready; while a device works, it sleeps on that for short times.
//!
//! [`Limits::spin`]: super::config::Limits::spin

pub(crate) mod listen;
pub(crate) mod serve;

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_base::Nanos;
use esker_base::units::to_usize;
use esker_device::{Command, Completion};

use super::admin::{self, abort};
use super::connection::core::{CONNECTIONS, Core};
use super::connection::{Connection, Role};
use super::ids::{Address, Place, Visitor};
use super::limits::admission::Verdict;
use super::metrics;
use super::shared::{Shared, WorkerMessage};
use crate::socket::{self, Poller, Ready};
use listen::Listeners;

/// How often timeouts and the sizes of devices are looked at.
const TICK: Duration = Duration::from_millis(250);
/// How long the loop sleeps on a device, before it looks at the sockets again.
const DEVICE_WAIT: Duration = Duration::from_micros(50);
/// Batches of one connection that are handled before others have their turn: a host that always has more
/// to send would keep its worker to itself.
const TURN_BATCHES: usize = 8;

/// Tokens of the poller: the waker, and listeners from a number on.
const WAKER: u64 = 0;
const LISTENERS: u64 = 1;

/// One event loop.
pub(crate) struct Worker {
    core: Core,
    connections: Vec<Option<Box<Connection>>>,
    /// Worker 0 has the listeners of all portals that are open.
    listeners: Listeners,
    ready: Vec<Ready>,
    /// Connections whose turn ended with more at hand, of which nobody tells again.
    unfinished: Vec<usize>,
    done: Vec<Completion>,
    last_active: Nanos,
    next_tick: Nanos,
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        listeners: Vec<TcpListener>,
    ) -> std::io::Result<Worker> {
        let poller = Poller::new()?;
        poller.add(shared.mailboxes[index].waker.fd(), WAKER)?;
        let listeners = Listeners::new(listeners, LISTENERS, &poller)?;
        let core = Core::new(shared, index, poller);
        let now = core.now;
        Ok(Worker {
            core,
            connections: Vec::new(),
            listeners,
            ready: Vec::new(),
            unfinished: Vec::new(),
            done: Vec::new(),
            last_active: now,
            next_tick: now,
        })
    }

    /// Runs until the target is stopped.
    pub(crate) fn run(mut self) {
        while !self.core.shared.is_stopped.load(Ordering::Acquire) {
            self.round();
        }
        for index in 0..self.connections.len() {
            if let Some(connection) = &mut self.connections[index] {
                connection.end(&mut self.core);
            }
        }
        // Commands that devices have are waited for: their buffers and their order matter to hosts
        // that connect to the next target. A device that hangs is waited for no longer than that.
        let shared = self.core.shared.clone();
        let end = shared.clock.now() + shared.limits.closing;
        while self.core.has_work_in_devices() && shared.clock.now() < end {
            let is_active = self.run_devices(Some(DEVICE_WAIT));
            if !is_active && !self.core.has_devices_to_poll() {
                shared.clock.sleep(DEVICE_WAIT);
            }
        }
        self.flush();
        for device in self.core.devices.drain(..).flatten() {
            if device.queue.in_flight() > 0 {
                shared.hung.lock().push(device.namespace.device.name().to_owned());
            }
            device.queue.abandon();
        }
    }

    fn round(&mut self) {
        let timeout = self.timeout();
        self.ready.clear();
        if self.core.poller.wait(&mut self.ready, timeout).is_err() {
            self.core.shared.clock.sleep(DEVICE_WAIT); // out of kernel memory: not to be spun on
        }
        self.core.now = self.core.shared.clock.now();
        let mut is_active = !self.ready.is_empty() || !self.unfinished.is_empty();
        let unfinished = std::mem::take(&mut self.unfinished);
        for at in 0..self.ready.len() {
            self.act(self.ready[at]);
        }
        for index in unfinished {
            self.receive(index);
        }
        is_active |= self.run_devices(None);
        self.flush();
        if self.core.is_starved {
            self.core.is_starved = false;
            for connection in self.connections.iter_mut().flatten() {
                connection.resume(&mut self.core);
            }
        }
        if is_active {
            self.last_active = self.core.now;
        } else if self.core.has_devices_to_poll() && self.is_past_spinning() {
            self.run_devices(Some(DEVICE_WAIT));
            self.flush();
        }
        if self.core.now >= self.next_tick {
            self.tick();
        }
    }

    fn is_past_spinning(&self) -> bool {
        self.core.now.since(self.last_active) >= self.core.shared.limits.spin
    }

    fn timeout(&self) -> Duration {
        let is_busy = !self.core.dirty.is_empty()
            || !self.unfinished.is_empty()
            || self.core.has_devices_to_poll();
        if is_busy || !self.is_past_spinning() {
            return Duration::ZERO;
        }
        self.next_tick.since(self.core.now)
    }

    fn act(&mut self, ready: Ready) {
        match ready.token {
            WAKER => self.read_mail(),
            token if token >= CONNECTIONS => {
                let index = to_usize(token - CONNECTIONS);
                let Some(Some(connection)) = self.connections.get_mut(index) else { return };
                if ready.writable {
                    self.core.mark_dirty(connection);
                }
                if ready.readable {
                    self.receive(index);
                }
            }
            token => self.accept(to_usize(token - LISTENERS)),
        }
    }

    /// Gives a connection its turn.
    fn receive(&mut self, index: usize) {
        for _ in 0..TURN_BATCHES {
            let Some(Some(connection)) = self.connections.get_mut(index) else { return };
            if !connection.receive(&mut self.core) {
                return;
            }
            self.run_devices(None);
            self.flush();
        }
        // It may have had a turn already, because more has come.
        if !self.unfinished.contains(&index) {
            self.unfinished.push(index);
        }
    }

    fn read_mail(&mut self) {
        let shared = self.core.shared.clone();
        let mailbox = &shared.mailboxes[self.core.index];
        mailbox.waker.clear();
        let messages = std::mem::take(&mut *mailbox.messages.lock());
        for message in messages {
            match message {
                WorkerMessage::Connection(stream, portal, visitor) => {
                    self.add(stream, portal, visitor)
                }
                WorkerMessage::Displaced { connection, visitor } => {
                    self.displace(connection, visitor)
                }
                WorkerMessage::Close { connection, controller } => {
                    if let Some(connection) = of(&mut self.connections, connection, controller) {
                        connection.end(&mut self.core);
                    }
                }
                WorkerMessage::ClosePortal(portal) => self.close_portal(portal),
                WorkerMessage::Abort { connection, controller, cid, asked } => {
                    match of(&mut self.connections, connection, controller) {
                        Some(connection) => abort::abort(connection, &mut self.core, cid, asked),
                        None => shared.answer_abort(controller, asked, false),
                    }
                }
                WorkerMessage::Aborted { connection, controller, asked, is_done } => {
                    if let Some(connection) = of(&mut self.connections, connection, controller) {
                        abort::answered(connection, &mut self.core, asked, is_done);
                    }
                }
                WorkerMessage::Events { connection, controller } => {
                    if let Some(connection) = of(&mut self.connections, connection, controller) {
                        admin::send_events(connection, &mut self.core);
                    }
                }
            }
        }
    }

    fn close_portal(&mut self, portal: usize) {
        self.listeners.close(portal, &self.core.poller);
        for connection in self.connections.iter_mut().flatten() {
            if connection.portal == portal {
                connection.end(&mut self.core);
            }
        }
    }

    fn accept(&mut self, portal: usize) {
        let shared = self.core.shared.clone();
        let counts = &shared.metrics;
        while let Some((stream, from)) = self.listeners.accept(portal, &self.core.poller, counts) {
            let verdict = match socket::prepare(&stream) {
                Ok(()) => shared.admission.enter(from),
                Err(_) => Verdict::Refused,
            };
            let visitor = match verdict {
                Verdict::Refused => {
                    metrics::count(&counts.refused);
                    continue;
                }
                Verdict::Taken(visitor) => visitor,
                Verdict::Instead(visitor, other, Address { worker, connection }) => {
                    metrics::count(&counts.displaced);
                    if worker == self.core.index {
                        self.displace(connection, other);
                        self.flush();
                    } else {
                        let visitor = other;
                        shared.tell(worker, WorkerMessage::Displaced { connection, visitor });
                    }
                    visitor
                }
            };
            metrics::count(&counts.accepted);
            let load = |&index: &usize| shared.mailboxes[index].load.load(Ordering::Relaxed);
            let worker = (0..shared.mailboxes.len()).min_by_key(load).expect("a worker");
            shared.mailboxes[worker].load.fetch_add(1, Ordering::Relaxed);
            if worker == self.core.index {
                self.add(stream, portal, visitor);
            } else {
                shared.tell(worker, WorkerMessage::Connection(stream, portal, visitor));
            }
            if shared.connections() > shared.limits.connections {
                return; // until those have gone that others took the place of
            }
        }
    }

    /// Another connection has the place of this one.
    fn displace(&mut self, connection: usize, visitor: Visitor) {
        let one = self.connections.get_mut(connection).and_then(Option::as_deref_mut);
        if let Some(one) = one.filter(|one| one.visitor == visitor) {
            one.end(&mut self.core);
        }
    }

    fn add(&mut self, stream: TcpStream, portal: usize, visitor: Visitor) {
        let index = self.connections.iter().position(Option::is_none).unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let token = CONNECTIONS + u64::try_from(index).expect("64 bits");
        let stream = self.core.shared.stream(stream, portal);
        let watched = stream.filter(|stream| self.core.poller.add(stream.tcp(), token).is_ok());
        let Some(stream) = watched else {
            self.core.shared.mailboxes[self.core.index].load.fetch_sub(1, Ordering::Relaxed);
            return self.core.shared.admission.leave(visitor);
        };
        let at = Address { worker: self.core.index, connection: index };
        self.core.shared.admission.placed(visitor, at);
        let connection = Connection::new(
            stream,
            index,
            (portal, visitor),
            &self.core.shared.limits,
            self.core.now,
        );
        self.connections[index] = Some(Box::new(connection));
    }

    /// Gives the devices their batches, and the connections the finished commands; says whether
    /// anything was.
    fn run_devices(&mut self, wait: Option<Duration>) -> bool {
        let mut is_active = false;
        self.core.batch_bytes = 0;
        for index in 0..self.core.devices.len() {
            let Some(device) = &mut self.core.devices[index] else { continue };
            let submitted = if device.batch.is_empty() {
                Ok(0)
            } else {
                device.queue.submit(&mut device.batch)
            };
            let polled = device.queue.poll(&mut self.done, wait);
            // A queue pair that is broken finishes nothing: commands in it are failed by its
            // device, those it has not taken are failed here.
            if let Err(error) = submitted.and(polled) {
                let batch = std::mem::take(&mut device.batch);
                self.done.extend(batch.into_iter().map(|Command { tag, op }| Completion {
                    tag,
                    result: Err(error.clone()),
                    buf: op.into_buf(),
                }));
            }
            is_active |= !self.done.is_empty();
            let bytes = |one: &Completion| one.buf.as_ref().map_or(0, |buf| buf.len());
            device.bytes -= self.done.iter().map(bytes).sum::<usize>();
            for completion in self.done.drain(..) {
                let place = Place::of(completion.tag);
                let connection = self.connections[place.connection].as_deref_mut();
                let connection = connection.expect("kept until its commands are finished");
                connection.completed(&mut self.core, place, completion);
                if connection.is_over() {
                    self.core.mark_dirty(connection);
                }
            }
        }
        is_active
    }

    fn flush(&mut self) {
        // Ending one connection may make others dirty, never the one being looked at.
        let mut at = 0;
        while at < self.core.dirty.len() {
            let index = self.core.dirty[at];
            at += 1;
            let Some(connection) = self.connections[index].as_deref_mut() else { continue };
            connection.is_dirty = false;
            connection.flush(&mut self.core);
            if connection.is_over() {
                connection.retire(&mut self.core);
                self.connections[index] = None;
                self.core.shared.mailboxes[self.core.index].load.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.core.dirty.clear();
    }

    /// Does periodic work: silent hosts are dropped, devices looked at.
    fn tick(&mut self) {
        let now = self.core.now;
        self.next_tick = now + TICK;
        let shared = self.core.shared.clone();
        let parted = |one: &&mut Box<Connection>| one.is_parted(now);
        for connection in self.connections.iter_mut().flatten().filter(parted) {
            connection.end(&mut self.core);
        }
        for connection in self.connections.iter_mut().flatten().filter(|one| !one.is_ending) {
            let is_unproven = connection.is_unproven();
            let is_late = now.since(connection.since) > shared.limits.handshake;
            let is_silent = match &connection.role {
                Role::New => is_late,
                Role::Admin(controller) => {
                    is_unproven && is_late || controller.is_silent(now, shared.limits.discovery)
                }
                Role::Io(..) => is_unproven && is_late,
            };
            if is_silent {
                metrics::count(&shared.metrics.timeouts);
                connection.end(&mut self.core);
            } else if let Some(slow) = connection.is_slow(now, shared.limits.transfer) {
                metrics::count(&shared.metrics.slow);
                let (who, limit) = (connection.who(), shared.limits.transfer);
                shared.metrics.closed(format!("{who}: closed, for {slow} within {limit:?}"));
                connection.end(&mut self.core);
            } else {
                connection.answer_late(&mut self.core, now, shared.limits.command);
            }
        }
        self.flush();
        for device in &mut self.core.devices {
            if let Some(one) = device
                && one.namespace.is_removed.load(Ordering::Relaxed)
                && one.batch.is_empty()
                && one.queue.in_flight() == 0
            {
                *device = None;
            }
        }
        if self.core.index == 0 {
            self.listeners.listen_again(&self.core.poller);
            shared.refresh();
        }
    }
}

/// The connection at an index, if it is of that controller.
fn of(
    connections: &mut [Option<Box<Connection>>],
    index: usize,
    controller: u16,
) -> Option<&mut Connection> {
    let connection = connections.get_mut(index)?.as_deref_mut()?;
    let is_its = connection.role.controller().is_some_and(|one| one.id == controller);
    is_its.then_some(connection)
}
