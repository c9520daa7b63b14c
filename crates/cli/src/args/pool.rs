//! The arguments of `esker pool`, and those that `esker volume` shares with it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use esker_serve::pool::PoolOptions;
use esker_serve::requests::changes::operation_id;
use esker_stack::{Spec, VolumeSpec};

use super::parse;
use crate::host::COMMIT;

/// Deficiencies that are accepted when a pool is opened.
#[derive(Args)]
pub(crate) struct PoolOpening {
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

impl PoolOpening {
    /// The pool of a specification, opened so.
    pub(crate) fn of(&self, spec: VolumeSpec) -> VolumeSpec {
        let PoolOpening { degraded, lose_buffer, accept_half } = *self;
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
    pub(crate) opening: PoolOpening,
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
        #[arg(value_name = "NUMBER", value_parser = drive)]
        drive: u16,
        #[command(flatten)]
        device: NewDevice,
        #[command(flatten)]
        how: Change,
    },
    /// Take a drive in again that was missing, or that failed, while the pool is served
    #[command(after_help = "Examples:\n  \
        esker pool rejoin tank 1 --wait\n  \
        esker pool rejoin tank 1 /dev/nvme4n1")]
    Rejoin {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        /// The drive's number, as the status shows it
        #[arg(value_name = "NUMBER", value_parser = drive)]
        drive: u16,
        /// Its device, which a server opens itself [default: the one that it had]
        #[arg(value_name = "SPEC", value_parser = parse::spec)]
        device: Option<Spec>,
        #[command(flatten)]
        how: Change,
    },
    /// Move all that a drive has to others, and take it out of the pool then
    #[command(after_help = "Examples:\n  \
        esker pool retire tank 1 --dry-run\n  \
        esker pool retire tank 1 --wait\n  \
        esker pool retire tank 1 --cancel")]
    Retire {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        /// The drive's number, as the status shows it
        #[arg(value_name = "NUMBER", value_parser = drive)]
        drive: u16,
        /// Let a drive stay that is being emptied
        #[arg(long)]
        cancel: bool,
        #[command(flatten)]
        how: Change,
    },
    /// Change how a pool that is served goes on, until its server ends
    #[command(after_help = "Example:\n  esker pool set tank --repair-share 50")]
    Set {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        /// Percent of maintenance's time that repair and sweeps get beside writes, from 1 to 90
        #[arg(long, value_name = "PERCENT", value_parser = parse::number(1u8, 90))]
        repair_share: u8,
        #[command(flatten)]
        how: Change,
    },
    /// Read everything, verify it, and repair what is wrong; a pool that this command opens is waited for
    #[command(after_help = "Example:\n  esker pool scrub tank --wait")]
    Scrub {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
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
    /// Tell what volumes wait for, or what would be if a drive failed or something were deleted
    #[command(after_help = "Examples:\n  \
        esker pool explain tank\n  \
        esker pool explain tank --volume db\n  \
        esker pool explain tank --if-fails 3\n  \
        esker pool explain tank --if-deleted db@monday")]
    Explain {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        #[command(flatten)]
        what: Explained,
        #[command(flatten)]
        at: Where,
    },
    /// List the changes that were made since the pool was opened, and how far they are
    #[command(
        after_help = "Examples:\n  esker pool operations tank\n  esker pool operations tank --id nightly-7"
    )]
    Operations {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        /// This one alone
        #[arg(long, value_name = "ID", value_parser = operation_id)]
        id: Option<String>,
        #[command(flatten)]
        at: Where,
    },
    /// Print what makes a pool like this one: devices, volumes, limits and hosts, without content
    #[command(after_help = "Example:\n  \
        esker pool export-config tank > tank.toml\n  \
        esker pool create --config tank.toml")]
    ExportConfig {
        /// The pool
        #[arg(value_name = "POOL", value_parser = name)]
        pool: String,
        #[command(flatten)]
        at: Where,
    },
    /// Print the description of all requests (OpenAPI 3.1)
    #[command(after_help = "Example:\n  esker pool openapi > pool.openapi.json")]
    Openapi,
}

