//! The command line.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};
use esker_base::units::parse_bytes;
use esker_bench::Workload;

use crate::engine::{Engine, PeersLog};
use crate::failure::{Failure, Result};

/// Esker beside RocksDB, fjall and LMDB: the same workloads, generator, threads, memory and
/// durability, each engine and round in a process of its own.
#[derive(Debug, Parser)]
#[command(name = "bench-compare", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure: tables on standard output, progress on standard error
    Run(Box<RunArgs>),
    /// Make one report of the figures of earlier runs
    Report(ReportArgs),
    /// One engine on a new directory, phase by phase as lines of standard input ask for them
    Phases(PhasesArgs),
    /// One engine, one round; reads its job from standard input
    #[command(hide = true)]
    Child,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Records to load
    #[arg(long, default_value_t = 6_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    pub(crate) records: u64,
    /// Memory that an engine and its page cache may take together, enforced by a memory cgroup;
    /// none for the whole machine
    #[arg(long, default_value = "2GiB", value_parser = memory)]
    pub(crate) memory: Memory,
    /// Where the logs of RocksDB and fjall are when a write returns
    #[arg(long, value_enum, default_value_t)]
    pub(crate) peers_log: PeersLog,
    /// Engines to run
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Engine::ALL)]
    pub(crate) engines: Vec<Engine>,
    /// Workloads of YCSB to run after the load, which is always run; in this order
    #[arg(long, value_delimiter = ',', default_value = "A,B,C,F,D,E", value_parser = workload)]
    pub(crate) workloads: Vec<Workload>,
    /// Rounds: each runs every engine once, every second one in the opposite order
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..100))]
    pub(crate) rounds: u32,
    /// Seconds to measure each workload
    #[arg(long, default_value_t = 30.0, value_parser = some_seconds)]
    pub(crate) seconds: f64,
    /// Seconds to run each workload before measuring
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub(crate) warm_up: f64,
    /// Operations of each workload, at most
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) operations: Option<u64>,
    /// Client threads
    #[arg(long, default_value_t = 2, value_parser = RangedU64ValueParser::<usize>::new().range(1..=4_096))]
    pub(crate) threads: usize,
    /// Bytes of a value; nothing in them can be compressed
    #[arg(long, default_value_t = 1_000)]
    pub(crate) value_bytes: u32,
    /// Seconds after which a load is given up; the rate until then is reported
    #[arg(long, default_value_t = 1_200.0, value_parser = seconds)]
    pub(crate) load_seconds: f64,
    /// Seconds to wait for maintenance to come to rest after the load, at most
    #[arg(long, default_value_t = 60.0, value_parser = seconds)]
    pub(crate) settle_seconds: f64,
    /// The seed of all random choices
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// A directory for the databases, on the device to be measured; they are removed, and it too if
    /// it was not there
    #[arg(long, default_value = "bench-compare.scratch")]
    pub(crate) dir: PathBuf,
    /// Write the figures to this file, also after each engine
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Write the report to this file
    #[arg(long = "report", alias = "html")]
    pub(crate) html: Option<PathBuf>,
    /// A short run that shows that everything works; its figures mean little
    #[arg(long)]
    pub(crate) smoke: bool,
}

impl RunArgs {
    /// Refuses a name that is given twice: each workload has one place in a trial, each engine in a
    /// round.
    pub(crate) fn without_repeats(self) -> Result<RunArgs> {
        let engines: Vec<&str> = self.engines.iter().map(|engine| engine.title()).collect();
        let workloads: Vec<&str> = self.workloads.iter().map(|workload| &*workload.name).collect();
        for (flag, names) in [("--engines", engines), ("--workloads", workloads)] {
            let repeats = |(at, name): &(usize, &&str)| names[..*at].contains(name);
            if let Some((_, name)) = names.iter().enumerate().find(repeats) {
                return Err(Failure::new(format!(
                    "{flag} names {name} twice; name each once, and give --rounds for more of all"
                )));
            }
        }
        Ok(self)
    }

    /// The same, small, where `--smoke` asks for it.
    pub(crate) fn smoked(mut self) -> RunArgs {
        if self.smoke {
            self.records = 100_000;
            self.memory = Memory(Some(256 << 20));
            self.rounds = 1;
            self.seconds = 0.8;
            self.warm_up = 0.2;
            self.settle_seconds = 3.0;
        }
        self
    }
}

