//! A controller: the association of one host with a subsystem (or the discovery service) through one portal.
//!
//! Invariants
//! 1. A controller lives as long as its admin connection. When that ends, its I/O connections are
//!    closed; until the last of them has ended, `queues` is not zero. None is entered afterwards.
//! 2. An event of a kind is sent once, and then not again until the host has read its log page.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use esker_base::Nanos;
use esker_base::clock::unix_time;
use esker_base::sync::Mutex;

use super::config::HostConfig;
use super::ids::{AbortId, Address};
use super::portal::Portal;
use super::reservation::{Claimant, HostId, NO_HOST_ID};
use super::subsystem::Subsystem;
use crate::conn::Slot;
use crate::wire::fabrics::{CC_EN, CC_SHN, CSTS_RDY, CSTS_SHUTDOWN_COMPLETE};
use crate::wire::identify::{OAES_ANA, OAES_DISCOVERY, OAES_NAMESPACE};
use crate::wire::log::event;

/// Abort commands of one controller at once.
pub(crate) const ABORTS: u8 = 4;
/// Entries of the error log.
pub(crate) const ERROR_ENTRIES: usize = 64;
/// Asynchronous Event Requests of one controller, 0's based.
pub(crate) const AERL: u8 = 3;
/// Granularity of keep alive timeouts, in units of 100 ms.
pub(crate) const KAS: u16 = 10;

/// Names of the host at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) nqn: String,
    pub(crate) id: HostId,
}

/// The addresses of a connection, as far as the system tells them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    /// The one of this machine that the host connected to.
    pub(crate) reached: Option<IpAddr>,
    /// The host's.
    pub(crate) from: Option<SocketAddr>,
}

/// A controller.
pub(crate) struct Controller {
    pub(crate) id: u16,
    /// Which of all that there ever were: an id comes again.
    number: u64,
    pub(crate) host: Host,
    /// `None`: the discovery service.
    pub(crate) subsystem: Option<Arc<Subsystem>>,
    /// The credentials that the host has to prove, if any.
    pub(crate) credentials: Option<HostConfig>,
    pub(crate) portal: usize,
    /// The portal itself.
    pub(crate) through: Arc<Portal>,
    /// The addresses of its admin connection.
    pub(crate) ends: Ends,
    /// When the host connected, since 1970.
    pub(crate) since: Duration,
    /// The worker and connection of the admin queue.
    pub(crate) admin: Address,
    /// I/O connections that have not ended.
    pub(crate) queues: AtomicUsize,
    /// The admin connection has ended, or is about to.
    is_gone: AtomicBool,
    /// Keep alive timeout in milliseconds, 0 without.
    keep_alive_ms: AtomicU32,
    /// When the host was last heard, in nanoseconds of the target's clock.
    last_heard: AtomicU64,
    pub(crate) state: Mutex<State>,
}

/// State that admin commands change.
#[derive(Debug, Default)]
pub(crate) struct State {
    cc: u32,
    /// I/O queues granted with Set Features.
    pub(crate) io_queues: u16,
    /// The I/O queues connected: number and where.
    pub(crate) connected: BTreeMap<u16, Address>,
    /// Event configuration, as set by the host.
    pub(crate) event_mask: u32,
    /// Asynchronous Event Requests that wait: slots of the admin connection, and command ids.
    pub(crate) requests: VecDeque<(u16, u16)>,
    /// Abort commands that were not answered yet.
    pub(crate) aborts: BTreeMap<AbortId, Slot>,
    /// How many there were.
    pub(crate) abort_count: u64,
    /// Events to be sent.
    pending: BTreeSet<u32>,
    /// Events sent, whose log page was not read yet.
    unread: BTreeSet<u32>,
    /// Namespaces that changed since log page 04h was read.
    pub(crate) changed: BTreeSet<u32>,
    /// Errors so far.
    pub(crate) errors: u64,
    /// The latest errors, newest first.
    pub(crate) error_log: VecDeque<crate::wire::log::ErrorEntry>,
}

/// Why an I/O queue is not entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotEntered {
    /// So many queues were not granted.
    Number,
    /// The controller is not ready, or about to go, or has the queue.
    Sequence,
}

