//! The interface as a program meets it: iterators and ranges beside an ordered map, entrances, handles, errors.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;
use std::path::Path;

use crate::common::{in_memory, small_tuning, test_options};
use esker_base::Rng;
use esker_kv::{
    Batch, Builder, Cursor, Durability, ErrorCode, Iter, Key, Keys, KvError, Kvdb, Kvs, Location,
    MediaClass, Medium, Observer, Options, Policy, Readable, Snapshot, Transaction, Value,
    WriteOptions,
};

#[test]
fn handles_go_to_any_thread_and_can_be_printed() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    fn printed<T: Debug>() {}
    shared::<(Kvdb, Kvs, Snapshot, Batch, Observer)>();
    shared::<(Options, Location, Medium, Key, Value, KvError)>();
    sent::<(Transaction, Cursor, Iter, Keys, Builder)>();
    printed::<(Kvdb, Kvs, Snapshot, Transaction, Batch, Observer)>();
    printed::<(Cursor, Iter, Keys, Builder, Options, Location)>();
}

fn kvs() -> (Kvdb, Kvs) {
    let devices = in_memory("face", [4 << 20, 32 << 20, 32 << 20]);
    let db = Kvdb::builder(devices.location()).options(test_options(small_tuning()));
    let db = db.create().unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    (db, kvs)
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn a_key(rng: &mut Rng) -> Vec<u8> {
    format!("{:03}", rng.below(400)).into_bytes()
}

/// Writes through all kinds of places: memtables, root, leaves.
fn fill(db: &Kvdb, kvs: &Kvs, rng: &mut Rng, writes: u32) -> Content {
    let mut content = Content::new();
    for n in 0..writes {
        let key = a_key(rng);
        if rng.chance(1, 4) {
            kvs.delete(&key).unwrap();
            content.remove(&key);
        } else {
            let value = format!("{n}-{}", "x".repeat(usize::try_from(rng.below(300)).unwrap()))
                .into_bytes();
            kvs.put(&key, &value).unwrap();
            content.insert(key, value);
        }
        if n % 400 == 399 {
            db.ingest().unwrap();
            while db.step().unwrap() {}
        }
    }
    content
}

fn a_bound(rng: &mut Rng) -> Bound<Vec<u8>> {
    match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(a_key(rng)),
        _ => Bound::Excluded(a_key(rng)),
    }
}

fn is_within(key: &[u8], (lower, upper): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    let above = match lower {
        Bound::Included(lower) => key >= &lower[..],
        Bound::Excluded(lower) => key > &lower[..],
        Bound::Unbounded => true,
    };
    above
        && match upper {
            Bound::Included(upper) => key <= &upper[..],
            Bound::Excluded(upper) => key < &upper[..],
            Bound::Unbounded => true,
        }
}

/// Takes rows from both ends in turns of random lengths, and compares them with those that should be there.
fn compare(mut iter: Iter, wanted: Vec<(Vec<u8>, Vec<u8>)>, rng: &mut Rng) {
    let mut wanted = wanted.into_iter();
    loop {
        let forward = rng.chance(1, 2);
        for _ in 0..1 + rng.below(40) {
            let (found, wanted) = if forward {
                (iter.next(), wanted.next())
            } else {
                (iter.next_back(), wanted.next_back())
            };
            let found = found.map(Result::unwrap).map(|(key, value)| (key.into(), value.into()));
            assert_eq!(found, wanted);
            if found.is_none() {
                assert!(iter.next().is_none() && iter.next_back().is_none(), "it stays at its end");
                return;
            }
        }
    }
}

