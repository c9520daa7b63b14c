//! Damage that the open or maintenance finds is fenced: the keys that it concerns are read-only or not maintained, and
//! whatever else the KVDB holds is written, merged and read as before.

use std::collections::BTreeMap;

use crate::common::sample::Media;
use crate::common::{Devices, OnDevices};
use crate::common::{edit, in_memory, remains, test_options, tiny_tuning, used};
use esker_base::ErrorKind;
use esker_base::units::to_usize;
use esker_device::Device;
use esker_kv::{CompactRequest, KvError, Kvdb, Kvs, Policy};

const NAMES: [&str; 3] = ["a", "b", "c"];

type Oracle = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

fn key(n: u32) -> Vec<u8> {
    format!("{:05}{}", n % 600, "-".repeat(40)).into_bytes()
}

/// Puts keys; returns the refusals, by KVS.
fn put(kvss: &[Kvs], keys: std::ops::Range<u32>, oracle: &mut Oracle) -> BTreeMap<usize, KvError> {
    let mut refused = BTreeMap::new();
    for n in keys {
        for (at, kvs) in kvss.iter().enumerate() {
            let value = n.to_be_bytes().repeat(1 + to_usize(u64::from(n % 40)));
            match kvs.put(key(n), &value) {
                Ok(()) => drop(oracle.insert((at, key(n)), value)),
                Err(error @ KvError::Fenced { .. }) => drop(refused.insert(at, error)),
                Err(error) => panic!("{error}"),
            }
        }
    }
    refused
}

fn build() -> (Devices, Oracle) {
    let devices = in_memory("the-", [256 << 10, 4 << 20, 4 << 20]);
    let db = Kvdb::create_on(devices.clone(), test_options(tiny_tuning())).unwrap();
    let kvss = NAMES.map(|name| db.create_kvs(name, Policy::default()).unwrap());
    let mut oracle = Oracle::new();
    for part in 0..6 {
        put(&kvss, part * 150..part * 150 + 150, &mut oracle);
        db.settle().unwrap();
    }
    db.close().unwrap();
    (devices, oracle)
}

/// Reads all: each key has its value, or says that it is damaged. Returns how many say so, by KVS.
fn read(kvss: &[Kvs], oracle: &Oracle) -> BTreeMap<usize, usize> {
    let mut damaged = BTreeMap::new();
    for ((at, key), value) in oracle {
        match kvss[*at].get(key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "{at} {key:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                *damaged.entry(*at).or_default() += 1;
            }
        }
    }
    damaged
}

/// Effect of a damage.
#[derive(Debug, Default)]
struct Outcomes {
    /// The KVDB does not open: log, class headers.
    closed: usize,
    fenced: usize,
    values_only: usize,
    harmless: usize,
}

fn try_damage(devices: &Devices, before: &Oracle, what: &str, outcomes: &mut Outcomes) {
    let mut oracle = before.clone();
    let Ok(db) = Kvdb::open_on(devices.clone(), test_options(tiny_tuning())) else {
        outcomes.closed += 1;
        return;
    };
    let kvss = NAMES.map(|name| db.kvs(name).unwrap());
    let mut refused = BTreeMap::new();
    for part in 0..4 {
        refused.extend(put(&kvss, part * 150 + 70..part * 150 + 220, &mut oracle));
        db.settle().unwrap();
    }
    db.compact(CompactRequest::Full).unwrap();
    refused.extend(put(&kvss, 0..600, &mut oracle));
    db.settle().unwrap();
    let stats = db.stats();
    assert_eq!(stats.stopped, None, "{what}");
    let told = |at: &usize| {
        let name = format!("KVS '{}', ", NAMES[*at]);
        stats.damaged.iter().find(|damage| damage.starts_with(&name))
    };
    for (at, error) in &refused {
        let message = error.to_string();
        assert!(message.contains(&format!("'{}'", NAMES[*at])), "{what}: {message}");
        assert!(message.contains("esker kv repair"), "{what}: {message}");
        assert!(told(at).is_some_and(|it| it.contains("read-only")), "{what}: {stats:#?}");
    }
    for damage in &stats.damaged {
        assert!(db.remarks().contains(damage) && damage.contains("esker kv repair"), "{damage}");
    }
    let damaged = read(&kvss, &oracle);
    assert!(damaged.len() <= 1 || !stats.damaged.is_empty(), "{what}: {damaged:?}");
    match (refused.is_empty(), stats.damaged.is_empty()) {
        (false, _) => outcomes.fenced += 1,
        (true, false) => outcomes.values_only += 1,
        (true, true) => outcomes.harmless += 1,
    }
    assert!(refused.len() < NAMES.len(), "{what}: no KVS takes writes: {stats:#?}");
    db.close().unwrap();
    // Closed and opened again, it is as it was.
    let db = Kvdb::open_on(devices.clone(), test_options(tiny_tuning())).unwrap();
    read(&NAMES.map(|name| db.kvs(name).unwrap()), &oracle);
    db.close().unwrap();
}

