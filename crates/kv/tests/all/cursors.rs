//! Cursors that are held open: their reads ahead of need keep to the budget, however many there are.

use std::sync::Arc;

use crate::common::{Devices, OnDevices};
use crate::common::{medium_tuning, test_options};
use esker_device::MemoryDevice;
use esker_kv::{Cursor, Kvdb, Options, Policy};

const KEYS: u32 = 40_000;
const MEMORY_BYTES: u64 = 32 << 20;

fn options() -> Options {
    test_options(medium_tuning()).with(|set| set.memory_bytes = MEMORY_BYTES)
}

/// Takes rows, each of which is there.
fn walk(cursor: &mut Cursor, from: u32, rows: u32) {
    for n in from..from + rows {
        let (key, value) = cursor.next().unwrap().expect("a row");
        assert_eq!((key, value.len()), (&n.to_be_bytes()[..], 1000));
    }
}

#[test]
fn windows_of_cursors_shrink_the_more_there_are() {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 4096));
    let devices = Devices {
        manifest: device("manifest", 4 << 20),
        capacity: device("capacity", 256 << 20),
        staging: None,
    };
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    (0..KEYS).for_each(|n| kvs.put(n.to_be_bytes(), [7; 1000]).unwrap());
    db.ingest().unwrap();
    db.settle().unwrap();
    db.compact(esker_kv::CompactRequest::Full).unwrap();
    db.close().unwrap();
    // As little as there may be of pages and records.
    for memory_bytes in [MEMORY_BYTES, 4 << 20] {
        let db =
            Kvdb::open_on(devices.clone(), options().with(|set| set.memory_bytes = memory_bytes))
                .unwrap();
        let kvs = db.kvs("k").unwrap();
        let held = || {
            let dram = db.stats().dram;
            dram.window_bytes + dram.cursor_bytes
        };
        let mut cursors: Vec<Cursor> = Vec::new();
        let mut one = 0;
        for n in 0..500 {
            let mut cursor = kvs.cursor().unwrap();
            cursor.seek(&(n * 70u32).to_be_bytes()).unwrap();
            walk(&mut cursor, n * 70, 600);
            cursors.push(cursor);
            if n == 0 {
                one = held();
            }
        }
        let all = held();
        let most = (memory_bytes / 16).max(2 << 20) + 500 * (24 << 10);
        println!("{memory_bytes} bytes: one holds {one}, 500 hold {all}");
        assert!(one > 100 << 10, "{one} bytes of one: nothing is had ahead of need");
        assert!(all < most, "{all} bytes of 500, {one} of one");
        // They go on all the same; and when there is one, it has as much again.
        for (n, cursor) in (0..).zip(&mut cursors) {
            walk(cursor, n * 70 + 600, 200);
        }
        assert!(held() < most);
        cursors.truncate(1);
        walk(&mut cursors[0], 800, 2000);
        assert!(held() >= one / 2, "{} bytes, {one} before", held());
        cursors.clear();
        assert_eq!(held(), 0);
    }
}

#[test]
fn the_caches_give_room_to_what_cursors_hold() {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 4096));
    let devices = Devices {
        manifest: device("manifest", 4 << 20),
        capacity: device("capacity", 256 << 20),
        staging: None,
    };
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    (0..KEYS / 8).for_each(|n| kvs.put(n.to_be_bytes(), [7; 1000]).unwrap());
    db.ingest().unwrap();
    let capacity = || db.stats().dram.record_cache_capacity_bytes;
    let before = capacity();
    let mut cursors: Vec<Cursor> = (0..64).map(|_| kvs.cursor().unwrap()).collect();
    cursors.iter_mut().for_each(|cursor| walk(cursor, 0, 600));
    let held = db.stats().dram.window_bytes + db.stats().dram.cursor_bytes;
    assert!(held > 500 << 10, "{held} bytes");
    kvs.put(b"k", b"v").unwrap();
    db.ingest().unwrap();
    assert!(
        capacity() + held / 10 * 9 <= before,
        "{} bytes, {before} before {held} were held",
        capacity()
    );
}
