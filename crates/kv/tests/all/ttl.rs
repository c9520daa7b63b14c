//! Time to live, on a clock that the test moves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options};
use esker_base::{Clock, ErrorKind, Rng};
use esker_device::MemoryDevice;
use esker_kv::{Batch, CompactRequest, Cursor, Kvdb, Kvs, KvsOptions, Policy, Readable};

fn devices() -> Devices {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 512));
    Devices {
        manifest: device("manifest", 1 << 20),
        capacity: device("capacity", 64 << 20),
        staging: Some(device("staging", 32 << 20)),
    }
}

fn living(ttl_ms: u64) -> KvsOptions {
    KvsOptions::default().ttl_ms(ttl_ms)
}

fn create(ttl_ms: u64) -> (Kvdb, Kvs, Clock, Devices) {
    let options = test_options(small_tuning());
    let (clock, devices) = (options.clock.clone(), devices());
    let db = Kvdb::create_on(devices.clone(), options).unwrap();
    let kvs = db.create_kvs("k", living(ttl_ms)).unwrap();
    (db, kvs, clock, devices)
}

fn all(mut cursor: Cursor) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        found.insert(key.to_vec(), value.to_vec());
    }
    found
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// At every stage of its life: in the memtable, in the root, in a leaf; in the page and in a block.
#[test]
fn a_value_is_gone_exactly_when_its_time_is_over() {
    for stage in 0..4 {
        let (db, kvs, clock, devices) = create(1000);
        kvs.put(b"small", b"1").unwrap();
        kvs.put(b"large", [1; 300]).unwrap();
        clock.advance(ms(1));
        kvs.put(b"later", b"2").unwrap();
        let db = match stage {
            0 => db,
            1 => {
                db.ingest().unwrap();
                db
            }
            2 => {
                db.compact(CompactRequest::Full).unwrap();
                assert!(db.stats().maintenance.spills > 0);
                db
            }
            _ => {
                db.sync().unwrap();
                std::mem::forget(db);
                let options = test_options(small_tuning()).with(|set| set.clock = clock.clone());
                Kvdb::open_on(devices.clone(), options).unwrap()
            }
        };
        let kvs = db.kvs("k").unwrap();
        clock.advance(ms(998));
        assert_eq!(kvs.get(b"small").unwrap().as_deref(), Some(&b"1"[..]), "stage {stage}");
        assert_eq!(kvs.get(b"large").unwrap().unwrap(), [1; 300]);
        let (snapshot, mut transaction) = (db.snapshot(), db.transaction());
        let cursor = kvs.cursor().unwrap();
        clock.advance(ms(1));
        assert_eq!(kvs.get(b"small").unwrap(), None, "stage {stage}");
        let got = kvs.get_many(&[&b"small"[..], b"large", b"later"]).unwrap();
        assert_eq!(got, [None, None, Some(b"2"[..].into())]);
        assert!(!all(kvs.cursor().unwrap().keys_only()).contains_key(&b"large"[..]));
        // A reader that began before sees it, whatever maintenance does meanwhile.
        db.ingest().unwrap();
        db.settle().unwrap();
        assert_eq!(snapshot.get(&kvs, b"large").unwrap().unwrap(), [1; 300]);
        assert_eq!(transaction.get(&kvs, b"small").unwrap().unwrap(), b"1");
        assert!(all(snapshot.cursor(&kvs).unwrap()).contains_key(&b"large"[..]));
        assert!(all(cursor).contains_key(&b"small"[..]));
        // Its own writes live from the commit on; expiry is no write to conflict with.
        transaction.put(&kvs, b"small", b"again").unwrap();
        clock.advance(ms(5000));
        assert_eq!(transaction.get(&kvs, b"small").unwrap().unwrap(), b"again");
        transaction.commit().unwrap();
        clock.advance(ms(999));
        assert_eq!(kvs.get(b"small").unwrap().unwrap(), b"again");
        clock.advance(ms(1));
        assert_eq!(kvs.get(b"small").unwrap(), None);
        drop(snapshot);
        db.close().unwrap();
        assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
    }
}

