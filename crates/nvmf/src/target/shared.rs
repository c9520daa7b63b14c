//! State that the workers of a target share.

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use esker_base::Clock;
use esker_base::sync::{Mutex, RwLock};

use super::config::Limits;
use super::controller::Controller;
use super::controller_ids::ControllerIds;
use super::ids::{AbortId, Address, Visitor};
use super::limits::admission::Admission;
use super::metrics::{self, Registry};
use super::portal::Portals;
use super::reservation::Store;
use super::subsystem::Subsystem;
use crate::socket::Waker;
use crate::stream::Stream;
use crate::wire::log::{AnaState, event};

/// Messages of panics that are kept until they are asked for.
const MOST_PANICS: usize = 16;

/// A message to one worker. One for a connection that is gone finds nobody, whoever has its place.
pub(crate) enum WorkerMessage {
    /// A new connection, through a portal.
    Connection(TcpStream, usize, Visitor),
    /// A connection is to be closed.
    Close(Address),
    /// A command of an I/O connection is to be aborted; `asked` is the Abort.
    Abort { at: Address, controller: Arc<Controller>, cid: u16, asked: AbortId },
    /// The answer to an Abort: whether the command was aborted.
    Aborted { at: Address, asked: AbortId, is_done: bool },
    /// A portal is to take connections.
    OpenPortal(usize, TcpListener),
    /// A portal is to be closed, with its connections.
    ClosePortal(usize),
    /// The commands under way through a portal are to be counted.
    Count(usize, mpsc::Sender<usize>),
    /// The controller of an admin connection may have events to send.
    Events(Address),
}

/// Where a worker is told.
pub(crate) struct Mailbox {
    pub(crate) messages: Mutex<VecDeque<WorkerMessage>>,
    pub(crate) waker: Waker,
    /// Connections that the worker has, or is about to have.
    pub(crate) load: AtomicUsize,
}

