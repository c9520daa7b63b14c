//! The engine on devices in memory, and verdicts on phases that are told.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use esker_base::{AlignedBuf, Clock, Lba};
use esker_bench::result::{
    Interval, Latency, OperationResult, Point, Quantile, RunResult, Series, Settings,
};
use esker_bench::{OperationKind, Sample, Unit, Workload};
use esker_device::{MemoryDevice, Port};
use esker_flash::profile::Profile;
use esker_kv::MediaClass;
use esker_report::{Outcome, Verdict};

use super::arm::{self, ArmRun, Plan};
use super::calibrate::{Calibration, calibrate};
use super::machine::{Arm, ArmDrive, Machine, Opened, Peer, PeerSetup, Processors, Rates};
use super::phase::{Decider, DriveUse, OperationLatency, Phase};
use super::report::HseFigures;
use super::verdict::{Pair, verdicts};
use super::{Hse, HseOptions, peer, round};
use crate::steps::Progress;
use crate::{LabError, Report, study};

/// Devices in memory that take no time.
#[derive(Default)]
struct InMemory {
    opened: Vec<(Arm, u32)>,
    /// Requests to RocksDB so far.
    asked: Asked,
    /// The request that it fails at.
    fails_at: &'static str,
}

/// Requests, as they came.
type Asked = Arc<Mutex<Vec<String>>>;

impl Machine for InMemory {
    fn open(&mut self, arm: Arm, dilation: u32) -> Result<Opened, LabError> {
        self.opened.push((arm, dilation));
        let device = |name: &str| Arc::new(MemoryDevice::new(name, 256 << 20, 4096));
        let drive = |class, name: &str| ArmDrive {
            class,
            name: name.to_owned(),
            device: device(name),
            model: None,
            rates: Some(Rates { read_bytes_per_s: 1e9, write_bytes_per_s: 1e9, reads_per_s: 1e6 }),
        };
        let mut drives =
            vec![drive(MediaClass::Capacity, "one"), drive(MediaClass::Capacity, "two")];
        if arm == Arm::Staged {
            drives.push(drive(MediaClass::Staging, "fast"));
        }
        let manifest = device("manifest");
        Ok(Opened { clock: Clock::real(), manifest, drives, remarks: vec!["in memory".to_owned()] })
    }

    fn start_peer(&mut self, setup: &PeerSetup<'_>) -> Result<Box<dyn Peer>, LabError> {
        let port = Port::open(&*setup.device, 1)?;
        let (asked, fails_at) = (self.asked.clone(), self.fails_at);
        Ok(Box::new(Told { asked, fails_at, port, busy_ns: 0 }))
    }

    fn is_real(&self) -> bool {
        true
    }

    fn processors(&self) -> Option<Processors> {
        None
    }

    fn samples(&self) -> fn() -> Vec<Sample> {
        Vec::new
    }
}

/// RocksDB that takes four seconds for each request, three of them with requests under way, and writes a MiB each time.
struct Told {
    asked: Asked,
    fails_at: &'static str,
    port: Port,
    busy_ns: u64,
}

impl Told {
    fn answer(&mut self, request: String, preset: &str) -> Result<RunResult, LabError> {
        if request == self.fails_at {
            return Err(LabError::Way { way: "RocksDB".to_owned(), why: "killed".to_owned() });
        }
        self.asked.lock().unwrap().push(request);
        self.port.write(Lba(0), AlignedBuf::zeroed(1 << 20), None)?;
        self.busy_ns += 3_000_000_000;
        let mut run = told_run(Workload::preset(preset).unwrap());
        (run.elapsed_ns, run.ops_per_s) = (3_000_000_000, 100.0);
        run.sync_ns = 1_000_000_000;
        Ok(run)
    }
}

impl Peer for Told {
    fn description(&self) -> String {
        "11.8.1, told".to_owned()
    }

    fn load(&mut self) -> Result<RunResult, LabError> {
        self.answer("load".to_owned(), "load")
    }

