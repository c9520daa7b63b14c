//! Random operations against a plain oracle, through every kind of maintenance.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::common::records::check_buffer;
use crate::common::shaped::ShapedDevice;
use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options};
use esker_base::Rng;
use esker_device::MemoryDevice;
use esker_kv::{Batch, CompactRequest, Compression, Kvdb, Kvs, MediaClass, Place, Policy};

type Oracle = BTreeMap<Vec<u8>, Vec<u8>>;

fn devices(with_staging: bool) -> Devices {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 512));
    Devices {
        manifest: device("manifest", 1 << 20),
        capacity: device("capacity", 64 << 20),
        staging: with_staging.then(|| device("staging", 32 << 20) as _),
    }
}

fn key(rng: &mut Rng) -> Vec<u8> {
    let n = rng.below(600);
    match rng.below(10) {
        // Long keys, keys that are prefixes of others, keys of one byte, the empty one.
        0 => format!("{n:04}{}", "x".repeat(300)).into_bytes(),
        1 if n < 10 => Vec::new(),
        1 => vec![u8::try_from(n % 256).unwrap()],
        _ => format!("key{n}").into_bytes(),
    }
}

/// Of a few keys, of many, or of none.
fn prefix(rng: &mut Rng) -> Vec<u8> {
    let n = rng.below(100);
    match rng.below(12) {
        0 => b"key".to_vec(),
        1 => vec![u8::try_from(rng.below(256)).unwrap()],
        2 => vec![u8::MAX; 3],
        3 => format!("{:02}", n % 10).into_bytes(),
        4 => [&b"k"[..], &key(rng)].concat(),
        _ => format!("key{n}").into_bytes(),
    }
}

/// Of a few keys, of many, of all, or of none.
fn range(rng: &mut Rng) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let (one, other) = (key(rng), key(rng));
    let near = [&one[..], b"3"].concat();
    let (lower, upper) = match rng.below(4) {
        0 => (one.clone().min(other.clone()), one.max(other)),
        1 => (one, vec![u8::MAX; 9]),
        _ => (one, near),
    };
    let bound = |rng: &mut Rng, key| match rng.below(12) {
        0 => Bound::Unbounded,
        1..6 => Bound::Included(key),
        _ => Bound::Excluded(key),
    };
    // Two bounds that leave out the same key are no range.
    let lower = if lower == upper { Bound::Included(lower) } else { bound(rng, lower) };
    (lower, bound(rng, upper))
}

fn delete_range(oracle: &mut Oracle, range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) {
    oracle.retain(|key, _| !range.contains(key));
}

fn delete_prefix(oracle: &mut Oracle, prefix: &[u8]) {
    oracle.retain(|key, _| !key.starts_with(prefix));
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let size = match rng.below(20) {
        0 => 0,
        1 => rng.below(17),
        2 => 3000 + rng.below(6000),
        _ => 17 + rng.below(200),
    };
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    // Some compress, more or less.
    let noise = usize::try_from(rng.below(4)).unwrap() * bytes.len() / 3;
    rng.fill(&mut bytes[..noise]);
    bytes
}

fn policy(rng: &mut Rng) -> Policy {
    let mut place = || {
        let class = MediaClass::ALL[usize::try_from(rng.below(2)).unwrap()];
        Place { class, overflows: rng.chance(1, 2) }
    };
    Policy { young_keys: place(), young_values: place(), old_keys: place(), old_values: place() }
}

fn collect(kvs: &Kvs) -> Oracle {
    let mut cursor = kvs.cursor().unwrap();
    let mut found = Oracle::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        assert!(found.insert(key.to_vec(), value.to_vec()).is_none(), "a key came twice");
    }
    found
}

/// Walks at random from a random point and compares every step with the oracle.
fn walk(kvs: &Kvs, oracle: &Oracle, rng: &mut Rng) {
    let expected = usize::try_from(rng.below(40)).unwrap();
    let mut cursor = kvs.cursor().unwrap().expecting(expected);
    let from = key(rng);
    cursor.seek(&from).unwrap();
    // The cursor stands before the key with this index.
    let keys: Vec<&Vec<u8>> = oracle.keys().collect();
    let mut at = keys.partition_point(|key| **key < from);
    for _ in 0..rng.below(30) {
        let (step, index) = if rng.chance(2, 3) {
            let step = cursor.next().unwrap();
            at += usize::from(at < keys.len());
            (step, (step.is_some()).then(|| at - 1))
        } else {
            let step = cursor.prev().unwrap();
            let index = at.checked_sub(1);
            at = index.unwrap_or(0);
            (step, index)
        };
        let expected = index.map(|index| (&keys[index][..], &oracle[keys[index]][..]));
        assert_eq!(step, expected);
    }
}

