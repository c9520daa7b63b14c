//! Opening a KVDB that was killed: the content of its log is there, in one round or in several, read from
//! segments in one piece or in many, before maintenance makes kvsets of it and after; and how long it takes,
//! a time for each GiB of log to replay:
//!
//! `cargo test --release -p esker-kv --test all recovery:: -- --ignored --nocapture`

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::shaped::ShapedDevice;
use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options};
use esker_base::units::to_usize;
use esker_base::{Clock, ErrorKind, Rng};
use esker_device::Device;
use esker_kv::{
    Batch, Kvdb, Location, Maintenance, MediaClass, Medium, Options, Place, Policy, Tuning,
};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};

const GIB: u64 = 1 << 30;
const ROUNDS: usize = 5;

/// A budget of 2 GiB, of which the log is as long as a budget makes it; nothing is ingested unasked.
fn options() -> Options {
    Options::default().with(|set| {
        set.memory_bytes = 2 * GIB;
        set.maintenance = Maintenance::Manual;
    })
}

/// Fills nine tenths of a memtable in random order, of so many KVSs in turn, and ends as a kill does; returns
/// the bytes of the log, in which all of it is.
fn fill(path: &Path, kvss: usize, value_size: usize) -> u64 {
    let db = Kvdb::builder(Location::dir(path).staging(Medium::InDir))
        .options(options())
        .create()
        .unwrap();
    let named = (0..kvss).map(|n| db.create_kvs(&n.to_string(), Policy::default()).unwrap());
    let kvss: Vec<_> = named.collect();
    let full = Tuning::for_budget(2 * GIB).memtable_bytes;
    let mut rng = Rng::new(1);
    let mut value = vec![0; value_size];
    while db.stats().dram.memtable_bytes < full / 10 * 9 {
        for kvs in kvss.iter().cycle().take(1024) {
            rng.fill(&mut value);
            let key = rng.below(u64::MAX).to_be_bytes();
            kvs.put(key, &value).unwrap();
        }
    }
    db.sync().unwrap();
    assert_eq!(db.stats().maintenance.ingests, 0);
    db.stats().device_written_bytes
}

/// Processor time of this thread in seconds, in the kernel and out of it; 0 where the system does not say.
fn cpu_seconds() -> f64 {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = said.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_nanos(ns).as_secs_f64()
}

#[test]
#[ignore = "measures: see the top of the file"]
fn opening_after_a_kill() {
    let clock = Clock::real();
    for (kvss, value_size) in [(1, 100), (1, 1000), (1, 8000), (16, 100), (16, 1000)] {
        let mut rounds = [(0.0, 0.0, 0); ROUNDS].map(|_| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("db");
            let bytes = fill(&path, kvss, value_size);
            let (began, cpu_began) = (clock.now(), cpu_seconds());
            let db = Kvdb::builder(&path).options(options()).open().unwrap();
            let (seconds, cpu) =
                (clock.now().since(began).as_secs_f64(), cpu_seconds() - cpu_began);
            assert!(db.stats().dram.memtable_bytes > bytes / 4, "the log was replayed");
            (seconds, cpu, bytes)
        });
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (seconds, _, bytes) = rounds[ROUNDS / 2];
        rounds.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (_, cpu, _) = rounds[ROUNDS / 2];
        #[allow(clippy::cast_precision_loss)] // far below 2^52
        let gib = bytes as f64 / GIB as f64;
        println!(
            "{kvss} KVS, values of {value_size} bytes: {:.0} MiB of log in {:.0} ms, {:.2} s per GiB; {:.2} s of a \
             processor per GiB",
            gib * 1024.0,
            seconds * 1000.0,
            seconds / gib,
            cpu / gib
        );
    }
}

/// Content by puts and deletes, by KVS and key.
type Oracle = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

const KVSS: [&str; 3] = ["a", "b", "c"];

/// Keys that begin alike for more than eight bytes, and a few that do not.
fn log_key(n: u64) -> Vec<u8> {
    let begin = if n < 5 { "other" } else { "all-of-them-begin-alike" };
    format!("{begin}-{n:03}").into_bytes()
}

/// Blank devices that take so many bytes in one command.
fn devices(largest: u32) -> Devices {
    let device = |name: &str, bytes: u64| -> Arc<dyn Device> {
        ShapedDevice::new(name, bytes, 512, |geometry| geometry.max_transfer_size = largest)
    };
    Devices {
        manifest: device("manifest", 1 << 20),
        capacity: device("capacity", 16 << 20),
        staging: Some(device("staging", 8 << 20)),
    }
}

