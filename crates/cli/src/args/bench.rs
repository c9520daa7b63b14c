//! The arguments of `esker demo` and `esker bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use esker_bench::Workload;
use esker_kv::Compression;
use esker_stack::Spec;

use super::metrics::{LiveArgs, MetricsArgs};
use super::parse::{self, Medium, Staging};

/// `esker demo`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker demo\n  \
        esker demo --records 10M --memory 1GiB --db /mnt/flash/demo\n  \
        esker demo --staging /mnt/optane --capacity /mnt/qlc --json demo.json\n  \
        esker demo --staging 'ssd:optane-p4800x?capacity=2GiB' \\\n    \
        --capacity 'ssd:micron-5210?capacity=4GiB'")]
pub(crate) struct DemoArgs {
    /// How many records of 1,000 bytes to load
    #[arg(long, default_value = "1M", value_name = "COUNT")]
    #[arg(value_parser = parse::within(parse::count, "1", "1000G"))]
    pub(crate) records: u64,
    /// Keep the database in this directory, which must not hold one yet [default: a temporary
    /// one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) media: MediaArgs,
    /// How long each workload runs
    #[arg(long = "for", alias = "seconds", default_value = "8s", value_name = "TIME", value_parser = parse::time)]
    pub(crate) seconds: Duration,
    /// Client threads [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
    /// The memory budget of the engine
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = parse::memory)]
    pub(crate) memory: u64,
    /// Write all figures as JSON to this file, or to standard output where none is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
    /// Where the report, one HTML file, goes
    #[arg(long, default_value = "esker-report.html", value_name = "FILE")]
    pub(crate) report: PathBuf,
    #[command(flatten)]
    pub(crate) telling: MetricsArgs,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
}

/// Where a new database puts its media classes.
#[derive(Args)]
pub(crate) struct MediaArgs {
    /// Where the staging class of a new database goes: a directory, a new file, a raw block
    /// device, a device specification, or none [default: a file in the database's directory]
    #[arg(long, default_value = "", hide_default_value = true, value_name = "DEVICE|none")]
    #[arg(value_parser = Staging::parse)]
    pub(crate) staging: Staging,
    /// Where the capacity class of a new database goes: a directory, a new file, a raw block
    /// device, or a device specification [default: a file in the database's directory]
    #[arg(long, value_name = "DEVICE", value_parser = Medium::parse)]
    pub(crate) capacity: Option<Medium>,
}

/// `esker bench ycsb`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker bench ycsb --records 5M --for 30s\n  \
        esker bench ycsb --db /mnt/flash/db --workload load --records 100M\n  \
        esker bench ycsb --db /mnt/flash/db --workload b,c --rate 20k --warm-up 10 --report b.html")]
