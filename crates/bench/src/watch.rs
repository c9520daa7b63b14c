//! Watches a run while its threads work: intervals, the store's own figures, and the
//! caller's callback.
//!
//! Invariants
//! 1. Intervals are gapless from the end of the warm-up, and hold every measured operation once.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_base::Nanos;
use esker_base::units::to_nanos;

use crate::measure::IntervalTally;
use crate::options::RunOptions;
use crate::result::{Interval, Point, RunResult, Series, Settings};
use crate::worker::{Plan, Schedule};
use crate::workload::Workload;

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before measuring.
    WarmUp,
    /// Measuring.
    Measure,
    /// Waiting for [`crate::Store::sync`].
    Sync,
}

/// State of a run at the end of an interval, for callers to show.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// The workload's name.
    pub workload: &'a str,
    /// Where the run is.
    pub phase: Phase,
    /// Time in this phase.
    pub elapsed: Duration,
    /// Measured operations so far.
    pub operations: u64,
    /// How much is done, from 0 to 1, by the limit that will be reached first.
    pub fraction: f64,
    /// The rate in the last interval.
    pub ops_per_s: f64,
    /// The 99th percentile of the last interval's latencies.
    pub p99_ns: Option<u64>,
    /// Errors so far.
    pub errors: u64,
    run: SoFar<'a>,
}

/// A run as far as it has come.
#[derive(Clone, Debug)]
struct SoFar<'a> {
    workload: &'a Workload,
    options: &'a RunOptions,
    intervals: &'a [Interval],
    series: &'a [Series],
    started_unix_ms: u64,
    records_before: u64,
}

impl Progress<'_> {
    /// The run as it would be if it had ended with the last interval. Its intervals, its series and its counts are
    /// there; latencies by operation, and bytes of the user, are known at its end only.
    #[must_use]
    pub fn so_far(&self) -> RunResult {
        let run = &self.run;
        let elapsed_ns = run.intervals.last().map_or(0, |last| last.end_ns);
        RunResult {
            workload: run.workload.clone(),
            settings: Settings::of(run.options),
            started_unix_ms: run.started_unix_ms,
            elapsed_ns,
            operations: self.operations,
            ops_per_s: rate(self.operations, elapsed_ns),
            errors: self.errors,
            not_found: 0,
            wrong_values: 0,
            unstarted_operations: 0,
            interrupted: false,
            user_bytes_written: 0,
            user_bytes_read: 0,
            sync_ns: 0,
            records_before: run.records_before,
            records_after: run.records_before,
            by_operation: Vec::new(),
            intervals: run.intervals.to_vec(),
            series: run.series.to_vec(),
        }
    }
}

/// Callback for progress; returning `Break` ends the run early, with its result so far.
pub type OnProgress<'a> = &'a mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>;

/// How often the driver looks whether its threads have finished.
const LOOK: Duration = Duration::from_millis(5);

/// The driver's own view of a run: intervals, samples, and the callback.
pub(crate) struct Watch<'a> {
    plan: &'a Plan<'a>,
    progress: OnProgress<'a>,
    schedule: Schedule,
    /// The last interval, kept open so that a short rest at the end can join it.
    last: IntervalTally,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) series: Vec<Series>,
    operations: u64,
    errors: u64,
    started_unix_ms: u64,
    records_before: u64,
    pub(crate) interrupted: bool,
}

