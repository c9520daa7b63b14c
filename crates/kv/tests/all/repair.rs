//! Repair: whatever is damaged, each value that comes out was once put under its key; and keys that the report does
//! not name as lost or doubtful are as they were.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Devices, OnDevices};
use crate::common::{edit, in_memory, remains, test_options, tiny_tuning, used};
use esker_base::units::to_usize;
use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount, Rng};
use esker_device::{MemoryDevice, Port};
use esker_kv::{
    Compression, Kvdb, KvsOptions, Location, ManifestState, MediaClass, Medium, Options, Policy,
    Remains, RepairReport,
};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Values in the last KVS live so long; a write takes a millisecond.
const TTL_MS: u64 = 1000;
/// When a part of that has expired, and nothing else.
const LATER_MS: u64 = 1350;
/// A key in the last frame of the log: when that one is damaged, it looks like a write that was torn.
const LAST: &[u8] = b"the last key";
const LBA: u64 = 512;

fn options() -> Options {
    test_options(tiny_tuning())
}

/// Those of each KVS: one that compresses, one whose values expire and all lie on capacity.
fn kvs_options() -> [KvsOptions; 3] {
    [
        KvsOptions::default(),
        KvsOptions::default().compression(Compression::Auto),
        KvsOptions::from(Policy::CAPACITY_ONLY).ttl_ms(TTL_MS),
    ]
}

fn devices() -> Devices {
    in_memory("the-", [128 << 10, 2 << 20, 1 << 20])
}

type Key = (usize, Vec<u8>);

/// Everything that was ever put under each key, the last version at the end; `None` is a delete. And when
/// each value was put, in milliseconds.
struct History(BTreeMap<Key, Vec<Option<Vec<u8>>>>, BTreeMap<(Key, Vec<u8>), Vec<u64>>);

impl History {
    fn now(&self, key: &Key) -> Option<&Vec<u8>> {
        self.0.get(key).and_then(|versions| versions.last()).and_then(Option::as_ref)
    }

    /// Whether a key with this value may be there at `LATER_MS`, and whether it may be gone.
    fn later(&self, key: &Key, value: &[u8]) -> (bool, bool) {
        let Some(puts_ms) = self.1.get(&(key.clone(), value.to_vec())) else {
            return (true, false);
        };
        let is_there = |put_ms: &u64| key.0 != 2 || put_ms + TTL_MS > LATER_MS;
        (puts_ms.iter().any(is_there), !puts_ms.iter().all(is_there))
    }
}

/// A KVDB with some of everything: leaves, root, log, deletes of keys, prefixes and ranges, short, long and
/// compressed values.
fn build(seed: u64, writes: usize) -> (Devices, History) {
    let devices = devices();
    let options = options();
    let clock = options.clock.clone();
    let db = Kvdb::create_on(devices.clone(), options).unwrap();
    let kvss = [0, 1, 2].map(|n: usize| db.create_kvs(NAMES[n], kvs_options()[n]).unwrap());
    let mut rng = Rng::new(seed);
    let mut history = History(BTreeMap::new(), BTreeMap::new());
    for n in 0..writes {
        clock.advance(Duration::from_millis(1));
        let which = usize::try_from(rng.below(3)).unwrap();
        let key = format!("key {:03} {}", rng.below(150), "-".repeat(40)).into_bytes();
        let size = if rng.chance(1, 4) { rng.below(17) } else { rng.below(500) };
        let mut value = vec![b'.'; usize::try_from(size).unwrap()];
        // Every other one compresses.
        let random = if n % 2 == 0 { value.len() } else { value.len() / 3 };
        rng.fill(&mut value[..random]);
        if rng.chance(1, 50) {
            // Of ten keys, or of one.
            let prefix = &key[..if rng.chance(1, 2) { 6 } else { 7 }];
            // Or of those up to nine keys behind.
            let upper = [&prefix[..6], b"9~"].concat();
            let is_range = rng.chance(1, 2);
            if is_range {
                kvss[which].delete_range(&key[..]..&upper[..]).unwrap();
            } else {
                kvss[which].delete_prefix(prefix).unwrap();
            }
            let is_covered = |other: &Vec<u8>| {
                if is_range { (&key..&upper).contains(&other) } else { other.starts_with(prefix) }
            };
            let covered = history.0.iter_mut().filter(|(key, _)| key.0 == which);
            let covered = covered.filter(|(key, _)| is_covered(&key.1));
            covered.for_each(|(_, versions)| versions.push(None));
        }
        let value = (!rng.chance(1, 8)).then_some(value);
        match &value {
            Some(value) => kvss[which].put(&key, value).unwrap(),
            None => kvss[which].delete(&key).unwrap(),
        }
        let key = (which, key);
        if let Some(value) = &value {
            history.1.entry((key.clone(), value.clone())).or_default().push(n as u64 + 1);
        }
        history.0.entry(key).or_default().push(value);
        if n % 40 == 39 {
            db.settle().unwrap();
        }
    }
    db.sync().unwrap();
    kvss[0].put(LAST, b"").unwrap();
    db.sync().unwrap();
    assert_eq!(clock.unix_time().as_millis(), u128::from(writes as u64));
    let m = db.stats().maintenance;
    assert!(m.ingests > 3 && m.spills > 1, "{m:?}");
    let stats = db.stats();
    assert!(stats.kvss[1].compression_ratio() > 1.05, "{:?}", stats.kvss);
    assert!(stats.operations.prefix_deletes > 2, "{:?}", stats.operations);
    assert!(stats.operations.range_deletes > 2, "{:?}", stats.operations);
    assert!(stats.kvss[2].leaf_kvsets > 0, "{:?}", stats.kvss);
    std::mem::forget(db); // as a crash leaves it, the log not ingested
    (devices, history)
}

