//! Media-class policies: every cell of the table says where its data lies, a class that is full spills
//! or refuses as the policy says, and policies change on live KVSs.

use std::sync::Arc;

use crate::common::records::{check, put, value};
use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options};
use esker_base::ErrorKind;
use esker_device::MemoryDevice;
use esker_kv::{Batch, KvError, Kvdb, Kvs, MediaClass, Place, PlaceStats, Policy, Tuning};

fn devices(capacity_bytes: u64, staging_bytes: Option<u64>) -> Devices {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 512));
    Devices {
        manifest: device("manifest", 2 << 20),
        capacity: device("capacity", capacity_bytes),
        staging: staging_bytes.map(|bytes| device("staging", bytes) as _),
    }
}

fn create(devices: &Devices) -> Kvdb {
    Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap()
}

fn places(db: &Kvdb, kvs: &str) -> Vec<PlaceStats> {
    db.stats().kvss.into_iter().find(|stats| stats.name == kvs).unwrap().places
}

/// Bytes of each cell on a class.
fn lies(db: &Kvdb, kvs: &str, class: MediaClass) -> [u64; 4] {
    let places = places(db, kvs);
    let place = places.iter().find(|place| place.class == class);
    place.map_or([0; 4], |p| {
        [p.young_keys_bytes, p.young_values_bytes, p.old_keys_bytes, p.old_values_bytes]
    })
}

/// Old data, and young data on top of it.
fn load(db: &Kvdb, kvs: &Kvs) {
    put(kvs, 0..400);
    db.ingest().unwrap();
    db.settle().unwrap();
    while db.stats().kvss.iter().any(|kvs| kvs.root_kvsets > 0) {
        put(kvs, 0..100);
        db.ingest().unwrap();
        db.settle().unwrap();
    }
    put(kvs, 400..430);
    db.ingest().unwrap();
}

#[test]
fn every_cell_of_a_policy_says_where_its_data_lies() {
    for n in 0..16 {
        let place = |cell: usize| Place::prefer(MediaClass::ALL[n >> cell & 1]);
        let policy = Policy {
            young_keys: place(0),
            young_values: place(1),
            old_keys: place(2),
            old_values: place(3),
        };
        let devices = devices(8 << 20, Some(8 << 20));
        let db = create(&devices);
        let kvs = db.create_kvs("k", policy).unwrap();
        load(&db, &kvs);
        for (cell, (name, place)) in policy.cells().into_iter().enumerate() {
            let (here, there) =
                (lies(&db, "k", place.class)[cell], lies(&db, "k", other(place.class))[cell]);
            assert!(here > 0 && there == 0, "{policy}: {name}: {here} and {there} bytes");
        }
        check(&kvs, 0..430);
        db.close().unwrap();
        assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
        let db = Kvdb::open_on(devices, test_options(small_tuning())).unwrap();
        check(&db.kvs("k").unwrap(), 0..430);
    }
}

fn other(class: MediaClass) -> MediaClass {
    if class == MediaClass::Staging { MediaClass::Capacity } else { MediaClass::Staging }
}

#[test]
fn without_a_staging_class_every_policy_is_capacity_only() {
    for (name, policy) in Policy::TEMPLATES {
        let db = create(&devices(8 << 20, None));
        let kvs = db.create_kvs("k", policy).unwrap();
        load(&db, &kvs);
        assert!(lies(&db, "k", MediaClass::Capacity).iter().all(|&bytes| bytes > 0), "{name}");
    }
}

#[test]
fn a_policy_is_changed_on_a_live_kvs_and_stays() {
    let devices = devices(8 << 20, Some(8 << 20));
    let db = create(&devices);
    let kvs = db.create_kvs("k", Policy::CAPACITY_ONLY).unwrap();
    load(&db, &kvs);
    assert_eq!(lies(&db, "k", MediaClass::Staging), [0; 4]);
    let strict: Policy = "staging-only,keys=staging/none".parse().unwrap();
    kvs.set_policy(strict).unwrap();
    put(&kvs, 430..900);
    db.ingest().unwrap();
    let staging = lies(&db, "k", MediaClass::Staging);
    assert!(staging.iter().any(|&bytes| bytes > 0), "new data goes where it is now to go");
    std::mem::forget(db); // a crash
    let db = Kvdb::open_on(devices.clone(), test_options(small_tuning())).unwrap();
    let kvs = db.kvs("k").unwrap();
    assert_eq!(kvs.options().unwrap().policy, strict);
    assert_eq!(db.stats().kvss[0].policy, strict.to_string());
    check(&kvs, 0..430);
    db.drop_kvs("k").unwrap();
    assert_eq!(kvs.set_policy(strict).unwrap_err().kind(), ErrorKind::Closed);
}

/// Fills `kvs` until its class takes no more; returns the first record that was refused.
fn fill(db: &Kvdb, kvs: &Kvs, class: MediaClass) -> u64 {
    for n in 0..20_000u64 {
        match kvs.put(n.to_be_bytes(), value(n)) {
            Ok(()) => {}
            Err(KvError::ClassFull { class: full, kvs: name }) => {
                assert_eq!((full, &*name), (class, kvs.name()));
                return n;
            }
            Err(error) => panic!("{error}\n{:?}", db.stats()),
        }
        if n % 16 == 0 {
            db.step().unwrap();
        }
    }
    panic!("the device is finite")
}

