//! The command line's grammar. Help, man pages and completions all come from here.

mod attach;
mod bench;
mod cache;
mod experiment;
mod fdp;
mod kv;
mod memory;
mod metrics;
pub(crate) mod parse;
mod pool;
mod pooled;
mod rate;
pub(crate) mod replay;
mod run;
mod ssd;
mod target;
mod trace;
mod volume;

use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use esker_kv::Options;

pub(crate) use attach::{AttachArgs, AttachTo, DetachArgs};
pub(crate) use bench::{
    DemoArgs, DeviceArgs, KeyOrderArg, MediaArgs, PatternArg, RequestArg, YcsbArgs,
};
pub(crate) use cache::{CacheCommand, CacheDevices};
pub(crate) use experiment::ExperimentArgs;
pub(crate) use fdp::FdpArgs;
pub(crate) use kv::{CopyArgs, Escaped, KvCommand, Opening};
pub(crate) use memory::MemoryArgs;
pub(crate) use metrics::MetricsArgs;
pub(crate) use parse::{Medium, Staging};
#[cfg(any(test, fuzzing))]
pub(crate) use pool::Cpus;
pub(crate) use pool::{
    Change, Explained, NewDevice, PoolCommand, PoolCreateArgs, PoolServeArgs, VolumeName, Where,
};
pub(crate) use pooled::PooledArgs;
pub(crate) use replay::{AdviseArgs, CacheSize, PolicyArg, ReplayArgs, SetSize};
pub(crate) use run::{AllocatorArg, RunArgs};
pub(crate) use ssd::{
    AllArgs, CompareArgs, Division, FlashCacheArgs, HostSsdArgs, HostSsdSideArgs, HseArgs,
    LabCommand, NamespaceCommand, PlanArgs, SsdCommand,
};
pub(crate) use target::{
    AnaArg, HostCommand, PortalCommand, ServeArgs, ServedCommand, TargetAt, TargetChange,
    TargetCommand, WriteCache,
};
pub(crate) use trace::{MrcArgs, SampleArg, TraceCommand, TraceInput};
pub(crate) use volume::VolumeCommand;

/// The command line.
#[derive(Parser)]
#[command(
    name = "esker",
    version,
    about = "A flash-native storage stack: a key-value engine on two media classes, and the \
             laboratory that measures it",
    after_help = "Examples:\n  \
        esker demo                                see it work, about a minute\n  \
        esker kv create /data/db --staging        create a database\n  \
        esker kv put /data/db default hello world\n  \
        esker kv get /data/db default hello\n  \
        esker bench ycsb --workload load,a,c      measure\n  \
        esker demo --capacity 'ssd:micron-5210?capacity=4GiB'   on a model of a QLC drive\n\n\
        Exit codes: 0 done, 1 a key is absent, 64 wrong usage, 65 damaged data, 66 not found,\n\
        69 unsupported, 73 exists already or no space, 74 I/O error, 75 try later,\n\
        77 in use by another process, 130 or 143 ended by SIGINT or SIGTERM.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// How long an answer of a process that serves a pool may take [default: 10min]
    #[arg(long, value_name = "TIME", global = true, hide_short_help = true)]
    #[arg(value_parser = parse::within(parse::time, "1ms", "1d"))]
    pub(crate) timeout: Option<Duration>,
    /// Write neither notes nor progress on standard error, only errors; `run`: no figures at the end
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Load a temporary database, run workloads A to F of YCSB on it, and show what they cost
    Demo(DemoArgs),
    /// Measure
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Work with a key-value database
    #[command(subcommand)]
    Kv(KvCommand),
    /// Serve devices over the network (NVMe/TCP)
    #[command(subcommand)]
    Target(TargetCommand),
    /// Make a device a file and a block device of this machine (FUSE, loop)
    Attach(AttachArgs),
    /// End what `esker attach` has made, or clear away what is left of it after a crash
    Detach(DetachArgs),
    /// Run a program with more memory than DRAM
    Run(RunArgs),
    /// Put a flash device in front of a slow one
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Pool drives
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Work with the volumes of a pool
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Work with drives in software
    #[command(subcommand)]
    Ssd(SsdCommand),
    /// Work with traces of block I/O
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Run an experiment
    #[command(subcommand)]
    Lab(LabCommand),
    /// Write the man pages to a directory
    #[command(after_help = "Example:\n  esker man /usr/local/share/man/man1")]
    Man {
        /// The directory, which must exist
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Print the completions for a shell
    #[command(
        after_help = "Example:\n  esker completions bash > ~/.local/share/bash-completion/completions/esker"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// The definition of the command line.
pub(crate) fn command() -> clap::Command {
    taking_negative_numbers(Cli::command())
}

/// The command line of this process.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches()?)
}