/// Which KVS it was, by its name in a repaired KVDB.
fn found_as(name: &str) -> usize {
    match name {
        // Ids go on behind those that the KVDB's founder may have given out. The first is the log's, and each KVS
        // has one for its first leaf.
        "a" | "kvs-4098" => 0,
        "b" | "kvs-4100" => 1,
        "c" | "kvs-4102" => 2,
        other => panic!("a KVS {other}"),
    }
}

/// Repairs the remains. Returns the report, and the content of the new KVDB by the old names, before anything
/// expires.
fn repair(remains: &Remains, history: &History) -> (RepairReport, BTreeMap<Key, Vec<u8>>) {
    let into = devices();
    let into = Devices { capacity: Arc::new(MemoryDevice::new("new", 16 << 20, 512)), ..into };
    let report = Kvdb::repair_on(remains, &into, options()).unwrap();
    assert_eq!(Kvdb::check_on(&into).unwrap().findings, Vec::<String>::new());
    let options = options();
    let clock = options.clock.clone();
    let db = Kvdb::open_on(into, options).unwrap();
    let mut found = BTreeMap::new();
    for kvs in &report.kvss {
        let which = found_as(&kvs.name);
        let mut cursor = db.kvs(&kvs.name).unwrap().cursor().unwrap();
        let mut count = 0;
        while let Some((key, value)) = cursor.next().unwrap() {
            found.insert((which, key.to_vec()), value.to_vec());
            count += 1;
        }
        assert_eq!(count, kvs.recovered);
        if !kvs.name.starts_with("kvs-") {
            assert_eq!(db.kvs(&kvs.name).unwrap().options().unwrap(), kvs_options()[which]);
        }
    }
    // Each value goes when it would have gone; but only pages that the manifest names surely say when.
    clock.advance(Duration::from_millis(LATER_MS));
    let mut gone = 0;
    for kvs in &report.kvss {
        let which = found_as(&kvs.name);
        let kvs = db.kvs(&kvs.name).unwrap();
        for (key, value) in found.iter().filter(|(key, _)| key.0 == which) {
            let is_there = kvs.get(&key.1).unwrap().is_some();
            let (may_be, may_be_gone) = history.later(key, value);
            let is_right = if is_there { may_be } else { may_be_gone };
            let is_told = report.kvss.iter().any(|it| it.name == kvs.name() && it.uncertain > 0);
            assert!(is_right || is_there && is_told, "{key:?} there: {is_there}");
            gone += usize::from(!is_there);
        }
    }
    assert!(gone > 0 || !report.is_sound(), "nothing has expired");
    (report, found)
}

