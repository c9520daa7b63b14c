//! Processes that are killed with a KVDB open: nothing that was acknowledged is lost, however long `durability_ms` is.
//! Each case runs in a process of its own, this program again, and kills itself.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::{Clock, thread};
use esker_kv::{Batch, Kvdb, Kvs, KvsOptions, Location, Medium, Options, Policy, Tuning};

const CASE: &str = "ESKER_KILLED_CASE";
const DIR: &str = "ESKER_KILLED_DIR";

/// The timed flush comes too late to help.
fn options() -> Options {
    Options::default().with(|set| {
        set.memory_bytes = 32 << 20;
        set.durability.ms = 600_000;
    })
}

fn key(n: u64) -> Vec<u8> {
    format!("key-{n:08}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(20)
}

fn put(kvs: &Kvs, keys: std::ops::Range<u64>) {
    keys.for_each(|n| kvs.put(key(n), value(n)).unwrap());
}

/// The first of the keys that is not there with its value.
fn first_missing(kvs: &Kvs, keys: std::ops::Range<u64>) -> Option<u64> {
    keys.into_iter().find(|n| kvs.get(key(*n)).unwrap() != Some(value(*n).into()))
}

fn kill_oneself() -> ! {
    // SAFETY: it ends this process, at once.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!("killed")
}

/// A new KVDB with a KVS "a"; `None` where the file system keeps no frames.
fn new_kvdb() -> Option<tempfile::TempDir> {
    let scratch = tempfile::tempdir().unwrap();
    let db = Kvdb::builder(Location::dir(scratch.path().join("db")).staging(Medium::InDir))
        .options(options())
        .create()
        .unwrap();
    db.create_kvs("a", Policy::default()).unwrap();
    let keeps = tail(&scratch).exists();
    db.close().unwrap();
    assert!(!tail(&scratch).exists(), "a KVDB that was closed leaves no such file");
    if !keeps {
        println!("SKIPPED: THE FILE SYSTEM KEEPS NO FRAMES OF A PROCESS THAT IS KILLED");
    }
    keeps.then_some(scratch)
}

fn tail(scratch: &tempfile::TempDir) -> PathBuf {
    scratch.path().join("db/tail.esker")
}

/// Runs a case until it has killed itself; returns what it said.
fn run(case: &str, scratch: &tempfile::TempDir) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "case_in_a_process", "--ignored", "--nocapture", "--test-threads=1"])
        .envs([(CASE, case.as_ref()), (DIR, scratch.path().as_os_str())])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{said}");
    said
}

fn open(scratch: &tempfile::TempDir) -> (Kvdb, Kvs) {
    let db = Kvdb::builder(scratch.path().join("db")).options(options()).open().unwrap();
    let kvs = db.kvs("a").unwrap();
    (db, kvs)
}

#[test]
#[ignore = "a case of the tests below, which run it in a process of its own"]
fn case_in_a_process() {
    let (Ok(case), Some(dir)) = (std::env::var(CASE), std::env::var_os(DIR)) else { return };
    let dir = Path::new(&dir).join("db");
    // Log segments of which a long load fills several.
    let tuning = Tuning { block_bytes: 2 << 20, ..Tuning::for_budget(options().memory_bytes) };
    let db = Kvdb::builder(&dir)
        .options(options().with(|set| set.tuning = Some(tuning)))
        .open()
        .unwrap();
    let kvs = db.kvs("a").unwrap();
    match case.as_str() {
        "few" => put(&kvs, 0..2_000),
        "next" => {
            assert_eq!(first_missing(&kvs, 0..2_000), None);
            put(&kvs, 2_000..4_000);
        }
        // Many times what the limit of unflushed bytes lets be.
        "many" => put(&kvs, 0..50_000),
        "kinds" => {
            put(&kvs, 0..100);
            kvs.delete(key(7)).unwrap();
            kvs.delete_prefix(b"key-0000002").unwrap();
            kvs.delete_range(key(30)..=key(34)).unwrap();
            let timed = KvsOptions::default().ttl_ms(3_600_000);
            let timed = db.create_kvs("timed", timed).unwrap();
            timed.put(b"soon", b"gone").unwrap();
            let mut batch = Batch::new();
            (100..200).for_each(|n| batch.put(&kvs, key(n), value(n)));
            batch.put(&timed, b"batch", b"both");
            db.write(&batch).unwrap();
        }
        // None of them fits a frame of the file.
        "large" => {
            for n in 0..6 {
                kvs.put(format!("large-{n}").as_bytes(), vec![n; 900_000]).unwrap();
                put(&kvs, u64::from(n) * 10..u64::from(n) * 10 + 10);
            }
        }
        "threads" => kill_under_load(&db, &kvs),
        other => panic!("no case {other}"),
    }
    kill_oneself()
}

