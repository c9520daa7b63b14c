//! `bench-compare`: Esker beside RocksDB, fjall and LMDB. docs/compare.md describes the comparison, its method and its
//! results.
//!
//! | module | contents |
//! | --- | --- |
//! | `args` | the command line |
//! | `conduct` | the rounds: one process for each engine and round, caches dropped between them |
//! | `child` | that process: load, settling, workloads |
//! | `phases` | one engine, phase by phase as another program asks for them |
//! | `engine` | the engines, each behind the laboratory's [`esker_bench::Store`] |
//! | `scratch`, `outputs` | where databases are made, and where figures go |
//! | `stop` | the signals that end a run |
//! | `trial` | measurements, and their JSON form |
//! | `cgroup`, `process`, `syncs`, `machine` | the kernel: memory limits, usage, the machine |
//! | `summary` | medians and ratios |
//! | `optimum` | the most that a cache of records can catch |
//! | `render` | tables as Markdown, the report as HTML |

// Some of it is for peers alone.
#![cfg_attr(not(feature = "peers"), allow(dead_code))]
#![allow(clippy::cast_precision_loss)] // counts and nanoseconds become figures for people

mod args;
mod cgroup;
mod child;
mod conduct;
mod engine;
mod failure;
mod machine;
mod optimum;
mod outputs;
mod phases;
mod process;
mod render;
mod scratch;
mod series;
mod stop;
mod summary;
mod syncs;
mod trial;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => args.without_repeats().and_then(|args| conduct::run(args.smoked())),
        Command::Report(args) => conduct::report(&args),
        Command::Phases(args) => phases::run(&args),
        Command::Child => child::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
