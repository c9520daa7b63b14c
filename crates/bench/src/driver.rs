//! Runs workloads against a store: starts the threads, has them watched, collects the result.
//!
//! Calls `worker` for the threads and `watch` for the course of the run.
//!
//! Invariants
//! 1. All sessions are open before the first operation starts.
//! 2. A run that failed in one thread has ended in all when its error is returned.
//! 3. Between runs every reserved record number is completed.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use esker_base::units::to_nanos;
use esker_base::{Clock, Nanos, clock, thread};

use crate::counter::InsertCounter;
use crate::error::BenchError;
use crate::measure::{Tally, latency};
use crate::operation::OperationKind;
use crate::options::RunOptions;
use crate::result::{OperationResult, RunResult, Settings};
use crate::store::Store;
use crate::value::{ValueSource, mix};
use crate::watch::{OnProgress, Phase, Watch, rate};
use crate::worker::{Outcome, Plan, Schedule, Slot, work};
use crate::workload::{Dataset, Workload};

/// A store, its data set, and how far the data set has been inserted.
pub struct Runner<'a> {
    store: &'a dyn Store,
    clock: Clock,
    dataset: Dataset,
    values: ValueSource,
    counter: InsertCounter,
    runs: u64,
}

impl<'a> Runner<'a> {
    /// A runner for an empty store. The clock is the one the store runs on: real or dilated;
    /// under a virtual one, which only the store's calls may advance, a run has one interval.
    ///
    /// # Errors
    /// [`BenchError::Invalid`] for a data set that cannot be.
    pub fn new(store: &'a dyn Store, clock: Clock, dataset: Dataset) -> Result<Self, BenchError> {
        dataset.validate()?;
        Ok(Runner {
            store,
            clock,
            dataset,
            values: ValueSource::new(dataset.values),
            counter: InsertCounter::new(0),
            runs: 0,
        })
    }

    /// The same for a store that already holds the first `records` records of the data set.
    #[must_use]
    pub fn with_records(self, records: u64) -> Runner<'a> {
        Runner { counter: InsertCounter::new(records), ..self }
    }

    /// How many records have been inserted, by the load and by the workloads after it.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.counter.acknowledged()
    }

    /// Inserts the records of the data set that are missing. Limits and warm-up in `options` do
    /// not apply.
    ///
    /// # Errors
    /// [`BenchError`]; when nothing is missing, too.
    pub fn load(
        &mut self,
        options: &RunOptions,
        progress: OnProgress<'_>,
    ) -> Result<RunResult, BenchError> {
        let missing = self.dataset.records.saturating_sub(self.records());
        if missing == 0 {
            return Err(BenchError::invalid(format!(
                "nothing to load: the data set has {} records and {} are inserted",
                self.dataset.records,
                self.records()
            )));
        }
        let options = RunOptions {
            operations: Some(missing),
            time_limit: None,
            warm_up: Duration::ZERO,
            ..options.clone()
        };
        self.run(&Workload::load(), &options, progress)
    }

    /// Runs a workload on the records inserted so far.
    ///
    /// # Errors
    /// [`BenchError`]: an invalid workload or option, a thread or session that cannot start, and,
    /// unless errors are counted, the first operation that failed.
    pub fn run(
        &mut self,
        workload: &Workload,
        options: &RunOptions,
        progress: OnProgress<'_>,
    ) -> Result<RunResult, BenchError> {
        workload.validate()?;
        validate(options)?;
        let records_before = self.records();
        if records_before == 0 && workload.insert < 1.0 {
            return Err(BenchError::invalid(format!(
                "workload '{}' needs records; load the data set first",
                workload.name
            )));
        }
        self.runs += 1;
        let plan = Plan {
            store: self.store,
            clock: &self.clock,
            workload,
            dataset: &self.dataset,
            values: &self.values,
            counter: &self.counter,
            options,
            seed: mix(options.seed, self.runs),
            stop: AtomicBool::new(false),
            slots: Slot::all(options.threads),
        };
        let started = u64::try_from(clock::unix_time().as_millis()).unwrap_or(u64::MAX);
        let mut watch = Watch::new(&plan, progress, (started, records_before));
        let (outcomes, measure_from) = run_threads(&plan, &mut watch)?;
        let finished = outcomes.iter().map(|o| o.finished).max();
        let finished = finished.unwrap_or(measure_from).max(measure_from);
        watch.close_interval(finished);
        watch.report(Phase::Sync, Duration::ZERO);
        let sync_began = self.clock.now();
        self.store
            .sync()
            .map_err(|cause| BenchError::Sync { workload: workload.name.clone(), cause })?;
        let synced = self.clock.now();
        watch.sample(synced);

        let elapsed_ns = to_nanos(finished - measure_from);
        let by_operation = merge(workload, &plan.slots);
        let operations = by_operation.iter().map(|o| o.operations).sum();
        let total = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum();
        let count = |of: fn(&OperationResult) -> u64| by_operation.iter().map(of).sum();
        Ok(RunResult {
            workload: workload.clone(),
            settings: Settings::of(options),
            started_unix_ms: started,
            elapsed_ns,
            operations,
            ops_per_s: rate(operations, elapsed_ns),
            errors: count(|o| o.errors),
            not_found: count(|o| o.not_found),
            wrong_values: count(|o| o.wrong_values),
            unstarted_operations: total(|o| o.unstarted),
            interrupted: watch.interrupted,
            user_bytes_written: total(|o| o.user_bytes_written),
            user_bytes_read: total(|o| o.user_bytes_read),
            sync_ns: to_nanos(synced - sync_began),
            records_before,
            records_after: self.records(),
            intervals: watch.intervals,
            series: watch.series,
            by_operation,
        })
    }
}

