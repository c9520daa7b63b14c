//! How long it takes to open a KVDB that was killed: a time for each GiB of log to replay.
//!
//! `cargo test --release -p esker-kv --test recovery -- --ignored --nocapture`

use std::path::Path;

use esker_base::{Clock, Rng};
use esker_kv::{Kvdb, Layout, Maintenance, Options, Policy, Tuning};

const GIB: u64 = 1 << 30;
const ROUNDS: usize = 5;

/// A budget of 2 GiB, of which the log is as long as a budget makes it; nothing is ingested unasked.
fn options() -> Options {
    Options { memory_bytes: 2 * GIB, maintenance: Maintenance::Manual, ..Options::default() }
}

/// Fills nine tenths of a memtable in random order and ends as a kill does; returns bytes of keys and
/// values, which are all in the log.
fn fill(path: &Path, value_size: usize) -> u64 {
    let db = Kvdb::create(path, &Layout::with_staging(), options()).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let full = Tuning::for_budget(2 * GIB).memtable_bytes;
    let mut rng = Rng::new(1);
    let mut value = vec![0; value_size];
    let mut bytes = 0;
    while db.stats().dram.memtable_bytes < full / 10 * 9 {
        for _ in 0..1000 {
            rng.fill(&mut value);
            let key = rng.below(u64::MAX).to_be_bytes();
            kvs.put(&key, &value).unwrap();
            bytes += (key.len() + value.len()) as u64;
        }
    }
    db.sync().unwrap();
    assert_eq!(db.stats().maintenance.ingests, 0);
    bytes
}

#[test]
#[ignore = "measures: see the top of the file"]
fn opening_after_a_kill() {
    let clock = Clock::real();
    for value_size in [100, 1000, 8000] {
        let mut rounds = [(0.0, 0); ROUNDS].map(|_| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("db");
            let bytes = fill(&path, value_size);
            let began = clock.now();
            let db = Kvdb::open(&path, options()).unwrap();
            let seconds = clock.now().since(began).as_secs_f64();
            assert_eq!(db.stats().maintenance.ingests, 1, "the log was replayed");
            (seconds, bytes)
        });
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (seconds, bytes) = rounds[ROUNDS / 2];
        #[allow(clippy::cast_precision_loss)] // far below 2^52
        let gib = bytes as f64 / GIB as f64;
        println!(
            "values of {value_size} bytes: {:.0} MiB of log in {:.0} ms, {:.2} s per GiB",
            gib * 1024.0,
            seconds * 1000.0,
            seconds / gib
        );
    }
}
