//! A target that runs: started from a configuration, asked, changed and closed.

pub(super) mod hosts;
pub(super) mod portals;
mod reload;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use esker_base::sync::Mutex;
use esker_base::thread;
use esker_device::Port;

use super::config::{NamespaceConfig, TargetConfig};
use super::controller::Controller;
use super::controller_ids::ControllerIds;
use super::metrics::TargetMetrics;
use super::portal::{Portal, Portals};
use super::reservation::Store;
use super::shared::{Mailbox, Shared};
use super::subsystem::Subsystem;
use super::worker::Worker;
use crate::error::NvmfError;
use crate::socket::Waker;
use reload::Started;

/// A target that is running. Dropping it stops it.
pub struct Target {
    shared: Arc<Shared>,
    started: Started,
}

impl Target {
    /// Starts a target.
    ///
    /// # Errors
    /// When the configuration is wrong, or the operating system refuses an address or a thread.
    pub fn start(config: &TargetConfig) -> Result<Target, NvmfError> {
        config.check()?;
        let (mut portals, mut listeners) = (Vec::new(), Vec::new());
        for portal in &config.portals {
            let refused = |error| NvmfError::os(format!("listening on {}", portal.listen), &error);
            let listener = TcpListener::bind(portal.listen).map_err(refused)?;
            let listen = listener.local_addr().map_err(refused)?;
            portals.push(Portal::new(listen, portal));
            listeners.push(Some(listener));
        }
        let store = config.reservations.as_deref().map(Store::open).transpose()?.map(Arc::new);
        let mut subsystems = Vec::new();
        for subsystem in &config.subsystems {
            subsystems.push(Arc::new(Subsystem::new(subsystem, &config.limits, store.clone())?));
        }
        let starting = |error| NvmfError::os("starting a worker", &error);
        let mut mailboxes = Vec::new();
        for _ in 0..config.limits.workers {
            let waker = Waker::new().map_err(starting)?;
            mailboxes.push(Mailbox { messages: Mutex::default(), waker, load: 0.into() });
        }
        let (limits, referrals) = (config.limits.clone(), config.referrals.clone());
        let listened = portals.iter().map(|portal| portal.listen);
        let ids = ControllerIds::new(config.controller_ids.clone(), listened);
        let portals = Portals::new(portals);
        let shared =
            Arc::new(Shared::new(limits, portals, referrals, store, subsystems, mailboxes, ids));
        let started = Started::new(config);
        let target = Target { shared, started };
        for index in 0..config.limits.workers {
            let listeners = std::mem::take(&mut listeners); // worker 0 has them
            Worker::start(&target.shared, index, listeners).map_err(starting)?;
        }
        Ok(target)
    }

    /// Whether it serves. It ends by itself only when a worker has panicked and the system has no thread for
    /// another one: it has closed all connections, so that hosts go on elsewhere.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.shared.is_stopped.load(Ordering::Acquire)
    }

    /// Takes the messages of panics since this was asked last, in sentences. A worker that panics has closed its
    /// connections, and another one is in its place. [`Target::close`] fails with one that nobody has taken.
    #[must_use]
    pub fn take_panics(&self) -> Vec<String> {
        self.shared.take_panics()
    }

    /// The addresses it listens on, or has listened on, in the order of the numbers of its portals.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.shared.portals.all().iter().map(|portal| portal.listen).collect()
    }

    /// The hosts that are connected now, by NQN.
    #[must_use]
    pub fn hosts(&self) -> BTreeSet<String> {
        self.shared.admission.hosts()
    }

    /// The hosts that are connected now to this subsystem, by NQN.
    #[must_use]
    pub fn hosts_of(&self, nqn: &str) -> BTreeSet<String> {
        let controllers = self.shared.controllers.lock();
        let is_its = |one: &&Arc<Controller>| {
            one.subsystem.as_ref().is_some_and(|its| its.nqn == nqn) && !one.is_gone()
        };
        controllers.values().filter(is_its).map(|one| one.host.nqn.clone()).collect()
    }

    /// Returns its counters.
    #[must_use]
    pub fn metrics(&self) -> TargetMetrics {
        let shared = &self.shared;
        let registry = &shared.metrics;
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let controllers = shared.controllers.lock();
        TargetMetrics {
            connections: shared.connections(),
            controllers: controllers.values().filter(|one| !one.is_discovery()).count(),
            accepted: get(&registry.accepted),
            refused: get(&registry.refused),
            displaced: get(&registry.displaced),
            violations: get(&registry.violations),
            timeouts: get(&registry.timeouts),
            slow: get(&registry.slow),
            late: get(&registry.late),
            closed: registry.last_closed(),
            unauthenticated: get(&registry.unauthenticated),
            panics: get(&registry.panics),
            flows: registry.sums(),
        }
    }

    /// Adds a namespace to a subsystem; connected hosts are told.
    ///
    /// # Errors
    /// When there is no such subsystem, or the namespace's number or device is not possible.
    pub fn add_namespace(&self, nqn: &str, namespace: &NamespaceConfig) -> Result<(), NvmfError> {
        let subsystem = self.subsystem(nqn)?;
        subsystem.add(namespace)?;
        self.shared.namespace_changed(&subsystem, namespace.nsid);
        Ok(())
    }

    /// Removes a namespace from a subsystem; connected hosts are told. Commands that its device has
    /// are finished.
    ///
    /// # Errors
    /// When there is no such subsystem or namespace.
    pub fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<(), NvmfError> {
        let subsystem = self.subsystem(nqn)?;
        if !subsystem.remove(nsid) {
            return Err(NvmfError::Config(format!("{nqn} has no namespace {nsid}")));
        }
        self.shared.namespace_changed(&subsystem, nsid);
        Ok(())
    }

    /// Looks at the sizes of all devices now; hosts are told of those that changed. It is done
    /// four times a second anyway.
    pub fn refresh(&self) {
        self.shared.refresh();
    }

    fn subsystem(&self, nqn: &str) -> Result<Arc<Subsystem>, NvmfError> {
        let missing = || NvmfError::Config(format!("there is no subsystem {nqn}"));
        self.shared.subsystem(nqn).ok_or_else(missing)
    }
}