/// The same within a prefix, some without values.
fn walk_within(kvs: &Kvs, oracle: &Oracle, rng: &mut Rng) {
    let prefix = match rng.below(5) {
        0 => vec![u8::MAX; 2],
        1 => b"key".to_vec(),
        _ => format!("key{}", rng.below(60)).into_bytes(),
    };
    let keys: Vec<&Vec<u8>> = oracle.keys().filter(|key| key.starts_with(&prefix)).collect();
    let keys_only = rng.chance(1, 2);
    let mut cursor = kvs.cursor().unwrap().prefix(&prefix).unwrap();
    if keys_only {
        cursor = cursor.keys_only();
    }
    // The cursor stands before the key with this index.
    let mut at = 0;
    for _ in 0..rng.below(40) {
        let step = match rng.below(10) {
            0 => {
                let from = key(rng);
                cursor.seek(&from).unwrap();
                at = keys.partition_point(|key| **key < from);
                continue;
            }
            1 => {
                cursor.seek_to_last().unwrap();
                at = keys.len();
                continue;
            }
            2..7 => {
                let index = Some(at).filter(|at| *at < keys.len());
                at += usize::from(index.is_some());
                (cursor.next().unwrap(), index)
            }
            _ => {
                let index = at.checked_sub(1);
                at = index.unwrap_or(0);
                (cursor.prev().unwrap(), index)
            }
        };
        let value = |key: &Vec<u8>| if keys_only { &[][..] } else { &oracle[key][..] };
        assert_eq!(step.0, step.1.map(|index| (&keys[index][..], value(keys[index]))));
    }
}

fn run(seed: u64, devices: &Devices, steps: u64) {
    let mut rng = Rng::new(seed);
    let mut db = Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap();
    let names = ["a", "b"];
    let mut kvss: Vec<Kvs> =
        names.iter().map(|name| db.create_kvs(name, Policy::default()).unwrap()).collect();
    let mut oracles = [Oracle::new(), Oracle::new()];
    let mut in_memory = 0;
    for step in 0..steps {
        let which = usize::try_from(rng.below(2)).unwrap();
        let (kvs, oracle) = (&kvss[which], &mut oracles[which]);
        match rng.below(1000) {
            0..550 => {
                let (key, value) = (key(&mut rng), value(&mut rng));
                kvs.put(&key, &value).unwrap();
                oracle.insert(key, value);
            }
            550..556 => {
                let prefix = prefix(&mut rng);
                kvs.delete_prefix(&prefix).unwrap();
                delete_prefix(oracle, &prefix);
            }
            556..562 => {
                let range = range(&mut rng);
                kvs.delete_range::<Vec<u8>>(range.clone()).unwrap();
                delete_range(oracle, &range);
            }
            562 if rng.chance(1, 4) => {
                kvs.clear().unwrap();
                oracle.clear();
            }
            562..700 => {
                let key = key(&mut rng);
                kvs.delete(&key).unwrap();
                oracle.remove(&key);
            }
            700..760 => {
                let mut batch = Batch::new();
                for _ in 0..rng.below(20) {
                    let which = usize::try_from(rng.below(2)).unwrap();
                    let key = key(&mut rng);
                    if rng.chance(1, 40) {
                        let prefix = prefix(&mut rng);
                        batch.delete_prefix(&kvss[which], &prefix);
                        delete_prefix(&mut oracles[which], &prefix);
                    } else if rng.chance(1, 40) {
                        let range = range(&mut rng);
                        batch.delete_range::<Vec<u8>>(&kvss[which], range.clone());
                        delete_range(&mut oracles[which], &range);
                    } else if rng.chance(1, 4) {
                        batch.delete(&kvss[which], &key);
                        oracles[which].remove(&key);
                    } else {
                        let value = value(&mut rng);
                        batch.put(&kvss[which], &key, &value);
                        oracles[which].insert(key, value);
                    }
                }
                db.write(&batch).unwrap();
            }
            760..960 => {
                let key = key(&mut rng);
                let expected = oracle.get(&key).map(Vec::as_slice);
                assert_eq!(kvs.get(&key).unwrap().as_deref(), expected, "step {step}");
                let room = rng.below(4) * 400;
                check_buffer(expected, room, |buffer| kvs.get_to_buffer(&key, buffer));
                let mut young = Vec::new();
                if let Some(found) = kvs.get_in_memory(&key, &mut young).unwrap() {
                    in_memory += 1;
                    assert_eq!(found.then_some(&young[..]), expected, "step {step}");
                }
            }
            960..968 => walk(kvs, oracle, &mut rng),
            968..975 => walk_within(kvs, oracle, &mut rng),
            975..979 => drop(db.step().unwrap()),
            979..981 => {
                let requests = [
                    CompactRequest::Full,
                    CompactRequest::Scrub,
                    CompactRequest::SpaceAmplification(1.1),
                ];
                db.compact(requests[usize::try_from(rng.below(3)).unwrap()]).unwrap();
            }
            981..985 => kvs.set_policy(policy(&mut rng)).unwrap(),
            985..990 => db.sync().unwrap(),
            990..992 => db.ingest().unwrap(),
            992 => {
                let settings = Compression::ALL;
                let setting = settings[usize::try_from(rng.below(4)).unwrap()];
                kvs.set_compression(setting).unwrap();
            }
            993..996 => db.settle().unwrap(),
            996..998 => assert_eq!(collect(kvs), *oracle),
            _ => {
                db.close().unwrap();
                let report = Kvdb::check_on(devices).unwrap();
                assert_eq!(report.findings, Vec::<String>::new());
                db = Kvdb::open_on(devices.clone(), test_options(small_tuning())).unwrap();
                kvss = names.iter().map(|name| db.kvs(name).unwrap()).collect();
            }
        }
    }
    assert!(in_memory > 0);
    for (kvs, oracle) in kvss.iter().zip(&oracles) {
        assert_eq!(collect(kvs), *oracle);
    }
}

