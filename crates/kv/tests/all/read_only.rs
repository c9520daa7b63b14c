//! Read-only opening: everything can be read, records that are only in the log included, nothing is written to
//! any device, and readers do not exclude each other.

use crate::common::script::{Script, create_kvss};
use crate::common::{Devices, OnDevices};
use crate::common::{in_memory, small_tuning, test_options};
use esker_base::ErrorKind;
use esker_kv::{KvError, Kvdb, Location, Maintenance, Medium, Options, Policy, Readable};

fn options() -> Options {
    test_options(small_tuning())
}

fn to_read() -> Options {
    options().with(|set| set.read_only = true)
}

fn devices() -> Devices {
    in_memory("", [256 << 10, 8 << 20, 4 << 20])
}

/// Commands that change something, on all devices.
fn changes(devices: &Devices) -> u64 {
    let all = [Some(&devices.manifest), Some(&devices.capacity), devices.staging.as_ref()];
    let each = all.into_iter().flatten().map(|device| device.stats());
    each.map(|stats| stats.writes + stats.discards + stats.flushes).sum()
}

#[test]
fn everything_is_read_and_nothing_written() {
    for (seed, close) in [(1, true), (2, false), (3, false)] {
        let devices = devices();
        let db = Kvdb::create_on(devices.clone(), options()).unwrap();
        let mut script = Script::new(seed, &options(), 90);
        let kvss = create_kvss(&db).unwrap();
        for _ in 0..400 {
            script.step(&db, &kvss).unwrap();
        }
        if close {
            db.close().unwrap();
        } else {
            db.sync().unwrap();
            std::mem::forget(db);
        }
        let before = changes(&devices);
        let first = Kvdb::open_on(devices.clone(), to_read()).unwrap();
        let second = Kvdb::open_on(devices.clone(), to_read()).unwrap();
        for db in [&first, &second] {
            assert_eq!(script.state_of(db), Some(script.written()));
            Script::check_reads(db);
            assert_eq!(db.transaction().get(&db.kvs("a").unwrap(), b"none").unwrap(), None);
        }
        first.close().unwrap();
        drop(second);
        assert_eq!(changes(&devices), before);
        // Whoever opens it to write finds it as it was.
        let db = Kvdb::open_on(devices, options()).unwrap();
        assert_eq!(script.state_of(&db), Some(script.written()));
    }
}

#[test]
fn every_way_to_write_is_refused() {
    let devices = devices();
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    db.create_kvs("a", Policy::default()).unwrap().put(b"k", b"v").unwrap();
    db.close().unwrap();
    for maintenance in [Maintenance::Manual, Maintenance::Threads] {
        let options = to_read().with(|set| set.maintenance = maintenance);
        let db = Kvdb::open_on(devices.clone(), options).unwrap();
        let kvs = db.kvs("a").unwrap();
        let mut transaction = db.transaction();
        transaction.put(&kvs, b"k", b"w").unwrap();
        let refused = [
            kvs.put(b"k", b"w").unwrap_err(),
            kvs.delete(b"k").unwrap_err(),
            transaction.commit().unwrap_err(),
            db.create_kvs("b", Policy::default()).err().unwrap(),
            db.drop_kvs("a").unwrap_err(),
            db.ingest().unwrap_err(),
            db.step().unwrap_err(),
            db.add_staging(&Medium::InDir).unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(error, KvError::ReadOnly), "{error}");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
        assert_eq!(kvs.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    }
    let error = Kvdb::create_on(devices, to_read()).err().unwrap();
    assert!(matches!(error, KvError::ReadOnly));
}

#[test]
fn a_log_that_exceeds_the_budget_is_refused_before_memory_is() {
    let devices = devices();
    let large = || options().with(|set| set.memory_bytes = 64 << 20);
    let tuning = esker_kv::Tuning { memtable_bytes: 2 << 20, ..small_tuning() };
    let db =
        Kvdb::create_on(devices.clone(), large().with(|set| set.tuning = Some(tuning))).unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    for n in 0..700u32 {
        kvs.put(n.to_be_bytes(), [1; 1000]).unwrap();
    }
    db.sync().unwrap();
    std::mem::forget(db);
    let small = to_read().with(|set| set.memory_bytes = 1 << 20);
    let error = Kvdb::open_on(devices.clone(), small).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("larger budget"), "{error}");
    let db = Kvdb::open_on(devices, large().with(|set| set.read_only = true)).unwrap();
    assert!(db.kvs("a").unwrap().get(699u32.to_be_bytes()).unwrap().is_some());
}

#[test]
fn readers_share_files_that_a_writer_has_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let plain = Options::default;
    let db = Kvdb::builder(Location::dir(&dir).staging(Medium::InDir))
        .options(plain())
        .create()
        .unwrap();
    db.create_kvs("a", Policy::default()).unwrap().put(b"k", b"v").unwrap();
    let reading = || Kvdb::builder(&dir).options(plain().with(|set| set.read_only = true)).open();
    assert_eq!(reading().err().unwrap().kind(), ErrorKind::Conflict);
    db.close().unwrap();
    let names = ["manifest.esker", "capacity.esker", "staging.esker"];
    let content = || names.map(|name| std::fs::read(dir.join(name)).unwrap());
    let before = content();
    let (first, second) = (reading().unwrap(), reading().unwrap());
    assert_eq!(Kvdb::builder(&dir).check().unwrap().findings, Vec::<String>::new());
    assert_eq!(
        Kvdb::builder(&dir).options(plain()).open().err().unwrap().kind(),
        ErrorKind::Conflict
    );
    for db in [first, second] {
        assert_eq!(db.kvs("a").unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        db.close().unwrap();
    }
    assert_eq!(content(), before);
    // A read-only KVDB can be copied: so a backup is restored to other places.
    let copy = scratch.path().join("copy");
    reading().unwrap().backup(&Location::dir(&copy)).unwrap();
    let copy = Kvdb::builder(&copy).options(plain()).open().unwrap();
    assert_eq!(copy.kvs("a").unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}
