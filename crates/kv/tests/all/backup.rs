//! Backups: a copy holds all that was visible when it began, whatever is written, fails or crashes
//! meanwhile, and is whole or no KVDB at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::script::{Script, create_kvss};
use crate::common::sparse::FileSystem;
use crate::common::{Devices, OnDevices};
use crate::common::{
    bytes_of, edit, faulty, in_memory, records, small_tuning, test_options, tiny_tuning,
};
use esker_base::ErrorKind;
use esker_device::{Device, MemoryDevice};
use esker_kv::{
    Batch, Compression, KvError, Kvdb, KvsOptions, Location, Medium, Options, Policy, Readable,
    Tuning,
};
use esker_sim::{CrashRecorder, Effect, FaultPlan, Plan, Target};

fn options() -> Options {
    test_options(tiny_tuning())
}

fn memory(name: &str, bytes: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(name, bytes, 512))
}

fn devices(name: &str) -> Devices {
    in_memory(&format!("{name}-"), [256 << 10, 4 << 20, 2 << 20])
}

/// A KVDB on `devices` after `steps` steps of a script.
fn scripted(devices: &Devices, seed: u64, steps: usize) -> (Kvdb, Script) {
    let db = Kvdb::create_on(devices.clone(), options()).unwrap();
    let mut script = Script::new(seed, &options(), 90);
    let kvss = create_kvss(&db).unwrap();
    for _ in 0..steps {
        script.step(&db, &kvss).unwrap();
    }
    (db, script)
}

/// The state that a copy shows, after checking that it is sound.
fn state_of(script: &Script, copy: &Devices) -> usize {
    let report = Kvdb::check_on(copy).unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    let db = Kvdb::open_on(copy.clone(), options()).unwrap();
    Script::check_reads(&db);
    script.state_of(&db).expect("a state that was")
}

#[test]
fn a_copy_holds_all_that_was_visible_and_goes_on_by_itself() {
    let source = devices("source");
    let (db, mut script) = scripted(&source, 5, 60);
    let kvss = ["a", "b"].map(|name| db.kvs(name).unwrap());
    for round in 0..24 {
        let copy = devices(&format!("copy{round}"));
        let report = db.backup_on(&copy).unwrap();
        assert_eq!(report.kvss, 2);
        assert_eq!(state_of(&script, &copy), script.written());
        // The copy is a KVDB of its own, down to its ids.
        let again = Kvdb::open_on(copy.clone(), options()).unwrap();
        let kvs = again.kvs("a").unwrap();
        for n in 0..400u32 {
            kvs.put(n.to_be_bytes(), [7; 300]).unwrap();
        }
        again.settle().unwrap();
        again.close().unwrap();
        assert_eq!(Kvdb::check_on(&copy).unwrap().findings, Vec::<String>::new());
        for _ in 0..20 {
            script.step(&db, &kvss).unwrap();
        }
    }
    let m = db.stats().maintenance;
    assert!(m.spills > 3 && m.compactions > 1 && m.collections > 0 && m.splits > 0, "{m:?}");
    let kvss = db.stats().kvss;
    assert!(kvss.iter().any(|kvs| kvs.compression_ratio() > 1.05), "{kvss:?}");
    assert!(db.stats().operations.prefix_deletes > 10, "{:?}", db.stats().operations);
    assert!(db.stats().operations.range_deletes > 5, "{:?}", db.stats().operations);
    assert_eq!(script.state_of(&db), Some(script.written()));
}

#[test]
fn a_copy_needs_no_staging_class_and_little_more_than_live_bytes() {
    let source = devices("source");
    let (db, script) = scripted(&source, 9, 400);
    let copy = Devices { staging: None, ..devices("copy") };
    let report = db.backup_on(&copy).unwrap();
    assert_eq!(state_of(&script, &copy), script.written());
    let used: u64 = db.stats().classes.iter().map(|class| class.used_bytes).sum();
    assert!(report.copied_bytes <= used, "{report:?}, {used} used");
    let written = copy.capacity.stats().written_bytes;
    assert!(written < report.copied_bytes * 5 / 4 + (64 << 10), "{report:?}, {written} written");
    // And back to two classes.
    let (db, back) = (Kvdb::open_on(copy, options()).unwrap(), devices("back"));
    db.backup_on(&back).unwrap();
    assert_eq!(state_of(&script, &back), script.written());
}

