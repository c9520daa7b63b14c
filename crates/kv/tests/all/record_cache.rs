//! Values found by their keys in the record cache: those they may not be mistaken for, whatever was
//! written, ingested, merged and forgotten meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options};
use esker_base::units::to_usize;
use esker_base::{Clock, Rng};
use esker_device::MemoryDevice;
use esker_kv::{
    CompactRequest, Compression, Kvdb, Kvs, KvsOptions, Policy, Readable, Snapshot, Stream, Tuning,
};

fn create() -> (Kvdb, Clock) {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 512));
    let devices = Devices {
        manifest: device("manifest", 1 << 20),
        capacity: device("capacity", 64 << 20),
        staging: Some(device("staging", 32 << 20)),
    };
    let options = test_options(small_tuning()).with(|set| set.memory_bytes = 24 << 20);
    let clock = options.clock.clone();
    (Kvdb::create_on(devices, options).unwrap(), clock)
}

fn hits_by_key(db: &Kvdb) -> u64 {
    db.stats().cache.record_hits_by_key
}

const LARGE: &[u8] = &[7; 100];
/// In the key page, so that ingest leaves the cache alone.
const SMALL: &[u8] = b"small";

/// A KVDB that has cached the value of `key` and knows it to be the newest, and a neighbour that stays.
fn with_one_cached() -> (Kvdb, Kvs, Clock) {
    let (db, clock) = create();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    kvs.put(b"key", LARGE).unwrap();
    kvs.put(b"neighbour", LARGE).unwrap();
    db.ingest().unwrap();
    assert_eq!(kvs.get(b"key").unwrap().as_deref(), Some(LARGE));
    assert_eq!(hits_by_key(&db), 1);
    (db, kvs, clock)
}

#[test]
fn cached_record_is_found_under_newer_kvsets_without_its_key() {
    let (db, kvs, _) = with_one_cached();
    for n in 0..4u8 {
        kvs.put([n], SMALL).unwrap();
        db.ingest().unwrap();
        assert_eq!(kvs.get(b"key").unwrap().as_deref(), Some(LARGE));
        assert_eq!(hits_by_key(&db), 2 + u64::from(n));
    }
    db.compact(CompactRequest::Full).unwrap();
    assert_eq!(kvs.get(b"key").unwrap().as_deref(), Some(LARGE), "it has moved");
    assert_eq!(kvs.get_many(&[b"key"]).unwrap(), [Some(LARGE.into())]);
    assert_eq!((hits_by_key(&db), db.stats().cache.record_misses), (7, 0));
}

/// Bytes of values that maintenance reads when they age and are rewritten, with a budget of so many bytes.
fn read_to_age(memory_bytes: u64, compression: Compression) -> u64 {
    let device = |name: &str| Arc::new(MemoryDevice::new(name, 64 << 20, 512));
    let devices = Devices { manifest: device("m"), capacity: device("c"), staging: None };
    let tuning = Tuning { spill_bytes: 96 << 10, ..small_tuning() };
    let options = test_options(tuning).with(|set| set.memory_bytes = memory_bytes);
    let db = Kvdb::create_on(devices.clone(), options.clone()).unwrap();
    let with = KvsOptions::default().compression(compression);
    let kvs = db.create_kvs("k", with).unwrap();
    let value = |n: u32| [&n.to_be_bytes()[..], &[7; 200]].concat();
    for n in 0..3000u32 {
        kvs.put(n.wrapping_mul(0x9e37_79b1).to_be_bytes(), value(n)).unwrap();
    }
    db.settle().unwrap();
    let stats = db.stats();
    assert!(stats.maintenance.spills > 3);
    let streams = stats.classes.iter().flat_map(|class| &class.streams);
    let of_values = |stream: Stream| matches!(stream, Stream::Log | Stream::OldValues);
    let read = streams.filter(|s| of_values(s.stream)).map(|s| s.read_bytes).sum();
    // Rewritten once more, some from the cache and some, which are stored otherwise, from the medium.
    db.compact(CompactRequest::Full).unwrap();
    db.close().unwrap();
    let db = Kvdb::open_on(devices, options).unwrap();
    let kvs = db.kvs("k").unwrap();
    for n in 0..3000u32 {
        let key = n.wrapping_mul(0x9e37_79b1).to_be_bytes();
        assert_eq!(kvs.get(key).unwrap(), Some(value(n).into()));
    }
    read
}