impl<'a> Watch<'a> {
    /// Watches a run that began at a time, with so many records.
    pub(crate) fn new(
        plan: &'a Plan<'a>,
        progress: OnProgress<'a>,
        (started_unix_ms, records_before): (u64, u64),
    ) -> Watch<'a> {
        Watch {
            plan,
            progress,
            schedule: Schedule { begin: Nanos(0), measure_from: Nanos(0), deadline: None },
            last: IntervalTally::new(),
            intervals: Vec::new(),
            series: Vec::new(),
            operations: 0,
            errors: 0,
            started_unix_ms,
            records_before,
            interrupted: false,
        }
    }

    pub(crate) fn begin(&mut self, schedule: Schedule) {
        self.schedule = schedule;
        if schedule.begin == schedule.measure_from {
            self.sample(schedule.begin);
        }
    }

    /// Ticks until `finished`.
    pub(crate) fn until(&mut self, finished: impl Fn() -> bool) {
        let (clock, interval) = (self.plan.clock, self.plan.options.interval);
        let measure_from = self.schedule.measure_from;
        let mut tick = self.schedule.begin;
        while !finished() {
            let now = clock.now();
            if now < tick {
                clock.sleep(LOOK.min(tick - now));
                continue;
            }
            if now < measure_from {
                self.report(Phase::WarmUp, now - self.schedule.begin);
                tick = measure_from.min(now + interval);
                continue;
            }
            if self.series.is_empty() {
                self.sample(now);
            }
            if now - self.interval_start() >= interval {
                self.close_interval(now);
                self.sample(now);
                self.report(Phase::Measure, now - measure_from);
            }
            tick = self.interval_start() + interval;
        }
    }

    /// When the interval being measured began.
    fn interval_start(&self) -> Nanos {
        let end_ns = self.intervals.last().map_or(0, |last| last.end_ns);
        self.schedule.measure_from + Duration::from_nanos(end_ns)
    }

    /// Ends the interval at `now`. One shorter than half of the set length joins the one before.
    pub(crate) fn close_interval(&mut self, now: Nanos) {
        let mut start_ns = to_nanos(self.interval_start() - self.schedule.measure_from);
        let end_ns = to_nanos(now - self.schedule.measure_from).max(start_ns);
        let short = end_ns - start_ns < to_nanos(self.plan.options.interval) / 2;
        let mut errors = 0;
        match self.intervals.pop_if(|_| short) {
            Some(before) => (start_ns, errors) = (before.start_ns, before.errors),
            None => self.last = IntervalTally::new(),
        }
        let known = self.last.latency_ns.len();
        for slot in &self.plan.slots {
            slot.0.lock().interval.drain_into(&mut self.last);
        }
        let operations = self.last.latency_ns.len();
        self.operations += operations - known;
        self.errors += self.last.errors - errors;
        let some = |value: u64| (operations > 0).then_some(value);
        self.intervals.push(Interval {
            start_ns,
            end_ns,
            operations,
            ops_per_s: rate(operations, end_ns - start_ns),
            errors: self.last.errors,
            p50_ns: some(self.last.latency_ns.value_at_quantile(0.5)),
            p99_ns: some(self.last.latency_ns.value_at_quantile(0.99)),
            p999_ns: some(self.last.latency_ns.value_at_quantile(0.999)),
            max_ns: some(self.last.latency_ns.max()),
        });
    }

    pub(crate) fn sample(&mut self, now: Nanos) {
        let at_ns = to_nanos(now - self.schedule.measure_from);
        for sample in self.plan.store.sample() {
            if !sample.value.is_finite() {
                continue;
            }
            let point = Point { at_ns, value: sample.value };
            match self.series.iter_mut().find(|s| s.name == sample.name) {
                Some(series) => series.points.push(point),
                None => self.series.push(Series {
                    name: sample.name,
                    unit: sample.unit,
                    counter: sample.counter,
                    points: vec![point],
                }),
            }
        }
    }

    pub(crate) fn report(&mut self, phase: Phase, elapsed: Duration) {
        let options = self.plan.options;
        let share = |done: f64, limit: Option<f64>| limit.map_or(0.0, |limit| done / limit);
        let fraction = match phase {
            Phase::WarmUp => share(elapsed.as_secs_f64(), Some(options.warm_up.as_secs_f64())),
            Phase::Measure => f64::max(
                share(self.operations as f64, options.operations.map(|n| n as f64)),
                share(elapsed.as_secs_f64(), options.time_limit.map(|limit| limit.as_secs_f64())),
            ),
            Phase::Sync => 1.0,
        };
        let last = self.intervals.last();
        let progress = Progress {
            workload: &self.plan.workload.name,
            phase,
            elapsed,
            operations: self.operations,
            fraction: fraction.clamp(0.0, 1.0),
            ops_per_s: last.map_or(0.0, |last| last.ops_per_s),
            p99_ns: last.and_then(|last| last.p99_ns),
            errors: self.errors,
            run: SoFar {
                workload: self.plan.workload,
                options,
                intervals: &self.intervals,
                series: &self.series,
                started_unix_ms: self.started_unix_ms,
                records_before: self.records_before,
            },
        };
        if (self.progress)(&progress).is_break() && phase != Phase::Sync {
            self.interrupted = true;
            self.plan.stop.store(true, Ordering::Relaxed);
        }
    }
}

pub(crate) fn rate(operations: u64, elapsed_ns: u64) -> f64 {
    operations as f64 / (elapsed_ns.max(1) as f64 / 1e9)
}