#[test]
fn a_copy_keeps_values_compressed_and_deleted_prefixes_where_they_are() {
    let db = Kvdb::create_on(devices("source"), options()).unwrap();
    let compressed = KvsOptions::default().compression(Compression::Zstd);
    let kvs = db.create_kvs("k", compressed).unwrap();
    let put = |n: u32| kvs.put(format!("{:02}/{n:04}", n % 20).as_bytes(), [7; 300]).unwrap();
    (0..400).for_each(put);
    db.ingest().unwrap();
    db.settle().unwrap();
    // One in a kvset without a key, and one that only the log has.
    kvs.delete_prefix(b"03/").unwrap();
    db.ingest().unwrap();
    kvs.delete_prefix(b"1").unwrap();
    put(400 + 17);
    let held = |db: &Kvdb| {
        let kvs = db.stats().kvss.remove(0);
        (kvs.value_bytes, kvs.plain_value_bytes, kvs.entries, kvs.range_tombstones)
    };
    let (value_bytes, plain_bytes, _, prefixes) = held(&db);
    assert!(value_bytes * 2 < plain_bytes && prefixes == 1, "{:?}", held(&db));
    let copy = devices("copy");
    db.backup_on(&copy).unwrap();
    assert_eq!(Kvdb::check_on(&copy).unwrap().findings, Vec::<String>::new());
    for read_only in [true, false] {
        let open =
            Kvdb::open_on(copy.clone(), options().with(|set| set.read_only = read_only)).unwrap();
        if read_only {
            assert_eq!(held(&open), held(&db));
        } else {
            open.ingest().unwrap();
            open.settle().unwrap();
        }
        let kvs = open.kvs("k").unwrap();
        let mut cursor = kvs.cursor().unwrap();
        let mut found = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            assert_eq!(value, [7; 300]);
            found.push(String::from_utf8(key.to_vec()).unwrap());
        }
        let left = (0..400u32).filter(|n| n % 20 < 10 && n % 20 != 3);
        let mut expected: Vec<String> = left.map(|n| format!("{:02}/{n:04}", n % 20)).collect();
        expected.push("17/0417".into());
        expected.sort();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_copy_never_joins_another_kvdb() {
    let (source, copy) = (devices("source"), devices("copy"));
    let (db, _) = scripted(&source, 1, 50);
    db.backup_on(&copy).unwrap();
    let error = db.backup_on(&copy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    db.close().unwrap();
    // Classes of the original and of the copy do not go together.
    let mixed = Devices { capacity: copy.capacity, ..source };
    assert!(matches!(Kvdb::open_on(mixed, options()), Err(KvError::Corrupt { .. })));
}

#[test]
fn other_lba_sizes_are_refused_by_name() {
    let (db, _) = scripted(&devices("source"), 1, 150);
    let large =
        |name: &str| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(name, 4 << 20, 4096)) };
    let copy = Devices { capacity: large("c"), staging: Some(large("s")), ..devices("copy") };
    let error = db.backup_on(&copy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("dump"), "{error}");
}

#[test]
fn backups_beside_a_writer_hold_whole_batches_in_order() {
    let scratch = tempfile::tempdir().unwrap();
    let options = || Options::default().with(|set| set.tuning = Some(tiny_tuning()));
    let db = Kvdb::builder(Location::dir(scratch.path().join("db")).staging(Medium::InDir))
        .options(options())
        .create()
        .unwrap();
    let kvss = ["left", "right"].map(|name| db.create_kvs(name, Policy::default()).unwrap());
    let (acknowledged, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut copies = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=1_000_000u64 {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let mut batch = Batch::new();
                let value = [n.to_le_bytes(); 30].concat();
                batch.put(&kvss[0], (n % 500).to_be_bytes(), &value);
                batch.put(&kvss[1], (n % 500).to_be_bytes(), &value);
                db.write(&batch).unwrap();
                acknowledged.store(n, Ordering::SeqCst);
            }
        });
        for round in 0..6 {
            while acknowledged.load(Ordering::SeqCst) < 400 * round {
                std::thread::yield_now();
            }
            let least = acknowledged.load(Ordering::SeqCst);
            let dir = scratch.path().join(format!("copy{round}"));
            let staging = round % 2 == 0;
            let to = Location::dir(&dir);
            let to = if staging { to.staging(Medium::InDir) } else { to };
            db.backup(&to).unwrap();
            copies.push((least, acknowledged.load(Ordering::SeqCst) + 1, dir));
        }
        done.store(true, Ordering::Relaxed);
    });
    for (least, most, dir) in copies {
        assert_eq!(Kvdb::builder(&dir).check().unwrap().findings, Vec::<String>::new());
        let copy = Kvdb::builder(&dir).options(options()).open().unwrap();
        let snapshot = copy.snapshot();
        let all = |name: &str| {
            let mut found = Vec::new();
            let mut cursor = snapshot.cursor(&copy.kvs(name).unwrap()).unwrap();
            while let Some((_, value)) = cursor.next().unwrap() {
                found.push(u64::from_le_bytes(value[..8].try_into().unwrap()));
            }
            found.sort_unstable();
            found
        };
        let (left, right) = (all("left"), all("right"));
        assert_eq!(left, right, "a batch is whole or not there");
        let last = left.last().copied().unwrap_or(0);
        assert!((least..=most).contains(&last), "{last} of {least} to {most}");
        assert!(left.iter().copied().eq(last.saturating_sub(499).max(1)..=last));
    }
}

