//! Namespaces and hosts of a target that runs; hosts that are disconnected.

use std::net::SocketAddr;
use std::time::Duration;

use super::Target;
use crate::error::NvmfError;
use crate::target::refusals::Refusal;

/// A namespace that hosts have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedNamespace {
    /// Its number.
    pub nsid: u32,
    /// Its identity.
    pub uuid: [u8; 16],
    /// Bytes of an LBA.
    pub lba_size: u32,
    /// LBAs, as last told to hosts.
    pub capacity: u64,
    /// Whether it has a volatile write cache.
    pub volatile_write_cache: bool,
}

/// A host that is connected to a subsystem: a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectedHost {
    /// NQN of the host.
    pub host: String,
    /// NQN of the subsystem; none of the discovery service.
    pub subsystem: Option<String>,
    /// Id of the controller.
    pub controller: u16,
    /// Number of the portal that it came through.
    pub portal: usize,
    /// Its address, as far as it is known.
    pub address: Option<SocketAddr>,
    /// I/O queues that are connected.
    pub io_queues: usize,
    /// When it connected, since 1970.
    pub since: Duration,
}

impl Target {
    /// The namespaces of a subsystem, in the order of their numbers.
    ///
    /// # Errors
    /// When there is no such subsystem.
    pub fn namespaces(&self, nqn: &str) -> Result<Vec<ServedNamespace>, NvmfError> {
        let namespaces = self.subsystem(nqn)?.namespaces();
        let view = namespaces.iter().map(|one| ServedNamespace {
            nsid: one.nsid,
            uuid: one.uuid,
            lba_size: one.lba_size(),
            capacity: one.capacity(),
            volatile_write_cache: one.geometry().volatile_write_cache,
        });
        Ok(view.collect())
    }

    /// The hosts that are connected now, in the order in which they connected.
    #[must_use]
    pub fn connected(&self) -> Vec<ConnectedHost> {
        let controllers = self.shared.controllers.lock();
        let mut all: Vec<_> = controllers.values().filter(|one| !one.is_gone()).collect();
        all.sort_by_key(|one| one.since);
        let view = all.into_iter().map(|one| ConnectedHost {
            host: one.host.nqn.clone(),
            subsystem: one.subsystem.as_ref().map(|its| its.nqn.clone()),
            controller: one.id,
            portal: one.portal,
            address: one.ends.from,
            io_queues: one.queues.load(std::sync::atomic::Ordering::Relaxed),
            since: one.since,
        });
        view.collect()
    }

    /// Closes the connections of a host, to one subsystem or to all and to the discovery service. Commands that devices have
    /// are finished. A host that is still allowed connects again. Returns the number of controllers that go.
    pub fn disconnect(&self, host: &str, subsystem: Option<&str>) -> usize {
        let controllers: Vec<_> = self.shared.controllers.lock().values().cloned().collect();
        let is_its = |nqn: Option<&str>| subsystem.is_none() || nqn == subsystem;
        let gone = controllers.iter().filter(|one| {
            let its = one.subsystem.as_ref().map(|its| &*its.nqn);
            one.host.nqn == host && is_its(its) && !one.is_gone()
        });
        gone.map(|one| self.shared.close(one.admin)).count()
    }

    /// Hosts that were not let in, the latest first: at most [`MOST`](crate::target::refusals::MOST) rows.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        self.shared.metrics.refusals.list()
    }

    /// Takes the rows of [`refusals`](Target::refusals) that a person is to be told of: each once a minute at most.
    #[must_use]
    pub fn take_refusals(&self) -> Vec<Refusal> {
        self.shared.metrics.refusals.take(self.shared.clock.now())
    }
}
