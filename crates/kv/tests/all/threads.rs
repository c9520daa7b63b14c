//! Many threads on one KVDB, with its own threads at work: every reader sees each key move forward
//! only, batches are seen whole, and synced writes are there after the log was replayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options};
use esker_base::{Clock, Rng, thread};
use esker_device::MemoryDevice;
use esker_kv::{Batch, Kvdb, Kvs, Maintenance, Options, Policy, Tuning};

const WRITERS: u64 = 4;
const KEYS: u64 = 200;

fn options() -> Options {
    test_options(Tuning { workers: 2, ..small_tuning() }).with(|set| {
        set.maintenance = Maintenance::Threads;
        set.clock = Clock::real();
        set.durability.ms = 5;
    })
}

fn key(writer: u64, n: u64) -> Vec<u8> {
    format!("{writer}-{n:04}").into_bytes()
}

/// A value says which version it is, and is as long as that version makes it.
fn value(version: u64) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.resize(8 + usize::try_from(version % 300).unwrap(), 7);
    bytes
}

fn version(bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, value(version));
    version
}

/// Writes the same version of a key to both KVSs, in one batch, again and again.
fn write(db: &Kvdb, kvss: &[Kvs; 2], writer: u64, first: u64, count: u64, newest: &[AtomicU64]) {
    let mut rng = Rng::new(writer + first);
    let mut batch = Batch::new();
    for version in first..first + count {
        let n = rng.below(KEYS);
        batch.clear();
        kvss.iter().for_each(|kvs| batch.put(kvs, key(writer, n), value(version)));
        db.write(&batch).unwrap();
        newest[usize::try_from(n).unwrap()].store(version, Ordering::Release);
        if rng.chance(1, 500) {
            db.sync().unwrap();
        }
    }
}

/// Reads while others write: no key goes back, and a cursor sees both halves of each batch.
fn read(kvss: &[Kvs; 2], done: &AtomicBool, newest: &[Vec<AtomicU64>]) {
    let mut rng = Rng::new(99);
    let mut out = Vec::new();
    while !done.load(Ordering::Acquire) {
        let (writer, n) = (rng.below(WRITERS), rng.below(KEYS));
        let at = &newest[usize::try_from(writer).unwrap()][usize::try_from(n).unwrap()];
        let least = at.load(Ordering::Acquire);
        let found = kvss[0].get_into(key(writer, n), &mut out).unwrap();
        assert!(least == 0 || found, "an acknowledged key is missing");
        assert!(!found || version(&out) >= least, "a key went back");
        // The second half was written with the first: it is no older.
        if found {
            let first = version(&out);
            let second = kvss[1].get(key(writer, n)).unwrap().expect("the other half");
            assert!(version(&second) >= first);
        }
        if rng.chance(1, 200) {
            let mut cursor = kvss[1].cursor().unwrap();
            let mut last = Vec::new();
            while let Some((key, bytes)) = cursor.next().unwrap() {
                assert!(key > &last[..]);
                last = key.to_vec();
                version(bytes);
            }
        }
    }
}

#[test]
fn threads_agree_while_the_engine_works_and_after_replay() {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 512));
    let devices = Devices {
        manifest: device("manifest", 4 << 20),
        capacity: device("capacity", 64 << 20),
        staging: Some(device("staging", 64 << 20)),
    };
    let mut db = Kvdb::create_on(devices.clone(), options()).unwrap();
    for name in ["a", "b"] {
        db.create_kvs(name, Policy::default()).unwrap();
    }
    let newest: Vec<Vec<AtomicU64>> =
        (0..WRITERS).map(|_| (0..KEYS).map(|_| AtomicU64::new(0)).collect()).collect();
    let mut segments = 0;
    for round in 0..6u64 {
        let kvss = [db.kvs("a").unwrap(), db.kvs("b").unwrap()];
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (db, kvss, newest, done) = (&db, &kvss, &newest, &done);
            let reader =
                thread::spawn_scoped(scope, "reader", || read(kvss, done, newest)).unwrap();
            let writers: Vec<_> = newest
                .iter()
                .zip(0..)
                .map(|(newest, writer)| {
                    let run = move || write(db, kvss, writer, 1 + round * 2500, 2500, newest);
                    thread::spawn_scoped(scope, "writer", run).unwrap()
                })
                .collect();
            let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            // First, so that a writer that failed does not leave the reader running.
            done.store(true, Ordering::Release);
            reader.join().unwrap();
            results.into_iter().for_each(|result| result.unwrap());
        });
        segments += db.stats().classes[0].written_bytes() / (64 << 10);
        // Not closed, so that the log is replayed.
        db.sync().unwrap();
        drop((kvss, db));
        let report = Kvdb::check_on(&devices).unwrap();
        assert_eq!(report.findings, Vec::<String>::new());
        db = Kvdb::open_on(devices.clone(), options()).unwrap();
        for kvs in [db.kvs("a").unwrap(), db.kvs("b").unwrap()] {
            for (newest, writer) in newest.iter().zip(0..) {
                for (newest, n) in newest.iter().zip(0..) {
                    let found = kvs.get(key(writer, n)).unwrap().map_or(0, |bytes| version(&bytes));
                    assert_eq!(found, newest.load(Ordering::Acquire), "writer {writer}, key {n}");
                }
            }
        }
    }
    assert!(segments > 100, "the log went through {segments} segments");
}
