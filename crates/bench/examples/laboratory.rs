//! The whole laboratory on a map in memory: load, A to F, and the three forms of the report.
//!
//! `cargo run --release -p esker-bench --example laboratory -- <directory> [ops/s]`

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::Clock;
use esker_bench::{
    BoxError, Dataset, Report, RunOptions, Runner, Sample, Session, Store, Unit, ValueFormat,
    Workload,
};
use parking_lot::RwLock;

#[derive(Default)]
struct MapStore {
    records: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
    key_bytes: AtomicU64,
    value_bytes: AtomicU64,
}

impl Store for MapStore {
    fn session(&self) -> Result<Box<dyn Session + '_>, BoxError> {
        Ok(Box::new(MapSession(self)))
    }

    fn sample(&self) -> Vec<Sample> {
        let bytes = |name: &str, counter: &AtomicU64| {
            let value = counter.load(Ordering::Relaxed) as f64;
            Sample::counter(name, Unit::Bytes, value)
        };
        let records = self.records.read().len() as f64;
        vec![
            bytes("key bytes written", &self.key_bytes),
            bytes("value bytes written", &self.value_bytes),
            Sample::level("records", Unit::Count, records),
        ]
    }
}

struct MapSession<'a>(&'a MapStore);

impl Session for MapSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BoxError> {
        let records = self.0.records.read();
        let Some(found) = records.get(key) else {
            return Ok(false);
        };
        value.clear();
        value.extend_from_slice(found);
        Ok(true)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), BoxError> {
        let count = |counter: &AtomicU64, bytes: &[u8]| {
            counter.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        };
        count(&self.0.key_bytes, key);
        count(&self.0.value_bytes, value);
        self.0.records.write().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn scan(
        &mut self,
        start: &[u8],
        count: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, BoxError> {
        let records = self.0.records.read();
        let range = records.range::<[u8], _>((Bound::Included(start), Bound::Unbounded));
        Ok(range.take(count).map(|(k, v)| visit(k, v)).count())
    }
}

fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("give a directory for the report")?);
    let target_ops_per_s = arguments.next().map(|rate| rate.parse()).transpose()?;

    let dataset =
        Dataset { records: 200_000, values: ValueFormat::one(1_000), ..Dataset::default() };
    let options = RunOptions {
        threads: 2,
        time_limit: Some(Duration::from_secs(3)),
        target_ops_per_s,
        warm_up: Duration::from_millis(500),
        interval: Duration::from_millis(100),
        verify: true,
        ..RunOptions::default()
    };
    let mut report = Report::new("A map in memory", dataset);
    report.command = std::env::args().collect::<Vec<_>>().join(" ");
    report.environment.insert("device".to_owned(), "memory".to_owned());

    let store = MapStore::default();
    let mut runner = Runner::new(&store, Clock::real(), dataset)?;
    let mut progress = |p: &esker_bench::Progress<'_>| {
        let percent = p.fraction * 100.0;
        eprint!("\r{} {percent:>3.0} % {:>9.0} ops/s ", p.workload, p.ops_per_s);
        ControlFlow::Continue(())
    };
    report.runs.push(runner.load(&options, &mut progress)?);
    for workload in Workload::core() {
        report.runs.push(runner.run(&workload, &options, &mut progress)?);
    }
    eprintln!();
    println!("{}", report.table());
    std::fs::write(directory.join("report.json"), report.json())?;
    std::fs::write(directory.join("report.html"), report.html())?;
    Ok(())
}
