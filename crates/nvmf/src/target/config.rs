//! Configuration of a target: the devices it serves, their hosts, and its limits on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker_base::pace::Rate;
use esker_device::Device;

use crate::auth::Secret;
use crate::error::NvmfError;
use crate::tls::TlsKey;
use crate::wire::fabrics::DISCOVERY_NQN;
use crate::wire::log::AnaState;
use crate::wire::nqn;

/// Everything about a target.
#[derive(Clone, Default)]
pub struct TargetConfig {
    /// Where hosts reach it.
    pub portals: Vec<PortalConfig>,
    /// The subsystems that they find there.
    pub subsystems: Vec<SubsystemConfig>,
    /// Other discovery services, which the discovery log refers to.
    pub referrals: Vec<SocketAddr>,
    /// The file in which reservations persist where hosts ask for it; it is made if it is not
    /// there. One target at a time may use it.
    pub reservations: Option<PathBuf>,
    /// The ids of its controllers, from 1 to [`CONTROLLER_ID_MAX`]. Targets that serve one subsystem have
    /// other ones each, because hosts refuse a second controller with the id of a first. Without a range,
    /// one is derived from the machine and the addresses listened on.
    pub controller_ids: Option<RangeInclusive<u16>>,
    /// The resources it may use.
    pub limits: Limits,
}

/// An address that a target listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortalConfig {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address that the discovery log announces; without one, the address listened on, or the one at
    /// which a host has reached the target where that is every address.
    pub announce: Option<SocketAddr>,
    /// How well the namespaces are reached through it, to begin with.
    pub ana: AnaState,
    /// Whether connections through it are encrypted. Then no others are taken, and hosts without a
    /// key for TLS have no use for it; hosts with one have no use for a portal without.
    pub tls: bool,
}

impl PortalConfig {
    /// A portal that is announced under its own address, and optimized.
    #[must_use]
    pub fn new(listen: SocketAddr) -> PortalConfig {
        PortalConfig { listen, announce: None, ana: AnaState::Optimized, tls: false }
    }
}

/// A subsystem: namespaces, and the hosts that may use them.
#[derive(Clone)]
pub struct SubsystemConfig {
    /// Its NQN.
    pub nqn: String,
    /// Up to 20 characters; without one, derived from the NQN.
    pub serial: Option<String>,
    /// Up to 40 characters.
    pub model: String,
    /// The hosts that may connect.
    pub access: Access,
    /// Its namespaces.
    pub namespaces: Vec<NamespaceConfig>,
    /// The addresses of the portals through which hosts reach it; through each of them where none is named.
    pub listeners: Vec<SocketAddr>,
    /// How much all hosts together may have of a namespace, by its number; the others have no limit.
    pub rates: BTreeMap<u32, Rate>,
}

impl SubsystemConfig {
    /// A subsystem without namespaces, which nobody may use yet.
    #[must_use]
    pub fn new(nqn: &str) -> SubsystemConfig {
        SubsystemConfig {
            nqn: nqn.to_owned(),
            serial: None,
            model: "Esker".to_owned(),
            access: Access::Hosts(Vec::new()),
            namespaces: Vec::new(),
            listeners: Vec::new(),
            rates: BTreeMap::new(),
        }
    }
}

/// A namespace: a device under a number.
#[derive(Clone)]
pub struct NamespaceConfig {
    /// Its number, from 1 to [`NSID_MAX`].
    pub nsid: u32,
    /// The device. Hosts that cannot know that the target was started again, and lost their
    /// unflushed writes, need one without a volatile write cache: [`WriteThrough::over`].
    ///
    /// [`WriteThrough::over`]: esker_device::WriteThrough::over
    pub device: Arc<dyn Device>,
    /// Its UUID; without one, derived from the NQN of the subsystem and the number. Namespaces that
    /// are the same over several targets have the same.
    pub uuid: Option<[u8; 16]>,
}

/// The largest namespace id.
pub const NSID_MAX: u32 = 1024;

/// The largest controller id (Base 2.1, Figure 29).
pub const CONTROLLER_ID_MAX: u16 = 0xffef;

/// Hosts that may use a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Any host, without proof of its identity.
    Any,
    /// These hosts; to others the subsystem does not exist.
    Hosts(Vec<HostConfig>),
}

/// A host that may use a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Its NQN.
    pub nqn: String,
    /// With a secret, the host has to prove that it knows it (DH-HMAC-CHAP).
    pub secret: Option<Secret>,
    /// With a secret, the controller proves in turn that it knows this one, if asked.
    pub controller_secret: Option<Secret>,
    /// With a key for TLS, the host may connect encrypted, with this key, and not otherwise.
    pub tls_key: Option<TlsKey>,
}

impl HostConfig {
    /// A host that has to prove nothing.
    #[must_use]
    pub fn new(nqn: &str) -> HostConfig {
        let nqn = nqn.to_owned();
        HostConfig { nqn, secret: None, controller_secret: None, tls_key: None }
    }
}

