//! Maintenance that is asked for, and the space that maintenance leaves: compacting everything, down to
//! a goal, status, cancelling; staging taken away from a live KVDB; bytes on the media against bytes
//! that are live.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::records::{check, devices, put, value};
use crate::common::shaped::ShapedDevice;
use crate::common::{Devices, OnDevices};
use crate::common::{faulty, small_tuning, test_options, tiny_tuning};
use esker_base::{Clock, ErrorKind, Rng};
use esker_device::{Device, MemoryDevice};
use esker_kv::{
    CompactRequest, Cursor, KEY_MAX, KvError, Kvdb, Kvs, Location, Maintenance, MediaClass, Medium,
    Options, Policy, Readable, Tuning, VALUE_MAX,
};
use esker_sim::{Effect, FaultPlan, Target};

fn used(db: &Kvdb) -> u64 {
    db.stats().classes.iter().map(|class| class.used_bytes).sum()
}

/// The next records of a cursor are those of these numbers.
fn walk(cursor: &mut Cursor, numbers: Range<u64>) {
    for n in numbers {
        assert_eq!(cursor.next().unwrap().unwrap(), (&n.to_be_bytes()[..], &value(n)[..]));
    }
}

fn sound(devices: &Devices) {
    assert_eq!(Kvdb::check_on(devices).unwrap().findings, Vec::<String>::new());
}

/// Larger leaves and blocks than elsewhere, so that the counted bytes are data and not padding.
fn counted() -> Options {
    test_options(Tuning { leaf_key_bytes: 256 << 10, gather_bytes: 256 << 10, ..small_tuning() })
}

/// Everything the engine has at its disposal besides the data: the log's segments, the header, and the ends of blocks.
const FIXED: u64 = 5 * (64 << 10);

#[test]
fn after_maintenance_the_media_hold_a_quarter_more_than_is_live_at_most() {
    for (seed, keys, deleted) in [(1, 6000, 0), (2, 6000, 3), (3, 500, 0), (4, 6000, 9)] {
        let devices = devices(96 << 20, Some(32 << 20));
        let db = Kvdb::create_on(devices.clone(), counted()).unwrap();
        let kvs = db.create_kvs("k", Policy::default()).unwrap();
        let mut rng = Rng::new(seed);
        for _ in 0..20_000u64 {
            let n = rng.below(keys);
            if rng.below(10) < deleted {
                kvs.delete(n.to_be_bytes()).unwrap();
            } else {
                kvs.put(n.to_be_bytes(), value(n)).unwrap();
            }
        }
        db.ingest().unwrap();
        db.settle().unwrap();
        let mut cursor = kvs.cursor().unwrap();
        let mut live = 0;
        while let Some((key, value)) = cursor.next().unwrap() {
            live += (key.len() + value.len()) as u64;
        }
        drop(cursor);
        let used = used(&db);
        assert!(used * 100 <= 125 * live + 100 * FIXED, "{used} for {live}\n{:?}", db.stats());
        let told = db.compact_status().space_amplification;
        assert!(told <= 1.25, "{told}");
        drop((kvs, db));
        sound(&devices);
    }
}

#[test]
fn compacting_everything_leaves_one_kvset_a_leaf_and_nothing_to_save() {
    let devices = devices(96 << 20, Some(32 << 20));
    let db = Kvdb::create_on(devices.clone(), counted()).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    for round in 0..4 {
        put(&kvs, round * 500..3000);
    }
    (0..1000).for_each(|n: u64| kvs.delete(n.to_be_bytes()).unwrap());
    let status = db.compact(CompactRequest::Full).unwrap();
    assert!(!status.active && !status.cancelled && status.written_bytes > 0, "{status:?}");
    assert!(status.leaves > 0 && status.leaves_done >= status.leaves, "{status:?}");
    assert!(status.space_amplification < 1.05, "{status:?}");
    let stats = &db.stats().kvss[0];
    assert_eq!((stats.root_kvsets, stats.leaf_kvsets), (0, stats.leaves));
    assert_eq!((stats.entries, stats.tombstones), (2000, 0));
    check(&kvs, 1000..3000);
    // Nothing is left to do: neither for maintenance nor for another one.
    assert!(!db.step().unwrap());
    assert_eq!(db.compact(CompactRequest::Full).unwrap().written_bytes, 0);
    drop((kvs, db));
    sound(&devices);
}

