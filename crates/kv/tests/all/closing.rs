//! Closing a KVDB while handles of it live: they answer `Closed`, and the devices are free for whoever opens it next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Devices, OnDevices};
use crate::common::{in_memory, small_tuning, test_options};
use esker_base::{Clock, ErrorKind, thread};
use esker_device::Device;
use esker_kv::{Batch, Cursor, KvError, Kvdb, Kvs, Location, Medium, Options, Policy, Readable};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};

const KEYS: u64 = 3_000;

fn options() -> Options {
    Options::default().with(|set| set.memory_bytes = 16 << 20)
}

/// A KVS whose values are on the media.
fn fill(db: &Kvdb) -> Kvs {
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    (0..KEYS).for_each(|n| kvs.put(n.to_be_bytes(), [7; 5_000]).unwrap());
    db.ingest().unwrap();
    kvs
}

fn is_closed<T>(result: Result<T, KvError>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::Closed)
}

/// A cursor with reads under way.
fn walking(kvs: &Kvs) -> Cursor {
    let mut cursor = kvs.cursor().unwrap();
    for _ in 0..200 {
        cursor.next().unwrap().unwrap();
    }
    cursor
}

#[test]
fn closed_kvdb_refuses_to_be_backed_up() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Kvdb::builder(scratch.path().join("db")).options(options()).create().unwrap();
    db.create_kvs("a", Policy::default()).unwrap().put("k", "v").unwrap();
    db.close().unwrap();
    let copy = scratch.path().join("copy");
    assert!(is_closed(db.backup(&Location::dir(&copy))));
    assert!(!copy.exists());
}

#[test]
fn handles_answer_closed_and_the_kvdb_opens_again_beside_them() {
    let close: [fn(Kvdb); 2] = [|db| db.close().unwrap(), drop];
    for close in close {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("db");
        let db = Kvdb::builder(Location::dir(&dir).staging(Medium::InDir))
            .options(options())
            .create()
            .unwrap();
        let kvs = fill(&db);
        let (mut cursor, mut buffered) = (walking(&kvs), kvs.cursor().unwrap().expecting(100));
        buffered.next().unwrap();
        let (snapshot, mut transaction) = (db.snapshot(), db.transaction());
        transaction.put(&kvs, b"k", b"v").unwrap();
        let key = &0u64.to_be_bytes()[..];
        close(db);

        assert!(is_closed(kvs.get(key)), "a value in memory too");
        assert!(is_closed(kvs.get_many(&[key])));
        assert!(is_closed(kvs.cursor().map(drop)));
        assert!(is_closed(kvs.options()));
        assert!(is_closed(kvs.put(key, b"v")));
        assert!(is_closed(kvs.delete(key)));
        assert!(is_closed(kvs.set_ttl_ms(Some(1))));
        assert!(is_closed(snapshot.get(&kvs, key)));
        assert!(is_closed(snapshot.cursor(&kvs).map(drop)));
        assert!(is_closed(cursor.next().map(|_| ())));
        assert!(is_closed(cursor.seek_to_first()));
        assert!(is_closed(buffered.next().map(|_| ())), "a row that was read already");
        assert!(is_closed(transaction.get(&kvs, key)));
        assert!(is_closed(transaction.put(&kvs, key, b"v")));

        let db = Kvdb::builder(&dir).options(options()).open().unwrap();
        let again = db.kvs("a").unwrap();
        assert_eq!(again.get(key).unwrap().unwrap(), [7; 5_000]);
        assert_eq!(again.get(b"k").unwrap(), None);
        assert!(is_closed(transaction.commit()));
        drop((cursor, buffered, snapshot, kvs));
        assert_eq!(again.get(key).unwrap().unwrap(), [7; 5_000]);
        db.close().unwrap();
    }
}