/// Checks the invariants of any repair; returns how many keys are not as they were.
fn judge(
    what: &str,
    history: &History,
    report: &RepairReport,
    found: &BTreeMap<Key, Vec<u8>>,
) -> usize {
    for (key, value) in found.iter().filter(|(key, _)| key.1 != LAST) {
        let once = history.0.get(key).is_some_and(|it| it.iter().flatten().any(|v| v == value));
        assert!(once, "{what}: a value that never was, at {key:?}");
    }
    // A class without its header may have lost the log, too.
    let of_log = ["log", "frame", "class header"];
    let log_is_whole = !report.findings.iter().any(|f| of_log.iter().any(|it| f.contains(it)));
    let mut wrong = 0;
    for key in history.0.keys() {
        if found.get(key) == history.now(key) {
            continue;
        }
        wrong += 1;
        assert!(!report.is_sound(), "{what}: reported as sound, and {key:?} is not");
        let kvs = report.kvss.iter().find(|kvs| kvs.name == NAMES[key.0]);
        let Some(kvs) = kvs else { continue };
        let is_named = kvs.lost.contains(&key.1) || kvs.old.contains(&key.1);
        let told = is_named || kvs.lost_ranges.iter().any(|r| r.contains(&key.1));
        let expected = report.manifest != ManifestState::Whole || !log_is_whole;
        assert!(told || expected, "{what}: {key:?} is wrong, and nothing says so: {report:#?}");
        // A key that is known to be lost is not there in an older version.
        assert!(!kvs.lost.contains(&key.1) || !found.contains_key(key), "{what}: {key:?}");
    }
    wrong
}

/// Writes and discards so far.
fn changes(devices: &Devices) -> u64 {
    let staging = devices.staging.clone().unwrap();
    [&devices.manifest, &devices.capacity, &staging]
        .map(|device| device.stats().writes + device.stats().discards)
        .iter()
        .sum()
}

#[test]
fn sound_kvdb_is_repaired_to_itself() {
    for seed in 1..4 {
        let (devices, history) = build(seed, 700);
        let before = changes(&devices);
        let (report, found) = repair(&remains(&devices), &history);
        assert!(report.is_sound() && report.caveats.is_empty(), "{report:#?}");
        assert_eq!(judge("sound", &history, &report, &found), 0);
        assert!(found.contains_key(&(0, LAST.to_vec())));
        assert_eq!(before, changes(&devices), "the original is not written to");
        assert_eq!(report.kvss.iter().map(|kvs| kvs.uncertain).sum::<u64>(), 0);
    }
}

#[test]
fn flipped_and_zeroed_lbas_cost_what_they_held_and_are_told() {
    let (devices, history) = build(5, 700);
    let all = history.0.len();
    let (mut damaging, mut images, mut worst) = (0, 0, 0);
    let staging = devices.staging.clone().unwrap();
    for device in [&devices.capacity, &staging] {
        for lba in used(&**device).into_iter().step_by(23) {
            for zero in [false, true] {
                let mut saved = Vec::new();
                edit(&**device, lba, |bytes| {
                    saved = bytes.to_vec();
                    if zero {
                        bytes.fill(0);
                    } else {
                        bytes[usize::try_from(lba * 31 % LBA).unwrap()] ^= 0x20;
                    }
                });
                let what = format!("{} LBA {lba}, zero {zero}", device.name());
                let (report, found) = repair(&remains(&devices), &history);
                let wrong = judge(&what, &history, &report, &found);
                worst = worst.max(wrong);
                images += 1;
                damaging += usize::from(!report.is_sound());
                edit(&**device, lba, |bytes| bytes.copy_from_slice(&saved));
            }
        }
    }
    println!("{images} damaged images, {damaging} not sound, at most {worst} of {all} keys lost");
    assert!(damaging > 10, "{damaging} of {images}");
    // A page of keys.
    assert!(worst < all / 3, "{worst} of {all} keys were lost to one LBA");
}

