//! Answers of a target.

#![allow(missing_docs)] // a comment on a field becomes its description in the description of all requests

use std::net::{IpAddr, SocketAddr};

use esker_nvmf::target::{ConnectedHost, Refusal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::file::{Ana, HostFile, WriteCache};

/// How long a change by a request lasts.
pub(crate) const LASTS: &str = "until the target ends or reads its configuration again (SIGHUP); GET /v1/config has the \
    configuration that keeps it";

/// How a target is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetView {
    pub portals: Vec<PortalView>,
    pub subsystems: Vec<SubsystemView>,
    /// Hosts that are connected, in the order in which they came.
    pub connected: Vec<ConnectedView>,
    /// Hosts that were not let in, the latest first: 256 rows at most.
    pub refused: Vec<RefusedHostView>,
    /// Requests have changed it since it read its configuration.
    pub is_changed: bool,
}

/// An address that hosts connect to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortalView {
    /// Its number.
    pub portal: usize,
    /// Where it listens.
    pub listen: SocketAddr,
    /// The address that discovery announces, where it is another one.
    pub announce: Option<SocketAddr>,
    /// Whether connections through it are encrypted.
    pub tls: bool,
    /// How well namespaces are reached through it.
    pub ana: Ana,
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubsystemView {
    pub nqn: String,
    /// Numbers of the portals through which hosts reach it.
    pub portals: Vec<usize>,
    /// Whether any host may use it.
    pub allow_any: bool,
    /// Hosts that may use it.
    pub hosts: Vec<HostFile>,
    pub namespaces: Vec<NamespaceView>,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamespaceView {
    pub nsid: u32,
    /// The specification of its device.
    pub device: String,
    /// Whether hosts have the volatile write cache of the device.
    pub write_cache: WriteCache,
    /// Its identity, once it is served.
    pub uuid: Option<String>,
    /// Its size, as hosts know it.
    pub bytes: u64,
    /// Bytes of a logical block.
    pub lba_size: u32,
    /// The most operations a second that all its hosts have together; 0 for no limit.
    pub iops_limit: u64,
    /// The most bytes a second that all its hosts have together; 0 for no limit.
    pub bytes_limit: u64,
}

/// A host that is connected: a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectedView {
    /// NQN of the host.
    pub host: String,
    /// NQN of the subsystem; none of the discovery service.
    pub subsystem: Option<String>,
    /// Id of the controller.
    pub controller: u16,
    /// Number of the portal that it came through.
    pub portal: usize,
    pub address: Option<SocketAddr>,
    /// I/O queues that are connected.
    pub io_queues: usize,
    /// When it connected, in seconds since 1970.
    pub since: u64,
}

/// A host that was not let in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedHostView {
    /// NQN of the host, as it said; empty where it said none.
    pub host: String,
    pub address: Option<IpAddr>,
    /// For ever the same, for programs.
    pub reason: String,
    /// The same in words.
    pub text: String,
    pub count: u64,
    /// When last, in seconds since 1970.
    pub last: u64,
}

/// Hosts that are connected.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConnectedList {
    pub connected: Vec<ConnectedView>,
}

/// Hosts that were not let in, the latest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RefusedList {
    pub refused: Vec<RefusedHostView>,
}

/// A change that was made.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ChangedView {
    /// In words.
    pub did: String,
    /// The namespace that was added, replaced or limited.
    pub nsid: Option<u32>,
    /// The portal that was added.
    pub portal: Option<usize>,
    /// Facts that a person should know.
    pub remarks: Vec<String>,
    /// How long it lasts.
    pub lasts: String,
}

impl From<ConnectedHost> for ConnectedView {
    fn from(one: ConnectedHost) -> ConnectedView {
        let ConnectedHost { host, subsystem, controller, portal, address, io_queues, since } = one;
        let since = since.as_secs();
        ConnectedView { host, subsystem, controller, portal, address, io_queues, since }
    }
}

impl From<Refusal> for RefusedHostView {
    fn from(one: Refusal) -> RefusedHostView {
        let Refusal { host, address, reason, count, last } = one;
        let [name, text] = [reason.name(), reason.text()].map(str::to_owned);
        RefusedHostView { host, address, reason: name, text, count, last: last.as_secs() }
    }
}
