//! One event loop on one thread: its connections, its queue pairs on the devices, its buffers.
//!
//! A round is: bytes at hand are received and acted on; the devices get their batches and give back
//! the commands they have finished; responses go out. Each is done for all commands at hand at
//! once, so that the cost of a system call is shared.
//!
//! When a round found nothing, the loop goes on looking for a while ([`Limits::spin`]), and then
//! sleeps until a socket is ready; while a device works, it sleeps on that for short times.
//!
//! A worker that panics closes its connections, and another one takes its place (`crash`).
//!
//! [`Limits::spin`]: super::config::Limits::spin

mod crash;
pub(crate) mod listen;
pub(crate) mod serve;

use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_base::units::to_usize;
use esker_base::{Nanos, thread};
use esker_device::{Command, Completion};

use super::admin::{self, abort};
use super::connection::core::{CONNECTIONS, Core, DeviceQueue};
use super::connection::{Connection, Role};
use super::ids::{Address, Place, Visitor};
use super::limits::admission::Verdict;
use super::metrics;
use super::refusals::RefusalReason;
use super::shared::{Shared, WorkerMessage};
use crate::socket::{self, Poller, Ready};
use listen::Listeners;

/// How often timeouts and the sizes of devices are looked at.
const TICK: Duration = Duration::from_millis(250);
/// How long the loop sleeps on a device, before it looks at the sockets again: an eighth of the time since
/// anything happened, within these.
const DEVICE_WAIT: Duration = Duration::from_micros(50);
const LONGEST_WAIT: Duration = Duration::from_millis(2);
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
    /// Starts the worker with an index on a thread of its own. Worker 0 has the listeners, one for each portal
    /// that is open.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        index: usize,
        listeners: Vec<Option<TcpListener>>,
    ) -> std::io::Result<()> {
        let worker = Worker::new(shared.clone(), index, listeners)?;
        let thread = thread::spawn(&format!("nvmf-{index}"), move || worker.run())?;
        shared.threads.lock().push(thread);
        Ok(())
    }

    fn new(
        shared: Arc<Shared>,
        index: usize,
        listeners: Vec<Option<TcpListener>>,
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

    /// Runs until the target is stopped, or a panic ends it.
    fn run(mut self) {
        let began = self.core.now;
        let rounds = AssertUnwindSafe(|| {
            while !self.core.shared.is_stopped.load(Ordering::Acquire) {
                self.round();
            }
            self.close();
        });
        if let Err(panic) = catch_unwind(rounds) {
            self.crashed(&thread::said(&*panic), began);
        }
    }

    /// Ends in order.
    fn close(&mut self) {
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
        self.abandon_devices();
    }

    /// Closes the queue pairs, those of devices that hang as well.
    fn abandon_devices(&mut self) {
        for (_, device) in self.core.devices.take(|_| true) {
            if device.queue.in_flight() > 0 {
                let name = device.namespace.device.name().to_owned();
                self.core.shared.hung.lock().push(name);
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
            let quiet = self.core.now.since(self.last_active) / 8;
            self.run_devices(Some(quiet.clamp(DEVICE_WAIT, LONGEST_WAIT)));
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
        self.next_tick.min(self.core.next_due()).since(self.core.now)
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
        // One by one: after a panic the others are there for the next worker.
        loop {
            let Some(message) = mailbox.messages.lock().pop_front() else { return };
            match message {
                WorkerMessage::Connection(stream, portal, visitor) => {
                    self.add(stream, portal, visitor)
                }
                WorkerMessage::Close(at) => self.end(at),
                WorkerMessage::OpenPortal(portal, listener) => {
                    self.listeners.enter(portal, listener, &self.core.poller);
                }
                WorkerMessage::ClosePortal(portal) => self.close_portal(portal),
                WorkerMessage::Count(portal, count) => {
                    let its = self.connections.iter().flatten();
                    let its = its.filter(|one| one.portal == portal);
                    // A caller that waits no longer needs no count.
                    let _ = count.send(its.map(|one| one.under_way()).sum());
                }
                WorkerMessage::Abort { at, controller, cid, asked } => {
                    match connection_at(&mut self.connections, at) {
                        Some(connection) => abort::abort(connection, &mut self.core, cid, asked),
                        None => shared.answer_abort(&controller, asked, false),
                    }
                }
                WorkerMessage::Aborted { at, asked, is_done } => {
                    if let Some(connection) = connection_at(&mut self.connections, at) {
                        abort::answered(connection, &mut self.core, asked, is_done);
                    }
                }
                WorkerMessage::Events(at) => {
                    if let Some(connection) = connection_at(&mut self.connections, at) {
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
                    let when = shared.clock.unix_time();
                    counts.refusals.enter("", Some(from), RefusalReason::Busy, when);
                    continue;
                }
                Verdict::Taken(visitor) => visitor,
                Verdict::Instead(visitor, other) => {
                    metrics::count(&counts.displaced);
                    if other.worker == self.core.index {
                        self.end(other);
                        self.flush();
                    } else {
                        shared.close(other);
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

    fn end(&mut self, at: Address) {
        if let Some(connection) = connection_at(&mut self.connections, at) {
            connection.end(&mut self.core);
        }
    }

    fn add(&mut self, stream: TcpStream, portal: usize, visitor: Visitor) {
        let index = self.connections.iter().position(Option::is_none).unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let token = CONNECTIONS + u64::try_from(index).expect("64 bits");
        // The portal may have been closed since the connection was taken.
        let is_open = self.core.shared.portals.get(portal).is_some_and(|one| !one.is_closed());
        let stream = self.core.shared.stream(stream, portal).filter(|_| is_open);
        let watched = stream.filter(|stream| self.core.poller.add(stream.tcp(), token).is_ok());
        let Some(stream) = watched else {
            self.core.shared.mailboxes[self.core.index].load.fetch_sub(1, Ordering::Relaxed);
            return self.core.shared.admission.leave(visitor);
        };
        let connection = Connection::new(
            stream,
            index,
            (portal, visitor),
            &self.core.shared.limits,
            self.core.now,
        );
        self.core.shared.admission.placed(connection.address(self.core.index));
        self.connections[index] = Some(Box::new(connection));
    }

    /// Gives the devices their batches, and the connections the finished commands; says whether
    /// anything was.
    fn run_devices(&mut self, wait: Option<Duration>) -> bool {
        let mut is_active = false;
        self.core.batch_bytes = 0;
        let mut last = None;
        while let Some(id) = self.core.devices.after(last) {
            last = Some(id);
            let Some(device) = self.core.devices.get_mut(id) else { continue };
            device.let_through(self.core.now);
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
            device.ended(&self.done, self.core.now);
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
                connection.open_devices(&mut self.core); // namespaces may have come
                connection.answer_late(&mut self.core, now, shared.limits.command);
            }
        }
        self.flush();
        let is_over = |one: &DeviceQueue| {
            one.namespace.is_removed()
                && one.batch.is_empty()
                && one.held.is_empty()
                && one.queue.in_flight() == 0
        };
        for (id, _) in self.core.devices.take(is_over) {
            for connection in self.connections.iter_mut().flatten() {
                connection.closed(&self.core, id);
            }
        }
        if self.core.index == 0 {
            self.listeners.listen_again(&self.core.poller);
            shared.refresh();
        }
    }
}

/// The connection at an address, if it is there still.
fn connection_at(
    connections: &mut [Option<Box<Connection>>],
    at: Address,
) -> Option<&mut Connection> {
    let connection = connections.get_mut(at.connection)?.as_deref_mut()?;
    (connection.visitor == at.visitor).then_some(connection)
}