/// Threads put and flush; one kills all of them. Each thread's acknowledged puts are said by their count.
fn kill_under_load(db: &Kvdb, kvs: &Kvs) -> ! {
    static DONE: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
    std::thread::scope(|scope| {
        for (done, lane) in DONE.iter().zip(0u64..) {
            thread::spawn_scoped(scope, "puts", move || {
                for n in 0.. {
                    let mut batch = Batch::new();
                    (0..3).for_each(|part| {
                        batch.put(kvs, key(lane * 10_000_000 + n * 3 + part), value(n));
                    });
                    db.write(&batch).unwrap();
                    done.store(n + 1, Ordering::Release);
                }
            })
            .unwrap();
        }
        thread::spawn_scoped(scope, "flushes", move || {
            loop {
                db.sync().unwrap();
                Clock::real().sleep(Duration::from_millis(7));
            }
        })
        .unwrap();
        Clock::real().sleep(Duration::from_millis(400));
        let done: Vec<String> =
            DONE.iter().map(|done| done.load(Ordering::Acquire).to_string()).collect();
        println!("\nacknowledged {}", done.join(" "));
        kill_oneself()
    })
}

#[test]
fn killed_process_loses_nothing_acknowledged_however_often() {
    let Some(scratch) = new_kvdb() else { return };
    run("few", &scratch);
    run("next", &scratch);
    let (db, kvs) = open(&scratch);
    assert_eq!(first_missing(&kvs, 0..4_000), None);
    db.close().unwrap();
    let (_db, kvs) = open(&scratch);
    assert_eq!(first_missing(&kvs, 0..4_000), None);
}

#[test]
fn killed_process_has_lost_nothing_of_a_long_load() {
    let Some(scratch) = new_kvdb() else { return };
    run("many", &scratch);
    let (db, kvs) = open(&scratch);
    assert_eq!(first_missing(&kvs, 0..50_000), None);
    db.close().unwrap();
}

#[test]
fn every_kind_of_record_comes_back_and_deletes_stay() {
    let Some(scratch) = new_kvdb() else { return };
    run("kinds", &scratch);
    let (db, kvs) = open(&scratch);
    let missing: Vec<u64> =
        (0..200).filter(|n| kvs.get(key(*n)).unwrap() != Some(value(*n).into())).collect();
    assert_eq!(missing, [7].into_iter().chain(20..35).collect::<Vec<_>>());
    let timed = db.kvs("timed").unwrap();
    assert_eq!(timed.get(b"soon").unwrap().unwrap(), b"gone");
    assert_eq!(timed.get(b"batch").unwrap().unwrap(), b"both");
}

#[test]
fn records_too_large_for_the_file_are_durable_when_acknowledged() {
    let Some(scratch) = new_kvdb() else { return };
    run("large", &scratch);
    let (_db, kvs) = open(&scratch);
    for n in 0..6 {
        let large = kvs.get(format!("large-{n}").as_bytes()).unwrap();
        assert_eq!(large, Some(vec![n; 900_000].into()), "{n}");
    }
    assert_eq!(first_missing(&kvs, 0..60), None);
}

#[test]
fn threads_that_are_killed_lose_no_batch_and_have_none_in_part() {
    let Some(scratch) = new_kvdb() else { return };
    for _ in 0..3 {
        let said = run("threads", &scratch);
        let done = said.lines().find_map(|line| line.strip_prefix("acknowledged ")).unwrap();
        let (db, kvs) = open(&scratch);
        for (done, lane) in done.split(' ').map(|n| n.parse::<u64>().unwrap()).zip(0u64..) {
            assert!(done > 0);
            for n in 0..done + 50 {
                let there = (0..3).filter(|part| {
                    let found = kvs.get(key(lane * 10_000_000 + n * 3 + part)).unwrap();
                    found.is_some_and(|found| found == value(n))
                });
                let there = there.count();
                assert!(there == 3 || n >= done && there == 0, "{there} of batch {n} of {done}");
            }
        }
        kvs.delete_prefix(b"key-").unwrap();
        db.close().unwrap();
    }
}

