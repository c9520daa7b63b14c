//! `esker bench device`: a load on any device.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use esker_base::Clock;
use esker_base::units::{counted, human_bytes, to_u64};
use esker_bench::zipf;
use esker_device::Create;
use esker_lab::device_load::{self, Job, LoadReport, Pattern, Size, Source, Target, Timing};
use esker_lab::live::LoadCourse;
use esker_serve::metrics::of_device;
use esker_trace::read::files_of;
use esker_trace::{Options, Request, Trace};

use crate::args::{DeviceArgs, PatternArg};
use crate::failure::{Failure, Result};
use crate::host;
use crate::live;
use crate::metrics;
use crate::output::Outputs;
use crate::pool::link::{clock, stack};
use crate::progress::Bar;
use crate::signals::Interrupt;
use crate::stderr::tell;

/// How long a load runs that has no limit of its own.
const SECONDS: Duration = Duration::from_secs(10);

/// Runs the load.
pub(crate) fn run(args: &DeviceArgs) -> Result {
    let outputs = Outputs::prepare(args.json.as_ref(), args.report.as_ref())?;
    let job = job(args);
    check_memory(args)?;
    let requests = requests(&args.trace)?;
    let writes = match requests.is_empty() {
        true => job.fill || job.read_percent < 100,
        false => job.fill || requests.iter().any(|one| one.op != esker_trace::Op::Read),
    };
    if writes && args.device.is_lasting() && !args.overwrite {
        let why = format!(
            "{}: the load writes, and what is on it would be lost; add --overwrite to agree",
            args.device
        );
        return Err(Failure::usage(why));
    }
    let stack = Arc::new(stack());
    let opened = stack.open(&args.device, Create::Never)?;
    let clock = clock(&stack, &args.device);
    let remarks = opened.remarks();
    let model = opened.model.as_ref().and_then(|model| model.ssd.clone());
    let course = |port| {
        let device = opened.device.clone();
        let course =
            LoadCourse::of(device, model.clone(), args.device.to_string(), host::command_line());
        live::start(port, course)
    };
    job.time_limit.iter().for_each(|span| host::note_long(*span, "a load"));
    let geometry = opened.device.geometry();
    let capacity = geometry.capacity.bytes(geometry.lba_size);
    note_many(&job, capacity);
    let live = args.live.live.map(course).transpose()?;
    let target = Target { device: opened.device.clone(), clock, model };
    let environment = host::environment();
    let exporter =
        metrics::if_asked(args.telling.metrics, || of_device(opened.device.clone(), &stack))?;
    let interrupt = Interrupt::catch()?;
    let count = requests.len();
    let source = match (count, args.in_time) {
        (0, _) => Source::Mix,
        (_, None) => Source::Trace(requests, Timing::Order),
        (_, Some(faster)) => Source::Trace(requests, Timing::Recorded(faster)),
    };
    let report = thread::scope(|scope| {
        let work = scope.spawn(|| device_load::run(&job, source, &target, &interrupt.flag()));
        show(&job, &target, || work.is_finished());
        work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let mut report = report.map_err(|error| Failure::new(error.kind(), &error))?;
    report.environment = environment;
    drop(exporter);
    let html = finish(args, &outputs, report, count, remarks)?;
    if let Some(live) = live {
        live.end(html);
    }
    interrupt.outcome("the figures are of what was measured until then")
}

/// Refuses buffers of requests in flight that the machine has no memory for.
fn check_memory(args: &DeviceArgs) -> Result {
    let largest = args.size.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0);
    let in_flight = to_u64(args.depth).saturating_mul(to_u64(args.threads));
    let bytes = in_flight.saturating_mul(largest);
    match host::memory_left() {
        Some(left) if bytes > left / 2 => Err(Failure::usage(format!(
            "{} in flight need {} of memory, and at most {} are there for them; lower --depth, --threads or --size",
            counted(in_flight, "request"),
            human_bytes(bytes),
            human_bytes(left / 2)
        ))),
        _ => Ok(()),
    }
}

/// So many times the device's size may be a slip.
const MANY_TIMES: u64 = 1000;

/// Says so of a load of many times the device's size, and of many threads.
fn note_many(job: &Job, capacity: u64) {
    host::note_threads(job.threads);
    let limit = job.bytes_limit.unwrap_or(0);
    if limit > capacity.saturating_mul(MANY_TIMES) {
        tell!(
            "esker: note: a load of {}, on a device of {}; Ctrl-C ends it, and keeps what is done",
            human_bytes(limit),
            human_bytes(capacity)
        );
    }
}

/// How often is looked for the end of a load.
const STEP: Duration = Duration::from_millis(20);

/// Shows how far a load is until it `has_ended`: by time, where that is all that limits it.
fn show(job: &Job, target: &Target, has_ended: impl Fn() -> bool) {
    let (bar, clock) = (Bar::new(), Clock::real());
    let (began, stats) = (clock.now(), || target.device.stats());
    let before = stats();
    let limit = job.time_limit.filter(|_| !job.fill && job.bytes_limit.is_none());
    while !has_ended() {
        let text = || {
            let now = stats();
            let read = now.read_bytes.saturating_sub(before.read_bytes);
            let written = now.written_bytes.saturating_sub(before.written_bytes);
            format!("running, {} read, {} written", human_bytes(read), human_bytes(written))
        };
        match limit {
            Some(limit) => {
                let passed = clock.now().since(began);
                bar.share("", passed.as_secs_f64() / limit.as_secs_f64(), text);
            }
            None => bar.say("running", text),
        }
        clock.sleep(STEP);
    }
}

/// Writes the measurements, and gives the page of them.
fn finish(
    args: &DeviceArgs,
    outputs: &Outputs,
    report: LoadReport,
    requests: usize,
    remarks: Vec<String>,
) -> Result<String> {
    let mut report = if requests > 0 { of_trace(args, report, requests) } else { report };
    report.device = args.device.to_string();
    report.remarks = remarks;
    report.command = host::command_line();
    let page = report.page();
    outputs.say(&page.text())?;
    let figures = serde_json::to_value(&report).map_err(|error| {
        Failure::new(esker_base::ErrorKind::Io, format!("the figures have no JSON form: {error}"))
    })?;
    let html = page.html();
    outputs.finish(&figures, &html)?;
    Ok(html)
}

/// Describes the load of a replayed trace in words.
fn of_trace(args: &DeviceArgs, report: LoadReport, requests: usize) -> LoadReport {
    let names: Vec<String> = args.trace.iter().map(|path| path.display().to_string()).collect();
    let when = match args.in_time {
        None => {
            let threads = counted(to_u64(args.threads), "thread");
            format!("in order, {} in flight on {threads}", args.depth)
        }
        Some(faster) => format!("when they were recorded, {faster} times as fast"),
    };
    let count = counted(to_u64(requests), "request");
    report.with_load(format!("{count} of {}, {when}", names.join(", ")))
}

fn job(args: &DeviceArgs) -> Job {
    let is_unlimited = args.seconds.is_none() && args.bytes.is_none() && args.trace.is_empty();
    Job {
        read_percent: args.reads,
        discard_percent: args.discards,
        sizes: args.size.iter().map(|&(bytes, weight)| Size { bytes, weight }).collect(),
        pattern: match args.pattern {
            PatternArg::Sequential => Pattern::Sequential,
            PatternArg::Uniform => Pattern::Uniform,
            PatternArg::Zipfian => Pattern::Zipfian(args.theta.unwrap_or(zipf::DEFAULT_THETA)),
        },
        depth: args.depth,
        threads: args.threads,
        span_bytes: args.span,
        streams: args.streams,
        flush_every: args.flush_every,
        rate: args.rate,
        time_limit: args.seconds.or(is_unlimited.then_some(SECONDS)),
        bytes_limit: args.bytes,
        fill: args.fill,
        seed: args.seed,
    }
}

/// All requests of traces, merged by time.
fn requests(traces: &[PathBuf]) -> Result<Vec<Request>> {
    let mut all = Vec::new();
    if traces.is_empty() {
        return Ok(all);
    }
    let mut files = Vec::new();
    for trace in traces {
        files.extend(files_of(trace)?);
    }
    let mut trace = Trace::open(&files, &Options::default())?;
    while trace.next_batch(&mut all)? {}
    for remark in trace.remarks() {
        tell!("note: {remark}");
    }
    Ok(all)
}
