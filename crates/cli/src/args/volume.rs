//! The arguments of `esker volume`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use esker_stack::Spec;

use super::attach::AttachTo;
use super::parse;
use super::pool::{Change, PoolOpening, VolumeName, Where, name};
use super::rate::RateArgs;

/// `esker volume`
#[derive(Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a thin volume
    #[command(after_help = "Example:\n  esker volume create tank/db --size 1TiB --iops 20000")]
    Create {
        /// The volume
        #[arg(value_name = "POOL/NAME")]
        volume: VolumeName,
        /// Its size as a host sees it
        #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
        size: u64,
        /// Store blocks as they are
        #[arg(long)]
        no_compression: bool,
        /// The most operations a second [default: no limit]
        #[arg(long, value_name = "COUNT", default_value_t = 0)]
        #[arg(value_parser = parse::within(parse::count_or_zero, "0", "1G"))]
        iops: u64,
        /// The most bytes a second [default: no limit]
        #[arg(long, value_name = "SIZE", value_parser = parse::bandwidth, default_value = "0")]
        bandwidth: u64,
        #[command(flatten)]
        how: Change,
    },
    /// List the volumes of a pool, those in the trash included
    #[command(after_help = "Example:\n  esker volume list tank")]
    List {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        #[command(flatten)]
        at: Where,
    },
    /// Show a volume and its snapshots
    #[command(after_help = "Example:\n  esker volume show tank/db")]
    Show {
        /// The volume
        #[arg(value_name = "POOL/NAME")]
        volume: VolumeName,
        #[command(flatten)]
        at: Where,
    },
    /// Give a volume another size
    #[command(after_help = "Example:\n  esker volume resize tank/db --size 2TiB")]
    Resize {
        /// The volume
        #[arg(value_name = "POOL/NAME")]
        volume: VolumeName,
        /// Its size from now on
        #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
        size: u64,
        /// Lose what lies behind a smaller size
        #[arg(long)]
        shrink: bool,
        /// Although hosts are connected to it, or it is attached here: it shrinks under them
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: Change,
    },
    /// Limit how many operations and bytes a second a volume may have
    #[command(after_help = "Examples:\n  \
        esker volume limit tank/db --iops 20000 --bandwidth 500MiB\n  \
        esker volume limit tank/db --iops 0")]
    Limit {
        /// The volume
        #[arg(value_name = "POOL/NAME")]
        volume: VolumeName,
        #[command(flatten)]
        rate: RateArgs,
        #[command(flatten)]
        how: Change,
    },
    /// Make a volume, or a snapshot, a file and a block device of this machine (FUSE, loop)
    #[command(after_help = "Examples:\n  \
        esker volume attach tank/db /mnt/db --loop\n  \
        esker volume attach tank/db@monday /mnt/monday --read-only\n  \
        esker detach /mnt/db")]
    Attach {
        /// The volume, or the snapshot
        #[arg(value_name = "POOL/NAME[@SNAPSHOT]")]
        volume: VolumeName,
        #[command(flatten)]
        to: AttachTo,
        /// All drives of the pool, in any order; without them the process that serves the pool is asked
        #[arg(long, value_name = "SPEC", num_args = 1.., value_parser = parse::spec)]
        drives: Vec<Spec>,
        /// All buffer devices of the pool
        #[arg(long = "buffer", value_name = "SPEC", num_args = 1.., value_parser = parse::spec, requires = "drives")]
        buffers: Vec<Spec>,
        #[command(flatten)]
        opening: PoolOpening,
        /// The socket of the process that serves the pool [default: /run/esker/POOL.sock]
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Show operations, bytes and latencies of all volumes, again and again
    #[command(
        after_help = "Examples:\n  esker volume top tank\n  esker volume top tank --once --json"
    )]
    Top {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        /// Show one interval, and end
        #[arg(long)]
        once: bool,
        /// How long an interval is
        #[arg(long, value_name = "TIME", default_value = "1s")]
        #[arg(value_parser = parse::within(parse::time, "10ms", "1d"))]
        interval: Duration,
        #[command(flatten)]
        at: Where,
    },
    /// Keep a volume as it is now
    #[command(after_help = "Example:\n  esker volume snapshot tank/db@monday")]
    Snapshot {
        /// The volume, and the snapshot's name
        #[arg(value_name = "POOL/NAME@SNAPSHOT")]
        snapshot: VolumeName,
        #[command(flatten)]
        how: Change,
    },
    /// Make a volume that begins as a snapshot of another one
    #[command(after_help = "Example:\n  esker volume clone tank/db@monday test")]
    Clone {
        /// The snapshot
        #[arg(value_name = "POOL/NAME@SNAPSHOT")]
        snapshot: VolumeName,
        /// The new volume's name, in the same pool
        #[arg(value_name = "NAME", value_parser = name)]
        name: String,
        #[command(flatten)]
        how: Change,
    },
    /// Set a volume back to one of its snapshots: what was written since is lost
    #[command(after_help = "Example:\n  esker volume rollback tank/db@monday")]
    Rollback {
        /// The snapshot
        #[arg(value_name = "POOL/NAME@SNAPSHOT")]
        snapshot: VolumeName,
        /// Although hosts are connected to it, or it is attached here: its content changes under them
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: Change,
    },
    /// Put a volume into the trash, or delete a snapshot
    #[command(after_help = "Examples:\n  \
        esker volume delete tank/db\n  \
        esker volume delete tank/db --keep 7d\n  \
        esker volume delete tank/db --keep 0\n  \
        esker volume delete tank/db@monday")]
    Delete {
        /// The volume, or the snapshot
        #[arg(value_name = "POOL/NAME[@SNAPSHOT]")]
        volume: VolumeName,
        /// How long it can be restored, such as 90s, 10min, 2h or 7d; 0 deletes it at once
        #[arg(long, value_name = "TIME", default_value = "1d", value_parser = parse::within(parse::whole_seconds, "0s", "3650d"))]
        keep: u64,
        /// Although hosts are connected to it, or it is attached here: they lose it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: Change,
    },
    /// Let hosts use a volume over NVMe/TCP while its pool is served
    #[command(after_help = "Examples:\n  \
        esker volume export tank/db --host nqn.2014-08.org.nvmexpress:uuid:…\n  \
        esker volume export tank/db --any-host\n  \
        esker volume export tank/db --nobody")]
    Export {
        /// The volume
        #[arg(value_name = "POOL/NAME")]
        volume: VolumeName,
        /// A host that may use it, by NQN, and no others; may be repeated
        #[arg(long = "host", value_name = "NQN", required_unless_present_any = ["any_host", "nobody"])]
        hosts: Vec<String>,
        /// The file with the secret that the host has to know (DH-HMAC-CHAP); the server reads it
        #[arg(long = "key", value_name = "FILE", requires = "hosts")]
        key: Option<PathBuf>,
        /// The file with the secret by which the host knows the server
        #[arg(long, value_name = "FILE", requires = "key")]
        controller_key: Option<PathBuf>,
        /// The file with the host's key for TLS: it connects encrypted then, and not otherwise
        #[arg(long, value_name = "FILE", requires = "hosts")]
        tls_key: Option<PathBuf>,
        /// Any host may use it, without proof of who it is
        #[arg(long, conflicts_with = "hosts")]
        any_host: bool,
        /// No host may use it any more
        #[arg(long, conflicts_with_all = ["hosts", "any_host"])]
        nobody: bool,
        /// Although a host that may use it no more is connected, or it is attached here: they lose it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: Change,
    },
    /// Take a volume out of the trash
    #[command(after_help = "Example:\n  esker volume restore tank/db")]
    Restore {
        /// The volume
        #[arg(value_name = "POOL/NAME")]
        volume: VolumeName,
        #[command(flatten)]
        how: Change,
    },
    /// Count the space of a volume, to the byte
    #[command(after_help = "Example:\n  esker volume du tank/db")]
    Du {
        /// The volume
        #[arg(value_name = "POOL/NAME")]
        volume: VolumeName,
        #[command(flatten)]
        at: Where,
    },
}
