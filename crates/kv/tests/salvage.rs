//! Repair, one damage at a time: what it costs, and that it costs no more.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{bytes_of, edit, remains, small_tuning, test_options};
use esker_device::{Device, MemoryDevice};
use esker_kv::{Devices, Kvdb, ManifestState, Options, Policy, Remains, RepairReport};

const LBA: usize = 512;

fn options() -> Options {
    test_options(small_tuning())
}

fn devices() -> Devices {
    let memory = |name: &str, bytes: u64| -> Arc<dyn Device> {
        Arc::new(MemoryDevice::new(name, bytes, 512))
    };
    Devices {
        manifest: memory("the-manifest", 128 << 10),
        capacity: memory("the-capacity", 4 << 20),
        staging: Some(memory("the-staging", 2 << 20)),
    }
}

/// By KVS and key.
type Content = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// What a repair makes of it: the report, and what the new KVDB holds.
fn repair(remains: &Remains) -> (RepairReport, Content) {
    let db = Kvdb::create_on(devices(), options()).unwrap();
    let report = Kvdb::repair(remains, &db).unwrap();
    let found = common::sample::read_all(&db).unwrap();
    (report, found)
}

fn name_of(report: &RepairReport) -> Vec<&str> {
    report.kvss.iter().map(|kvs| &*kvs.name).collect()
}

/// Where the records of a manifest's newest epoch begin, in their order.
fn newest_records(manifest: &dyn Device) -> Vec<u64> {
    let bytes = bytes_of(manifest);
    let records = bytes.chunks(LBA).zip(0..).filter(|(lba, _)| lba.starts_with(b"ESKMANIF"));
    let epoch = |lba: &[u8]| u64::from_le_bytes(lba[16..24].try_into().unwrap());
    let records: Vec<(u64, u64)> = records.map(|(bytes, lba)| (epoch(bytes), lba)).collect();
    let newest = records.iter().map(|(epoch, _)| *epoch).max().unwrap();
    records.into_iter().filter(|(epoch, _)| *epoch == newest).map(|(_, lba)| lba).collect()
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
            kvs.put(&[name.as_bytes(), &[n]].concat(), &[n; 100]).unwrap();
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