#[test]
fn values_that_age_are_not_read_while_they_are_cached() {
    for compression in [Compression::None, Compression::Lz4] {
        assert_eq!(read_to_age(24 << 20, compression), 0);
        assert!(read_to_age(6 << 20, compression) > 3000 * 200);
    }
}

#[test]
fn a_newer_value_that_is_not_cached_is_found() {
    let (db, kvs, _) = with_one_cached();
    kvs.put(b"key", SMALL).unwrap();
    db.ingest().unwrap();
    assert_eq!(kvs.get(b"key").unwrap().as_deref(), Some(SMALL));
}

#[test]
fn an_older_view_has_the_older_value() {
    let (db, kvs, _) = with_one_cached();
    let before = db.snapshot();
    kvs.put(b"key", [8; 100]).unwrap();
    db.ingest().unwrap();
    assert_eq!(kvs.get(b"key").unwrap().as_deref(), Some(&[8; 100][..]));
    assert_eq!(before.get(&kvs, b"key").unwrap().as_deref(), Some(LARGE));
    assert_eq!(kvs.get(b"key").unwrap().as_deref(), Some(&[8; 100][..]));
    assert_eq!(hits_by_key(&db), 3);
}

#[test]
fn the_same_key_of_another_kvs_is_another_record() {
    let (db, kvs, _) = with_one_cached();
    let other = db.create_kvs("other", Policy::default()).unwrap();
    other.put(b"key", [9; 100]).unwrap();
    db.ingest().unwrap();
    assert_eq!(other.get(b"key").unwrap().as_deref(), Some(&[9; 100][..]));
    assert_eq!(kvs.get(b"key").unwrap().as_deref(), Some(LARGE));
}

/// Each way of deleting `key`, and then of forgetting that it was.
#[test]
fn deleted_key_stays_deleted_when_compaction_has_dropped_the_delete() {
    type Delete = fn(&Kvs, &Clock);
    let ways: [Delete; 3] = [
        |kvs, _| kvs.delete(b"key").unwrap(),
        |kvs, _| kvs.delete_prefix(b"ke").unwrap(),
        |kvs, clock| {
            kvs.set_ttl_ms(Some(10)).unwrap();
            kvs.put(b"key", SMALL).unwrap();
            clock.advance(Duration::from_millis(11));
        },
    ];
    for (way, delete) in ways.into_iter().enumerate() {
        for compacted_before in [false, true] {
            let (db, kvs, clock) = with_one_cached();
            if compacted_before {
                db.compact(CompactRequest::Full).unwrap();
            }
            delete(&kvs, &clock);
            db.ingest().unwrap();
            for _ in 0..2 {
                db.compact(CompactRequest::Full).unwrap();
                let stats = &db.stats().kvss[0];
                assert_eq!((stats.entries, stats.tombstones, stats.range_tombstones), (1, 0, 0));
                assert_eq!(kvs.get(b"key").unwrap(), None, "way {way}");
            }
            kvs.put(b"neighbour", SMALL).unwrap();
            db.ingest().unwrap();
            assert_eq!(kvs.get(b"key").unwrap(), None, "way {way}");
        }
    }
}

/// Content of a KVS, with the time at which each value expires.
type Oracle = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn living<'o>(oracle: &'o Oracle, key: &[u8], now_ms: u64) -> Option<&'o Vec<u8>> {
    oracle.get(key).filter(|(_, expiry)| now_ms < *expiry).map(|(value, _)| value)
}

fn key(rng: &mut Rng) -> Vec<u8> {
    // A few of the keys get most of the calls.
    let n = if rng.chance(1, 2) { rng.below(20) } else { rng.below(400) };
    format!("key{n}").into_bytes()
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let size = match rng.below(12) {
        0 => rng.below(17),
        1..6 => 100,
        _ => 17 + rng.below(400),
    };
    let mut bytes = vec![0; to_usize(size)];
    rng.fill(&mut bytes);
    bytes
}

struct World {
    db: Kvdb,
    clock: Clock,
    now_ms: u64,
    kvss: Vec<(Kvs, Oracle, Option<u64>)>,
    /// The snapshots, with the content and the time at which each was taken.
    snapshots: Vec<(Snapshot, Vec<Oracle>, u64)>,
}

