//! The arguments of commands that ask and change a target that runs.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use esker_serve::requests::changes::operation_id;
use esker_stack::Spec;

use super::WriteCache;
use crate::args::parse;
use crate::args::rate::RateArgs;

/// The target.
#[derive(Args)]
pub(crate) struct TargetAt {
    /// The socket of the target: its --control [default: /run/esker/target/control.sock]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a target is changed, until it ends or reads its configuration again.
#[derive(Args)]
pub(crate) struct TargetChange {
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The id of this change, your own: repeated with it, it is made once, and gives the first answer
    #[arg(long, value_name = "ID", value_parser = operation_id)]
    pub(crate) operation: Option<String>,
    #[command(flatten)]
    pub(crate) at: TargetAt,
}

/// The device of a namespace.
#[derive(Args)]
pub(crate) struct NamespaceDevice {
    /// The device, which must be there; the target opens it itself
    #[arg(value_name = "SPEC", value_parser = parse::spec)]
    pub(crate) device: Spec,
    /// Whether hosts have the volatile write cache of the device [default: as the subsystem has it]
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub(crate) write_cache: Option<WriteCache>,
    /// Its identity, if the device has none of its own
    #[arg(long, value_name = "UUID")]
    pub(crate) uuid: Option<String>,
}

/// `esker target namespace`
#[derive(Subcommand)]
pub(crate) enum ServedCommand {
    /// Serve a device as a namespace; hosts that are connected are told
    #[command(after_help = "Example:\n  \
        esker target namespace add nqn.2026-01.io.example:disk1 /dev/nvme1n1 --write-cache off")]
    Add {
        /// The NQN of the subsystem
        #[arg(value_name = "NQN")]
        subsystem: String,
        #[command(flatten)]
        device: NamespaceDevice,
        /// Its number [default: the smallest that is free]
        #[arg(long, value_name = "NUMBER", value_parser = nsid)]
        nsid: Option<u32>,
        #[command(flatten)]
        how: TargetChange,
    },
    /// Serve another device under the number of a namespace; hosts that are connected are told
    #[command(after_help = "Example:\n  \
        esker target namespace replace nqn.2026-01.io.example:disk1 1 /dev/nvme2n1")]
    Replace {
        /// The NQN of the subsystem
        #[arg(value_name = "NQN")]
        subsystem: String,
        /// The number of the namespace
        #[arg(value_name = "NUMBER", value_parser = nsid)]
        nsid: u32,
        #[command(flatten)]
        device: NamespaceDevice,
        #[command(flatten)]
        how: TargetChange,
    },
    /// Limit how many operations and bytes a second all hosts of a namespace have together; they stay connected
    #[command(after_help = "Examples:\n  \
        esker target namespace limit nqn.2026-01.io.example:disk1 1 --iops 20000 --bandwidth 500MiB\n  \
        esker target namespace limit nqn.2026-01.io.example:disk1 1 --iops 0")]
    Limit {
        /// The NQN of the subsystem
        #[arg(value_name = "NQN")]
        subsystem: String,
        /// The number of the namespace
        #[arg(value_name = "NUMBER", value_parser = nsid)]
        nsid: u32,
        #[command(flatten)]
        rate: RateArgs,
        #[command(flatten)]
        how: TargetChange,
    },
    /// Serve a device no more; commands that it has are finished
    #[command(
        after_help = "Example:\n  esker target namespace remove nqn.2026-01.io.example:disk1 2"
    )]
    Remove {
        /// The NQN of the subsystem
        #[arg(value_name = "NQN")]
        subsystem: String,
        /// The number of the namespace
        #[arg(value_name = "NUMBER", value_parser = nsid)]
        nsid: u32,
        #[command(flatten)]
        how: TargetChange,
    },
}