pub(crate) struct YcsbArgs {
    /// Which workloads to run, in this order: load, a, b, c, d, e, f
    #[arg(
        long,
        short,
        value_delimiter = ',',
        default_value = "load,a,b,c,d,e,f",
        value_name = "NAMES",
        value_parser = parse::workload
    )]
    pub(crate) workload: Vec<Workload>,
    /// The database: a new directory, or a database that an earlier run loaded [default: a
    /// temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) media: MediaArgs,
    /// How many records the load inserts [default: 1M, or what the database holds]
    #[arg(long, value_name = "COUNT", value_parser = parse::within(parse::count, "1", "1000G"))]
    pub(crate) records: Option<u64>,
    /// Bytes per record, as one value [default: 1000]
    #[arg(long, value_name = "SIZE")]
    #[arg(value_parser = parse::within(parse::bytes, "1", "1MiB"))]
    #[arg(conflicts_with_all = ["fields", "field_bytes"])]
    pub(crate) value_bytes: Option<u64>,
    /// Fields per record; a record is one value, its fields side by side
    #[arg(long, value_name = "COUNT", value_parser = parse::within(parse::small_count, "1", "1M"))]
    pub(crate) fields: Option<u32>,
    /// Bytes per field
    #[arg(long, value_name = "SIZE", value_parser = parse::within(parse::bytes, "1", "1MiB"))]
    pub(crate) field_bytes: Option<u64>,
    /// How much of each value is zeroes, in percent
    #[arg(long, default_value_t = 0, value_name = "PERCENT")]
    #[arg(value_parser = parse::number(0u8, 100))]
    pub(crate) compressible: u8,
    /// How the values of a new database are compressed when they age: none, lz4, zstd or auto
    #[arg(long, default_value_t)]
    pub(crate) compression: Compression,
    /// Client threads [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
    /// End each workload after this many operations
    #[arg(long, value_name = "COUNT", value_parser = parse::within(parse::count, "1", "1000G"))]
    pub(crate) operations: Option<u64>,
    /// End each workload after this time [default: 10s, unless --operations is given]
    #[arg(long = "for", alias = "seconds", value_name = "TIME", value_parser = parse::time)]
    pub(crate) seconds: Option<Duration>,
    /// Operations a second of all threads together; latency then counts from the moment an
    /// operation should have started [default: as fast as possible]
    #[arg(long, value_name = "RATE", value_parser = parse::rate)]
    pub(crate) rate: Option<f64>,
    /// How long each workload runs before it is measured
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = parse::time_or_zero)]
    pub(crate) warm_up: Duration,
    /// Which records are asked for [default: each workload's own]
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) distribution: Option<RequestArg>,
    /// The skew of the zipfian and latest distributions, between 0 and 1 [default: 0.99]
    #[arg(long, value_name = "SKEW", value_parser = parse::theta)]
    pub(crate) theta: Option<f64>,
    /// In which order records are inserted, seen by key
    #[arg(long, value_enum, default_value_t = KeyOrderArg::Hashed, value_name = "ORDER")]
    pub(crate) key_order: KeyOrderArg,
    /// Verify every value that is read
    #[arg(long)]
    pub(crate) verify: bool,
    /// Wait after each run until maintenance has nothing left to do
    #[arg(long)]
    pub(crate) settle: bool,
    /// The memory budget of the engine
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = parse::memory)]
    pub(crate) memory: u64,
    #[command(flatten)]
    pub(crate) durability: DurabilityArgs,
    /// The seed of all random choices
    #[arg(long, default_value_t = 42, value_name = "NUMBER", value_parser = parse::seed)]
    pub(crate) seed: u64,
    /// Write all figures as JSON to this file, or to standard output where none is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report, one HTML file, here
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) telling: MetricsArgs,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
}

/// `esker bench device`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker bench device 'ssd:micron-5210?capacity=4GiB&time=virtual' --reads 70 --fill\n  \
        esker bench device /dev/nvme0n1 --depth 64 --threads 4\n  \
        esker bench device 'ssd:micron-7450?capacity=2GiB&time=none&fdp=on' --reads 0 --pattern zipfian \\\n    \
        --streams 4 --fill --bytes 20GiB\n  \
        esker bench device /dev/sdb --trace mysql.trace --in-time --overwrite")]