#[test]
fn compacting_moves_data_to_where_a_changed_policy_wants_it() {
    for (from, to, class) in [
        (Policy::CAPACITY_ONLY, Policy::STAGING_ONLY, MediaClass::Staging),
        (Policy::STAGING_ONLY, Policy::CAPACITY_ONLY, MediaClass::Capacity),
    ] {
        let devices = devices(96 << 20, Some(32 << 20));
        let db = Kvdb::create_on(devices.clone(), counted()).unwrap();
        let kvs = db.create_kvs("k", from).unwrap();
        put(&kvs, 0..3000);
        db.compact(CompactRequest::Full).unwrap();
        kvs.set_policy(to).unwrap();
        db.compact(CompactRequest::Full).unwrap();
        for place in &db.stats().kvss[0].places {
            let bytes = place.old_keys_bytes + place.old_values_bytes;
            assert_eq!(bytes > 0, place.class == class, "{place:?}");
        }
        check(&kvs, 0..3000);
        drop((kvs, db));
        sound(&devices);
    }
}

#[test]
fn a_goal_is_reached_and_one_that_cannot_be_is_refused() {
    let options = counted().with(|set| set.space_amplification = 3.0);
    let db = Kvdb::create_on(devices(96 << 20, Some(32 << 20)), options).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let mut rng = Rng::new(7);
    for _ in 0..12_000 {
        let n = rng.below(4000);
        kvs.put(n.to_be_bytes(), value(n)).unwrap();
    }
    db.ingest().unwrap();
    db.settle().unwrap();
    let before = (used(&db), db.compact_status().space_amplification);
    assert!(before.1 > 1.3, "{before:?}");
    let status = db.compact(CompactRequest::SpaceAmplification(1.1)).unwrap();
    assert_eq!(status.goal, Some(1.1));
    assert!(status.space_amplification <= 1.1, "{status:?}");
    assert!(used(&db) < before.0 * 9 / 10);
    for goal in [1.0, 0.0, f64::NAN, 1e9] {
        let refused = db.compact(CompactRequest::SpaceAmplification(goal)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
    // A refused one is over.
    assert!(!db.compact_status().active);
}

/// Later writes of others are left to maintenance: with them there would be no end.
#[test]
fn a_goal_that_others_keep_out_of_reach_ends() {
    let options = threaded().with(|set| set.space_amplification = 3.0);
    let db = Kvdb::create_on(devices(256 << 20, Some(32 << 20)), options).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    let overwrite = |rng: &mut Rng| {
        let n = rng.below(4_000);
        kvs.put(n.to_be_bytes(), value(n)).unwrap();
    };
    let mut rng = Rng::new(7);
    (0..12_000).for_each(|_| overwrite(&mut rng));
    db.settle().unwrap();
    let (used, before) = (used(&db), db.compact_status().space_amplification);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                (0..100).for_each(|_| overwrite(&mut rng));
                if db.compact_status().written_bytes > 8 * used {
                    db.cancel_compact();
                }
            }
        });
        let status = db.compact(CompactRequest::SpaceAmplification(1.02));
        done.store(true, Ordering::Release);
        let status = status.unwrap();
        // The writer goes on until it is looked at: on a busy machine that is a part of what there is.
        let most = 1.2 * before.max(3.0);
        assert!(!status.cancelled && status.space_amplification < most, "{before}: {status:?}");
    });
}

#[test]
fn leaves_that_have_become_small_are_joined() {
    let devices = devices(96 << 20, Some(32 << 20));
    let options = || test_options(Tuning { leaf_key_bytes: 64 << 10, ..small_tuning() });
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    put(&kvs, 0..24_000);
    db.ingest().unwrap();
    db.settle().unwrap();
    let leaves = db.stats().kvss[0].leaves;
    assert!(leaves >= 4, "{leaves}");
    for n in 0..24_000u64 {
        if n % 100 != 0 {
            kvs.delete(n.to_be_bytes()).unwrap();
        }
    }
    db.compact(CompactRequest::Full).unwrap();
    db.settle().unwrap();
    let stats = db.stats();
    assert!(stats.kvss[0].leaves < leaves / 2 && stats.maintenance.joins > 0, "{stats:?}");
    let check = |kvs: &Kvs| {
        for n in 0..24_000u64 {
            let expected = n.is_multiple_of(100).then(|| value(n));
            assert_eq!(kvs.get(n.to_be_bytes()).unwrap(), expected.map(Into::into));
        }
    };
    check(&kvs);
    drop((kvs, db));
    sound(&devices);
    let db = Kvdb::open_on(devices, options()).unwrap();
    check(&db.kvs("k").unwrap());
}