impl Target {
    /// Ends it in order: the connections are closed, the commands in the devices are waited for, and then
    /// every device is flushed. Each of the two takes [`Limits::closing`](super::Limits::closing) at most.
    ///
    /// # Errors
    /// That a worker has panicked, if nobody has taken that; else that a device has not ended its commands in time, or the first of
    /// one that cannot be flushed. The others are all the same. After [`NvmfError::Hung`] the devices cannot
    /// be dropped without waiting for them.
    pub fn close(mut self) -> Result<(), NvmfError> {
        let mut outcome = self.stop();
        let within = self.shared.limits.closing;
        let hung = std::mem::take(&mut *self.shared.hung.lock());
        let hang = |device: &str| NvmfError::Hung { device: device.to_owned(), within };
        if let Some(device) = hung.first() {
            outcome = outcome.and(Err(hang(device)));
        }
        // All at once: a device that hangs takes no time of the others.
        let end = self.shared.clock.now() + within;
        let (flushed, outcomes) = mpsc::channel();
        let mut devices = Vec::new();
        for subsystem in &*self.shared.subsystems.read() {
            for namespace in subsystem.namespaces() {
                if hung.iter().any(|name| name == namespace.device.name()) {
                    continue;
                }
                let (index, flushed) = (devices.len(), flushed.clone());
                let device = namespace.device.clone();
                devices.push(device.clone());
                let flush = move || {
                    let done = Port::open(&*device, 1).and_then(|mut port| port.flush());
                    // Before it is told: the caller may be the last one then, and close the devices below.
                    drop(device);
                    let _ = flushed.send((index, done)); // nobody waits any more
                };
                let starting = |error| NvmfError::os("starting a flush", &error);
                outcome =
                    outcome.and(thread::spawn("nvmf-flush", flush).map(drop).map_err(starting));
            }
        }
        drop(flushed);
        let mut unflushed: Vec<_> = devices.iter().map(|one| Some(one.name())).collect();
        let left = || end.since(self.shared.clock.now());
        while let Ok((index, done)) = outcomes.recv_timeout(left()) {
            unflushed[index] = None;
            outcome = outcome.and(done.map_err(NvmfError::from));
        }
        match unflushed.into_iter().flatten().next() {
            Some(device) => outcome.and(Err(hang(device))),
            None => outcome,
        }
    }

    fn stop(&mut self) -> Result<(), NvmfError> {
        self.shared.stop();
        let mut outcome = Ok(());
        loop {
            let Some(worker) = self.shared.threads.lock().pop() else { break };
            let said = |panic: Box<_>| NvmfError::Panicked { message: thread::said(&*panic) };
            outcome = outcome.and(worker.join().map_err(said));
        }
        let untold = self.shared.take_panics().into_iter().next();
        outcome.and(untold.map_or(Ok(()), |message| Err(NvmfError::Panicked { message })))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.stop(); // a worker that panicked has said so
    }
}
