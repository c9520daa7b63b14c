//! Deleted ranges: their cost, the space they free, the keys they leave alone, and the version of the format that
//! they need.

use std::sync::Arc;

use crate::common::groups::{create, devices, fill, keys, options, read_bytes};
use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options, tiny_tuning};
use esker_base::{Clock, ErrorKind, Rng};
use esker_device::{Device, MemoryDevice};
use esker_kv::{
    Batch, ClassStats, CompactRequest, KEY_MAX, KvError, Kvdb, Policy, Readable, Tuning,
};
use esker_sim::{CrashRecorder, Plan};

fn assert_sound(devices: &Devices) {
    assert_eq!(Kvdb::check_on(devices).unwrap().findings, Vec::<String>::new());
}

#[test]
fn a_range_of_many_keys_costs_one_record_and_its_space_comes_back_unread() {
    let (db, kvs, devices) = create();
    fill(&db, &kvs, 4000);
    let before = db.stats();
    kvs.delete_range("a/003999\0".."c/000000").unwrap();
    let after = db.stats();
    assert!(after.user_bytes - before.user_bytes < 20);
    assert!(after.dram.memtable_bytes - before.dram.memtable_bytes < 16 << 10);
    assert_eq!(kvs.get(b"b/000007").unwrap(), None);
    assert_eq!(kvs.get(b"a/003999").unwrap().unwrap(), [1; 200]);
    // The range reaches the leaves with the next writes.
    for round in 0..4 {
        kvs.put(format!("d/{round}").as_bytes(), b"").unwrap();
        db.ingest().unwrap();
    }
    db.settle().unwrap();
    let settled = db.stats();
    // It has done its work but in leaves of which it hides little.
    assert!(settled.kvss[0].range_tombstones <= 2, "{:?}", settled.kvss);
    assert!(settled.kvss[0].entries < 9000, "{:?}", settled.kvss);
    let sum = |of: fn(&ClassStats) -> u64| settled.classes.iter().map(of).sum::<u64>();
    let (live, garbage) = (sum(|class| class.live_bytes), sum(|class| class.garbage_bytes));
    assert!(garbage < live && live < 8004 * 300, "{live} bytes are live, {garbage} garbage");
    let read = read_bytes(&settled) - read_bytes(&before);
    assert!(read < 8000 * 200, "{read} bytes of values were read");
    assert_eq!(keys(&kvs).len(), 8004);
    db.close().unwrap();
    assert_sound(&devices);
}

#[test]
fn clear_frees_all_without_reading_it_and_leaves_other_kvss_alone() {
    let (db, kvs, devices) = create();
    let other = db.create_kvs("other", Policy::default()).unwrap();
    other.put(b"a/000001", b"other").unwrap();
    fill(&db, &kvs, 4000);
    let before = read_bytes(&db.stats());
    kvs.clear().unwrap();
    assert!(keys(&kvs).is_empty());
    kvs.put(b"b/000001", b"new").unwrap();
    db.ingest().unwrap();
    db.settle().unwrap();
    db.compact(CompactRequest::Full).unwrap();
    let stats = db.stats();
    assert_eq!(keys(&kvs), [b"b/000001"]);
    assert_eq!(other.get(b"a/000001").unwrap().unwrap(), b"other");
    assert_eq!((stats.kvss[0].entries, stats.kvss[0].range_tombstones), (1, 0));
    assert_eq!(read_bytes(&stats) - before, 0, "bytes of values were read");
    let used: u64 = stats.classes.iter().map(|class| class.used_bytes).sum();
    assert!(used < 1 << 20, "{used} bytes are in use");
    assert_eq!(stats.operations.range_deletes, 1);
    db.close().unwrap();
    assert_sound(&devices);
}