#[test]
fn iterators_yield_what_an_ordered_map_does_from_both_ends() {
    for seed in 0..6 {
        let (mut rng, (db, kvs)) = (Rng::new(seed), kvs());
        let content = fill(&db, &kvs, &mut rng, 3000);
        let snapshot = db.snapshot();
        let mut transaction = db.transaction();
        let mut own = content.clone();
        for _ in 0..50 {
            let key = a_key(&mut rng);
            transaction.put(&kvs, &key, "own").unwrap();
            own.insert(key, b"own".to_vec());
        }
        // Nobody who began before sees this.
        let now = {
            let mut now = content.clone();
            for _ in 0..200 {
                let key = a_key(&mut rng);
                kvs.put(&key, "later").unwrap();
                now.insert(key, b"later".to_vec());
            }
            now
        };
        for _ in 0..60 {
            let range = (a_bound(&mut rng), a_bound(&mut rng));
            let of = |content: &Content| -> Vec<(Vec<u8>, Vec<u8>)> {
                let rows = content.iter().filter(|(key, _)| is_within(key, &range));
                rows.map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            compare(kvs.range(range.clone()).unwrap(), of(&now), &mut rng);
            compare(snapshot.range(&kvs, range.clone()).unwrap(), of(&content), &mut rng);
            compare(transaction.range(&kvs, range.clone()).unwrap(), of(&own), &mut rng);
            let keys: Vec<Key> =
                kvs.range(range.clone()).unwrap().keys().map(Result::unwrap).collect();
            assert!(keys.iter().eq(of(&now).iter().map(|(key, _)| key)));
            let prefix = a_key(&mut rng)[..usize::try_from(rng.below(4)).unwrap()].to_vec();
            let begins = now.iter().filter(|(key, _)| key.starts_with(&prefix));
            let begins = begins.map(|(key, value)| (key.clone(), value.clone())).collect();
            compare(kvs.prefix(&prefix).unwrap(), begins, &mut rng);
            let key = a_key(&mut rng);
            assert_eq!(kvs.contains_key(&key).unwrap(), now.contains_key(&key));
            assert_eq!(transaction.contains_key(&kvs, &key).unwrap(), own.contains_key(&key));
            let got = transaction.get_many(&kvs, &[&key]).unwrap().remove(0);
            assert_eq!(got.as_deref(), own.get(&key).map(Vec::as_slice));
        }
        compare(kvs.iter().unwrap().expecting(50), now.clone().into_iter().collect(), &mut rng);
        let (first, last) = (kvs.first().unwrap().unwrap(), kvs.last().unwrap().unwrap());
        assert_eq!(first.0, now.first_key_value().unwrap().0[..]);
        assert_eq!(last.1, now.last_key_value().unwrap().1[..]);
        assert!(!kvs.is_empty().unwrap());
    }
}

#[test]
fn compare_and_set_of_many_threads_counts_right() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Kvdb::builder(scratch.path().join("db")).memory(32 << 20).create().unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    let add = |kvs: &Kvs| loop {
        let old = kvs.get("n").unwrap();
        let n = old.as_deref().map_or(0, |old| u64::from_be_bytes(old.try_into().unwrap()));
        let new = (n + 1).to_be_bytes();
        if kvs.compare_and_set("n", old.as_deref(), Some(&new)).unwrap().is_ok() {
            return;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let kvs = &kvs;
            scope.spawn(move || (0..200).for_each(|_| add(kvs)));
        }
    });
    assert_eq!(kvs.get("n").unwrap().unwrap(), 1600u64.to_be_bytes());
    let changed = kvs.compare_and_set("n", None, None).unwrap().unwrap_err();
    assert_eq!(changed.current.unwrap(), 1600u64.to_be_bytes());
    assert!(kvs.compare_and_set("n", Some(&1600u64.to_be_bytes()), None).unwrap().is_ok());
    assert!(kvs.is_empty().unwrap());
}

#[test]
fn durable_write_outlives_what_others_may_lose() {
    let (_, location) = {
        let devices = in_memory("durable", [4 << 20, 32 << 20, 32 << 20]);
        (devices.clone(), devices.location())
    };
    let options = test_options(small_tuning()).with(|set| {
        set.durability = Durability::within(std::time::Duration::from_secs(3600)).bytes(1 << 20);
    });
    let db = Kvdb::builder(&location).options(options).create().unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    kvs.put("lost", "1").unwrap();
    let flushes = || db.stats().classes.iter().map(|class| class.written_bytes()).sum::<u64>();
    let before = flushes();
    kvs.put_with("kept", "2", &WriteOptions::durable()).unwrap();
    assert!(flushes() > before, "it was written before the call returned");
    let mut batch = Batch::new();
    batch.put(&kvs, "kept too", "3");
    let before = flushes();
    db.write_with(&batch, &WriteOptions::durable()).unwrap();
    assert!(flushes() > before);
}

