//! Conducts the rounds: starts a process for each engine, listens to it, keeps the figures.
//!
//! Invariants
//! 1. One trial at a time, on an empty directory, with the page cache dropped before it.
//! 2. Every database is removed before the next one is made, also after a failed trial.
//! 3. Files that a run makes are removed when it ends, also by a signal.
//! 4. An engine that fails, or that the kernel kills, ends its own trial only.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _, stdout};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};

use esker_base::units::human_bytes;

use crate::args::{ReportArgs, RunArgs};
use crate::cgroup::Cgroup;
use crate::engine::Setting;
use crate::failure::{Failure, Result};
use crate::outputs::Outputs;
use crate::scratch::Scratch;
use crate::stop::Stop;
use crate::trial::{Comparison, Event, FORMAT, Job, Plan, Trial};
use crate::{machine, syncs};

/// Measures, and reports.
pub(crate) fn run(args: RunArgs) -> Result {
    let stop = Stop::catch()?;
    let scratch = Scratch::create(&args.dir)?;
    let outputs = Outputs::prepare(args.json.as_deref(), args.html.as_deref())?;
    let dataset_bytes = args.records * (u64::from(args.value_bytes) + KEY_BYTES);
    let machine_bytes =
        machine::memory_bytes().ok_or_else(|| Failure::new("/proc/meminfo cannot be read"))?;
    let plan = Plan {
        records: args.records,
        value_bytes: args.value_bytes,
        setting: Setting {
            limit_bytes: args.memory.0,
            machine_bytes,
            data_bytes: dataset_bytes,
            peers_log: args.peers_log,
        },
        threads: args.threads,
        seconds: args.seconds,
        warm_up_seconds: args.warm_up,
        operations: args.operations,
        load_seconds: args.load_seconds,
        settle_seconds: args.settle_seconds,
        seed: args.seed,
    };
    let mut comparison = Comparison {
        format: FORMAT.to_owned(),
        commands: vec![command_line()],
        environment: machine::environment(scratch.dir()),
        plan,
        trials: Vec::new(),
    };
    let tracepoints = syncs::tracepoints();
    let mut dropped = true;
    for round in 1..=args.rounds {
        let mut engines = args.engines.clone();
        if round % 2 == 0 {
            engines.reverse();
        }
        for engine in engines {
            let dir = scratch.empty()?;
            // The kernel's pages of the last database went with it.
            dropped &= drop_caches();
            let job = Job {
                engine,
                round,
                plan: comparison.plan.clone(),
                workloads: args.workloads.clone(),
                dir,
                group: None,
                tracepoints: tracepoints.clone(),
            };
            eprintln!("round {round} of {}: {}", args.rounds, engine.title());
            comparison.trials.push(trial(job, &stop)?);
            if let Err(failure) = outputs.keep(&comparison) {
                eprintln!("warning: {failure}");
            }
        }
    }
    let note = if dropped { "dropped before every engine" } else { "not dropped: not allowed" };
    comparison.environment.insert("page cache".to_owned(), note.to_owned());
    outputs.publish(&comparison, &mut stdout().lock())?;
    match comparison.trials.iter().filter(|trial| trial.is_broken()).count() {
        0 => Ok(()),
        count => Err(Failure::new(format!(
            "{count} of {} trials failed; the remarks in the report say why",
            comparison.trials.len()
        ))),
    }
}

/// Makes one report of several.
pub(crate) fn report(args: &ReportArgs) -> Result {
    let outputs = Outputs::prepare(args.json.as_deref(), args.html.as_deref())?;
    let mut all: Option<Comparison> = None;
    for file in &args.files {
        let text = fs::read_to_string(file).map_err(|cause| Failure::at(file, "read", &cause))?;
        let next: Comparison = serde_json::from_str(&text).map_err(|error| {
            let path = file.display();
            Failure::new(format!(
                "{path} holds no comparison ({error}); give what run --json wrote"
            ))
        })?;
        if next.format != FORMAT {
            let (path, found) = (file.display(), next.format);
            return Err(Failure::new(format!("{path} has format {found}; this reads {FORMAT}")));
        }
        all = Some(match all {
            None => next,
            Some(sum) => merged(sum, next).ok_or_else(|| {
                let path = file.display();
                Failure::new(format!("{path} followed another plan than the files before it"))
            })?,
        });
    }
    let comparison = all.ok_or_else(|| Failure::new("no file was given"))?;
    outputs.publish(&comparison, &mut stdout().lock())
}

/// The trials of both; a round of the second follows those of the first. None where the plans are
/// not the same.
fn merged(mut first: Comparison, second: Comparison) -> Option<Comparison> {
    if first.plan.decisive() != second.plan.decisive() {
        return None;
    }
    let rounds = first.trials.iter().map(|trial| trial.round).max().unwrap_or(0);
    let later = second.trials.into_iter();
    first.trials.extend(later.map(|trial| Trial { round: rounds + trial.round, ..trial }));
    first.commands.extend(second.commands);
    for (name, value) in second.environment {
        let known = first.environment.entry(name).or_default();
        if !known.split("; ").any(|part| part == value) {
            let separator = if known.is_empty() { "" } else { "; " };
            *known += &format!("{separator}{value}");
        }
    }
    Some(first)
}