#[test]
fn random_operations_match_the_oracle_with_staging() {
    for seed in 0..4 {
        run(seed, &devices(true), 6000);
    }
}

#[test]
fn random_operations_match_the_oracle_with_capacity_alone() {
    for seed in 10..13 {
        run(seed, &devices(false), 6000);
    }
}

/// So small that frames, buffers of keys, windows of cursors and most records take several.
#[test]
fn random_operations_match_the_oracle_where_a_command_carries_little() {
    for (seed, largest) in [(20, 512), (21, 1536), (22, 4096)] {
        let shaped = |name: &str, bytes: u64| {
            ShapedDevice::new(name, bytes, 512, |geometry| geometry.max_transfer_size = largest)
        };
        let [manifest, capacity, staging] =
            [("manifest", 1 << 20), ("capacity", 64 << 20), ("staging", 32 << 20)]
                .map(|(name, bytes)| shaped(name, bytes));
        let devices = Devices {
            manifest: manifest.clone(),
            capacity: capacity.clone(),
            staging: Some(staging.clone()),
        };
        run(seed, &devices, 3000);
        for device in [manifest, capacity, staging] {
            assert_eq!(device.refused(), []);
        }
    }
}

#[test]
fn every_kind_of_maintenance_happens_in_a_long_run() {
    let devices = devices(true);
    let db = Kvdb::create_on(devices, test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let mut rng = Rng::new(5);
    let mut oracle = Oracle::new();
    for n in 0..30_000u64 {
        let key = format!("{:06}", rng.below(3000) + if n > 15_000 { 3000 } else { 0 });
        let value = value(&mut rng);
        kvs.put(key.as_bytes(), &value).unwrap();
        oracle.insert(key.into_bytes(), value);
        if n % 100 == 0 {
            db.settle().unwrap();
        }
    }
    db.settle().unwrap();
    assert_eq!(collect(&kvs), oracle);
    let done = db.stats().maintenance;
    assert!(
        done.ingests > 0
            && done.spills > 0
            && done.compactions > 0
            && done.collections > 0
            && done.splits > 0,
        "{done:?}"
    );
    for class in db.stats().classes {
        assert!(class.garbage_bytes < 3 * class.live_bytes + (1 << 20), "{class:?}");
    }
}