#[test]
fn reads_under_way_end_or_are_closed_and_the_kvdb_opens_again() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    Kvdb::builder(Location::dir(&dir).staging(Medium::InDir))
        .options(options())
        .create()
        .unwrap()
        .close()
        .unwrap();
    for round in 0..5 {
        let db = Kvdb::builder(&dir).options(options()).open().unwrap();
        let kvs = if round == 0 { fill(&db) } else { db.kvs("a").unwrap() };
        let (ends, began) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let read = |walks: bool| {
                let (kvs, ends, began) = (&kvs, &ends, &began);
                move || {
                    // The KVDB may close before a thread has begun.
                    let Ok(mut cursor) = kvs.cursor() else { return };
                    for n in (0..KEYS).cycle().take_while(|_| !ends.load(Ordering::Acquire)) {
                        let result = match walks {
                            true => cursor.next().map(|row| row.map(|(_, value)| value.into())),
                            false => kvs.get(n.wrapping_mul(7919).rem_euclid(KEYS).to_be_bytes()),
                        };
                        began.store(true, Ordering::Release);
                        match result {
                            Ok(Some(value)) => assert_eq!(value, [7; 5_000]),
                            Ok(None) if walks => cursor.seek_to_first().unwrap_or(()),
                            Ok(None) => panic!("key {n} is gone"),
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                            }
                        }
                    }
                }
            };
            let threads = [true, false, false]
                .map(|walks| thread::spawn_scoped(scope, "reader", read(walks)).unwrap());
            while !began.load(Ordering::Acquire) {
                Clock::real().sleep(Duration::from_millis(1));
            }
            db.close().unwrap();
            // Readers are still at it.
            Kvdb::builder(&dir).options(options()).open().unwrap().close().unwrap();
            ends.store(true, Ordering::Release);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

/// How many hold each device.
fn holders(devices: &Devices) -> Vec<usize> {
    let all = [Some(&devices.manifest), Some(&devices.capacity), devices.staging.as_ref()];
    all.into_iter().flatten().map(Arc::strong_count).collect()
}

#[test]
fn devices_are_let_go_of_when_closing_fails_and_after_staging_was_removed() {
    let plan = FaultPlan::new();
    let wrap =
        |device: Arc<dyn Device>| -> Arc<dyn Device> { Arc::new(FaultDevice::new(device, &plan)) };
    let memory = in_memory("", [256 << 10, 8 << 20, 4 << 20]);
    let devices = Devices {
        manifest: wrap(memory.manifest),
        capacity: wrap(memory.capacity),
        staging: memory.staging.map(wrap),
    };
    let db = Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    (0..100u64).for_each(|n| kvs.put(n.to_be_bytes(), [7; 500]).unwrap());
    db.ingest().unwrap();
    let (snapshot, mut cursor) = (db.snapshot(), kvs.cursor().unwrap());
    cursor.next().unwrap().unwrap();
    db.remove_staging().unwrap();
    kvs.put(b"k", b"v").unwrap();
    plan.from_then_on(Target::Flush, plan.seen(Target::Flush), Effect::Fail);
    let error = db.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_eq!(holders(&devices), [1, 1, 1]);
    assert!(is_closed(snapshot.get(&kvs, 0u64.to_be_bytes())));
    assert!(is_closed(cursor.next().map(|_| ())));
}

#[test]
fn a_snapshot_says_that_it_is_older_than_a_kvs() {
    let devices = in_memory("", [256 << 10, 8 << 20, 4 << 20]);
    let db = Kvdb::create_on(devices, test_options(small_tuning())).unwrap();
    let (snapshot, transaction) = (db.snapshot(), db.transaction());
    let kvs = db.create_kvs("late", Policy::default()).unwrap();
    kvs.put(b"k", b"v").unwrap();
    for error in [
        snapshot.get(&kvs, b"k").unwrap_err(),
        snapshot.cursor(&kvs).map(drop).unwrap_err(),
        transaction.get(&kvs, b"k").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let text = error.to_string();
        assert!(
            text.contains("'late' was created after") && text.contains("begin another"),
            "{text}"
        );
    }
    db.drop_kvs("late").unwrap();
    let text = snapshot.get(&kvs, b"k").unwrap_err().to_string();
    assert!(text.contains("'late' was dropped"), "{text}");
}

#[test]
fn writes_to_a_kvs_that_was_dropped_name_it() {
    let devices = in_memory("", [256 << 10, 8 << 20, 4 << 20]);
    let db = Kvdb::create_on(devices, test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("gone", Policy::default()).unwrap();
    let mut transaction = db.transaction();
    transaction.put(&kvs, b"k", b"v").unwrap();
    let mut batch = Batch::new();
    batch.put(&kvs, b"k", b"v");
    db.drop_kvs("gone").unwrap();
    for error in [db.write(&batch).unwrap_err(), transaction.commit().unwrap_err()] {
        assert!(error.to_string().contains("the KVS 'gone' was dropped"), "{error}");
    }
}
