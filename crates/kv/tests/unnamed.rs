//! Repair when a record of the manifest is damaged: what the sound part before it does not name is found on
//! the media, and a manifest in parts is worth no less than none.

mod common;

use std::collections::BTreeMap;

use common::{edit, in_memory, newest_records, remains, small_tuning, test_options};
use esker_kv::{Devices, Kvdb, Kvs, Options, Policy, Remains, RepairReport};

fn options() -> Options {
    test_options(small_tuning())
}

fn devices() -> Devices {
    in_memory("the-", [128 << 10, 4 << 20, 2 << 20])
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a repair makes of the one KVS, whatever it is called then.
fn repair(remains: &Remains) -> (RepairReport, Content) {
    let into = devices();
    let report = Kvdb::repair_on(remains, &into, options()).unwrap();
    let found = common::sample::read_all(&Kvdb::open_on(into, options()).unwrap()).unwrap();
    (report, found.into_iter().map(|((_, key), value)| (key, value)).collect())
}

/// Puts these keys, each once, with values of `size` bytes.
fn put(kvs: &Kvs, keys: impl IntoIterator<Item = u32>, size: usize) {
    for n in keys {
        kvs.put(&n.to_be_bytes(), &vec![n.to_le_bytes()[0]; size]).unwrap();
    }
}

/// Damages one record of the manifest after the other. What comes back is what was put, and as many keys as
/// without any manifest: all of them.
fn damage_each_record(devices: &Devices, keys: usize) {
    let none = repair(&Remains { manifest: None, ..remains(devices) }).1;
    assert_eq!(none.len(), keys, "without a manifest");
    let mut missing = Vec::new();
    for (number, lba) in newest_records(&*devices.manifest).into_iter().enumerate() {
        edit(&*devices.manifest, lba, |bytes| bytes[30] ^= 1);
        let (report, found) = repair(&remains(devices));
        assert!(found.iter().all(|(key, value)| none.get(key) == Some(value)), "{report:#?}");
        missing.push((number, keys - found.len()));
        edit(&*devices.manifest, lba, |bytes| bytes[30] ^= 1);
    }
    assert!(missing.len() > 4, "{missing:?}");
    assert!(missing.iter().all(|(_, missing)| *missing == 0), "{missing:?}");
}

/// The keys of several kvsets are merged, and their values stay in the first segment of the log.
#[test]
fn values_that_stay_in_the_log_are_found_for_the_kvset_that_has_their_keys() {
    let devices = devices();
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    for round in 0..4 {
        put(&kvs, 10 * round..10 * (round + 1), 300);
        db.ingest().unwrap();
    }
    db.settle().unwrap();
    put(&kvs, 40..46, 300);
    db.sync().unwrap();
    assert!(db.stats().maintenance.compactions > 0, "nothing was merged");
    std::mem::forget(db);
    damage_each_record(&devices, 46);
}
