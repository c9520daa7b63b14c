//! Parts that the demonstration and the benchmark share: a store, a runner over it, one run after
//! another, and the report of them.

use std::ops::ControlFlow;
use std::time::Duration;

use esker_base::units::human_bytes;
use esker_base::{Clock, ErrorKind};
use esker_bench::{Dataset, Phase, Report, RunOptions, RunResult, Runner, Workload};
use esker_kv::Stats;
use esker_lab::live::Runs;
use esker_lab::store::KvStore;
use esker_serve::live::Live;
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::figures::{micros, short};
use crate::host;
use crate::live;
use crate::media::Devices;
use crate::progress::Bar;
use crate::signals::Interrupt;

/// The KVS that measurements use.
pub(crate) const KVS: &str = "ycsb";

/// An interval that gives a run some fifty points, and is long enough that a percentile of it is no noise.
pub(crate) fn interval(run: Duration) -> Duration {
    (run / 50).clamp(Duration::from_millis(100), Duration::from_secs(1))
}

/// A report that knows where it was made.
pub(crate) fn report(title: &str, dataset: Dataset, store: &KvStore, remarks: &[String]) -> Report {
    let mut report = Report::new(title, dataset);
    report.command = host::command_line();
    report.environment = host::environment();
    for class in store.db.stats().classes {
        let (name, device) = (format!("{} class", class.class), class.device);
        report.environment.insert(name, device);
    }
    for (number, remark) in (1..).zip(remarks) {
        let name = format!("note {number}");
        report.environment.insert(name, remark.clone());
    }
    report
}

/// Names a report's devices by their specifications, where their names do not tell.
pub(crate) fn name_devices(report: &mut Report, devices: &Devices) {
    for (class, spec) in devices.specs() {
        report.environment.insert(format!("{class} class"), spec.to_string());
    }
}

/// Bytes of the values of a data set.
pub(crate) fn bytes(dataset: &Dataset) -> u64 {
    dataset.records.saturating_mul(dataset.values.bytes())
}

/// Where a measurement is shown while it goes on: a bar on the terminal, and a live page if there is to be one.
pub(crate) struct Shown {
    bar: Bar,
    live: Option<Live<Runs>>,
    interrupt: Interrupt,
}

impl Shown {
    /// Begins to show a report in the making. `live` is the port of the page.
    ///
    /// # Errors
    /// As [`live::start`].
    pub(crate) fn start(live: Option<u16>, report: &Report) -> Result<Shown> {
        let live = live.map(|port| live::start(port, Runs::of(report))).transpose()?;
        Ok(Shown { bar: Bar::new(), live, interrupt: Interrupt::catch()? })
    }

    /// Whether the user wants no more of it.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.has_come()
    }

    fn follow(&self, progress: &esker_bench::Progress<'_>) -> ControlFlow<()> {
        if let Some(live) = self.live.as_ref().filter(|live| live.is_open()) {
            live.subject().follow(progress);
        }
        match self.interrupt.flow() {
            ControlFlow::Continue(()) => draw(&self.bar, progress),
            ControlFlow::Break(()) => self.bar.clear(),
        }
        self.interrupt.flow()
    }

    fn ran(&self, run: &RunResult) {
        if let Some(live) = &self.live {
            live.subject().ran(run);
        }
    }

    fn wait_for_maintenance(&self) {
        self.bar.say("waiting", || "waiting for maintenance".to_owned());
        if let Some(live) = &self.live {
            live.subject().say("The database has work left that a run has made; it is waited for.");
        }
    }

    /// Clears the bar: results follow.
    pub(crate) fn clear(&self) {
        self.bar.clear();
    }

    /// All has ended, and `report` makes the page of it.
    ///
    /// # Errors
    /// The interruption, if there was one.
    pub(crate) fn end(self, report: impl FnOnce() -> String) -> Result {
        if let Some(live) = self.live {
            live.end(report());
        }
        self.interrupt.outcome("the figures are of what was measured until then")
    }
}