#[test]
fn damage_of_one_kvs_stops_no_other() {
    let (devices, oracle) = build();
    let staging = devices.staging.clone().unwrap();
    let mut outcomes = Outcomes::default();
    for (device, step) in [(&staging, 19), (&devices.capacity, 31)] {
        for lba in used(&**device).into_iter().step_by(step) {
            let copy = Media::of(&devices).devices();
            let own = if device.name() == staging.name() {
                copy.staging.clone().unwrap()
            } else {
                copy.capacity.clone()
            };
            edit(&*own, lba, |bytes| bytes[to_usize(lba * 31 % 512)] ^= 0x20);
            try_damage(&copy, &oracle, &format!("{} LBA {lba}", own.name()), &mut outcomes);
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes.fenced > 5 && outcomes.harmless > 5, "{outcomes:?}");
    // Repair takes the rest.
    let into = in_memory("new-", [256 << 10, 8 << 20, 4 << 20]);
    let report = Kvdb::repair_on(&remains(&devices), &into, test_options(tiny_tuning())).unwrap();
    assert!(report.is_sound());
}

/// The LBAs at which metas of kvsets begin; not all of them are in use.
fn metas(device: &dyn Device) -> Vec<u64> {
    let bytes = crate::common::bytes_of(device);
    let starts = bytes.chunks_exact(512).zip(0..).filter(|(lba, _)| lba.starts_with(b"ESKKVSET"));
    starts.map(|(_, lba)| lba).collect()
}

#[test]
fn damaged_kvset_meta_stops_no_other_kvs() {
    let (devices, oracle) = build();
    let mut outcomes = Outcomes::default();
    let staging = devices.staging.clone().unwrap();
    for (device, on_staging) in [(&staging, true), (&devices.capacity, false)] {
        for lba in metas(&**device) {
            let copy = Media::of(&devices).devices();
            let own =
                if on_staging { copy.staging.clone().unwrap() } else { copy.capacity.clone() };
            edit(&*own, lba, |bytes| bytes[60] ^= 0x20);
            let what = format!("{} LBA {lba}", own.name());
            let (options, read_only) = (test_options(tiny_tuning()), true);
            let db =
                Kvdb::open_on(copy.clone(), options.with(|set| set.read_only = read_only)).unwrap();
            let is_in_use = !db.stats().damaged.is_empty();
            db.close().unwrap();
            let fenced = outcomes.fenced;
            try_damage(&copy, &oracle, &what, &mut outcomes);
            assert_eq!(outcomes.fenced - fenced, usize::from(is_in_use), "{what}");
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes.closed == 0 && outcomes.fenced > 3, "{outcomes:?}");
}

/// Only the damaged meta knew that the keys were deleted.
#[test]
fn prefix_deleted_by_damaged_kvset_is_not_back() {
    let devices = in_memory("the-", [256 << 10, 4 << 20, 4 << 20]);
    let options = || test_options(tiny_tuning());
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    (0..300).for_each(|n| kvs.put(key(n), b"v").unwrap());
    db.compact(CompactRequest::Full).unwrap();
    let staging = devices.staging.clone().unwrap();
    let before = metas(&*staging);
    kvs.delete_prefix(b"0010").unwrap();
    db.ingest().unwrap();
    db.close().unwrap();
    let after = metas(&*staging);
    let new: Vec<&u64> = after.iter().filter(|lba| !before.contains(lba)).collect();
    let [&meta] = new[..] else { panic!("{before:?} {after:?}") };
    edit(&*staging, meta, |bytes| bytes[50] ^= 1);
    let db = Kvdb::open_on(devices, options()).unwrap();
    let kvs = db.kvs("a").unwrap();
    for n in [100, 105, 200] {
        assert_eq!(kvs.get(key(n)).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let walk = |from: &[u8]| {
        let mut cursor = kvs.cursor()?;
        cursor.seek(from)?;
        while cursor.next()?.is_some() {}
        Ok(())
    };
    for from in [&b""[..], b"001", b"0010", b"002"] {
        assert_eq!(walk(from).map_err(|error: KvError| error.kind()), Err(ErrorKind::Corrupt));
    }
    let [damage] = &db.remarks()[..] else { panic!("{:?}", db.remarks()) };
    assert!(damage.contains("KVS 'a', all keys: read-only"), "{damage}");
    assert_eq!(db.remove_staging().unwrap_err().kind(), ErrorKind::Corrupt);
    // A KVS that is dropped takes its damage along.
    db.drop_kvs("a").unwrap();
    assert_eq!(db.stats().damaged, Vec::<String>::new());
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    kvs.put(key(100), b"w").unwrap();
    db.remove_staging().unwrap();
    db.close().unwrap();
}

#[test]
fn damaged_value_costs_itself_alone() {
    let devices = in_memory("the-", [256 << 10, 4 << 20, 4 << 20]);
    let db = Kvdb::create_on(devices.clone(), test_options(tiny_tuning())).unwrap();
    let kvss = ["a", "b"].map(|name| db.create_kvs(name, Policy::default()).unwrap());
    let mut oracle = Oracle::new();
    put(&kvss, 0..300, &mut oracle);
    let victim = (0, key(77));
    kvss[0].put(&victim.1, [b"victim ", &[0xa5; 200][..]].concat()).unwrap();
    oracle.remove(&victim);
    db.compact(CompactRequest::Full).unwrap();
    db.close().unwrap();
    let capacity = &*devices.capacity;
    let bytes = crate::common::bytes_of(capacity);
    let places = bytes.windows(7).enumerate().filter(|(_, it)| it == b"victim ");
    for (at, _) in places {
        edit(capacity, at as u64 / 512, |lba| lba[at % 512] ^= 1);
    }
    let db = Kvdb::open_on(devices, test_options(tiny_tuning())).unwrap();
    let kvss = ["a", "b"].map(|name| db.kvs(name).unwrap());
    assert_eq!(kvss[0].get(&victim.1).unwrap_err().kind(), ErrorKind::Corrupt);
    // Other keys of the leaf are written over and over: garbage that would be collected.
    let other = |n: &u32| key(*n) != victim.1;
    for round in 0..6 {
        for n in (0..300).filter(other) {
            assert_eq!(put(&kvss, n + 600 * round..n + 600 * round + 1, &mut oracle).len(), 0);
        }
        db.settle().unwrap();
    }
    db.compact(CompactRequest::Full).unwrap();
    let stats = db.stats();
    let [damage] = &stats.damaged[..] else { panic!("{:?}", stats.damaged) };
    assert!(damage.contains("KVS 'a'") && damage.contains("not collected"), "{damage}");
    assert_eq!(stats.stopped, None);
    assert_eq!(read(&kvss, &oracle), BTreeMap::new());
    assert_eq!(kvss[0].get(&victim.1).unwrap_err().kind(), ErrorKind::Corrupt);
    // A new value cures it.
    assert_eq!(put(&kvss, 77..78, &mut oracle).len(), 0);
    assert_eq!(read(&kvss, &oracle), BTreeMap::new());
    db.close().unwrap();
}
