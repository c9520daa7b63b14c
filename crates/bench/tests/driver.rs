//! The driver against stores whose behaviour is known exactly.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::{Clock, ErrorKind};
use esker_bench::{
    BenchError, BoxError, Dataset, OnError, OperationKind, Phase, Progress, Report, RunOptions,
    RunResult, Runner, Sample, Session, Store, Unit, ValueFormat, Workload,
};
use parking_lot::Mutex;

/// A call, with its key and value.
type Call = (OperationKind, Vec<u8>, Vec<u8>);

/// How long the n-th call takes.
type ServiceTime = fn(u64) -> Duration;

/// A map that can be told to misbehave.
#[derive(Default)]
struct MapStore {
    records: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    calls: AtomicU64,
    log: Mutex<Vec<Call>>,
    fault: Option<Fault>,
    /// The clock to advance, and by how much in the n-th call.
    service: Option<(Clock, ServiceTime)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    NoSession,
    Panic,
    FailEveryThirdInsert,
    FailReads,
    FlipAByte,
    AnotherRecord,
    ScanBackwards,
    NoSync,
}

impl MapStore {
    fn with(fault: Fault) -> MapStore {
        MapStore { fault: Some(fault), ..MapStore::default() }
    }

    fn call(&self, kind: OperationKind, key: &[u8], value: &[u8]) -> u64 {
        self.log.lock().push((kind, key.to_vec(), value.to_vec()));
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some((clock, time)) = &self.service {
            clock.advance(time(call));
        }
        call
    }
}

impl Store for MapStore {
    fn session(&self) -> Result<Box<dyn Session + '_>, BoxError> {
        match self.fault {
            Some(Fault::NoSession) if self.calls.fetch_add(1, Ordering::Relaxed) == 1 => {
                Err("the door is shut".into())
            }
            _ => Ok(Box::new(MapSession(self))),
        }
    }

    fn sync(&self) -> Result<(), BoxError> {
        match self.fault {
            Some(Fault::NoSync) => Err("the disk is gone".into()),
            _ => Ok(()),
        }
    }

    fn sample(&self) -> Vec<Sample> {
        let calls = self.calls.load(Ordering::Relaxed) as f64;
        vec![
            Sample::counter("calls", Unit::Count, calls),
            Sample::level("nothing", Unit::Ratio, f64::NAN),
        ]
    }
}

struct MapSession<'a>(&'a MapStore);

