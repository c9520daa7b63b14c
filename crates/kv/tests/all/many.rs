//! Many KVSs in one KVDB, most of which are written to seldom: their space and DRAM are bounded, small steps of
//! maintenance run together, and no crash tells them apart.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Devices, OnDevices};
use crate::common::{in_memory, small_tuning, test_options};
use esker_base::units::to_usize;
use esker_base::{ErrorKind, Rng};
use esker_device::{Device, MemoryDevice};
use esker_kv::{KvError, Kvdb, Kvs, Options, Policy, Stats, Tuning};
use esker_sim::{CrashRecorder, Plan};
use xxhash_rust::xxh3::xxh3_64;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A budget of 16 MiB, but for blocks of a size that memory has room for.
fn options() -> Options {
    let tuning = Tuning { block_bytes: 2 * MIB, ..Tuning::for_budget(16 * MIB) };
    test_options(tuning).with(|set| set.memory_bytes = 16 * MIB)
}

fn create(db: &Kvdb, count: usize) -> Vec<Kvs> {
    let create = |n| db.create_kvs(&format!("kvs-{n}"), Policy::default()).unwrap();
    (0..count).map(create).collect()
}

fn kvsets(stats: &Stats) -> usize {
    stats.kvss.iter().map(|kvs| kvs.root_kvsets + kvs.leaf_kvsets).sum()
}

fn used_bytes(stats: &Stats) -> u64 {
    stats.classes.iter().map(|class| class.used_bytes).sum()
}

type Model = BTreeMap<(usize, u64), Vec<u8>>;

fn assert_holds(db: &Kvdb, model: &Model, kvss: usize) {
    for n in 0..kvss {
        let kvs = db.kvs(&format!("kvs-{n}")).unwrap();
        let mut cursor = kvs.cursor().unwrap();
        for ((_, key), value) in model.range((n, 0)..(n + 1, 0)) {
            let found = cursor.next().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert_eq!(found, Some((key.to_be_bytes().to_vec(), value.clone())), "kvs-{n}");
            assert_eq!(kvs.get(key.to_be_bytes()).unwrap().as_deref(), Some(&value[..]), "kvs-{n}");
        }
        assert!(cursor.next().unwrap().is_none(), "kvs-{n}");
    }
}

#[test]
fn space_and_dram_of_many_kvss_are_bounded() {
    const KVSS: usize = 400;
    const HOT: usize = 4;
    let devices = in_memory("", [8 * MIB, 256 * MIB, 256 * MIB]);
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvss = create(&db, KVSS);
    let (mut model, mut rng) = (Model::new(), Rng::new(3));
    for round in 0..10 {
        for _ in 0..20_000 {
            // One write in fifty goes to any of the KVSs.
            let (some, keys) = if rng.chance(1, 50) { (KVSS, 60) } else { (HOT, 4000) };
            let (kvs, key) = (to_usize(rng.below(some as u64)), rng.below(keys));
            let mut value = vec![0; 60];
            rng.fill(&mut value);
            kvss[kvs].put(key.to_be_bytes(), &value).unwrap();
            model.insert((kvs, key), value);
        }
        let stats = db.stats();
        let (kvsets, used) = (kvsets(&stats), used_bytes(&stats));
        let structures = stats.dram.structure_bytes;
        println!("{round}: {kvsets} kvsets, {used} bytes, {structures} bytes of structures");
        assert!(kvsets <= 5 * KVSS, "{round}: {kvsets} kvsets");
        // Of each KVS some pages of keys and values; the log; and the live bytes of those that are busy.
        let busy = 4000 * HOT as u64 * (8 + 60 + 16);
        assert!(used <= KVSS as u64 * 40 * KIB + 8 * 2 * MIB + 2 * busy, "{round}: {used} bytes");
        assert!(structures <= KVSS as u64 * 8 * KIB, "{round}: {structures} bytes");
    }
    assert_holds(&db, &model, KVSS);
    db.settle().unwrap();
    assert_holds(&db, &model, KVSS);
    let written = db.stats().maintenance;
    assert!(written.spills > 0 && written.compactions > 0 && written.young_blocks > 0);
    drop(kvss);
    db.close().unwrap();
    let report = Kvdb::check_on(&devices).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let db = Kvdb::open_on(devices, options()).unwrap();
    assert_holds(&db, &model, KVSS);
}

#[test]
fn few_values_of_many_kvss_share_a_block_and_leave_the_log() {
    let db = Kvdb::create_on(in_memory("", [8 * MIB, 64 * MIB, 64 * MIB]), options()).unwrap();
    let kvss = create(&db, 200);
    for n in 0..2000u64 {
        kvss[0].put(n.to_be_bytes(), [7; 100]).unwrap();
        if n.is_multiple_of(5) {
            kvss[1 + to_usize(n % 199)].put(n.to_be_bytes(), [8; 100]).unwrap();
        }
    }
    let blocks = |db: &Kvdb| db.stats().maintenance.young_blocks;
    let before = blocks(&db);
    db.ingest().unwrap();
    assert_eq!(blocks(&db), before + 1);
    let value = |n: u64| kvss[1 + to_usize(n % 199)].get(n.to_be_bytes()).unwrap();
    assert!((0..2000).step_by(5).all(|n| value(n).as_deref() == Some(&[8; 100][..])));
}