fn threaded() -> Options {
    test_options(small_tuning()).with(|set| {
        set.maintenance = Maintenance::Threads;
        set.clock = Clock::real();
    })
}

#[test]
fn a_compaction_is_watched_and_cancelled_and_only_one_runs_at_a_time() {
    let db = Kvdb::create_on(devices(256 << 20, Some(32 << 20)), threaded()).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    put(&kvs, 0..2000);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A writer that never pauses would keep it busy for long.
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                put(&kvs, 0..100);
            }
        });
        let compaction = scope.spawn(|| {
            loop {
                match db.compact(CompactRequest::Full) {
                    Ok(status) if status.cancelled => break status,
                    Ok(_) | Err(KvError::Busy) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        while !matches!(db.compact(CompactRequest::Full), Err(KvError::Busy)) {}
        while !compaction.is_finished() {
            db.cancel_compact();
            std::thread::yield_now();
        }
        assert!(!compaction.join().unwrap().active);
        done.store(true, Ordering::Release);
    });
    check(&kvs, 0..2000);
}

#[test]
fn staging_is_taken_away_while_threads_write_and_read() {
    let all = devices(256 << 20, Some(32 << 20));
    let db = Kvdb::create_on(all.clone(), threaded()).unwrap();
    let policies = [Policy::STAGING_ONLY, Policy::default(), Policy::CAPACITY_ONLY];
    let names = ["a", "b", "c"];
    let kvss: Vec<Kvs> =
        names.iter().zip(policies).map(|(n, p)| db.create_kvs(n, p).unwrap()).collect();
    kvss.iter().for_each(|kvs| put(kvs, 0..1500));
    let before = kvss[0].cursor().unwrap();
    let (done, kvss_ref) = (AtomicBool::new(false), &kvss);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 1500;
            while !done.load(Ordering::Acquire) {
                kvss_ref.iter().for_each(|kvs| put(kvs, n..n + 1));
                n += 1;
            }
            n
        });
        let reader = scope.spawn(|| {
            let mut rng = Rng::new(1);
            while !done.load(Ordering::Acquire) {
                let n = rng.below(1500);
                kvss_ref.iter().for_each(|kvs| check(kvs, n..n + 1));
            }
        });
        let removed = db.remove_staging();
        done.store(true, Ordering::Release);
        removed.unwrap();
        reader.join().unwrap();
        let end = writer.join().unwrap();
        kvss.iter().for_each(|kvs| check(kvs, 0..end));
        assert_eq!(db.stats().classes.len(), 1);
    });
    // A cursor begun before goes on reading.
    let mut cursor = before;
    walk(&mut cursor, 0..1500);
    drop(cursor);
    assert!(matches!(db.remove_staging(), Err(KvError::NoStaging)));
    drop(kvss);
    db.close().unwrap();
    let without = Devices { staging: None, ..all.clone() };
    sound(&without);
    let db = Kvdb::open_on(without, threaded()).unwrap();
    check(&db.kvs("a").unwrap(), 0..1500);
    // The device belongs to nobody now, and may come back.
    db.add_staging_device(all.staging.clone().unwrap()).unwrap();
    put(&db.kvs("a").unwrap(), 0..500);
    db.close().unwrap();
    sound(&all);
}

