//! The command `esker`.
//!
//! | module | content |
//! | --- | --- |
//! | [`args`] | the command line's grammar; help, man pages and completions follow from it |
//! | [`demo`] | `esker demo`: a store of its own, all workloads, their costs |
//! | [`bench`](mod@bench) | `esker bench`: the workloads of YCSB, and a load on any device |
//! | [`kv`] | `esker kv`: databases at the prompt |
//! | [`target`] | `esker target`: devices served over NVMe/TCP |
//! | [`attach`] | `esker attach`, `esker detach`: a device as a file and a block device |
//! | [`run`] | `esker run`: a program with more memory than DRAM |
//! | [`pool`], [`volume`] | `esker pool`, `esker volume`: drives pooled, and the volumes on them |
//! | [`ssd`] | `esker ssd`: drives in software |
//! | [`trace`] | `esker trace`: traces of block I/O |
//! | [`lab`] | `esker lab`: experiments |
//! | [`docs`] | `esker man` and `esker completions` |
//! | [`media`] | the devices of a database, as they are said on the command line |
//! | [`place`] | where a measured database lives |
//! | [`measure`], [`traffic`] | one load or workload; bytes by class and stream |
//! | [`metrics`] | where a process tells its metrics |
//! | [`live`] | pages of what goes on |
//! | [`figures`], [`output`], [`stderr`], [`progress`], [`host`] | numbers for people, reports, the machine |
//! | [`failure`] | the problem, the remedy, and the exit code |

#![forbid(unsafe_code)]
// These panic where nobody can read what they print; `stderr` and `output` have what does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]
#![allow(clippy::cast_precision_loss)] // counts become figures for people
#![allow(rustdoc::private_intra_doc_links)] // for the command's builders: the library has one function

mod args;
mod attach;
mod bench;
mod cache;
mod demo;
mod docs;
mod failure;
mod figures;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
mod host;
mod kv;
mod lab;
mod live;
mod measure;
mod media;
mod metrics;
mod output;
mod place;
mod pool;
mod progress;
mod run;
mod signals;
mod ssd;
mod stderr;
mod target;
mod trace;
mod traffic;
mod unmade;
mod volume;

use std::process::ExitCode;

use crate::args::Command;
use crate::failure::Failure;

/// Does what the command line of this process says, and returns its exit code.
pub fn main() -> ExitCode {
    esker_base::memory::map_large_blocks();
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(refusal) => return refuse(&refusal),
    };
    if cli.quiet {
        stderr::be_quiet();
    }
    if let Some(timeout) = cli.timeout {
        pool::socket::wait_for(timeout);
    }
    let outcome = match &cli.command {
        Command::Demo(args) => demo::run(args),
        Command::Bench(command) => bench::run(command),
        Command::Kv(command) => kv::run(command),
        Command::Target(command) => target::run(command),
        Command::Attach(args) => attach::attach(args),
        Command::Detach(args) => attach::detach(args),
        Command::Run(args) => run::run(args),
        Command::Cache(command) => cache::run(command),
        Command::Pool(command) => pool::run(command),
        Command::Volume(command) => volume::run(command),
        Command::Ssd(command) => ssd::run(command),
        Command::Trace(command) => trace::run(command),
        Command::Lab(command) => lab::run(command),
        Command::Man { dir } => docs::man(dir),
        Command::Completions { shell } => docs::completions(*shell),
    };
    // Of devices that a command lets go of at its end.
    let outcome = Failure::of_both(outcome, pool::link::closed());
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit(),
    }
}

/// Help and version go to standard output; a command line that makes no sense is a usage error.
fn refuse(refusal: &clap::Error) -> ExitCode {
    if !refusal.use_stderr() {
        let printed = refusal.print().map_err(Failure::from);
        return printed.map_or_else(Failure::exit, |()| ExitCode::SUCCESS);
    }
    let text = refusal.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    Failure::usage(text.trim_end()).exit()
}