/// A log of some hundred KiB with all that a log can hold, and no kvset.
fn write_log(devices: &Devices, options: &Options) -> Oracle {
    let db = Kvdb::create_on(devices.clone(), options.clone()).unwrap();
    let kvss = KVSS.map(|name| db.create_kvs(name, Policy::default()).unwrap());
    kvss[2].set_ttl_ms(Some(1_000_000)).unwrap();
    let (mut rng, mut oracle) = (Rng::new(5), Oracle::new());
    let index = |n: u64| usize::try_from(n).unwrap();
    for step in 0..3000 {
        let key = log_key(rng.below(400));
        let which = index(rng.below(3));
        let mut value = vec![0; index(rng.below(300))];
        rng.fill(&mut value);
        match rng.below(100) {
            0 => {
                let prefix = &key[..key.len() - 1];
                kvss[which].delete_prefix(prefix).unwrap();
                oracle.retain(|(kvs, key), _| *kvs != which || !key.starts_with(prefix));
            }
            1..15 => {
                kvss[which].delete(&key).unwrap();
                oracle.remove(&(which, key));
            }
            15..20 => {
                let mut batch = Batch::new();
                for (number, kvs) in kvss.iter().enumerate() {
                    batch.put(kvs, &key, &value);
                    oracle.insert((number, key.clone()), value.clone());
                }
                db.write(&batch).unwrap();
            }
            _ => {
                kvss[which].put(&key, &value).unwrap();
                oracle.insert((which, key), value);
            }
        }
        if step % 50 == 0 {
            db.sync().unwrap();
        }
    }
    db.sync().unwrap();
    assert_eq!(db.stats().maintenance.ingests, 0);
    std::mem::forget(db);
    oracle
}

fn content(db: &Kvdb) -> Oracle {
    let mut found = Oracle::new();
    for (which, name) in KVSS.iter().enumerate() {
        let mut cursor = db.kvs(name).unwrap().cursor().unwrap();
        while let Some((key, value)) = cursor.next().unwrap() {
            found.insert((which, key.to_vec()), value.to_vec());
        }
    }
    found
}

/// Reads a KVDB in every way there is.
fn read_all(db: &Kvdb, oracle: &Oracle) {
    assert_eq!(&content(db), oracle);
    let mut rng = Rng::new(3);
    for (which, name) in KVSS.iter().enumerate() {
        let kvs = db.kvs(name).unwrap();
        let of_kvs = oracle.iter().filter(|((owner, _), _)| *owner == which);
        let rows: Vec<(&[u8], &[u8])> =
            of_kvs.map(|((_, key), value)| (&key[..], &value[..])).collect();
        let mut cursor = kvs.cursor().unwrap();
        cursor.seek_to_last().unwrap();
        for row in rows.iter().rev() {
            assert_eq!(cursor.prev().unwrap(), Some(*row));
        }
        assert_eq!(cursor.prev().unwrap(), None);
        // Keys that are there, that were, that never were; and such as begin like them or not.
        let mut keys: Vec<Vec<u8>> = (0..400).map(log_key).collect();
        keys.extend(
            [&b"a"[..], b"all-of-them-begin-alike", b"all-of-them-c", b"z"].map(<[u8]>::to_vec),
        );
        let many = kvs.get_many(&keys).unwrap();
        for (key, one) in keys.iter().zip(many) {
            let at = rows.partition_point(|(row, _)| *row < &key[..]);
            let found = rows.get(at).filter(|(row, _)| row == key);
            assert_eq!(one.as_deref(), found.map(|(_, value)| *value));
            assert_eq!(kvs.get(key).unwrap(), one);
            cursor.seek(key).unwrap();
            if rng.below(2) == 0 {
                // There, back, and there again.
                assert_eq!(cursor.next().unwrap(), rows.get(at).copied());
                if at < rows.len() {
                    assert_eq!(cursor.prev().unwrap(), rows.get(at).copied());
                    assert_eq!(cursor.next().unwrap(), rows.get(at).copied());
                }
            } else {
                assert_eq!(cursor.prev().unwrap(), at.checked_sub(1).map(|at| rows[at]));
            }
        }
        let mut within = kvs.cursor().unwrap().prefix(b"all-of-them-begin-alike-01").unwrap();
        for (row, value) in
            rows.iter().filter(|(row, _)| row.starts_with(b"all-of-them-begin-alike-01"))
        {
            assert_eq!(within.next().unwrap(), Some((*row, *value)));
        }
        assert_eq!(within.next().unwrap(), None);
    }
}