#[test]
fn a_removed_staging_comes_back_when_nobody_reads_from_it_any_more() {
    let devices = devices(64 << 20, Some(8 << 20));
    let db = Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("k", Policy::STAGING_ONLY).unwrap();
    put(&kvs, 0..1500);
    db.settle().unwrap();
    let snapshot = db.snapshot();
    let all_there = || walk(&mut snapshot.cursor(&kvs).unwrap(), 0..1500);
    db.remove_staging().unwrap();
    all_there();
    let staging = devices.staging.clone().unwrap();
    let refused = db.add_staging_device(staging.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    put(&kvs, 1500..4000);
    all_there();
    drop(snapshot);
    db.add_staging_device(staging).unwrap();
    put(&kvs, 4000..5000);
    check(&kvs, 0..5000);
    db.close().unwrap();
    sound(&devices);
}

#[test]
fn staging_stays_when_capacity_lacks_room_for_what_is_there() {
    let devices = devices(2 << 20, Some(16 << 20));
    let db = Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("k", Policy::STAGING_ONLY).unwrap();
    put(&kvs, 0..4000);
    let refused = db.remove_staging().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    assert!(refused.to_string().contains("delete data"), "{refused}");
    put(&kvs, 4000..4500);
    assert!(db.stats().classes.iter().any(|class| class.class == MediaClass::Staging));
    check(&kvs, 0..4500);
    db.close().unwrap();
    sound(&devices);
}

#[test]
fn staging_in_the_directory_is_removed_and_comes_back() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    let db = Kvdb::builder(Location::dir(&dir).staging(Medium::InDir))
        .options(threaded())
        .create()
        .unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    put(&kvs, 0..300);
    db.remove_staging().unwrap();
    assert!(!dir.join("staging.esker").exists());
    put(&kvs, 300..400);
    drop(kvs);
    db.close().unwrap();
    let db = Kvdb::builder(&dir).options(threaded()).open().unwrap();
    db.add_staging(&Medium::InDir).unwrap();
    put(&db.kvs("k").unwrap(), 400..500);
    db.close().unwrap();
    assert!(dir.join("staging.esker").exists());
    let db = Kvdb::builder(&dir).options(threaded()).open().unwrap();
    check(&db.kvs("k").unwrap(), 0..500);
}

/// Takes staging away while command number `nth` of `target` fails; whether it came to that.
fn strike(target: Target, nth: u64) -> bool {
    let memory = devices(16 << 20, Some(8 << 20));
    let plan = FaultPlan::new();
    let db = Kvdb::create_on(faulty(&memory, &plan), test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    put(&kvs, 0..200);
    db.sync().unwrap();
    plan.once(target, plan.seen(target) + nth, Effect::Fail);
    let removed = db.remove_staging();
    let struck = plan.fired() > 0;
    plan.heal();
    assert!(removed.is_ok() || struck, "{removed:?}");
    check(&kvs, 0..200);
    std::mem::forget((kvs, db));
    let without = Devices { staging: None, ..memory.clone() };
    let db = Kvdb::open_on(memory, test_options(small_tuning()))
        .or_else(|_| Kvdb::open_on(without, test_options(small_tuning())))
        .unwrap_or_else(|error| panic!("{target:?} number {nth}: {error}"));
    check(&db.kvs("k").unwrap(), 0..200);
    struck
}

#[test]
fn a_failing_command_while_staging_is_removed_loses_nothing() {
    for target in [Target::Read, Target::Write, Target::Flush, Target::Discard] {
        let struck = (0..).take_while(|&nth| strike(target, nth)).count();
        assert!(struck > 0, "{target:?}: the removal has commands of every kind");
    }
}

/// Padding that a rewrite would make again is nothing to save: a goal below it ends all the same.
#[test]
fn a_goal_that_padding_is_in_the_way_of_ends() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut pick = |of: &[usize]| of[usize::try_from(rng.below(of.len() as u64)).unwrap()];
        let (keys, value_max) = (pick(&[60, 200, 600]), pick(&[1400, 3000, 6000]));
        let lba_size = u32::try_from(pick(&[512, 4096])).unwrap();
        let device = |name: &str, bytes: u64| -> Arc<dyn Device> {
            ShapedDevice::new(name, bytes, lba_size, |_| {})
        };
        let devices = Devices {
            manifest: device("manifest", 1 << 20),
            capacity: device("capacity", 8 << 20),
            staging: Some(device("staging", 4 << 20)),
        };
        let db = Kvdb::create_on(devices.clone(), test_options(tiny_tuning())).unwrap();
        let kvs = db.create_kvs("k", Policy::default()).unwrap();
        for _ in 0..400 {
            let key = rng.below(keys as u64).to_be_bytes();
            let mut value = vec![0; usize::try_from(rng.below(value_max as u64)).unwrap()];
            rng.fill(&mut value);
            if rng.chance(1, 5) { kvs.delete(key) } else { kvs.put(key, &value) }.unwrap();
        }
        let goal = CompactRequest::SpaceAmplification(1.02);
        let first = db.compact(goal).unwrap();
        let again = db.compact(goal).unwrap();
        assert!(again.written_bytes <= first.written_bytes, "seed {seed}: {again:?}");
        sound(&devices);
    }
}

