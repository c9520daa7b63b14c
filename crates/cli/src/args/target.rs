//! `esker target`.

mod control;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use esker_serve::target::TargetOptions;

use crate::host::COMMIT;
pub(crate) use control::{
    AnaArg, HostCommand, PortalCommand, ServedCommand, TargetAt, TargetChange,
};

/// Commands about targets.
#[derive(Subcommand)]
pub(crate) enum TargetCommand {
    /// Serve devices to hosts over NVMe/TCP until it is ended
    Serve(Box<ServeArgs>),
    /// Show what a running target has carried; at its socket, what it serves, to which hosts
    #[command(after_help = "Examples:\n  \
        esker target status --metrics 127.0.0.1:9420\n  \
        esker target status --control\n  \
        esker target status --control /run/esker/disks.sock --json")]
    Status {
        /// Where the target tells its metrics
        #[arg(long, value_name = "ADDRESS|PORT", default_value = DEFAULT_METRICS, value_parser = super::parse::listen)]
        metrics: SocketAddr,
        /// The socket of the target, instead [default: /run/esker/target/control.sock]
        #[arg(long, value_name = "SOCKET", num_args = 0..=1, conflicts_with = "metrics")]
        control: Option<Option<PathBuf>>,
        /// As JSON
        #[arg(long, requires = "control")]
        json: bool,
    },
    /// Add, replace and remove namespaces of a target that runs
    #[command(subcommand)]
    Namespace(ServedCommand),
    /// Allow and disconnect hosts of a target that runs
    #[command(subcommand)]
    Host(HostCommand),
    /// Add, change, drain and remove portals of a target that runs
    #[command(subcommand)]
    Portal(PortalCommand),
    /// Show hosts that were not let in, and the reasons
    #[command(after_help = "Example:\n  esker target refused")]
    Refused {
        #[command(flatten)]
        at: TargetAt,
    },
    /// Print the configuration in force: `esker target serve --config` reads it
    #[command(after_help = "Examples:\n  \
        esker target export > target.toml\n  \
        esker target export --output /etc/esker/target.toml")]
    Export {
        /// The file to write, or to replace as a whole [default: standard output]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        at: TargetAt,
    },
    /// Print the description of all requests (OpenAPI 3.1)
    #[command(after_help = "Example:\n  esker target openapi > target.openapi.json")]
    Openapi,
}

/// Where a target tells its metrics unless it is told otherwise.
const DEFAULT_METRICS: &str = "127.0.0.1:9420";

/// Whether hosts have the volatile write cache of a device.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WriteCache {
    /// As the device has it: what a host wants durable, it flushes.
    On,
    /// Writes complete when they are durable.
    Off,
}

/// The devices to serve, where and to which hosts.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    esker target serve --subsystem nqn.2026-01.io.example:disk1 --device /dev/nvme0n1 \\\n    \
    --allow nqn.2014-08.org.nvmexpress:uuid:…\n  \
    esker target serve --listen 127.0.0.1:4420 --subsystem nqn.2026-01.io.example:model \\\n    \
    --device 'ssd:micron-7450?capacity=8GiB' --allow-any\n  \
    esker target serve --config target.toml\n\n\
    A configuration file says the same of any number of subsystems:\n\n  \
    listen = [\"10.0.0.5:4420\"]\n  \
    reservations = \"/var/lib/esker/reservations\"\n\n  \
    [[subsystem]]\n  \
    nqn = \"nqn.2026-01.io.example:disk1\"\n  \
    [[subsystem.host]]\n  \
    nqn = \"nqn.2014-08.org.nvmexpress:uuid:…\"\n  \
    key_file = \"/etc/esker/host.key\"\n  \
    [[subsystem.namespace]]\n  \
    nsid = 1\n  \
    device = \"/dev/nvme0n1\"\n  \
    write_cache = \"off\"")]