/// `-5` is a wrong number or a key, and no option: its parser says the right form.
fn taking_negative_numbers(command: clap::Command) -> clap::Command {
    command.allow_negative_numbers(true).mut_subcommands(taking_negative_numbers)
}

/// The benchmarks.
#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// The workloads of YCSB: the load, and A to F
    Ycsb(Box<YcsbArgs>),
    /// A load on any device: reads, writes and discards by a mix, or a block trace
    Device(Box<DeviceArgs>),
}

/// The memory budget below which the durability window shrinks with it.
const DURABILITY_SHARE: u64 = 4;

/// The engine's options from those given; the rest is the engine's default.
pub(crate) fn engine_options(
    memory_bytes: u64,
    durability_ms: Option<u64>,
    durability_bytes: Option<u64>,
) -> Options {
    let defaults = Options::default();
    let fitting = defaults.durability.bytes.min(memory_bytes / DURABILITY_SHARE);
    defaults.with(|set| {
        set.memory_bytes = memory_bytes;
        set.durability.ms = durability_ms.unwrap_or(set.durability.ms);
        set.durability.bytes = durability_bytes.unwrap_or(fitting);
    })
}

#[cfg(test)]
mod nonsense;

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::net::SocketAddr;
    use std::path::PathBuf;
    use std::time::Duration;

    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }

    /// Words mean the same with every command. Those of earlier versions still do, and no help shows them.
    #[test]
    fn words_are_those_of_one_language_and_old_ones_are_taken() {
        for (old, new) in [
            ("demo --seconds 2 --report r.html", "demo --for 2s --report r.html"),
            ("lab fdp --html r.html", "lab fdp --report r.html"),
            ("lab plan p.toml --html r.html --json -", "lab plan p.toml --report r.html --json"),
            ("lab pooled --seconds 90 --warm-up 60", "lab pooled --for 1.5min --warm-up 1min"),
            ("trace mrc a.trace --html r.html", "trace mrc a.trace --report r.html"),
            (
                "trace record /dev/loop0 -o t --seconds 60",
                "trace record /dev/loop0 -o t --for 1min",
            ),
            (
                "bench ycsb --durability-ms 50 --seconds 8",
                "bench ycsb --durability 50ms --for 8000ms",
            ),
            ("bench device null:1GiB --depth 1000", "bench device null:1GiB --depth 1k"),
            ("kv get db a b --durability-ms 1000", "kv get db a b --durability 1s"),
            ("kv backup db copy --staging=d", "kv backup db copy --staging d"),
            ("cache create f o --map linear", "cache create f o --mapping linear"),
            ("cache set f --dirty-age 60", "cache set f --dirty-age 1min"),
            (
                "pool serve p --drives a --metrics 127.0.0.1:1",
                "pool serve p --drives a --metrics 1",
            ),
            (
                "volume create p/v --size 1GiB --iops 20000",
                "volume create p/v --size 1GiB --iops 20k",
            ),
            ("lab flash-cache --requests 100000", "lab flash-cache --requests 100k"),
        ] {
            let read = |line: &str| {
                let words = ["esker"].into_iter().chain(line.split_whitespace());
                let matches = super::command().try_get_matches_from(words);
                matches.unwrap_or_else(|error| panic!("{line}: {error}"))
            };
            fn value<T: Debug + Clone + Send + Sync + 'static>(
                matches: &clap::ArgMatches,
                id: &str,
            ) -> Option<String> {
                matches.try_get_one::<T>(id).ok()?.map(|value| format!("{value:?}"))
            }
            let last = |line: &str| {
                let mut matches = read(line);
                let mut all = Vec::new();
                while let Some((_, inner)) = matches.remove_subcommand() {
                    matches = inner;
                }
                for id in matches.ids().map(clap::Id::as_str) {
                    let count = matches.get_raw(id).map(|raw| raw.count());
                    let numbers = [value::<u64>(&matches, id), value::<u32>(&matches, id)];
                    let others = [value::<Duration>(&matches, id), value::<PathBuf>(&matches, id)];
                    let more = [value::<usize>(&matches, id), value::<SocketAddr>(&matches, id)];
                    all.push((id.to_owned(), count, numbers, others, more));
                }
                all
            };
            assert_eq!(last(old), last(new), "{old}");
        }
        let hidden = ["--html", "--seconds", "--durability-ms"];
        let mut commands = vec![super::command()];
        while let Some(mut command) = commands.pop() {
            let help = command.render_long_help().to_string();
            assert!(!hidden.iter().any(|word| help.contains(word)), "{help}");
            commands.extend(command.get_subcommands().cloned());
        }
    }
}
