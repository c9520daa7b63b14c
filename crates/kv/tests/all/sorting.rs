//! Scans that read in vain make maintenance put the values of a leaf in key order, and nothing else does.

use std::sync::Arc;

use crate::common::records::{devices, value};
use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options};
use esker_base::Rng;
use esker_device::Device;
use esker_kv::{CompactRequest, Cursor, Kvdb, Kvs, Options, Policy, Stats, Stream, Tuning};
use esker_sim::{CrashRecorder, Plan};

const KEYS: u64 = 4000;
const SCAN: u64 = 50;

/// One leaf, with room for records in the cache of memory for few of them.
fn options() -> Options {
    let tuning = Tuning {
        leaf_key_bytes: 4 << 20,
        block_bytes: 8 << 20,
        gather_bytes: 1 << 20,
        ..small_tuning()
    };
    test_options(tuning).with(|set| set.memory_bytes = 3 << 20)
}

/// Keys in random order, so that each spill has some of every range.
fn scattered(devices: &Devices) -> (Kvdb, Kvs) {
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    // A permutation: the factor is odd and prime to the count.
    for n in 0..KEYS {
        let key = n * 1237 % KEYS;
        kvs.put(key.to_be_bytes(), value(key)).unwrap();
    }
    db.ingest().unwrap();
    db.settle().unwrap();
    assert_eq!(db.stats().maintenance.sorts, 0);
    (db, kvs)
}

/// Old values read from the media, in bytes.
fn read_bytes(stats: &Stats) -> u64 {
    let streams = stats.classes.iter().flat_map(|class| &class.streams);
    streams.filter(|stream| stream.stream == Stream::OldValues).map(|s| s.read_bytes).sum()
}

/// Scans from a key; how many bytes it used.
fn scan(kvs: &Kvs, from: u64, rows: u64) -> u64 {
    walk(kvs.cursor().unwrap(), from, rows)
}

fn walk(mut cursor: Cursor, from: u64, rows: u64) -> u64 {
    cursor.seek(&from.to_be_bytes()).unwrap();
    let mut used = 0;
    for n in from..from + rows {
        let (key, found) = cursor.next().unwrap().unwrap();
        assert_eq!((key, found), (&n.to_be_bytes()[..], &value(n)[..]));
        used += (key.len() + found.len()) as u64;
    }
    used
}

/// Scans from random keys; bytes read for each 100 that were used.
fn scans(db: &Kvdb, kvs: &Kvs, count: u64, rng: &mut Rng) -> u64 {
    let before = read_bytes(&db.stats());
    let used: u64 = (0..count).map(|_| scan(kvs, rng.below(KEYS - SCAN), SCAN)).sum();
    (read_bytes(&db.stats()) - before) * 100 / used
}

#[test]
fn scans_that_read_in_vain_have_the_values_put_in_order_once() {
    let devices = devices(64 << 20, None);
    let (db, kvs) = scattered(&devices);
    let mut rng = Rng::new(1);
    let before = scans(&db, &kvs, 20, &mut rng);
    assert!(before > 200, "{before} bytes read for 100");
    let (mut wasted, mut sorts) = (0, 0);
    for _ in 0..40 {
        let read = read_bytes(&db.stats());
        let used: u64 = (0..10).map(|_| scan(&kvs, rng.below(KEYS - SCAN), SCAN)).sum();
        wasted += (read_bytes(&db.stats()) - read).saturating_sub(used);
        let written = db.stats().device_written_bytes;
        db.settle().unwrap();
        if db.stats().maintenance.sorts > sorts {
            sorts += 1;
            let written = db.stats().device_written_bytes - written;
            assert!(written <= wasted, "{written} bytes written for {wasted} wasted");
        }
    }
    assert_eq!(sorts, 1, "what is in order stays in order");
    let after = scans(&db, &kvs, 20, &mut rng);
    assert!(after * 2 < before, "{before} bytes read for 100 before, {after} after");
    // A walk over everything reads little but the rows it returns: the end of a window, and of a block.
    let read = read_bytes(&db.stats());
    let used = scan(&kvs, 0, KEYS);
    let read = (read_bytes(&db.stats()) - read) * 100 / used;
    assert!(read <= 130, "{read} bytes read for 100");
    // One that says how far it goes reads nothing else: whole LBAs, and little that is cached.
    let counted = |expected| {
        let (read, mut rng) = (read_bytes(&db.stats()), Rng::new(3));
        let walks = (0..20).map(|_| {
            let cursor = kvs.cursor().unwrap().expecting(expected);
            walk(cursor, rng.below(KEYS - SCAN), SCAN)
        });
        let used = walks.sum::<u64>();
        (read_bytes(&db.stats()) - read) * 100 / used
    };
    let (told, untold) = (counted(50), counted(0));
    assert!(told <= 105 && told < untold, "{told} bytes read for 100, {untold} if not told");
    let wrong = counted(7).max(counted(500));
    assert!(wrong <= 2 * untold + 100, "{wrong} bytes read for 100 by a wrong expectation");
    drop((kvs, db));
    assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
}

