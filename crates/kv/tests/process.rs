//! Forks, and ends of the process, under an open KVDB. Each case runs in a process of its own: the test runs
//! this program again, with the case's name in its environment.
#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use esker_base::{Clock, thread};
use esker_device::{FileDevice, Port, file::FileOptions};
use esker_kv::{
    Batch, CompactRequest, KvError, Kvdb, Kvs, Location, Medium, Options, Policy, Readable,
};

const CASE: &str = "ESKER_PROCESS_CASE";
const DIR: &str = "ESKER_PROCESS_DIR";
const KEYS: u64 = 3_000;

/// The timed flush comes too late to help: only the end of the process can.
fn options() -> Options {
    Options::default().with(|set| {
        set.memory_bytes = 32 << 20;
        set.durability.ms = 600_000;
    })
}

fn key(n: u64) -> Vec<u8> {
    format!("key-{n:08}").into_bytes()
}

fn put(kvs: &Kvs, keys: std::ops::Range<u64>) {
    keys.for_each(|n| kvs.put(key(n), n.to_le_bytes().repeat(20)).unwrap());
}

/// How many of the keys are there, with the values that were put.
fn count(kvs: &Kvs, keys: std::ops::Range<u64>) -> u64 {
    let is_there = |n: &u64| match kvs.get(key(*n)).unwrap() {
        Some(value) => {
            assert_eq!(value, n.to_le_bytes().repeat(20));
            true
        }
        None => false,
    };
    keys.filter(is_there).count() as u64
}

/// Runs a case to its end in a process of its own; returns how it ended and what it said.
fn run(case: &str, dir: &Path) -> (ExitStatus, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "case_in_a_process", "--ignored", "--nocapture", "--test-threads=1"])
        .envs([(CASE, case.as_ref()), (DIR, dir.as_os_str())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = child.stdout.take().unwrap();
    let reader = thread::spawn("reads", move || {
        let mut all = String::new();
        said.read_to_string(&mut all).unwrap();
        all
    });
    let clock = Clock::real();
    let end = clock.now() + Duration::from_secs(120);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if clock.now() > end {
            child.kill().unwrap();
            panic!("{case} does not end");
        }
        clock.sleep(Duration::from_millis(5));
    };
    (status, reader.unwrap().join().unwrap())
}

/// Creates a KVDB in a directory of its own and runs a case on it.
fn run_on_new(case: &str) -> (tempfile::TempDir, ExitStatus, String) {
    let scratch = tempfile::tempdir().unwrap();
    let db = Kvdb::builder(Location::dir(scratch.path().join("db")).staging(Medium::InDir))
        .options(options())
        .create()
        .unwrap();
    db.create_kvs("a", Policy::default()).unwrap();
    db.close().unwrap();
    let (status, said) = run(case, scratch.path());
    (scratch, status, said)
}

fn reopened(scratch: &tempfile::TempDir) -> (Kvdb, Kvs) {
    let db = Kvdb::builder(scratch.path().join("db")).options(options()).open().unwrap();
    let kvs = db.kvs("a").unwrap();
    (db, kvs)
}

/// The number that a case said last.
fn last_number(said: &str) -> u64 {
    said.lines().filter_map(|line| line.trim().parse().ok()).next_back().expect("a number")
}

// ---- the cases, each in its own process --------------------------------------------------------------------------

