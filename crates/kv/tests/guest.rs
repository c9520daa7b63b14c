//! The engine is a guest in the processes of others: it changes no disposition of a signal and no panic hook, takes no
//! signals, prints nothing, tells its remarks to a receiver, and works where `io_uring` is refused.
#![allow(unsafe_code)]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{in_memory, small_tuning, test_options};
use esker_base::{Clock, thread};
use esker_device::Device;
use esker_kv::{
    Batch, CompactRequest, KvError, Kvdb, Location, Maintenance, Medium, Options, Policy,
};
use esker_sim::{Effect, Fault, FaultDevice, FaultPlan, Repeat, Target};

/// The remarks that were told.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn receive(&self) -> impl Fn(&str) + Send + Sync + 'static {
        let log = self.clone();
        move |remark| log.0.lock().unwrap().push(remark.to_owned())
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn of(&self, part: &str) -> usize {
        self.all().iter().filter(|remark| remark.contains(part)).count()
    }

    fn wait_for(&self, part: &str) {
        let clock = Clock::real();
        let end = clock.now() + Duration::from_secs(30);
        while self.of(part) == 0 {
            assert!(clock.now() < end, "no remark has '{part}': {:?}", self.all());
            clock.sleep(Duration::from_millis(20));
        }
    }
}

fn use_all(db: &Kvdb) {
    let kvs = db.kvs_or_create("a", Policy::default()).unwrap();
    for n in 0..5_000_u64 {
        kvs.put(n.to_be_bytes(), n.to_be_bytes().repeat(100)).unwrap();
    }
    let mut batch = Batch::new();
    batch.put(&kvs, "b", "1");
    batch.delete(&kvs, 7_u64.to_be_bytes());
    db.write(&batch).unwrap();
    db.sync().unwrap();
    db.ingest().unwrap();
    db.compact(CompactRequest::Full).unwrap();
    assert_eq!(kvs.get(7_u64.to_be_bytes()).unwrap(), None);
    let found = kvs.get_many(&[8_u64.to_be_bytes(), 9_u64.to_be_bytes()]).unwrap();
    assert_eq!(found[1].as_ref().unwrap(), &9_u64.to_be_bytes().repeat(100));
    assert_eq!(kvs.iter().unwrap().count(), 5_000);
    let mut transaction = db.transaction();
    transaction.put(&kvs, "c", "2").unwrap();
    transaction.commit().unwrap();
}

// ---- signals and panics ----------------------------------------------------------------------------------------

/// The address of the handler of each signal, or its disposition.
fn dispositions() -> Vec<usize> {
    let one = |signal| {
        // SAFETY: it is all integers and pointers, for which zeroes are values.
        let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: it reads the disposition to `now`; for signals that there are not, `now` stays as it is.
        unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) };
        now.sa_sigaction
    };
    (1..=64).map(one).collect()
}

/// The signals that threads with such a name block, as bits.
fn blocked_by(name: &str) -> Vec<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
        let is_named = field("Name:")?.trim().starts_with(name);
        is_named.then(|| u64::from_str_radix(field("SigBlk:")?.trim(), 16).ok())?
    };
    tasks.filter_map(of).collect()
}

#[test]
fn engine_changes_no_disposition_and_its_threads_take_no_signals() {
    let scratch = tempfile::tempdir().unwrap();
    let before = dispositions();
    let db = Kvdb::builder(scratch.path().join("db")).memory(32 << 20).create().unwrap();
    use_all(&db);
    // A thread has its name once it runs.
    let threads = blocked_by("esker-");
    assert!(threads.len() >= 5, "{threads:?}");
    for blocked in threads {
        let is_blocked = |signal: i32| blocked >> (signal - 1) & 1 == 1;
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGALRM, libc::SIGCHLD, libc::SIGUSR1] {
            assert!(is_blocked(signal), "signal {signal}: {blocked:x}");
        }
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGPROF] {
            assert!(!is_blocked(signal), "signal {signal}: {blocked:x}");
        }
    }
    db.close().unwrap();
    assert_eq!(dispositions(), before);
    // The thread that opened it takes signals as before.
    // SAFETY: it is all integers.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: it reads the mask of this thread to `set`.
    let is_blocked = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
        libc::sigismember(&raw const set, libc::SIGTERM)
    };
    assert_eq!(is_blocked, 0);
}

