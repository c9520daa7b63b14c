//! The arguments of `esker ssd` and `esker lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use esker_stack::Spec;

use super::experiment::ExperimentArgs;
use super::fdp::FdpArgs;
use super::memory::MemoryArgs;
use super::parse;
use super::pooled::PooledArgs;

/// `esker ssd`
#[derive(Subcommand)]
pub(crate) enum SsdCommand {
    /// Show the drives there are models of: published figures, sources, and what is assumed
    #[command(after_help = "Examples:\n  \
            esker ssd profiles\n  \
            esker ssd profiles micron-5210 --json")]
    Profiles {
        /// Only this one
        name: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a drive in a file
    #[command(after_help = "Examples:\n  \
            esker ssd create micron-7450 drive.img --capacity 8GiB\n  \
            esker ssd create micron-7450 drive.img --capacity 8GiB --namespaces 4 --fdp on\n  \
            esker ssd create 'micron-7450?op=0.07&cleaning=fifo' drive.img --capacity 8GiB\n  \
            esker ssd create disk:sata-7200 disk.img --capacity 64GiB\n\n\
            A namespace of it is a device wherever one can be given: 'ssd:?image=drive.img&nsid=2'.")]
    Create {
        /// The profile, as `esker ssd profiles` names it; or a whole device specification, of a disk too
        drive: String,
        /// The file, which must not exist
        image: PathBuf,
        #[command(flatten)]
        division: Division,
    },
    /// Show what has become of a drive: bytes, write amplification, units, wear, namespaces
    #[command(after_help = "Example:\n  esker ssd info drive.img")]
    Info {
        /// The drive's file
        image: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Make or delete a namespace of a drive
    #[command(subcommand)]
    Namespace(NamespaceCommand),
}

/// The size of a new drive, and who has what of it.
#[derive(Args)]
pub(crate) struct Division {
    /// The capacity that it offers: the profile scaled down, its behaviour kept
    #[arg(long, value_name = "SIZE")]
    pub(crate) capacity: Option<String>,
    /// How many namespaces of equal size it is divided into; 0 for none yet [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub(crate) namespaces: Option<String>,
    /// Data placement: on, off, or the index of a configuration [default: off]
    #[arg(long, value_name = "on|off|INDEX")]
    pub(crate) fdp: Option<String>,
    /// The reclaim unit handles of the namespaces: 0,1 for all of them, or 0,1/2,3 for each
    /// [default: all handles divided among them]
    #[arg(long, value_name = "LISTS")]
    pub(crate) handles: Option<String>,
}

/// `esker ssd namespace`
#[derive(Subcommand)]
pub(crate) enum NamespaceCommand {
    /// Make a namespace
    #[command(after_help = "Example:\n  \
            esker ssd namespace create drive.img --size 2GiB --handles 0,1")]
    Create {
        /// The drive's file
        image: PathBuf,
        /// Its size [default: the largest gap]
        #[arg(long, value_name = "SIZE", value_parser = parse::bytes)]
        size: Option<u64>,
        /// Its reclaim unit handles, of a drive with data placement [default: the first]
        #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse::number(0, u16::MAX))]
        handles: Vec<u16>,
    },
    /// Delete a namespace with what it holds
    #[command(after_help = "Example:\n  esker ssd namespace delete drive.img 2")]
    Delete {
        /// The drive's file
        image: PathBuf,
        /// Its number
        #[arg(value_parser = parse::number(1, u32::MAX - 1))]
        nsid: u32,
    },
}

/// `esker lab`
#[derive(Subcommand)]
pub(crate) enum LabCommand {
    /// Savings by data placement when several stores share a drive
    Fdp(FdpArgs),
    /// A flash cache as it was in 2013, is, and could be, on traces and a database's load
    FlashCache(FlashCacheArgs),
    /// The worth of a drive that the host manages, beside a conventional one of the same NAND
    HostSsd(HostSsdArgs),
    /// The worth to the engine of a staging drive in front of cheap flash
    Hse(HseArgs),
    /// All experiments one after another, as one report
    All(AllArgs),
    /// Two runs of the same experiment beside each other, by what changed most
    Compare(CompareArgs),
    /// One run of `host-ssd --real`, in a process of its own
    #[command(hide = true)]
    HostSsdSide(HostSsdSideArgs),
    /// Effects of staging, placement, a cache or a pool on your own load: alternatives of a file, compared
    Plan(PlanArgs),
    /// The worth to Cassandra of one pool of drives over the network, beside local drives
    Pooled(Box<PooledArgs>),
    /// The worth of paged memory to unchanged programs, beside the kernel's swap and zram
    Memory(MemoryArgs),
}

/// `esker lab compare`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker lab compare before.json after.json\n  \
        esker lab compare before.json after.json --least 0.2 --report changes.html\n\n\
        The files are what --json FILE of an experiment, of esker bench or of esker demo has written.")]
pub(crate) struct CompareArgs {
    /// The figures of the earlier run
    pub(crate) before: PathBuf,
    /// The figures of the later run
    pub(crate) after: PathBuf,
    /// List what differs by this share and more: 0.05 is 5 %
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = parse::number(0.0, 1e6))]
    pub(crate) least: f64,
    /// Write the comparison, one HTML file, here
    #[arg(long, alias = "html", value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write it as JSON to this file, or to standard output where none is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
}