#[test]
#[ignore = "a case of the tests below, which run it in a process of its own"]
fn case_in_a_process() {
    let (Ok(case), Some(dir)) = (std::env::var(CASE), std::env::var_os(DIR)) else { return };
    let dir = PathBuf::from(dir).join("db");
    match case.as_str() {
        "device" => return forked_device(&dir),
        "of the child" => return open_after_another(&dir),
        _ => {}
    }
    let db = Kvdb::builder(&dir).options(options()).open().unwrap();
    let kvs = db.kvs("a").unwrap();
    match case.as_str() {
        "exit" => {
            put(&kvs, 0..KEYS);
            std::process::exit(0);
        }
        "leak" => {
            put(&kvs, 0..KEYS);
            std::mem::forget((db, kvs));
        }
        "thread panic" => {
            let panics = thread::spawn("panics", move || {
                put(&kvs, 0..KEYS);
                panic!("as it is meant to");
            });
            panics.unwrap().join().unwrap_err();
            std::process::exit(1);
        }
        "exit under load" => exit_under_load(&kvs),
        "fork" => fork_beside(db, kvs, &dir, false),
        "fork and exit" => fork_beside(db, kvs, &dir, true),
        "fork and die" => fork_and_die(&db, &kvs),
        other => panic!("no case {other}"),
    }
}

/// Exits while other threads put. Each says what was acknowledged, at once.
fn exit_under_load(kvs: &Kvs) -> ! {
    for thread in 0..2u64 {
        let kvs = kvs.clone();
        let puts = move || {
            for n in (0..).map(|n| n * 2 + thread) {
                match kvs.put(key(n), n.to_le_bytes().repeat(20)) {
                    Ok(()) => println!("{n}"),
                    Err(error) => {
                        assert!(error.to_string().contains("the process exits"), "{error}");
                        Clock::real().sleep(Duration::from_secs(60));
                    }
                }
            }
        };
        thread::spawn("puts", puts).unwrap();
    }
    Clock::real().sleep(Duration::from_millis(300));
    std::process::exit(0);
}

/// Forks and runs `child` there, which returns its code.
fn fork(child: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child runs code that takes no lock which a thread of the parent may hold.
    match unsafe { libc::fork() } {
        0 => {
            let code = catch_unwind(AssertUnwindSafe(child)).unwrap_or(99);
            // SAFETY: it ends the child at once.
            unsafe { libc::_exit(code) }
        }
        pid => pid,
    }
}

fn code_of(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    ExitStatus::from_raw(status).code().unwrap_or(-1)
}

fn is_forked<T>(result: Result<T, KvError>) -> bool {
    result.is_err_and(|error| matches!(error, KvError::Forked))
}

