//! Repair, one damage at a time: the keys it costs, and that it costs no more.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Devices, OnDevices};
use crate::common::{
    bytes_of, edit, faulty, in_memory, newest_records, remains, small_tuning, test_options, used,
    without_manifest,
};
use esker_base::{ErrorKind, Lba};
use esker_device::Device;
use esker_kv::{
    Batch, CompactRequest, KvError, Kvdb, ManifestState, Options, Policy, Remains, RepairReport,
};
use esker_sim::{CrashRecorder, Effect, FaultDevice, FaultPlan, Plan, Target};

const LBA: usize = 512;

fn options() -> Options {
    test_options(small_tuning())
}

fn devices() -> Devices {
    in_memory("the-", [128 << 10, 4 << 20, 2 << 20])
}

/// By KVS and key.
type Content = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// Repairs the remains. Returns the report, and the content of the new KVDB.
fn repair(remains: &Remains) -> (RepairReport, Content) {
    let into = devices();
    let report = Kvdb::repair_on(remains, &into, options()).unwrap();
    let found = crate::common::sample::read_all(&Kvdb::open_on(into, options()).unwrap()).unwrap();
    (report, found)
}

fn name_of(report: &RepairReport) -> Vec<&str> {
    report.kvss.iter().map(|kvs| &*kvs.name).collect()
}

fn flip(device: &dyn Device, lba: u64) {
    edit(device, lba, |bytes| bytes[30] ^= 1);
}

#[test]
fn a_kvs_that_was_dropped_behind_the_damage_of_the_manifest_stays_dropped() {
    let devices = devices();
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    for name in ["kept", "gone"] {
        let kvs = db.create_kvs(name, Policy::default()).unwrap();
        for n in 0..60u8 {
            kvs.put([name.as_bytes(), &[n]].concat(), [n; 100]).unwrap();
        }
        db.sync().unwrap();
    }
    db.close().unwrap();
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    db.kvs("kept").unwrap().set_policy(Policy::STAGING_ONLY).unwrap();
    db.drop_kvs("gone").unwrap();
    std::mem::forget(db);
    let records = newest_records(&*devices.manifest);
    flip(&*devices.manifest, records[records.len() - 2]);
    // Its space may be free again, and hold anything.
    for device in [&devices.capacity, &devices.staging.clone().unwrap()] {
        let is_of = |lba: &[u8], name: &[u8]| lba.windows(4).any(|word| word == name);
        for (bytes, lba) in bytes_of(&**device).chunks(LBA).zip(0..) {
            if is_of(bytes, b"gone") && !is_of(bytes, b"kept") {
                edit(&**device, lba, |bytes| bytes.fill(0));
            }
        }
    }
    let (report, found) = repair(&remains(&devices));
    assert_eq!(report.manifest, ManifestState::Damaged);
    assert_eq!(name_of(&report), ["kept"], "{report:#?}");
    assert_eq!(found.len(), 60);
    let others = report.findings.iter().filter(|it| !it.contains("the-manifest"));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
}

/// A record, and the place behind the last one: opening looks there as well.
#[test]
fn an_unreadable_lba_of_the_manifest_costs_what_a_damaged_one_costs() {
    let devices = devices();
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    let key = |n: u32| n.to_be_bytes();
    (0..150).for_each(|n| kvs.put(key(n), [7; 200]).unwrap());
    drop(kvs);
    db.close().unwrap();
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    let kvs = db.kvs("a").unwrap();
    for round in 0..4 {
        (0..30).for_each(|n| kvs.delete(key(4 * n + round)).unwrap());
        db.ingest().unwrap();
        db.settle().unwrap();
    }
    std::mem::forget(db);
    let sound = repair(&remains(&devices)).1;
    assert_eq!(sound.len(), 30);
    let records = newest_records(&*devices.manifest);
    assert!(records.len() > 6, "{records:?}");
    let used = used(&*devices.manifest);
    let end = (records[records.len() - 1]..).find(|lba| !used.contains(lba)).unwrap();
    for lba in records[0]..end + 4 {
        let plan = FaultPlan::new();
        plan.unreadable(Lba(lba));
        let unreadable: Arc<dyn Device> =
            Arc::new(FaultDevice::new(devices.manifest.clone(), &plan));
        let left = Devices { manifest: unreadable, ..devices.clone() };
        let error = Kvdb::open_on(left.clone(), options()).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        let (report, found) = repair(&remains(&left));
        assert_eq!(report.manifest, ManifestState::Damaged);
        let is_told = report.findings.iter().any(|it| it.contains("the-manifest: read of"));
        assert!(is_told, "{report:#?}");
        if lba >= end {
            let kvs = &report.kvss[0];
            assert_eq!(found, sound, "behind the end, at LBA {lba}");
            assert!(kvs.lost_ranges.is_empty() && kvs.uncertain == 0, "{report:#?}");
            continue;
        }
        flip(&*devices.manifest, lba);
        let (flipped, same) = repair(&remains(&devices));
        assert_eq!(found, same, "LBA {lba}");
        assert_eq!(format!("{:?}", report.kvss), format!("{:?}", flipped.kvss), "LBA {lba}");
        flip(&*devices.manifest, lba);
    }
}