pub(crate) struct DeviceArgs {
    /// The device, by its specification
    #[arg(value_name = "DEVICE", value_parser = parse::spec)]
    pub(crate) device: Spec,
    /// Of 100 requests, how many read
    #[arg(long, default_value_t = 100, value_name = "PERCENT")]
    #[arg(value_parser = parse::number(0u32, 100))]
    pub(crate) reads: u32,
    /// Of 100 requests, how many discard; all others write
    #[arg(long, default_value_t = 0, value_name = "PERCENT")]
    #[arg(value_parser = parse::number(0u32, 100))]
    pub(crate) discards: u32,
    /// Sizes of requests, each with a weight if it is not 1
    #[arg(long, default_value = "4KiB", value_delimiter = ',', value_name = "SIZE[:WEIGHT]")]
    #[arg(value_parser = parse::weighted_size)]
    pub(crate) size: Vec<(u64, u32)>,
    /// Which addresses are asked for
    #[arg(long, value_enum, default_value_t = PatternArg::Uniform, value_name = "NAME")]
    pub(crate) pattern: PatternArg,
    /// The skew of the zipfian pattern, between 0 and 1 [default: 0.99]
    #[arg(long, value_name = "SKEW", value_parser = parse::theta)]
    pub(crate) theta: Option<f64>,
    /// Requests that each thread keeps in flight
    #[arg(long, default_value_t = 32, value_name = "COUNT")]
    #[arg(value_parser = parse::within(parse::length, "1", "32768"))]
    pub(crate) depth: usize,
    /// Threads, each with a queue pair of its own
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = parse::threads)]
    pub(crate) threads: usize,
    /// Use the first so many bytes of the device [default: all]
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
    pub(crate) span: Option<u64>,
    /// Divide them into so many parts whose writes carry a placement identifier each
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    #[arg(value_parser = parse::number(0, u16::MAX))]
    pub(crate) streams: u16,
    /// A flush after so many writes of a thread [default: none]
    #[arg(long, value_name = "COUNT", value_parser = parse::within(parse::count, "1", "1000G"))]
    pub(crate) flush_every: Option<u64>,
    /// Requests a second of all threads together; latency then counts from when a request was due [default: as many
    /// as possible]
    #[arg(long, value_name = "RATE", value_parser = parse::rate)]
    pub(crate) rate: Option<f64>,
    /// End after this time of the device [default: 10s, unless --bytes or --trace is given]
    #[arg(long = "for", alias = "seconds", value_name = "TIME", value_parser = parse::time)]
    pub(crate) seconds: Option<Duration>,
    /// End after so many bytes
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
    pub(crate) bytes: Option<u64>,
    /// Write all of it once first, in order
    #[arg(long)]
    pub(crate) fill: bool,
    /// Replay a block trace instead, in its order; may be repeated. Addresses beyond the device wrap around
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["reads", "discards", "pattern", "theta", "rate", "flush_every"])]
    pub(crate) trace: Vec<PathBuf>,
    /// Send the trace's requests when they were recorded, so many times faster
    #[arg(long, value_name = "TIMES", num_args = 0..=1, default_missing_value = "1", requires = "trace")]
    #[arg(value_parser = parse::times)]
    pub(crate) in_time: Option<f64>,
    /// Agree that what is on the device is lost
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1, value_name = "NUMBER", value_parser = parse::seed)]
    pub(crate) seed: u64,
    /// Write all figures as JSON to this file, or to standard output where none is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report, one HTML file, here
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) telling: MetricsArgs,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
}

/// Which addresses a load asks for.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum PatternArg {
    /// Each thread one after the other, in a part of its own
    Sequential,
    /// All alike
    Uniform,
    /// A few much more than the others, lying anywhere
    Zipfian,
}

/// When writes become durable.
#[derive(Args)]
pub(crate) struct DurabilityArgs {
    /// A write is durable this long after its acknowledgement; 0: before it [default: 100ms]
    #[arg(long = "durability", alias = "durability-ms", value_name = "TIME")]
    #[arg(value_parser = parse::within(parse::milliseconds, "0s", "1d"))]
    pub(crate) durability_ms: Option<u64>,
    /// At most this many acknowledged bytes are not durable yet [default: 8MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::memory_or_zero)]
    pub(crate) durability_bytes: Option<u64>,
}

/// A request distribution.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum RequestArg {
    /// Every record alike
    Uniform,
    /// A few records much more than the others, scattered over all keys, as YCSB does it
    Zipfian,
    /// The newest records most
    Latest,
}

/// The order of keys.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum KeyOrderArg {
    /// Neighbours in time are scattered over all keys
    Hashed,
    /// Keys ascend as they are inserted
    Ordered,
}