#[test]
fn a_change_holds_for_what_is_put_from_then_on_and_survives() {
    let (db, kvs, clock, devices) = create(1000);
    kvs.put(b"a", b"1000").unwrap();
    kvs.set_ttl_ms(Some(10)).unwrap();
    // It hides a value that would have lived longer, expired or not.
    kvs.put(b"b", b"old").unwrap();
    kvs.put(b"a2", b"1000").unwrap();
    kvs.set_ttl_ms(None).unwrap();
    kvs.put(b"c", b"never").unwrap();
    assert_eq!(kvs.set_ttl_ms(Some(0)).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.create_kvs("x", living(0)).map(drop).unwrap_err().kind(), ErrorKind::Invalid);
    db.close().unwrap();
    let options = test_options(small_tuning()).with(|set| set.clock = clock.clone());
    let db = Kvdb::open_on(devices, options).unwrap();
    let kvs = db.kvs("k").unwrap();
    assert_eq!(kvs.options().unwrap().ttl_ms, None);
    let keys = |kvs: &Kvs| all(kvs.cursor().unwrap()).into_keys().collect::<Vec<_>>();
    clock.advance(ms(10));
    assert_eq!(keys(&kvs), [&b"a"[..], b"c"]);
    clock.advance(ms(990));
    assert_eq!(keys(&kvs), [b"c"]);
    kvs.put(b"long", b"never").unwrap();
    kvs.set_ttl_ms(Some(5)).unwrap();
    kvs.put(b"long", b"short").unwrap();
    for _ in 0..5 {
        db.ingest().unwrap();
        kvs.put(b"other", b"").unwrap();
        clock.advance(ms(5));
        db.settle().unwrap();
        assert_eq!(kvs.get(b"long").unwrap(), None, "nothing older comes back");
    }
}

#[test]
fn kvsets_expired_as_a_whole_go_unread() {
    let (db, kvs, clock, devices) = create(10_000);
    for n in 0..6000u32 {
        kvs.put(n.to_be_bytes(), [1; 200]).unwrap();
    }
    db.ingest().unwrap();
    db.settle().unwrap();
    let reads = |db: &Kvdb| -> u64 {
        let stats = db.stats();
        stats.classes.iter().flat_map(|class| &class.streams).map(|s| s.read_bytes).sum()
    };
    clock.advance(ms(20_000));
    // The root's are merged away by a spill; the leaves' need no reading.
    for round in 0..4u8 {
        kvs.put([round], b"").unwrap();
        db.ingest().unwrap();
    }
    let before = reads(&db);
    db.settle().unwrap();
    let stats = db.stats();
    assert!(stats.maintenance.expirations > 0, "{:?}", stats.maintenance);
    // Entries that are left are young, or hide the root's.
    assert!(stats.kvss[0].entries < 1000, "{:?}", stats.kvss);
    let garbage: u64 = stats.classes.iter().map(|class| class.garbage_bytes).sum();
    assert!(garbage < 200_000 && reads(&db) - before < 100_000, "{garbage}, {}", reads(&db));
    db.close().unwrap();
    assert_eq!(Kvdb::check_on(&devices).unwrap().findings, Vec::<String>::new());
}

#[test]
fn expired_values_among_live_ones_are_garbage() {
    let (db, kvs, clock, _) = create(10_000);
    for (ttl_ms, first) in [(Some(10_000), 0), (None, 1)] {
        kvs.set_ttl_ms(ttl_ms).unwrap();
        (first..6000u32).step_by(2).for_each(|n| kvs.put(n.to_be_bytes(), [1; 200]).unwrap());
    }
    let used = |db: &Kvdb| db.stats().classes.iter().map(|class| class.used_bytes).sum::<u64>();
    db.compact(CompactRequest::Full).unwrap();
    db.settle().unwrap();
    let before = used(&db);
    assert!(db.compact_status().space_amplification < 1.1, "{:?}", db.compact_status());
    clock.advance(ms(20_000));
    assert!(db.compact_status().space_amplification > 1.5, "{:?}", db.compact_status());
    db.settle().unwrap();
    assert!(db.compact_status().space_amplification <= 1.25, "{:?}", db.compact_status());
    assert!(used(&db) < before * 3 / 4, "{} bytes of {before}", used(&db));
    assert_eq!(all(kvs.cursor().unwrap()).len(), 3000);
}