/// `esker lab plan`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker lab plan plan.toml\n  \
        esker lab plan plan.toml --dry-run\n  \
        esker lab plan plan.toml --report plan.html --json plan.json\n\n\
        Results are kept by their inputs: after a change of the file only what it changes is run.\n\
        docs/plan.md has the format of the file, and three plans to begin with.")]
pub(crate) struct PlanArgs {
    /// The plan: drives, a load and alternatives, in TOML
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The folder in which results are kept [default: FILE.results]
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
    /// List the runs, which of them are kept, and about how long the others take; run nothing
    #[arg(long, conflicts_with = "report")]
    pub(crate) dry_run: bool,
    /// Runs in virtual time that are made at once [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
    /// Write the report, one HTML file, here
    #[arg(long, alias = "html", value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write all figures as JSON to this file, or to standard output where none is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
}

/// `esker lab host-ssd-side`, which `esker lab host-ssd --real` starts.
#[derive(Args)]
pub(crate) struct HostSsdSideArgs {
    /// The way to hold the table
    #[arg(long)]
    pub(crate) way: String,
    /// The file that holds the table
    #[arg(long)]
    pub(crate) table: PathBuf,
    /// The file to page to
    #[arg(long)]
    pub(crate) pages: PathBuf,
    /// Bytes of the table
    #[arg(long)]
    pub(crate) data: u64,
    /// Bytes of memory
    #[arg(long)]
    pub(crate) memory: u64,
    /// Lookups
    #[arg(long)]
    pub(crate) lookups: u64,
    /// The seed
    #[arg(long)]
    pub(crate) seed: u64,
    /// The cgroup to enter
    #[arg(long)]
    pub(crate) cgroup: Option<PathBuf>,
    /// The library umap
    #[arg(long)]
    pub(crate) umap: Option<PathBuf>,
}

/// `esker lab flash-cache`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker lab flash-cache\n  \
        esker lab flash-cache --traces /data/traces --report cache.html --json cache.json\n  \
        esker lab flash-cache --traces mysql.trace --no-load --sizes 10,20\n  \
        esker lab flash-cache --traces mysql.trace --no-load --disk /dev/sdb --flash /dev/nvme0n1 --erase")]