#[test]
fn any_clone_closes_and_the_last_one_lets_go() {
    let scratch = tempfile::tempdir().unwrap();
    let builder = || Kvdb::builder(scratch.path().join("db")).memory(32 << 20);
    let db = builder().open_or_create().unwrap();
    let kvs = db.kvs_or_create("a", Policy::default()).unwrap();
    kvs.put("k", "v").unwrap();
    let clone = db.clone();
    drop(db);
    assert_eq!(builder().open().unwrap_err().code(), ErrorCode::InUse);
    kvs.put("k2", "v").unwrap();
    clone.close().unwrap();
    clone.close().unwrap();
    assert_eq!(kvs.get("k").unwrap_err().code(), ErrorCode::Closed);
    assert_eq!(kvs.iter().err().unwrap().code(), ErrorCode::Closed);
    let again = builder().open().unwrap();
    assert_eq!(again.kvs("a").unwrap().iter().unwrap().count(), 2);
    clone.close().unwrap();
    again.kvs("a").unwrap().put("k3", "v").unwrap();
    drop(again);
    builder().open_read_only().unwrap().close().unwrap();
}

#[test]
fn iterator_yields_its_error_once_and_ends() {
    let (db, kvs) = kvs();
    (0..100u32).for_each(|n| kvs.put(n.to_be_bytes(), "v").unwrap());
    let (mut iter, mut keys) = (kvs.iter().unwrap(), kvs.iter().unwrap().keys());
    iter.next().unwrap().unwrap();
    db.close().unwrap();
    assert_eq!(iter.next().unwrap().unwrap_err().code(), ErrorCode::Closed);
    assert!(iter.next().is_none() && iter.next_back().is_none());
    assert!(keys.next_back().unwrap().is_err() && keys.next().is_none());
}

#[test]
fn errors_have_codes_places_and_the_number_of_the_system() {
    use std::error::Error;
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let code = |result: Result<Kvdb, KvError>| result.unwrap_err().code();
    assert_eq!(code(Kvdb::builder(&dir).open()), ErrorCode::NotFound);
    assert_eq!(code(Kvdb::builder(&dir).memory(1).create()), ErrorCode::Invalid);
    let db = Kvdb::builder(&dir).create().unwrap();
    assert_eq!(code(Kvdb::builder(&dir).create()), ErrorCode::InUse);
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    assert_eq!(kvs.put("k", vec![0; 2 << 20]).unwrap_err().code(), ErrorCode::Invalid);
    assert_eq!(db.kvs("b").unwrap_err().code(), ErrorCode::NotFound);
    let mut one = db.transaction();
    one.put(&kvs, "k", "1").unwrap();
    kvs.put("k", "2").unwrap();
    assert_eq!(one.commit().unwrap_err().code(), ErrorCode::TransactionConflict);
    db.close().unwrap();
    assert_eq!(code(Kvdb::builder(&dir).create()), ErrorCode::Exists);
    let staging = Location::dir(&dir).staging(Medium::InDir);
    assert_eq!(code(Kvdb::builder(staging).open()), ErrorCode::Invalid);
    let elsewhere = Location::dir(&dir).capacity(Medium::Path(scratch.path().join("other")));
    assert_eq!(code(Kvdb::builder(elsewhere).open_or_create()), ErrorCode::Invalid);
    let same = Location::dir(&dir).capacity(Medium::Path(dir.join("capacity.esker")));
    Kvdb::builder(same).open_or_create().unwrap().close().unwrap();
    let file = scratch.path().join("file");
    std::fs::write(&file, "no directory").unwrap();
    let error = Kvdb::builder(file.join("db")).create().unwrap_err();
    let system = error.source().unwrap().downcast_ref::<esker_device::SystemError>().unwrap();
    assert_eq!(system.0, libc::ENOTDIR);
}