/// The subject to explain; the latencies of all volumes where nothing is said.
#[derive(Args)]
#[group(multiple = false)]
pub(crate) struct Explained {
    /// Explain the waits of this volume
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) volume: Option<String>,
    /// Tell the consequences if this drive failed
    #[arg(long, value_name = "NUMBER", value_parser = drive)]
    pub(crate) if_fails: Option<u16>,
    /// Tell the space that deleting this would free
    #[arg(long, value_name = "NAME[@SNAPSHOT]", value_parser = volume_of_pool)]
    pub(crate) if_deleted: Option<(String, Option<String>)>,
}

fn drive(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| {
        format!("'{text}' is not the number of a drive: give one that `esker pool status` shows, such as 1")
    })
}

fn volume_of_pool(text: &str) -> Result<(String, Option<String>), String> {
    match text.split_once('@') {
        Some((volume, snapshot)) => Ok((name(volume)?, Some(name(snapshot)?))),
        None => Ok((name(text)?, None)),
    }
}

/// Processors, by their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Cpus(pub(crate) Vec<usize>);

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Cpus, String> {
        let wrong = || format!("'{text}' are no processors; write for example 0-3,8");
        let number = |text: &str| {
            text.parse::<usize>()
                .ok()
                .filter(|cpu| *cpu < rustix::thread::CpuSet::MAX_CPU)
                .ok_or_else(wrong)
        };
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = number(first)?..=number(last)?;
            if range.is_empty() {
                return Err(wrong());
            }
            cpus.extend(range);
        }
        Ok(Cpus(cpus))
    }
}

/// The parts of a new pool.
#[derive(Args)]
pub(crate) struct PoolCreateArgs {
    /// The pool's name
    #[arg(value_name = "POOL", value_parser = name, required_unless_present = "config")]
    pub(crate) pool: Option<String>,
    /// The drives: paths or device specifications; a file whose capacity is said is made
    #[arg(value_name = "SPEC", required_unless_present = "config", value_parser = parse::spec)]
    pub(crate) drives: Vec<Spec>,
    /// Make what `esker pool export-config` has printed: the pool, its volumes, their limits and hosts
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pool", "drives", "buffers", "parity", "width", "chunk", "log", "spare"])]
    pub(crate) config: Option<PathBuf>,
    /// One or two buffer devices for the write buffer [default: a region of the drives]
    #[arg(long = "buffer", value_name = "SPEC", value_parser = parse::spec)]
    pub(crate) buffers: Vec<Spec>,
    /// How many drives may be lost: 0, 1 or 2
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = parse::number(0u8, 2))]
    pub(crate) parity: u8,
    /// Chunks of a segment, parities included [default: as many as drives, one less from six on]
    #[arg(long, value_name = "CHUNKS", value_parser = parse::number(1, u16::MAX))]
    pub(crate) width: Option<u16>,
    /// Bytes of a chunk [default: 16MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
    pub(crate) chunk: Option<u64>,
    /// Bytes of the write buffer on each drive [default: a 32nd part of the smallest, from 16 to 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
    pub(crate) log: Option<u64>,
    /// Percent of the space that is kept free for cleaning [default: 15]
    #[arg(long, value_name = "PERCENT", value_parser = parse::number(0u8, 80))]
    pub(crate) spare: Option<u8>,
    /// Give up what is on the devices
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Check everything, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// As JSON: what makes a pool like this one
    #[arg(long)]
    pub(crate) json: bool,
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