    fn run(&mut self, workload: &Workload, operations: u64) -> Result<RunResult, LabError> {
        self.answer(format!("{} {operations}", workload.name), &workload.name)
    }

    fn settle(&mut self) -> Result<(), LabError> {
        self.answer("settle".to_owned(), "load").map(|_| ())
    }

    fn busy_ns(&self) -> Option<u64> {
        Some(self.busy_ns)
    }

    fn close(self: Box<Self>) -> Result<(), LabError> {
        self.asked.lock().unwrap().push("close".to_owned());
        Ok(())
    }
}

const SMALL: HseOptions = HseOptions {
    records: 20_000,
    operations: 2000,
    threads: 4,
    rounds: 1,
    dilation: None,
    has_scans: true,
    has_rocksdb: false,
    seed: 7,
};

#[test]
fn an_arm_counts_what_each_drive_and_stream_got() {
    for arm in Arm::ESKER {
        let mut machine = InMemory::default();
        let plan = Plan { options: &SMALL, arm, round: 0, dilation: 1 };
        let mut told = Vec::new();
        let mut follow = |text: &str, phase: usize| {
            told.push((phase, text.to_owned()));
            ControlFlow::Continue(())
        };
        let run = arm::run(&plan, &mut machine, &[Workload::a()], &mut follow).unwrap();
        assert_eq!(machine.opened, [(arm, 1)]);
        assert!(run.remarks.contains(&"in memory".to_owned()));
        assert!(told.iter().any(|(phase, text)| *phase == 1 && text.starts_with('A')), "{told:?}");
        let [load, a] = &run.phases[..] else { panic!("{} phases", run.phases.len()) };
        assert_eq!((load.operations, a.operations), (SMALL.records, SMALL.operations));
        // A record has 1,000 bytes and a key of some twenty.
        assert!((20_300_000..21_000_000).contains(&load.user_bytes), "{}", load.user_bytes);
        let [capacity, staging] = [MediaClass::Capacity, MediaClass::Staging];
        let written = load.written_bytes(capacity) + load.written_bytes(staging);
        assert!(written >= load.user_bytes, "{written}");
        assert_eq!(load.written_bytes(staging) > 0, arm == Arm::Staged);
        for class in [capacity, staging] {
            let streams = load.streams.iter().filter(|one| one.class == class);
            let by_stream: u64 = streams.map(|one| one.written_bytes).sum();
            // The class's own header is of no stream.
            let by_drive = load.written_bytes(class);
            assert!((by_stream..by_stream + (1 << 20)).contains(&by_drive), "{class}");
        }
        let (one, two) = (load.drives[0].written_bytes, load.drives[1].written_bytes);
        assert!(one.abs_diff(two) < (one + two) / 5, "striped: {one} and {two}");
        let needs = load.drives[0].needs_s.unwrap();
        assert!(needs > 0.005 && load.needs_s().unwrap() >= needs, "{needs}");
        assert!(load.latency("insert").is_some() && a.latency("read").is_some());
    }
}