/// Draws where a run is.
fn draw(bar: &Bar, progress: &esker_bench::Progress<'_>) {
    let phase = match progress.phase {
        Phase::WarmUp => "warming up",
        Phase::Measure => "running",
        Phase::Sync => "making durable",
    };
    let part = format!("{}, {phase}", progress.workload);
    bar.share(&part, progress.fraction, || {
        let rate = short(progress.ops_per_s);
        let p99 = progress
            .p99_ns
            .map_or_else(String::new, |ns| format!(", p99 {} µs", micros(ns as f64)));
        format!("{part}, {rate} ops/s{p99}")
    });
}

/// Runs the load or a workload.
pub(crate) fn run(
    runner: &mut Runner<'_>,
    workload: &Workload,
    options: &RunOptions,
    shown: &Shown,
) -> Result<RunResult> {
    let mut progress = |progress: &esker_bench::Progress<'_>| shown.follow(progress);
    let outcome = if workload.name == Workload::load().name {
        runner.load(options, &mut progress)
    } else {
        runner.run(workload, options, &mut progress)
    };
    let run = outcome?;
    shown.ran(&run);
    Ok(run)
}

/// Marks a report that was interrupted, after `done` of `all` runs.
pub(crate) fn note_interruption(report: &mut Report, shown: &Shown, all: usize) {
    if shown.is_interrupted() {
        let done = report.runs.len();
        report.environment.insert("interrupted".to_owned(), format!("in run {done} of {all}"));
    }
}

/// Waits until maintenance has nothing left to do, unless the user wants no more; says how long that took.
pub(crate) fn settle(store: &KvStore, clock: &Clock, shown: &Shown) -> Result<Duration> {
    if shown.is_interrupted() {
        return Ok(Duration::ZERO);
    }
    shown.wait_for_maintenance();
    let began = clock.now();
    store.db.settle()?;
    Ok(clock.now() - began)
}

/// The memory that the process took at its peak, the benchmark's own included, beside the budget.
pub(crate) fn memory(stats: &Stats, devices: &Devices) -> String {
    let dram = &stats.dram;
    format!(
        "memory: budget {}, engine now {}, process at its peak {}\n",
        human_bytes(dram.budget_bytes),
        human_bytes(dram.total_bytes()),
        peak(stats, devices)
    )
}

/// The process's peak. The content of a model without an image lies in this process, and is none of the engine's.
fn peak(stats: &Stats, devices: &Devices) -> String {
    let Some(bytes) = host::peak_rss_bytes() else { return "unknown".to_owned() };
    let content = devices.bytes_in_process(stats);
    if content > 0 {
        return format!(
            "{}, of which up to {} are what the modelled devices hold; the budget is the engine's",
            human_bytes(bytes),
            human_bytes(content)
        );
    }
    let ratio = bytes as f64 / stats.dram.budget_bytes as f64;
    format!("{} ({ratio:.2} x the budget)", human_bytes(bytes))
}

/// Enters into a report how much memory was allowed and taken.
pub(crate) fn note_memory(report: &mut Report, stats: &Stats, devices: &Devices) {
    let budget = human_bytes(stats.dram.budget_bytes);
    report.environment.insert("memory budget".to_owned(), budget);
    report.environment.insert("peak memory of the process".to_owned(), peak(stats, devices));
}

/// The report as JSON, with the engine's figures and `more` beside its runs.
pub(crate) fn json_of(report: &Report, stats: &Stats, more: Value) -> Result<Value> {
    let failed = |error: serde_json::Error| {
        Failure::new(ErrorKind::Io, format!("the figures have no JSON form: {error}"))
    };
    let mut whole = serde_json::to_value(report).map_err(failed)?;
    whole["kvdb"] = serde_json::to_value(stats).map_err(failed)?;
    if let (Some(whole), Value::Object(more)) = (whole.as_object_mut(), more) {
        whole.extend(more);
    }
    Ok(whole)
}