/// State that the workers share.
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    pub(crate) portals: Portals,
    pub(crate) referrals: RwLock<Vec<SocketAddr>>,
    /// Where reservations persist.
    pub(crate) store: Option<Arc<Store>>,
    pub(crate) subsystems: RwLock<Vec<Arc<Subsystem>>>,
    pub(crate) controllers: Mutex<BTreeMap<u16, Arc<Controller>>>,
    pub(crate) mailboxes: Vec<Mailbox>,
    /// Connections by host NQN, of hosts that have any.
    by_host: Mutex<BTreeMap<String, usize>>,
    /// Changes with the content of the discovery log.
    pub(crate) generation: AtomicU64,
    pub(crate) metrics: Registry,
    pub(crate) admission: Admission,
    pub(crate) is_stopped: AtomicBool,
    /// The workers, those included that a panic has ended and that still wait for devices.
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    /// Panics that nobody has asked for yet.
    panics: Mutex<Vec<String>>,
    /// Devices that had not ended their commands when the target was closed.
    pub(crate) hung: Mutex<Vec<String>>,
    controller_ids: Mutex<ControllerIds>,
    /// Controllers that there ever were.
    admitted: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        limits: Limits,
        portals: Portals,
        referrals: Vec<SocketAddr>,
        store: Option<Arc<Store>>,
        subsystems: Vec<Arc<Subsystem>>,
        mailboxes: Vec<Mailbox>,
        controller_ids: ControllerIds,
    ) -> Shared {
        let admission = Admission::new(limits.connections);
        Shared {
            limits,
            clock: Clock::real(),
            portals,
            referrals: RwLock::new(referrals),
            store,
            subsystems: RwLock::new(subsystems),
            controllers: Mutex::default(),
            mailboxes,
            by_host: Mutex::default(),
            generation: AtomicU64::new(1),
            metrics: Registry::default(),
            admission,
            is_stopped: AtomicBool::new(false),
            threads: Mutex::default(),
            panics: Mutex::default(),
            hung: Mutex::default(),
            controller_ids: Mutex::new(controller_ids),
            admitted: AtomicU64::new(0),
        }
    }

    /// Tells all workers to end.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.mailboxes.iter().for_each(|mailbox| mailbox.waker.wake());
    }

    /// A thread has panicked.
    pub(crate) fn panicked(&self, message: String) {
        metrics::count(&self.metrics.panics);
        self.metrics.closed(message.clone());
        let mut panics = self.panics.lock();
        if panics.len() < MOST_PANICS {
            panics.push(message);
        }
    }

    /// Takes the messages of panics.
    pub(crate) fn take_panics(&self) -> Vec<String> {
        std::mem::take(&mut *self.panics.lock())
    }

    pub(crate) fn tell(&self, worker: usize, message: WorkerMessage) {
        let mailbox = &self.mailboxes[worker];
        mailbox.messages.lock().push_back(message);
        mailbox.waker.wake();
    }

    pub(crate) fn close(&self, at: Address) {
        self.tell(at.worker, WorkerMessage::Close(at));
    }

    /// Tells the worker of the admin queue the outcome of an Abort.
    pub(crate) fn answer_abort(&self, controller: &Controller, asked: AbortId, is_done: bool) {
        let at = controller.admin;
        self.tell(at.worker, WorkerMessage::Aborted { at, asked, is_done });
    }

    pub(crate) fn subsystem(&self, nqn: &str) -> Option<Arc<Subsystem>> {
        self.subsystems.read().iter().find(|one| one.nqn == nqn).cloned()
    }

    /// The stream of a connection through a portal.
    #[cfg(feature = "tls")]
    pub(crate) fn stream(self: &Arc<Shared>, tcp: TcpStream, portal: usize) -> Option<Stream> {
        if !self.portals.get(portal)?.tls {
            return Some(Stream::Plain(tcp));
        }
        let shared = self.clone();
        let find = Box::new(move |identity: &str| shared.psk(identity));
        let session = crate::tls::session::Session::server(tcp, find).ok()?;
        Some(Stream::Tls(Box::new(session)))
    }

    /// The stream of a connection through a portal: all are plain in this build.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn stream(self: &Arc<Shared>, tcp: TcpStream, _: usize) -> Option<Stream> {
        Some(Stream::Plain(tcp))
    }

    /// The PSK with an identity: of the subsystem that it names, or of any that the host may use
    /// when that is the discovery service.
    #[cfg(feature = "tls")]
    fn psk(&self, identity: &str) -> Option<crate::tls::key::Psk> {
        let names = crate::tls::key::names_of(identity)?;
        let is_discovery = names.subsystem == crate::wire::fabrics::DISCOVERY_NQN;
        let subsystems = self.subsystems.read();
        let mut chosen = subsystems.iter().filter(|one| is_discovery || one.nqn == names.subsystem);
        chosen.find_map(|one| one.admits(&names.host)??.tls_key?.find(identity, &names))
    }

    /// Whether the host of a controller may have it, as things are now.
    pub(crate) fn is_admitted(&self, controller: &Controller) -> bool {
        let Some(subsystem) = &controller.subsystem else { return true };
        let is_served = self.subsystems.read().iter().any(|one| Arc::ptr_eq(one, subsystem));
        is_served
            && subsystem.is_at(&controller.through)
            && subsystem.admits(&controller.host.nqn).is_some()
    }

    /// Whether a subsystem names the host.
    pub(crate) fn is_listed(&self, host: &str) -> bool {
        self.subsystems.read().iter().any(|one| one.lists(host))
    }

    /// Closes the controllers whose hosts may not have them any more.
    pub(crate) fn expel(&self) {
        let controllers: Vec<_> = self.controllers.lock().values().cloned().collect();
        for controller in controllers {
            if !self.is_admitted(&controller) {
                self.close(controller.admin);
            }
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.mailboxes.iter().map(|one| one.load.load(Ordering::Relaxed)).sum()
    }

    /// Counts one connection more of a host, if it may have one more.
    pub(crate) fn enter_host(&self, nqn: &str) -> bool {
        let mut by_host = self.by_host.lock();
        let count = by_host.get(nqn).copied().unwrap_or(0);
        let may_enter = count < self.limits.connections_per_host;
        if may_enter {
            by_host.insert(nqn.to_owned(), count + 1);
        }
        may_enter
    }

    /// Counts one connection less of a host.
    pub(crate) fn leave_host(&self, nqn: &str) {
        let mut by_host = self.by_host.lock();
        if let Some(count) = by_host.get_mut(nqn) {
            *count -= 1;
            if *count == 0 {
                by_host.remove(nqn);
            }
        }
    }

    /// Enters a controller under a free id; `None` when there are too many.
    pub(crate) fn admit(
        &self,
        make: impl FnOnce((u16, u64)) -> Controller,
    ) -> Option<Arc<Controller>> {
        let mut controllers = self.controllers.lock();
        let id = self.controller_ids.lock().next(&controllers)?;
        let number = self.admitted.fetch_add(1, Ordering::Relaxed) + 1;
        let controller = Arc::new(make((id, number)));
        controllers.insert(id, controller.clone());
        Some(controller)
    }

    /// Has the admin connection of a controller send the events that there are.
    pub(crate) fn look_for_events(&self, controller: &Controller) {
        self.tell(controller.admin.worker, WorkerMessage::Events(controller.admin));
    }

    fn each_controller(&self, raise: impl Fn(&Controller) -> bool) {
        let controllers: Vec<_> = self.controllers.lock().values().cloned().collect();
        for controller in controllers {
            if raise(&controller) {
                self.look_for_events(&controller);
            }
        }
    }

    /// Tells the hosts of a subsystem that a namespace changed.
    pub(crate) fn namespace_changed(&self, subsystem: &Arc<Subsystem>, nsid: u32) {
        self.each_controller(|controller| {
            let is_its =
                controller.subsystem.as_ref().is_some_and(|one| Arc::ptr_eq(one, subsystem));
            is_its && controller.namespace_changed(nsid)
        });
    }

    /// Looks at the sizes of all namespaces, and tells hosts of those that changed.
    pub(crate) fn refresh(&self) {
        let subsystems = self.subsystems.read().clone();
        for subsystem in &subsystems {
            for nsid in subsystem.refresh() {
                self.namespace_changed(subsystem, nsid);
            }
        }
    }

    /// Sets the ANA state of a portal, and tells the hosts connected through it.
    pub(crate) fn set_ana(&self, portal: usize, state: AnaState) {
        let changes = self.portals.get(portal).is_some_and(|one| one.set_ana(state));
        if changes {
            self.each_controller(|one| {
                one.portal == portal && !one.is_discovery() && one.raise(event::ANA)
            });
        }
    }

    /// Tells hosts that watch the discovery service that it has something else to say.
    pub(crate) fn discovery_changed(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.each_controller(|one| one.is_discovery() && one.raise(event::DISCOVERY));
    }
}
