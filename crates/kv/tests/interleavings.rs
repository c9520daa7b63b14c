//! The protocols between threads under a scheduler that decides at every lock, atomic, pointer and device
//! command which thread goes on (`shuttle`: Burckhardt et al., "A Randomized Scheduler with Probabilistic
//! Guarantees of Finding Bugs", ASPLOS 2010). It is the engine's own source; the replaced parts are in
//! `src/sync.rs`. A wait that nothing but a timeout would end counts as a deadlock.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p esker-kv --target-dir target/shuttle --test interleavings --
//! --nocapture`;
//! `ESKER_SCHEDULES=100000` tries so many schedules of each scenario. A failure prints its schedule, which
//! `shuttle::replay` takes.

#![cfg(shuttle)]

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Devices, OnDevices};
use common::{test_options, tiny_tuning};
use esker_device::{
    Command, Completion, Device, DeviceError, DeviceStats, Geometry, MemoryDevice, QueuePair,
};
use esker_kv::{Batch, KvError, Kvdb, Kvs, Maintenance, Options, Policy, Readable, Tuning};
use esker_sim::{CrashRecorder, ImageId};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread;

/// Tries schedules of `scenario`: half at random, half with few changes of the thread that goes first.
fn explore(scenario: fn()) {
    let schedules = std::env::var("ESKER_SCHEDULES").map_or(400, |count| count.parse().unwrap());
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::FailAfter(5_000_000);
    config.silence_warnings = true; // of orderings: all are taken for the strongest
    let random = RandomScheduler::new(schedules / 2);
    let tried = shuttle::Runner::new(random, config.clone()).run(scenario);
    let few_changes = PctScheduler::new(3, schedules - schedules / 2);
    let tried = tried + shuttle::Runner::new(few_changes, config).run(scenario);
    println!("{tried} schedules");
}

/// A device at whose every command another thread may go on.
struct Yielding(Arc<dyn Device>);

impl Device for Yielding {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        Ok(Box::new(Queue(self.0.queue_pair(depth)?)))
    }

    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }
}

struct Queue(Box<dyn QueuePair>);

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        thread::yield_now();
        self.0.submit(commands)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        thread::yield_now();
        self.0.poll(done)
    }

    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        thread::yield_now();
        self.0.wait(done, timeout)
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
}

fn memory(name: &str, bytes: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(name, bytes, 512))
}

fn devices(wrap: impl Fn(Arc<dyn Device>) -> Arc<dyn Device>) -> Devices {
    let device = |name: &str, bytes: u64| Arc::new(Yielding(wrap(memory(name, bytes))));
    Devices {
        manifest: device("manifest", 256 << 10),
        capacity: device("capacity", 4 << 20),
        staging: Some(device("staging", 2 << 20)),
    }
}

fn options() -> Options {
    test_options(tiny_tuning()).with(|set| set.memory_bytes = 32 << 20)
}

fn create(options: Options) -> (Arc<Kvdb>, Kvs) {
    let db = Kvdb::create_on(devices(|device| device), options).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    (Arc::new(db), kvs)
}

