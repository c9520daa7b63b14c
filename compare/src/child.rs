//! The process of one trial: joins its memory cgroup, creates the database, loads it, lets it come
//! to rest, runs the workloads, and reports its measurements on standard output.
//!
//! Invariants
//! 1. It joins the group before it allocates for the engine, and counts syncs before it has threads.
//! 2. It ends by itself, regardless of the engine: a watchdog sees to it.
//! 3. It ends with the process that started it.

use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::time::Duration;

use esker_base::{Clock, Nanos, thread};
use esker_bench::{
    BoxError, Dataset, Progress, RunOptions, RunResult, Runner, Sample, Session, Store, Unit,
    ValueFormat,
};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::cgroup;
use crate::failure::{Failure, Result};
use crate::process;
use crate::series;
use crate::syncs::Syncs;
use crate::trial::{Event, Job, Phase, Plan, Settling};

/// A process is at rest when it used less than this share of one core ...
const REST_CPU: f64 = 0.05;
/// ... and wrote less than this in a second ...
const REST_BYTES_PER_S: f64 = 1e6;
/// ... for so long: Esker begins maintenance that is due five seconds after the last write, and work that has not begun
/// looks like rest.
const REST: Duration = Duration::from_secs(7);
/// Time that a trial may take beyond that of its phases: opening, syncs, closing.
const SLACK: Duration = Duration::from_secs(600);

/// Runs the job from standard input.
pub(crate) fn run() -> Result {
    // A child that is alone before this has nobody to tell, and ends there.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let job: Job = serde_json::from_reader(io::stdin()).map_err(|error| {
        Failure::new(format!("standard input is no job: {error}; use the subcommand run instead"))
    })?;
    let outcome = trial(&job);
    if let Err(error) = outcome {
        say(&Event::Failed { why: describe(&*error) })?;
    }
    say(&Event::Ended)
}

