//! Repair when a record of the manifest is damaged: structures that the sound part before it does not name are
//! found on the media, and a manifest in parts is worth no less than none.

use std::collections::BTreeMap;

use crate::campaign::hook::Hook;
use crate::common::{Devices, OnDevices};
use crate::common::{
    edit, faulty, in_memory, newest_records, remains, small_tuning, test_options, without_manifest,
};
use esker_kv::{Kvdb, Kvs, Options, Policy, Remains, RepairReport, Tuning};
use esker_sim::{Effect, FaultPlan, Target};

fn options() -> Options {
    test_options(Tuning { spill_bytes: 1 << 10, ..small_tuning() })
}

fn devices() -> Devices {
    in_memory("the-", [128 << 10, 4 << 20, 2 << 20])
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Repairs the remains. Returns the report, and the content of the one KVS, whatever it is called then.
fn repair(remains: &Remains) -> (RepairReport, Content) {
    let into = devices();
    let report = Kvdb::repair_on(remains, &into, options()).unwrap();
    (report, content(&Kvdb::open_on(into, options()).unwrap()))
}

fn content(db: &Kvdb) -> Content {
    let all = crate::common::sample::read_all(db).unwrap();
    all.into_iter().map(|((_, key), value)| (key, value)).collect()
}

/// The same devices, which stop where the hook says; but for the manifest's.
fn hooked(devices: &Devices, hook: &Hook) -> Devices {
    Devices {
        capacity: hook.on(devices.capacity.clone()),
        staging: devices.staging.clone().map(|staging| hook.on(staging)),
        ..devices.clone()
    }
}

/// Puts these keys, each once, with values of `size` bytes.
fn put(kvs: &Kvs, keys: impl IntoIterator<Item = u32>, size: usize) {
    for n in keys {
        kvs.put(n.to_be_bytes(), vec![n.to_le_bytes()[0]; size]).unwrap();
    }
}

/// Damages one record of the manifest after the other. Each repair brings back values that were put, and as many
/// keys as without any manifest: all of them.
fn damage_each_record(devices: &Devices, keys: usize) {
    let none = repair(&without_manifest(devices)).1;
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

/// A KVDB in which the other lane commits at the `nth` command of a spill: structures that the spill has made by
/// then have lower ids than those in the manifest before it. And its keys; values have `size` bytes. `None` when
/// the spill has fewer commands.
fn overtaken(nth: u64, size: usize, then_ingest: bool) -> Option<(Devices, usize)> {
    let (hook, devices) = (Hook::default(), devices());
    let db = Kvdb::create_on(hooked(&devices, &hook), options()).unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    let mut keys = 0;
    let mut ingest = || {
        put(&kvs, keys..keys + 100, size);
        keys += 100;
        db.ingest().unwrap();
    };
    (0..2).for_each(|_| ingest());
    let (_, is_overtaken) = hook.during(nth, &mut ingest, || db.step().unwrap());
    assert_eq!(db.stats().maintenance.spills, 1);
    if then_ingest {
        ingest();
    }
    std::mem::forget(db);
    is_overtaken.then_some((devices, keys as usize))
}

#[test]
fn kvsets_committed_late_are_found() {
    for size in [10, 300] {
        for then_ingest in [true, false] {
            let images = (0..).map_while(|nth| overtaken(nth, size, then_ingest));
            let tried = images.map(|(devices, keys)| damage_each_record(&devices, keys)).count();
            assert!(tried > 3, "{tried} commands");
        }
    }
}

/// It has lower ids than the steps that the other lane has committed meanwhile, and may pass for one that was
/// committed late. Deleted keys that it brings back count as uncertain.
#[test]
fn leftovers_of_an_interrupted_step_replace_nothing() {
    for size in [10, 300] {
        let mut back = 0;
        for nth in 0.. {
            let (hook, plan, devices) = (Hook::default(), FaultPlan::new(), devices());
            let db = Kvdb::create_on(faulty(&hooked(&devices, &hook), &plan), options()).unwrap();
            let kvs = db.create_kvs("a", Policy::default()).unwrap();
            put(&kvs, 0..100, size);
            db.ingest().unwrap();
            let overtake = || {
                (0..40).for_each(|n: u32| kvs.put(n.to_be_bytes(), b"newer").unwrap());
                (40..60).for_each(|n: u32| kvs.delete(n.to_be_bytes()).unwrap());
                db.ingest().unwrap();
                plan.once(Target::Write, plan.seen(Target::Write), Effect::Fail);
            };
            let (step, _) = hook.during(nth, overtake, || db.step());
            std::mem::forget(db);
            if step.is_ok() {
                break;
            }
            let db = Kvdb::open_on(devices.clone(), options()).unwrap();
            // Kvsets of these would take the place of those it has left.
            put(&db.kvs("a").unwrap(), 100..110, size);
            db.sync().unwrap();
            let expected = content(&db);
            std::mem::forget(db);
            for lba in newest_records(&*devices.manifest) {
                edit(&*devices.manifest, lba, |bytes| bytes[30] ^= 1);
                let (report, mut found) = repair(&remains(&devices));
                let what = format!("{size} bytes, command {nth}, LBA {lba}: {report:#?}");
                let count = found.len() - expected.len();
                assert!(count as u64 <= report.kvss[0].uncertain, "{what}");
                found.retain(|key, _| expected.contains_key(key));
                assert!(found == expected, "{what}");
                back = back.max(count);
                edit(&*devices.manifest, lba, |bytes| bytes[30] ^= 1);
            }
        }
        assert_eq!(back, 20, "it was looked at");
    }
}
