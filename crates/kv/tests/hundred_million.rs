//! A hundred million small keys in sixteen KVSs: how long opening takes, the DRAM of each key beside the caches,
//! and the cost of a get to the devices.
//!
//! `cargo test --release -p esker-kv --test hundred_million -- --ignored --nocapture` takes some ten
//! minutes, 5 GiB of DRAM and 14 GiB in the directory for temporary files (`TMPDIR`, which is to be on a
//! drive and not in memory). `ESKER_KEYS` is another number of keys. `ESKER_DIR` is a directory for the
//! KVDB, which then stays; one that is there already is read, by a process that has not loaded it.

#![allow(clippy::cast_precision_loss)] // figures for people

use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_base::{Clock, Rng, thread};
use esker_kv::{ClassStats, Kvdb, Kvs, Location, Medium, Options, Policy, Stats};

const KVSS: u64 = 16;
const VALUE_BYTES: usize = 100;
const THREADS: u64 = 2;
/// Gets that are measured, in all threads together.
const SAMPLES: u64 = 200_000;

const OPEN_MAX: Duration = Duration::from_secs(2);
const BYTES_PER_KEY_MAX: f64 = 3.0;

#[test]
#[ignore = "takes ten minutes, 14 GiB of a drive and 5 GiB of DRAM"]
fn a_hundred_million_keys() {
    let keys = std::env::var("ESKER_KEYS").ok();
    let keys = keys.map_or(100_000_000, |keys| keys.parse().expect("ESKER_KEYS is a number"));
    let scratch = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("ESKER_DIR").map(PathBuf::from);
    let dir = kept.unwrap_or_else(|| scratch.path().to_owned()).join("db");
    // Key pages take 23 bytes a key; they fit, and there is not much room for records.
    let options = Options::default().with(|set| set.memory_bytes = (keys * 45).max(256 << 20));
    if !dir.exists() {
        load(&dir, &options, keys);
    }

    let clock = Clock::real();
    let began = clock.now();
    let db = Kvdb::builder(&dir).options(options).open().unwrap();
    let opened = clock.now().since(began);
    println!(
        "opened in {opened:.2?}, {} bytes read",
        class_sum(&db.stats(), ClassStats::read_bytes)
    );
    get(&db, (keys / 100, keys), 0, "at once");
    let began = clock.now();
    db.settle().unwrap();
    println!("at rest after another {:.2?}", clock.now().since(began));
    let reads_per_get = get(&db, (SAMPLES, keys), 100, "at rest");
    let bytes_per_key = dram(&db.stats(), keys);
    db.close().unwrap();

    assert!(opened < OPEN_MAX, "{opened:?}");
    assert!(bytes_per_key <= BYTES_PER_KEY_MAX, "{bytes_per_key}");
    assert!(reads_per_get <= 1.0, "{reads_per_get}");
}

/// Puts all keys, in no order, and closes the KVDB when nothing is left to do.
fn load(dir: &Path, options: &Options, keys: u64) {
    let clock = Clock::real();
    let db = Kvdb::builder(Location::dir(dir).staging(Medium::InDir))
        .options(options.clone())
        .create()
        .unwrap();
    for n in 0..KVSS {
        db.create_kvs(&format!("kvs-{n}"), Policy::default()).unwrap();
    }
    let kvss = kvss(&db);
    let began = clock.now();
    in_threads(|thread| {
        for number in (thread..keys).step_by(usize::try_from(THREADS).unwrap()) {
            put(&kvss, number);
        }
    });
    let loaded = clock.now().since(began);
    db.settle().unwrap();
    let settled = clock.now().since(began);
    let rate = keys as f64 / loaded.as_secs_f64() / 1000.0;
    println!(
        "{keys} keys: loaded in {loaded:.0?}, {rate:.0} thousand a second; at rest at {settled:.0?}"
    );
    println!("{:?}", db.stats());
    drop(kvss);
    db.close().unwrap();
}

/// Gets so many of so many keys at random, prints the cost, and returns the device reads for each.
fn get(db: &Kvdb, (count, keys): (u64, u64), seed: u64, when: &str) -> f64 {
    let (clock, kvss) = (Clock::real(), kvss(db));
    let reads =
        |stats: &Stats| class_sum(stats, |class| class.streams.iter().map(|s| s.reads).sum());
    let before = db.stats();
    let began = clock.now();
    in_threads(|thread| {
        let mut rng = Rng::new(seed + thread);
        let mut value = Vec::new();
        for _ in 0..count / THREADS {
            let number = rng.below(keys);
            assert!(kvs_of(&kvss, number).get_into(key(number), &mut value).unwrap());
            assert_eq!(value, value_of(number));
        }
    });
    let elapsed = clock.now().since(began);
    let after = db.stats();
    let per_get = |n: u64| n as f64 / count as f64;
    let (reads, misses, hits) = (
        per_get(reads(&after) - reads(&before)),
        per_get(after.cache.key_page_misses - before.cache.key_page_misses),
        per_get(after.cache.record_hits - before.cache.record_hits),
    );
    println!(
        "{when}: {reads:.3} device reads a get, {misses:.3} of them for key pages; {hits:.3} from the \
         record cache; {:.0} gets a second",
        count as f64 / elapsed.as_secs_f64()
    );
    reads
}

/// Prints the DRAM beside the caches, and returns it in bytes per key.
fn dram(stats: &Stats, keys: u64) -> f64 {
    let per_key = |bytes: u64| bytes as f64 / keys as f64;
    let dram = &stats.dram;
    let beside = per_key(dram.filter_bytes + dram.index_bytes);
    println!(
        "DRAM for each key: filters {:.3}, indexes {:.3}; in the caches key pages {:.1}, records {:.1}",
        per_key(dram.filter_bytes),
        per_key(dram.index_bytes),
        per_key(dram.key_page_bytes),
        per_key(dram.record_cache_bytes)
    );
    println!("resident: {} MiB", resident_bytes() >> 20);
    beside
}

fn class_sum(stats: &Stats, of: impl Fn(&ClassStats) -> u64) -> u64 {
    stats.classes.iter().map(of).sum()
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn in_threads(run: impl Fn(u64) + Sync) {
    let run = &run;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            thread::spawn_scoped(scope, "client", move || run(thread)).unwrap();
        }
    });
}

fn kvss(db: &Kvdb) -> Vec<Kvs> {
    (0..KVSS).map(|n| db.kvs(&format!("kvs-{n}")).unwrap()).collect()
}

fn kvs_of(kvss: &[Kvs], number: u64) -> &Kvs {
    &kvss[usize::try_from(number % KVSS).unwrap()]
}

/// Sixteen letters; numbers in order give keys in none.
fn key(number: u64) -> [u8; 16] {
    let mut scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    scattered = (scattered ^ (scattered >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mut key = [0; 16];
    for (n, letter) in key.iter_mut().enumerate() {
        *letter = b"0123456789abcdef"[usize::try_from(scattered >> (60 - 4 * n) & 15).unwrap()];
    }
    key
}

fn value_of(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    for (part, n) in value.chunks_mut(8).zip(0u64..) {
        let word = (number + n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        part.copy_from_slice(&word[..part.len()]);
    }
    value
}

fn put(kvss: &[Kvs], number: u64) {
    kvs_of(kvss, number).put(key(number), value_of(number)).unwrap();
}
