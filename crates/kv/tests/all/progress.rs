//! How far long work is, as an observer is told; and work that the observer calls off.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

use esker_base::Progress;
use esker_kv::{CompactRequest, KvError, Kvdb, Location, Options, Policy};

const KEYS: u32 = 3000;

fn key(n: u32) -> [u8; 4] {
    n.wrapping_mul(0x9e37_79b1).to_be_bytes()
}

fn options() -> Options {
    Options::default().with(|set| set.memory_bytes = 256 << 20)
}

/// Options with an observer, and all that it was told.
fn observed() -> (Options, Arc<Mutex<Vec<Progress>>>) {
    let told: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let heard = told.clone();
    let observer = move |progress: &Progress| {
        heard.lock().unwrap().push(*progress);
        ControlFlow::Continue(())
    };
    (options().on_progress(observer), told)
}

/// Options whose observer calls work off when more than this share of a phase is done, in percent.
fn stopping(phase: &'static str, percent: u64) -> Options {
    options().on_progress(move |progress| {
        let is_wanted = progress.phase == phase
            && progress.done > 0
            && progress.done * 100 >= progress.total.unwrap_or(0) * percent;
        if is_wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// A KVDB in `dir` as a kill leaves it, with records in the log and none elsewhere, or most of them in kvsets.
fn killed(dir: &Path, is_ingested: bool) {
    let live = dir.with_extension("live");
    let db = Kvdb::builder(&live).options(options()).create().unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    for n in 0..KEYS {
        kvs.put(key(n), [7; 1000]).unwrap();
    }
    db.sync().unwrap();
    if is_ingested {
        db.ingest().unwrap();
    }
    fs::create_dir(dir).unwrap();
    for file in fs::read_dir(&live).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), dir.join(file.file_name())).unwrap();
    }
}

#[track_caller]
fn assert_whole(db: &Kvdb) {
    let kvs = db.kvs("a").unwrap();
    assert!((0..KEYS).all(|n| kvs.get(key(n)).unwrap().is_some()));
}

/// Told of the phase, in order, to its end at `least` percent or later, and never beyond it.
#[track_caller]
fn assert_told(told: &Mutex<Vec<Progress>>, phase: &str, least: u64) {
    let told = std::mem::take(&mut *told.lock().unwrap());
    let of_phase: Vec<&Progress> = told.iter().filter(|one| one.phase == phase).collect();
    assert!(of_phase.len() > 1, "{told:?}");
    assert!(of_phase.is_sorted_by_key(|one| one.done), "{of_phase:?}");
    let last = of_phase.last().unwrap();
    let total = last.total.unwrap();
    assert!(last.done <= total && last.done * 100 >= total * least, "{last:?}");
}

#[test]
fn opening_tells_of_replay_and_can_be_called_off() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    killed(&dir, false);
    let error = Kvdb::builder(&dir).options(stopping("reading the log", 0)).open().err().unwrap();
    assert!(matches!(error, KvError::Cancelled), "{error}");
    let (options, told) = observed();
    let db = Kvdb::builder(&dir).options(options).open().unwrap();
    assert_told(&told, "reading the log", 2);
    assert_whole(&db);
    db.close().unwrap();
}

#[test]
fn cancelled_backup_leaves_no_kvdb_and_can_be_repeated() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, copy) = (scratch.path().join("db"), scratch.path().join("copy"));
    killed(&dir, true);
    let db = Kvdb::builder(&dir).options(stopping("copying", 30)).open().unwrap();
    let error = db.backup(&Location::dir(&copy)).unwrap_err();
    assert!(matches!(error, KvError::Cancelled), "{error}");
    assert!(matches!(
        Kvdb::builder(&copy).options(options()).open(),
        Err(KvError::NotAKvdb { .. })
    ));
    assert_whole(&db);
    db.close().unwrap();
    let (options, told) = observed();
    let db = Kvdb::builder(&dir).options(options).open().unwrap();
    db.backup(&Location::dir(&copy)).unwrap();
    assert_told(&told, "copying", 90);
    let copy = Kvdb::builder(&copy).options(self::options()).open().unwrap();
    assert_whole(&copy);
    db.close().unwrap();
}

#[test]
fn cancelled_repair_leaves_no_kvdb() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    killed(&dir, true);
    for phase in ["searching", "salvaging"] {
        let new = scratch.path().join(phase);
        let remains = Location::dir(&dir).remains().unwrap();
        let stopped = Kvdb::builder(&new).options(stopping(phase, 30)).repair(&remains);
        assert!(matches!(stopped, Err(KvError::Cancelled)), "{phase}: {stopped:?}");
        assert!(Kvdb::builder(&new).options(options()).open().is_err(), "{phase}");
    }
    let (options, told) = observed();
    let remains = Location::dir(&dir).remains().unwrap();
    let new = scratch.path().join("new");
    let report = Kvdb::builder(&new).options(options).repair(&remains).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let heard = told.lock().unwrap().clone();
    assert!(heard.iter().any(|one| one.phase == "salvaging"), "{heard:?}");
    assert_told(&told, "searching", 99);
    drop(remains);
    assert_whole(&Kvdb::builder(&new).options(self::options()).open().unwrap());
}

#[test]
fn cancelled_compaction_says_so_and_keeps_all() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("db");
    killed(&dir, true);
    let stopping = options().on_progress(|progress| match progress.phase {
        "compacting" => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    let db = Kvdb::builder(&dir).options(stopping).open().unwrap();
    assert!(db.compact(CompactRequest::Full).unwrap().cancelled);
    assert_whole(&db);
    db.close().unwrap();
    let (options, told) = observed();
    let db = Kvdb::builder(&dir).options(options).open().unwrap();
    assert!(!db.compact(CompactRequest::Full).unwrap().cancelled);
    assert!(told.lock().unwrap().iter().any(|one| one.phase == "compacting"));
    assert_whole(&db);
    db.close().unwrap();
}