/// Resources that a target may use, so that no host starves another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Event loops, each on a thread of its own. Connections are spread over them.
    pub workers: usize,
    /// Connections of all hosts together.
    pub connections: usize,
    /// Connections of one host, by host NQN.
    pub connections_per_host: usize,
    /// I/O queues of one controller.
    pub io_queues: u16,
    /// Entries of a queue: 32, which admin queues have, to 4,096.
    pub queue_entries: u16,
    /// Bytes of data in transfer, for all connections of a worker. A host may hold as much as is free,
    /// half of it when it is alone; an eighth is kept for small commands of hosts that hold little.
    pub data_bytes: usize,
    /// Bytes of data in transfer for one connection, of which commands of one namespace may have half;
    /// one command may go above it.
    pub data_bytes_per_connection: usize,
    /// The largest read or write in bytes: a power of two from 4,096 on. Devices that take less
    /// lower it.
    pub transfer_bytes: u32,
    /// The most bytes that hosts may send along with a write command: at most 65,536, a multiple
    /// of 16.
    pub in_capsule_bytes: u32,
    /// Longest time for a host to send data it was asked for, to end a PDU it began, or to take
    /// bytes sent to it. Its connection is closed then: others need the memory it holds.
    pub transfer: Duration,
    /// How long a device with commands may end none of them before their hosts are answered with errors. A
    /// device that is slow is waited for. Hosts give up after some time of their own: Linux after 30 s.
    pub command: Duration,
    /// How long devices are waited for when the target is closed.
    pub closing: Duration,
    /// How long a connection may take to send Connect.
    pub handshake: Duration,
    /// How long a discovery connection may be silent that wants no keep alive. Others have the timeout that
    /// their host asks for.
    pub discovery: Duration,
    /// How long a worker with nothing to do looks for work before it sleeps.
    pub spin: Duration,
    /// Commands in flight on one device, for each worker.
    pub device_depth: usize,
    /// Whether hosts may have digests.
    pub digests: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            workers: 1,
            connections: 1024,
            connections_per_host: 256,
            io_queues: 64,
            queue_entries: 128,
            data_bytes: 256 << 20,
            data_bytes_per_connection: 64 << 20,
            transfer_bytes: 1 << 20,
            in_capsule_bytes: 16 << 10,
            transfer: Duration::from_secs(15),
            command: Duration::from_secs(25),
            closing: Duration::from_secs(10),
            handshake: Duration::from_secs(5),
            discovery: Duration::from_secs(120),
            spin: Duration::from_micros(50),
            device_depth: 1024,
            digests: true,
        }
    }
}

/// Checks an NQN (Base 2.1, 4.7).
///
/// # Errors
/// A sentence that names the rule it breaks, with an example.
pub fn check_nqn(nqn: &str) -> Result<(), NvmfError> {
    nqn::check(nqn).map_err(|why| {
        let example = "write one like nqn.2026-01.io.example:disk1";
        NvmfError::Config(format!("{nqn:?} is not an NQN, because {why}: {example}"))
    })
}

impl SubsystemConfig {
    /// Checks everything that does not depend on other subsystems: names, and the room in Identify.
    pub(crate) fn check(&self) -> Result<(), NvmfError> {
        check_nqn(&self.nqn)?;
        let fits = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        };
        let serial = self.serial.as_deref().filter(|serial| !fits(serial, SERIAL_MAX));
        let model = Some(&*self.model).filter(|model| !fits(model, MODEL_MAX));
        for (what, text, most) in
            [("serial number", serial, SERIAL_MAX), ("model", model, MODEL_MAX)]
        {
            if let Some(text) = text {
                return Err(NvmfError::Config(format!(
                    "{}: {text:?} is no {what}: write 1 to {most} printable characters of ASCII",
                    self.nqn
                )));
            }
        }
        if let Access::Hosts(hosts) = &self.access {
            hosts.iter().try_for_each(|host| check_nqn(&host.nqn))?;
        }
        Ok(())
    }
}

/// Characters of a serial number, and of a model (Base 2.1, 5.1.13.2.1).
const SERIAL_MAX: usize = 20;
const MODEL_MAX: usize = 40;

impl TargetConfig {
    pub(crate) fn check(&self) -> Result<(), NvmfError> {
        let wrong = |text: String| Err(NvmfError::Config(text));
        if self.portals.is_empty() {
            return wrong("a target needs an address to listen on".to_owned());
        }
        #[cfg(not(feature = "tls"))]
        if self.portals.iter().any(|portal| portal.tls) {
            return wrong(crate::tls::NOT_BUILT.to_owned());
        }
        let limits = &self.limits;
        let is_good = limits.workers > 0
            && limits.io_queues > 0
            && (32..=4096).contains(&limits.queue_entries)
            && limits.transfer_bytes.is_power_of_two()
            && limits.transfer_bytes >= 4096
            && limits.in_capsule_bytes <= 65_536
            && limits.in_capsule_bytes.is_multiple_of(16)
            && limits.device_depth > 0
            && !limits.command.is_zero();
        if !is_good {
            return wrong(format!("a limit is out of range: {limits:?}"));
        }
        if let Some(ids) = &self.controller_ids
            && (ids.is_empty() || *ids.start() == 0 || *ids.end() > CONTROLLER_ID_MAX)
        {
            let (first, last) = ids.clone().into_inner();
            return wrong(format!(
                "controller ids {first} to {last}: a range has a first and a last one, from 1 to {CONTROLLER_ID_MAX}"
            ));
        }
        let mut nqns = BTreeSet::new();
        for subsystem in &self.subsystems {
            subsystem.check()?;
            if subsystem.nqn == DISCOVERY_NQN || !nqns.insert(&subsystem.nqn) {
                return wrong(format!("the NQN {} is taken", subsystem.nqn));
            }
        }
        Ok(())
    }
}
