//! Keys, names, batches and metadata at their limits, at every stage of their life.

use std::sync::Arc;

use crate::common::{Devices, OnDevices};
use crate::common::{in_memory, remains};
use crate::common::{small_tuning, test_options};
use esker_base::{AlignedBuf, ErrorKind, Lba};
use esker_device::{MemoryDevice, Port};
use esker_kv::{
    Batch, Compression, KEY_MAX, KVS_NAME_MAX, KvError, Kvdb, Kvs, KvsOptions, METADATA_MAX,
    Options, Policy, Readable, Tuning,
};

fn devices() -> Devices {
    in_memory("", [1 << 20, 64 << 20, 32 << 20])
}

fn repaired(devices: &Devices, options: Options) -> Kvdb {
    let remains = remains(devices);
    let into = self::devices();
    let report = Kvdb::repair_on(&remains, &into, options.clone()).unwrap();
    assert!(report.is_sound(), "{report:#?}");
    Kvdb::open_on(into, options).unwrap()
}

/// Walks both ways, and back at each end.
fn walks(kvs: &Kvs) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = kvs.cursor().unwrap();
    let mut found = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        found.push((key.to_vec(), value.to_vec()));
    }
    for (key, value) in found.iter().rev() {
        assert_eq!(cursor.prev().unwrap(), Some((&key[..], &value[..])));
    }
    assert_eq!(cursor.prev().unwrap(), None);
    cursor.seek(b"").unwrap();
    assert_eq!(
        cursor.next().unwrap().map(|(key, _)| key.to_vec()),
        found.first().map(|f| f.0.clone())
    );
    found
}

#[test]
fn the_empty_key_is_one_like_any_other_at_every_stage_of_its_life() {
    let options = || test_options(Tuning { leaf_key_bytes: 8 << 10, ..small_tuning() });
    for (ttl_ms, value) in [(None, &b""[..]), (Some(3_600_000), b"short"), (None, &[7; 3000])] {
        let devices = devices();
        let db = Kvdb::create_on(devices.clone(), options()).unwrap();
        let settings = KvsOptions::default().ttl_ms(ttl_ms).compression(Compression::Auto);
        let kvs = db.create_kvs("k", settings).unwrap();
        assert_eq!(db.format_version(), 1);
        kvs.put(b"", value).unwrap();
        assert_eq!(db.format_version(), 2);
        for n in 0..600u32 {
            kvs.put(format!("{n:04}").as_bytes(), [1; 90]).unwrap();
        }
        let check = |db: &Kvdb, there: bool| {
            let kvs = db.kvs("k").unwrap();
            let expected = there.then(|| esker_kv::Value::from(value));
            assert_eq!(kvs.get(b"").unwrap(), expected.clone());
            let many = kvs.get_many(&[&b"0000"[..], b""]).unwrap();
            assert_eq!(many, [Some(vec![1; 90].into()), expected]);
            let found = walks(&kvs);
            assert_eq!(found.len(), 600 + usize::from(there));
            assert_eq!(found[0].0.is_empty(), there);
        };
        check(&db, true);
        db.sync().unwrap();
        std::mem::forget(db);
        let db = Kvdb::open_on(devices.clone(), options()).unwrap();
        check(&db, true);
        db.ingest().unwrap();
        check(&db, true);
        db.settle().unwrap();
        db.compact(esker_kv::CompactRequest::Full).unwrap();
        check(&db, true);
        check(&repaired_of_backup(&db, options()), true);
        let mut batch = Batch::new();
        batch.delete(&kvs_of(&db), b"");
        db.write(&batch).unwrap();
        check(&db, false);
        db.ingest().unwrap();
        db.settle().unwrap();
        check(&db, false);
        kvs_of(&db).put(b"", value).unwrap();
        let mut transaction = db.transaction();
        assert_eq!(transaction.get(&kvs_of(&db), b"").unwrap().unwrap(), value);
        transaction.delete(&kvs_of(&db), b"").unwrap();
        kvs_of(&db).delete_range(.."\0").unwrap();
        check(&db, false);
        assert!(matches!(transaction.commit(), Err(KvError::TransactionConflict { .. })));
        db.close().unwrap();
        assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
        check(&Kvdb::open_on(devices, options()).unwrap(), false);
    }
}