fn validate(options: &RunOptions) -> Result<(), BenchError> {
    let invalid = |why: &str| Err(BenchError::invalid(why));
    if options.threads == 0 || options.threads > 4096 {
        return invalid("a run needs 1 to 4,096 threads");
    }
    if options.operations.is_none() && options.time_limit.is_none() {
        return invalid("a run needs a number of operations, a time limit, or both");
    }
    if options.operations == Some(0) || options.time_limit == Some(Duration::ZERO) {
        return invalid("a run of nothing measures nothing; give more operations or time");
    }
    if let Some(rate) = options.target_ops_per_s
        && !(rate > 0.0 && rate <= 1e9)
    {
        return invalid("a target rate lies above 0 and at most at 1e9 operations a second");
    }
    if options.interval < Duration::from_millis(10) {
        return invalid("an interval is at least 10 ms long");
    }
    Ok(())
}

/// Runs all threads to their end, watching them meanwhile; their outcomes, and when measuring
/// began.
fn run_threads(
    plan: &Plan<'_>,
    watch: &mut Watch<'_>,
) -> Result<(Vec<Outcome>, Nanos), BenchError> {
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut gates = Vec::new();
        let mut readies = Vec::new();
        for worker in 0..plan.options.threads {
            let (ready, is_ready) = mpsc::channel();
            let (gate, go) = mpsc::channel();
            let run = move || work(plan, worker, ready, &go);
            let thread = thread::spawn_scoped(scope, &format!("client-{worker}"), run)
                .map_err(|cause| BenchError::Thread { worker, cause })?;
            threads.push(thread);
            gates.push(gate);
            readies.push(is_ready);
        }
        let mut measure_from = Nanos(0);
        // A thread that has no session hangs up instead of answering; then nobody starts, and
        // the dropped gates send the others home.
        if readies.iter().all(|is_ready| is_ready.recv().is_ok()) {
            let begin = plan.clock.now();
            measure_from = begin + plan.options.warm_up;
            let schedule = Schedule {
                begin,
                measure_from,
                deadline: plan.options.time_limit.map(|limit| measure_from + limit),
            };
            watch.begin(schedule);
            for gate in &gates {
                // Nobody listens only after a panic, which joining reports.
                let _ = gate.send(schedule);
            }
            if !plan.clock.is_virtual() {
                watch.until(|| threads.iter().all(ScopedJoinHandle::is_finished));
            }
        }
        drop(gates);
        let mut outcomes = Vec::new();
        let mut failure = None;
        for (worker, thread) in threads.into_iter().enumerate() {
            match thread.join() {
                Ok(mut outcome) => {
                    failure = failure.or(outcome.failure.take());
                    outcomes.push(outcome);
                }
                Err(panic) => {
                    failure = Some(BenchError::Panicked {
                        worker,
                        message: panic_message(panic.as_ref()),
                    });
                }
            }
        }
        failure.map_or(Ok((outcomes, measure_from)), Err)
    })
}

fn merge(workload: &Workload, slots: &[Slot]) -> Vec<OperationResult> {
    let present = OperationKind::ALL.into_iter().filter(|&kind| workload.proportion(kind) > 0.0);
    let merged = present.map(|operation| {
        let mut sum = Tally::new();
        for slot in slots {
            sum.merge(&slot.0.lock().tallies[operation.index()]);
        }
        OperationResult {
            operation,
            operations: sum.latency_ns.len(),
            errors: sum.errors,
            not_found: sum.not_found,
            wrong_values: sum.wrong_values,
            rows: sum.rows,
            latency: latency(&sum.latency_ns),
            intended_latency: latency(&sum.intended_latency_ns),
        }
    });
    merged.collect()
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
        .to_owned()
}