#[test]
fn small_steps_of_many_kvss_run_together() {
    let db = Kvdb::create_on(in_memory("", [8 * MIB, 64 * MIB, 64 * MIB]), options()).unwrap();
    let kvss = create(&db, 100);
    for n in 0..4u64 {
        kvss.iter().for_each(|kvs| kvs.put(n.to_be_bytes(), [7; 100]).unwrap());
        db.ingest().unwrap();
    }
    let before = db.stats();
    assert_eq!((kvsets(&before), before.maintenance.compactions), (400, 0));
    assert!(db.step().unwrap());
    let after = db.stats();
    assert_eq!((kvsets(&after), after.maintenance.compactions), (100, 100));
    assert!(!db.step().unwrap());
}

#[test]
fn a_kvset_of_a_few_keys_takes_two_pages() {
    let db = Kvdb::create_on(in_memory("", [8 * MIB, 64 * MIB, 64 * MIB]), options()).unwrap();
    let kvss = create(&db, 100);
    let before = used_bytes(&db.stats());
    kvss.iter().for_each(|kvs| kvs.put(b"key", b"in the page").unwrap());
    db.ingest().unwrap();
    assert_eq!(used_bytes(&db.stats()) - before, 100 * 8 * KIB);
}

#[test]
fn more_kvss_than_the_budget_is_enough_for_are_refused() {
    let devices = in_memory("", [8 * MIB, 64 * MIB, 64 * MIB]);
    let with = |memory_bytes| options().with(|set| set.memory_bytes = memory_bytes);
    let db = Kvdb::create_on(devices.clone(), with(20 * MIB)).unwrap();
    let kvss = create(&db, 640);
    let full = db.create_kvs("another", Policy::default()).map(drop).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Invalid);
    assert_eq!(
        full.to_string(),
        "641 KVSs are more than the 640 that a memory budget of 20971520 bytes is enough for: open the KVDB with \
         at least 21004288 bytes, or keep several of them in one, told apart by a prefix of their keys"
    );
    db.drop_kvs("kvs-7").unwrap();
    db.create_kvs("another", Policy::default()).unwrap();
    drop(kvss);
    db.close().unwrap();
    let opened = Kvdb::open_on(devices.clone(), with(16 * MIB));
    assert!(matches!(opened, Err(KvError::Options(_))));
    Kvdb::open_on(devices.clone(), with(20 * MIB)).unwrap().close().unwrap();
    assert!(Kvdb::check_on(&devices).unwrap().findings.is_empty());
}

// ---- crashes -------------------------------------------------------------------------------------

const FEW: usize = 100;

/// Content that a KVDB shows, as a number.
fn shown(db: &Kvdb) -> u64 {
    let mut shown = 0;
    for n in 0..FEW {
        let Ok(kvs) = db.kvs(&format!("kvs-{n}")) else { continue };
        let mut cursor = kvs.cursor().unwrap();
        while let Some((key, value)) = cursor.next().unwrap() {
            shown ^= fingerprint(n, key, value);
            assert_eq!(kvs.get(key).unwrap().as_deref(), Some(value));
        }
    }
    shown
}

fn fingerprint(kvs: usize, key: &[u8], value: &[u8]) -> u64 {
    xxh3_64(&[&[u8::try_from(kvs).unwrap()], key, &[0], value].concat())
}

#[test]
fn no_crash_while_small_steps_run_together_loses_what_was_promised() {
    let tuning = Tuning { allocation_bytes: 16 << 10, spill_bytes: 64 << 10, ..small_tuning() };
    let options = test_options(tuning);
    let recorder = CrashRecorder::new();
    let memory = |name: &str, bytes: u64| -> Arc<dyn Device> {
        recorder.attach(Arc::new(MemoryDevice::new(name, bytes, 512)))
    };
    let devices = Devices {
        manifest: memory("manifest", MIB),
        capacity: memory("capacity", 8 * MIB),
        staging: Some(memory("staging", 8 * MIB)),
    };
    let db = Kvdb::create_on(devices, options.clone()).unwrap();
    let kvss = create(&db, FEW);
    let (mut model, mut rng) = (BTreeMap::new(), Rng::new(11));
    let mut states = vec![0];
    recorder.mark(0);
    for round in 0..24u64 {
        for (n, kvs) in kvss.iter().enumerate() {
            let (key, value) = (rng.below(20).to_be_bytes(), [round.to_le_bytes(); 8].concat());
            let mut state = *states.last().unwrap();
            if let Some(old) = model.insert((n, key), value.clone()) {
                state ^= fingerprint(n, &key, &old);
            }
            kvs.put(key, &value).unwrap();
            states.push(state ^ fingerprint(n, &key, &value));
        }
        db.ingest().unwrap();
        recorder.mark(states.len() as u64 - 1);
        while db.step().unwrap() {}
    }
    let done = db.stats().maintenance;
    assert!(done.spills > 200 && done.compactions > 200 && done.young_blocks > 0, "{done:?}");
    std::mem::forget(db);
    let plan = Plan { all_subsets: 2, singles: 2, random_subsets: 1, ..Plan::default() };
    let mut images = 0;
    for image in recorder.history().images(&plan).step_by(61) {
        let Some(promised) = image.marks().last().copied() else { continue };
        let [manifest, capacity, staging] = [0, 1, 2].map(|n| image.device(n));
        let devices = Devices { manifest, capacity, staging: Some(staging) };
        let db = Kvdb::open_on(devices, options.clone())
            .unwrap_or_else(|error| panic!("{error}\nimage: {image}"));
        let shown = shown(&db);
        let state = states.iter().rposition(|state| *state == shown);
        assert!(state.is_some_and(|state| state as u64 >= promised), "{state:?}\nimage: {image}");
        images += 1;
    }
    println!("{images} crash images, {done:?}");
    assert!(images > 200, "only {images} images");
}
