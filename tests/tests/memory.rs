//! A KVDB keeps to its memory budget, as the operating system sees it: the resident memory of a
//! process that does nothing else, at its highest, in each phase of its life.
//!
//! The figures: `cargo test -p esker-tests --test memory -- --nocapture`

mod common;

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use esker_base::{Clock, Rng, thread};
use esker_bench::KeyFormat;
use esker_bench::key::fnv64;
use esker_bench::zipf::{DEFAULT_THETA, Zipfian};
use esker_kv::{Kvdb, Kvs, Location, Medium, Options, Policy};

const MIB: u64 = 1 << 20;

/// Resident memory may exceed the budget by this share of it, in percent, and by so many bytes: for the program's own
/// code, and the stacks of its threads (`docs/kv.md`, Memory).
const MARGIN_PERCENT: u64 = 2;
const CONSTANT: u64 = 16 * MIB;
/// Resident memory of a process that has closed its KVDB: most of it is the program's own code.
const CLOSED: u64 = 27 * MIB;

const VALUE_BYTES: usize = 1000;
/// How many times the budget the data is.
const TIMES: u64 = 4;
const MIX: Duration = Duration::from_secs(4);

const BUDGET: &str = "ESKER_TEST_BUDGET";
const THREADS: &str = "ESKER_TEST_THREADS";

#[test]
fn a_budget_of_64_mib_is_kept() {
    check(64 * MIB, 2);
}

#[test]
fn a_budget_is_kept_with_16_threads() {
    check(128 * MIB, 16);
}

#[test]
fn a_budget_is_kept_with_96_threads() {
    check(128 * MIB, 96);
}

/// Runs a child with this budget and so many threads, and judges its report.
fn check(budget: u64, threads: u64) {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = common::command("child", scratch.path());
    command.env(BUDGET, budget.to_string()).env(THREADS, threads.to_string());
    // As docs/kv.md advises.
    command.env("MALLOC_MMAP_THRESHOLD_", "131072").env("MALLOC_ARENA_MAX", "4");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let phases = Phase::parse_all(&text);
    assert_eq!(phases.len(), 6, "{text}");
    let limit = budget + budget * MARGIN_PERCENT / 100 + CONSTANT;
    let table = Phase::table(budget, limit, &phases);
    println!("{table}");
    for phase in &phases {
        assert!(phase.peak_bytes <= limit, "{}\n{table}", phase.name);
    }
    let closed = phases.iter().find(|phase| phase.name == "closed").unwrap();
    assert!(closed.end_bytes <= CLOSED, "closed\n{table}");
}

/// The resident memory of one phase.
struct Phase {
    name: String,
    peak_bytes: u64,
    end_bytes: u64,
    /// The bytes that the engine says it holds.
    counted_bytes: u64,
}

impl Phase {
    /// From the lines that the child printed.
    fn parse_all(text: &str) -> Vec<Phase> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("phase "));
        lines
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let [name, peak, end, counted] = words[..] else {
                    panic!("a phase of four words: {line}")
                };
                Phase {
                    name: name.into(),
                    peak_bytes: peak.parse().unwrap(),
                    end_bytes: end.parse().unwrap(),
                    counted_bytes: counted.parse().unwrap(),
                }
            })
            .collect()
    }

    #[allow(clippy::cast_precision_loss)] // MiB for people
    fn table(budget: u64, limit: u64, phases: &[Phase]) -> String {
        let mib = |bytes: u64| bytes as f64 / MIB as f64;
        let mut text = format!(
            "budget {:.0} MiB, limit {:.1} MiB\n  {:<10}{:>12}{:>12}{:>12}   MiB\n",
            mib(budget),
            mib(limit),
            "phase",
            "peak",
            "at its end",
            "counted"
        );
        for phase in phases {
            let [peak, end, counted] =
                [phase.peak_bytes, phase.end_bytes, phase.counted_bytes].map(mib);
            let name = &phase.name;
            let _ = writeln!(text, "  {name:<10}{peak:>12.1}{end:>12.1}{counted:>12.1}");
        }
        text
    }
}

// ---- the child -----------------------------------------------------------------------------------

#[test]
#[ignore = "the child of the other tests"]
fn child() {
    if let Some(dir) = common::dir() {
        live(&dir.join("db"), common::number(BUDGET), common::number(THREADS));
    }
}

fn live(dir: &Path, budget: u64, threads: u64) {
    let options = || Options::default().with(|set| set.memory_bytes = budget);
    let records = budget * TIMES / VALUE_BYTES as u64;
    println!(); // the harness may have begun a line
    report("start", 0);

    let db = Kvdb::builder(Location::dir(dir).staging(Medium::InDir))
        .options(options())
        .create()
        .unwrap();
    let kvs = db.create_kvs("records", Policy::default()).unwrap();
    in_threads(threads, |thread| {
        let mut rng = Rng::new(thread);
        let numbers = (0..records).filter(|number| number % threads == thread);
        numbers.for_each(|number| put(&kvs, number, &mut rng));
    });
    report("load", db.stats().dram.total_bytes());
    db.settle().unwrap();
    report("settle", db.stats().dram.total_bytes());
    mix(&kvs, records, threads);
    report("mix", db.stats().dram.total_bytes());
    drop(kvs);
    db.close().unwrap();
    report("closed", 0);

    let db = Kvdb::builder(dir).options(options()).open().unwrap();
    mix(&db.kvs("records").unwrap(), records, threads);
    report("reopened", db.stats().dram.total_bytes());
    db.close().unwrap();
}

/// Prints the line of a phase that ends now, and begins the next.
fn report(phase: &str, counted_bytes: u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib: u64 = line.unwrap().trim_end_matches("kB").trim().parse().unwrap();
        kib << 10
    };
    println!("phase {phase} {} {} {counted_bytes}", field("VmHWM:"), field("VmRSS:"));
    // Resets the peak (proc(5)). Where that is refused, a peak is that of all phases up to it.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn in_threads(threads: u64, run: impl Fn(u64) + Sync) {
    let run = &run;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            thread::spawn_scoped(scope, "client", move || run(thread)).unwrap();
        }
    });
}

fn key(number: u64) -> Vec<u8> {
    let mut key = Vec::new();
    KeyFormat::default().write(number, &mut key);
    key
}

fn put(kvs: &Kvs, number: u64, rng: &mut Rng) {
    let mut value = [0; VALUE_BYTES];
    rng.fill(&mut value);
    kvs.put(key(number), value).unwrap();
}

/// Reads, updates and scans of popular records for a while.
fn mix(kvs: &Kvs, records: u64, threads: u64) {
    let clock = Clock::real();
    in_threads(threads, |thread| {
        let (mut rng, zipfian) = (Rng::new(thread), Zipfian::new(records, DEFAULT_THETA));
        let (began, mut value) = (clock.now(), Vec::new());
        while clock.now().since(began) < MIX {
            let number = fnv64(zipfian.sample(&mut rng)) % records;
            match rng.below(100) {
                0..5 => {
                    let mut cursor = kvs.cursor().unwrap();
                    cursor.seek(&key(number)).unwrap();
                    for _ in 0..rng.below(100) {
                        cursor.next().unwrap();
                    }
                }
                5..50 => put(kvs, number, &mut rng),
                _ => assert!(kvs.get_into(key(number), &mut value).unwrap()),
            }
        }
    });
}