#[test]
fn places_that_cannot_be_a_kvdbs_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("file");
    std::fs::write(&file, "no directory").unwrap();
    for (place, words) in [(&*file, "is no directory"), (Path::new(""), "an empty path")] {
        let builder = || Kvdb::builder(place);
        let opened = [
            builder().create(),
            builder().open(),
            builder().open_read_only(),
            builder().open_or_create(),
        ];
        let others = [
            builder().check().map(drop),
            builder().destroy(),
            Location::dir(place).remains().map(drop),
        ];
        for result in opened.map(|opened| opened.map(drop)).into_iter().chain(others) {
            let error = result.unwrap_err();
            assert_eq!(error.code(), ErrorCode::Invalid, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    let nameless = Location::dir(scratch.path().join("db")).staging(Medium::Path("".into()));
    let error = Kvdb::builder(nameless).create().unwrap_err();
    assert_eq!(error.code(), ErrorCode::Invalid);
    assert!(error.to_string().contains("the path of the staging class is empty"), "{error}");
}

#[test]
fn missing_class_is_told_from_a_missing_kvdb() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let location = Location::dir(&dir).staging(Medium::InDir);
    Kvdb::builder(&location).create().unwrap();
    for class in MediaClass::ALL {
        let (file, kept) = (dir.join(format!("{class}.esker")), scratch.path().join("kept"));
        std::fs::rename(&file, &kept).unwrap();
        let results = [
            Kvdb::builder(&dir).open().map(drop),
            Kvdb::builder(&location).open_or_create().map(drop),
            Kvdb::builder(&dir).check().map(drop),
            Location::dir(&dir).remains().map(drop),
        ];
        for error in results.map(Result::unwrap_err) {
            assert_eq!((error.code(), error.class()), (ErrorCode::ClassMissing, Some(class)));
            let words = format!("the {class} class of the KVDB is missing");
            assert!(error.to_string().contains(&words), "{error}");
        }
        std::fs::rename(&kept, &file).unwrap();
    }
    Kvdb::builder(&location).open_or_create().unwrap();
}

#[test]
fn destroyed_kvdb_leaves_nothing_and_its_place_can_be_used_again() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, fast) = (scratch.path().join("db"), scratch.path().join("fast"));
    let location = Location::dir(&dir).staging(Medium::Path(fast.clone()));
    let db = Kvdb::builder(&location).create().unwrap();
    db.create_kvs("a", Policy::default()).unwrap().put("k", "v").unwrap();
    assert_eq!(Kvdb::builder(&dir).destroy().unwrap_err().code(), ErrorCode::InUse);
    db.close().unwrap();
    Kvdb::builder(&dir).destroy().unwrap();
    assert!(!dir.exists() && !fast.exists());
    assert_eq!(Kvdb::builder(&dir).destroy().unwrap_err().code(), ErrorCode::NotFound);
    Kvdb::builder(&location).create().unwrap();
    let devices = in_memory("destroyed", [4 << 20, 32 << 20, 32 << 20]);
    let builder = || Kvdb::builder(devices.location()).options(test_options(small_tuning()));
    builder().create().unwrap().close().unwrap();
    builder().destroy().unwrap();
    assert!(builder().open().is_err());
    let db = builder().open_or_create().unwrap();
    assert!(db.kvs_names().is_empty());
}

#[test]
fn destroy_touches_no_class_of_another_kvdb() {
    let scratch = tempfile::tempdir().unwrap();
    let dirs = ["one", "other"].map(|name| scratch.path().join(name));
    for dir in &dirs {
        Kvdb::builder(Location::dir(dir).staging(Medium::InDir)).create().unwrap();
    }
    let [capacity, others] = dirs.each_ref().map(|dir| dir.join("capacity.esker"));
    let staging = dirs[0].join("staging.esker");
    let before = (std::fs::read(&staging).unwrap(), std::fs::read(&others).unwrap());
    std::fs::copy(&others, &capacity).unwrap();
    let error = Kvdb::builder(&dirs[0]).destroy().unwrap_err();
    assert_eq!(error.code(), ErrorCode::Damaged, "{error}");
    let after = (std::fs::read(&staging).unwrap(), std::fs::read(&capacity).unwrap());
    assert!(before == after, "nothing was changed");
    // The rest of a destruction whose process was killed is destroyed.
    std::fs::write(&capacity, vec![0; 1 << 20]).unwrap();
    std::fs::remove_file(&staging).unwrap();
    Kvdb::builder(&dirs[0]).destroy().unwrap();
    assert!(!dirs[0].exists());
    Kvdb::builder(&dirs[1]).open().unwrap();
}

#[test]
fn open_or_create_makes_no_kvdb_over_what_is_left_of_one() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let location = Location::dir(&dir).staging(Medium::InDir);
    Kvdb::builder(&location).open_or_create().unwrap().close().unwrap();
    let manifest = dir.join("manifest.esker");
    let kept = std::fs::read(&manifest).unwrap();
    let capacity = std::fs::read(dir.join("capacity.esker")).unwrap();
    for emptied in [false, true] {
        std::fs::remove_file(&manifest).unwrap();
        if emptied {
            std::fs::write(&manifest, vec![0; 8192]).unwrap();
        }
        let error = Kvdb::builder(&location).open_or_create().unwrap_err();
        assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
        assert_eq!(std::fs::read(dir.join("capacity.esker")).unwrap(), capacity);
        std::fs::write(&manifest, &kept).unwrap();
        Kvdb::builder(&location).open_or_create().unwrap().close().unwrap();
    }
}