/// The length of a key with the usual nineteen digits.
const KEY_BYTES: u64 = 23;

/// Runs one trial in a process of its own. Only a failure that keeps the others from running is an
/// error.
fn trial(mut job: Job, stop: &Stop) -> Result<Trial> {
    let mut trial = Trial::new(job.engine, job.round);
    let name = format!("bench-compare-{}", std::process::id());
    let limit = job.plan.setting.limit_bytes;
    let group = limit.map(|limit| Cgroup::create(&name, limit)).transpose()?;
    job.group = group.as_ref().map(Cgroup::processes);
    // Declared after the group, which cannot be removed before it has ended.
    let mut process = Process(start()?);
    let child = &mut process.0;
    let lost = |cause: std::io::Error| {
        Failure::new(format!("cannot follow the process of a trial: {cause}"))
    };
    stop.ends(child).map_err(lost)?;
    // A process that is killed before it has read all is told of below.
    let told = tell(child, &job);
    let listened = listen(child, &mut trial);
    let status = child.wait().map_err(lost)?;
    if stop.asked() {
        return Err(Failure::new(
            "stopped by a signal; the trials that were over are in the file of --json",
        ));
    }
    told.map_err(lost)?;
    if trial.failure.is_none() && !listened {
        trial.failure = Some(ending(status, limit));
    }
    trial.group_peak_bytes = group.as_ref().and_then(Cgroup::peak_bytes);
    if let Some(why) = &trial.failure {
        eprintln!("  {why}");
    }
    Ok(trial)
}

/// A process of a trial; killed when dropped before its end.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start() -> Result<Child> {
    let failed = |cause: std::io::Error| {
        Failure::new(format!("cannot start a process for a trial: {cause}"))
    };
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("child").stdin(Stdio::piped()).stdout(Stdio::piped());
    // In a group of its own it is not hit by signals that a terminal sends to all.
    command.process_group(0);
    command.spawn().map_err(failed)
}

fn tell(child: &mut Child, job: &Job) -> std::io::Result<()> {
    let text = serde_json::to_vec(job).expect("every field has a JSON form");
    // Closing it, by dropping, ends the job's text.
    let mut input = child.stdin.take().expect("it was asked for");
    input.write_all(&text)
}

/// Takes in all that a trial's process says; whether it came to its end.
fn listen(child: &mut Child, trial: &mut Trial) -> bool {
    let output = child.stdout.take().expect("it was asked for");
    for line in BufReader::new(output).lines() {
        let Ok(event) = line.map_err(drop).and_then(|l| serde_json::from_str(&l).map_err(drop))
        else {
            return false;
        };
        match &event {
            Event::Phase(phase) => {
                let run = &phase.run;
                let name = &run.workload.name;
                eprintln!("  {name:<5} {:>9.0} operations/s", run.ops_per_s);
            }
            Event::Settled(settling) => {
                let rest = if settling.at_rest { "at rest" } else { "not yet at rest" };
                eprintln!("  {rest} after {:.1} s", settling.seconds);
            }
            Event::Ended => return true,
            Event::Opened { .. } | Event::Failed { .. } => {}
        }
        trial.apply(event);
    }
    false
}

/// Why a process ended that did not say so.
fn ending(status: ExitStatus, limit: Option<u64>) -> String {
    const SIGKILL: i32 = 9;
    match (status.signal(), limit) {
        (Some(SIGKILL), Some(limit)) => {
            format!("killed, most likely because it needed more than {}", human_bytes(limit))
        }
        (Some(signal), _) => format!("ended by signal {signal}"),
        (None, _) => format!("ended before its end: {status}"),
    }
}

/// Has the kernel drop its cached pages of files; whether it may.
fn drop_caches() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

fn command_line() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("compare/run {}", words.join(" ")).replace("compare/run run", "compare/run")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::trial::tests::comparison;

    #[test]
    fn rounds_of_machines_that_differ_go_together_where_a_limit_decides() {
        let with = |limit_bytes, machine_bytes| {
            let mut one = comparison(&[(Engine::Esker, &[1.0, 2.0])]);
            one.plan.setting.limit_bytes = limit_bytes;
            one.plan.setting.machine_bytes = machine_bytes;
            one
        };
        let limit = Some(1 << 30);
        let sum = merged(with(limit, 8 << 30), with(limit, (8 << 30) + 4096)).unwrap();
        let rounds: Vec<u32> = sum.trials.iter().map(|trial| trial.round).collect();
        assert_eq!(rounds, [1, 2, 3, 4]);
        assert_eq!(merged(with(None, 8 << 30), with(None, 9 << 30)), None, "it decides itself");
        assert_eq!(merged(with(limit, 8 << 30), with(Some(2 << 30), 8 << 30)), None);
    }
}
