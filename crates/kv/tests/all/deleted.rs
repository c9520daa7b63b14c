//! Walks over deleted or expired keys: the first one finds its way key by key, those to come know it; they find the
//! keys that are there all the same, for each as of its moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options, tiny_tuning};
use esker_base::{Clock, Rng, thread};
use esker_device::MemoryDevice;
use esker_kv::{Cursor, Kvdb, Kvs, KvsOptions, Readable, Snapshot, Transaction, Tuning};

const KEYS: u32 = 5_000;
const TTL_MS: u64 = 3_600_000;

fn devices() -> Devices {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 512));
    Devices {
        manifest: device("manifest", 4 << 20),
        capacity: device("capacity", 64 << 20),
        staging: Some(device("staging", 32 << 20)),
    }
}

fn living() -> KvsOptions {
    KvsOptions::default().ttl_ms(TTL_MS)
}

/// All keys of a test fit the memtable.
fn roomy() -> Tuning {
    Tuning { memtable_bytes: 4 << 20, ..small_tuning() }
}

fn create(tuning: Tuning) -> (Kvdb, Kvs, Clock, Devices) {
    let options = test_options(tuning).with(|set| set.memory_bytes = 64 << 20);
    let (clock, devices) = (options.clock.clone(), devices());
    let db = Kvdb::create_on(devices.clone(), options).unwrap();
    let kvs = db.create_kvs("k", living()).unwrap();
    (db, kvs, clock, devices)
}

fn key(n: u32) -> Vec<u8> {
    format!("b/{n:06}").into_bytes()
}

fn step(cursor: &mut Cursor, forward: bool) -> Option<Vec<u8>> {
    let row = if forward { cursor.next() } else { cursor.prev() };
    row.unwrap().map(|(key, _)| key.to_vec())
}

/// The first key behind all of them, or before, and how many were passed over one by one.
fn cross(db: &Kvdb, mut cursor: Cursor, forward: bool) -> (Option<Vec<u8>>, u64) {
    let before = db.stats().operations.passed_keys;
    cursor.seek(if forward { b"b" } else { b"c" }).unwrap();
    let found = step(&mut cursor, forward);
    (found, db.stats().operations.passed_keys - before)
}

/// Deletes all keys between two that stay, and checks the keys that walks find.
fn check(delete: impl Fn(&Kvdb, &Kvs, &Clock)) {
    for forward in [true, false] {
        let (db, kvs, clock, _) = create(roomy());
        (0..KEYS).for_each(|n| kvs.put(key(n), b"there").unwrap());
        let before = db.snapshot();
        delete(&db, &kvs, &clock);
        kvs.put(b"a", b"").unwrap();
        kvs.put(b"c", b"").unwrap();
        let end = Some(if forward { b"c".to_vec() } else { b"a".to_vec() });
        let (found, passed) = cross(&db, kvs.cursor().unwrap(), forward);
        assert_eq!(found, end);
        assert!(passed >= u64::from(KEYS), "{passed} keys: nothing was deleted one by one");
        for way in [forward, !forward] {
            let (_, passed) = cross(&db, kvs.cursor().unwrap(), way);
            assert!(passed < 20, "{passed} keys are passed over again");
            let (_, passed) = cross(&db, kvs.cursor().unwrap().prefix(b"b").unwrap(), way);
            assert!(passed < 20, "{passed} keys are passed over again within a prefix");
        }
        // Readers that see them do.
        let mut cursor = before.cursor(&kvs).unwrap();
        assert_eq!(std::iter::from_fn(|| step(&mut cursor, true)).count(), KEYS as usize);
        // Walks to come see a put in the middle or at the ends, and they alone.
        let without = db.snapshot();
        for n in [0, 17, KEYS / 2, KEYS - 1] {
            kvs.put(key(n), b"again").unwrap();
            assert_eq!(cross(&db, kvs.cursor().unwrap(), forward).0, Some(key(n)));
            assert_eq!(cross(&db, without.cursor(&kvs).unwrap(), forward).0, end);
            let mut own = db.transaction();
            own.put(&kvs, key(n + 1 - 2 * (n / (KEYS - 1))), b"").unwrap();
            let mut cursor = own.cursor(&kvs).unwrap().prefix(b"b").unwrap();
            assert_eq!(std::iter::from_fn(|| step(&mut cursor, true)).count(), 2);
            kvs.delete(key(n)).unwrap();
            let (found, passed) = cross(&db, kvs.cursor().unwrap(), forward);
            assert_eq!(found, end);
            assert!(passed < 40, "{passed} keys are passed over after a put");
        }
    }
}