pub(crate) struct ServeArgs {
    /// A file that says what is served, instead of the options below
    #[arg(long, value_name = "FILE", conflicts_with_all = ["subsystem", "devices", "allow", "allow_any"])]
    config: Option<PathBuf>,
    /// An address to listen on; may be repeated [default: 127.0.0.1:4420]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<SocketAddr>,
    /// An address to listen on with TLS; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    listen_tls: Vec<SocketAddr>,
    /// The address that discovery announces, one for each --listen and --listen-tls [default: the one listened on, or
    /// of 0.0.0.0 and [::] the one that the host reached]
    #[arg(long, value_name = "ADDRESS")]
    announce: Vec<SocketAddr>,
    /// The NQN of the subsystem
    #[arg(long, value_name = "NQN", required_unless_present = "config")]
    subsystem: Option<String>,
    /// A device specification: the next namespace; may be repeated
    #[arg(long = "device", value_name = "SPEC", required_unless_present = "config")]
    devices: Vec<String>,
    /// A host that may connect, by NQN; may be repeated
    #[arg(long, value_name = "NQN")]
    allow: Vec<String>,
    /// Any host may connect, without proof of who it is
    #[arg(long, conflicts_with = "allow")]
    allow_any: bool,
    /// The key by which allowed hosts prove who they are, in a file that its owner alone can read
    #[arg(long, value_name = "FILE", requires = "allow")]
    key_file: Option<PathBuf>,
    /// The key by which the target proves in turn who it is
    #[arg(long, value_name = "FILE", requires = "key_file")]
    controller_key_file: Option<PathBuf>,
    /// The key for TLS of allowed hosts, as nvme gen-tls-key writes it, in a file that its owner
    /// alone can read
    #[arg(long, value_name = "FILE", requires = "allow")]
    tls_key_file: Option<PathBuf>,
    /// A file in which reservations outlive the target where hosts ask for it
    #[arg(long, value_name = "FILE")]
    reservations: Option<PathBuf>,
    /// Whether hosts have the volatile write cache of a device. Without it a write completes when it is
    /// durable: for hosts that do not write again what was not flushed when the target was started again
    #[arg(
        long,
        value_name = "WHETHER",
        value_enum,
        default_value = "on",
        conflicts_with = "config"
    )]
    write_cache: WriteCache,
    /// Event loops, each a thread [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = super::parse::threads)]
    workers: Option<usize>,
    /// How long a device with commands may end none of them before hosts get errors; it should be less than the time
    /// after which hosts give up, which is 30 s for Linux [default: 25s]
    #[arg(long, value_name = "TIME", value_parser = super::parse::within(super::parse::patience, "1s", "1d"))]
    patience: Option<std::time::Duration>,
    /// The ids of controllers, such as 1-1000, where other targets serve the same subsystem: hosts refuse an id that
    /// another has [default: from a place that the machine and the addresses determine]
    #[arg(long, value_name = "FIRST-LAST", value_parser = super::parse::controller_ids)]
    controller_ids: Option<std::ops::RangeInclusive<u16>>,
    /// Where to tell metrics, over HTTP: /metrics for Prometheus, /status for people
    #[arg(long, value_name = "ADDRESS|PORT", default_value = DEFAULT_METRICS, value_parser = super::parse::listen)]
    metrics: SocketAddr,
    /// A socket at which requests change the target while it runs [default with --control alone:
    /// /run/esker/target/control.sock]
    #[arg(long, value_name = "SOCKET", num_args = 0..=1)]
    control: Option<Option<PathBuf>>,
    /// A loopback address at which requests are answered, too: those with the token
    #[arg(long, value_name = "ADDRESS|PORT", requires_all = ["api_token", "control"], value_parser = super::parse::listen)]
    api: Option<SocketAddr>,
    /// The file with the token; one is made where there is none
    #[arg(long, value_name = "FILE", requires = "api")]
    api_token: Option<PathBuf>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = super::parse::time)]
    pub(crate) time: Option<std::time::Duration>,
}

impl ServeArgs {
    /// How the target serves; `socket` is where requests are answered if no other place was said.
    pub(crate) fn options(&self, socket: PathBuf) -> TargetOptions {
        TargetOptions {
            config: self.config.clone(),
            listen: self.listen.clone(),
            listen_tls: self.listen_tls.clone(),
            announce: self.announce.clone(),
            subsystem: self.subsystem.clone(),
            devices: self.devices.clone(),
            allow: self.allow.clone(),
            allow_any: self.allow_any,
            key_file: self.key_file.clone(),
            controller_key_file: self.controller_key_file.clone(),
            tls_key_file: self.tls_key_file.clone(),
            write_cache: self.write_cache == WriteCache::On,
            reservations: self.reservations.clone(),
            workers: self.workers,
            patience: self.patience,
            controller_ids: self.controller_ids.clone(),
            control: self.control.clone().map(|path| path.unwrap_or(socket)),
            api: self.api.zip(self.api_token.clone()),
            metrics: self.metrics,
            commit: COMMIT,
        }
    }
}