/// The parent goes on, and the child is refused everything, however it ends.
fn fork_beside(db: Kvdb, kvs: Kvs, dir: &Path, exits: bool) {
    put(&kvs, 0..KEYS);
    let (snapshot, mut transaction) = (db.snapshot(), db.transaction());
    transaction.put(&kvs, b"child", b"transaction").unwrap();
    let mut cursor = kvs.cursor().unwrap();
    cursor.next().unwrap().unwrap();
    // Threads that hold locks at the fork.
    let busy: Vec<_> = (1..3u64)
        .map(|thread| {
            let kvs = kvs.clone();
            let puts = move || put(&kvs, thread * 100_000..thread * 100_000 + 5_000);
            thread::spawn("busy", puts).unwrap()
        })
        .collect();
    let db = &mut Some(db);
    let mut batch = Batch::new();
    batch.put(&kvs, b"child", b"batch");
    let (mut all, k) = (Some((kvs, snapshot, transaction, cursor, batch)), key(0));
    let mut child = |db: &mut Option<Kvdb>| {
        let (kvs, snapshot, transaction, mut cursor, batch) = all.take().unwrap();
        let own = db.take().unwrap();
        let refused = [
            is_forked(kvs.put(b"child", b"put")),
            is_forked(kvs.delete(&k)),
            is_forked(kvs.delete_prefix(&k)),
            is_forked(kvs.delete_range::<&[u8]>(..)),
            is_forked(kvs.get(&k)),
            is_forked(kvs.get_many(&[&k])),
            is_forked(kvs.cursor().map(drop)),
            is_forked(kvs.options()),
            is_forked(kvs.set_ttl_ms(Some(1))),
            is_forked(cursor.next().map(|_| ())),
            is_forked(cursor.seek_to_first()),
            is_forked(snapshot.get(&kvs, &k)),
            is_forked(transaction.get(&kvs, &k)),
            is_forked(transaction.commit()),
            is_forked(own.transaction().get(&kvs, &k)),
            is_forked(own.transaction().commit()),
            is_forked(own.snapshot().get(&kvs, &k)),
            is_forked(own.write(&batch)),
            is_forked(own.sync()),
            is_forked(own.ingest()),
            is_forked(own.step()),
            is_forked(own.settle()),
            is_forked(own.kvs("a").map(drop)),
            is_forked(own.create_kvs("b", Policy::default()).map(drop)),
            is_forked(own.drop_kvs("a")),
            is_forked(own.compact(CompactRequest::Full)),
            is_forked(own.remove_staging()),
            is_forked(own.add_staging(&Medium::InDir)),
            is_forked(own.backup(&Location::dir("/nowhere"))),
            own.stats().stopped.is_some(),
            !own.compact_status().active,
            own.observer().stats().is_none(),
        ];
        let accepted = refused.iter().position(|refused| !refused);
        if let Some(at) = accepted {
            return i32::try_from(at).unwrap() + 10;
        }
        if exits {
            std::mem::forget((own, kvs, snapshot, cursor));
            std::process::exit(0);
        }
        drop((kvs, snapshot, cursor));
        i32::from(!is_forked(own.close()))
    };
    let pid = fork(|| child(db));
    assert_eq!(code_of(pid), 0, "the first call that was not refused, and 10");
    busy.into_iter().for_each(|thread| thread.join().unwrap());
    let db = db.take().unwrap();
    let (kvs, _, transaction, mut cursor, _) = all.take().unwrap();
    put(&kvs, KEYS..2 * KEYS);
    assert!(cursor.next().unwrap().is_some());
    drop((cursor, transaction));
    db.sync().unwrap();
    assert_eq!(count(&kvs, 0..2 * KEYS), 2 * KEYS);
    // A child that lives on does not have the parent's locks, and has a program of its own open the KVDB.
    let pid = fork(|| {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(std::env::args_os().skip(1)).env(CASE, "of the child");
        program.status().unwrap().code().unwrap_or(98)
    });
    db.close().unwrap();
    assert_eq!(code_of(pid), 0);
    drop(Kvdb::builder(dir).options(options()).open().unwrap());
}

/// Opens the KVDB as soon as its parent's parent has closed it.
fn open_after_another(dir: &Path) {
    let clock = Clock::real();
    let end = clock.now() + Duration::from_secs(60);
    let own = loop {
        match Kvdb::builder(dir).options(options()).open() {
            Ok(own) => break own,
            Err(error) => assert!(clock.now() < end, "{error}"),
        }
    };
    own.kvs("a").unwrap().put(b"of the child", b"own").unwrap();
    own.close().unwrap();
}