#[test]
fn deleted_keys_are_passed_over_one_by_one_once() {
    check(|_, kvs, _| (0..KEYS).for_each(|n| kvs.delete(key(n)).unwrap()));
}

#[test]
fn keys_of_a_deleted_prefix_are_passed_over_one_by_one_once() {
    check(|_, kvs, _| kvs.delete_prefix(b"b/").unwrap());
}

#[test]
fn keys_of_a_deleted_range_are_passed_over_one_by_one_once() {
    check(|_, kvs, _| kvs.delete_range("b/".."b0\0").unwrap());
}

#[test]
fn deleted_keys_of_kvsets_are_passed_over_one_by_one_once() {
    check(|db, kvs, _| {
        db.ingest().unwrap();
        (0..KEYS).for_each(|n| kvs.delete(key(n)).unwrap());
        db.ingest().unwrap();
    });
    check(|db, kvs, _| {
        (0..KEYS).for_each(|n| kvs.delete(key(n)).unwrap());
        db.ingest().unwrap();
        db.settle().unwrap();
        kvs.put(b"a", b"").unwrap();
        (0..KEYS).for_each(|n| kvs.delete(key(n)).unwrap());
    });
}

#[test]
fn expired_keys_are_passed_over_one_by_one_once() {
    check(|_, _, clock| clock.advance(Duration::from_millis(TTL_MS)));
    check(|db, _, clock| {
        db.ingest().unwrap();
        clock.advance(Duration::from_millis(TTL_MS));
    });
}

#[test]
fn the_head_of_a_queue_is_a_few_keys_away_however_many_were_before_it() {
    let (db, kvs, _, _) = create(small_tuning());
    let before = db.stats().operations.passed_keys;
    (0..100).for_each(|n| kvs.put(key(n), b"there").unwrap());
    for n in 0..KEYS {
        kvs.put(key(100 + n), b"there").unwrap();
        assert_eq!(step(&mut kvs.cursor().unwrap(), true), Some(key(n)));
        kvs.delete(key(n)).unwrap();
    }
    let each = (db.stats().operations.passed_keys - before) / u64::from(KEYS);
    assert!(each < 32, "{each} keys are passed over for each head");
}

#[test]
fn an_idle_kvdb_heals_what_walks_pass_over() {
    let deletes: [fn(&Kvs); 3] = [
        |kvs| (0..KEYS).for_each(|n| kvs.delete(key(n)).unwrap()),
        |kvs| kvs.delete_prefix(b"b/").unwrap(),
        |kvs| kvs.delete_range("b/".."b0\0").unwrap(),
    ];
    for delete in deletes {
        let (db, kvs, clock, devices) = create(roomy());
        (0..KEYS).for_each(|n| kvs.put(key(n), b"there").unwrap());
        kvs.put(b"c", b"").unwrap();
        db.ingest().unwrap();
        (0..KEYS).for_each(|n| kvs.put(key(n), b"there").unwrap());
        delete(&kvs);
        db.settle().unwrap();
        assert!(db.stats().dram.memtable_bytes > 100 << 10, "nothing is to be healed");
        assert_eq!(cross(&db, kvs.cursor().unwrap(), true).0, Some(b"c".to_vec()));
        clock.advance(Duration::from_secs(60));
        db.settle().unwrap();
        let settled = db.stats();
        assert_eq!(settled.kvss[0].tombstones, 0);
        drop(kvs);
        db.close().unwrap();
        // The ranges that walks have found are not known any more.
        let options = test_options(roomy()).with(|set| set.memory_bytes = 64 << 20);
        let db = Kvdb::open_on(devices, options).unwrap();
        let (found, passed) = cross(&db, db.kvs("k").unwrap().cursor().unwrap(), true);
        assert_eq!((found, passed), (Some(b"c".to_vec()), 0));
    }
}

/// Runs a walk, which is to end.
fn ends<R: Send>(walk: impl FnOnce() -> R + Send) -> R {
    let is_over = AtomicBool::new(false);
    let is_over = &is_over;
    std::thread::scope(|scope| {
        let watch = move || {
            let clock = Clock::real();
            let end = clock.now() + Duration::from_secs(120);
            while !is_over.load(Ordering::Acquire) {
                if clock.now() > end {
                    eprintln!("a walk does not end");
                    std::process::exit(101);
                }
                clock.sleep(Duration::from_millis(20));
            }
        };
        thread::spawn_scoped(scope, "watches", watch).unwrap();
        let walked = walk();
        is_over.store(true, Ordering::Release);
        walked
    })
}

