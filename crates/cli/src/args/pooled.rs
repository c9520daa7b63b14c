//! The arguments of `esker lab pooled`.

use std::path::PathBuf;

use clap::Args;
use esker_lab::pooled::{OwnDrives, PooledOptions};
use esker_stack::Spec;

use super::experiment::ExperimentArgs;
use super::parse;

/// `esker lab pooled`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker lab pooled --quick                          a quarter of an hour, to see that all of it runs\n  \
        esker lab pooled --report pooled.html --json pooled.json\n  \
        esker lab pooled --survive --only-survive         a node killed and a drive failed under load\n  \
        esker lab pooled --erase --drive /dev/nvme0n1 --drive /dev/nvme1n1\n\n\
        Needs root, FUSE, loop devices, mkfs.ext4, memory cgroups of version 1, a JDK 17 and Maven.")]
pub(crate) struct PooledArgs {
    /// Nodes of Cassandra
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = parse::within(parse::small_count, "1", "16"))]
    pub(crate) nodes: u32,
    /// Drives of all nodes together
    #[arg(long, value_name = "COUNT", default_value = "4", value_parser = parse::within(parse::small_count, "1", "64"))]
    pub(crate) drives: u32,
    /// A drive, in place of the models; repeated for each, and as many for each node
    #[arg(long, value_name = "DEVICE", value_parser = parse::spec, requires = "erase")]
    #[arg(conflicts_with_all = ["drives", "dilation", "no_calibration", "keep", "survive"])]
    pub(crate) drive: Vec<Spec>,
    /// The write buffer of the pool, beside drives of one's own [default: on the drives]
    #[arg(long, value_name = "DEVICE", value_parser = parse::spec, requires = "drive")]
    pub(crate) buffer: Option<Spec>,
    /// Agree that what is on these drives is lost
    #[arg(long, requires = "drive")]
    pub(crate) erase: bool,
    /// Rows of all nodes together, of 1,000 bytes each [default: 2M, with --quick 600k]
    #[arg(long, value_name = "COUNT", value_parser = parse::within(parse::count, "1", "10G"))]
    pub(crate) records: Option<u64>,
    /// Operations a second of all nodes together, in ascending order; the unlimited rate comes after them
    /// [default: 250,500,1000,1500,2000, with --quick 100]
    #[arg(long, value_name = "RATES", value_delimiter = ',', value_parser = parse::within(parse::count, "1", "1000G"))]
    pub(crate) rates: Vec<u64>,
    /// How long each measurement takes [default: 60s, with --quick 15s]
    #[arg(long = "for", alias = "seconds", value_name = "TIME", value_parser = parse::within(parse::some_seconds, "1s", "1d"))]
    pub(crate) seconds: Option<u32>,
    /// How long the load runs before each measurement [default: 20s, with --quick 8s]
    #[arg(long, value_name = "TIME", value_parser = parse::within(parse::some_seconds, "1s", "1d"))]
    pub(crate) warm_up: Option<u32>,
    /// Repetitions [default: 3, with --quick 1]
    #[arg(long, value_name = "COUNT", value_parser = parse::within(parse::small_count, "1", "99"))]
    pub(crate) rounds: Option<u32>,
    /// Client threads of each node
    #[arg(long, value_name = "COUNT", default_value = "32", value_parser = parse::within(parse::small_count, "1", "4096"))]
    pub(crate) threads: u32,
    /// How many times slower than real the drives are; it is doubled until they are busy [default: 40, with --quick
    /// 640]
    #[arg(long, value_name = "TIMES", value_parser = parse::within(parse::small_count, "1", "1M"))]
    pub(crate) dilation: Option<u32>,
    /// Keep the dilation as it is said
    #[arg(long)]
    pub(crate) no_calibration: bool,
    /// The share of each value that a compressor can remove
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = parse::number(0.0, 0.95))]
    pub(crate) compressible: f64,
    /// The memory of each node, with its page cache: less than its rows and its heap, or drives have nothing to read
    /// [default: 1250MiB, with --quick 1000MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::memory)]
    pub(crate) memory: Option<u64>,
    /// The heap of each node [default: 768MiB, with --quick 640MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse::memory)]
    pub(crate) heap: Option<u64>,
    /// Leave out the controls beside A/A
    #[arg(long)]
    pub(crate) no_controls: bool,
    /// Kill a node and fail a drive under load, too, with three copies of each row and one parity
    #[arg(long)]
    pub(crate) survive: bool,
    /// Leave out the comparison
    #[arg(long, requires = "survive")]
    pub(crate) only_survive: bool,
    /// One short repetition with few rates and without controls; the report says so
    #[arg(long)]
    pub(crate) quick: bool,
    /// The folder of drives, logs and of what Maven builds
    #[arg(long, value_name = "DIR", default_value = "/var/tmp/esker-pooled")]
    pub(crate) work: PathBuf,
    /// Keep the databases at the end, for the next run with the same --records, --nodes, --drives and --compressible
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) every: ExperimentArgs,
}

