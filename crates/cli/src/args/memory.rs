//! The arguments of `esker lab memory`.

use std::path::PathBuf;

use clap::Args;
use esker_lab::memory::options::MemoryOptions;
use esker_lab::memory::program::{Program, Side};

use super::experiment::ExperimentArgs;
use super::parse;

/// `esker lab memory`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        esker lab memory --quick                                     two minutes, to see that all of it runs\n  \
        esker lab memory --report memory.html --json memory.json       the study: hours\n  \
        esker lab memory --programs redis,duckdb --sides esker,swap-0 --python venv/bin/python\n\n\
        Programs: sort, awk, jq, pandas, polars, r, duckdb, redis, sqlite, java-cache, java-batch, mariadb.\n\
        Sides: esker, swap-0, swap-3 (vm.page-cluster 0 and 3), zram.\n\n\
        Needs root, memory cgroups of version 1, and no other swap. Uses a swap file, vm.page-cluster and a zram device\n\
        meanwhile, and undoes it.")]
pub(crate) struct MemoryArgs {
    /// The programs [default: all, with --quick sort, awk and jq]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) programs: Vec<Program>,
    /// The sides, esker first [default: all, with --quick esker and swap-0]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) sides: Vec<Side>,
    /// Repetitions [default: 3, with --quick 1]
    #[arg(long, value_name = "COUNT", value_parser = parse::within(parse::small_count, "1", "99"))]
    pub(crate) rounds: Option<u32>,
    /// A folder on the drive that pages go to
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) dir: PathBuf,
    /// A Python that has pandas, polars and DuckDB
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// Keep the machine's processors from sleeping, on all sides alike
    #[arg(long)]
    pub(crate) keep_awake: bool,
    /// One round of few programs with half of their data; the report says so
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) every: ExperimentArgs,
}

impl MemoryArgs {
    /// The options of the study.
    pub(crate) fn options(&self) -> MemoryOptions {
        fn or<T: Copy>(said: &[T], full: &[T], quick: Option<&[T]>) -> Vec<T> {
            if said.is_empty() { quick.unwrap_or(full).to_vec() } else { said.to_vec() }
        }
        let quick_programs: &[Program] = &[Program::Sort, Program::Awk, Program::Jq];
        let quick_sides: &[Side] = &[Side::Esker, Side::Swap0];
        MemoryOptions {
            programs: or(&self.programs, &Program::ALL, self.quick.then_some(quick_programs)),
            sides: or(&self.sides, &Side::ALL, self.quick.then_some(quick_sides)),
            rounds: self.rounds.unwrap_or(if self.quick { 1 } else { 3 }),
            quick: self.quick,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command, LabCommand};

    fn options(line: &str) -> Result<MemoryOptions, String> {
        let words = ["esker", "lab", "memory"].into_iter().chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Command::Lab(LabCommand::Memory(args)) = cli.command else { panic!("another command") };
        let options = args.options();
        options.check().map_err(|error| error.to_string())?;
        Ok(options)
    }

    #[test]
    fn lists_are_taken_in_their_order_and_have_defaults() {
        let full = options("").unwrap();
        assert_eq!((full.programs.len(), full.sides.len(), full.rounds), (12, 4, 3));
        let quick = options("--quick").unwrap();
        assert_eq!((quick.programs.len(), quick.sides.len(), quick.rounds), (3, 2, 1));
        let own = options("--quick --programs redis,r --sides esker,zram --rounds 5").unwrap();
        assert_eq!(own.programs, [Program::Redis, Program::R]);
        assert_eq!((own.sides, own.rounds), (vec![Side::Esker, Side::Zram], 5));
    }

    #[test]
    fn lists_that_make_no_study_are_refused_with_their_option() {
        for (line, part) in [
            ("--programs emacs", "there are sort, awk"),
            ("--programs sort,sort", "--programs"),
            ("--sides swap", "there are esker, swap-0"),
            ("--sides swap-0", "--sides"),
            ("--sides esker,zram,zram", "--sides"),
            ("--rounds 0", "--rounds"),
            ("--rounds 100", "--rounds"),
        ] {
            let said = options(line).unwrap_err();
            assert!(said.contains(part), "{line}: {said}");
        }
    }
}
