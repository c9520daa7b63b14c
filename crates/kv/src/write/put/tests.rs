use super::*;
use crate::api::kvdb::Kvdb;
use crate::maintain::manual::CompactRequest;
use crate::maintain::steps;
use crate::recover::devices::Devices;
use crate::testing::{device, kvdb, kvdb_on, small_blocks};
use crate::write::put;
use esker_base::{Clock, thread};

#[test]
fn wait_for_another_writer_is_counted() {
    let (db, kvs, clock) = kvdb();
    // The put may come late to the lock: then it has not waited, and tries again.
    for _ in 0..1000 {
        if db.stats().stalls.writer > 0 {
            break;
        }
        let log = db.engine.log.tail();
        let writer = kvs.clone();
        let put = thread::spawn("put", move || writer.put(b"k", b"v").unwrap()).unwrap();
        Clock::real().sleep(Duration::from_millis(1));
        clock.sleep(LONG_WAIT);
        drop(log);
        put.join().unwrap();
    }
    let stalls = db.stats().stalls;
    assert_eq!((stalls.writer, stalls.longest_ns, stalls.total_ns), (1, 1_000_000, 1_000_000));
}

#[test]
fn fair_unlock_hands_lock_to_waiter() {
    let (db, kvs, _) = kvdb();
    let engine = &db.engine;
    let comes_first = |until_it_sleeps: Duration| {
        let log = engine.log.tail();
        let (before, writer) = (log.last_seqno(), kvs.clone());
        let put = thread::spawn("put", move || writer.put(b"k", b"v").unwrap()).unwrap();
        while !engine.log.is_awaited() {
            Clock::real().sleep(Duration::from_millis(1));
        }
        Clock::real().sleep(until_it_sleeps);
        engine.log.unlock_writer(log);
        let after = engine.log.tail().last_seqno();
        put.join().unwrap();
        after > before
    };
    // Where others keep all processors busy, it takes long before it sleeps.
    let mostly = |ms| (0..20).filter(|_| comes_first(Duration::from_millis(ms))).count() > 10;
    assert!([5, 50, 250].into_iter().any(mostly));
}

#[test]
fn writer_without_space_gives_up_while_others_go_on() {
    let (db, _, clock) = kvdb();
    let engine = &db.engine;
    let full =
        || KvError::ClassFull { class: crate::types::class::MediaClass::Capacity, kvs: "a".into() };
    // Steps that others do, of which none makes room for this one.
    let mut wait = Wait::default();
    let mut waits = || {
        wait.steps = engine.counters.steps.get();
        engine.counters.steps.add(1);
        put::await_space(engine, engine.log.tail(), full(), &mut wait).map(drop)
    };
    waits().unwrap();
    clock.advance(PATIENCE / 2);
    waits().unwrap();
    clock.advance(PATIENCE / 2);
    assert!(waits().unwrap_err().lacks_space());
}

#[test]
fn writer_without_space_waits_for_no_preload() {
    let devices = Devices { manifest: device("m"), capacity: device("c"), staging: None };
    let (db, kvs, _) = kvdb_on(devices.clone(), small_blocks());
    (0..10_000u64).for_each(|n| kvs.put(n.to_be_bytes(), b"v").unwrap());
    db.compact(CompactRequest::Full).unwrap();
    let options = db.engine.options.clone();
    db.close().unwrap();
    let db = Kvdb::open_on(devices, options).unwrap();
    let engine = &db.engine;
    let full =
        KvError::ClassFull { class: crate::types::class::MediaClass::Capacity, kvs: "a".into() };
    let waits = put::await_space(engine, engine.log.tail(), full, &mut Wait::default());
    assert!(waits.map(drop).unwrap_err().lacks_space());
    assert_eq!(engine.budget.pages().resident_bytes(), 0);
    assert!(steps::preload(engine), "there are some to be loaded");
}

#[test]
fn a_delete_that_finds_no_room_is_not_told_to_delete() {
    let (db, kvs, _) = kvdb();
    let capacity = db.engine.classes.capacity.clone();
    let take =
        |bytes| capacity.allocate(crate::types::stream::Stream::Log, bytes, Purpose::Opening).ok();
    let _taken: Vec<_> = [1 << 20, 64 << 10, 4 << 10]
        .into_iter()
        .flat_map(|n| std::iter::from_fn(move || take(n)))
        .collect();
    let text = |write: &dyn Fn() -> Result<()>| {
        let mut writes = std::iter::repeat_with(write);
        writes.find_map(Result::err).expect("it is full").to_string()
    };
    let delete = text(&|| kvs.delete([7; 1000]));
    assert!(delete.contains("drop a KVS") && !delete.contains("delete data"), "{delete}");
    let put = text(&|| kvs.put(b"k", [7; 1000]));
    assert!(put.contains("delete data"), "{put}");
}

#[test]
fn wait_for_an_opening_segment_is_counted() {
    let (db, kvs, _) = kvdb();
    (0..20).for_each(|_| kvs.put(b"k", [7; 1000]).unwrap());
    {
        let mut log = db.engine.log.tail();
        log.seal();
        assert!(log.begin_opening());
    }
    let writer = kvs.clone();
    let puts = thread::spawn("puts", move || {
        (0..100).for_each(|_| writer.put(b"k", [7; 1000]).unwrap());
    });
    // All of them do not fit the segment, so one waits until the next one is there.
    let waits = || db.engine.counters.segment_waits.get() > 0;
    assert!((0..60_000).any(|_| {
        Clock::real().sleep(Duration::from_millis(1));
        waits()
    }));
    let segment = db.engine.open_segment(Purpose::User, 0).unwrap();
    db.engine.log.tail().opened(Some(segment));
    db.engine.log.wake_writers();
    puts.unwrap().join().unwrap();
}