/// The parent is killed while its child lives: the child does not keep the KVDB from being opened.
fn fork_and_die(db: &Kvdb, kvs: &Kvs) {
    put(kvs, 0..KEYS);
    db.sync().unwrap();
    let pid = fork(|| {
        // SAFETY: nothing is said any more; the test reads to the end.
        unsafe { libc::close(1) };
        Clock::real().sleep(Duration::from_secs(60));
        0
    });
    println!("\n{pid}");
    std::io::stdout().flush().unwrap();
    // SAFETY: it ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// A device of a file: refused in the child, with io_uring and without, and whole in the parent.
fn forked_device(dir: &Path) {
    use esker_base::{AlignedBuf, Lba};
    use esker_device::{Device, file::Preference};
    for io_uring in [Preference::Prefer, Preference::Never] {
        let path = dir.with_file_name(format!("device-{io_uring:?}"));
        let options = FileOptions { io_uring, ..FileOptions::default() };
        let device = FileDevice::open(&path, &options).unwrap();
        let mut port = Some(Port::open(&device, 4).unwrap());
        let page = |byte: u8| {
            let mut buf = AlignedBuf::zeroed(4096);
            buf.fill(byte);
            buf
        };
        port.as_mut().unwrap().write(Lba(0), page(1), None).unwrap();
        let pid = fork(|| {
            let mut port = port.take().unwrap();
            let says = |error: String| error.contains("open the device here instead");
            let refused = [
                port.write(Lba(0), page(2), None).is_err_and(|error| says(error.to_string())),
                port.flush().is_err_and(|error| says(error.to_string())),
                device.queue_pair(1).is_err_and(|error| says(error.to_string())),
            ];
            let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
            let has_rings = maps().contains("io_uring");
            drop(port);
            i32::from(!refused.iter().all(|refused| *refused)) + 2 * i32::from(has_rings)
        });
        assert_eq!(code_of(pid), 0);
        let mut port = port.take().unwrap();
        assert_eq!(port.read(Lba(0), page(0)).unwrap()[..], page(1)[..]);
        port.write(Lba(0), page(3), None).unwrap();
        assert_eq!(port.read(Lba(0), page(0)).unwrap()[..], page(3)[..]);
        drop((port, device));
        FileDevice::open(&path, &options).unwrap();
    }
}

// ---- the tests ---------------------------------------------------------------------------------------------------

#[test]
fn exit_without_closing_loses_nothing_acknowledged() {
    for (case, code) in [("exit", 0), ("leak", 0), ("thread panic", 1)] {
        let (scratch, status, _) = run_on_new(case);
        assert_eq!(status.code(), Some(code), "{case}");
        let (db, kvs) = reopened(&scratch);
        assert_eq!(count(&kvs, 0..KEYS), KEYS, "{case}");
        db.close().unwrap();
    }
}

#[test]
fn exit_while_threads_put_loses_nothing_acknowledged() {
    let (scratch, status, said) = run_on_new("exit under load");
    assert_eq!(status.code(), Some(0));
    let (db, kvs) = reopened(&scratch);
    let acknowledged: Vec<u64> = said.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    for n in acknowledged {
        assert!(kvs.get(key(n)).unwrap().is_some(), "{n}");
    }
    db.close().unwrap();
}

#[test]
fn forked_child_is_refused_and_harms_nothing() {
    for case in ["fork", "fork and exit"] {
        let (scratch, status, said) = run_on_new(case);
        assert_eq!(status.code(), Some(0), "{case}: {said}");
        let (db, kvs) = reopened(&scratch);
        assert_eq!(count(&kvs, 0..2 * KEYS), 2 * KEYS, "{case}");
        for thread in 1..3u64 {
            let keys = thread * 100_000..thread * 100_000 + 5_000;
            assert_eq!(count(&kvs, keys), 5_000, "{case}");
        }
        assert_eq!(kvs.get(b"child").unwrap(), None, "{case}");
        assert_eq!(kvs.get(b"of the child").unwrap().unwrap(), b"own", "{case}");
        assert_eq!(db.kvs_names(), ["a"], "{case}");
        db.close().unwrap();
        let report = Kvdb::builder(scratch.path().join("db")).check().unwrap();
        assert_eq!(report.findings, Vec::<String>::new(), "{case}");
    }
}

#[test]
fn forked_child_does_not_keep_the_lock_of_a_parent_that_was_killed() {
    let (scratch, status, said) = run_on_new("fork and die");
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    let (db, kvs) = reopened(&scratch);
    assert_eq!(count(&kvs, 0..KEYS), KEYS);
    db.close().unwrap();
    let child = i32::try_from(last_number(&said)).unwrap();
    // SAFETY: it is the child that the case has forked; nobody waits for it.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0, "it was alive");
}

#[test]
fn device_of_a_file_is_refused_to_a_forked_child() {
    let scratch = tempfile::tempdir().unwrap();
    let (status, said) = run("device", scratch.path());
    assert_eq!(status.code(), Some(0), "{said}");
}