#[test]
fn a_log_segment_that_was_opened_ahead_on_staging_leaves_it_too() {
    let devices = devices(64 << 20, None);
    let db = Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    put(&kvs, 0..1);
    let staging = Arc::new(MemoryDevice::new("staging", 8 << 20, 512));
    db.add_staging_device(staging).unwrap();
    // The segment in use is on capacity, and the next one is opened when an eighth of it is full.
    put(&kvs, 1..20);
    db.sync().unwrap();
    let on_staging = db.stats().classes[0].used_bytes;
    assert!(on_staging > 32 << 10, "{on_staging} bytes: the next segment is there");
    db.remove_staging().unwrap();
    put(&kvs, 20..200);
    check(&kvs, 0..200);
    db.close().unwrap();
    sound(&devices);
}

#[test]
fn a_removed_staging_of_which_nobody_reads_comes_back_at_once() {
    let devices = devices(64 << 20, Some(8 << 20));
    let db = Kvdb::create_on(devices.clone(), test_options(small_tuning())).unwrap();
    put(&db.create_kvs("k", Policy::default()).unwrap(), 0..100);
    db.close().unwrap();
    let db = Kvdb::open_on(devices.clone(), test_options(small_tuning())).unwrap();
    db.remove_staging().unwrap();
    db.add_staging_device(devices.staging.clone().unwrap()).unwrap();
    put(&db.kvs("k").unwrap(), 100..300);
    check(&db.kvs("k").unwrap(), 0..300);
    db.close().unwrap();
    sound(&devices);
}

#[test]
fn compacting_everything_needs_room_for_a_leaf_and_not_for_all() {
    let tuning = Tuning { leaf_key_bytes: 12 << 10, ..small_tuning() };
    let db = Kvdb::create_on(devices(12 << 20, None), test_options(tuning)).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    for n in (0..7000u64).map(|n| n * 4001 % 7000) {
        kvs.put(n.to_be_bytes(), value(n)).unwrap();
        db.step().unwrap();
    }
    db.settle().unwrap();
    let once = db.compact(CompactRequest::Full).unwrap();
    assert!(once.leaves > 8 && once.written_bytes > 4 << 20, "{once:?}");
    let again = db.compact(CompactRequest::Full).unwrap();
    assert_eq!(again.written_bytes, 0, "there was room for {} leaves: {once:?}", once.leaves);
    check(&kvs, 0..7000);
}

/// A window takes the record that exceeds its limit, whatever that is and whatever a buffer is rounded up to.
#[test]
fn values_of_the_largest_size_are_moved_through_windows_of_any() {
    let tuning = Tuning { gather_bytes: 5000, block_bytes: 4 << 20, ..small_tuning() };
    let devices = devices(32 << 20, Some(16 << 20));
    let options = test_options(tuning).with(|set| set.memory_bytes = 64 << 20);
    let db = Kvdb::create_on(devices.clone(), options).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    kvs.put(b"a", [1; 200]).unwrap();
    db.ingest().unwrap();
    db.compact(CompactRequest::Full).unwrap();
    let (large, key) = (vec![3; VALUE_MAX], vec![b'z'; KEY_MAX]);
    kvs.put(b"b", [2; 4500]).unwrap();
    kvs.put(&key, &large).unwrap();
    db.ingest().unwrap();
    db.compact(CompactRequest::Full).unwrap();
    assert_eq!(kvs.get(b"a").unwrap().as_deref(), Some(&[1; 200][..]));
    assert_eq!(kvs.get(b"b").unwrap().as_deref(), Some(&[2; 4500][..]));
    assert_eq!(kvs.get(&key).unwrap().as_deref(), Some(&large[..]));
    db.close().unwrap();
    sound(&devices);
}