#[test]
fn log_is_replayed_in_one_round_or_in_several() {
    // Commands of a few LBAs, and of less than a frame, and of a whole segment.
    for largest in [1024, 4096, 1 << 20] {
        // In few segments the last round is left to maintenance, in many it is ingested, too.
        for (block_bytes, many) in [(64 << 10, true), (1 << 20, false)] {
            let large = Tuning { memtable_bytes: 4 << 20, block_bytes, ..small_tuning() };
            for (memtable_bytes, rounds) in
                [(4 << 20, 0..=0), (64 << 10, 3..=50), (4096, 20..=5000)]
            {
                let devices = devices(largest);
                let oracle = write_log(&devices, &test_options(large));
                let to_read = test_options(large).with(|set| set.read_only = true);
                let db = Kvdb::open_on(devices.clone(), to_read).unwrap();
                read_all(&db, &oracle);
                drop(db);
                let options = test_options(Tuning { memtable_bytes, ..large });
                let db = Kvdb::open_on(devices.clone(), options.clone()).unwrap();
                let ingests = db.stats().maintenance.ingests;
                let at_least_the_last = *rounds.start() + u64::from(many);
                assert!((at_least_the_last..=*rounds.end() + 1).contains(&ingests), "{ingests}");
                read_all(&db, &oracle);
                while db.step().unwrap() {
                    assert_eq!(content(&db), oracle, "{memtable_bytes}");
                }
                assert!(db.stats().maintenance.ingests > ingests || many);
                read_all(&db, &oracle);
                db.close().unwrap();
                let report = Kvdb::check_on(&devices).unwrap();
                assert_eq!(report.findings, Vec::<String>::new());
            }
        }
    }
}

/// Until maintenance comes to them, replayed records lie under later writes, are copied, and are replayed again;
/// and a log that has become long by that is ingested.
#[test]
fn replayed_records_are_written_over_copied_and_replayed_again() {
    let options =
        test_options(Tuning { memtable_bytes: 4 << 20, block_bytes: 1 << 20, ..small_tuning() });
    let first = devices(1 << 20);
    let mut oracle = write_log(&first, &options);
    let mut rng = Rng::new(8);
    for opening in 0.. {
        let db = Kvdb::open_on(first.clone(), options.clone()).unwrap();
        if db.stats().maintenance.ingests > 0 {
            assert!(opening > 3, "{opening}");
            read_all(&db, &oracle);
            break;
        }
        let kvss = KVSS.map(|name| db.kvs(name).unwrap());
        let mut transaction = db.transaction();
        transaction.put(&kvss[0], log_key(1), b"lost").unwrap();
        for (which, kvs) in kvss.iter().enumerate() {
            for _ in 0..20 {
                let (key, value) = (log_key(rng.below(400)), vec![0; to_usize(rng.below(200))]);
                kvs.put(&key, &value).unwrap();
                oracle.insert((which, key), value);
                let key = log_key(rng.below(400));
                kvs.delete(&key).unwrap();
                oracle.remove(&(which, key));
            }
            let prefix = log_key(rng.below(400));
            let prefix = &prefix[..prefix.len() - 1];
            kvs.delete_prefix(prefix).unwrap();
            oracle.retain(|(owner, key), _| *owner != which || !key.starts_with(prefix));
        }
        kvss[0].put(log_key(1), b"first").unwrap();
        oracle.insert((0, log_key(1)), b"first".to_vec());
        let error = transaction.commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        read_all(&db, &oracle);
        let copy = devices(1 << 20);
        db.backup_on(&copy).unwrap();
        assert_eq!(Kvdb::check_on(&copy).unwrap().findings, Vec::<String>::new());
        read_all(&Kvdb::open_on(copy, options.clone()).unwrap(), &oracle);
        db.sync().unwrap();
        std::mem::forget((db, kvss));
        assert_eq!(Kvdb::check_on(&first).unwrap().findings, Vec::<String>::new());
    }
    // Threads come to it unasked.
    let copy = devices(1 << 20);
    let oracle = write_log(&copy, &options);
    let db =
        Kvdb::open_on(copy, options.with(|set| set.maintenance = Maintenance::Threads)).unwrap();
    while db.stats().maintenance.ingests == 0 {
        std::thread::yield_now();
    }
    read_all(&db, &oracle);
}

