//! Cost of short scans while everything is in DRAM.
//!
//! ```text
//! cargo bench -p esker-kv --bench short_scans -- DIRECTORY [RECORDS] [ROUNDS] [PUTS_PER_1000] [THREADS]
//! ```
//!
//! YCSB's workload E in small: 1 to 100 records of 1,000 bytes from a key on that is popular by a
//! law close to Zipf's, and now and then a new key before. The KVDB in the directory is made if it is not
//! there, and stays, so that two versions of this program can be compared on the same one: processor time
//! of the threads that scan, per scan and per record, each round and their median.

#![allow(clippy::disallowed_methods)] // a program, not a part of the engine
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // figures

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::{argument, directory};
use esker_base::Rng;
use esker_base::units::to_usize;
use esker_kv::{Kvdb, Kvs, Location, Medium, Options, Policy};

const VALUE_BYTES: usize = 1000;
const SCANS: u64 = 40_000;

/// Scattered over the space of keys.
fn key(n: u64) -> String {
    format!("user{:020}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn put(kvs: &Kvs, n: u64, value: &mut [u8]) {
    value[..8].copy_from_slice(&n.to_le_bytes());
    kvs.put(key(n).as_bytes(), value).expect("a put");
}

/// Processor time of this thread, in nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().expect("a figure").parse().expect("a number")
}

/// How many rows were met; their bytes are looked at.
fn scan(kvs: &Kvs, from: &[u8], rows: usize) -> u64 {
    let mut cursor = kvs.cursor().expect("a cursor").expecting(rows);
    cursor.seek(from).expect("a place");
    let (mut met, mut sum) = (0, 0);
    for _ in 0..rows {
        let Some((_, value)) = cursor.next().expect("a row") else { break };
        sum += value.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>();
        met += 1;
    }
    std::hint::black_box(sum);
    met
}

/// One client's work in a round: returns the rows that it met, and its processor time in nanoseconds.
fn work(kvs: &Kvs, mut rng: Rng, (records, puts): (u64, u64), next: &AtomicU64) -> [u64; 2] {
    let (mut value, mut rows) = ([b'v'; VALUE_BYTES], 0);
    let began = cpu_ns();
    for _ in 0..SCANS {
        let share = rng.below(1 << 53) as f64 / (1u64 << 53) as f64;
        let rank = (records as f64).powf(share) as u64;
        if rng.below(1000) < puts {
            put(kvs, next.fetch_add(1, Ordering::Relaxed), &mut value);
        }
        rows += scan(kvs, key(rank * 7919 % records).as_bytes(), 1 + to_usize(rng.below(100)));
    }
    [rows, cpu_ns() - began]
}

fn main() {
    let Some(dir) = directory() else { return };
    let (records, rounds) = (argument(2, 1_000_000), argument(3, 5));
    let (puts, threads) = (argument(4, 50), argument(5, 1));
    let path = dir.join("short_scans.kvdb");
    let memory_bytes = 1000 * (1 << 20) + records * 3000;
    let options = Options::default().with(|set| set.memory_bytes = memory_bytes);
    let mut value = [b'v'; VALUE_BYTES];
    let is_new = !path.exists();
    let db = if is_new {
        Kvdb::builder(Location::dir(&path).staging(Medium::InDir))
            .options(options)
            .create()
            .expect("a new KVDB")
    } else {
        Kvdb::builder(&path).options(options).open().expect("the KVDB")
    };
    let kvs = if is_new { db.create_kvs("k", Policy::default()) } else { db.kvs("k") };
    let kvs = kvs.expect("the KVS");
    if is_new {
        (0..records).for_each(|n| put(&kvs, n, &mut value));
        db.ingest().expect("an ingest");
    }
    db.settle().expect("maintenance");
    for _ in 0..2 {
        scan(&kvs, b"", to_usize(2 * records));
    }
    let stats = &db.stats().kvss[0];
    println!(
        "{} kvsets in the root, {} in {} leaves",
        stats.root_kvsets, stats.leaf_kvsets, stats.leaves
    );
    let (next, mut figures) = (AtomicU64::new(records), Vec::new());
    for round in 0..rounds {
        let client = |n| work(&kvs, Rng::new(round * threads + n), (records, puts), &next);
        let all: Vec<[u64; 2]> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..threads).map(|n| scope.spawn(move || client(n))).collect();
            clients.into_iter().map(|client| client.join().expect("a thread")).collect()
        });
        let [rows, ns] = [0, 1].map(|n| all.iter().map(|one| one[n]).sum::<u64>() as f64);
        let (scan_us, row_us) = (ns / 1e3 / (threads * SCANS) as f64, ns / 1e3 / rows);
        let misses = db.stats().cache.record_misses;
        println!("round {round}: {scan_us:.2} us a scan, {row_us:.3} a record, {misses} misses");
        figures.push(scan_us);
    }
    figures.sort_by(f64::total_cmp);
    println!("median {:.2} us a scan", figures[figures.len() / 2]);
    drop(kvs);
    db.close().expect("a close");
}