#[test]
fn a_walk_passes_over_a_deleted_range_without_reading_it() {
    let (db, kvs, devices) = create();
    fill(&db, &kvs, 8000);
    kvs.delete_range("a/999".."b/000500").unwrap();
    kvs.delete_range("b/000500"..="b/999999").unwrap();
    kvs.put(b"b/000500", b"new").unwrap();
    db.close().unwrap();
    // As little DRAM as there may be: every key page that is looked at is read.
    let options = options().with(|set| set.memory_bytes = 1 << 20);
    let db = Kvdb::open_on(devices, options).unwrap();
    let kvs = db.kvs("k").unwrap();
    let misses = |db: &Kvdb| db.stats().cache.key_page_misses;
    let mut cursor = kvs.cursor().unwrap().keys_only();
    for (from, forward, found) in [
        (&b"a/007999"[..], true, [&b"a/007999"[..], b"b/000500", b"c/000000"]),
        (b"c/000001", false, [b"c/000000", b"b/000500", b"a/007999"]),
    ] {
        let before = misses(&db);
        cursor.seek(from).unwrap();
        for expected in found {
            let step = if forward { cursor.next() } else { cursor.prev() };
            assert_eq!(step.unwrap().map(|(key, _)| key), Some(expected));
        }
        let looked_at = misses(&db) - before;
        assert!(looked_at < 40, "{looked_at} key pages were read");
    }
}

#[test]
fn later_writes_stay_at_every_stage_of_their_life() {
    let (db, kvs, devices) = create();
    let other = db.create_kvs("other", Policy::default()).unwrap();
    other.put(b"ab", b"other").unwrap();
    kvs.put(b"ab1", b"old").unwrap();
    kvs.put(b"ac", b"stays").unwrap();
    let snapshot = db.snapshot();
    let mut batch = Batch::new();
    batch.put(&kvs, b"ab0", b"first");
    batch.delete_range(&kvs, "ab".."ac");
    batch.delete_range(&kvs, "ab1"..="ab3");
    batch.put(&kvs, b"ab2", b"last");
    db.write(&batch).unwrap();
    let check = |db: &Kvdb| {
        let (kvs, other) = (db.kvs("k").unwrap(), db.kvs("other").unwrap());
        assert_eq!(keys(&kvs), [&b"ab2"[..], b"ac"]);
        let got = kvs.get_many(&[&b"ab0"[..], b"ab1", b"ab2", b"ac"]).unwrap();
        assert_eq!(got, [None, None, Some(b"last"[..].into()), Some(b"stays"[..].into())]);
        assert_eq!(other.get(b"ab").unwrap().unwrap(), b"other");
    };
    check(&db);
    assert_eq!(snapshot.get(&kvs, b"ab1").unwrap().unwrap(), b"old");
    assert_eq!(snapshot.get(&kvs, b"ab2").unwrap(), None);
    drop(snapshot);
    db.sync().unwrap();
    std::mem::forget(db);
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    check(&db);
    db.ingest().unwrap();
    check(&db);
    db.settle().unwrap();
    check(&db);
    db.close().unwrap();
    assert_sound(&devices);
    check(&Kvdb::open_on(devices, options()).unwrap());
}

#[test]
fn ranges_alone_make_kvsets_without_keys_that_reach_every_leaf() {
    let (db, kvs, devices) = create();
    fill(&db, &kvs, 4000);
    assert!(db.stats().kvss[0].leaves > 2, "one range is to span leaves");
    for (lower, upper) in [("a/0000", "a/0001"), ("", "b"), ("c/001", "c/002"), ("x", "y")] {
        kvs.delete_range(lower.as_bytes()..upper.as_bytes()).unwrap();
        db.ingest().unwrap();
    }
    kvs.delete_range(&[b'x'; KEY_MAX][..]..).unwrap();
    db.close().unwrap();
    assert_sound(&devices);
    let db = Kvdb::open_on(devices, options()).unwrap();
    let kvs = db.kvs("k").unwrap();
    let expected = 4000 + 3000;
    assert_eq!(keys(&kvs).len(), expected);
    db.settle().unwrap();
    assert_eq!(keys(&kvs).len(), expected);
    let mut cursor = kvs.cursor().unwrap();
    cursor.seek_to_last().unwrap();
    assert_eq!(cursor.prev().unwrap().unwrap().0, b"c/003999");
    kvs.clear().unwrap();
    assert_eq!(keys(&kvs), Vec::<Vec<u8>>::new());
}