/// The devices, of which one LBA of staging cannot be read.
fn with_unreadable(devices: &Devices, lba: u64) -> Devices {
    let plan = FaultPlan::new();
    plan.unreadable(Lba(lba));
    let staging: Arc<dyn Device> =
        Arc::new(FaultDevice::new(devices.staging.clone().unwrap(), &plan));
    Devices { staging: Some(staging), ..devices.clone() }
}

#[test]
fn an_unreadable_lba_of_the_log_costs_the_records_that_touch_its_4_kib() {
    let devices = devices();
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    // A frame of seven records, then one for each.
    let mut batch = Batch::new();
    (0..7u8).for_each(|n| batch.put(&kvs, [n], [n; 1000]));
    db.write(&batch).unwrap();
    db.sync().unwrap();
    for n in 7..40u8 {
        kvs.put([n], [n; 900]).unwrap();
        db.sync().unwrap();
    }
    std::mem::forget(db);
    let staging = devices.staging.clone().unwrap();
    let log = used(&*staging);
    // The first LBA is the header's.
    let (first, last) = (log[1], log[log.len() - 1]);
    let mut salvaged = 0;
    for lba in (first..=last).step_by(5) {
        for has_manifest in [true, false] {
            let mut left = remains(&with_unreadable(&devices, lba));
            left.manifest = left.manifest.filter(|_| has_manifest);
            let (report, found) = repair(&left);
            assert!(report.findings.iter().any(|it| it.contains("the-staging: read of")));
            let what = format!("LBA {lba}, manifest {has_manifest}: {report:#?}");
            // At most four frames begin in 4 KiB, and one began before; of the seven, those before stay.
            assert!(found.len() >= 40 - 7, "{} of 40; {what}", found.len());
            let is_there = |n: u8| found.keys().any(|(_, key)| key[..] == [n]);
            if lba >= first + 8 {
                assert!((0..3).all(is_there), "{what}");
                salvaged += usize::from(!is_there(6));
            }
        }
    }
    assert!(salvaged > 0, "the frame of seven was never hit in its middle");
}

#[test]
fn two_kvss_of_the_longest_name_there_is_are_both_salvaged() {
    let devices = devices();
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    // The name that would be invented for the third one is taken as well.
    let names = ["n".repeat(64), "kvs-4102".into()];
    for (name, value) in [(&names[0], b"old"), (&names[1], b"own"), (&names[0], b"new")] {
        if value == b"new" {
            db.drop_kvs(name).unwrap();
        }
        db.create_kvs(name, Policy::default()).unwrap().put(b"key", value).unwrap();
        db.sync().unwrap();
    }
    std::mem::forget(db);
    let records = newest_records(&*devices.manifest);
    // The drop; the KVS that was created last comes behind it.
    flip(&*devices.manifest, records[records.len() - 2]);
    let (report, found) = repair(&remains(&devices));
    let mut values: Vec<&[u8]> = found.values().map(|value| &value[..]).collect();
    values.sort_unstable();
    assert_eq!(values, [b"new", b"old", b"own"], "{report:#?}");
    // The newest one keeps the name: the other must have been dropped before.
    assert_eq!(found[&(names[0].clone(), b"key".to_vec())], b"new");
}

/// The devices of a KVDB with 300 keys, in kvsets and in the log.
fn filled() -> Devices {
    let devices = devices();
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    for n in 0..300u32 {
        kvs.put(n.to_be_bytes(), [7; 200]).unwrap();
        if n % 100 == 99 {
            db.settle().unwrap();
        }
    }
    db.sync().unwrap();
    std::mem::forget(db);
    devices
}

#[test]
fn a_crash_at_any_write_of_a_repair_leaves_a_whole_kvdb_or_none() {
    let (old, recorder, new) = (filled(), CrashRecorder::new(), devices());
    let attach = |device: &Arc<dyn Device>| -> Arc<dyn Device> { recorder.attach(device.clone()) };
    let recorded = Devices {
        manifest: attach(&new.manifest),
        capacity: attach(&new.capacity),
        staging: new.staging.as_ref().map(attach),
    };
    let report = Kvdb::repair_on(&remains(&old), &recorded, options()).unwrap();
    assert!(report.is_sound() && report.kvss[0].recovered == 300, "{report:#?}");
    recorder.mark(1);
    let plan = Plan { all_subsets: 2, singles: 1, random_subsets: 1, ..Plan::default() };
    let (mut whole, mut none) = (0, 0);
    for image in recorder.history().images(&plan) {
        let (manifest, capacity) = (image.device(0), image.device(1));
        let devices = Devices { manifest, capacity, staging: Some(image.device(2)) };
        match Kvdb::open_on(devices, options()) {
            Ok(open) => {
                let found = crate::common::sample::read_all(&open).unwrap();
                assert_eq!(found.len(), 300, "not all of it is there: {image}");
                whole += 1;
            }
            Err(KvError::NotAKvdb { .. }) => {
                assert!(image.marks().is_empty(), "a repair that was finished is gone: {image}");
                none += 1;
            }
            Err(error) => panic!("{error}\nimage: {image}"),
        }
    }
    assert!(whole > 0 && none > 30, "{whole} whole, {none} none");
}