/// `esker target host`
#[derive(Subcommand)]
pub(crate) enum HostCommand {
    /// Show hosts that are connected
    #[command(after_help = "Example:\n  esker target host list")]
    List {
        #[command(flatten)]
        at: TargetAt,
    },
    /// Let a host use a subsystem
    #[command(after_help = "Examples:\n  \
        esker target host allow nqn.2026-01.io.example:disk1 nqn.2014-08.org.nvmexpress:uuid:… --key-file host.key\n  \
        esker target host allow nqn.2026-01.io.example:disk1 '*' --force")]
    Allow {
        /// The NQN of the subsystem
        #[arg(value_name = "NQN")]
        subsystem: String,
        /// The NQN of the host, or `*` for any host, without proof of who it is
        #[arg(value_name = "HOST")]
        host: String,
        /// The file with the secret that the host has to know (DH-HMAC-CHAP); the target reads it
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// The file with the secret by which the host knows the target
        #[arg(long, value_name = "FILE", requires = "key_file")]
        controller_key_file: Option<PathBuf>,
        /// The file with the host's key for TLS: it connects encrypted then, and not otherwise
        #[arg(long, value_name = "FILE")]
        tls_key_file: Option<PathBuf>,
        /// The host takes the place of any host, or any host that of those which are named
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: TargetChange,
    },
    /// Let a host use a subsystem no more: its connections are closed
    #[command(after_help = "Example:\n  \
        esker target host forbid nqn.2026-01.io.example:disk1 nqn.2014-08.org.nvmexpress:uuid:…")]
    Forbid {
        /// The NQN of the subsystem
        #[arg(value_name = "NQN")]
        subsystem: String,
        /// The NQN of the host, or `*` where any host may use it
        #[arg(value_name = "HOST")]
        host: String,
        #[command(flatten)]
        how: TargetChange,
    },
    /// Close the connections of a host, which connects again if it is allowed
    #[command(
        after_help = "Example:\n  esker target host disconnect nqn.2014-08.org.nvmexpress:uuid:…"
    )]
    Disconnect {
        /// The NQN of the host
        #[arg(value_name = "HOST")]
        host: String,
        /// From this subsystem alone
        #[arg(long, value_name = "NQN")]
        subsystem: Option<String>,
        #[command(flatten)]
        how: TargetChange,
    },
}

/// How well namespaces are reached through a portal.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnaArg {
    /// The best way.
    Optimized,
    /// A way that works, when there is no better one.
    NonOptimized,
    /// No way, for now.
    Inaccessible,
    /// No way, ever.
    PersistentLoss,
    /// About to become another state.
    Change,
}

/// `esker target portal`
#[derive(Subcommand)]
pub(crate) enum PortalCommand {
    /// Show portals: the addresses that hosts connect to
    #[command(after_help = "Example:\n  esker target portal list")]
    List {
        #[command(flatten)]
        at: TargetAt,
    },
    /// Listen on an address
    #[command(after_help = "Example:\n  esker target portal add 10.0.0.6:4420")]
    Add {
        /// The address; port 0 is any that is free
        #[arg(value_name = "ADDRESS")]
        listen: SocketAddr,
        /// The address that discovery announces [default: the same]
        #[arg(long, value_name = "ADDRESS")]
        announce: Option<SocketAddr>,
        /// Connections through it are encrypted
        #[arg(long)]
        tls: bool,
        /// How well namespaces are reached through it
        #[arg(long, value_name = "STATE", value_enum, default_value = "optimized")]
        ana: AnaArg,
        #[command(flatten)]
        how: TargetChange,
    },
    /// Set how well namespaces are reached through a portal (ANA); hosts are told
    #[command(after_help = "Example:\n  esker target portal set 1 non-optimized")]
    Set {
        /// The number of the portal
        #[arg(value_name = "NUMBER", value_parser = portal)]
        portal: usize,
        /// The state of asymmetric namespace access
        #[arg(value_name = "STATE", value_enum)]
        ana: AnaArg,
        #[command(flatten)]
        how: TargetChange,
    },
    /// Have hosts reach a subsystem through these portals alone; connections through others are closed, and discovery
    /// is told
    #[command(after_help = "Examples:\n  \
        esker target portal assign nqn.2026-01.io.example:disk1 0 2\n  \
        esker target portal assign nqn.2026-01.io.example:disk1 --all")]
    Assign {
        /// The NQN of the subsystem
        #[arg(value_name = "NQN")]
        subsystem: String,
        /// The numbers of the portals
        #[arg(value_name = "NUMBER", value_parser = portal, required_unless_present = "all")]
        portals: Vec<usize>,
        /// Through each portal, those that come later included
        #[arg(long, conflicts_with = "portals")]
        all: bool,
        #[command(flatten)]
        how: TargetChange,
    },
    /// Have hosts go on through other portals, wait for their commands, and remove the portal
    #[command(after_help = "Example:\n  esker target portal drain 1 --for 30s")]
    Drain {
        /// The number of the portal
        #[arg(value_name = "NUMBER", value_parser = portal)]
        portal: usize,
        /// How long commands under way are waited for, a minute at most [default: 10s]
        #[arg(long = "for", value_name = "TIME", value_parser = parse::within(parse::whole_seconds, "0s", "1min"))]
        secs: Option<u64>,
        #[command(flatten)]
        how: TargetChange,
    },
    /// Listen on an address no more: connections through it are closed
    #[command(after_help = "Example:\n  esker target portal remove 1")]
    Remove {
        /// The number of the portal
        #[arg(value_name = "NUMBER", value_parser = portal)]
        portal: usize,
        #[command(flatten)]
        how: TargetChange,
    },
}

/// The number of a namespace.
fn nsid(text: &str) -> Result<u32, String> {
    parse::number(1, u32::MAX - 1)(text)
}

/// The number of a portal.
fn portal(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| {
        format!("'{text}' is no number of a portal; give one that `esker target portal list` shows")
    })
}
