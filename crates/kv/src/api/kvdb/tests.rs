//! Tests of opening, closing and stopping a KVDB.

use super::*;
use crate::maintain::ingest;
use crate::maintain::steps;
use crate::testing::{kvdb, kvdb_with, small_blocks};
use crate::types::policy::Policy;
use esker_base::{Clock, ErrorKind, thread};
use esker_device::MemoryDevice;
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};
use std::sync::{Arc, mpsc};
use std::time::Duration;

#[test]
fn a_step_that_another_thread_runs_ends_before_the_kvdb_and_no_other_begins() {
    let (db, kvs, _) = kvdb();
    kvs.put(b"k", b"v").unwrap();
    let (engine, other) = (db.engine.clone(), db.engine.clone());
    let (begun, has_begun) = mpsc::channel();
    let (ended, has_ended) = mpsc::channel();
    let step = thread::spawn("step", move || {
        let _lanes = (other.scheduler.first_lane(), other.scheduler.ingest_lane());
        begun.send(()).unwrap();
        Clock::real().sleep(Duration::from_millis(50));
        ended.send(()).unwrap();
    });
    has_begun.recv().unwrap();
    drop(db);
    has_ended.try_recv().expect("closed while a step ran");
    step.unwrap().join().unwrap();
    assert_eq!(ingest::ingest_oldest(&engine).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(steps::maintain(&engine).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn ingest_goes_on_while_a_drop_waits_for_a_long_step() {
    let (db, kvs, _) = kvdb();
    kvs.put(b"k", b"v").unwrap();
    let db = Arc::new(db);
    let step = db.engine.scheduler.first_lane();
    let dropper = db.clone();
    let dropped = thread::spawn("drop", move || dropper.drop_kvs("a").unwrap()).unwrap();
    while db.engine.naming.try_lock().is_some() {
        Clock::real().sleep(Duration::from_millis(1));
    }
    // It may not have come to the lanes yet, and takes no more time to come there than this.
    Clock::real().sleep(Duration::from_millis(20));
    assert!(!db.engine.scheduler.is_ingesting());
    drop(step);
    dropped.join().unwrap();
}

/// Something else is damaged, and the log is not.
#[test]
fn writes_acknowledged_before_a_stop_become_durable_in_time() {
    let (db, kvs, clock) = kvdb();
    kvs.put(b"k", b"v").unwrap();
    db.engine.stop(&KvError::Cancelled);
    assert_eq!(kvs.put(b"k", b"w").unwrap_err().kind(), ErrorKind::Conflict);
    clock.advance(Duration::from_secs(1));
    let _ = db.step();
    let durable = |db: &Kvdb| db.engine.log.durable().0;
    assert_eq!(durable(&db), 1);

    let device = |name| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(name, 16 << 20, 512)) };
    let devices = Devices { manifest: device("m"), capacity: device("c"), staging: None };
    let db = Kvdb::create_on(devices, Options::default()).unwrap();
    db.create_kvs("a", Policy::default()).unwrap().put(b"k", b"v").unwrap();
    db.engine.stop(&KvError::Cancelled);
    let clock = Clock::real();
    let limit = clock.now() + Duration::from_secs(10);
    while durable(&db) < 1 && clock.now() < limit {
        clock.sleep(Duration::from_millis(1));
    }
    assert_eq!(durable(&db), 1);
}

#[test]
fn writes_acknowledged_while_a_segment_opens_become_durable_in_time() {
    let device = |name| Arc::new(MemoryDevice::new(name, 16 << 20, 512));
    let plan = FaultPlan::new();
    let manifest = Arc::new(FaultDevice::new(device("m"), &plan));
    let devices = Devices { manifest, capacity: device("c"), staging: None };
    let tuning = Some(small_blocks());
    let options = Options { memory_bytes: 16 << 20, tuning, ..Options::default() };
    let db = Kvdb::create_on(devices, options).unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    let (clock, span) = (Clock::real(), Duration::from_secs(5));
    let delay = Effect::DelaySpan { clock: clock.clone(), span };
    plan.from_then_on(Target::Any, plan.seen(Target::Any), delay);
    let began = clock.now();
    // A part of a segment of 64 KiB, and then less.
    for (seqno, size) in [(1, 20_000), (2, 10)] {
        kvs.put(b"k", vec![7; size]).unwrap();
        while db.engine.log.durable().0 < seqno {
            clock.sleep(Duration::from_millis(1));
        }
    }
    assert!(clock.now().since(began) < span);
    while plan.fired() == 0 {
        clock.sleep(Duration::from_millis(1));
    }
    assert!(db.engine.log.tail().is_opening());
}

#[test]
fn writes_acknowledged_before_closing_are_durable_or_closing_fails() {
    let plan = FaultPlan::new();
    let (db, kvs, _) = kvdb_with(|device| Arc::new(FaultDevice::new(device, &plan)));
    db.ingest().unwrap();
    kvs.put(b"k", b"v").unwrap();
    plan.from_then_on(Target::Flush, plan.seen(Target::Flush), Effect::Fail);
    let error = db.opened.shut().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}

#[cfg(not(feature = "zstd"))]
#[test]
fn kvdb_that_uses_zstandard_is_refused_when_it_is_opened() {
    use crate::testing::device;
    use crate::types::compression::Compression;
    use crate::types::error::ErrorCode;
    use crate::types::policy::KvsOptions;

    let devices = Devices { manifest: device("m"), capacity: device("c"), staging: None };
    let db = Kvdb::create_on(devices.clone(), Options::default()).unwrap();
    for compression in [Compression::Zstd, Compression::Auto] {
        let options = KvsOptions::default().compression(compression);
        assert_eq!(db.create_kvs("a", options).unwrap_err().code(), ErrorCode::Unsupported);
    }
    let kvs = db.create_kvs("a", KvsOptions::default().compression(Compression::Lz4)).unwrap();
    assert_eq!(kvs.set_compression(Compression::Zstd).unwrap_err().code(), ErrorCode::Unsupported);
    // As a build that has it leaves it.
    kvs.change_options(|options| options.compression = Compression::Zstd).unwrap();
    db.close().unwrap();
    let error = Kvdb::open_on(devices, Options::default()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    assert!(error.to_string().contains("the KVS 'a' compresses values with Zstandard"), "{error}");
}
