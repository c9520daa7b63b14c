//! How fast traces are read, on one core, from files that the page cache holds: events or requests a
//! second, and the bytes that a request takes; and how fast figures and curves are made of them.
//!
//! `cargo bench -p esker-trace --bench read [-- TRACE...]`
//!
//! Without a trace: two million requests of [`MysqlLoad`], as blktrace (queue events alone, and among
//! as many issue and completion events), in the compact format, and as MSR's text.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use esker_base::Clock;
use esker_base::units::{human_bytes, to_u64};
use esker_trace::mrc::{ExactLru, SampledLru};
use esker_trace::{MysqlLoad, MysqlOptions, Op, Request, StatsBuilder, Trace, block_refs, convert};

const REQUESTS: usize = 2_000_000;
/// Of several runs the best: the others were disturbed.
const RUNS: usize = 5;

fn main() {
    let given: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let dir = tempfile::tempdir().expect("a temporary directory");
    if given.is_empty() {
        let load = MysqlLoad::new(MysqlOptions::default()).expect("valid options");
        let requests: Vec<Request> = load.take(REQUESTS).collect();
        let queue = dir.path().join("queue");
        blktrace(&queue, &requests, &[1]);
        measure("blktrace, Q", &[&queue], 1);
        let all = dir.path().join("all");
        blktrace(&all, &requests, &[1, 7, 8]);
        measure("blktrace, Q D C", &[&all], 3);
        let compact = dir.path().join("compact");
        convert(&mut Trace::open_file(&queue).expect("a trace"), &compact).expect("written");
        measure("compact", &[&compact], 1);
        let text = dir.path().join("text");
        msr(&text, &requests);
        measure("MSR text", &[&text], 1);
        figures(&[&compact]);
    } else {
        let paths: Vec<&Path> = given.iter().map(Path::new).collect();
        measure("as given", &paths, 1);
        let compact = dir.path().join("compact");
        let options = esker_trace::Options::default();
        convert(&mut Trace::open(&paths, &options).expect("a trace"), &compact).expect("written");
        measure("compact", &[&compact], 1);
        figures(&[&compact]);
    }
}

/// Queue, issue or completion events, as the kernel's tracer writes them.
fn blktrace(path: &Path, requests: &[Request], actions: &[u32]) {
    let mut file = BufWriter::new(File::create(path).expect("created"));
    for request in requests {
        let (category, length) = match request.op {
            Op::Read => (1, request.length),
            Op::Write => (2, request.length),
            Op::Discard => (1 << 13, request.length),
            Op::Flush => (2 | 4, 0),
        };
        for action in actions {
            let mut record = [0u8; 48];
            record[..4].copy_from_slice(&0x6561_7407u32.to_le_bytes());
            record[8..16].copy_from_slice(&request.time_ns.to_le_bytes());
            record[16..24].copy_from_slice(&(request.offset / 512).to_le_bytes());
            let length = u32::try_from(length).expect("short requests");
            record[24..28].copy_from_slice(&length.to_le_bytes());
            record[28..32].copy_from_slice(&(category << 16 | action).to_le_bytes());
            record[36..40].copy_from_slice(&(8u32 << 20).to_le_bytes());
            file.write_all(&record).expect("written");
        }
    }
    file.flush().expect("written");
}

fn msr(path: &Path, requests: &[Request]) {
    let mut file = BufWriter::new(File::create(path).expect("created"));
    for request in requests.iter().filter(|request| request.op.is_data()) {
        let (time, name) =
            (request.time_ns / 100, if request.op == Op::Read { "Read" } else { "Write" });
        writeln!(file, "{time},db,0,{name},{},{},100", request.offset, request.length)
            .expect("written");
    }
    file.flush().expect("written");
}

/// The shortest time of some runs, in seconds, and the result of the last one.
fn best<T>(mut run: impl FnMut() -> T) -> (f64, T) {
    let clock = Clock::real();
    let mut once = || {
        let began = clock.now();
        let result = run();
        (clock.now().since(began).as_secs_f64(), result)
    };
    let mut all: Vec<(f64, T)> = (0..RUNS).map(|_| once()).collect();
    let shortest = all.iter().map(|(seconds, _)| *seconds).fold(f64::INFINITY, f64::min);
    (shortest, all.pop().expect("a run").1)
}

#[allow(clippy::cast_precision_loss)]
fn measure(name: &str, paths: &[&Path], events: u64) {
    let bytes: u64 = paths.iter().map(|path| fs::metadata(path).expect("a file").len()).sum();
    let (seconds, count) = best(|| {
        let options = esker_trace::Options::default();
        let mut trace = Trace::open(paths, &options).expect("a trace");
        let (mut batch, mut count, mut sum) = (Vec::new(), 0, 0u64);
        loop {
            batch.clear();
            let more = trace.next_batch(&mut batch).expect("a whole trace");
            count += to_u64(batch.len());
            sum = batch.iter().fold(sum, |sum, request| sum.wrapping_add(request.offset));
            if !more {
                break;
            }
        }
        std::hint::black_box(sum);
        count
    });
    println!(
        "{name:<16} {:>6.1} M events/s  {:>6.1} M requests/s  {:>5.2} bytes a request  {}",
        (count * events) as f64 / seconds / 1e6,
        count as f64 / seconds / 1e6,
        bytes as f64 / count as f64,
        human_bytes(bytes)
    );
}

#[allow(clippy::cast_precision_loss)]
fn figures(paths: &[&Path]) {
    let options = esker_trace::Options::default();
    let trace = Trace::open(paths, &options).expect("a trace");
    let requests: Vec<Request> = trace.map(|request| request.expect("whole")).collect();
    let references: u64 = requests.iter().map(|r| to_u64(block_refs(r).count())).sum();
    let say = |name: &str, seconds: f64| {
        println!("{name:<24} {:>6.1} M references/s", references as f64 / seconds / 1e6);
    };
    let statistics = |with_reuse: bool| {
        best(|| {
            let mut builder = StatsBuilder::new(with_reuse);
            requests.iter().for_each(|request| builder.add(request));
            builder.finish().references
        })
    };
    say("figures", statistics(false).0);
    say("figures and reuse", statistics(true).0);
    let exact = best(|| {
        let mut lru = ExactLru::default();
        requests.iter().flat_map(block_refs).for_each(|block| lru.reference(block.key));
        lru.blocks()
    });
    say("curve, exact", exact.0);
    let sampled = best(|| {
        let mut lru = SampledLru::new(8192, 1);
        requests.iter().flat_map(block_refs).for_each(|block| lru.reference(block.key));
        lru.blocks()
    });
    say("curve, five samples", sampled.0);
}