pub(crate) struct FlashCacheArgs {
    /// A trace, or a folder of traces; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) traces: Vec<PathBuf>,
    /// Leave out the load of a made-up database server
    #[arg(long)]
    pub(crate) no_load: bool,
    /// The size of its table
    #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = parse::bytes)]
    pub(crate) data: u64,
    /// Its transactions
    #[arg(long, value_name = "COUNT", default_value = "300k", value_parser = parse::within(parse::count, "1", "1G"))]
    pub(crate) transactions: u64,
    /// Sizes of the cache, in percent of what a workload touches
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "5,10,20,40")]
    #[arg(value_parser = parse::number(1u32, 100))]
    pub(crate) sizes: Vec<u32>,
    /// The most requests of a workload that are replayed
    #[arg(long, value_name = "COUNT", default_value = "20M", value_parser = parse::within(parse::length, "1", "1000G"))]
    pub(crate) requests: usize,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
    /// Replay each workload on this disk, too: alone, and behind Esker's cache on --flash
    #[arg(long, value_name = "DEVICE", value_parser = parse::spec, requires = "flash")]
    pub(crate) disk: Option<Spec>,
    /// The flash device of that cache
    #[arg(long, value_name = "DEVICE", value_parser = parse::spec, requires = "disk")]
    pub(crate) flash: Option<Spec>,
    /// Agree that what is on both devices is lost
    #[arg(long, requires = "disk")]
    pub(crate) erase: bool,
    /// The size of that cache, in percent of what the replayed requests touch
    #[arg(long, value_name = "PERCENT", default_value_t = 20, requires = "disk", value_parser = parse::number(1u32, 100))]
    pub(crate) real_size: u32,
    /// The most requests of a workload that are replayed there; the first half warms, the second is measured
    #[arg(long, value_name = "COUNT", default_value = "20k", value_parser = parse::within(parse::count, "1", "1000G"))]
    #[arg(requires = "disk")]
    pub(crate) real_requests: u64,
    /// Requests that are in flight there
    #[arg(long, value_name = "COUNT", default_value_t = 8, requires = "disk")]
    #[arg(value_parser = parse::within(parse::length, "1", "32768"))]
    pub(crate) real_depth: usize,
    #[command(flatten)]
    pub(crate) every: ExperimentArgs,
}

/// `esker lab host-ssd`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker lab host-ssd\n  \
        esker lab host-ssd --report host-ssd.html --json host-ssd.json\n  \
        esker lab host-ssd --device /dev/nvme0n1 --report host-ssd.html      # a drive of yours beside the models\n  \
        esker lab host-ssd --real /data --report host-ssd.html      # as root; also what is installed here\n  \
        esker lab host-ssd --depths 1,32 --threads 1,16 --reads 20k --lookups 20k --data 64MiB")]
pub(crate) struct HostSsdArgs {
    /// The size of the modelled drives
    #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = parse::bytes)]
    pub(crate) drive: u64,
    /// Reads that are timed at each depth
    #[arg(long, value_name = "COUNT", default_value = "200k", value_parser = parse::within(parse::count, "1", "1000G"))]
    pub(crate) reads: u64,
    /// How many reads are under way
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    #[arg(default_value = "1,2,4,8,16,32,64,128,256", value_parser = parse::number(1u32, 1024))]
    pub(crate) depths: Vec<u32>,
    /// Read this device, too, at random at each depth, in its own time; may be repeated, up to 4 times. It is never
    /// written: files and block devices are opened to read only
    #[arg(long, value_name = "DEVICE", value_parser = parse::spec)]
    pub(crate) device: Vec<Spec>,
    /// Reads of it that are timed at each depth, at most; a slow one is read for 10 s, or for 0.5 s for each read
    /// under way
    #[arg(long, value_name = "COUNT", default_value = "200k", value_parser = parse::within(parse::count, "1", "1000G"))]
    #[arg(requires = "device")]
    pub(crate) device_reads: u64,
    /// The size of the table that is paged; its memory is a quarter
    #[arg(long, value_name = "SIZE", default_value = "477MiB", value_parser = parse::bytes)]
    pub(crate) data: u64,
    /// Lookups of each run
    #[arg(long, value_name = "COUNT", default_value = "100k", value_parser = parse::within(parse::count, "1", "1000G"))]
    pub(crate) lookups: u64,
    /// Numbers of threads that look up and scan
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,4,16,64")]
    #[arg(value_parser = parse::number(1u32, 1024))]
    pub(crate) threads: Vec<u32>,
    #[command(flatten)]
    pub(crate) every: ExperimentArgs,
    /// Measure what is installed here, too, with files in this folder: the pager beside mmap, swap and umap, and
    /// DuckDB. Needs root; uses a swap file and a memory cgroup meanwhile, and undoes it
    #[arg(long, value_name = "DIR")]
    pub(crate) real: Option<PathBuf>,
    /// The size of the table there; its memory is a quarter
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse::bytes)]
    pub(crate) real_data: u64,
    /// Lookups of each run there
    #[arg(long, value_name = "COUNT", default_value = "20k", value_parser = parse::within(parse::count, "1", "1G"))]
    pub(crate) real_lookups: u64,
    /// Runs of each way there
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = parse::within(parse::small_count, "1", "99"))]
    pub(crate) rounds: u32,
    /// The library libumap.so [default: where the loader finds it]
    #[arg(long, value_name = "FILE")]
    pub(crate) umap: Option<PathBuf>,
    /// A Python that has DuckDB
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
}

