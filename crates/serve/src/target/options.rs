//! How a target serves.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The devices to serve, where and to which hosts.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// A file that says what is served; without it, one subsystem is.
    pub config: Option<PathBuf>,
    /// Addresses to listen on; those of the file where there are none.
    pub listen: Vec<SocketAddr>,
    /// Addresses to listen on with TLS; those of the file where there are none.
    pub listen_tls: Vec<SocketAddr>,
    /// The addresses that discovery announces; those of the file where there are none.
    pub announce: Vec<SocketAddr>,
    /// The NQN of the subsystem.
    pub subsystem: Option<String>,
    /// Specifications of devices: the namespaces of the subsystem.
    pub devices: Vec<String>,
    /// Hosts that may connect to the subsystem, by NQN.
    pub allow: Vec<String>,
    /// Whether any host may, without proof of who it is.
    pub allow_any: bool,
    /// The file with the key by which allowed hosts prove who they are.
    pub key_file: Option<PathBuf>,
    /// The file with the key by which the target proves in turn who it is.
    pub controller_key_file: Option<PathBuf>,
    /// The file with the key for TLS of allowed hosts.
    pub tls_key_file: Option<PathBuf>,
    /// Whether hosts have the volatile write cache of a device of the subsystem.
    pub write_cache: bool,
    /// The file in which reservations outlive the target.
    pub reservations: Option<PathBuf>,
    /// How many event loops there are, each a thread.
    pub workers: Option<usize>,
    /// How long a device with commands may end none of them.
    pub patience: Option<Duration>,
    /// The ids of controllers.
    pub controller_ids: Option<RangeInclusive<u16>>,
    /// The socket at which requests are answered; none are without it.
    pub control: Option<PathBuf>,
    /// A loopback address at which requests are answered, too, and the file with the token that they have.
    pub api: Option<(SocketAddr, PathBuf)>,
    /// Where metrics and the status are told.
    pub metrics: SocketAddr,
    /// The commit that the program was built from.
    pub commit: &'static str,
}
