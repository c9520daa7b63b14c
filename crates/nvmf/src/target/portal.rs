//! Portals: the addresses that hosts connect to. One has its number for good; one that is closed leaves a gap.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use esker_base::sync::{Mutex, RwLock};

use super::config::PortalConfig;
use crate::wire::log::AnaState;

/// An address that hosts connect to.
pub(crate) struct Portal {
    pub(crate) listen: SocketAddr,
    /// The address that the configuration says: port 0 is any that is free.
    pub(crate) asked: SocketAddr,
    announce: Mutex<Option<SocketAddr>>,
    /// Whether connections through it are encrypted.
    pub(crate) tls: bool,
    ana: AtomicU8,
    /// How often the ANA state changed.
    pub(crate) ana_changes: AtomicU64,
    is_closed: AtomicBool,
}

impl Portal {
    pub(crate) fn new(listen: SocketAddr, config: &PortalConfig) -> Portal {
        Portal {
            listen,
            asked: config.listen,
            announce: Mutex::new(config.announce),
            tls: config.tls,
            ana: AtomicU8::new(config.ana as u8),
            ana_changes: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// The address that discovery announces, where it is another one.
    pub(crate) fn announce(&self) -> Option<SocketAddr> {
        *self.announce.lock()
    }

    /// Announces another address; says whether it is one.
    pub(crate) fn set_announce(&self, announce: Option<SocketAddr>) -> bool {
        std::mem::replace(&mut *self.announce.lock(), announce) != announce
    }

    /// The address that a host is told which reached this target at `reached`: of a portal that listens on every
    /// address that one, if it is of the portal's kind.
    pub(crate) fn announced(&self, reached: Option<IpAddr>) -> Option<SocketAddr> {
        let announce = self.announce();
        if announce.is_some() || !self.listen.ip().is_unspecified() {
            return Some(announce.unwrap_or(self.listen));
        }
        // A socket of IPv6 for every address takes connections of IPv4, too.
        let reached = reached?.to_canonical();
        let is_its_kind = self.listen.is_ipv6() || reached.is_ipv4();
        is_its_kind.then(|| SocketAddr::new(reached, self.listen.port()))
    }

    pub(crate) fn ana(&self) -> AnaState {
        AnaState::from_u8(self.ana.load(Ordering::Relaxed)).unwrap_or_default()
    }

    pub(crate) fn set_ana(&self, state: AnaState) -> bool {
        let changes = self.ana.swap(state as u8, Ordering::Relaxed) != state as u8;
        if changes {
            self.ana_changes.fetch_add(1, Ordering::Relaxed);
        }
        changes
    }

    /// Whether it takes no connections any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }
}

/// All portals that there ever were, by their numbers.
pub(crate) struct Portals(RwLock<Vec<Arc<Portal>>>);

impl Portals {
    pub(crate) fn new(portals: Vec<Portal>) -> Portals {
        Portals(RwLock::new(portals.into_iter().map(Arc::new).collect()))
    }

    /// One that there is, or was.
    pub(crate) fn get(&self, portal: usize) -> Option<Arc<Portal>> {
        self.0.read().get(portal).cloned()
    }

    /// Those that are open, with their numbers.
    pub(crate) fn open(&self) -> Vec<(usize, Arc<Portal>)> {
        let all = self.0.read();
        let open = all.iter().cloned().enumerate();
        open.filter(|(_, portal)| !portal.is_closed()).collect()
    }

    /// All, closed ones included.
    pub(crate) fn all(&self) -> Vec<Arc<Portal>> {
        self.0.read().clone()
    }

    /// Enters one more, and returns its number.
    pub(crate) fn enter(&self, portal: Portal) -> usize {
        let mut all = self.0.write();
        all.push(Arc::new(portal));
        all.len() - 1
    }
}
