//! The arguments of `esker trace replay` and `esker trace advise`.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use esker_base::policy::Kind;
use esker_cache::replay::Mode;
use esker_cache::{Admission, Placement};

use super::parse;
use super::trace::{SampleArg, TraceInput};

/// `esker trace replay`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker trace replay mysql.trace\n  \
        esker trace replay mysql.trace --policy lru,arc,adaptive --size 10%,4GiB --sets one\n  \
        esker trace replay mysql.trace --policy fifo --sets 2MiB --mapping linear --json\n  \
        esker trace replay scan.trace --policy lru,adaptive --admit again --bypass 1MiB\n\n\
        Policies: fifo, lru, mid-75 (LRU with insertion at a percentile, 1 to 99), clock, 2q, arc, \
        lirs, w-tinylfu, sieve, s3-fifo, adaptive (the default of a cache), and belady, the optimum \
        with the future known, without bypass: every block that is missed is taken in.\n\n\
        The trace is held in memory: some 60 bytes a request, 30 a different block and 4 a reference, and more \
        for each cache that is simulated. --sample holds a share of its runs, and scales the caches.")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) input: TraceInput,
    #[command(flatten)]
    pub(crate) sample: SampleArg,
    /// The policies, or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "lru,adaptive,belady")]
    pub(crate) policy: Vec<PolicyArg>,
    /// The caches' sizes: bytes, or percent of the trace's footprint
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "5%,10%,20%,40%")]
    pub(crate) size: Vec<CacheSize>,
    /// The size of a set, or one: a single set, fully associative
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    pub(crate) sets: SetSize,
    /// How runs of the disk are dealt out to sets: hashed or linear
    #[arg(long, value_name = "NAME", default_value = "hashed")]
    pub(crate) mapping: Placement,
    /// The size of a run: a part of the disk that stays together in a set
    #[arg(long, value_name = "SIZE", default_value = "256KiB")]
    #[arg(value_parser = parse::within(parse::bytes, "4KiB", "16TiB"))]
    pub(crate) run: u64,
    /// Where writes go
    #[arg(long, value_enum, default_value = "wb")]
    pub(crate) mode: ModeArg,
    /// Which missed blocks are let in: all, again (missed before, lately), or auto (again while that
    /// misses no more)
    #[arg(long, value_name = "NAME", default_value = "all")]
    pub(crate) admit: Admission,
    /// Streams of sequential requests bypass the cache once they are this long [default: never]
    #[arg(long, value_name = "SIZE", value_parser = parse::within(parse::bytes, "4KiB", "16TiB"))]
    pub(crate) bypass: Option<u64>,
    /// How far is read ahead of a stream, at most [default: not at all]
    #[arg(long, value_name = "SIZE", value_parser = parse::within(parse::bytes, "4KiB", "16TiB"))]
    pub(crate) read_ahead: Option<u64>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `esker trace advise`
#[derive(Args)]
#[command(after_help = "Example:\n  esker trace advise mysql.trace\n\n\
        Simulates caches of many sizes, and at the size it proposes every policy and geometry. Memory as \
        esker trace replay.")]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    pub(crate) input: TraceInput,
    #[command(flatten)]
    pub(crate) sample: SampleArg,
    /// Where writes go
    #[arg(long, value_enum, default_value = "wb")]
    pub(crate) mode: ModeArg,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A policy, or all of them.
#[derive(Clone, Copy)]
pub(crate) enum PolicyArg {
    All,
    One(Kind),
}

impl FromStr for PolicyArg {
    type Err = String;

    fn from_str(text: &str) -> Result<PolicyArg, String> {
        if text == "all" { Ok(PolicyArg::All) } else { text.parse().map(PolicyArg::One) }
    }
}

/// A size in bytes, or in percent of the footprint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CacheSize {
    Bytes(u64),
    Percent(f64),
}

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheSize, String> {
        let Some(number) = text.strip_suffix('%') else {
            return parse::within(parse::bytes, "4KiB", "1024PiB")(text).map(CacheSize::Bytes);
        };
        match number.trim().parse::<f64>() {
            Ok(percent) if (0.001..=1_000.0).contains(&percent) => Ok(CacheSize::Percent(percent)),
            _ => Err(format!("'{text}' is no share of a footprint; give 0.001% to 1000%")),
        }
    }
}

impl fmt::Display for CacheSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheSize::Bytes(bytes) => f.write_str(&esker_base::units::human_bytes(*bytes)),
            CacheSize::Percent(percent) => write!(f, "{percent} %"),
        }
    }
}

/// The size of a set.
#[derive(Clone, Copy)]
pub(crate) enum SetSize {
    One,
    Bytes(u64),
}

impl FromStr for SetSize {
    type Err = String;

    fn from_str(text: &str) -> Result<SetSize, String> {
        if text == "one" {
            Ok(SetSize::One)
        } else {
            parse::within(parse::bytes, "4KiB", "16TiB")(text).map(SetSize::Bytes)
        }
    }
}

/// Where writes go.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ModeArg {
    /// Write-back: to the flash; to the disk later
    Wb,
    /// Write-through: to both
    Wt,
    /// Write-around: to the disk only
    Wa,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Mode {
        match mode {
            ModeArg::Wb => Mode::WriteBack,
            ModeArg::Wt => Mode::WriteThrough,
            ModeArg::Wa => Mode::WriteAround,
        }
    }
}