#[test]
fn the_empty_key_alone_is_replayed_and_ingested() {
    for size in [0, 5, 3000] {
        let devices = devices();
        let db = Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap();
        let kvs = db.create_kvs("k", Policy::default()).unwrap();
        kvs.put(b"", vec![7; size]).unwrap();
        db.sync().unwrap();
        std::mem::forget(db);
        let db = Kvdb::open_on(devices.clone(), test_options(small_tuning())).unwrap();
        let check = |db: &Kvdb| assert_eq!(walks(&kvs_of(db)), [(Vec::new(), vec![7; size])]);
        check(&db);
        db.ingest().unwrap();
        check(&db);
        db.compact(esker_kv::CompactRequest::Full).unwrap();
        check(&db);
        db.close().unwrap();
        assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
    }
}

fn kvs_of(db: &Kvdb) -> Kvs {
    db.kvs("k").unwrap()
}

/// A backup, repaired.
fn repaired_of_backup(db: &Kvdb, options: Options) -> Kvdb {
    let copy = devices();
    db.backup_on(&copy).unwrap();
    repaired(&copy, options)
}

#[test]
fn a_key_that_is_too_long_and_a_prefix_without_bytes_are_refused() {
    let db = Kvdb::create_on(devices(), test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let invalid = |result: Result<(), KvError>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(
            error.to_string().contains("1344") || error.to_string().contains("clear"),
            "{error}"
        );
    };
    invalid(kvs.put([0; KEY_MAX + 1], b"v"));
    invalid(kvs.delete([0; KEY_MAX + 1]));
    invalid(kvs.delete_prefix([0; KEY_MAX + 1]));
    invalid(kvs.delete_prefix(b""));
    assert_eq!(kvs.get([0; KEY_MAX + 1]).unwrap(), None);
    kvs.put([0; KEY_MAX], b"v").unwrap();
    assert_eq!(db.format_version(), 1);
}

#[test]
fn a_kvs_has_a_name_of_255_bytes_and_metadata_that_stay() {
    let options = || test_options(small_tuning());
    let devices = devices();
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let name = "n".repeat(KVS_NAME_MAX);
    let kvs = db.create_kvs(&name, Policy::default()).unwrap();
    let error = db.create_kvs(&"n".repeat(KVS_NAME_MAX + 1), Policy::default()).map(drop);
    assert!(error.unwrap_err().to_string().contains("1 to 255 letters"));
    assert_eq!((kvs.metadata().unwrap(), db.format_version()), (Vec::new(), 1));
    let error = kvs.set_metadata([1; METADATA_MAX + 1]).unwrap_err();
    assert_eq!((error.kind(), db.format_version()), (ErrorKind::Invalid, 1), "{error}");
    kvs.set_metadata(b"first").unwrap();
    let metadata = [7; METADATA_MAX];
    kvs.set_metadata(metadata).unwrap();
    kvs.set_policy(Policy::CAPACITY_ONLY).unwrap();
    kvs.put(b"k", b"v").unwrap();
    db.sync().unwrap();
    let check = |db: &Kvdb| {
        let kvs = db.kvs(&name).unwrap();
        assert_eq!(kvs.metadata().unwrap(), metadata);
        assert_eq!(kvs.options().unwrap().policy, Policy::CAPACITY_ONLY);
        assert_eq!(kvs.get(b"k").unwrap().unwrap(), b"v");
    };
    check(&db);
    std::mem::forget(db);
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    check(&db);
    check(&repaired_of_backup(&db, options()));
    // A snapshot of the manifest has it, too.
    drop(db);
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    check(&db);
    let kvs = db.kvs(&name).unwrap();
    kvs.set_metadata(b"").unwrap();
    assert_eq!(kvs.metadata().unwrap(), b"");
    kvs.set_metadata(b"again").unwrap();
    db.drop_kvs(&name).unwrap();
    assert_eq!(kvs.metadata().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(kvs.set_metadata(b"x").unwrap_err().kind(), ErrorKind::Closed);
    let kvs = db.create_kvs(&name, Policy::default()).unwrap();
    assert_eq!(kvs.metadata().unwrap(), b"", "that of another KVS");
    drop(db);
    let read = options().with(|set| set.read_only = true);
    let db = Kvdb::open_on(devices, read).unwrap();
    assert!(matches!(db.kvs(&name).unwrap().set_metadata(b"x"), Err(KvError::ReadOnly)));
}

#[test]
fn a_batch_of_64_mib_is_atomic_where_the_budget_bears_it() {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 4096));
    let devices = Devices {
        manifest: device("manifest", 8 << 20),
        capacity: device("capacity", 1 << 30),
        staging: None,
    };
    let options = |mib: u64| {
        let memory_bytes = mib << 20;
        test_options(Tuning::for_budget(memory_bytes)).with(|set| set.memory_bytes = memory_bytes)
    };
    let batch_of = |kvs: &Kvs, mib: u32| {
        let mut batch = Batch::new();
        (0..mib).for_each(|n| {
            batch.put(kvs, n.to_be_bytes(), vec![u8::try_from(mib).unwrap(); (1 << 20) - 64])
        });
        batch
    };
    let mut longest = 0;
    for (budget, most) in [(16, 8), (64, 8), (256, 16), (1024, 64), (4096, 64)] {
        let db = Kvdb::create_on(devices.clone(), options(budget));
        let db = db.or_else(|_| Kvdb::open_on(devices.clone(), options(budget))).unwrap();
        let kvs = db.kvs("k").or_else(|_| db.create_kvs("k", Policy::default())).unwrap();
        let error = db.write(&batch_of(&kvs, most + 1)).unwrap_err();
        assert!(matches!(error, KvError::BatchSize { .. }), "{budget} MiB: {error}");
        assert!(error.to_string().contains("memory budget of 16 times"), "{error}");
        db.write(&batch_of(&kvs, most)).unwrap();
        db.sync().unwrap();
        std::mem::forget(db);
        let db = Kvdb::open_on(devices.clone(), options(budget)).unwrap();
        let kvs = db.kvs("k").unwrap();
        for n in 0..most {
            let value = kvs.get(n.to_be_bytes()).unwrap().unwrap();
            assert!(value == vec![u8::try_from(most).unwrap(); (1 << 20) - 64], "{n} of {most}");
        }
        db.ingest().unwrap();
        db.settle().unwrap();
        longest = longest.max(most);
        assert_eq!(walks(&kvs).len(), longest as usize);
        db.close().unwrap();
    }
    assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
}