/// The pool to serve, and where.
#[derive(Args)]
pub(crate) struct PoolServeArgs {
    /// The pool
    #[arg(value_name = "POOL", value_parser = name)]
    pub(crate) pool: String,
    /// All drives of the pool, in any order
    #[arg(long, value_name = "SPEC", num_args = 1.., required = true, value_parser = parse::spec)]
    drives: Vec<Spec>,
    /// All buffer devices of the pool
    #[arg(long = "buffer", value_name = "SPEC", num_args = 1.., value_parser = parse::spec)]
    buffers: Vec<Spec>,
    #[command(flatten)]
    opening: PoolOpening,
    /// How long a missing drive is waited for, such as 90s or 10min; then its chunks are rebuilt [default: 10min]
    #[arg(long = "missing-grace", value_name = "TIME", value_parser = parse::within(parse::span, "0s", "365d"))]
    grace: Option<std::time::Duration>,
    /// How long a drive may answer nothing before it is taken out; one that the pool needs is waited for [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse::within(parse::patience, "1s", "1d"))]
    patience: Option<std::time::Duration>,
    /// Percent of maintenance's time that repair and sweeps get beside writes, from 1 to 90 [default: 20]
    #[arg(long, value_name = "PERCENT", value_parser = parse::number(1u8, 90))]
    repair_share: Option<u8>,
    /// Read and verify everything in the background within this time, such as 30d [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse::within(parse::days, "1d", "3650d"))]
    scrub_within: Option<std::time::Duration>,
    /// Where requests are answered [default: /run/esker/POOL.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// An address at which hosts reach exported volumes; may be repeated
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4420")]
    listen: Vec<SocketAddr>,
    /// An address at which hosts with a key for TLS reach them; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    listen_tls: Vec<SocketAddr>,
    /// A loopback address at which requests are answered, too: those with the token
    #[arg(long, value_name = "ADDRESS|PORT", requires = "api_token", value_parser = parse::listen)]
    api: Option<SocketAddr>,
    /// The file with the token; one is made where there is none
    #[arg(long, value_name = "FILE", requires = "api")]
    api_token: Option<PathBuf>,
    /// The processors that the process uses, such as 0-3,8 [default: all]
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
    /// Event loops of the target, each a thread [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = parse::threads)]
    workers: Option<usize>,
    /// Where to tell metrics, over HTTP: /metrics for Prometheus
    #[arg(long, value_name = "ADDRESS|PORT", default_value = "127.0.0.1:9420", value_parser = parse::listen)]
    metrics: SocketAddr,
    /// Memory for the pool's map [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::at_least(parse::memory, "1MiB"))]
    map: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse::time)]
    pub(crate) time: Option<std::time::Duration>,
}

impl PoolServeArgs {
    /// How the pool is served; `socket` is where requests are answered unless something else was said.
    pub(crate) fn options(&self, socket: PathBuf) -> PoolOptions {
        let pool = VolumeSpec::of_pool(&self.pool, &self.drives, &self.buffers);
        PoolOptions {
            pool: VolumeSpec {
                map: self.map,
                grace: self.grace,
                patience: self.patience,
                repair_share: self.repair_share,
                scrub: self.scrub_within,
                ..self.opening.of(pool)
            },
            socket: self.socket.clone().unwrap_or(socket),
            api: self.api.zip(self.api_token.clone()),
            listen: self.listen.clone(),
            listen_tls: self.listen_tls.clone(),
            workers: self.workers,
            cpus: self.cpus.as_ref().map(|cpus| cpus.0.clone()).unwrap_or_default(),
            metrics: self.metrics,
            commit: COMMIT,
        }
    }
}

/// How something is changed, and where.
#[derive(Args)]
pub(crate) struct Change {
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Wait until nothing is left to do: everything moved, verified or swept
    #[arg(long)]
    pub(crate) wait: bool,
    /// The id of this change, your own: repeated with it, it is made once, and gives the first answer
    #[arg(long, value_name = "ID", value_parser = operation_id)]
    pub(crate) operation: Option<String>,
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

/// Whether names may have it.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.:".contains(c)
}

/// The name of a pool, a volume or a snapshot.
pub(super) fn name(text: &str) -> Result<String, String> {
    match text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "'{text}' is no name: ASCII letters, digits and - _ . : are, beginning with a letter or a digit"
        )),
    }
}