#[test]
fn panic_of_the_receiver_reaches_the_hook_of_the_program_and_stops_nothing() {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let former = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref::<&str>() == Some(&"of the receiver") {
            SEEN.fetch_add(1, Ordering::Relaxed);
        } else {
            former(panic);
        }
    }));
    let refused = thread::spawn("refused", || {
        refuse(libc::EPERM);
        let scratch = tempfile::tempdir().unwrap();
        let builder = Kvdb::builder(scratch.path().join("db")).memory(32 << 20);
        let db = builder.on_remark(|_| panic!("of the receiver")).create().unwrap();
        use_all(&db);
        db.close().unwrap();
    });
    refused.unwrap().join().unwrap();
    assert!(SEEN.load(Ordering::Relaxed) > 0, "the engine has replaced the hook, or told nothing");
}

// ---- remarks ---------------------------------------------------------------------------------------------------

#[test]
fn failure_that_stops_a_kvdb_is_told_once() {
    let log = Log::default();
    let plan = FaultPlan::new();
    let devices = in_memory("guest-", [4 << 20, 64 << 20, 64 << 20]);
    let staging: Arc<dyn Device> =
        Arc::new(FaultDevice::new(devices.staging.clone().unwrap(), &plan));
    let options = test_options(small_tuning()).on_remark(log.receive()).with(|set| {
        set.maintenance = Maintenance::Threads;
        set.clock = Clock::real();
    });
    let location = Location::devices(devices.manifest, devices.capacity);
    let location = location.staging(Medium::device(staging));
    let db = Kvdb::builder(location).options(options).create().unwrap();
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    assert_eq!(log.of("no more writes"), 0);
    plan.add(Fault {
        target: Target::Flush,
        nth: 0,
        repeat: Repeat::FromThenOn,
        effect: Effect::Fail,
    });
    let failed = kvs.put("k", "v").and_then(|()| db.sync());
    failed.unwrap_err();
    log.wait_for("no more writes");
    assert!(matches!(kvs.put("k", "v"), Err(KvError::Stopped { .. })));
    let _ = db.close();
    assert_eq!(log.of("no more writes"), 1, "{:?}", log.all());
}

// ---- without io_uring ------------------------------------------------------------------------------------------

/// Has the calling thread, and those that it starts, refused each call of `io_uring` with this error.
fn refuse(errno: i32) {
    let instruction = |code: u32, jt, jf, k| {
        let code = u16::try_from(code).unwrap();
        libc::sock_filter { code, jt, jf, k }
    };
    let first = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let errno = u32::try_from(errno).unwrap();
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        // Setup, enter and register are three numbers that follow each other.
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 2, first),
        instruction(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 1, 0, first + 2),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program is as long as it says, and lives until the calls return.
    let (allowed, filtered) = unsafe {
        (
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
        )
    };
    assert_eq!((allowed, filtered), (0, 0), "{}", std::io::Error::last_os_error());
    // SAFETY: the parameters are refused before they are looked at.
    let refused = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, std::ptr::null_mut::<u8>()) };
    let error = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((refused, error), (-1, i32::try_from(errno).ok()), "the filter works");
}

/// A life of a KVDB whose process may not use `io_uring`.
fn works_without_io_uring(errno: i32, says: &'static str) {
    let refused = thread::spawn("refused", move || {
        refuse(errno);
        let (scratch, log) = (tempfile::tempdir().unwrap(), Log::default());
        let dir = scratch.path().join("db");
        let options = || Options::default().with(|set| set.memory_bytes = 32 << 20);
        let location = Location::dir(&dir).staging(Medium::InDir);
        let db = Kvdb::builder(location).options(options().on_remark(log.receive()));
        let db = db.open_or_create().unwrap();
        assert!(log.of("io_uring is refused") > 0, "{:?}", log.all());
        assert!(log.of(says) > 0, "{:?}", log.all());
        let told = log.all();
        use_all(&db);
        db.close().unwrap();
        assert_eq!(log.all(), told, "each remark is told once");
        let db = Kvdb::builder(&dir).options(options()).open().unwrap();
        assert_eq!(db.kvs("a").unwrap().get("c").unwrap().unwrap(), "2");
        let copy = scratch.path().join("copy");
        db.backup(&Location::dir(&copy)).unwrap();
        db.close().unwrap();
        assert!(Kvdb::builder(&dir).check().unwrap().findings.is_empty());
        assert_eq!(Kvdb::builder(&copy).check().unwrap().entries, 5_001);
    });
    refused.unwrap().join().unwrap();
}

#[test]
fn kvdb_works_where_io_uring_is_forbidden() {
    works_without_io_uring(libc::EPERM, "Operation not permitted");
}

#[test]
fn kvdb_works_where_there_is_no_io_uring() {
    works_without_io_uring(libc::ENOSYS, "not implemented");
}