#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Files written by `run --json`, of runs that differ in engines, workloads and rounds only
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Write the figures of all to this file
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Write the report to this file
    #[arg(long = "report", alias = "html")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct PhasesArgs {
    /// The engine
    #[arg(long, value_enum, default_value = "blobdb")]
    pub(crate) engine: Engine,
    /// The directory for the database, which is made
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Records to load
    #[arg(long, value_parser = clap::value_parser!(u64).range(1_000..))]
    pub(crate) records: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 1_000)]
    pub(crate) value_bytes: u32,
    /// Memory by which caches and memtables are sized; the program that starts this enforces it
    #[arg(long, value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Where the logs of RocksDB and fjall are when a write returns
    #[arg(long, value_enum, default_value_t)]
    pub(crate) peers_log: PeersLog,
    /// Client threads
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..=4_096))]
    pub(crate) threads: usize,
    /// The seed of all random choices
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
}

/// A limit in bytes, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory(pub(crate) Option<u64>);

/// Below this RocksDB's smallest memtables and the process leave nothing for caches.
const MEMORY_MIN: u64 = 128 << 20;

fn memory(text: &str) -> std::result::Result<Memory, String> {
    if text == "none" {
        return Ok(Memory(None));
    }
    let bytes = parse_bytes(text)?;
    if bytes < MEMORY_MIN {
        return Err("an engine needs 128 MiB; give more, or none for no limit".to_owned());
    }
    Ok(Memory(Some(bytes)))
}

fn workload(name: &str) -> std::result::Result<Workload, String> {
    let found = Workload::preset(name).filter(|found| found.name != Workload::load().name);
    found.ok_or_else(|| format!("'{name}' is no workload; give letters from A to F"))
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("'{text}' is no number of seconds"))?;
    let fits = (0.0..=86_400.0).contains(&value);
    if fits { Ok(value) } else { Err(format!("{text} seconds; give 0 to 86,400")) }
}

/// A measurement shorter than this measures its own beginning and end.
const MEASURED_MIN_S: f64 = 0.01;

fn some_seconds(text: &str) -> std::result::Result<f64, String> {
    let value = seconds(text)?;
    let fits = value >= MEASURED_MIN_S;
    if fits { Ok(value) } else { Err(format!("{text} seconds; give {MEASURED_MIN_S} to 86,400")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> std::result::Result<RunArgs, String> {
        let words = ["bench-compare", "run"].iter().chain(args);
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Run(args) => Ok(args.without_repeats().map_err(|f| f.to_string())?.smoked()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_the_canonical_run() {
        let args = run(&[]).unwrap();
        assert_eq!((args.records, args.memory), (6_000_000, Memory(Some(2 << 30))));
        assert_eq!((args.engines.len(), args.threads, args.value_bytes), (7, 2, 1_000));
        let names: Vec<&str> = args.workloads.iter().map(|w| &*w.name).collect();
        assert_eq!(names, ["A", "B", "C", "F", "D", "E"]);
        assert_eq!(run(&["--memory", "none"]).unwrap().memory, Memory(None));
        assert_eq!(args.peers_log, PeersLog::Kernel);
        assert_eq!(run(&["--peers-log", "memory"]).unwrap().peers_log, PeersLog::Memory);
        assert!(run(&["--smoke"]).unwrap().seconds < 1.0);
    }

    #[test]
    fn impossible_runs_are_refused_with_a_reason() {
        for (args, why) in [
            (["--memory", "1MiB"], "needs 128 MiB"),
            (["--workloads", "A,load"], "letters from A to F"),
            (["--engines", "oracle"], "esker"),
            (["--seconds", "1e9"], "0 to 86,400"),
            (["--records", "5"], "1000"),
            (["--workloads", "C,A,C"], "--workloads names C twice"),
            (["--engines", "esker,esker"], "--engines names Esker twice"),
            (["--seconds", "0"], "give 0.01 to 86,400"),
            (["--operations", "0"], "1.."),
            (["--threads", "0"], "1..=4096"),
            (["--threads", "5000"], "1..=4096"),
        ] {
            let refusal = run(&args).unwrap_err();
            assert!(refusal.contains(why), "{refusal}");
        }
    }
}
