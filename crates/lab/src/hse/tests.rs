//! The engine on devices in memory, and verdicts on phases that are told.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker_base::Clock;
use esker_bench::result::{RunResult, Settings};
use esker_bench::{Sample, Workload};
use esker_device::MemoryDevice;
use esker_flash::profile::Profile;
use esker_kv::MediaClass;

use super::arm::{self, ArmRun, Plan};
use super::machine::{Arm, Drive, Machine, Opened, Processors, Rates};
use super::phase::{Decider, DriveUse, OperationLatency, Phase};
use super::verdict::{Pair, verdicts};
use super::{HseOptions, Progress};
use crate::{LabError, Outcome};

/// Devices in memory that take no time.
struct InMemory {
    opened: Vec<(Arm, u32)>,
}

impl Machine for InMemory {
    fn open(&mut self, arm: Arm, dilation: u32) -> Result<Opened, LabError> {
        self.opened.push((arm, dilation));
        let device = |name: &str| Arc::new(MemoryDevice::new(name, 256 << 20, 4096));
        let drive = |class, name: &str| Drive {
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

const SMALL: HseOptions = HseOptions {
    records: 20_000,
    operations: 2000,
    threads: 4,
    rounds: 1,
    dilation: None,
    has_scans: true,
    seed: 7,
};

#[test]
fn an_arm_counts_what_each_drive_and_stream_got() {
    for arm in Arm::ALL {
        let mut machine = InMemory { opened: Vec::new() };
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
fn an_observer_ends_it() {
    let mut machine = InMemory { opened: Vec::new() };
    let options = HseOptions { records: 320_000, ..SMALL };
    let ended = super::run(&options, &mut machine, |_: &Progress<'_>| ControlFlow::Break(()));
    assert!(matches!(ended, Err(LabError::Interrupted)), "{:?}", ended.err());
}

#[test]
fn options_without_sense_are_refused() {
    for (options, part) in [
        (HseOptions { records: 1000, ..SMALL }, "give at least 320000"),
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
    let outcomes: Vec<_> = found.iter().map(|one| (one.esker.as_str(), one.outcome)).collect();
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
    let alone = found[0].rates_alone.as_deref().unwrap();
    assert!(alone.starts_with("2.14 times: the bytes"), "{alone}");
    let by_processors = runs(Processors);
    let found = verdicts(&Pair::all(&by_processors));
    let outcomes: Vec<_> = found.iter().map(|one| one.outcome).collect();
    // A's rates and latencies say nothing of drives then; its bytes count all the same.
    assert_eq!(outcomes[3..], [Outcome::NotComparable, Outcome::NotComparable, Outcome::Reached]);
    assert_eq!(outcomes[0], Outcome::Missed);
}