#[test]
fn every_damage_of_the_manifest_leaves_most_and_is_told() {
    let (devices, history) = build(6, 700);
    let (all, mut worst, mut states) = (history.0.len(), 0, BTreeMap::new());
    for lba in used(&*devices.manifest).into_iter().step_by(3) {
        let mut saved = Vec::new();
        edit(&*devices.manifest, lba, |bytes| {
            saved = bytes.to_vec();
            bytes[usize::try_from(lba * 13 % 64).unwrap()] ^= 0x11;
        });
        let (report, found) = repair(&remains(&devices), &history);
        let what = format!("manifest LBA {lba}");
        let open = Kvdb::open_on(devices.clone(), options().with(|set| set.read_only = true));
        if open.is_err() {
            assert!(!report.is_sound(), "{what}");
        }
        worst = worst.max(judge(&what, &history, &report, &found));
        let alive = history.0.keys().filter(|key| history.now(key).is_some());
        let missing = alive.filter(|key| !found.contains_key(key)).count();
        assert_eq!(missing, 0, "{what}: {report:#?}");
        *states.entry(format!("{:?}", report.manifest)).or_insert(0) += 1;
        edit(&*devices.manifest, lba, |bytes| bytes.copy_from_slice(&saved));
    }
    println!("{states:?}, at most {worst} of {all} keys not as they were");
    assert!(states.contains_key("Damaged"), "{states:?}");
}

#[test]
fn whole_regions_of_the_manifest_may_go() {
    let (devices, history) = build(7, 700);
    let region_lbas = devices.manifest.geometry().capacity.0 / 2;
    let mut port = Port::open(&*devices.manifest, 1).unwrap();
    let region = |n: u64| Lba(n * region_lbas);
    let room = || AlignedBuf::zeroed(to_usize(region_lbas * LBA));
    let saved = [0, 1].map(|n| port.read(region(n), room()).unwrap());
    for lost in [&[0][..], &[1], &[0, 1]] {
        for fill in [0, 0xa5] {
            for (n, saved) in (0..).zip(&saved) {
                let mut bytes = saved.clone();
                if lost.contains(&n) {
                    bytes.fill(fill);
                }
                port.write(region(n), bytes, None).unwrap();
            }
            let what = format!("regions {lost:?} filled with {fill}");
            let (report, found) = repair(&remains(&devices), &history);
            let wrong = judge(&what, &history, &report, &found);
            assert!(wrong < history.0.len() / 3, "{what}: {wrong} of {}", history.0.len());
            if lost.len() == 2 {
                assert_eq!(report.manifest, ManifestState::Lost, "{what}");
                let error = Kvdb::open_on(devices.clone(), options()).map(drop).unwrap_err();
                let kind = if fill == 0 { ErrorKind::NotFound } else { ErrorKind::Corrupt };
                assert_eq!(error.kind(), kind, "{what}: {error}");
                if fill != 0 {
                    assert!(error.to_string().contains("`esker kv repair`"), "{error}");
                    let create = Kvdb::create_on(devices.clone(), options()).map(drop);
                    assert_eq!(create.unwrap_err().kind(), ErrorKind::Corrupt, "{what}");
                }
            }
        }
    }
}

#[test]
fn the_header_of_a_class_costs_nothing_and_is_told() {
    let (devices, history) = build(8, 400);
    for device in [&devices.capacity, &devices.staging.clone().unwrap()] {
        let mut saved = Vec::new();
        edit(&**device, 0, |bytes| {
            saved = bytes.to_vec();
            bytes[17] ^= 1;
        });
        let (report, found) = repair(&remains(&devices), &history);
        assert_eq!(judge(device.name(), &history, &report, &found), 0);
        assert_eq!(report.findings.len(), 1, "{report:#?}");
        assert!(report.findings[0].contains(device.name()), "{report:#?}");
        assert!(!report.findings[0].contains("esker kv repair"), "it is what was asked for");
        edit(&**device, 0, |bytes| bytes.copy_from_slice(&saved));
    }
}