#[test]
fn walk_ends_over_own_deletes_of_keys_that_are_gone() {
    const FEW: u32 = 20;
    type Remove = fn(&Db);
    struct Db {
        db: Kvdb,
        kvs: Kvs,
        clock: Clock,
    }
    let each = |it: &Db| (0..FEW).for_each(|n| it.kvs.delete(key(n)).unwrap());
    let ways: [Remove; 6] = [
        each,
        |it| it.kvs.delete_prefix(b"b/").unwrap(),
        |it| it.clock.advance(Duration::from_millis(TTL_MS)),
        |it| {
            it.db.ingest().unwrap();
            (0..FEW).for_each(|n| it.kvs.delete(key(n)).unwrap());
            it.db.ingest().unwrap();
        },
        |it| {
            it.db.ingest().unwrap();
            it.db.settle().unwrap();
            it.kvs.delete_prefix(b"b/").unwrap();
        },
        |it| {
            it.db.ingest().unwrap();
            it.db.settle().unwrap();
            it.kvs.delete_range("b/".."b0\0").unwrap();
        },
    ];
    for (way, remove) in ways.iter().enumerate() {
        for (known, forward) in [(true, true), (true, false), (false, true), (false, false)] {
            for own_puts in [&[][..], &[10], &[10, 11, 12]] {
                let (db, kvs, clock, _) = create(roomy());
                (0..FEW).for_each(|n| kvs.put(key(n), b"there").unwrap());
                let it = Db { db, kvs, clock };
                remove(&it);
                let Db { db, kvs, .. } = &it;
                for _ in 0..2 {
                    assert_eq!(cross(db, kvs.cursor().unwrap(), known).0, None);
                }
                let mut own = db.transaction();
                own_puts.iter().for_each(|&n| own.put(kvs, key(n), b"own").unwrap());
                [0, 10, 11, FEW - 1].into_iter().for_each(|n| own.delete(kvs, key(n)).unwrap());
                let left: Vec<Vec<u8>> =
                    own_puts.iter().filter(|&&n| n == 12).map(|&n| key(n)).collect();
                let walk = |mut cursor: Cursor| {
                    cursor.seek(if forward { b"b" } else { b"c" }).unwrap();
                    std::iter::from_fn(|| step(&mut cursor, forward)).collect::<Vec<_>>()
                };
                let cursor = own.cursor(kvs).unwrap();
                assert_eq!(ends(|| walk(cursor)), left, "way {way}, {known}, {forward}");
                let within = own.cursor(kvs).unwrap().prefix(b"b/").unwrap();
                assert_eq!(ends(|| walk(within)), left, "way {way} within a prefix");
            }
        }
    }
}

/// Values with the moments at which they expire, as they were at some seqno.
type Model = BTreeMap<Vec<u8>, u64>;

fn some_key(rng: &mut Rng) -> Vec<u8> {
    // Few prefixes, so that some are deleted as a whole.
    format!("{}{:03}", rng.below(3), rng.below(150)).into_bytes()
}

/// Walks about from a random place, and compares each row.
fn compare(rng: &mut Rng, cursor: &mut Cursor, model: &Model, now_ms: u64) {
    let alive: Vec<&Vec<u8>> =
        model.iter().filter(|(_, expiry)| **expiry > now_ms).map(|(key, _)| key).collect();
    let from = some_key(rng);
    cursor.seek(&from).unwrap();
    let mut at = alive.partition_point(|key| **key < from);
    let mut forward = rng.chance(1, 2);
    for _ in 0..rng.below(12) {
        let expected = if forward { alive.get(at) } else { at.checked_sub(1).map(|at| &alive[at]) };
        let found = step(cursor, forward);
        assert_eq!(found.as_ref(), expected.copied(), "from {from:?}, forward: {forward}");
        match expected {
            Some(_) if forward => at += 1,
            Some(_) => at -= 1,
            None => {}
        }
        if rng.chance(1, 6) {
            forward = !forward;
        }
    }
}