impl PooledArgs {
    /// The options of the study.
    pub(crate) fn options(&self) -> PooledOptions {
        let or = |said: Option<u32>, full: u32, quick: u32| {
            said.unwrap_or(if self.quick { quick } else { full })
        };
        let rates: &[u64] = if self.quick { &[100] } else { &[250, 500, 1000, 1500, 2000] };
        let or_many = |said: Option<u64>, full: u64, quick: u64| {
            said.unwrap_or(if self.quick { quick } else { full })
        };
        let own = (!self.drive.is_empty()).then(|| OwnDrives {
            drives: self.drive.iter().map(Spec::to_string).collect(),
            buffer: self.buffer.as_ref().map(Spec::to_string),
        });
        let is_own = own.is_some();
        let drives = u32::try_from(self.drive.len()).unwrap_or(u32::MAX);
        PooledOptions {
            nodes: self.nodes,
            drives: if is_own { drives } else { self.drives },
            own,
            records: or_many(self.records, 2_000_000, 600_000),
            rates: if self.rates.is_empty() { rates.to_vec() } else { self.rates.clone() },
            seconds: or(self.seconds, 60, 15),
            warm_up_s: or(self.warm_up, 20, 8),
            rounds: or(self.rounds, 3, 1),
            threads: self.threads,
            dilation: if is_own { 1 } else { or(self.dilation, 40, 640) },
            calibrate: !(self.no_calibration || is_own),
            compressible: self.compressible,
            memory_bytes: or_many(self.memory, 1250 << 20, 1000 << 20),
            heap_bytes: or_many(self.heap, 768 << 20, 640 << 20),
            controls: !self.no_controls && !self.quick,
            compare: !self.only_survive,
            survive: self.survive,
            quick: self.quick,
            seed: self.every.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command, LabCommand};

    fn options(line: &str) -> Result<PooledOptions, String> {
        let words = ["esker", "lab", "pooled"].into_iter().chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Command::Lab(LabCommand::Pooled(args)) = cli.command else { panic!("another command") };
        Ok(args.options())
    }

    #[test]
    fn a_full_study_has_five_rates_controls_and_repetitions() {
        let full = options("").unwrap();
        assert_eq!((full.rates.len(), full.rounds, full.nodes, full.drives), (5, 3, 2, 4));
        assert!(full.controls && full.compare && full.calibrate && !full.survive && !full.quick);
        full.check().unwrap();
    }

    #[test]
    fn a_quick_study_is_short_unless_it_is_said_otherwise() {
        let quick = options("--quick --for 30s").unwrap();
        assert_eq!(
            (quick.records, quick.rounds, quick.seconds, quick.warm_up_s),
            (600_000, 1, 30, 8)
        );
        assert!(!quick.controls && quick.quick);
        quick.check().unwrap();
    }

    #[test]
    fn rates_records_and_survival_are_taken_as_they_are_said() {
        let line = "--rates 100,2k --records 50k --survive --only-survive --no-calibration --dilation 80 --seed 7";
        let said = options(line).unwrap();
        assert_eq!(
            (said.rates, said.records, said.dilation, said.seed),
            (vec![100, 2000], 50_000, 80, 7)
        );
        assert!(said.survive && !said.compare && !said.calibrate);
    }

    #[test]
    fn drives_that_are_named_have_their_own_speed() {
        let line = "--erase --drive /dev/a --drive /dev/b --buffer mem:1GiB";
        let PooledOptions { drives, dilation, calibrate, own, .. } = options(line).unwrap();
        assert_eq!((drives, dilation, calibrate), (2, 1, false));
        let own = own.unwrap();
        assert_eq!(own.drives, ["file:/dev/a", "file:/dev/b"]);
        assert_eq!(own.buffer.as_deref(), Some("mem:1GiB"));
    }

    #[test]
    fn wrong_words_are_refused() {
        for (line, part) in [
            ("--only-survive", "--survive"),
            ("--rates fast", "fast"),
            ("--nodes 0", "--nodes"),
            ("--memory much", "much"),
            ("--drive /dev/a --drive /dev/b", "--erase"),
            ("--erase --drive /dev/a --dilation 2", "--dilation"),
            ("--erase --drive /dev/a --survive", "--survive"),
            ("--buffer /dev/a", "--drive"),
        ] {
            let why = options(line).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