#[test]
fn reader_sees_what_a_killed_process_has_written_and_leaves_it() {
    let Some(scratch) = new_kvdb() else { return };
    run("few", &scratch);
    for _ in 0..2 {
        let to_read = options().with(|set| set.read_only = true);
        let db = Kvdb::builder(scratch.path().join("db")).options(to_read).open().unwrap();
        assert_eq!(first_missing(&db.kvs("a").unwrap(), 0..2_000), None);
        let mut cursor = db.kvs("a").unwrap().cursor().unwrap();
        let mut count = 0;
        while cursor.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 2_000);
    }
    let (_db, kvs) = open(&scratch);
    assert_eq!(first_missing(&kvs, 0..2_000), None);
}

#[test]
fn repair_has_what_a_killed_process_has_written() {
    for case in ["few", "kinds"] {
        let Some(scratch) = new_kvdb() else { return };
        run(case, &scratch);
        let from = scratch.path().join("db");
        let opened = {
            let copy = scratch.path().join("opened");
            fs::create_dir(&copy).unwrap();
            for file in fs::read_dir(&from).unwrap() {
                let file = file.unwrap().path();
                fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
            }
            content(&Kvdb::builder(copy).options(options()).open().unwrap())
        };
        let remains = Location::dir(&from).remains().unwrap();
        let to = scratch.path().join("to");
        let report = Kvdb::builder(Location::dir(&to).staging(Medium::InDir))
            .options(options())
            .repair(&remains)
            .unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        assert!(tail(&scratch).exists(), "the damaged KVDB is left as it is");
        let repaired = content(&Kvdb::builder(&to).options(options()).open().unwrap());
        assert!(
            repaired.len() > 150 && repaired == opened,
            "{case}: {} of {}",
            repaired.len(),
            opened.len()
        );
        // Nobody knows whose records they are.
        fs::remove_file(from.join("manifest.esker")).unwrap();
        let remains = Location::dir(&from).remains().unwrap();
        let to = scratch.path().join("without-manifest");
        let report = Kvdb::builder(Location::dir(&to).staging(Medium::InDir))
            .options(options())
            .repair(&remains)
            .unwrap();
        assert!(!report.findings.is_empty());
    }
}

/// All keys and values, with the names of their KVSs.
fn content(db: &Kvdb) -> BTreeMap<(String, Vec<u8>), Vec<u8>> {
    let mut content = BTreeMap::new();
    for name in db.kvs_names() {
        let mut cursor = db.kvs(&name).unwrap().cursor().unwrap();
        while let Some((key, value)) = cursor.next().unwrap() {
            content.insert((name.clone(), key.to_vec()), value.to_vec());
        }
    }
    content
}

type Damage = Box<dyn Fn(&Path)>;

/// A file of another KVDB, boot or format, or something that is no file, changes nothing: the KVDB opens with its
/// durable records.
#[test]
fn file_of_something_else_is_passed_over() {
    let flipped = |at: u64| {
        move |path: &Path| {
            let file = fs::File::options().read(true).write(true).open(path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }
    };
    let replaced = |path: &Path| fs::remove_file(path).unwrap();
    let damages: [(&str, Damage); 8] = [
        ("another format", Box::new(flipped(0))),
        ("another KVDB", Box::new(flipped(16))),
        ("another boot", Box::new(flipped(32))),
        ("pieces of another size", Box::new(flipped(15))),
        ("empty", Box::new(|path| fs::write(path, b"").unwrap())),
        (
            "a directory",
            Box::new(move |path| {
                replaced(path);
                fs::create_dir(path).unwrap();
            }),
        ),
        (
            "a pipe",
            Box::new(move |path| {
                replaced(path);
                assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
            }),
        ),
        (
            "a link",
            Box::new(move |path| {
                let elsewhere = path.with_file_name("elsewhere");
                fs::rename(path, &elsewhere).unwrap();
                std::os::unix::fs::symlink(elsewhere, path).unwrap();
            }),
        ),
    ];
    for (what, damage) in damages {
        let Some(scratch) = new_kvdb() else { return };
        run("few", &scratch);
        damage(&tail(&scratch));
        let (db, kvs) = open(&scratch);
        assert_eq!(first_missing(&kvs, 0..2_000), Some(0), "{what}");
        put(&kvs, 0..10);
        db.close().unwrap();
        let (_db, kvs) = open(&scratch);
        assert_eq!(first_missing(&kvs, 0..10), None, "{what}");
    }
}

#[test]
fn damaged_record_ends_what_comes_back() {
    let Some(scratch) = new_kvdb() else { return };
    run("few", &scratch);
    let path = tail(&scratch);
    let content = fs::read(&path).unwrap();
    let wanted = key(1_000);
    let at = content.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"KEY", at as u64).unwrap();
    let (_db, kvs) = open(&scratch);
    let missing = first_missing(&kvs, 0..2_000).unwrap();
    assert!(missing <= 1_000 && first_missing(&kvs, missing..2_000) == Some(missing));
    assert!((missing..2_000).all(|n| kvs.get(key(n)).unwrap().is_none()), "behind {missing}");
}

