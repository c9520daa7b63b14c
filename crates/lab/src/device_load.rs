//! A load on any device: reads, writes and discards by a mix, or the requests of a trace.
//!
//! | module | content |
//! | --- | --- |
//! | [`job`] | [`Job`]: parameters of the load |
//! | `target` | [`Target`]: the device |
//! | `requests` | the next request, and when it is due |
//! | `client` | a thread that keeps a queue pair full, and times the completions |
//! | [`report`] | [`LoadReport`], as text and JSON |
//! | `html` | the same as a page |
//!
//! Imports run downward: `html`, `report`, `client`, `requests`, `job`. Time is the clock's that is given, which has to be the
//! device's: real, dilated or virtual.

mod client;
mod html;
pub mod job;
pub mod report;
mod requests;
mod target;

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;

use esker_base::thread;
use esker_base::units::to_u64;
use esker_bench::Latencies;
use esker_trace::{Op, Request};

use crate::LabError;
use client::{Client, Outcome};
pub use job::{Job, Pattern, Size, Timing};
pub use report::LoadReport;
pub(crate) use requests::pieces;
use requests::{Generated, Replayed, Requests};
pub use target::Target;

/// Origin of the requests of a load.
pub enum Source {
    /// The job's own mix.
    Mix,
    /// The requests of a trace, in their order; addresses beyond the device wrap around.
    Trace(Vec<Request>, Timing),
}

/// Runs the load. `stop` ends it early when it becomes true; the figures until then are reported.
///
/// # Errors
/// When the job makes no sense on this device, or the device refuses a command.
pub fn run(
    job: &Job,
    source: Source,
    target: &Target,
    stop: &AtomicBool,
) -> Result<LoadReport, LabError> {
    let job = job.on(&*target.device)?;
    if target.clock.is_virtual() && job.threads > 1 {
        let why = "virtual time is for one thread: give --threads 1, or another time";
        return Err(LabError::Invalid(why.to_owned()));
    }
    if job.fill {
        client::fill(&job, &*target.device)?;
    }
    let before = report::Moment::of(target);
    let sources = split(source, &job)?;
    let began = target.clock.now();
    let outcomes = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, requests) in sources.into_iter().enumerate() {
            let client = Client { job: &job, target, requests, began, stop };
            let spawned =
                thread::spawn_scoped(scope, &format!("load-{number}"), move || client.run())?;
            threads.push(spawned);
        }
        let joined = threads
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<Result<Vec<Outcome>, LabError>>()
    })?;
    let elapsed = target.clock.now().since(began);
    Ok(LoadReport::new(&job, target, outcomes, elapsed, &before))
}

/// Reads at random: how long each took, and how many there were in a second.
pub(crate) struct Reads {
    pub(crate) latencies: Latencies,
    pub(crate) per_s: f64,
}

/// Reads at random in a closed loop of one thread, as the job says. The first `warm_up` requests are not measured.
///
/// # Errors
/// As [`run`].
pub(crate) fn reads(job: &Job, target: &Target, warm_up: u64) -> Result<Reads, LabError> {
    let job = Job { read_percent: 100, discard_percent: 0, threads: 1, ..job.on(&*target.device)? };
    let requests = Requests::Generated(Box::new(Generated::new(&job, 0)));
    let (began, stop) = (target.clock.now(), AtomicBool::new(false));
    let client = Client { job: &job, target, requests, began, stop: &stop };
    let (mut outcome, span) = client.run_warm(warm_up)?;
    let latencies = outcome.kinds.remove(&Op::Read).unwrap_or_default().latencies;
    #[allow(clippy::cast_precision_loss)] // a rate
    let per_s = latencies.count() as f64 / span.as_secs_f64().max(1e-9);
    Ok(Reads { latencies, per_s })
}

/// Each thread's part: a generator of its own, or every so manieth request of the trace.
fn split(source: Source, job: &Job) -> Result<Vec<Requests>, LabError> {
    let threads = job.threads;
    match source {
        Source::Mix => {
            let one = |number| Requests::Generated(Box::new(Generated::new(job, number)));
            Ok((0..to_u64(threads)).map(one).collect())
        }
        Source::Trace(requests, timing) => {
            if requests.is_empty() {
                return Err(LabError::Invalid("the trace has no request".to_owned()));
            }
            let first = requests.iter().map(|one| one.time_ns).min().unwrap_or(0);
            let mut parts = vec![Vec::new(); threads];
            for (index, request) in requests.into_iter().enumerate() {
                parts[index % threads].push(request);
            }
            let part = |part| Requests::Replayed(Box::new(Replayed::new(job, part, first, timing)));
            Ok(parts.into_iter().map(part).collect())
        }
    }
}