/// Records are sorted in runs while others are read, of which the first ones all begin alike for longer than
/// the first eight bytes that are compared at once; and kvsets are made of them in threads, of which each
/// has newer ones than the one before.
#[test]
fn a_long_log_is_sorted_in_runs_and_in_parts() {
    let tuning = Tuning { block_bytes: 1 << 20, ..small_tuning() };
    let large = test_options(Tuning { memtable_bytes: 64 << 20, ..tuning });
    let smaller = test_options(Tuning { memtable_bytes: 8 << 20, ..tuning });
    for (options, kvsets) in [(large.clone(), 1..=1), (smaller, 2..=4)] {
        let devices = devices(1 << 20);
        let db = Kvdb::create_on(devices.clone(), large.clone()).unwrap();
        let kvs = db.create_kvs("a", Policy::default()).unwrap();
        let (mut rng, mut oracle) = (Rng::new(9), BTreeMap::new());
        for n in 0..100_000_u32 {
            let begin = if n < 40_000 { "user-of-them-all-" } else { "user-" };
            let key = format!("{begin}{:05}", rng.below(60_000)).into_bytes();
            match n % 1000 {
                0 => {
                    let prefix = &key[..key.len() - 2];
                    kvs.delete_prefix(prefix).unwrap();
                    oracle.retain(|key: &Vec<u8>, _| !key.starts_with(prefix));
                }
                1..100 => {
                    kvs.delete(&key).unwrap();
                    oracle.remove(&key);
                }
                _ => {
                    let value = n.to_le_bytes().to_vec();
                    kvs.put(&key, &value).unwrap();
                    oracle.insert(key, value);
                }
            }
        }
        db.sync().unwrap();
        assert_eq!(db.stats().maintenance.ingests, 0);
        std::mem::forget((db, kvs));
        let db = Kvdb::open_on(devices, options).unwrap();
        assert_eq!(db.stats().maintenance.ingests, 0);
        for is_ingested in [false, true] {
            if is_ingested {
                db.ingest().unwrap();
                let found = db.stats().kvss[0].root_kvsets;
                assert!(kvsets.contains(&found), "{found}");
            }
            let mut cursor = db.kvs("a").unwrap().cursor().unwrap();
            for (key, value) in &oracle {
                let found = cursor.next().unwrap();
                assert_eq!(found, Some((&key[..], &value[..])));
            }
            assert_eq!(cursor.next().unwrap(), None);
        }
    }
}

/// Nobody has asked for them yet: all DRAM goes to those that somebody asks for.
#[test]
fn values_of_the_log_are_cached_when_they_are_read() {
    let large = Tuning { memtable_bytes: 4 << 20, ..small_tuning() };
    let options = test_options(large).with(|set| set.memory_bytes = 64 << 20);
    let devices = devices(1 << 20);
    let oracle = write_log(&devices, &options);
    let db = Kvdb::open_on(devices, options).unwrap();
    assert!(db.stats().maintenance.ingests > 0);
    assert_eq!(db.stats().cache.records, 0);
    let mut large = oracle.iter().filter(|(_, value)| value.len() > 100);
    let ((which, key), value) = large.next().unwrap();
    let kvs = db.kvs(KVSS[*which]).unwrap();
    assert_eq!(kvs.get(key).unwrap().as_deref(), Some(&value[..]));
    assert_eq!(db.stats().cache.records, 1);
}

