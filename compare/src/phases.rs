//! One engine on one directory, led by another program: a line of standard input asks for a phase, a line of JSON on
//! standard output answers it. docs/compare.md describes the form.
//!
//! Invariants
//! 1. Nothing runs between an answer and the next line, but the engine's own threads.
//! 2. The process ends with the one that started it, and when standard input ends.

use std::io::{self, BufRead as _, Write as _};
use std::ops::ControlFlow;
use std::time::Duration;

use esker_bench::{
    BoxError, Dataset, Progress, RunOptions, RunResult, Runner, ValueFormat, Workload,
};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;

use crate::args::PhasesArgs;
use crate::engine::{Opened, Setting};
use crate::failure::{Failure, Result};
use crate::machine;

/// Between two points of a run's course.
const INTERVAL: Duration = Duration::from_millis(600);

/// A request, as a line makes it.
#[derive(Debug, PartialEq)]
enum Request {
    Load,
    Run { workload: Workload, operations: u64 },
    Settle,
}

/// The answer to a request; `opened` answers none, and comes first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Opened { description: String },
    Ran(Box<RunResult>),
    Settled {},
    Failed { why: String },
}

/// Opens the engine, and does what it is asked for until nothing more is.
pub(crate) fn run(args: &PhasesArgs) -> Result {
    // A process whose parent has ended already finds its standard input at its end.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    serve(args).map_err(|error| {
        let why = error.to_string();
        let _ = say(&Answer::Failed { why: why.clone() });
        Failure::new(why)
    })
}

fn serve(args: &PhasesArgs) -> std::result::Result<(), BoxError> {
    std::fs::create_dir(&args.dir)?;
    let dataset = Dataset {
        records: args.records,
        values: ValueFormat::one(args.value_bytes),
        ..Dataset::default()
    };
    let setting = Setting {
        limit_bytes: Some(args.memory),
        machine_bytes: machine::memory_bytes().unwrap_or_default(),
        data_bytes: args.records * u64::from(args.value_bytes),
        peers_log: args.peers_log,
    };
    let Opened { store, settle, description } = args.engine.create(&args.dir, &setting)?;
    let settle =
        settle.ok_or("this engine cannot be asked to come to rest; take one of RocksDB's")?;
    say(&Answer::Opened { description })?;
    let mut runner = Runner::new(&*store, esker_base::Clock::real(), dataset)?;
    let options = |operations| RunOptions {
        threads: args.threads,
        operations,
        interval: INTERVAL,
        seed: args.seed,
        ..RunOptions::default()
    };
    let mut go_on = |_: &Progress<'_>| ControlFlow::Continue(());
    for line in io::stdin().lock().lines() {
        let answer = match request(&line?)? {
            Request::Load => Answer::Ran(Box::new(runner.load(&options(None), &mut go_on)?)),
            Request::Run { workload, operations } => {
                let run = runner.run(&workload, &options(Some(operations)), &mut go_on)?;
                Answer::Ran(Box::new(run))
            }
            Request::Settle => {
                settle()?;
                Answer::Settled {}
            }
        };
        say(&answer)?;
    }
    Ok(())
}

/// Reads `load`, `settle`, or a workload and its operations, such as `A 40000`.
fn request(line: &str) -> std::result::Result<Request, BoxError> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["load"] => Ok(Request::Load),
        ["settle"] => Ok(Request::Settle),
        [name, operations] => {
            let workload = Workload::preset(name).filter(|one| one.name != Workload::load().name);
            let workload = workload.ok_or_else(|| format!("'{name}' is no workload"))?;
            Ok(Request::Run { workload, operations: operations.parse()? })
        }
        _ => Err(format!("'{line}' asks for nothing: say load, settle, or A 40000").into()),
    }
}

fn say(answer: &Answer) -> std::result::Result<(), BoxError> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_asks_for_a_phase() {
        assert_eq!(request("load").unwrap(), Request::Load);
        assert_eq!(request("settle").unwrap(), Request::Settle);
        let run = request("A 40000").unwrap();
        assert_eq!(run, Request::Run { workload: Workload::a(), operations: 40_000 });
        for line in ["", "A", "load 5", "Q 5", "A many", "A 5 6"] {
            assert!(request(line).is_err(), "{line}");
        }
    }
}