/// A process that opens the devices themselves does not know of the file: its writes are not mixed with those there.
#[test]
fn file_is_passed_over_when_others_have_written_since() {
    for ingests in [false, true] {
        let Some(scratch) = new_kvdb() else { return };
        run("few", &scratch);
        let (path, aside) = (tail(&scratch), scratch.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        let (db, kvs) = open(&scratch);
        (0..5).for_each(|n| kvs.put(key(n), b"since").unwrap());
        if ingests {
            db.ingest().unwrap();
        }
        db.close().unwrap();
        fs::rename(&aside, &path).unwrap();
        let (_db, kvs) = open(&scratch);
        assert_eq!(kvs.get(key(0)).unwrap().unwrap(), b"since");
        assert_eq!(kvs.get(key(100)).unwrap(), None);
    }
}

#[test]
fn durable_puts_need_no_file() {
    let Some(scratch) = new_kvdb() else { return };
    let always = options().with(|set| set.durability.ms = 0);
    let db = Kvdb::builder(scratch.path().join("db")).options(always).open().unwrap();
    db.kvs("a").unwrap().put(b"k", b"v").unwrap();
    assert!(!tail(&scratch).exists());
    let too_many = options().with(|set| {
        set.durability.bytes = 8 << 30;
        set.memory_bytes = 32 << 30;
    });
    drop(db);
    let db = Kvdb::builder(scratch.path().join("db")).options(too_many).open().unwrap();
    db.kvs("a").unwrap().put(b"k", b"v").unwrap();
    assert!(!tail(&scratch).exists(), "more frames than the file has room for");
}

/// Bytes that the files of the classes take of the file system, and bytes that the figures say they take.
fn blocks_and_figures(scratch: &tempfile::TempDir) -> (u64, u64) {
    let db = Kvdb::builder(scratch.path().join("db"))
        .options(options().with(|set| set.read_only = true))
        .open()
        .unwrap();
    let classes = db.stats().classes;
    let said = classes.iter().map(|class| class.used_bytes + class.reserve_bytes).sum();
    let blocks = ["staging", "capacity"].map(|class| {
        let file = scratch.path().join(format!("db/{class}.esker"));
        std::os::unix::fs::MetadataExt::blocks(&fs::metadata(file).unwrap()) * 512
    });
    db.close().unwrap();
    (blocks.iter().sum(), said)
}

/// Each kill leaves a log segment, and half a step of maintenance.
#[test]
fn space_of_killed_processes_is_given_back_and_figures_are_those_of_the_file_system() {
    let Some(scratch) = new_kvdb() else { return };
    let (blocks, said) = blocks_and_figures(&scratch);
    assert!(
        blocks < 4 << 20 && said < 4 << 20,
        "an empty KVDB: {blocks} bytes of blocks, {said} said"
    );
    for round in 0..6 {
        run("many", &scratch);
        let (db, kvs) = open(&scratch);
        put(&kvs, 0..1_000);
        db.close().unwrap();
        let (blocks, said) = blocks_and_figures(&scratch);
        let difference = blocks.abs_diff(said);
        assert!(difference <= said / 50, "round {round}: {blocks} bytes of blocks, {said} said");
    }
}