/// KVDBs are opened whose log alone has so many values of 100 bytes of each KVS, the last ones of a KVS
/// that was dropped, as it may be. All are there; says how many blocks of values were written.
fn blocks_written(policy: Policy, kvss: &[u64], dropped: &[u64]) -> u64 {
    let options = test_options(Tuning { memtable_bytes: 4 << 20, ..small_tuning() });
    let devices = devices(1 << 20);
    let db = Kvdb::create_on(devices.clone(), options.clone()).unwrap();
    let put = |name: &str, count: u64| {
        let kvs = db.create_kvs(name, policy).unwrap();
        (0..count).for_each(|n| kvs.put(n.to_be_bytes(), [7; 100]).unwrap());
    };
    let named: Vec<_> = (0..).map(|n| format!("k{n}")).zip(kvss).collect();
    named.iter().for_each(|(name, count)| put(name, **count));
    for count in dropped {
        put("dropped", *count);
        db.drop_kvs("dropped").unwrap();
    }
    db.sync().unwrap();
    assert_eq!(db.stats().maintenance.ingests, 0);
    std::mem::forget(db);
    let db = Kvdb::open_on(devices, options).unwrap();
    db.ingest().unwrap();
    for (name, count) in named {
        let kvs = db.kvs(&name).unwrap();
        for n in 0..*count {
            assert_eq!(kvs.get(n.to_be_bytes()).unwrap().as_deref(), Some(&[7; 100][..]));
        }
    }
    db.stats().maintenance.young_blocks
}

#[test]
fn replayed_values_leave_the_log_where_the_policy_says_so() {
    let anywhere = Policy::default();
    let on_capacity = Policy { young_values: Place::only(MediaClass::Capacity), ..anywhere };
    assert_eq!(blocks_written(anywhere, &[3000], &[]), 0);
    assert!(blocks_written(on_capacity, &[3000], &[]) > 0);
    assert!(blocks_written(on_capacity, &[3000, 300], &[3000]) > 0);
    // However thinly they lie among those of others.
    assert_eq!(blocks_written(anywhere, &[3000, 300], &[]), 0);
    assert_eq!(blocks_written(anywhere, &[300], &[3000]), 0);
}

/// A log that finds no room to be ingested is read from memory, and writes are told.
#[test]
fn a_log_without_room_for_its_keys_is_read_all_the_same() {
    let large = Tuning { memtable_bytes: 4 << 20, ..small_tuning() };
    let devices = devices(1 << 20);
    let oracle = write_log(&devices, &test_options(large));
    let plan = FaultPlan::new();
    let faulty = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
        Arc::new(FaultDevice::new(device.clone(), &plan))
    };
    let (capacity, staging) = (faulty(&devices.capacity), devices.staging.as_ref().map(faulty));
    let full = Devices { capacity, staging, ..devices };
    // Some rounds find room, and then no more do.
    for nth in [10, 0] {
        plan.from_then_on(Target::Write, plan.seen(Target::Write) + nth, Effect::NoSpace);
        let options = test_options(Tuning { memtable_bytes: 64 << 10, ..large });
        let flushes = plan.seen(Target::Flush);
        let db = Kvdb::open_on(full.clone(), options).unwrap();
        assert!(plan.fired() > 0);
        assert!(
            plan.seen(Target::Flush) > flushes,
            "what was never flushed would pass for durable"
        );
        assert_eq!(db.stats().maintenance.ingests > 0, nth > 0);
        assert_eq!(content(&db), oracle);
        let error = db.ingest().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        drop(db);
        plan.heal();
    }
    let db = Kvdb::open_on(full, test_options(large)).unwrap();
    assert!(db.stats().maintenance.ingests > 0);
    assert_eq!(content(&db), oracle);
}

/// A frame that was read whole and is damaged when it is read again is noticed to be missing: by rounds, and for a
/// memtable.
#[test]
fn a_log_that_shrinks_between_rounds_is_refused() {
    let large = Tuning { memtable_bytes: 4 << 20, ..small_tuning() };
    let open = |memtable_bytes, plan: &FaultPlan| {
        let devices = devices(4096);
        let oracle = write_log(&devices, &test_options(large));
        let staging = devices.staging.as_ref().unwrap().clone();
        let staging = Some(Arc::new(FaultDevice::new(staging, plan)) as Arc<dyn Device>);
        let options = test_options(Tuning { memtable_bytes, ..large });
        (Kvdb::open_on(Devices { staging, ..devices }, options), oracle)
    };
    let plan = FaultPlan::new();
    drop(open(4 << 20, &plan).0.unwrap());
    let once = plan.seen(Target::Read);
    let mut refused = 0;
    for nth in once.. {
        let plan = FaultPlan::new();
        plan.from_then_on(Target::Read, nth, Effect::Corrupt { offset: 300, mask: 1 });
        let (opened, oracle) = open(64 << 10, &plan);
        match opened {
            Ok(db) => {
                let done = plan.fired() == 0;
                plan.heal();
                assert_eq!(content(&db), oracle, "read {nth}");
                if done {
                    break;
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 3, "{refused}");
}