fn trial(job: &Job) -> std::result::Result<(), BoxError> {
    if let Some(group) = &job.group {
        cgroup::join(group)?;
    }
    let syncs = Syncs::of_this_process(&job.tracepoints);
    watch_over(job)?;
    let opened = job.engine.create(&job.dir, &job.plan.setting)?;
    say(&Event::Opened { description: opened.description })?;
    let store = Measured { inner: opened.store, syncs };

    let dataset = dataset(&job.plan);
    let clock = Clock::real();
    let options = options(job);
    let mut runner = Runner::new(&store, clock.clone(), dataset)?;
    let give_up_after = Duration::from_secs_f64(job.plan.load_seconds);
    let loaded = phase(|| {
        runner.load(&options, &mut |progress: &Progress<'_>| {
            if progress.elapsed > give_up_after {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    })?;
    let complete = !loaded.run.interrupted;
    say(&Event::Phase(Box::new(loaded)))?;
    say(&Event::Settled(settle(job, &clock)))?;
    if !complete {
        return Err(format!(
            "gave up the load after {} seconds with {} of {} records",
            job.plan.load_seconds,
            runner.records(),
            job.plan.records
        )
        .into());
    }
    for workload in &job.workloads {
        let mut go_on = |_: &Progress<'_>| ControlFlow::Continue(());
        let measured = phase(|| runner.run(workload, &options, &mut go_on))?;
        say(&Event::Phase(Box::new(measured)))?;
    }
    Ok(())
}

fn phase(
    run: impl FnOnce() -> std::result::Result<RunResult, esker_bench::BenchError>,
) -> std::result::Result<Phase, BoxError> {
    process::forget_peak();
    let mut run = run()?;
    for series in &mut run.series {
        let last = series.points.len().saturating_sub(1);
        let mut at = 0..;
        series.points.retain(|_| at.next().is_some_and(|at| at == 0 || at == last));
    }
    Ok(Phase { run, peak_rss_bytes: process::peak_rss_bytes() })
}

pub(crate) fn dataset(plan: &Plan) -> Dataset {
    Dataset {
        records: plan.records,
        values: ValueFormat::one(plan.value_bytes),
        ..Dataset::default()
    }
}

fn options(job: &Job) -> RunOptions {
    let plan = &job.plan;
    let measured = Duration::from_secs_f64(plan.seconds);
    RunOptions {
        threads: plan.threads,
        operations: plan.operations,
        time_limit: Some(measured),
        warm_up: Duration::from_secs_f64(plan.warm_up_seconds),
        interval: (measured / 30).clamp(Duration::from_millis(50), Duration::from_secs(1)),
        verify: true,
        // Rounds differ; the engines of a round do not.
        seed: plan.seed.wrapping_add(u64::from(job.round)),
        ..RunOptions::default()
    }
}

/// Waits until the process is at rest, or for as long as the plan allows.
fn settle(job: &Job, clock: &Clock) -> Settling {
    const LOOK: Duration = Duration::from_millis(250);
    let began = clock.now();
    let limit = Duration::from_secs_f64(job.plan.settle_seconds);
    let start = Usage::now(clock);
    let mut quiet_since = start;
    let mut at_rest = false;
    while !at_rest && clock.now() - began < limit {
        clock.sleep(LOOK);
        let now = Usage::now(clock);
        if !now.rests_since(&quiet_since) {
            quiet_since = now;
        }
        at_rest = now.at - quiet_since.at >= REST;
    }
    let end = Usage::now(clock);
    Settling {
        seconds: (end.at - began).as_secs_f64(),
        at_rest,
        cpu_ns: end.cpu_ns - start.cpu_ns,
        read_bytes: end.bytes.read - start.bytes.read,
        written_bytes: end.bytes.written.saturating_sub(start.bytes.written),
        disk_bytes: process::disk_bytes(&job.dir),
    }
}

/// Resource use of the process, at a moment.
#[derive(Clone, Copy, Debug)]
struct Usage {
    at: Nanos,
    cpu_ns: u64,
    bytes: process::Bytes,
}

impl Usage {
    fn now(clock: &Clock) -> Usage {
        Usage {
            at: clock.now(),
            cpu_ns: process::cpu_ns(),
            bytes: process::bytes().unwrap_or_default(),
        }
    }

    fn rests_since(&self, before: &Usage) -> bool {
        let span = (self.at - before.at).as_secs_f64();
        let cpu = (self.cpu_ns - before.cpu_ns) as f64 / 1e9;
        let written = self.bytes.written.saturating_sub(before.bytes.written) as f64;
        cpu <= REST_CPU * span && written <= REST_BYTES_PER_S * span
    }
}

/// Ends the process when it takes much longer than it may.
fn watch_over(job: &Job) -> io::Result<()> {
    let plan = &job.plan;
    let workloads: u32 = job.workloads.iter().map(|_| 1).sum();
    let each = Duration::from_secs_f64(2.0 * (plan.seconds + plan.warm_up_seconds));
    let load = Duration::from_secs_f64(plan.load_seconds + plan.settle_seconds);
    let most = load + workloads * each + SLACK;
    thread::spawn("watchdog", move || {
        Clock::real().sleep(most);
        let why = format!("still not at the end after {} seconds", most.as_secs());
        let _ = say(&Event::Failed { why });
        std::process::exit(75);
    })?;
    Ok(())
}

fn say(event: &Event) -> Result {
    let mut line = serde_json::to_string(event).expect("every field has a JSON form");
    line.push('\n');
    let gone = |_: io::Error| Failure::new("nobody listens to this trial any more");
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes()).map_err(gone)?;
    out.flush().map_err(gone)
}

/// An error with its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// A store, and the resource use of its process beside the store's own figures.
struct Measured {
    inner: Box<dyn Store>,
    syncs: Option<Syncs>,
}

impl Store for Measured {
    fn session(&self) -> std::result::Result<Box<dyn Session + '_>, BoxError> {
        self.inner.session()
    }

    fn sync(&self) -> std::result::Result<(), BoxError> {
        self.inner.sync()
    }

    fn sample(&self) -> Vec<Sample> {
        let mut samples = self.inner.sample();
        let mut counter = |name: &str, unit, value: u64| {
            samples.push(Sample::counter(name, unit, value as f64));
        };
        counter(series::CPU, Unit::Nanoseconds, process::cpu_ns());
        if let Some(bytes) = process::bytes() {
            counter(series::READ, Unit::Bytes, bytes.read);
            counter(series::WRITTEN, Unit::Bytes, bytes.written);
        }
        if let Some(count) = self.syncs.as_ref().and_then(Syncs::count) {
            counter(series::SYNCS, Unit::Count, count);
        }
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_is_longer_than_the_quiet_after_which_esker_goes_to_work() {
        let source = include_str!("../../crates/kv/src/engine/rate.rs");
        let (_, quiet) = source.split_once("const QUIET: Duration = Duration::from_secs(").unwrap();
        let (quiet, _) = quiet.split_once(')').unwrap();
        assert!(REST > Duration::from_secs(quiet.parse().unwrap()) + Duration::from_secs(1));
    }
}
