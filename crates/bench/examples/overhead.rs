//! The cost of the driver itself: every operation on a store that does nothing.
//!
//! `cargo run --release -p esker-bench --example overhead`

use std::ops::ControlFlow;

use esker_base::{Clock, Rng};
use esker_bench::value::ValueSource;
use esker_bench::{
    BenchError, BoxError, Dataset, KeyFormat, RunOptions, Runner, Session, Store, ValueFormat,
    Workload,
};

struct Nothing;

impl Store for Nothing {
    fn session(&self) -> Result<Box<dyn Session + '_>, BoxError> {
        Ok(Box::new(Nothing))
    }
}

impl Session for Nothing {
    fn read(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<bool, BoxError> {
        Ok(true)
    }
    fn insert(&mut self, _: &[u8], _: &[u8]) -> Result<(), BoxError> {
        Ok(())
    }
    fn scan(
        &mut self,
        _: &[u8],
        _: usize,
        _: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, BoxError> {
        Ok(1)
    }
}

fn main() -> Result<(), BenchError> {
    let clock = Clock::real();
    let dataset =
        Dataset { records: 2_000_000, keys: KeyFormat::default(), values: ValueFormat::one(1_000) };
    parts(&clock, dataset);
    for threads in [1, 2] {
        let options = RunOptions { threads, operations: Some(5_000_000), ..RunOptions::default() };
        let mut runner = Runner::new(&Nothing, clock.clone(), dataset)?;
        let mut quiet = |_: &esker_bench::Progress<'_>| ControlFlow::Continue(());
        let mut results = vec![runner.load(&options, &mut quiet)?];
        for workload in Workload::core() {
            results.push(runner.run(&workload, &options, &mut quiet)?);
        }
        for run in results {
            let latency = run.by_operation[0].latency.as_ref();
            println!(
                "{:4} {threads} threads: {:>4.0} ns of a thread per operation, {} ns median latency",
                run.workload.name,
                1e9 / run.ops_per_s * threads as f64,
                latency.map_or(0, |latency| latency.p50_ns)
            );
        }
    }
    Ok(())
}

/// The parts of the cost, one by one.
fn parts(clock: &Clock, dataset: Dataset) {
    const ROUNDS: u32 = 2_000_000;
    let time = |what: &str, run: &mut dyn FnMut(u64)| {
        let start = clock.now();
        (0..u64::from(ROUNDS)).for_each(run);
        let each = (clock.now() - start).as_nanos() as f64 / f64::from(ROUNDS);
        println!("{what:>28}: {each:>5.1} ns");
    };
    let source = ValueSource::new(dataset.values);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    time("a reading of the clock", &mut |_| {
        std::hint::black_box(clock.now());
    });
    time("a key", &mut |n| {
        dataset.keys.write(n, &mut key);
        std::hint::black_box(&key);
    });
    time("a value of 1,000 bytes", &mut |n| {
        source.write(n, n, &mut value);
        std::hint::black_box(&value);
    });
    source.write(1, 1, &mut value);
    time("a check of 1,000 bytes", &mut |_| {
        assert!(std::hint::black_box(source.check(1, &value)).is_ok());
    });
    for distribution in [Workload::a().request, Workload::d().request] {
        let mut chooser =
            esker_bench::distribution::KeyChooser::new(distribution, dataset.records, 0);
        let mut rng = Rng::new(1);
        time("a choice of a record", &mut |_| {
            std::hint::black_box(chooser.choose(dataset.records, &mut rng));
        });
    }
}
