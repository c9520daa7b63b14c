//! The arguments of `esker pool` and `esker volume`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use esker_stack::{Spec, VolumeSpec};

use super::parse;

/// What may be amiss when a pool is opened.
#[derive(Args)]
pub(crate) struct Opening {
    /// Open although drives are missing: what they have is computed from parities until they return
    #[arg(long, requires = "drives")]
    degraded: bool,
    /// Open although the write buffer is lost: back to the last checkpoint
    #[arg(long, requires = "drives")]
    lose_buffer: bool,
    /// Open with exactly half of the drives: only when the others are opened nowhere else
    #[arg(long, requires = "drives")]
    accept_half: bool,
}

impl Opening {
    /// The pool of a specification, opened so.
    pub(crate) fn of(&self, spec: VolumeSpec) -> VolumeSpec {
        let Opening { degraded, lose_buffer, accept_half } = *self;
        VolumeSpec { degraded, lose_buffer, accept_half, ..spec }
    }
}

/// Which pool: one that this process opens, or one that another process serves.
#[derive(Args)]
pub(crate) struct Where {
    /// All drives of the pool, in any order: this process opens the pool, and closes it at the end
    #[arg(long, value_name = "SPEC", num_args = 1.., value_parser = parse::spec, conflicts_with = "socket")]
    pub(crate) drives: Vec<Spec>,
    /// All buffer devices of the pool
    #[arg(long = "buffer", value_name = "SPEC", num_args = 1.., value_parser = parse::spec, requires = "drives")]
    pub(crate) buffers: Vec<Spec>,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// The socket of the process that serves the pool [default: /run/esker/POOL.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `esker pool`
#[derive(Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a pool of drives
    #[command(after_help = "Examples:\n  \
        esker pool create tank /dev/nvme0n1 /dev/nvme1n1 /dev/nvme2n1 --parity 1\n  \
        esker pool create tank 'file:a.img?capacity=1GiB' 'file:b.img?capacity=1GiB' --chunk 1MiB --log 16MiB")]
    Create(Box<PoolCreateArgs>),
    /// Show what the labels of devices say
    #[command(after_help = "Example:\n  esker pool examine /dev/nvme0n1 /dev/nvme1n1")]
    Examine {
        /// The devices
        #[arg(value_name = "SPEC", required = true, value_parser = parse::spec)]
        devices: Vec<Spec>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Serve a pool until it is ended: requests at a socket, volumes to hosts over NVMe/TCP
    #[command(after_help = "Examples:\n  \
        esker pool serve tank --drives /dev/nvme0n1 /dev/nvme1n1 /dev/nvme2n1\n  \
        esker volume create tank/db --size 1TiB\n  \
        esker volume export tank/db --host nqn.2014-08.org.nvmexpress:uuid:…")]
    Serve(Box<PoolServeArgs>),
    /// Add a drive or a buffer device to a pool
    #[command(after_help = "Example:\n  esker pool add tank /dev/nvme3n1")]
    Add {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        #[command(flatten)]
        device: NewDevice,
        /// It is to hold the write buffer
        #[arg(long)]
        as_buffer: bool,
        #[command(flatten)]
        how: Change,
    },
    /// Put a device in the place of a drive, failed or not
    #[command(after_help = "Example:\n  esker pool replace tank 1 /dev/nvme3n1 --wait")]
    Replace {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        /// The drive's number, as the status shows it
        #[arg(value_name = "NUMBER")]
        drive: u16,
        #[command(flatten)]
        device: NewDevice,
        /// Wait until the old drive has nothing any more
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        how: Change,
    },
    /// Move all that a drive has to others, and take it out of the pool then
    #[command(after_help = "Example:\n  esker pool retire tank 1 --wait")]
    Retire {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        /// The drive's number, as the status shows it
        #[arg(value_name = "NUMBER")]
        drive: u16,
        /// Wait until the drive has nothing any more
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        how: Change,
    },
    /// Read everything, verify it, and repair what is wrong
    #[command(after_help = "Example:\n  esker pool scrub tank --wait")]
    Scrub {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        /// Wait until it is done; a pool that this command opens is waited for anyway
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        how: Change,
    },
    /// Show how a pool is: drives, space, write buffer, what is wrong and what to do
    #[command(after_help = "Examples:\n  \
        esker pool status tank\n  \
        esker pool status tank --drives /dev/nvme0n1 /dev/nvme1n1 /dev/nvme2n1")]
    Status {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        #[command(flatten)]
        at: Where,
    },
}

/// What a pool is made of.
#[derive(Args)]
pub(crate) struct PoolCreateArgs {
    /// The pool's name
    #[arg(value_name = "POOL", value_parser = name)]
    pub(crate) pool: String,
    /// The drives: paths or device specifications; a file whose capacity is said is made
    #[arg(value_name = "SPEC", required = true, value_parser = parse::spec)]
    pub(crate) drives: Vec<Spec>,
    /// One or two buffer devices for the write buffer [default: a region of the drives]
    #[arg(long = "buffer", value_name = "SPEC", value_parser = parse::spec)]
    pub(crate) buffers: Vec<Spec>,
    /// How many drives may be lost: 0, 1 or 2
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) parity: u8,
    /// Chunks of a segment, parities included [default: as many as drives, one less from six on]
    #[arg(long, value_name = "CHUNKS")]
    pub(crate) width: Option<u16>,
    /// Bytes of a chunk [default: 16MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
    pub(crate) chunk: Option<u64>,
    /// Bytes of the write buffer on each drive [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
    pub(crate) log: Option<u64>,
    /// Percent of the space that is kept free for cleaning [default: 15]
    #[arg(long, value_name = "PERCENT")]
    pub(crate) spare: Option<u8>,
    /// Give up what is on the devices
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Check everything, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// A device that is to be of a pool.
#[derive(Args)]
pub(crate) struct NewDevice {
    /// The device, which must be there; a server opens it itself
    #[arg(value_name = "SPEC", value_parser = parse::spec)]
    pub(crate) device: Spec,
    /// Give up what is on the device
    #[arg(long)]
    pub(crate) overwrite: bool,
}

/// What is served, and where.
#[derive(Args)]
pub(crate) struct PoolServeArgs {
    /// The pool
    #[arg(value_name = "POOL", value_parser = name)]
    pub(crate) pool: String,
    /// All drives of the pool, in any order
    #[arg(long, value_name = "SPEC", num_args = 1.., required = true, value_parser = parse::spec)]
    pub(crate) drives: Vec<Spec>,
    /// All buffer devices of the pool
    #[arg(long = "buffer", value_name = "SPEC", num_args = 1.., value_parser = parse::spec)]
    pub(crate) buffers: Vec<Spec>,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// Rebuild what a missing drive has after so many seconds, and refuse it then [default: 600]
    #[arg(long = "missing-grace", value_name = "SECONDS", value_parser = parse::seconds_or_zero)]
    pub(crate) grace: Option<std::time::Duration>,
    /// Read and verify everything in the background within so many days [default: never]
    #[arg(long, value_name = "DAYS", value_parser = parse::days)]
    pub(crate) scrub_within: Option<std::time::Duration>,
    /// Where requests are answered [default: /run/esker/POOL.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// An address at which hosts reach exported volumes; may be repeated
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4420")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Event loops of the target, each a thread [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = parse::threads)]
    pub(crate) workers: Option<usize>,
    /// Where to tell metrics, over HTTP: /metrics for Prometheus
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9420")]
    pub(crate) metrics: SocketAddr,
    /// Memory for the pool's map [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
    pub(crate) map: Option<u64>,
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = parse::seconds)]
    pub(crate) time: Option<std::time::Duration>,
}

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
        iops: u64,
        /// The most bytes a second [default: no limit]
        #[arg(long, value_name = "SIZE", value_parser = parse::bytes_or_zero, default_value = "0")]
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
        #[command(flatten)]
        how: Change,
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
        #[command(flatten)]
        how: Change,
    },
    /// Put a volume into the trash, or delete a snapshot
    #[command(after_help = "Examples:\n  \
        esker volume delete tank/db\n  \
        esker volume delete tank/db --keep 0\n  \
        esker volume delete tank/db@monday")]
    Delete {
        /// The volume, or the snapshot
        #[arg(value_name = "POOL/NAME[@SNAPSHOT]")]
        volume: VolumeName,
        /// For how many seconds it can be restored; 0 deletes it at once
        #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
        keep: u64,
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
        /// Any host may use it, without proof of who it is
        #[arg(long, conflicts_with = "hosts")]
        any_host: bool,
        /// No host may use it any more
        #[arg(long, conflicts_with_all = ["hosts", "any_host"])]
        nobody: bool,
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

/// How something is changed, and where.
#[derive(Args)]
pub(crate) struct Change {
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) at: Where,
}

/// `POOL/NAME`, or `POOL/NAME@SNAPSHOT`.
#[derive(Clone, Debug)]
pub(crate) struct VolumeName {
    pub(crate) pool: String,
    pub(crate) name: String,
    pub(crate) snapshot: Option<String>,
}

impl FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> Result<VolumeName, String> {
        let (volume, snapshot) = match text.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(name(snapshot)?)),
            None => (text, None),
        };
        let Some((pool, volume)) = volume.split_once('/') else {
            return Err(format!("'{text}' has no pool; write for example tank/{text}"));
        };
        Ok(VolumeName { pool: name(pool)?, name: name(volume)?, snapshot })
    }
}

/// The name of a pool, a volume or a snapshot.
fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    match text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "'{text}' is no name: letters, digits and - _ . : are, beginning with a letter or a digit"
        )),
    }
}
