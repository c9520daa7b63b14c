//! Portals of a target that runs: those that come and go, and the commands under way through one.
//!
//! Invariant: everything that can be refused is refused before anything changes. So other addresses are bound first,
//! and put into force then.

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::time::Duration;

use esker_base::ErrorKind;

use super::Target;
use crate::error::NvmfError;
use crate::target::config::PortalConfig;
use crate::target::portal::Portal;
use crate::target::shared::WorkerMessage;
use crate::wire::log::AnaState;

/// The longest wait for a worker that is asked something.
const ASKING: Duration = Duration::from_secs(1);

/// A portal of a target that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortalState {
    /// Its number, which no other portal ever gets.
    pub portal: usize,
    /// Where it listens.
    pub listen: SocketAddr,
    /// The address that discovery announces, where it is another one.
    pub announce: Option<SocketAddr>,
    /// Whether connections through it are encrypted.
    pub tls: bool,
    /// How well namespaces are reached through it.
    pub ana: AnaState,
}

/// Portals that are to be in force, whose addresses are bound.
pub(super) struct BoundPortals(Vec<Bound>);

/// A portal that stays, or an address that is new.
enum Bound {
    Stays(usize, PortalConfig),
    New(TcpListener, SocketAddr, PortalConfig),
}

impl Target {
    /// Its portals, in the order of their numbers.
    #[must_use]
    pub fn portals(&self) -> Vec<PortalState> {
        let state = |(portal, one): (usize, std::sync::Arc<Portal>)| PortalState {
            portal,
            listen: one.listen,
            announce: one.announce(),
            tls: one.tls,
            ana: one.ana(),
        };
        self.shared.portals.open().into_iter().map(state).collect()
    }

    /// Binds the addresses that these portals have and the target has not. Portals with the same address and the same
    /// encryption stay; nothing has changed yet.
    ///
    /// # Errors
    /// When the operating system refuses an address.
    pub(super) fn bind(&self, portals: &[PortalConfig]) -> Result<BoundPortals, NvmfError> {
        let mut open = self.shared.portals.open();
        let mut stays = vec![None; portals.len()];
        // Those by their address go before those by the one that was asked for, which may be any free port.
        for address in [|one: &Portal| one.listen, |one: &Portal| one.asked] {
            for (wanted, stays) in portals.iter().zip(&mut stays).filter(|(_, it)| it.is_none()) {
                let is_it = |one: &Portal| one.tls == wanted.tls && address(one) == wanted.listen;
                let found = open.iter().position(|(_, one)| is_it(one));
                *stays = found.map(|at| open.remove(at).0);
            }
        }
        let bound = portals.iter().zip(stays).map(|(wanted, stays)| {
            if let Some(portal) = stays {
                return Ok(Bound::Stays(portal, wanted.clone()));
            }
            let refused = |error: std::io::Error| NvmfError::Os {
                what: format!("listening on {}", wanted.listen),
                kind: ErrorKind::Conflict,
                message: format!("{error}; name another address"),
            };
            let listener = TcpListener::bind(wanted.listen).map_err(refused)?;
            let listen = listener.local_addr().map_err(refused)?;
            Ok(Bound::New(listener, listen, wanted.clone()))
        });
        bound.collect::<Result<_, NvmfError>>().map(BoundPortals)
    }

    /// Puts portals into force: new ones take connections, those through portals that are gone are closed, and hosts are
    /// told of ANA states and addresses. Returns the number of each.
    pub(super) fn put_portals(&self, BoundPortals(bound): BoundPortals) -> Vec<usize> {
        let shared = &self.shared;
        let before = shared.portals.open();
        let (mut numbers, mut is_other) = (Vec::new(), false);
        for one in bound {
            numbers.push(match one {
                Bound::Stays(number, config) => {
                    let portal = shared.portals.get(number).expect("one that was open");
                    is_other |= portal.set_announce(config.announce);
                    shared.set_ana(number, config.ana);
                    number
                }
                Bound::New(listener, listen, config) => {
                    let number = shared.portals.enter(Portal::new(listen, &config));
                    shared.tell(0, WorkerMessage::OpenPortal(number, listener));
                    is_other = true;
                    number
                }
            });
        }
        for (number, _) in before.into_iter().filter(|(number, _)| !numbers.contains(number)) {
            self.shut(number);
            is_other = true;
        }
        if is_other {
            shared.discovery_changed();
        }
        numbers
    }

    /// Sets how well the namespaces are reached through a portal; hosts are told.
    ///
    /// # Errors
    /// When there is no such portal.
    pub fn set_ana(&self, portal: usize, state: AnaState) -> Result<(), NvmfError> {
        self.check_portal(portal)?;
        self.shared.set_ana(portal, state);
        Ok(())
    }

    /// Closes a portal for good, with its connections: hosts go on through another.
    ///
    /// # Errors
    /// When there is no such portal.
    pub fn close_portal(&self, portal: usize) -> Result<(), NvmfError> {
        self.check_portal(portal)?;
        self.shut(portal);
        Ok(())
    }

    /// Commands of hosts that are under way through a portal: devices have them, or will get them. `None` when a worker
    /// does not say so in time.
    #[must_use]
    pub fn commands_through(&self, portal: usize) -> Option<usize> {
        let (count, counted) = mpsc::channel();
        let workers = self.shared.mailboxes.len();
        for worker in 0..workers {
            self.shared.tell(worker, WorkerMessage::Count(portal, count.clone()));
        }
        (0..workers).map(|_| counted.recv_timeout(ASKING).ok()).sum()
    }

    fn shut(&self, number: usize) {
        if let Some(portal) = self.shared.portals.get(number) {
            portal.close();
        }
        for worker in 0..self.shared.mailboxes.len() {
            self.shared.tell(worker, WorkerMessage::ClosePortal(number));
        }
    }

    fn check_portal(&self, portal: usize) -> Result<(), NvmfError> {
        let count = self.shared.portals.all().len();
        if portal < count {
            return Ok(());
        }
        Err(NvmfError::Config(format!("there is no portal {portal}, only {count}")))
    }
}
