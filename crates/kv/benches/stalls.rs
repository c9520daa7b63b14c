//! How long puts take while data is written without a pause: throughput, percentiles, the longest.
//!
//! ```text
//! cargo bench -p esker-kv --bench stalls -- DIRECTORY [SECONDS] [THREADS] [VALUE_BYTES] [KEYS]
//! ```
//!
//! The directory is where the KVDB goes; it has to be on the drive that is measured, and is removed at
//! the end. Keys are drawn at random, so that after a while most puts are overwrites.

#![allow(clippy::disallowed_methods)] // a program, not a part of the engine
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // figures for people

mod common;

use std::time::{Duration, Instant};

use common::{argument, directory};
use esker_base::Rng;
use esker_kv::{Kvdb, Kvs, Options, Policy};

/// Puts until the time is over; how long each took, in nanoseconds.
fn run(kvs: &Kvs, seed: u64, keys: u64, value_bytes: usize, time: Duration) -> Vec<u32> {
    let (mut rng, mut value, mut took) = (Rng::new(seed), vec![0; value_bytes], Vec::new());
    let end = Instant::now() + time;
    loop {
        let key = format!("user{:020}", rng.below(keys));
        rng.fill(&mut value[..value_bytes.min(64)]);
        let began = Instant::now();
        kvs.put(key.as_bytes(), &value).expect("a put");
        let now = Instant::now();
        took.push(u32::try_from((now - began).as_nanos()).unwrap_or(u32::MAX));
        if now >= end {
            return took;
        }
    }
}

fn main() {
    let Some(dir) = directory() else { return };
    let (seconds, threads) = (argument(2, 30), argument(3, 2));
    let (value_bytes, keys) = (argument(4, 1000), argument(5, 4_000_000));
    let dir = dir.join("stalls.kvdb");
    let options = Options::default().with(|set| set.memory_bytes = 512 << 20);
    let db = Kvdb::builder(&dir).options(options).create().expect("a new KVDB");
    let kvs = db.create_kvs("k", Policy::default()).expect("a new KVS");
    let (size, time) =
        (usize::try_from(value_bytes).expect("a size"), Duration::from_secs(seconds));
    let mut took: Vec<u32> = std::thread::scope(|scope| {
        let kvs = &kvs;
        let runs: Vec<_> =
            (0..threads).map(|n| scope.spawn(move || run(kvs, n + 1, keys, size, time))).collect();
        runs.into_iter().flat_map(|run| run.join().expect("a thread")).collect()
    });
    took.sort_unstable();
    let at = |share: f64| f64::from(took[((took.len() - 1) as f64 * share) as usize]) / 1e6;
    println!(
        "{} puts of {value_bytes} bytes in {seconds} s on {threads} threads: {:.0} /s, {:.1} MB/s",
        took.len(),
        took.len() as f64 / seconds as f64,
        took.len() as f64 * value_bytes as f64 / seconds as f64 / 1e6
    );
    println!(
        "ms: p50 {:.3}, p99 {:.3}, p99.9 {:.3}, p99.99 {:.3}, longest {:.1}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        at(1.0)
    );
    println!("{:?}", db.stats());
    println!("space amplification {:.2}", db.compact_status().space_amplification);
    drop((kvs, db));
    let _ = std::fs::remove_dir_all(dir);
}