#[test]
fn a_batch_of_64_mib_that_is_torn_has_not_happened() {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 4096));
    let devices = Devices {
        manifest: device("manifest", 8 << 20),
        capacity: device("capacity", 512 << 20),
        staging: None,
    };
    let options =
        || test_options(Tuning::for_budget(1 << 30)).with(|set| set.memory_bytes = 1 << 30);
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    kvs.put(b"before", b"v").unwrap();
    db.sync().unwrap();
    let mut batch = Batch::new();
    (0..60u32).for_each(|n| batch.put(&kvs, n.to_be_bytes(), vec![9; 1 << 20]));
    db.write(&batch).unwrap();
    db.sync().unwrap();
    std::mem::forget(db);
    // Its last value is not there.
    let mut port = Port::open(&*devices.capacity, 1).unwrap();
    let lbas = devices.capacity.geometry().capacity.0;
    let is_there = |port: &mut Port, lba| {
        let bytes = port.read(Lba(lba), AlignedBuf::zeroed(4096)).unwrap();
        bytes.iter().all(|byte| *byte == 9)
    };
    let last = (0..lbas).rev().find(|lba| is_there(&mut port, *lba)).unwrap();
    port.write(Lba(last), AlignedBuf::zeroed(4096), None).unwrap();
    let db = Kvdb::open_on(devices, options()).unwrap();
    assert_eq!(walks(&db.kvs("k").unwrap()), [(b"before".to_vec(), b"v".to_vec())]);
}

#[test]
fn a_transaction_knows_which_keys_others_have_written_since_it_began() {
    let (devices, options) = (devices(), test_options(small_tuning()));
    let db = Kvdb::create_on(devices, options).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let other = db.create_kvs("other", Policy::default()).unwrap();
    for key in ["a", "b", "c", "d", "e"] {
        kvs.put(key.as_bytes(), b"v").unwrap();
    }
    let mut transaction = db.transaction();
    transaction.put(&kvs, b"a", b"own").unwrap();
    kvs.put(b"b", b"v").unwrap();
    kvs.delete(b"c").unwrap();
    other.put(b"a", b"v").unwrap();
    let changed = |transaction: &esker_kv::Transaction| -> String {
        let keys = ["a", "b", "c", "d", "e", "e2", "f"];
        keys.into_iter()
            .filter(|key| transaction.is_changed(&kvs, key.as_bytes()).unwrap())
            .collect()
    };
    assert_eq!(changed(&transaction), "bc");
    // Data that was ingested meanwhile counts.
    db.ingest().unwrap();
    assert_eq!(changed(&transaction), "bc");
    kvs.delete_prefix(b"e").unwrap();
    assert_eq!(changed(&transaction), "bcee2");
    kvs.delete_range("d".."d2").unwrap();
    db.ingest().unwrap();
    assert_eq!(changed(&transaction), "bcdee2");
    assert_eq!(changed(&db.transaction()), "");
    transaction.commit().unwrap();
    db.drop_kvs("k").unwrap();
    let transaction = db.transaction();
    assert_eq!(transaction.is_changed(&kvs, b"a").unwrap_err().kind(), ErrorKind::Closed);
}