/// The value of each key, and when it expires.
type Oracle = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// Two KVSs, of which one has a time to live that changes, against an oracle that knows all expiries.
#[test]
fn random_operations_match_an_oracle_of_expiries() {
    for seed in 0..3 {
        let options = test_options(small_tuning());
        let (clock, devices) = (options.clock.clone(), devices());
        let open = || test_options(small_tuning()).with(|set| set.clock = clock.clone());
        let mut rng = Rng::new(seed);
        let mut db = Kvdb::create_on(devices.clone(), open()).unwrap();
        let mut kvss = [
            db.create_kvs("a", Policy::default()).unwrap(),
            db.create_kvs("b", living(500)).unwrap(),
        ];
        let mut ttl = [None, Some(500)];
        let mut oracle: [Oracle; 2] = Default::default();
        let now = || u64::try_from(clock.unix_time().as_millis()).unwrap();
        for step in 0..6000 {
            let which = usize::try_from(rng.below(2)).unwrap();
            let key = format!("key{}", rng.below(300)).into_bytes();
            let value =
                vec![u8::try_from(step % 251).unwrap(); usize::try_from(rng.below(60)).unwrap()];
            let expiry = |ttl: Option<u64>| ttl.map_or(u64::MAX, |ttl| now() + ttl);
            match rng.below(100) {
                0..50 => {
                    kvss[which].put(&key, &value).unwrap();
                    oracle[which].insert(key, (value, expiry(ttl[which])));
                }
                50..58 => {
                    kvss[which].delete(&key).unwrap();
                    oracle[which].remove(&key);
                }
                58 if rng.chance(1, 2) => {
                    let upper = format!("key{}", rng.below(300)).into_bytes();
                    let (lower, upper) = (key.clone().min(upper.clone()), key.max(upper));
                    let upper = upper.min([&lower[..], b"z"].concat());
                    kvss[which].delete_range(&lower[..]..&upper[..]).unwrap();
                    oracle[which].retain(|key, _| !(&lower..&upper).contains(&key));
                }
                58 => {
                    let prefix = &key[..key.len() - 1];
                    kvss[which].delete_prefix(prefix).unwrap();
                    oracle[which].retain(|key, _| !key.starts_with(prefix));
                }
                59..64 => {
                    let mut batch = Batch::new();
                    for (kvs, n) in [(0, 1), (1, 2), (0, 3), (1, 4)] {
                        let key = [&key[..], &[n]].concat();
                        batch.put(&kvss[kvs], &key, &value);
                        oracle[kvs].insert(key, (value.clone(), expiry(ttl[kvs])));
                    }
                    db.write(&batch).unwrap();
                }
                64..80 => {
                    let there = oracle[which].get(&key).filter(|(_, expiry)| now() < *expiry);
                    let expected = there.map(|(value, _)| value.clone());
                    assert_eq!(
                        kvss[which].get(&key).unwrap(),
                        expected.map(Into::into),
                        "seed {seed}, step {step}"
                    );
                }
                80..88 => clock.advance(ms(rng.below(60))),
                88 => {
                    let changed = [None, Some(1 + rng.below(900))][usize::from(rng.chance(3, 4))];
                    kvss[1].set_ttl_ms(changed).unwrap();
                    ttl[1] = changed;
                }
                89..91 => {
                    let there = oracle[which].iter().filter(|(_, (_, expiry))| now() < *expiry);
                    let there = there.map(|(key, (value, _))| (key.clone(), value.clone()));
                    assert_eq!(all(kvss[which].cursor().unwrap()), there.collect());
                }
                91..93 => db.ingest().unwrap(),
                93..99 => drop(db.step().unwrap()),
                _ if rng.chance(1, 4) => {
                    db.close().unwrap();
                    let report = Kvdb::check_on(&devices).unwrap();
                    assert_eq!(report.findings, Vec::<String>::new());
                    db = Kvdb::open_on(devices.clone(), open()).unwrap();
                    kvss = ["a", "b"].map(|name| db.kvs(name).unwrap());
                }
                _ => db.settle().unwrap(),
            }
        }
    }
}
