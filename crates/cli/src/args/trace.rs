//! The arguments of `esker trace`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use esker_trace::{Columns, Event, Format};

use super::parse;
use super::replay::{AdviseArgs, ReplayArgs};

/// `esker trace`
#[derive(Subcommand)]
pub(crate) enum TraceCommand {
    /// Show what a trace consists of: requests, footprint, hot blocks, reuse
    #[command(after_help = "Examples:\n  \
            esker trace info mysql.csv.gz\n  \
            esker trace info pgbench.blktrace.0 pgbench.blktrace.1 --json\n  \
            esker trace info oltp.lis --unit 4KiB\n  \
            esker trace info cluster.csv --format csv --columns time=2,id=5,size=4\n\n\
            State is kept of each different block: some 80 bytes with reuse distances, 30 without, and up to \
            three times that while it grows. --sample keeps it of a share of the blocks.")]
    Info {
        #[command(flatten)]
        input: TraceInput,
        #[command(flatten)]
        sample: SampleArg,
        /// Leave out reuse distances, which take most of the time
        #[arg(long)]
        no_reuse: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a trace in the compact format, a few bytes a request
    #[command(after_help = "Example:\n  esker trace convert pgbench.blktrace -o pgbench.trace")]
    Convert {
        #[command(flatten)]
        input: TraceInput,
        /// The new file
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
    },
    /// Show what a cache of any size would miss
    Mrc(MrcArgs),
    /// Simulate caches: what policies, sizes and geometries would have done
    Replay(ReplayArgs),
    /// Propose a cache's size, policy and geometry, with the reasons
    Advise(AdviseArgs),
    /// Record what a block device is asked, by the kernel's tracing
    #[command(after_help = "Examples:\n  \
            esker trace record /dev/nvme0n1 --for 60s -o nvme.trace\n  \
            esker trace record /dev/sdb -o tar.trace -- tar cf /mnt/a.tar /home\n\n\
            Needs root and tracefs (mount -t tracefs nodev /sys/kernel/tracing). Offsets are those of \
            the whole disk. Uses a tracing instance of its own, which is removed at the end; one that \
            a killed recording left is removed by the next.")]
    Record {
        /// The block device, such as /dev/loop0
        device: PathBuf,
        /// How long, if nobody interrupts it [default: 10s, or until the command has ended]
        #[arg(long = "for", alias = "seconds", value_name = "TIME", value_parser = parse::time)]
        seconds: Option<Duration>,
        /// The new file, in the compact format
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
        /// The kernel's buffer for each processor; what does not fit is lost, and counted
        #[arg(long, value_name = "SIZE", default_value = "16MiB")]
        #[arg(value_parser = parse::within(parse::bytes, "4KiB", "1GiB"))]
        buffer: u64,
        /// A command that is run meanwhile; the recording ends with it
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
}

/// A sample of a trace.
#[derive(Args)]
pub(crate) struct SampleArg {
    /// Keep state of this share of the blocks alone, chosen by a hash, such as 1% or 0.01: figures of
    /// different blocks and of caches are estimates then
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) sample: Option<f64>,
}

fn share(text: &str) -> Result<f64, String> {
    let found = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    match found {
        Ok(share) if (1e-6..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("'{text}' is no share; give 0.000001 to 1, for example 1% or 0.01")),
    }
}

/// A trace in one or several files, and how it is read.
#[derive(Args)]
pub(crate) struct TraceInput {
    /// The files, merged by time; NAME stands for NAME.blktrace.0, NAME.blktrace.1, ... too. They may be
    /// compressed: .zst, .xz, .gz, .bz2
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The format: esker, blktrace, blkparse, msr, spc, vscsi, oracle-general, alibaba, tencent, lis,
    /// disksim, systor, fiu, cachelib, twitter, object-store, lcs, csv, txt or u32le [default: what the
    /// content looks like]
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<Format>,
    /// The bytes of a unit of address, where the format leaves it open [default: 512 for lis, 4KiB for
    /// u32le and for objects, each of which is one unit, whatever its size]
    #[arg(long, value_name = "SIZE", value_parser = parse::within(parse::bytes, "1", "1MiB"))]
    pub(crate) unit: Option<u64>,
    /// The columns of csv, counted from 1: time=1,id=2,size=3,op=4, of which id is needed [default: those that
    /// its header names]
    #[arg(long, value_name = "LIST")]
    pub(crate) columns: Option<Columns>,
    /// Which events of blktrace and blkparse are requests
    #[arg(long, value_enum, default_value = "queue")]
    pub(crate) event: EventArg,
}

/// Events of blktrace.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum EventArg {
    /// Q: a request enters the block layer
    Queue,
    /// D: a request goes to the driver
    Issue,
    /// C: a request is complete
    Complete,
}

impl From<EventArg> for Event {
    fn from(event: EventArg) -> Event {
        match event {
            EventArg::Queue => Event::Queue,
            EventArg::Issue => Event::Issue,
            EventArg::Complete => Event::Complete,
        }
    }
}

/// `esker trace mrc`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker trace mrc mysql.trace\n  \
        esker trace mrc mysql.trace --sampled --report mrc.html\n  \
        esker trace mrc mysql.trace --sizes 256MiB,1GiB,4GiB --optimum\n\n\
        Exact curves keep some 60 bytes of each different block, and up to three times that while a table grows; \
        the optimum another 24 of each reference. --sampled takes the same few MiB for any trace.")]
pub(crate) struct MrcArgs {
    #[command(flatten)]
    pub(crate) input: TraceInput,
    /// Estimate from samples (SHARDS) of so many 4 KiB blocks each, in constant memory, with the error of
    /// sampling
    #[arg(long, value_name = "BLOCKS", num_args = 0..=1, default_missing_value = "8192",
          value_parser = parse::within(parse::small_count, "1", "100M"))]
    pub(crate) sampled: Option<u32>,
    /// The optimum with the future known, too (Belady, without bypass: every block that is missed is taken in); of a
    /// long trace this takes minutes
    #[arg(long, conflicts_with = "sampled")]
    pub(crate) optimum: bool,
    /// The caches' sizes [default: from a thousandth of the footprint to all of it]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = parse::within(parse::bytes, "4KiB", "1024PiB"))]
    pub(crate) sizes: Vec<u64>,
    /// How many sizes, unless they are given
    #[arg(long, value_name = "COUNT", default_value = "24",
          value_parser = parse::number(2u32, 1000))]
    pub(crate) points: u32,
    /// Write a chart, one HTML file, here
    #[arg(long, alias = "html", value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write the figures as JSON to this file, or to standard output where none is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
}