#[test]
fn a_full_class_that_must_not_be_left_refuses_writes_until_there_is_room() {
    for (class, policy) in
        [(MediaClass::Staging, "all=staging/none"), (MediaClass::Capacity, "all=capacity/none")]
    {
        let devices = match class {
            MediaClass::Staging => devices(16 << 20, Some(4 << 20)),
            MediaClass::Capacity => devices(4 << 20, Some(16 << 20)),
        };
        let db = create(&devices);
        let strict = db.create_kvs("strict", policy.parse::<Policy>().unwrap()).unwrap();
        let easy = db.create_kvs("easy", Policy::default()).unwrap();
        let end = fill(&db, &strict, class);
        assert!(end > 1500, "{class}: only {end} records in 4 MiB\n{:?}", db.stats());
        let outside: u64 = lies(&db, "strict", other(class))[2..].iter().sum();
        // Records that were in memtables when the class became full stay where the log put them.
        assert!(outside < 2 * small_tuning().memtable_bytes, "{:?}", db.stats());
        let mut batch = Batch::new();
        batch.put(&easy, b"k", b"v");
        batch.put(&strict, b"k", b"v");
        assert_eq!(db.write(&batch).unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(easy.get(b"k").unwrap(), None);
        // Others are not concerned.
        put(&easy, 0..500);
        check(&strict, 0..end);
        check(&easy, 0..500);
        for n in 0..end {
            let deleted = strict.delete(n.to_be_bytes());
            deleted.unwrap_or_else(|error| panic!("{class}, {n}: {error}\n{:?}", db.stats()));
        }
        put(&strict, 0..200);
        check(&strict, 0..200);
        check(&easy, 0..500);
        db.close().unwrap();
        assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
    }
}

#[test]
fn data_bound_to_a_nearly_full_class_does_not_gather_elsewhere() {
    let devices = devices(16 << 20, Some(4 << 20));
    let db = create(&devices);
    let kvs = db.create_kvs("k", "all=staging/none".parse::<Policy>().unwrap()).unwrap();
    let mut end = fill(&db, &kvs, MediaClass::Staging);
    let mut oldest = 0u64;
    for round in 0..40 {
        // Room for a few at a time.
        for _ in 0..20 {
            kvs.delete(oldest.to_be_bytes()).unwrap();
            oldest += 1;
        }
        for _ in 0..100 {
            match kvs.put(end.to_be_bytes(), value(end)) {
                Ok(()) => end += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                    break;
                }
            }
        }
        db.step().unwrap();
        let outside: u64 = lies(&db, "k", MediaClass::Capacity).iter().sum();
        // Only records that were in memtables when staging became full.
        assert!(outside < 2 * small_tuning().memtable_bytes, "round {round}: {outside} bytes");
    }
    check(&kvs, oldest..end);
}

/// Data that must come home does, and takes nothing along from where nothing must: that might find no room in one
/// piece, stay, and be moved again for ever.
#[test]
fn only_what_must_not_lie_elsewhere_is_brought_home() {
    let devices = devices(16 << 20, Some(16 << 20));
    let tuning = Tuning { leaf_key_bytes: 16 << 10, ..small_tuning() };
    let db = Kvdb::create_on(devices.clone(), test_options(tuning)).unwrap();
    let kvs = db.create_kvs("k", Policy::CAPACITY_ONLY).unwrap();
    put(&kvs, 0..6000);
    db.ingest().unwrap();
    db.settle().unwrap();
    let leaves = db.stats().kvss[0].leaves;
    assert!(leaves > 2, "{leaves} leaves");
    // The last leaf's keys go to staging, and with them come values.
    kvs.set_policy("old=staging".parse::<Policy>().unwrap()).unwrap();
    while lies(&db, "k", MediaClass::Staging)[2] == 0 {
        put(&kvs, 5900..6000);
        db.ingest().unwrap();
        db.settle().unwrap();
    }
    let before = lies(&db, "k", MediaClass::Capacity)[3];
    let strict = "old-keys=capacity/none,old-values=staging";
    kvs.set_policy(strict.parse::<Policy>().unwrap()).unwrap();
    db.settle().unwrap();
    assert_eq!(lies(&db, "k", MediaClass::Staging)[2], 0, "{:?}", db.stats());
    let left = lies(&db, "k", MediaClass::Capacity)[3];
    assert!(left > before / 2, "{left} of {before} bytes of values stayed");
    check(&kvs, 0..6000);
}

#[test]
fn a_class_that_may_be_left_spills_over_and_is_used_again_when_it_has_room() {
    let devices = devices(16 << 20, Some(1 << 20));
    let db = create(&devices);
    let kvs = db.create_kvs("k", Policy::STAGING_ONLY).unwrap();
    put(&kvs, 0..4000);
    db.settle().unwrap();
    let (staging, capacity) =
        (lies(&db, "k", MediaClass::Staging), lies(&db, "k", MediaClass::Capacity));
    assert!(staging[3] > 0 && capacity[3] > 2 << 20, "{staging:?} {capacity:?}");
    check(&kvs, 0..4000);
    for n in 0..3900u64 {
        kvs.delete(n.to_be_bytes()).unwrap();
    }
    db.ingest().unwrap();
    db.settle().unwrap();
    // The segment of the log that was begun on the other class is used up first.
    put(&kvs, 5000..5400);
    db.ingest().unwrap();
    assert!(lies(&db, "k", MediaClass::Staging)[1] > 100 << 10, "{:?}", db.stats());
    check(&kvs, 5000..5400);
}