#[test]
fn a_crash_at_any_write_of_the_target_leaves_a_whole_copy_or_none() {
    let (db, script) = scripted(&devices("source"), 3, 220);
    let recorder = CrashRecorder::new();
    let copy = devices("copy");
    let attach = |device: &Arc<dyn Device>| -> Arc<dyn Device> { recorder.attach(device.clone()) };
    let target = Devices {
        manifest: attach(&copy.manifest),
        capacity: attach(&copy.capacity),
        staging: copy.staging.as_ref().map(attach),
    };
    db.backup_on(&target).unwrap();
    recorder.mark(1);
    let plan = Plan { all_subsets: 3, singles: 3, random_subsets: 2, ..Plan::default() };
    let (mut whole, mut none) = (0, 0);
    for image in recorder.history().images(&plan) {
        let devices = Devices {
            manifest: image.device(0),
            capacity: image.device(1),
            staging: Some(image.device(2)),
        };
        match Kvdb::open_on(devices, options()) {
            Ok(open) => {
                assert_eq!(script.state_of(&open), Some(script.written()), "image: {image}");
                whole += 1;
            }
            Err(KvError::NotAKvdb { .. }) => {
                assert!(image.marks().is_empty(), "a finished copy is gone: {image}");
                none += 1;
            }
            Err(error) => panic!("{error}\nimage: {image}"),
        }
    }
    assert!(whole > 0 && none > 200, "{whole} whole, {none} none");
}

#[test]
fn a_crash_of_the_source_around_backups_loses_nothing_promised() {
    let recorder = CrashRecorder::new();
    let source = devices("source");
    let attach = |device: &Arc<dyn Device>| -> Arc<dyn Device> { recorder.attach(device.clone()) };
    let recorded = Devices {
        manifest: attach(&source.manifest),
        capacity: attach(&source.capacity),
        staging: source.staging.as_ref().map(attach),
    };
    let (db, mut script) = scripted(&recorded, 8, 60);
    recorder.mark(script.promised() as u64);
    let kvss = ["a", "b"].map(|name| db.kvs(name).unwrap());
    for step in 0..120 {
        if step % 10 == 0 {
            db.backup_on(&devices("copy")).unwrap();
        }
        script.step(&db, &kvss).unwrap();
        recorder.mark(script.promised() as u64);
    }
    std::mem::forget(db);
    let plan = Plan { all_subsets: 2, singles: 1, random_subsets: 1, ..Plan::default() };
    for image in recorder.history().images(&plan).step_by(7) {
        let Some(&promised) = image.marks().last() else { continue };
        let (manifest, capacity) = (image.device(0), image.device(1));
        let devices = Devices { manifest, capacity, staging: Some(image.device(2)) };
        let open = Kvdb::open_on(devices, options()).unwrap();
        let state = script.state_of(&open).expect("a state that was");
        assert!(state as u64 >= promised, "{state} of {promised}: {image}");
    }
}