/// With a manifest and without one, where nothing was ingested and where the log has no beginning any more.
#[test]
fn a_log_with_a_hole_is_salvaged_up_to_its_end() {
    for ingested in [false, true] {
        let devices = devices();
        let db = Kvdb::create_on(devices.clone(), options()).unwrap();
        let kvs = db.create_kvs("a", Policy::default()).unwrap();
        let put = |n: u8| {
            kvs.put([n], [n; 100]).unwrap();
            db.sync().unwrap();
        };
        (0..10).for_each(put);
        if ingested {
            db.ingest().unwrap();
        }
        (10..20).for_each(put);
        std::mem::forget(db);
        let staging = devices.staging.clone().unwrap();
        let lbas = used(&*staging);
        let frames = lbas.iter().copied().filter(|&lba| {
            let mut is_frame = false;
            edit(&*staging, lba, |bytes| is_frame = bytes.starts_with(b"ESKFRAME"));
            is_frame
        });
        let frames: Vec<u64> = frames.collect();
        assert_eq!(frames.len(), 20);
        for with_manifest in [true, false] {
            for (hole, &lba) in (0u8..).zip(&frames) {
                let mut saved = Vec::new();
                edit(&*staging, lba, |bytes| {
                    saved = bytes.to_vec();
                    bytes.fill(0);
                });
                let mut left = remains(&devices);
                left.manifest = left.manifest.filter(|_| with_manifest);
                let into = self::devices();
                let report = Kvdb::repair_on(&left, &into, options()).unwrap();
                let into = Kvdb::open_on(into, options()).unwrap();
                let name = &report.kvss[0].name;
                let found = into.kvs(name).unwrap();
                let there: Vec<u8> = (0..20)
                    .filter(|n| found.get([*n]).unwrap().as_deref() == Some(&[*n; 100][..]))
                    .collect();
                let what = format!("ingested {ingested}, manifest {with_manifest}, hole {hole}");
                assert!((0..20).all(|n| n == hole || there.contains(&n)), "{what}: {there:?}");
                assert!(!there.contains(&hole), "{what}: {there:?}");
                // The last frame may have been torn.
                let is_sound = with_manifest && hole == 19;
                assert_eq!(report.is_sound(), is_sound, "{what}: {report:#?}");
                edit(&*staging, lba, |bytes| bytes.copy_from_slice(&saved));
            }
        }
    }
}

#[test]
fn without_a_manifest_what_lies_on_the_media_is_found() {
    let mut exact = 0;
    let mut all = 0;
    for seed in 11..17 {
        let (devices, history) = build(seed, 700);
        let mut missing = remains(&devices);
        missing.manifest = None;
        let (report, found) = repair(&missing, &history);
        assert_eq!(report.manifest, ManifestState::Lost);
        assert!(!report.is_sound() && report.caveats.len() >= 2, "{report:#?}");
        let wrong = judge("no manifest", &history, &report, &found);
        assert!(found.contains_key(&(0, LAST.to_vec())), "the log's last frame");
        // A key that was written once is there and right.
        for (key, versions) in &history.0 {
            if versions.iter().flatten().count() == 1 && versions.len() == 1 {
                assert_eq!(found.get(key), history.now(key), "{key:?}");
            }
        }
        let lost = history.0.keys().filter(|key| history.now(key).is_some());
        assert_eq!(lost.filter(|key| !found.contains_key(key)).count(), 0, "a key that was alive");
        exact += history.0.len() - wrong;
        all += history.0.len();
    }
    println!("without a manifest, {exact} of {all} keys are exactly as they were");
    assert!(exact * 10 > all * 8, "{exact} of {all}");
}

#[test]
fn a_class_that_is_gone_takes_its_data_and_no_other() {
    let (devices, history) = build(21, 700);
    for class in MediaClass::ALL {
        let mut left = remains(&devices);
        left.classes.remove(&class);
        let (report, found) = repair(&left, &history);
        assert!(report.findings.iter().any(|f| f.contains(&class.to_string())), "{report:#?}");
        judge(&format!("without {class}"), &history, &report, &found);
    }
    // And discarded, as a drive that was formatted would be.
    for device in [&devices.capacity, &devices.staging.clone().unwrap()] {
        let count = device.geometry().capacity;
        Port::open(&**device, 1).unwrap().discard(Lba(0), LbaCount(count.0)).unwrap();
        let (report, found) = repair(&remains(&devices), &history);
        judge(device.name(), &history, &report, &found);
    }
}

