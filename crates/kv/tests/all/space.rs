//! Space: a full KVDB says so, goes on reading, and has room again when data was deleted.

use std::sync::Arc;

use crate::common::records::{check, devices, put, value};
use crate::common::sparse::FileSystem;
use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options};
use esker_base::{ErrorKind, Rng};
use esker_device::MemoryDevice;
use esker_kv::{KvError, Kvdb, Kvs, Medium, Policy, Tuning};

/// Puts records from `first` on until there is no space; returns the first that had none.
fn fill(db: &Kvdb, kvs: &Kvs, first: u64) -> u64 {
    for n in first.. {
        match kvs.put(n.to_be_bytes(), value(n)) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                assert!(error.to_string().contains("delete data"), "{error}");
                return n;
            }
        }
        if n % 16 == 0 {
            let _ = db.step();
        }
    }
    unreachable!("the device is finite")
}

/// A KVDB's devices, both classes in files on one file system.
fn in_files(bytes: u64) -> (FileSystem, Devices) {
    let system = FileSystem::new(bytes);
    let manifest = Arc::new(MemoryDevice::new("manifest", 2 << 20, 4096));
    let (capacity, staging) = (system.file("capacity"), Some(system.file("staging")));
    (system, Devices { manifest, capacity, staging })
}

fn fills_and_frees(devices: Devices) {
    let db = Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let mut start = 0;
    for round in 0..4 {
        let end = fill(&db, &kvs, start);
        let live = (end - start) * 900;
        assert!(live > 2 << 20, "round {round}: only {live} bytes fit a class of 6 MiB");
        for n in start..end {
            assert_eq!(kvs.get(n.to_be_bytes()).unwrap(), Some(value(n).into()), "round {round}");
        }
        // Deleting works when putting does not, and makes room.
        for n in start..end {
            match kvs.delete(n.to_be_bytes()) {
                Ok(()) => {}
                Err(KvError::NoSpaceToDelete { .. }) => drop(db.settle()),
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        for n in start..end {
            let deleted = kvs.delete(n.to_be_bytes());
            deleted.unwrap_or_else(|error| panic!("round {round}: {error}\n{:?}", db.stats()));
        }
        db.ingest().unwrap();
        db.settle().unwrap();
        assert!(kvs.cursor().unwrap().next().unwrap().is_none());
        start = end;
    }
    let stats = db.stats();
    let used: u64 = stats.classes.iter().map(|class| class.used_bytes).sum();
    assert!(used < 2 << 20, "everything was deleted, and yet: {stats:?}");
    db.close().unwrap();
    let db = Kvdb::open_on(devices, test_options(small_tuning())).unwrap();
    assert!(db.kvs("k").unwrap().cursor().unwrap().next().unwrap().is_none());
}

#[test]
fn a_full_kvdb_reads_and_deletes_and_has_room_again() {
    fills_and_frees(devices(6 << 20, Some(4 << 20)));
}

#[test]
fn a_full_kvdb_with_capacity_alone_reads_and_deletes_and_has_room_again() {
    fills_and_frees(devices(6 << 20, None));
}

#[test]
fn a_kvdb_in_files_is_full_when_their_file_system_is() {
    let (system, devices) = in_files(12 << 20);
    fills_and_frees(devices.clone());
    assert_eq!(system.refused(), 0, "a write failed for want of space");
    // Others take all free space, and give it back.
    let db = Kvdb::open_on(devices, test_options(small_tuning())).unwrap();
    let kvs = db.kvs("k").unwrap();
    put(&kvs, 0..200);
    let taken = i64::try_from(system.free_bytes() / 8 * 7).unwrap();
    system.take(taken);
    let end = fill(&db, &kvs, 200);
    check(&kvs, 0..end);
    system.take(-taken);
    put(&kvs, end..end + 200);
    db.settle().unwrap();
    check(&kvs, 0..end + 200);
    let class = |n: usize| db.stats().classes[n].capacity_bytes;
    assert!(class(0) <= 12 << 20 && class(1) <= 12 << 20, "{:?}", db.stats());
}

#[test]
fn records_in_the_log_have_room_whatever_others_take() {
    let (system, devices) = in_files(12 << 20);
    let db = Kvdb::create_on(devices, test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    put(&kvs, 0..100);
    db.settle().unwrap();
    let taken = i64::try_from(system.free_bytes()).unwrap();
    system.take(taken);
    // Until the segments that are open are full.
    let end = (100..100_000_u64).find(|&n| {
        let refused = kvs.put(n.to_be_bytes(), value(n)).and_then(|()| db.sync()).err();
        refused.inspect(|error| assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}")).is_some()
    });
    let end = end.expect("there is no room for so many");
    assert!(end > 110, "{end}");
    assert_eq!(db.stats().stopped, None);
    check(&kvs, 0..end);
    system.take(-taken);
    put(&kvs, end..end + 200);
    db.settle().unwrap();
    check(&kvs, 0..end + 200);
}

#[test]
fn a_closed_kvdb_keeps_no_room_for_its_log() {
    let (system, devices) = in_files(12 << 20);
    let options = || test_options(Tuning { block_bytes: 1 << 20, ..small_tuning() });
    let held = || (12 << 20) - system.free_bytes();
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    put(&db.create_kvs("k", Policy::default()).unwrap(), 0..1);
    assert!(held() >= 1 << 20, "{}", held());
    drop(db); // one record in the log, for the next opening
    assert!(held() < 512 << 10, "{}", held());
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    check(&db.kvs("k").unwrap(), 0..1);
    db.close().unwrap();
    assert!(held() < 512 << 10, "{}", held());
    check(&Kvdb::open_on(devices, options()).unwrap().kvs("k").unwrap(), 0..1);
}

#[test]
fn a_small_staging_class_spills_over_to_capacity_instead_of_failing() {
    let db = Kvdb::create_on(devices(32 << 20, Some(256 << 10)), test_options(small_tuning()));
    let db = db.unwrap();
    let kvs = db.create_kvs("k", Policy::STAGING_ONLY).unwrap();
    for n in 0..4000u64 {
        kvs.put(n.to_be_bytes(), value(n)).unwrap();
    }
    db.settle().unwrap();
    for n in 0..4000u64 {
        assert_eq!(kvs.get(n.to_be_bytes()).unwrap(), Some(value(n).into()));
    }
}

#[test]
fn overwriting_forever_takes_a_bounded_space() {
    let db =
        Kvdb::create_on(devices(8 << 20, Some(4 << 20)), test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let mut rng = Rng::new(9);
    for n in 0..40_000u64 {
        let put = kvs.put(rng.below(2000).to_be_bytes(), value(n));
        put.unwrap_or_else(|error| panic!("put {n}: {error}\n{:?}", db.stats()));
        if n % 32 == 0 {
            db.step().unwrap();
        }
    }
}

#[test]
fn staging_can_be_added_to_a_live_kvdb() {
    let devices = devices(16 << 20, None);
    let db = Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let put = |range: std::ops::Range<u64>| {
        range.for_each(|n| kvs.put(n.to_be_bytes(), value(n)).unwrap());
    };
    put(0..500);
    // Without a directory there is no place that goes without saying.
    let placeless = db.add_staging(&Medium::InDir).unwrap_err();
    assert!(placeless.to_string().contains("has no directory"), "{placeless}");
    assert!(!std::path::Path::new("staging.esker").exists());
    let staging: Arc<dyn esker_device::Device> =
        Arc::new(MemoryDevice::new("staging", 8 << 20, 512));
    db.add_staging_device(staging.clone()).unwrap();
    assert_eq!(db.add_staging_device(staging.clone()).unwrap_err().kind(), ErrorKind::Exists);
    put(500..1500);
    assert!(db.stats().classes[0].written_bytes() > 500 * 900, "{:?}", db.stats());
    db.close().unwrap();
    let again = Devices { staging: Some(staging), ..devices.clone() };
    let db = Kvdb::open_on(again, test_options(small_tuning())).unwrap();
    let kvs = db.kvs("k").unwrap();
    for n in 0..1500u64 {
        assert_eq!(kvs.get(n.to_be_bytes()).unwrap(), Some(value(n).into()));
    }
    drop((kvs, db));
    let error = Kvdb::open_on(devices, test_options(small_tuning())).err().unwrap();
    assert!(error.to_string().contains("staging"), "{error}");
}

#[test]
fn a_device_smaller_than_the_parts_holds_data_and_makes_room_again() {
    for capacity_bytes in [8 << 20, 16 << 20, 36 << 20] {
        let options = || test_options(small_tuning()).with(|set| set.tuning = None);
        let options = || options().with(|set| set.memory_bytes = 32 << 20);
        let devices = devices(capacity_bytes, None);
        let mut db = Kvdb::create_on(devices.clone(), options()).unwrap();
        let mut kvs = db.create_kvs("k", Policy::default()).unwrap();
        for round in 0..3 {
            let end = fill(&db, &kvs, 0);
            assert!(end * 900 > capacity_bytes / 8, "round {round}: {end} of {capacity_bytes}");
            drop(kvs);
            db.close().unwrap();
            db = Kvdb::open_on(devices.clone(), options()).unwrap();
            kvs = db.kvs("k").unwrap();
            for n in 0..end {
                assert_eq!(
                    kvs.get(n.to_be_bytes()).unwrap(),
                    Some(value(n).into()),
                    "round {round}"
                );
                kvs.delete(n.to_be_bytes()).unwrap();
            }
            db.ingest().unwrap();
            db.settle().unwrap();
        }
    }
}

/// Data that goes to the leaves is there twice until it has gone there, and here that is nearly all there is.
#[test]
fn a_kvdb_full_of_keys_makes_room_again_when_they_are_deleted() {
    let tuning = Tuning {
        memtable_bytes: 128 << 10,
        block_bytes: 2 << 20,
        frame_bytes: 8 << 10,
        key_extent_bytes: 256 << 10,
        allocation_bytes: 4 << 10,
        root_kvsets: 4,
        spill_bytes: 512 << 10,
        compact_kvsets: 6,
        leaf_key_bytes: 256 << 10,
        gather_bytes: 256 << 10,
        workers: 1,
    };
    for capacity_bytes in [6 << 20, 8 << 20] {
        let db = Kvdb::create_on(devices(capacity_bytes, None), test_options(tuning)).unwrap();
        let kvs = db.create_kvs("k", Policy::default()).unwrap();
        let key = |n: u64| [n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(); 4].concat();
        let fill = |from: u64| {
            let full = |n: &u64| kvs.put(key(*n), n.to_be_bytes()).is_err();
            (from..).find(full).unwrap()
        };
        let end = fill(0);
        assert!(end * 40 > capacity_bytes / 2, "{end} of {capacity_bytes}\n{:?}", db.stats());
        for n in 0..end {
            assert!(kvs.get(key(n)).unwrap().is_some(), "{n} of {end}");
        }
        for n in 0..end {
            let deleted = kvs.delete(key(n));
            deleted.unwrap_or_else(|error| panic!("{n} of {end}: {error}\n{:?}", db.stats()));
        }
        let again = fill(end) - end;
        assert!(again > end / 4 * 3, "{again} after {end} were deleted\n{:?}", db.stats());
    }
}

#[test]
fn keys_fill_extents_of_any_size_and_never_leave_them() {
    let sizes = [(4 << 10, 4 << 10), (20 << 10, 8 << 10), (48 << 10, 64 << 10), (5000, 4 << 10)];
    for (key_extent_bytes, allocation_bytes) in sizes {
        let tuning = Tuning { key_extent_bytes, allocation_bytes, ..small_tuning() };
        let devices = devices(32 << 20, Some(8 << 20));
        let db = Kvdb::create_on(devices.clone(), test_options(tuning)).unwrap();
        let kvs = db.create_kvs("k", Policy::default()).unwrap();
        let key = |n: u64| [&n.to_be_bytes()[..], &[7; 200]].concat();
        (0..5000).for_each(|n| kvs.put(key(n), b"v").unwrap());
        db.ingest().unwrap();
        db.settle().unwrap();
        (0..5000).for_each(|n| assert!(kvs.get(key(n)).unwrap().is_some(), "{n}"));
        db.close().unwrap();
        assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
    }
}