#[test]
fn a_repair_that_failed_leaves_no_kvdb_and_may_be_repeated_in_its_place() {
    let old = filled();
    let (mut failed, mut marked) = (0, 0);
    for nth in 0.. {
        let (plan, new) = (FaultPlan::new(), devices());
        plan.once(Target::Write, nth, Effect::Fail);
        let result = Kvdb::repair_on(&remains(&old), &faulty(&new, &plan), options());
        if plan.fired() == 0 {
            break;
        }
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Io, "write {nth}");
        let opened = Kvdb::open_on(new.clone(), options()).map(drop);
        assert!(matches!(opened, Err(KvError::NotAKvdb { .. })), "write {nth}: {opened:?}");
        let classes = [&new.capacity, new.staging.as_ref().unwrap()];
        marked += u64::from(classes.iter().any(|device| used(&***device).first() == Some(&0)));
        let report = Kvdb::repair_on(&remains(&old), &new, options()).unwrap();
        assert!(report.is_sound() && report.kvss[0].recovered == 300, "{report:#?}");
        assert_eq!(Kvdb::check_on(&new).unwrap().findings, Vec::<String>::new());
        failed += 1;
    }
    assert!(failed > 10, "{failed} writes");
    // Classes that hold nothing of a KVDB may be taken again: all but while the headers change.
    assert_eq!(marked, 5, "of {failed} writes");
}

#[test]
fn a_kvs_that_was_dropped_before_its_records_were_ingested_stays_dropped() {
    let devices = devices();
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    for name in ["kept", "gone"] {
        db.create_kvs(name, Policy::default()).unwrap().put(b"k", name.as_bytes()).unwrap();
    }
    db.sync().unwrap();
    db.drop_kvs("gone").unwrap();
    std::mem::forget(db);
    let (report, found) = repair(&remains(&devices));
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!(name_of(&report), ["kept"]);
    assert_eq!(found.len(), 1);
}

/// Steps that were interrupted have given ids to their output, and no manifest names them.
#[test]
fn leftovers_of_an_interrupted_step_do_not_pass_for_later_data() {
    let name = |n: u8| if n.is_multiple_of(2) { "a" } else { "b" };
    for nth in 1.. {
        let devices = Devices { staging: None, ..devices() };
        let db = Kvdb::create_on(devices.clone(), options()).unwrap();
        let mut expected = Content::new();
        let mut put = |db: &Kvdb, n: u8, value: &[u8]| {
            db.kvs(name(n)).unwrap().put([n], value).unwrap();
            expected.insert((name(n).to_owned(), vec![n]), value.to_vec());
        };
        for name in ["a", "b"] {
            db.create_kvs(name, Policy::default()).unwrap();
        }
        (0..200).for_each(|n| put(&db, n, &[n; 900][..if n < 150 { 900 } else { 8 }]));
        db.close().unwrap();

        let plan = FaultPlan::new();
        let db = Kvdb::open_on(faulty(&devices, &plan), options()).unwrap();
        plan.once(Target::Write, plan.seen(Target::Write) + nth, Effect::Fail);
        let is_interrupted = db.compact(CompactRequest::Full).is_err();
        std::mem::forget(db);

        let db = Kvdb::open_on(devices.clone(), options()).unwrap();
        (200..220).for_each(|n| put(&db, n, &[n; 9]));
        db.sync().unwrap();
        std::mem::forget(db);
        let (_, found) = repair(&without_manifest(&devices));
        // Nobody knows their names: each has the keys of one.
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        for (kvs, key) in found.keys() {
            let owner = *owners.entry(kvs).or_insert(name(key[0]));
            assert_eq!(owner, name(key[0]), "{nth}: keys of both in {kvs}");
        }
        let by_key = |content: Content| -> BTreeMap<Vec<u8>, Vec<u8>> {
            content.into_iter().map(|((_, key), value)| (key, value)).collect()
        };
        assert_eq!(by_key(found.clone()), by_key(expected), "{nth}");
        if !is_interrupted {
            assert!(nth > 3, "nothing was interrupted");
            break;
        }
    }
}

#[test]
fn names_that_were_invented_are_told_and_no_others() {
    let devices = devices();
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    db.create_kvs("kvs-cache", Policy::default()).unwrap().put(b"k", b"v").unwrap();
    db.sync().unwrap();
    std::mem::forget(db);
    let (report, _) = repair(&remains(&devices));
    assert!(report.is_sound() && report.caveats.is_empty(), "{report:#?}");
    let (report, _) = repair(&without_manifest(&devices));
    let name = name_of(&report)[0];
    assert!(
        report.caveats.iter().any(|it| it.contains("names") && it.contains(name)),
        "{report:#?}"
    );
}