/// Fails command number `nth` of the source or of the copy. False: there was no such command.
fn strike(target: Target, nth: u64, of_copy: bool) -> bool {
    let what = format!("{target:?} number {nth}, of the copy: {of_copy}");
    let plan = FaultPlan::new();
    let faulty = |devices: &Devices| faulty(devices, &plan);
    let (source, copy) = (devices("source"), devices("copy"));
    let (db, mut script) = scripted(&if of_copy { source } else { faulty(&source) }, 4, 150);
    let kvss = ["a", "b"].map(|name| db.kvs(name).unwrap());
    plan.once(target, plan.seen(target) + nth, Effect::Fail);
    let result = db.backup_on(&if of_copy { faulty(&copy) } else { copy.clone() });
    if plan.fired() == 0 {
        result.unwrap_or_else(|error| panic!("{what}: no fault, and yet {error}"));
        return false;
    }
    let name = if of_copy { "copy-" } else { "source-" };
    if let Err(error) = &result {
        assert!(error.to_string().contains(name), "{what}: {error}");
    }
    if target == Target::Flush && !of_copy {
        // Of the log, or of the manifest when a log segment was opened ahead, which is none of the
        // backup's business: it stops a KVDB whoever asks for it.
        assert!(db.stats().stopped.is_some(), "{what}");
        return true;
    }
    assert!(result.is_err(), "{what}");
    for _ in 0..20 {
        script.step(&db, &kvss).unwrap();
    }
    let again = devices("again");
    db.backup_on(&again).unwrap();
    assert_eq!(state_of(&script, &again), script.written(), "{what}");
    match Kvdb::open_on(copy.clone(), options()) {
        Err(KvError::NotAKvdb { .. }) => {}
        // The very last flush failed, of a manifest that was written.
        Ok(_) => assert!(of_copy && target == Target::Flush, "{what}: an unfinished copy opens"),
        Err(error) => panic!("{what}: {error}"),
    }
    true
}

#[test]
fn a_failing_command_at_any_position_is_the_backups_error_alone() {
    for (target, of_copy) in [
        (Target::Read, false),
        (Target::Flush, false),
        (Target::Read, true),
        (Target::Write, true),
        (Target::Flush, true),
    ] {
        let mut nth = 0;
        while strike(target, nth, of_copy) {
            nth += 1;
        }
        assert!(nth > 0, "{target:?} of the copy ({of_copy}): there are such commands");
        println!("{target:?}, of the copy {of_copy}: {nth}");
    }
}

#[test]
fn a_copy_that_does_not_fit_is_no_space_and_the_source_goes_on() {
    let source = devices("source");
    let (db, mut script) = scripted(&source, 6, 300);
    let kvss = ["a", "b"].map(|name| db.kvs(name).unwrap());
    let mut refused = 0;
    for kib in [8, 32, 64, 96, 128, 192, 256, 4096] {
        let copy =
            Devices { capacity: memory("small", kib << 10), staging: None, ..devices("copy") };
        match db.backup_on(&copy) {
            Ok(_) => assert_eq!(state_of(&script, &copy), script.written()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{kib} KiB: {error}");
                assert!(matches!(Kvdb::open_on(copy, options()), Err(KvError::NotAKvdb { .. })));
                refused += 1;
            }
        }
        script.step(&db, &kvss).unwrap();
    }
    assert!((3..8).contains(&refused), "{refused} refused");
}

#[test]
fn a_copy_beside_the_original_leaves_it_the_room_that_it_keeps_for_itself() {
    for kib in [128, 256, 512, 1024, 2048] {
        let system = FileSystem::new(16 << 20);
        let options = || test_options(small_tuning());
        let on_system = |name: &str| Devices {
            capacity: system.file(&format!("{name} capacity")),
            staging: Some(system.file(&format!("{name} staging"))),
            manifest: Arc::new(MemoryDevice::new(name, 2 << 20, 4096)),
        };
        let db = Kvdb::create_on(on_system("source"), options()).unwrap();
        let kvs = db.create_kvs("k", Policy::default()).unwrap();
        records::put(&kvs, 0..4000);
        db.settle().unwrap();
        db.sync().unwrap();
        let others = i64::try_from(system.free_bytes()).unwrap() - (kib << 10);
        system.take(others);
        let full = db.backup_on(&on_system("copy")).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
        let put = |n: u64| kvs.put(n.to_be_bytes(), records::value(n)).and_then(|()| db.sync());
        let full = (4000..).find_map(|n| put(n).err()).unwrap();
        assert!(matches!(full, KvError::NoSpace { .. }), "{kib} KiB: {full}");
        assert_eq!((db.stats().stopped, system.refused()), (None, 0), "{kib} KiB");
        records::check(&kvs, 0..4000);
    }
}