#[test]
fn interrupted_arm_keeps_its_phases_and_judges_nothing() {
    let plan = Plan { options: &SMALL, arm: Arm::Capacity, round: 0, dilation: 1 };
    let mut follow = |_: &str, phase: usize| match phase {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    let workloads = [Workload::a(), Workload::c()];
    let run = arm::run(&plan, &mut InMemory::default(), &workloads, &mut follow).unwrap();
    assert_eq!(run.phases.len(), 1, "{run:?}");
    let calibration = Calibration::given(1);
    let figures = HseFigures::new(&SMALL, false, calibration, vec![run], Vec::new());
    let page = Report::<Hse>::of(figures).page();
    assert!(page.text().contains("load") && page.html().contains("load"));
}

#[test]
fn an_observer_ends_it() {
    let mut machine = InMemory::default();
    let options = HseOptions { records: 320_000, ..SMALL };
    let ended = study::run::<Hse>(&options, &mut machine, &mut |_| ControlFlow::Break(()));
    assert!(matches!(ended, Err(LabError::Interrupted)), "{:?}", ended.err());
}

#[test]
fn options_without_sense_are_refused() {
    for (options, part) in [
        (HseOptions { records: 1000, ..SMALL }, "give at least 320000"),
        (HseOptions { records: u64::MAX, ..SMALL }, "at most"),
        (HseOptions { records: 1 << 20, operations: 1, ..SMALL }, "operations"),
        (HseOptions { records: 1 << 20, rounds: 0, ..SMALL }, "round"),
        (HseOptions { records: 1 << 20, dilation: Some(0), ..SMALL }, "times slower"),
    ] {
        let why = options.check().unwrap_err().to_string();
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn a_drive_carries_what_its_maker_says() {
    let rates = Rates::of(&Profile::find("micron-5210").unwrap()).unwrap();
    // Reads are bound by bytes here, and by their number there; writes come after them.
    let close = |got: f64, wanted: f64| assert!((got - wanted).abs() < 1e-9, "{got} {wanted}");
    close(rates.seconds(0, 540_000_000, 10), 1.0);
    close(rates.seconds(0, 4096, 90_000), 1.0);
    close(rates.seconds(360_000_000, 540_000_000, 10), 2.0);
}

/// A run with the given figures: how fast, the tail of reads, bytes to capacity, and the decider.
fn phase(workload: &str, ops_per_s: f64, p999_us: f64, capacity: u64, decider: Decider) -> Phase {
    let preset = Workload::preset(workload).unwrap();
    let latency = OperationLatency {
        count: 100_000,
        operation: if workload == "load" { "insert" } else { "read" }.to_owned(),
        mean_us: 1.0,
        p50_us: 1.0,
        p99_us: 1.0,
        p999_us,
    };
    let drive = DriveUse {
        class: MediaClass::Capacity,
        name: "drive".to_owned(),
        written_bytes: capacity,
        read_bytes: 0,
        reads: 0,
        media_written_bytes: None,
        life_percent: None,
        #[allow(clippy::cast_precision_loss)] // bytes at a byte a second
        needs_s: Some(capacity as f64),
        of_rates: Some(0.85),
    };
    Phase {
        workload: workload.to_owned(),
        operations: 100,
        ops_per_s,
        elapsed_s: 1.0,
        settle_s: 0.0,
        latencies: vec![latency],
        user_bytes: 100,
        drives: vec![drive],
        streams: Vec::new(),
        busy: Vec::new(),
        processors: Some(0.5),
        held_s: Vec::new(),
        decider,
        run: told_run(preset),
    }
}

fn told_run(workload: Workload) -> RunResult {
    let settings = Settings {
        threads: 1,
        operations: None,
        time_limit_ns: None,
        target_ops_per_s: None,
        warm_up_ns: 0,
        verify: false,
        seed: 1,
    };
    RunResult {
        workload,
        settings,
        started_unix_ms: 0,
        elapsed_ns: 1,
        operations: 100,
        ops_per_s: 1.0,
        errors: 0,
        not_found: 0,
        wrong_values: 0,
        unstarted_operations: 0,
        interrupted: false,
        user_bytes_written: 100,
        user_bytes_read: 0,
        sync_ns: 0,
        records_before: 0,
        records_after: 0,
        by_operation: Vec::new(),
        intervals: Vec::new(),
        series: Vec::new(),
    }
}

fn told(arm: Arm, round: u32, phases: Vec<Phase>) -> ArmRun {
    ArmRun { arm, round, phases, remarks: Vec::new() }
}

#[test]
fn medians_are_compared_and_processors_make_it_incomparable() {
    use Decider::{Drives, Processors};
    let round = |round, arm, load, a, tail, decider| {
        let capacity = if arm == Arm::Staged { 140 } else { 300 };
        let phases = vec![
            phase("load", load, 0.0, capacity, Drives),
            phase("A", a, tail, capacity, decider),
        ];
        told(arm, round, phases)
    };
    let runs = |decider| {
        vec![
            round(0, Arm::Capacity, 100.0, 100.0, 900.0, Drives),
            round(0, Arm::Staged, 220.0, 240.0, 300.0, decider),
            // Outliers that medians leave aside.
            round(1, Arm::Staged, 900.0, 900.0, 9000.0, Drives),
            round(1, Arm::Capacity, 10.0, 10.0, 10.0, Drives),
            round(2, Arm::Capacity, 100.0, 100.0, 900.0, Drives),
            round(2, Arm::Staged, 220.0, 240.0, 300.0, Drives),
        ]
    };
    let by_drives = runs(Drives);
    let found = verdicts(&Pair::all(&by_drives));
    let outcomes: Vec<_> = found.iter().map(|one| (one.measured.as_str(), one.outcome)).collect();
    assert_eq!(
        outcomes,
        [
            ("2.20 times", Outcome::Missed),
            ("85 % and 85 %", Outcome::Reached),
            ("1.40 (without: 3.00)", Outcome::Reached),
            ("2.40 times", Outcome::Reached),
            ("0.33", Outcome::Reached),
            ("0.47", Outcome::Reached),
        ]
    );
    // Bytes alone would make the load 300 / 140 times as fast.
    let alone = &found[0].baseline;
    assert!(alone.starts_with("2.14 times by the drives' rates alone: the bytes"), "{alone}");
    let by_processors = runs(Processors);
    let found = verdicts(&Pair::all(&by_processors));
    let outcomes: Vec<_> = found.iter().map(|one| one.outcome).collect();
    // A's rates and latencies say nothing of drives then; its bytes count all the same.
    assert_eq!(outcomes[3..], [Outcome::NotComparable, Outcome::NotComparable, Outcome::Reached]);
    assert_eq!(outcomes[0], Outcome::Missed);
}

#[test]
fn young_data_and_few_reads_make_it_incomparable() {
    let of = |capacity, reads| {
        let run = |arm| {
            let mut a = phase("A", 100.0, 900.0, 300, Decider::Drives);
            a.latencies[0].count = reads;
            told(arm, 0, vec![phase("load", 100.0, 0.0, capacity, Decider::Drives), a])
        };
        let runs = [run(Arm::Capacity), run(Arm::Staged)];
        verdicts(&Pair::all(&runs))
    };
    let find = |found: &[Verdict], part: &str| {
        found.iter().find(|one| one.figure.contains(part)).unwrap().clone()
    };
    let young = find(&of(99, 100_000), "load: bytes to capacity");
    assert_eq!(young.outcome, Outcome::NotComparable, "{young:?}");
    assert!(young.why()[0].contains("aged") && young.why()[0].ends_with("0.99"), "{young:?}");
    assert_eq!(find(&of(100, 100_000), "load: bytes to capacity").outcome, Outcome::Reached);
    let few = find(&of(100, 9_999), "p99.9");
    assert_eq!(few.outcome, Outcome::NotComparable, "{few:?}");
    assert!(few.why()[0].ends_with("here: 9999"), "{few:?}");
    assert_eq!(find(&of(100, 10_000), "p99.9").outcome, Outcome::Missed);
}

#[test]
fn rocksdb_is_told_in_time_of_the_drives_clock() {
    let mut machine = InMemory::default();
    let plan = Plan { options: &SMALL, arm: Arm::Rocksdb, round: 0, dilation: 4 };
    let mut go_on = |_: &str, _: usize| ControlFlow::Continue(());
    let workloads = [Workload::a(), Workload::e()];
    let run = round::run(&plan, &mut machine, &workloads, &mut go_on).unwrap();
    assert_eq!(machine.opened, [(Arm::Rocksdb, 4)]);
    let asked = ["load", "settle", "A 2000", "settle", "E 100", "settle", "close"];
    assert_eq!(*machine.asked.lock().unwrap(), asked);
    assert_eq!(run.remarks, ["11.8.1, told", "in memory"]);
    let a = &run.phases[1];
    assert_eq!((a.workload.as_str(), a.operations, a.user_bytes), ("A", 100, 100));
    // Four seconds are one on a clock that is four times slower, and so are rates.
    let close = |got: f64, wanted: f64| assert!((got - wanted).abs() < 1e-9, "{got} {wanted}");
    close(a.ops_per_s, 400.0);
    close(a.elapsed_s, 1.0);
    // Bytes count up to the end of maintenance, time does not: a MiB on two drives of 1 GB/s, then another.
    assert_eq!(a.written_bytes(MediaClass::Capacity), 2 << 20);
    assert_eq!(a.streams[0].written_bytes, 2 << 20);
    close(a.of_rates().unwrap(), f64::from(1 << 19) / 1e9);
    close(a.busy[0].share, 0.75);
    assert_eq!(a.decider, Decider::Drives);
}

#[test]
fn slower_clock_divides_spans_and_multiplies_rates() {
    let latency = Latency {
        count: 9,
        mean_ns: 1000.0,
        min_ns: 100,
        p50_ns: 200,
        p95_ns: 300,
        p99_ns: 400,
        p999_ns: 500,
        max_ns: 600,
        by_percentile: vec![Quantile { percentile: 50.0, one_in: 2.0, latency_ns: 200 }],
    };
    let mut real = told_run(Workload::a());
    (real.elapsed_ns, real.sync_ns, real.ops_per_s) = (1000, 100, 7.0);
    real.by_operation.push(OperationResult {
        operation: OperationKind::Read,
        operations: 9,
        errors: 0,
        not_found: 0,
        wrong_values: 0,
        rows: 0,
        latency: Some(latency),
        intended_latency: None,
    });
    real.intervals.push(Interval {
        start_ns: 100,
        end_ns: 200,
        operations: 9,
        ops_per_s: 7.0,
        errors: 0,
        p50_ns: Some(100),
        p99_ns: Some(200),
        p999_ns: Some(300),
        max_ns: None,
    });
    let points = vec![Point { at_ns: 100, value: 5.0 }];
    let name = "a level".to_owned();
    real.series.push(Series { name, unit: Unit::Bytes, counter: false, points });
    let run = peer::on_slower_clock(real.clone(), 10);
    assert_eq!((run.elapsed_ns, run.sync_ns, run.operations), (100, 10, real.operations));
    assert!((run.ops_per_s - 70.0).abs() < 1e-9);
    let one = run.by_operation[0].latency.clone().unwrap();
    assert!((one.mean_ns - 100.0).abs() < 1e-9);
    let spans = [one.min_ns, one.p50_ns, one.p95_ns, one.p99_ns, one.p999_ns, one.max_ns];
    assert_eq!(spans, [10, 20, 30, 40, 50, 60]);
    assert_eq!((one.count, one.by_percentile[0].latency_ns), (9, 20));
    let part = &run.intervals[0];
    assert_eq!((part.start_ns, part.end_ns, part.operations), (10, 20, 9));
    assert_eq!((part.p50_ns, part.p99_ns, part.p999_ns), (Some(10), Some(20), Some(30)));
    assert!((part.ops_per_s - 70.0).abs() < 1e-9);
    assert_eq!(run.series[0].points, [Point { at_ns: 10, value: 5.0 }]);
    assert_eq!(peer::on_slower_clock(real.clone(), 1), real);
}

#[test]
fn rocksdb_runs_beside_both_arms_and_a_failure_of_it_ends_nothing() {
    let options = HseOptions { rounds: 2, has_rocksdb: true, has_scans: false, ..SMALL };
    let all = |fails_at| {
        let mut machine = InMemory { fails_at, ..InMemory::default() };
        let mut follow = |_: &Progress<'_>| ControlFlow::Continue(());
        let found = round::all(&options, 1, &mut machine, &mut follow).unwrap();
        let opened: Vec<Arm> = machine.opened.iter().map(|(arm, _)| *arm).collect();
        assert_eq!(opened[..3], Arm::ALL);
        assert_eq!(opened[3..], [Arm::Rocksdb, Arm::Staged, Arm::Capacity]);
        found
    };
    let (runs, skipped) = all("nothing");
    assert_eq!((runs.len(), skipped.len()), (6, 0));
    let (runs, skipped) = all("B 2000");
    assert_eq!(runs.len(), 4);
    assert_eq!(skipped, ["RocksDB, round 1: RocksDB: killed", "RocksDB, round 2: RocksDB: killed"]);
    let figures = HseFigures::new(&options, false, Calibration::given(1), runs, skipped);
    assert!(figures.beside.is_empty());
    let page = Report::<Hse>::of(figures).page();
    assert!(page.text().contains("SKIPPED RocksDB, round 1"));
    assert!(page.html().contains("SKIPPED RocksDB, round 1"));
}

#[test]
fn the_clock_is_chosen_without_rocksdb_when_that_fails() {
    let options = HseOptions { has_rocksdb: true, ..SMALL };
    let mut machine = InMemory { fails_at: "load", ..InMemory::default() };
    let mut follow = |_: &Progress<'_>| ControlFlow::Continue(());
    let found = calibrate(&options, &mut machine, &mut follow).unwrap();
    assert_eq!(found.tries.len(), 1);
    let opened: Vec<Arm> = machine.opened.iter().map(|(arm, _)| *arm).collect();
    assert_eq!(opened, Arm::ALL);
}

#[test]
fn processors_of_either_side_make_it_incomparable_with_rocksdb() {
    use Decider::{Drives, Processors};
    let run = |arm, rate, tail, capacity, decider| {
        let phases = vec![
            phase("load", rate, 0.0, capacity, Drives),
            phase("A", rate, tail, capacity, decider),
        ];
        ArmRun { remarks: vec!["11.8.1, told".to_owned()], ..told(arm, 0, phases) }
    };
    let report = |decider| {
        let runs = vec![
            run(Arm::Capacity, 100.0, 900.0, 150, Drives),
            run(Arm::Staged, 300.0, 300.0, 100, Drives),
            run(Arm::Rocksdb, 50.0, 600.0, 400, decider),
        ];
        Report::<Hse>::of(HseFigures::new(&SMALL, false, Calibration::given(2), runs, Vec::new()))
    };
    let found = report(Drives);
    let a: Vec<_> = found.figures.beside.iter().filter(|one| one.workload == "A").collect();
    let figures = a.iter().map(|one| (one.arm, one.throughput, one.read_p999, one.written));
    let wanted =
        [(Arm::Capacity, 2.0, Some(1.5), Some(0.375)), (Arm::Staged, 6.0, Some(0.5), Some(0.25))];
    assert_eq!(figures.collect::<Vec<_>>(), wanted);
    assert!(found.figures.beside.iter().all(|one| one.is_comparable));
    assert_eq!(found.figures.rows.len(), 6, "each workload in three arms");
    let found = report(Processors);
    let compared: Vec<_> = found.figures.beside.iter().map(|one| one.is_comparable).collect();
    assert_eq!(compared, [true, true, false, false]);
    // The engine's own arms are compared all the same.
    assert!(found.verdicts.iter().all(|one| one.outcome != Outcome::NotComparable));
    let text = found.page().text();
    assert!(text.contains("no: processors decided") && text.contains("11.8.1, told"), "{text}");
    let json = found.json();
    assert_eq!(json["beside"][3]["arm"], "staged");
    assert_eq!(json["runs"][2]["arm"], "rocksdb");
    assert!(found.page().html().contains("throughput over RocksDB"));
}
