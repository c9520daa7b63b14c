//! Devices that take little in one command, as those behind a network do: the engine cuts whatever
//! is larger, values of the largest size included, and everything else stays as it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::shaped::ShapedDevice;
use crate::common::test_options;
use crate::common::{Devices, OnDevices};
use esker_base::Rng;
use esker_device::{Device, Geometry, OpKind};
use esker_kv::{Kvdb, Kvs, Options, Policy, Tuning, VALUE_MAX};

type Oracle = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u64 = 2500;

/// Parts that are all larger than a command, and as small as the largest values let them be.
fn options() -> Options {
    let tuning = Tuning {
        memtable_bytes: 3 << 20,
        block_bytes: 4 << 20,
        frame_bytes: 256 << 10,
        key_extent_bytes: 512 << 10,
        allocation_bytes: 64 << 10,
        root_kvsets: 3,
        spill_bytes: 7 << 20,
        compact_kvsets: 3,
        leaf_key_bytes: 64 << 10,
        gather_bytes: 2 << 20,
        workers: 1,
    };
    test_options(tuning).with(|set| {
        set.memory_bytes = 16 << 20;
        set.durability.bytes = 1 << 20;
    })
}

struct Shaped {
    manifest: Arc<ShapedDevice>,
    capacity: Arc<ShapedDevice>,
    staging: Arc<ShapedDevice>,
}

impl Shaped {
    fn new(largest: u32, lba_size: u32) -> Shaped {
        let shape = |geometry: &mut Geometry| geometry.max_transfer_size = largest;
        Shaped {
            manifest: ShapedDevice::new("manifest", 4 << 20, lba_size, shape),
            capacity: ShapedDevice::new("capacity", 1 << 30, lba_size, shape),
            staging: ShapedDevice::new("staging", 1 << 30, lba_size, shape),
        }
    }

    fn devices(&self) -> Devices {
        Devices {
            manifest: self.manifest.clone(),
            capacity: self.capacity.clone(),
            staging: Some(self.staging.clone()),
        }
    }

    fn all(&self) -> [&ShapedDevice; 3] {
        [&self.manifest, &self.capacity, &self.staging]
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:05}{}", "k".repeat(40)).into_bytes()
}

/// From the smallest that has a record of its own to the largest, and many of a few bytes.
fn value(rng: &mut Rng) -> Vec<u8> {
    let size = match rng.below(100) {
        0 => VALUE_MAX as u64,
        1 => rng.below(VALUE_MAX as u64),
        2..6 => 60_000 + rng.below(12_000),
        _ => rng.below(60),
    };
    let mut value = vec![0; usize::try_from(size).unwrap()];
    rng.fill(&mut value);
    value
}

/// Both ways, and by key.
fn check_reads(kvs: &Kvs, oracle: &Oracle, rng: &mut Rng) {
    let mut cursor = kvs.cursor().unwrap();
    for (key, value) in oracle {
        assert!(cursor.next().unwrap() == Some((key, value)), "{}", key.escape_ascii());
    }
    assert!(cursor.next().unwrap().is_none());
    for (key, value) in oracle.iter().rev() {
        assert!(cursor.prev().unwrap() == Some((key, value)), "{}", key.escape_ascii());
    }
    let keys: Vec<&Vec<u8>> = oracle.keys().collect();
    for _ in 0..300 {
        let key = keys[usize::try_from(rng.below(keys.len() as u64)).unwrap()];
        assert!(
            kvs.get(key).unwrap().as_deref() == oracle.get(key).map(Vec::as_slice),
            "{}",
            key.escape_ascii()
        );
    }
}

fn run(largest: u32, lba_size: u32) {
    let shaped = Shaped::new(largest, lba_size);
    let mut db = Kvdb::create_on(shaped.devices(), options()).unwrap();
    let mut kvs = db.create_kvs("k", Policy::default()).unwrap();
    let (mut rng, mut oracle) = (Rng::new(largest.into()), Oracle::new());
    let mut steps = [0; 5];
    for round in 0..3 {
        for _ in 0..2500 {
            let (key, value) = (key(rng.below(KEYS)), value(&mut rng));
            kvs.put(&key, &value).unwrap();
            oracle.insert(key, value);
        }
        for n in (round..KEYS).step_by(7) {
            kvs.delete(key(n)).unwrap();
            oracle.remove(&key(n));
        }
        db.settle().unwrap();
        check_reads(&kvs, &oracle, &mut rng);
        let done = db.stats().maintenance;
        let kinds = [done.ingests, done.spills, done.compactions, done.collections, done.splits];
        steps.iter_mut().zip(kinds).for_each(|(all, now)| *all += now);
        // Records that are still in memory are replayed from the log.
        for n in 0..40 {
            let value = vec![u8::try_from(n).unwrap(); 50_000];
            kvs.put(key(n), &value).unwrap();
            oracle.insert(key(n), value);
        }
        db.sync().unwrap();
        drop((kvs, db));
        let report = Kvdb::check_on(&shaped.devices()).unwrap();
        assert_eq!(report.findings, Vec::<String>::new());
        db = Kvdb::open_on(shaped.devices(), options()).unwrap();
        kvs = db.kvs("k").unwrap();
        check_reads(&kvs, &oracle, &mut rng);
    }
    assert!(steps.iter().all(|count| *count > 0), "steps of maintenance: {steps:?}");
    for device in shaped.all() {
        assert_eq!(device.refused(), [], "commands of {largest} bytes at most");
        let taken = device.taken();
        let most = |kind| taken.iter().filter(|t| t.kind == kind).map(|t| t.bytes).max();
        assert_eq!(most(OpKind::Read), Some(largest.into()), "a read was cut");
        let cuts_writes = device.name() != "manifest"; // its writes are small here
        assert_eq!(most(OpKind::Write) == Some(largest.into()), cuts_writes);
    }
}

#[test]
fn everything_works_where_a_command_carries_64_kib() {
    run(64 << 10, 512);
}

#[test]
fn everything_works_where_a_command_carries_128_kib() {
    run(128 << 10, 4096);
}