#[test]
fn a_range_without_keys_does_nothing_and_one_that_ends_before_it_begins_is_refused() {
    use std::ops::Bound::{self, Excluded, Included, Unbounded};
    type Bounds = (Bound<&'static str>, Bound<&'static str>);
    let (db, kvs, _) = create();
    let longest = [b'x'; KEY_MAX];
    kvs.put(longest, b"long").unwrap();
    kvs.put(b"k", b"v").unwrap();
    let before = db.stats().user_bytes;
    kvs.delete_range("k".."k").unwrap();
    kvs.delete_range::<&str>((Excluded("j"), Excluded("j\0"))).unwrap();
    kvs.delete_range(.."").unwrap();
    assert_eq!((db.stats().user_bytes, db.format_version()), (before, 1), "nothing was written");
    let invalid = |result: Result<(), KvError>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
    };
    let inverted: [Bounds; 5] = [
        (Included("k"), Excluded("j")),
        (Excluded("k"), Excluded("k")),
        (Excluded("k"), Included("j")),
        (Included("k"), Excluded("")),
        (Included("\0"), Excluded("")),
    ];
    for range in inverted {
        invalid(kvs.delete_range::<&str>(range));
        let mut transaction = db.transaction();
        invalid(transaction.delete_range::<&str>(&kvs, range));
        let mut batch = Batch::new();
        batch.delete_range::<&str>(&kvs, range);
        invalid(db.write(&batch));
        batch.put(&kvs, b"k", b"other");
        invalid(db.write(&batch));
        batch.clear();
        db.write(&batch).unwrap();
    }
    let error = kvs.delete_range("k".."j").unwrap_err().to_string();
    assert_eq!(error, "the range from 'k' to 'j' ends before it begins");
    invalid(kvs.delete_range(&[b'x'; KEY_MAX + 2][..]..));
    assert_eq!(kvs.get(b"k").unwrap().unwrap(), b"v");
    // The longest key is a bound, left out or not.
    kvs.delete_range::<&[u8]>((Excluded(&longest[..]), Unbounded)).unwrap();
    assert!(kvs.get(longest).unwrap().is_some());
    kvs.delete_range(&longest[..]..=&longest[..]).unwrap();
    assert_eq!(kvs.get(longest).unwrap(), None);
    db.drop_kvs("k").unwrap();
    assert_eq!(kvs.delete_range("a".."b").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(kvs.delete_range("a".."a").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(kvs.clear().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_snapshot_sees_each_range_as_of_its_moment() {
    let devices = devices();
    let db = Kvdb::create_on(devices, test_options(Tuning { ..small_tuning() })).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let key = |n: u64| format!("{n:03}").into_bytes();
    let (mut rng, mut model) = (Rng::new(3), std::collections::BTreeSet::new());
    let mut snapshots = Vec::new();
    for round in 0..400 {
        for _ in 0..5 {
            let n = rng.below(200);
            kvs.put(key(n), b"v").unwrap();
            model.insert(key(n));
        }
        let (lower, upper) = (rng.below(200), rng.below(60));
        let (lower, upper) = (key(lower), key(lower + upper));
        kvs.delete_range(&lower[..]..&upper[..]).unwrap();
        model.retain(|key| !(&lower..&upper).contains(&key));
        if round % 7 == 0 {
            snapshots.push((db.snapshot(), model.clone()));
        }
        if round % 150 == 149 {
            db.ingest().unwrap();
        }
    }
    for (snapshot, model) in &snapshots {
        let mut cursor = snapshot.cursor(&kvs).unwrap();
        let mut found = Vec::new();
        while let Some((key, _)) = cursor.next().unwrap() {
            found.push(key.to_vec());
        }
        assert!(found.iter().eq(model), "{} of {}", found.len(), model.len());
        let mut back = Vec::new();
        while let Some((key, _)) = cursor.prev().unwrap() {
            back.insert(0, key.to_vec());
        }
        assert_eq!(found, back);
        for n in 0..200 {
            let is_there = snapshot.get(&kvs, key(n)).unwrap().is_some();
            assert_eq!(is_there, model.contains(&key(n)), "{n}");
        }
    }
}

/// Ranges that lie so, `count` of them: write, read and ingest take a time that grows with their number, and not with
/// its square.
fn many_ranges(what: &str, count: u64, of: impl Fn(u64) -> (u64, u64)) {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 4096));
    let devices = Devices {
        manifest: device("manifest", 8 << 20),
        capacity: device("capacity", 256 << 20),
        staging: None,
    };
    let options =
        test_options(Tuning::for_budget(256 << 20)).with(|set| set.memory_bytes = 256 << 20);
    let db = Kvdb::create_on(devices.clone(), options.clone()).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let key = |n: u64| n.to_be_bytes();
    let mut rng = Rng::new(1);
    let mut model = std::collections::BTreeSet::new();
    for _ in 0..20_000 {
        let n = rng.below(count * 10);
        kvs.put(key(n), b"v").unwrap();
        model.insert(n);
    }
    db.ingest().unwrap();
    let clock = Clock::real();
    let mut at = clock.now();
    let mut lap = |what: &str| {
        let now = clock.now();
        let lap = now.since(std::mem::replace(&mut at, now));
        assert!(lap.as_secs() < 60, "{what}: {lap:?}");
        format!("{what} {lap:.1?}")
    };
    for n in 0..count {
        let (lower, upper) = of(n);
        kvs.delete_range(key(lower)..key(upper)).unwrap();
        let gone: Vec<u64> = model.range(lower..upper).copied().collect();
        gone.iter().for_each(|n| assert!(model.remove(n)));
    }
    let written = lap("written");
    let check = |db: &Kvdb| {
        let kvs = db.kvs("k").unwrap();
        let found = keys(&kvs);
        assert!(found.iter().eq(model.iter().map(|n| key(*n)).collect::<Vec<_>>().iter()));
        for n in (0..count * 10).step_by(usize::try_from(count / 100).unwrap()) {
            assert_eq!(kvs.get(key(n)).unwrap().is_some(), model.contains(&n));
        }
    };
    check(&db);
    let read = lap("read");
    db.sync().unwrap();
    std::mem::forget(db);
    let db = Kvdb::open_on(devices, options).unwrap();
    check(&db);
    let replayed = lap("replayed and read");
    db.ingest().unwrap();
    check(&db);
    let ingested = lap("ingested and read");
    db.settle().unwrap();
    db.compact(CompactRequest::Full).unwrap();
    check(&db);
    println!("{count} {what}: {written}, {read}, {replayed}, {ingested}, {}", lap("compacted"));
    assert_eq!(db.stats().kvss[0].range_tombstones, 0);
}

#[test]
fn ten_thousand_ranges_take_no_time_however_they_lie() {
    let count = 10_000;
    many_ranges("disjoint", count, |n| (10 * n, 10 * n + 5));
    many_ranges("touching", count, |n| (9 * n, 9 * n + 9));
    many_ranges("nested", count, |n| (n, 10 * count - n));
    many_ranges("nested outwards", count, |n| (4 * (count - n), 5 * count + 4 * n));
    many_ranges("overlapping", count, |n| (n * 7919 % (count * 9), n * 7919 % (count * 9) + 50));
}

#[test]
fn a_memtable_full_of_ranges_is_frozen() {
    let devices = devices();
    let tuning = Tuning { memtable_bytes: 256 << 10, ..small_tuning() };
    let db = Kvdb::create_on(devices.clone(), test_options(tuning)).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let key = |n: u32| n.to_be_bytes();
    let mut most = 0;
    for n in 0..20_000u32 {
        // Some are nested in earlier ones.
        let n = if n % 3 == 0 { n / 2 } else { n };
        kvs.put(key(10 * n + 7), b"stays").unwrap();
        kvs.delete_range(key(10 * n)..key(10 * n + 5)).unwrap();
        most = most.max(db.stats().dram.memtable_bytes);
    }
    let ingests = db.stats().maintenance.ingests;
    assert!(ingests > 10, "{ingests} ingests");
    assert!(most < 1 << 20, "{most} bytes of memtables");
    let expected = keys(&kvs).len();
    db.close().unwrap();
    assert_sound(&devices);
    let db = Kvdb::open_on(devices, test_options(tuning)).unwrap();
    assert_eq!(keys(&db.kvs("k").unwrap()).len(), expected);
}

#[test]
fn a_hundred_thousand_ranges_take_seconds() {
    let count = 100_000;
    many_ranges("disjoint", count, |n| (10 * n, 10 * n + 5));
    many_ranges("overlapping", count, |n| (n * 7919 % (count * 9), n * 7919 % (count * 9) + 50));
}

// ---- the version of the format --------------------------------------------------------------------

#[test]
fn a_kvdb_is_of_version_1_until_a_record_needs_more_and_never_goes_back() {
    let (db, kvs, devices) = create();
    assert_eq!(db.format_version(), 1);
    fill(&db, &kvs, 10);
    kvs.delete_prefix(b"a").unwrap();
    // A range that equals a prefix is one.
    kvs.delete_range("b".."c").unwrap();
    assert_eq!((db.format_version(), keys(&kvs).len()), (1, 10));
    db.ingest().unwrap();
    db.close().unwrap();
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    assert_eq!(db.format_version(), 1);
    let kvs = db.kvs("k").unwrap();
    let mut transaction = db.transaction();
    transaction.delete_range(&kvs, "c/000002".."c/000004").unwrap();
    assert_eq!(db.format_version(), 1, "it is not committed");
    transaction.commit().unwrap();
    assert_eq!((db.format_version(), keys(&kvs).len()), (2, 8));
    // The range is gone from the media, the version stays.
    db.ingest().unwrap();
    db.compact(CompactRequest::Full).unwrap();
    db.close().unwrap();
    let db = Kvdb::open_on(devices.clone(), options()).unwrap();
    assert_eq!((db.format_version(), db.upgrade().unwrap()), (2, 2));
    // Copies are of the version of their source.
    let copy = self::devices();
    db.backup_on(&copy).unwrap();
    assert_eq!(Kvdb::open_on(copy, options()).unwrap().format_version(), 2);
    drop(db);
    let db = Kvdb::open_on(devices, options().with(|set| set.read_only = true)).unwrap();
    assert!(matches!(db.upgrade().unwrap_err(), KvError::ReadOnly));
}

#[test]
fn a_crash_at_any_write_of_the_upgrade_leaves_one_version_or_the_other() {
    let recorder = CrashRecorder::new();
    let attach = |name: &str, bytes: u64| -> Arc<dyn Device> {
        recorder.attach(Arc::new(MemoryDevice::new(name, bytes, 512)))
    };
    let (manifest, capacity) = (attach("manifest", 256 << 10), attach("capacity", 4 << 20));
    let options = || test_options(tiny_tuning());
    let db = Kvdb::create_on(Devices { manifest, capacity, staging: None }, options()).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    // So many that the manifest's snapshot takes several LBAs.
    for n in 0..60 {
        db.create_kvs(&format!("{n:060}"), Policy::default()).unwrap();
    }
    for n in 0..20u8 {
        kvs.put([b'a' + n], [n; 100]).unwrap();
    }
    db.sync().unwrap();
    recorder.mark(1);
    kvs.delete_range("b".."d").unwrap();
    db.sync().unwrap();
    recorder.mark(2);
    kvs.put(b"z", b"after").unwrap();
    db.ingest().unwrap();
    recorder.mark(3);
    std::mem::forget(db);
    let plan = Plan { tears: 30, ..Plan::default() };
    let (mut images, mut seen) = (0, [0; 3]);
    for image in recorder.history().images(&plan) {
        let Some(mark) = image.marks().last().copied() else { continue };
        let devices =
            Devices { manifest: image.device(0), capacity: image.device(1), staging: None };
        let db = Kvdb::open_on(devices, options()).unwrap_or_else(|e| panic!("{e}\n{image}"));
        let (version, found) = (db.format_version(), keys(&db.kvs("k").unwrap()).len());
        let is_deleted = found == 18 || found == 19;
        assert!(is_deleted || found == 20, "{found} keys\n{image}");
        assert!(!is_deleted || version == 2, "a record that the version does not know\n{image}");
        assert!(mark < 2 || is_deleted, "it was durable\n{image}");
        seen[usize::from(version)] += 1;
        // The error does not matter: it goes on.
        db.kvs("k").unwrap().delete_range("f".."h").unwrap();
        assert_eq!(db.format_version(), 2);
        images += 1;
    }
    println!("{images} images: {seen:?}");
    assert!(seen[1] > 40 && seen[2] > 50, "{seen:?}");
}
