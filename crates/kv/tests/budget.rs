//! Memory that maintenance does not need at the moment goes to the caches: seen from outside, by the size that the
//! record cache may take. That resident memory keeps to the budget all the while is measured in
//! `tests/tests/memory.rs`.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Devices, OnDevices};
use esker_base::Clock;
use esker_device::{Device, MemoryDevice};
use esker_kv::{Kvdb, Kvs, Options, Policy};

const MEMORY_BYTES: u64 = 32 << 20;

fn records_capacity(db: &Kvdb) -> u64 {
    db.stats().dram.record_cache_capacity_bytes
}

/// Waits until the record cache may take `enough`, which the KVDB's own threads are to see to.
fn await_capacity(db: &Kvdb, enough: impl Fn(u64) -> bool) -> u64 {
    let clock = Clock::real();
    let began = clock.now();
    loop {
        let capacity = records_capacity(db);
        if enough(capacity) {
            return capacity;
        }
        let waited = clock.now().since(began);
        assert!(waited < Duration::from_secs(60), "it stays at {capacity} bytes");
        clock.sleep(Duration::from_millis(10));
    }
}

/// Puts so much that values age.
fn put(kvs: &Kvs, db: &Kvdb) {
    for number in 0..20_000u32 {
        kvs.put(number.wrapping_mul(0x9e37_79b9).to_be_bytes(), [7; 1000]).unwrap();
    }
    db.ingest().unwrap();
    db.settle().unwrap();
    assert!(db.stats().maintenance.spills > 0);
}

#[test]
fn the_memory_of_compactions_is_the_caches_while_there_are_none() {
    let device =
        |name: &str| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(name, 1 << 28, 4096)) };
    let devices = Devices {
        manifest: device("manifest"),
        capacity: device("capacity"),
        staging: Some(device("staging")),
    };
    let clock = Clock::virtual_time();
    let options = Options::default().with(|set| {
        set.memory_bytes = MEMORY_BYTES;
        set.clock = clock.clone();
    });
    let db = Kvdb::create_on(devices, options).unwrap();
    let kvs = db.create_kvs("records", Policy::default()).unwrap();
    let window = MEMORY_BYTES / 8;

    let before = await_capacity(&db, |_| true);
    put(&kvs, &db);
    let at_work = records_capacity(&db);
    assert!(at_work + window < before, "{before} bytes before the first one, {at_work} behind it");
    clock.advance(Duration::from_secs(1));
    put(&kvs, &db);
    assert!(records_capacity(&db) < at_work + window / 2, "the next one is about to come");
    clock.advance(Duration::from_secs(3));
    let at_rest = await_capacity(&db, |capacity| capacity > at_work + window);
    put(&kvs, &db);
    let again = records_capacity(&db);
    assert!(again + window < at_rest, "{at_rest} bytes at rest, {again} at work again");
    db.close().unwrap();
}

#[test]
fn read_only_kvdb_keeps_to_the_budget() {
    let device =
        |name: &str| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(name, 1 << 28, 4096)) };
    let devices =
        Devices { manifest: device("manifest"), capacity: device("capacity"), staging: None };
    let options = Options::default().with(|set| set.memory_bytes = MEMORY_BYTES);
    let db = Kvdb::create_on(devices.clone(), options.clone()).unwrap();
    let kvs = db.create_kvs("records", Policy::default()).unwrap();
    for number in 0..105_000u32 {
        let key = number.wrapping_mul(0x9e37_79b9).to_be_bytes().repeat(25);
        kvs.put(&key, [7; 150]).unwrap();
    }
    db.close().unwrap();
    let db = Kvdb::open_on(devices, options.with(|set| set.read_only = true)).unwrap();
    let kvs = db.kvs("records").unwrap();
    for _ in 0..2 {
        let mut cursor = kvs.cursor().unwrap();
        while let Some((key, _)) = cursor.next().unwrap() {
            kvs.get(key).unwrap().unwrap();
        }
    }
    let dram = db.stats().dram;
    assert!(dram.key_page_bytes > MEMORY_BYTES / 4, "{dram:?}");
    assert!(dram.record_cache_bytes > MEMORY_BYTES / 8, "{dram:?}");
    assert!(dram.total_bytes() <= MEMORY_BYTES * 7 / 8, "{dram:?}");
}