/// How RocksDB is used, by the names of `bench-compare`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RocksdbAs {
    /// Values in blob files, through the page cache
    #[default]
    Blobdb,
    /// Values in the tree, through the page cache
    Rocksdb,
    /// Values in the tree, with direct I/O
    RocksdbDirect,
}

/// `esker lab hse`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker lab hse\n  \
        esker lab hse --quick --json hse.json\n  \
        esker lab hse --rocksdb compare/target/compare/bench-compare\n  \
        esker lab hse --records 100M --erase --staging /dev/nvme0n1 \\\n    \
        --capacity /dev/nvme1n1 --capacity /dev/nvme2n1")]
pub(crate) struct HseArgs {
    /// One round of a quarter of the operations, to see that it runs
    #[arg(long)]
    pub(crate) quick: bool,
    /// Records of 1,000 bytes; the engine's memory is an eighth of them, the staging class a quarter
    #[arg(long, value_name = "COUNT", default_value = "2M", value_parser = parse::within(parse::count, "1", "1000G"))]
    pub(crate) records: u64,
    /// Operations of each workload [default: as many as records]
    #[arg(long, value_name = "COUNT", value_parser = parse::within(parse::count, "1", "1000G"))]
    pub(crate) operations: Option<u64>,
    /// Clients
    #[arg(long, value_name = "COUNT", default_value_t = 96, value_parser = parse::threads)]
    pub(crate) threads: usize,
    /// Runs of each arm [default: 3, or 1 with --quick]
    #[arg(long, value_name = "COUNT", value_parser = parse::within(parse::small_count, "1", "99"))]
    pub(crate) rounds: Option<u32>,
    /// How many times slower than real time drives and engine are [default: calibrated]
    #[arg(long, value_name = "FACTOR", value_parser = parse::number(1u32, 10_000), conflicts_with = "capacity")]
    pub(crate) dilation: Option<u32>,
    /// Leave out workload E, as the source does
    #[arg(long)]
    pub(crate) no_scans: bool,
    /// A capacity drive, in place of the four models; repeated, they are striped
    #[arg(long, value_name = "DEVICE", value_parser = parse::spec, requires = "staging")]
    pub(crate) capacity: Vec<Spec>,
    /// The staging drive, in place of the model
    #[arg(long, value_name = "DEVICE", value_parser = parse::spec, requires = "capacity")]
    pub(crate) staging: Option<Spec>,
    /// Agree that what is on these drives is lost
    #[arg(long, requires = "capacity")]
    pub(crate) erase: bool,
    /// Run RocksDB on the modelled capacity drives, too, with a file system (needs root): the
    /// program bench-compare, which compare/run builds
    #[arg(long, value_name = "PROGRAM", conflicts_with = "capacity")]
    pub(crate) rocksdb: Option<PathBuf>,
    /// How RocksDB keeps values and reads files
    #[arg(long, value_name = "WAY", value_enum, default_value_t, requires = "rocksdb")]
    pub(crate) rocksdb_as: RocksdbAs,
    #[command(flatten)]
    pub(crate) every: ExperimentArgs,
}

/// `esker lab all`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker lab all\n  \
        esker lab all --dir /data/esker-lab --full --traces /data/traces\n  \
        esker lab all --only fdp,host-ssd\n\n\
        An experiment that is through is not run again with the same command: after a stop, the same line goes on.")]
pub(crate) struct AllArgs {
    /// Where results and the report go: made if need be
    #[arg(long, value_name = "DIR", default_value = "esker-lab")]
    pub(crate) dir: PathBuf,
    /// At full scale, with repetitions: hours
    #[arg(long)]
    pub(crate) full: bool,
    /// Only these: hse, fdp, host-ssd, flash-cache, pooled, memory
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// A trace, or a folder of traces, for flash-cache; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) traces: Vec<PathBuf>,
    /// Run everything again
    #[arg(long)]
    pub(crate) again: bool,
}