#[test]
fn nothing_else_has_values_put_in_order() {
    let (db, kvs) = scattered(&devices(64 << 20, None));
    let mut rng = Rng::new(2);
    for n in 0..60_000 {
        let key = rng.below(KEYS);
        match n % 4 {
            0 => kvs.put(key.to_be_bytes(), value(key)).unwrap(),
            // Short walks come to one block or two.
            1 => kvs.cursor().unwrap().seek(&key.to_be_bytes()).unwrap(),
            _ => assert_eq!(kvs.get(key.to_be_bytes()).unwrap(), Some(value(key).into())),
        }
    }
    db.settle().unwrap();
    assert_eq!(db.stats().maintenance.sorts, 0);
    let mut cursor = kvs.cursor().unwrap().keys_only();
    for _ in 0..100 {
        cursor.seek_to_first().unwrap();
        while cursor.next().unwrap().is_some() {}
    }
    drop(cursor);
    db.settle().unwrap();
    assert_eq!(db.stats().maintenance.sorts, 0);
}

#[test]
fn walks_over_what_was_there_before_do_not_have_it_sorted_again() {
    let (db, kvs) = scattered(&devices(64 << 20, None));
    let mut old = kvs.cursor().unwrap();
    db.compact(CompactRequest::Full).unwrap();
    let sorts = db.stats().maintenance.sorts;
    assert!(sorts > 0, "scattered values are put in order");
    for round in 0..1000u64 {
        old.seek(&(round * 37 % (KEYS - SCAN)).to_be_bytes()).unwrap();
        (0..SCAN).for_each(|_| assert!(old.next().unwrap().is_some()));
        scan(&kvs, round * 41 % (KEYS - SCAN), SCAN);
    }
    db.settle().unwrap();
    assert_eq!(db.stats().maintenance.sorts, sorts);
    assert_eq!(db.compact(CompactRequest::Full).unwrap().written_bytes, 0);
}

#[test]
fn a_crash_while_values_are_put_in_order_loses_nothing() {
    let memory = devices(64 << 20, None);
    let (db, kvs) = scattered(&memory);
    drop(kvs);
    db.close().unwrap();
    let recorder = CrashRecorder::new();
    let attach = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
        recorder.attach_holding(device.clone(), device.geometry().capacity).unwrap()
    };
    let recorded = Devices {
        manifest: attach(&memory.manifest),
        capacity: attach(&memory.capacity),
        staging: None,
    };
    let db = Kvdb::open_on(recorded, options()).unwrap();
    let kvs = db.kvs("k").unwrap();
    let mut rng = Rng::new(3);
    while db.stats().maintenance.sorts == 0 {
        scans(&db, &kvs, 10, &mut rng);
        db.settle().unwrap();
    }
    std::mem::forget((kvs, db));
    let mut images = 0;
    let plan = Plan { all_subsets: 2, singles: 1, random_subsets: 1, ..Plan::default() };
    for image in recorder.history().images(&plan).step_by(19) {
        images += 1;
        let devices =
            Devices { manifest: image.device(0), capacity: image.device(1), staging: None };
        let db = Kvdb::open_on(devices.clone(), options()).unwrap();
        assert_eq!(scan(&db.kvs("k").unwrap(), 0, KEYS), KEYS * 908);
        drop(db);
        assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
    }
    assert!(images > 20, "only {images} images");
}