#[test]
fn walks_of_any_moment_find_what_was_there_then_whatever_is_deleted() {
    for seed in 0..60 {
        let tuning = if seed % 2 == 0 { tiny_tuning() } else { small_tuning() };
        let (db, kvs, clock, _) = create(tuning);
        let (mut rng, mut model, mut now_ms) = (Rng::new(seed), Model::new(), 0);
        let mut snapshots: Vec<(Snapshot, Model, u64)> = Vec::new();
        let mut transactions: Vec<(Transaction, Model, u64)> = Vec::new();
        let mut cursors: Vec<(Cursor, Model, u64)> = Vec::new();
        for _ in 0..1500 {
            match rng.below(100) {
                0..30 => {
                    let key = some_key(&mut rng);
                    kvs.put(&key, [1; 30]).unwrap();
                    model.insert(key, now_ms + TTL_MS);
                }
                30..40 => {
                    let from = some_key(&mut rng);
                    let keys: Vec<Vec<u8>> =
                        model.range(from..).take(60).map(|(key, _)| key.clone()).collect();
                    for key in keys {
                        kvs.delete(&key).unwrap();
                        model.remove(&key);
                    }
                }
                40..43 => {
                    let mut prefix = some_key(&mut rng);
                    prefix.truncate(if rng.chance(1, 2) { 1 } else { 2 });
                    if rng.chance(1, 2) {
                        kvs.delete_prefix(&prefix).unwrap();
                        model.retain(|key, _| !key.starts_with(&prefix));
                    } else {
                        let upper = [&prefix[..], b"5"].concat();
                        kvs.delete_range(&prefix[..]..&upper[..]).unwrap();
                        model.retain(|key, _| !(&prefix..&upper).contains(&key));
                    }
                }
                43..70 => compare(&mut rng, &mut kvs.cursor().unwrap(), &model, now_ms),
                70..74 => snapshots.push((db.snapshot(), model.clone(), now_ms)),
                74..77 => transactions.push((db.transaction(), model.clone(), now_ms)),
                77..80 => cursors.push((kvs.cursor().unwrap(), model.clone(), now_ms)),
                80..83 => {
                    if let Some((own, model, now_ms)) = transactions.last_mut() {
                        let key = some_key(&mut rng);
                        if rng.chance(1, 2) {
                            own.put(&kvs, &key, b"own").unwrap();
                            model.insert(key.clone(), *now_ms + TTL_MS);
                        }
                        // Mostly of a key that is not there: others know that nothing is around it.
                        if rng.chance(1, 2) {
                            own.delete(&kvs, &key).unwrap();
                            model.remove(&key);
                        }
                    }
                }
                83..93 => {
                    if let Some((it, model, now_ms)) = snapshots.last() {
                        compare(&mut rng, &mut it.cursor(&kvs).unwrap(), model, *now_ms);
                    }
                    if let Some((it, model, now_ms)) = transactions.last() {
                        compare(&mut rng, &mut it.cursor(&kvs).unwrap(), model, *now_ms);
                    }
                    if let Some((cursor, model, now_ms)) = cursors.last_mut() {
                        compare(&mut rng, cursor, model, *now_ms);
                    }
                }
                93..95 => {
                    snapshots.truncate(1);
                    transactions.truncate(1);
                    cursors.truncate(1);
                }
                95..97 => {
                    let by = rng.below(TTL_MS / 40);
                    clock.advance(Duration::from_millis(by));
                    now_ms += by;
                    transactions.clear(); // they end by themselves
                }
                97..98 => db.ingest().unwrap(),
                _ => drop(db.step().unwrap()),
            }
        }
    }
}

#[test]
fn walks_beside_writers_find_what_is_there_all_the_time() {
    let options =
        test_options(tiny_tuning()).with(|set| set.maintenance = esker_kv::Maintenance::Threads);
    let options = options.with(|set| {
        set.clock = Clock::real();
        set.memory_bytes = 64 << 20;
    });
    let db = Kvdb::create_on(devices(), options).unwrap();
    let kvs = db.create_kvs("k", KvsOptions::default()).unwrap();
    let (ends, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    kvs.put(key(0), b"").unwrap();
    std::thread::scope(|scope| {
        let write = || {
            let (mut rng, mut there) = (Rng::new(1), key(0));
            // One key at least is there at any time, and mostly it is the only one.
            for _ in 0..30_000 {
                let next = key(u32::try_from(rng.below(400)).unwrap());
                if next != there {
                    kvs.put(&next, b"").unwrap();
                    kvs.delete(&there).unwrap();
                    there = next;
                }
            }
            ends.store(true, Ordering::Release);
        };
        thread::spawn_scoped(scope, "writes", write).unwrap();
        for n in 0..2 {
            let (kvs, ends, rounds) = (&kvs, &ends, &rounds);
            let read = move || {
                while !ends.load(Ordering::Acquire) {
                    let mut cursor = kvs.cursor().unwrap();
                    if n == 0 {
                        assert!(step(&mut cursor, true).is_some(), "a walk finds nothing");
                    } else {
                        cursor.seek_to_last().unwrap();
                        assert!(step(&mut cursor, false).is_some(), "a walk back finds nothing");
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            };
            thread::spawn_scoped(scope, "reads", read).unwrap();
        }
    });
    assert!(rounds.load(Ordering::Relaxed) > 100);
}