impl World {
    fn new() -> World {
        let (db, clock) = create();
        let kvs = |name| (db.create_kvs(name, Policy::default()).unwrap(), Oracle::new(), None);
        let kvss = ["a", "b"].map(kvs).into_iter().collect();
        World { db, clock, now_ms: 0, kvss, snapshots: Vec::new() }
    }

    fn advance(&mut self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
        self.now_ms += ms;
    }

    fn step(&mut self, rng: &mut Rng) {
        let which = to_usize(rng.below(2));
        let (now_ms, key) = (self.now_ms, key(rng));
        let (kvs, oracle, ttl_ms) = &mut self.kvss[which];
        match rng.below(1000) {
            0..250 => {
                let value = value(rng);
                kvs.put(&key, &value).unwrap();
                oracle.insert(key, (value, ttl_ms.map_or(u64::MAX, |ttl_ms| now_ms + ttl_ms)));
            }
            250..300 => {
                kvs.delete(&key).unwrap();
                oracle.remove(&key);
            }
            300..308 => {
                kvs.delete_prefix(&key).unwrap();
                oracle.retain(|other, _| !other.starts_with(&key));
            }
            308..316 => {
                *ttl_ms = rng.chance(1, 3).then(|| 1 + rng.below(300));
                kvs.set_ttl_ms(*ttl_ms).unwrap();
            }
            316..330 => self.advance(rng.below(100)),
            330..350 => drop(self.db.step().unwrap()),
            350..356 => self.db.ingest().unwrap(),
            356..360 => self.db.settle().unwrap(),
            360..362 => drop(self.db.compact(CompactRequest::Full).unwrap()),
            362..366 => {
                let oracles = self.kvss.iter().map(|(_, oracle, _)| oracle.clone()).collect();
                self.snapshots.push((self.db.snapshot(), oracles, now_ms));
                if self.snapshots.len() > 3 {
                    self.snapshots.remove(to_usize(rng.below(4)));
                }
            }
            366..368 => {
                let mut cursor = kvs.cursor().unwrap();
                while let Some((key, value)) = cursor.next().unwrap() {
                    assert_eq!(Some(value), living(oracle, key, now_ms).map(|value| &value[..]));
                }
            }
            368 if rng.chance(1, 4) => {
                // The snapshots may have seen the one of this name before.
                self.snapshots.clear();
                let name = kvs.name().to_owned();
                self.db.drop_kvs(&name).unwrap();
                let options = KvsOptions::default().ttl_ms(*ttl_ms);
                (*kvs, *oracle) = (self.db.create_kvs(&name, options).unwrap(), Oracle::new());
            }
            368..400 => {
                let keys: Vec<Vec<u8>> = (0..rng.below(10)).map(|_| self::key(rng)).collect();
                let found = kvs.get_many(&keys).unwrap();
                for (key, found) in keys.iter().zip(&found) {
                    assert_eq!(found.as_deref(), living(oracle, key, now_ms).map(Vec::as_slice));
                }
            }
            400..550 if !self.snapshots.is_empty() => {
                let which_snapshot = to_usize(rng.below(self.snapshots.len() as u64));
                let (snapshot, oracles, then_ms) = &self.snapshots[which_snapshot];
                let found = snapshot.get(kvs, &key).unwrap();
                assert_eq!(
                    found.as_deref(),
                    living(&oracles[which], &key, *then_ms).map(Vec::as_slice)
                );
            }
            _ => assert_eq!(
                kvs.get(&key).unwrap().as_deref(),
                living(oracle, &key, now_ms).map(Vec::as_slice)
            ),
        }
    }
}

#[test]
fn every_get_is_what_an_oracle_says_through_whatever_may_hide_a_cached_value() {
    for seed in 0..6 {
        let (mut rng, mut world) = (Rng::new(seed), World::new());
        for _ in 0..8000 {
            world.step(&mut rng);
        }
        let stats = world.db.stats();
        let (hits, by_key) = (stats.cache.record_hits, stats.cache.record_hits_by_key);
        assert!(by_key > 200 && hits > by_key, "seed {seed}: {:?}", stats.cache);
        let done = stats.maintenance;
        assert!(done.ingests > 10 && done.spills > 2 && done.compactions > 2, "{done:?}");
    }
}