#[test]
fn a_repair_takes_no_place_of_another_kvdb_and_files_of_any_length() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let plain = || Options::default().with(|set| set.tuning = options().tuning);
    let db = Kvdb::builder(Location::dir(&dir).staging(Medium::InDir))
        .options(plain())
        .create()
        .unwrap();
    let kvs = db.create_kvs("a", Policy::STAGING_ONLY).unwrap();
    for n in 0..2000u32 {
        kvs.put(n.to_be_bytes(), [u8::try_from(n % 251).unwrap(); 100]).unwrap();
    }
    db.settle().unwrap();
    let open = Location::dir(&dir).remains().map(drop);
    assert_eq!(open.unwrap_err().kind(), ErrorKind::Conflict);
    drop(kvs);
    db.close().unwrap();
    let left = Location::dir(&dir).remains().unwrap();
    let full = Kvdb::builder(&dir).options(plain()).repair(&left);
    assert_eq!(full.unwrap_err().kind(), ErrorKind::Exists);
    let path = |name: &str| dir.join(name);
    let repaired = |to: &str| {
        let into = scratch.path().join(to);
        let left = Location::dir(&dir).remains().unwrap();
        let report = Kvdb::builder(&into).options(plain()).repair(&left).unwrap();
        let into = Kvdb::builder(into).options(plain()).open().unwrap();
        let name = into.kvs_names().into_iter().next();
        let right = name.map_or(0, |name| {
            let kvs = into.kvs(&name).unwrap();
            let mut cursor = kvs.cursor().unwrap();
            let mut right = 0;
            while let Some((key, value)) = cursor.next().unwrap() {
                let n = u32::from_be_bytes(key.try_into().unwrap());
                assert!(value == [u8::try_from(n % 251).unwrap(); 100]);
                right += 1;
            }
            right
        });
        (report, right)
    };
    let (report, right) = repaired("sound");
    assert!(report.is_sound() && right == 2000, "{right} {report:?}");
    // Half of a file is gone.
    let staging = std::fs::read(path("staging.esker")).unwrap();
    std::fs::write(path("staging.esker"), &staging[..staging.len() / 2]).unwrap();
    let (report, right) = repaired("half");
    assert!(!report.is_sound() && right > 0, "{right} {report:?}");
    std::fs::write(path("staging.esker"), &staging).unwrap();
    // The manifest is empty, or gone.
    std::fs::write(path("manifest.esker"), b"").unwrap();
    let (report, right) = repaired("empty");
    assert!(report.manifest == ManifestState::Lost && right == 2000, "{right} {report:?}");
    std::fs::remove_file(path("manifest.esker")).unwrap();
    let (report, right) = repaired("gone");
    assert!(report.manifest == ManifestState::Lost && right == 2000, "{right} {report:?}");
    let nothing = Location::dir(scratch.path().join("other")).remains().map(drop);
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn manifest_costs_no_key_that_a_repair_without_it_finds() {
    let (devices, history) = build(8, 700);
    let staging = devices.staging.clone().unwrap();
    let without_manifest = |remains: &Remains| {
        let mut remains = remains.clone();
        remains.manifest = None;
        remains
    };
    let judge_both = |what: &str, remains: &Remains| {
        let (report, found) = repair(remains, &history);
        judge(what, &history, &report, &found);
        let (_, without) = repair(&without_manifest(remains), &history);
        let mut filled = 0;
        for (key, _) in without.iter().filter(|(key, _)| history.now(key).is_some()) {
            assert!(found.contains_key(key), "{what}: {key:?} is found without a manifest alone");
            filled += 1;
        }
        for kvs in report.kvss.iter().filter(|kvs| kvs.is_complete) {
            let which = found_as(&kvs.name);
            let of_kvs = history.0.keys().filter(|key| key.0 == which);
            for key in of_kvs.filter(|key| found.get(key) != history.now(key)) {
                let is_named = kvs.lost.contains(&key.1) || kvs.old.contains(&key.1);
                assert!(is_named, "{what}: {key:?} is lost, and counts as none: {report:#?}");
            }
        }
        filled
    };
    let mut filled = 0;
    for device in [&devices.capacity, &staging] {
        for lba in used(&**device).into_iter().step_by(41) {
            let at = to_usize(lba * 31 % LBA);
            edit(&**device, lba, |bytes| bytes[at] ^= 0x20);
            filled += judge_both(&format!("{} LBA {lba}", device.name()), &remains(&devices));
            edit(&**device, lba, |bytes| bytes[at] ^= 0x20);
        }
    }
    assert!(filled > 0);
    // Whole classes: gone, and there but empty.
    for class in [MediaClass::Staging, MediaClass::Capacity] {
        let mut left = remains(&devices);
        left.classes.remove(&class);
        judge_both(&format!("{class} gone"), &left);
        let mut left = remains(&devices);
        left.classes.get_mut(&class).unwrap().1 = 0;
        let empty = Arc::new(MemoryDevice::new("empty", 2 << 20, u32::try_from(LBA).unwrap()));
        left.classes.insert(class, (empty, 0));
        judge_both(&format!("{class} empty"), &left);
    }
}