impl Session for MapSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BoxError> {
        self.0.call(OperationKind::Read, key, b"");
        let records = self.0.records.lock();
        let found = match self.0.fault {
            Some(Fault::FailReads) => return Err("a bad sector".into()),
            Some(Fault::AnotherRecord) => records.values().find(|v| Some(*v) != records.get(key)),
            _ => records.get(key),
        };
        let Some(found) = found else {
            return Ok(false);
        };
        value.clone_from(found);
        if self.0.fault == Some(Fault::FlipAByte) {
            *value.last_mut().unwrap() ^= 1;
        }
        Ok(true)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), BoxError> {
        let call = self.0.call(OperationKind::Insert, key, value);
        match self.0.fault {
            Some(Fault::FailEveryThirdInsert) if call % 3 == 2 => return Err("full".into()),
            Some(Fault::Panic) if call == 50 => panic!("a broken store"),
            _ => {}
        }
        self.0.records.lock().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn scan(
        &mut self,
        start: &[u8],
        count: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, BoxError> {
        self.0.call(OperationKind::Scan, start, b"");
        let records = self.0.records.lock();
        let mut range: Vec<_> = records.range(start.to_vec()..).take(count).collect();
        if self.0.fault == Some(Fault::ScanBackwards) {
            range.reverse();
        }
        range.iter().for_each(|(key, value)| visit(key, value));
        Ok(range.len())
    }
}

fn dataset(records: u64) -> Dataset {
    Dataset { records, values: ValueFormat::one(100), ..Dataset::default() }
}

fn operations(count: u64) -> RunOptions {
    RunOptions { operations: Some(count), verify: true, ..RunOptions::default() }
}

fn quiet(_: &Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Loads 1,000 records, then runs `workload`.
fn run(
    store: &MapStore,
    workload: &Workload,
    options: &RunOptions,
) -> Result<RunResult, BenchError> {
    let mut runner = Runner::new(store, Clock::real(), dataset(1_000))?;
    runner.load(options, &mut quiet)?;
    runner.run(workload, options, &mut quiet)
}

#[test]
fn a_sequence_of_all_workloads_finds_every_record_as_it_was_written() {
    let store = MapStore::default();
    let mut runner = Runner::new(&store, Clock::real(), dataset(5_000)).unwrap();
    let options = RunOptions { threads: 3, ..operations(10_001) };
    let mut report = Report::new("all", dataset(5_000));
    report.runs.push(runner.load(&options, &mut quiet).unwrap());
    assert_eq!(runner.records(), 5_000);
    for workload in Workload::core() {
        report.runs.push(runner.run(&workload, &options, &mut quiet).unwrap());
    }
    for run in &report.runs {
        let expected = if run.workload.name == "load" { 5_000 } else { 10_001 };
        assert_eq!(run.operations, expected);
        assert_eq!((run.errors, run.not_found, run.wrong_values), (0, 0, 0));
        let latencies = run.by_operation.iter().flat_map(|o| &o.latency);
        assert_eq!(latencies.map(|l| l.count).sum::<u64>(), expected);
        let inserted = run.by_operation.iter().find(|o| o.operation == OperationKind::Insert);
        let inserted = inserted.map_or(0, |o| o.operations);
        assert_eq!(run.records_after - run.records_before, inserted);
        assert_eq!(run.intervals.iter().map(|i| i.operations).sum::<u64>(), expected);
    }
    assert_eq!(runner.records(), store.records.lock().len() as u64);
    let stored: usize = store
        .log
        .lock()
        .iter()
        .map(|(_, k, v)| if v.is_empty() { 0 } else { k.len() + v.len() })
        .sum();
    let written: u64 = report.runs.iter().map(|r| r.user_bytes_written).sum();
    assert_eq!(written, stored as u64);

    let again = Report::from_json(&report.json()).unwrap();
    assert_eq!(again.table(), report.table());
    assert_eq!(again.runs[5].by_operation[1].operations, report.runs[5].by_operation[1].operations);
    assert!(Report::from_json("{}").unwrap_err().to_string().contains("not a benchmark report"));
    let other = report.json().replace("esker-bench/1", "esker-bench/9");
    assert!(Report::from_json(&other).unwrap_err().to_string().contains("'esker-bench/9'"));
}

#[test]
fn a_seed_gives_the_same_operations_keys_and_values() {
    let log = |seed: u64| {
        let store = MapStore::default();
        let mut runner = Runner::new(&store, Clock::real(), dataset(300)).unwrap();
        let options = RunOptions { seed, ..operations(500) };
        runner.load(&options, &mut quiet).unwrap();
        let log = |workload: Workload, runner: &mut Runner<'_>| {
            store.log.lock().clear();
            runner.run(&workload, &options, &mut quiet).unwrap();
            store.log.lock().clone()
        };
        let [once, twice] = [0, 1].map(|_| log(Workload::a(), &mut runner));
        assert_ne!(once, twice, "two runs of a sequence differ");
        [once, twice, log(Workload::e(), &mut runner)]
    };
    assert_eq!(log(1), log(1));
    assert_ne!(log(1), log(2));
}

/// The queue of one client at 1,000 operations a second: each takes 100 µs, one takes 100 ms.
/// Bound: the histogram's 0.1 %.
#[test]
fn latency_from_the_intended_start_counts_the_wait_behind_a_stall() {
    let time = |call: u64| match call {
        1_500 => Duration::from_millis(100),
        _ => Duration::from_micros(100),
    };
    let clock = Clock::virtual_time();
    let store = MapStore { service: Some((clock.clone(), time)), ..MapStore::default() };
    let mut runner = Runner::new(&store, clock, dataset(1_000)).unwrap();
    runner.load(&operations(1), &mut quiet).unwrap();
    let options = RunOptions { target_ops_per_s: Some(1_000.0), ..operations(1_000) };
    let result = runner.run(&Workload::c(), &options, &mut quiet).unwrap();
    let read = &result.by_operation[0];
    let service = read.latency.as_ref().unwrap();
    assert_eq!(service.p999_ns / 1_000, 100, "one operation of a thousand was slow");
    assert_eq!(service.max_ns / 100_000_000, 1);

    let mut free_at = 0;
    let mut expected: Vec<u64> = (0..1_000u64)
        .map(|n| {
            let intended = n * 1_000_000;
            free_at = free_at.max(intended) + u64::try_from(time(1_000 + n).as_nanos()).unwrap();
            free_at - intended
        })
        .collect();
    expected.sort_unstable();
    let intended = read.intended_latency.as_ref().unwrap();
    for (got, rank) in [
        (intended.p50_ns, 500),
        (intended.p95_ns, 950),
        (intended.p99_ns, 990),
        (intended.p999_ns, 999),
        (intended.max_ns, 1_000),
    ] {
        let expected = expected[rank - 1] as f64;
        assert!((got as f64 / expected - 1.0).abs() < 1e-3, "{got} at {rank}, {expected}");
    }
    assert_eq!(result.elapsed_ns, 999_100_000);
    assert_eq!(result.unstarted_operations, 0);
}

#[test]
fn a_time_limit_ends_a_run_and_counts_what_never_started() {
    let clock = Clock::virtual_time();
    let store = MapStore {
        service: Some((clock.clone(), |_| Duration::from_millis(2))),
        ..MapStore::default()
    };
    let mut runner = Runner::new(&store, clock, dataset(10)).unwrap();
    runner.load(&operations(1), &mut quiet).unwrap();
    let mut options =
        RunOptions { time_limit: Some(Duration::from_secs(1)), ..RunOptions::default() };
    let free = runner.run(&Workload::c(), &options, &mut quiet).unwrap();
    assert_eq!((free.operations, free.elapsed_ns), (500, 1_000_000_000));
    assert!((free.ops_per_s - 500.0).abs() < 1e-9);
    options.target_ops_per_s = Some(1_000.0);
    let paced = runner.run(&Workload::c(), &options, &mut quiet).unwrap();
    assert_eq!((paced.operations, paced.unstarted_operations), (500, 500));
}

/// A store of half the rate asked for: the backlog of a second of warm-up is no work of the second
/// that is measured.
#[test]
fn the_backlog_of_a_warm_up_is_not_measured() {
    let clock = Clock::virtual_time();
    let store = MapStore {
        service: Some((clock.clone(), |_| Duration::from_millis(2))),
        ..MapStore::default()
    };
    let mut runner = Runner::new(&store, clock, dataset(10)).unwrap();
    runner.load(&operations(1), &mut quiet).unwrap();
    let options = RunOptions {
        target_ops_per_s: Some(1_000.0),
        warm_up: Duration::from_secs(1),
        time_limit: Some(Duration::from_secs(1)),
        ..RunOptions::default()
    };
    let run = runner.run(&Workload::c(), &options, &mut quiet).unwrap();
    assert_eq!((run.operations, run.unstarted_operations), (500, 500));
    let first = run.by_operation[0].intended_latency.as_ref().unwrap();
    // Bound: the histogram's 0.1 %.
    assert!(first.min_ns.abs_diff(2_000_000) <= 2_000, "the first one starts when it should");
}

/// An operation of the warm-up that outlasts the time to measure.
#[test]
fn only_operations_of_the_measured_time_are_cut_off() {
    let clock = Clock::virtual_time();
    let store = MapStore {
        service: Some((clock.clone(), |_| Duration::from_secs(5))),
        ..MapStore::default()
    };
    let mut runner = Runner::new(&store, clock, dataset(10)).unwrap();
    runner.load(&operations(1), &mut quiet).unwrap();
    let options = RunOptions {
        target_ops_per_s: Some(1_000.0),
        warm_up: Duration::from_secs(1),
        time_limit: Some(Duration::from_secs(1)),
        ..RunOptions::default()
    };
    let run = runner.run(&Workload::c(), &options, &mut quiet).unwrap();
    assert_eq!((run.operations, run.unstarted_operations), (0, 1_000));
}

#[test]
fn warm_up_is_in_no_figure() {
    let clock = Clock::virtual_time();
    let time = |call: u64| Duration::from_micros(if call < 110 { 10_000 } else { 10 });
    let store = MapStore { service: Some((clock.clone(), time)), ..MapStore::default() };
    let mut runner = Runner::new(&store, clock, dataset(10)).unwrap();
    runner.load(&operations(1), &mut quiet).unwrap();
    let options = RunOptions { warm_up: Duration::from_secs(1), ..operations(400) };
    let result = runner.run(&Workload::a(), &options, &mut quiet).unwrap();
    assert_eq!((result.operations, result.elapsed_ns), (400, 4_000_000));
    assert!(result.by_operation.iter().all(|o| o.latency.as_ref().unwrap().max_ns < 10_100));
    assert_eq!(result.intervals.iter().map(|i| i.operations).sum::<u64>(), 400);
    let user_bytes = store.log.lock()[110..]
        .iter()
        .map(|(_, k, v)| if v.is_empty() { 0 } else { k.len() + v.len() })
        .sum::<usize>();
    assert_eq!(result.user_bytes_written, user_bytes as u64);
}

#[test]
fn an_error_ends_the_run_and_names_operation_and_key() {
    let store = MapStore::with(Fault::FailReads);
    let options = RunOptions { threads: 3, ..operations(10_000) };
    let error = run(&store, &Workload::c(), &options).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("read of key 'user"), "{message}");
    assert!(message.contains("a bad sector"), "{message}");
    assert_eq!(error.store_error().unwrap().to_string(), "a bad sector");
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn counted_errors_do_not_hide_the_records_after_them() {
    let store = MapStore::with(Fault::FailEveryThirdInsert);
    let options = RunOptions { threads: 2, on_error: OnError::Count, ..operations(3_000) };
    let mut runner = Runner::new(&store, Clock::real(), dataset(3_000)).unwrap();
    let load = runner.load(&options, &mut quiet).unwrap();
    assert_eq!((load.operations, load.errors), (2_000, 1_000));
    assert_eq!(load.intervals.iter().map(|i| i.errors).sum::<u64>(), 1_000);
    assert_eq!(runner.records(), 3_000);
    let read = runner.run(&Workload::c(), &options, &mut quiet).unwrap();
    assert_eq!((read.operations, read.errors, read.wrong_values), (3_000, 0, 0));
    assert!(read.not_found > 500, "a third of the records is missing");
}

#[test]
fn wrong_values_are_found_when_asked_for() {
    for (fault, workload, message) in [
        (Fault::FlipAByte, Workload::c(), "byte 99 of the value"),
        (Fault::FlipAByte, Workload::f(), "returned a wrong value"),
        (Fault::AnotherRecord, Workload::c(), "the value belongs to record"),
        (Fault::ScanBackwards, Workload::e(), "out of order"),
    ] {
        let error = run(&MapStore::with(fault), &workload, &operations(1_000)).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let counted = RunOptions { on_error: OnError::Count, ..operations(1_000) };
        let result = run(&MapStore::with(fault), &workload, &counted).unwrap();
        assert!(result.wrong_values > 100 && result.operations == 1_000);
        let unverified = RunOptions { verify: false, ..operations(1_000) };
        let result = run(&MapStore::with(fault), &workload, &unverified).unwrap();
        assert_eq!(result.wrong_values, 0);
    }
}

#[test]
fn a_thread_that_cannot_start_or_panics_ends_the_run_with_a_reason() {
    let options = RunOptions { threads: 4, ..operations(1_000) };
    let message = |fault| {
        let store = MapStore::with(fault);
        run(&store, &Workload::a(), &options).unwrap_err().to_string()
    };
    assert!(message(Fault::NoSession).contains("the door is shut"));
    assert!(message(Fault::Panic).contains("a broken store"));
    assert!(message(Fault::NoSync).contains("sync after workload 'load' failed: the disk is gone"));
}

/// At the rate asked it would take twenty seconds.
#[test]
fn a_panic_in_one_client_ends_the_others_and_leaves_no_number_open() {
    let store = MapStore::with(Fault::Panic);
    let mut runner = Runner::new(&store, Clock::real(), dataset(1_000_000)).unwrap();
    let options =
        RunOptions { threads: 4, target_ops_per_s: Some(50_000.0), ..RunOptions::default() };
    let error = runner.load(&options, &mut quiet).unwrap_err();
    assert!(error.to_string().contains("a broken store"), "{error}");
    let calls = store.calls.load(Ordering::Relaxed);
    assert!(calls < 250_000, "{calls} calls");
    assert_eq!(runner.records(), calls, "every number that was reserved is completed");
}

#[test]
fn impossible_runs_are_refused_with_a_reason() {
    let store = MapStore::default();
    let mut runner = Runner::new(&store, Clock::real(), dataset(10)).unwrap();
    let mut refused = |workload: Workload, options: RunOptions| {
        let error = runner.run(&workload, &options, &mut quiet).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    assert!(refused(Workload::a(), operations(1)).contains("load the data set first"));
    let (a, one) = (Workload::load, || operations(1));
    assert!(refused(a(), RunOptions::default()).contains("a time limit, or both"));
    assert!(refused(a(), RunOptions { threads: 0, ..one() }).contains("1 to 4,096 threads"));
    let target_ops_per_s = Some(0.0);
    assert!(refused(a(), RunOptions { target_ops_per_s, ..one() }).contains("target rate"));
    assert!(refused(a(), operations(0)).contains("measures nothing"));
    let interval = Duration::ZERO;
    assert!(refused(a(), RunOptions { interval, ..one() }).contains("10 ms"));
    runner.load(&operations(1), &mut quiet).unwrap();
    let error = runner.load(&operations(1), &mut quiet).unwrap_err();
    assert!(error.to_string().starts_with("nothing to load"));
}

#[test]
fn intervals_are_gapless_and_hold_every_operation_once() {
    let store = MapStore::default();
    let mut runner = Runner::new(&store, Clock::real(), dataset(100)).unwrap();
    runner.load(&operations(1), &mut quiet).unwrap();
    let options = RunOptions {
        threads: 2,
        time_limit: Some(Duration::from_millis(300)),
        target_ops_per_s: Some(20_000.0),
        warm_up: Duration::from_millis(60),
        interval: Duration::from_millis(50),
        ..RunOptions::default()
    };
    let mut phases = Vec::new();
    let mut watch = |progress: &Progress<'_>| {
        assert!((0.0..=1.0).contains(&progress.fraction));
        phases.push(progress.phase);
        ControlFlow::Continue(())
    };
    let run = runner.run(&Workload::b(), &options, &mut watch).unwrap();
    phases.dedup();
    assert_eq!(phases, [Phase::WarmUp, Phase::Measure, Phase::Sync]);
    assert!(run.intervals.len() > 2);
    assert_eq!(run.intervals[0].start_ns, 0);
    assert!(run.intervals.is_sorted_by(|a, b| a.end_ns == b.start_ns));
    assert!(run.intervals.last().unwrap().end_ns >= run.elapsed_ns);
    assert_eq!(run.intervals.iter().map(|i| i.operations).sum::<u64>(), run.operations);
    let [calls] = &run.series[..] else { panic!("a series that is never finite is left out") };
    assert!(calls.points.len() >= run.intervals.len());
    assert!(calls.increase().unwrap() >= run.operations as f64 * 0.9);
}

#[test]
fn a_caller_can_end_a_run_early_and_keeps_its_result() {
    let store = MapStore::default();
    let mut runner = Runner::new(&store, Clock::real(), dataset(100)).unwrap();
    runner.load(&operations(1), &mut quiet).unwrap();
    let options = RunOptions {
        time_limit: Some(Duration::from_secs(600)),
        target_ops_per_s: Some(1_000.0),
        interval: Duration::from_millis(20),
        ..RunOptions::default()
    };
    let mut stop = |progress: &Progress<'_>| match progress.operations {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    let run = runner.run(&Workload::c(), &options, &mut stop).unwrap();
    assert!(run.interrupted && run.operations > 0 && run.unstarted_operations == 0);
    assert!(run.elapsed_ns < 60_000_000_000);
}
