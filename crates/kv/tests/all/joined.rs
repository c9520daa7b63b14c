//! Repair where the manifest is whole and what it names is not: the rest is found on the media.

use std::path::Path;

use crate::common::OnDevices;
use crate::common::{edit, in_memory, remains, small_tuning, test_options, used};
use esker_kv::{
    CompactRequest, KeyRange, Kvdb, Location, Medium, Options, Policy, Remains, RepairReport,
};

fn value(n: u32) -> Vec<u8> {
    [&n.to_be_bytes()[..], &[7; 90]].concat()
}

fn fill(db: &Kvdb, keys: u32) {
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    (0..keys).for_each(|n| kvs.put(n.to_be_bytes(), value(n)).unwrap());
    db.compact(CompactRequest::Full).unwrap();
}

/// Repairs the remains to a new directory. Returns the report, and how many keys have their values.
fn repaired(remains: &Remains, to: &Path, keys: u32) -> (RepairReport, u32) {
    let report = Kvdb::builder(to).options(Options::default()).repair(remains).unwrap();
    let db = Kvdb::builder(to).options(Options::default()).open().unwrap();
    let kvs = db.kvs(&report.kvss[0].name).unwrap();
    let right = |n: &u32| kvs.get(n.to_be_bytes()).unwrap() == Some(value(*n).into());
    let count = (0..keys).filter(right).count();
    db.close().unwrap();
    (report, u32::try_from(count).unwrap())
}

#[test]
fn staging_that_is_gone_or_empty_costs_no_value_on_capacity() {
    const KEYS: u32 = 40_000;
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    let db = Kvdb::builder(Location::dir(&old).staging(Medium::InDir))
        .options(Options::default())
        .create()
        .unwrap();
    fill(&db, KEYS);
    db.close().unwrap();
    let staging = old.join("staging.esker");
    std::fs::File::create(&staging).unwrap();
    let emptied = Location::dir(&old).remains().unwrap();
    let mut gone = emptied.clone();
    gone.classes.remove(&esker_kv::MediaClass::Staging);
    for (what, remains) in [("emptied", emptied), ("gone", gone)] {
        let (report, right) = repaired(&remains, &dir.path().join(what), KEYS);
        assert_eq!(right, KEYS, "{what}: {report:#?}");
        let kvs = &report.kvss[0];
        assert!(!kvs.is_complete && kvs.name == "a", "{what}: {report:#?}");
        assert_eq!((kvs.recovered, kvs.uncertain), (KEYS.into(), KEYS.into()), "{what}");
        let all = KeyRange { after: None, before: None };
        assert!(kvs.lost_ranges.contains(&all), "{what}: {report:#?}");
    }
}

#[test]
fn key_page_that_is_damaged_costs_no_value() {
    const KEYS: u32 = 4000;
    let devices = in_memory("the-", [128 << 10, 2 << 20, 2 << 20]);
    let db = Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap();
    fill(&db, KEYS);
    db.close().unwrap();
    let staging = devices.staging.clone().unwrap();
    let (mut pages, dir) = (0, tempfile::tempdir().unwrap());
    for lba in used(&*staging).into_iter().skip(8).step_by(29) {
        edit(&*staging, lba, |bytes| bytes[100] ^= 1);
        let to = dir.path().join(lba.to_string());
        let (report, right) = repaired(&remains(&devices), &to, KEYS);
        assert_eq!(right, KEYS, "LBA {lba}: {report:#?}");
        pages += usize::from(!report.kvss[0].lost_ranges.is_empty());
        assert_eq!(report.kvss[0].is_complete, report.kvss[0].lost_ranges.is_empty());
        edit(&*staging, lba, |bytes| bytes[100] ^= 1);
    }
    assert!(pages > 3, "{pages}");
}