#[test]
fn a_failed_copy_takes_its_files_with_it() {
    let plan = FaultPlan::new();
    let large = |name| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(name, 4 << 20, 4096)) };
    let source = Devices { capacity: large("c"), staging: Some(large("s")), ..devices("source") };
    let (db, script) = scripted(&faulty(&source, &plan), 4, 150);
    let scratch = tempfile::tempdir().unwrap();
    let (dir, capacity) = (scratch.path().join("copy"), scratch.path().join("capacity"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("staging.esker"), b"").unwrap();
    let to = Location::dir(&dir).staging(Medium::InDir).capacity(Medium::Path(capacity.clone()));
    plan.once(Target::Read, plan.seen(Target::Read) + 8, Effect::Fail);
    db.backup(&to).unwrap_err();
    let left: Vec<_> = dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["staging.esker"], "what was there stays");
    assert!(!capacity.exists());
    db.backup(&to).unwrap();
    let copy = Kvdb::builder(&dir).options(options()).open().unwrap();
    assert_eq!(script.state_of(&copy), Some(script.written()));
}

#[test]
fn damage_is_found_while_it_is_copied() {
    let source = devices("source");
    let (db, _) = scripted(&source, 2, 300);
    db.ingest().unwrap();
    db.settle().unwrap();
    db.close().unwrap();
    // Every read of the backup alone, each with a bit flipped: an error, never a wrong copy.
    let plan = FaultPlan::new();
    let db = Kvdb::open_on(faulty(&source, &plan), options()).unwrap();
    let (mut found, mut nth) = (0, 0u64);
    loop {
        let before = plan.fired();
        let offset = usize::try_from(nth).unwrap() * 37;
        plan.once(Target::Read, plan.seen(Target::Read) + nth, Effect::Corrupt { offset, mask: 4 });
        let copy = devices("copy");
        let result = db.backup_on(&copy);
        plan.heal();
        if plan.fired() == before {
            result.unwrap();
            break;
        }
        match result {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                found += 1;
            }
            Ok(_) => assert_eq!(Kvdb::check_on(&copy).unwrap().findings, Vec::<String>::new()),
        }
        nth += 1;
    }
    assert!(found > 5, "{found} of {nth}");
}

#[test]
fn a_kvdb_that_its_manifest_has_no_room_for_is_copied_to_a_larger_one() {
    let source = Devices { manifest: memory("small", 16 << 10), ..devices("source") };
    let db = Kvdb::create_on(source, options()).unwrap();
    let kvs = db.create_kvs("0", KvsOptions::default()).unwrap();
    kvs.put(b"k", b"v").unwrap();
    db.ingest().unwrap();
    let full = (1..10_000)
        .find_map(|n| db.create_kvs(&n.to_string(), KvsOptions::default()).err())
        .expect("the device is finite");
    assert!(full.to_string().contains("give it a larger one, or, in a directory"), "{full}");
    let copy = devices("copy");
    let report = db.backup_on(&copy).unwrap();
    assert!(report.kvss > 20, "{report:?}");
    let copy = Kvdb::open_on(copy, options()).unwrap();
    assert_eq!(copy.kvs("0").unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// Records that memtables still answer for may have rotted where the log has them.
#[test]
fn damage_in_the_log_that_is_in_no_kvset_yet_ends_the_backup() {
    let source = devices("source");
    let tuning = Tuning { memtable_bytes: 1 << 20, ..tiny_tuning() };
    let db = Kvdb::create_on(source.clone(), test_options(tuning)).unwrap();
    let kvs = db.create_kvs("k", Policy::default()).unwrap();
    for n in 0..500u64 {
        kvs.put(n.to_be_bytes(), [7; 100]).unwrap();
        if n % 20 == 0 {
            db.sync().unwrap();
        }
    }
    db.sync().unwrap();
    assert_eq!(db.stats().maintenance.ingests, 0);
    db.backup_on(&devices("copy")).unwrap();
    let staging = &**source.staging.as_ref().unwrap();
    let all = bytes_of(staging);
    let frames: Vec<u64> = (0..)
        .zip(all.chunks(512))
        .filter_map(|(lba, bytes)| bytes.starts_with(b"ESKFRAME").then_some(lba))
        .collect();
    assert!(frames.len() > 20);
    for &lba in &frames[..frames.len() - 1] {
        edit(staging, lba, |bytes| bytes[100] ^= 1);
        let error = db.backup_on(&devices("copy")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        edit(staging, lba, |bytes| bytes[100] ^= 1);
    }
    db.backup_on(&devices("copy")).unwrap();
}