impl Controller {
    pub(crate) fn new(
        (id, number): (u16, u64),
        host: Host,
        subsystem: Option<Arc<Subsystem>>,
        credentials: Option<HostConfig>,
        ((portal, through), ends, admin): ((usize, Arc<Portal>), Ends, Address),
    ) -> Controller {
        Controller {
            id,
            number,
            host,
            subsystem,
            credentials,
            portal,
            through,
            ends,
            since: unix_time(),
            admin,
            queues: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
            keep_alive_ms: AtomicU32::new(0),
            last_heard: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Its admin connection has ended, or is about to.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    pub(crate) fn is_discovery(&self) -> bool {
        self.subsystem.is_none()
    }

    /// Takes note that the host is alive.
    pub(crate) fn heard(&self, now: Nanos) {
        self.last_heard.store(now.0, Ordering::Relaxed);
    }

    /// Sets the keep alive timeout: the host's value in milliseconds, rounded up to the granularity
    /// (Base 2.1, 3.9). The transport limits it neither way (TCP 1.1, 3.5); 0 is none.
    pub(crate) fn set_keep_alive(&self, asked_ms: u32) {
        let granularity = u32::from(KAS) * 100;
        let rounded = asked_ms.checked_next_multiple_of(granularity).unwrap_or(asked_ms);
        self.keep_alive_ms.store(rounded, Ordering::Relaxed);
    }

    /// The keep alive timeout in milliseconds, 0 without.
    pub(crate) fn keep_alive_ms(&self) -> u32 {
        self.keep_alive_ms.load(Ordering::Relaxed)
    }

    /// Whether the host was silent for longer than its keep alive timeout, and the grace of half
    /// of it. Discovery is over soon: a host that wants to stay there asks for keep alive (Base 2.1,
    /// 3.1.3.3), and without has `discovery`.
    pub(crate) fn is_silent(&self, now: Nanos, discovery: Duration) -> bool {
        let timeout = match self.keep_alive_ms() {
            0 if self.is_discovery() => discovery,
            0 => return false,
            ms => Duration::from_millis(u64::from(ms) + u64::from(ms) / 2),
        };
        now.since(Nanos(self.last_heard.load(Ordering::Relaxed))) > timeout
    }

    /// CC.
    pub(crate) fn configuration(&self) -> u32 {
        self.state.lock().cc
    }

    /// CSTS.
    pub(crate) fn status(&self) -> u32 {
        let cc = self.configuration();
        let has_queues = self.queues.load(Ordering::Acquire) > 0;
        let is_ready = cc & CC_EN != 0 || has_queues;
        let is_shut_down = cc & CC_SHN != 0 && !has_queues;
        (if is_ready { CSTS_RDY } else { 0 })
            | (if is_shut_down { CSTS_SHUTDOWN_COMPLETE } else { 0 })
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.configuration() & (CC_EN | CC_SHN) == CC_EN
    }

    /// Sets CC. The I/O connections end when the controller is disabled or shut down. Disabling resets it
    /// (Base 2.1, 3.7.2): no command that came before is answered afterwards, and the host's settings are gone.
    pub(crate) fn configure(&self, cc: u32) -> Ended {
        let mut state = self.state.lock();
        let was_enabled = state.cc & CC_EN != 0;
        state.cc = cc;
        let mut ended = Ended::default();
        if cc & CC_EN == 0 && was_enabled || cc & CC_SHN != 0 {
            ended.queues = std::mem::take(&mut state.connected).into_values().collect();
        }
        if cc & CC_EN == 0 {
            state.event_mask = 0;
            state.io_queues = 0;
            state.pending.clear();
            state.unread.clear();
            state.changed.clear();
            let requests = std::mem::take(&mut state.requests);
            let aborts = std::mem::take(&mut state.aborts);
            ended.commands = requests.into_iter().map(|(slot, _)| Slot(slot)).collect();
            ended.commands.extend(aborts.into_values());
        }
        ended
    }

    /// Enters an I/O queue that connects.
    pub(crate) fn enter(&self, qid: u16, at: Address) -> Result<(), NotEntered> {
        let mut state = self.state.lock();
        // The thread that ends the controller says so first and then takes those that are entered.
        let is_ready =
            state.cc & (CC_EN | CC_SHN) == CC_EN && !self.is_gone.load(Ordering::Acquire);
        if !is_ready {
            return Err(NotEntered::Sequence);
        }
        if qid > state.io_queues {
            return Err(NotEntered::Number);
        }
        if state.connected.contains_key(&qid) {
            return Err(NotEntered::Sequence);
        }
        state.connected.insert(qid, at);
        self.queues.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The connection of an I/O queue has ended. Another may have been entered in its place.
    pub(crate) fn leave(&self, qid: u16, at: Address) {
        let mut state = self.state.lock();
        if state.connected.get(&qid) == Some(&at) {
            state.connected.remove(&qid);
        }
        self.queues.fetch_sub(1, Ordering::AcqRel);
    }

    /// The controller goes. Returns the I/O connections to close.
    pub(crate) fn end(&self) -> Vec<Address> {
        self.is_gone.store(true, Ordering::Release);
        std::mem::take(&mut self.state.lock().connected).into_values().collect()
    }

    /// An event happened. Returns whether the admin connection has to look.
    pub(crate) fn raise(&self, event: u32) -> bool {
        let mut state = self.state.lock();
        if state.event_mask & enabling(event) == 0 {
            return false;
        }
        state.pending.insert(event)
    }

    /// A namespace changed.
    pub(crate) fn namespace_changed(&self, nsid: u32) -> bool {
        self.state.lock().changed.insert(nsid);
        self.raise(event::NAMESPACE)
    }

    /// An event to send and the slot of the request it answers, if both are there.
    pub(crate) fn next_event(&self) -> Option<(u16, u32)> {
        let mut state = self.state.lock();
        let event = *state.pending.iter().find(|event| !state.unread.contains(event))?;
        let (slot, _) = state.requests.pop_front()?;
        state.pending.remove(&event);
        state.unread.insert(event);
        Some((slot, event))
    }

    /// The host has read a log page: events about it may be sent again. Events since the page was
    /// made are kept.
    pub(crate) fn log_was_read(&self, read: &LogRead) {
        let mut state = self.state.lock();
        state.unread.retain(|event| event.to_le_bytes()[2] != read.lid);
        state.changed.retain(|nsid| !read.changed.contains(nsid));
    }

    /// Whose reservations its host's are. Two controllers whose hosts both have the identifier 0 have two hosts
    /// (Base 2.1, 5.1.25.1.28).
    pub(crate) fn claimant(&self) -> Claimant {
        match self.host.id {
            NO_HOST_ID => Claimant::Controller(self.number),
            id => Claimant::Host(id),
        }
    }

    /// Ends the reservations of a host without an identifier when its controller was reset or has gone.
    pub(crate) fn forget_reservations(&self) {
        if self.configuration() & CC_EN != 0 && !self.is_gone.load(Ordering::Acquire) {
            return;
        }
        if let (claimant @ Claimant::Controller(_), Some(subsystem)) =
            (self.claimant(), &self.subsystem)
        {
            subsystem.namespaces().iter().for_each(|one| one.reservations.forget(claimant));
        }
    }
}

/// Log page that a host has read.
#[derive(Debug)]
pub(crate) struct LogRead {
    pub(crate) lid: u8,
    /// The namespaces that the page said have changed.
    pub(crate) changed: BTreeSet<u32>,
}

/// Connections and commands that setting CC ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The I/O connections to close.
    pub(crate) queues: Vec<Address>,
    /// Commands of the admin queue that nobody answers any more: event requests and Aborts.
    pub(crate) commands: Vec<Slot>,
}

/// The bit of the event configuration that enables an event.
fn enabling(event: u32) -> u32 {
    match event {
        event::NAMESPACE => OAES_NAMESPACE,
        event::ANA => OAES_ANA,
        event::DISCOVERY => OAES_DISCOVERY,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::config::PortalConfig;
    use crate::target::ids::Visitor;

    fn controller() -> Controller {
        let host = Host { nqn: "nqn.2026-01.io.esker:host".to_owned(), id: [1; 16] };
        let admin = Address { worker: 0, connection: 0, visitor: Visitor::default() };
        let at = "127.0.0.1:4420".parse().unwrap();
        let through = (0, Arc::new(Portal::new(at, &PortalConfig::new(at))));
        let controller =
            Controller::new((1, 1), host, None, None, (through, Ends::default(), admin));
        controller.configure(CC_EN);
        controller.state.lock().io_queues = 2;
        controller
    }

    #[test]
    fn no_queue_is_entered_once_those_that_are_were_told_to_end() {
        let one = controller();
        let at = Address { worker: 1, connection: 5, visitor: Visitor::default() };
        assert_eq!(one.enter(1, at), Ok(()));
        assert_eq!(one.enter(1, at), Err(NotEntered::Sequence));
        assert_eq!(one.enter(3, at), Err(NotEntered::Number));
        assert_eq!(one.configure(0).queues, [at]);
        assert_eq!(one.enter(2, at), Err(NotEntered::Sequence), "it is disabled");
        one.configure(CC_EN);
        assert_eq!(one.enter(2, at), Err(NotEntered::Number), "queues are asked for again");
        one.state.lock().io_queues = 2;
        assert_eq!(one.enter(2, at), Ok(()));
        assert_eq!(one.end(), [at]);
        assert_eq!(one.enter(1, at), Err(NotEntered::Sequence), "it goes");
        assert_eq!(one.queues.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_queue_that_leaves_late_takes_no_other_with_it() {
        let one = controller();
        let (before, after) = (
            Address { worker: 0, connection: 5, visitor: Visitor::default() },
            Address { worker: 1, connection: 5, visitor: Visitor::default() },
        );
        one.enter(1, before).unwrap();
        one.configure(0);
        one.configure(CC_EN);
        one.state.lock().io_queues = 2;
        one.enter(1, after).unwrap();
        one.leave(1, before);
        assert_eq!(one.end(), [after]);
    }
}