fn join_all(threads: Vec<thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Threads write and sync at the same time, and share flushes. Records that a thread was told are durable are found
/// after a crash right then, when everything that no flush covered is gone.
#[test]
fn synced_records_survive_whichever_thread_flushed_them() {
    explore(|| {
        let recorder = CrashRecorder::new();
        let devices = devices(|device| recorder.attach(device));
        let db = Arc::new(Kvdb::create_on(devices, options()).unwrap());
        let kvs = db.create_kvs("k", Policy::default()).unwrap();
        let writers = (0..3u8).map(|thread| {
            let (db, kvs, recorder) = (db.clone(), kvs.clone(), recorder.clone());
            thread::spawn(move || {
                for n in 0..2u8 {
                    kvs.put(&[thread, n], b"value").unwrap();
                    if thread == 2 {
                        db.ingest().unwrap();
                    } else {
                        db.sync().unwrap();
                    }
                    recorder.mark(u64::from(thread) << 8 | u64::from(n));
                }
            })
        });
        join_all(writers.collect());
        let history = recorder.history();
        let mut seen = 0;
        for point in 0..=history.len() {
            let marks = history.marks_before(point);
            if marks.len() == seen {
                continue;
            }
            seen = marks.len();
            let image = history.image(&ImageId { point, kept: Vec::new() }).unwrap();
            let [manifest, capacity, staging] = [0, 1, 2].map(|index| image.device(index));
            let devices = Devices { manifest, capacity, staging: Some(staging) };
            let found = Kvdb::open_on(devices, options()).unwrap();
            let kvs = found.kvs("k").unwrap();
            for mark in marks {
                let key = [u8::try_from(mark >> 8).unwrap(), u8::try_from(mark & 255).unwrap()];
                let got = kvs.get(&key).unwrap();
                assert_eq!(got.as_deref(), Some(&b"value"[..]), "{key:?} was synced");
            }
        }
        assert_eq!(seen, 6);
    });
}

/// A batch writes the same number to two KVSs, over and over, while memtables become kvsets and those
/// are spilled: whoever looks, however, sees two equal numbers, and never an older one than before.
#[test]
fn every_view_is_one_moment_and_none_goes_back() {
    explore(|| {
        let (db, first) = create(options());
        let second = db.create_kvs("l", Policy::default()).unwrap();
        let write = |db: &Kvdb, first: &Kvs, second: &Kvs, n: u8| {
            let mut batch = Batch::new();
            batch.put(first, b"k", &[n; 30]);
            batch.put(second, b"k", &[n; 30]);
            db.write(&batch).unwrap();
        };
        write(&db, &first, &second, 0);
        let mut threads = Vec::new();
        {
            let (db, first, second) = (db.clone(), first.clone(), second.clone());
            threads.push(thread::spawn(move || {
                (1..=5).for_each(|n| write(&db, &first, &second, n));
            }));
        }
        {
            let db = db.clone();
            threads.push(thread::spawn(move || {
                for _ in 0..3 {
                    db.ingest().unwrap();
                }
                db.settle().unwrap();
            }));
        }
        let mut last = 0;
        for _ in 0..4 {
            let snapshot = db.snapshot();
            let [one, other] = [&first, &second].map(|kvs| snapshot.get(kvs, b"k").unwrap());
            assert_eq!(one, other, "half of a batch");
            let n = one.expect("written before")[0];
            assert!(n >= last, "a snapshot of {n} after {last}");
            last = n;
            let n = second.get(b"k").unwrap().expect("written before")[0];
            assert!(n >= last, "{n} after {last}");
            last = n;
            let mut cursor = first.cursor().unwrap();
            let n = cursor.next().unwrap().expect("written before").1[0];
            assert!(n >= last, "a cursor at {n} after {last}");
            last = n;
        }
        join_all(threads);
        assert_eq!(first.get(b"k").unwrap().unwrap(), [5; 30]);
    });
}

/// Threads add to one number in transactions, and one with plain writes to another, while memtables
/// are ingested: no addition is lost, as it would be by a missed conflict, and each conflict reported was one.
#[test]
fn additions_in_transactions_all_count() {
    explore(|| {
        let (db, kvs) = create(options());
        kvs.put(b"sum", &[0]).unwrap();
        let mut threads: Vec<_> = (0..2)
            .map(|_| {
                let (db, kvs) = (db.clone(), kvs.clone());
                thread::spawn(move || {
                    let mut added = 0;
                    while added < 2 {
                        let mut transaction = db.transaction();
                        let sum = transaction.get(&kvs, b"sum").unwrap().unwrap()[0];
                        transaction.put(&kvs, b"sum", &[sum + 1]).unwrap();
                        match transaction.commit() {
                            Ok(()) => added += 1,
                            Err(KvError::TransactionConflict { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        {
            let (db, kvs) = (db.clone(), kvs.clone());
            threads.push(thread::spawn(move || {
                for n in 0..3 {
                    kvs.put(b"other", &[n]).unwrap();
                    db.ingest().unwrap();
                }
            }));
        }
        join_all(threads);
        assert_eq!(kvs.get(b"sum").unwrap().unwrap(), [4]);
        let stats = db.stats().transactions;
        assert_eq!((stats.committed, stats.open), (4, 0));
    });
}

/// Values are moved by spills and collections, cached copies renamed, extents given to others, and all
/// the while each read of a key returns a value of that key, never older than one read before.
#[test]
fn readers_never_get_what_was_elsewhere() {
    const KEYS: u8 = 3;
    explore(|| {
        let tuning = Tuning { spill_bytes: 1, compact_kvsets: 2, ..tiny_tuning() };
        let (db, kvs) = create(options().with(|set| set.tuning = Some(tuning)));
        let value = |key: u8, n: u8| [&[key, n][..], &[key ^ n; 200]].concat();
        let write = move |kvs: &Kvs, n: u8| {
            (0..KEYS).for_each(|key| kvs.put(&[key], &value(key, n)).unwrap());
        };
        write(&kvs, 0);
        db.ingest().unwrap();
        db.settle().unwrap();
        let mut threads = Vec::new();
        {
            let (db, kvs) = (db.clone(), kvs.clone());
            threads.push(thread::spawn(move || {
                for n in 1..=2 {
                    write(&kvs, n);
                    db.ingest().unwrap();
                    db.settle().unwrap();
                }
            }));
        }
        for _ in 0..2 {
            let kvs = kvs.clone();
            threads.push(thread::spawn(move || {
                let mut last = [0; KEYS as usize];
                for round in 0..6u8 {
                    let key = round % KEYS;
                    let got = kvs.get(&[key]).unwrap().expect("written before");
                    let n = got[1];
                    assert_eq!(got, value(key, n), "key {key}");
                    assert!(n >= last[usize::from(key)], "key {key}: {n} after {last:?}");
                    last[usize::from(key)] = n;
                }
            }));
        }
        join_all(threads);
    });
}

/// The engine's own threads: writers fill memtables faster than they are ingested and wait, and every
/// wait ends; so does closing.
#[test]
fn whoever_waits_is_woken() {
    explore(|| {
        let options = options().with(|set| set.maintenance = Maintenance::Threads);
        let devices = devices(|device| device);
        let db = Kvdb::create_on(devices.clone(), options.clone()).unwrap();
        let kvs = db.create_kvs("k", Policy::default()).unwrap();
        let writers = (0..2u8).map(|thread| {
            let kvs = kvs.clone();
            thread::spawn(move || {
                for n in 0..8u8 {
                    kvs.put(&[thread, n], &[n; 3000]).unwrap();
                }
            })
        });
        join_all(writers.collect());
        drop(kvs);
        db.close().unwrap();
        let options = options.with(|set| set.maintenance = Maintenance::Manual);
        let db = Kvdb::open_on(devices, options).unwrap();
        let kvs = db.kvs("k").unwrap();
        for (thread, n) in (0..2u8).flat_map(|thread| (0..8u8).map(move |n| (thread, n))) {
            assert_eq!(kvs.get(&[thread, n]).unwrap().unwrap(), [n; 3000]);
        }
    });
}

/// Two workers run steps of one tree at the same time, while it is written to and read: no key goes back, and a crash
/// at any moment leaves a KVDB that is whole and has all that was durable.
#[test]
fn two_workers_on_one_tree_lose_nothing() {
    const KEYS: u8 = 12;
    static HELPED: AtomicU64 = AtomicU64::new(0);
    explore(|| {
        let tuning = Tuning {
            spill_bytes: 1,
            compact_kvsets: 2,
            leaf_key_bytes: 6 << 10,
            root_kvsets: 2,
            ..tiny_tuning()
        };
        let recorder = CrashRecorder::new();
        let devices = devices(|device| recorder.attach(device));
        let options = options().with(|set| set.tuning = Some(tuning));
        let db = Arc::new(Kvdb::create_on(devices, options.clone()).unwrap());
        let kvs = db.create_kvs("k", Policy::default()).unwrap();
        let key = |n: u8| [&[n][..], &[n; 1200]].concat();
        let write = move |kvs: &Kvs, version: u8| {
            (0..KEYS).for_each(|n| kvs.put(&key(n), &[version; 40]).unwrap());
        };
        write(&kvs, 0);
        db.ingest().unwrap();
        db.settle().unwrap();
        write(&kvs, 1);
        db.ingest().unwrap();
        assert!(db.step().unwrap(), "a spill");
        // Each leaf has something to do now, and soon the root has.
        recorder.mark(0);
        let (first, second) = (db.clone(), db.clone());
        let threads = vec![
            thread::spawn(move || while first.step().unwrap() {}),
            thread::spawn(move || {
                for _ in 0..30 {
                    HELPED.fetch_add(u64::from(second.help().unwrap()), Ordering::Relaxed);
                }
            }),
        ];
        write(&kvs, 2);
        db.ingest().unwrap();
        recorder.mark(2);
        let mut last = [0; KEYS as usize];
        for round in 0..2 * KEYS {
            let n = round % KEYS;
            let version = kvs.get(&key(n)).unwrap().expect("written before")[0];
            assert!(version >= last[usize::from(n)], "key {n}: {version} after {last:?}");
            last[usize::from(n)] = version;
        }
        join_all(threads);
        db.settle().unwrap();
        let all = |kvs: &Kvs, least: u8| {
            for n in 0..KEYS {
                let value = kvs.get(&key(n)).unwrap().expect("written before");
                assert!(value.len() == 40 && value[0] >= least, "key {n}: {value:?}");
            }
        };
        all(&kvs, 2);
        drop((kvs, db));
        let history = recorder.history();
        // Some of them: each takes as long as a schedule.
        for point in (0..=history.len()).rev().step_by(history.len() / 4 + 1) {
            let Some(&least) = history.marks_before(point).last() else { continue };
            let image = history.image(&ImageId { point, kept: Vec::new() }).unwrap();
            let [manifest, capacity, staging] = [0, 1, 2].map(|index| image.device(index));
            let devices = Devices { manifest, capacity, staging: Some(staging) };
            let found = Kvdb::open_on(devices, options.clone()).unwrap();
            all(&found.kvs("k").unwrap(), if least == 0 { 1 } else { 2 });
        }
    });
    assert!(HELPED.load(Ordering::Relaxed) > 100, "the helper found little to do");
}

/// Walks tell each other where they have found nothing, while keys are put there and the memtable is frozen. None of
/// the keys is passed over by a walk that comes after its put.
#[test]
fn key_put_where_walks_found_nothing_is_found() {
    explore(|| {
        let (db, kvs) = create(options());
        (0..12u8).for_each(|n| kvs.put(&[n], b"value").unwrap());
        (0..12u8).for_each(|n| kvs.delete(&[n]).unwrap());
        let first = |kvs: &Kvs| kvs.cursor().unwrap().next().unwrap().map(|(key, _)| key[0]);
        let last = |kvs: &Kvs| {
            let mut cursor = kvs.cursor().unwrap();
            cursor.seek_to_last().unwrap();
            cursor.prev().unwrap().map(|(key, _)| key[0])
        };
        let mut threads = Vec::new();
        for n in 0..2 {
            let (db, kvs) = (db.clone(), kvs.clone());
            threads.push(thread::spawn(move || {
                if n == 0 {
                    first(&kvs);
                    last(&kvs);
                } else {
                    last(&kvs);
                    db.ingest().unwrap();
                    first(&kvs);
                }
            }));
        }
        let writes = kvs.clone();
        threads.push(thread::spawn(move || {
            for n in [9, 5] {
                writes.put(&[n], b"value").unwrap();
                assert_eq!(first(&writes), Some(n));
                assert_eq!(last(&writes), Some(9));
            }
        }));
        join_all(threads);
        assert_eq!((first(&kvs), last(&kvs)), (Some(5), Some(9)));
    });
}
