//! Panics in the threads of a KVDB, and in work of callers: the KVDB stops for all with an error that says so, nobody
//! waits for ever, and what was acknowledged is there when it is opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Devices, OnDevices};
use crate::common::{in_memory, small_tuning, test_options};
use esker_base::{Clock, thread};
use esker_device::Device;
use esker_kv::{CompactRequest, KvError, Kvdb, Kvs, Maintenance, Options, Policy, Tuning};
use esker_sim::{Fate, HookDevice};

/// Names of threads: of those of a KVDB, and of the one that the test starts.
const THREADS: [&str; 6] =
    ["esker-flush", "esker-open", "esker-ingest", "esker-age", "esker-help", "caller"];

/// Whether devices panic, once they are armed, when the thread of that name submits a command.
#[derive(Clone)]
struct Fuse {
    thread: &'static str,
    is_armed: Arc<AtomicBool>,
    has_blown: Arc<AtomicBool>,
}

impl Fuse {
    fn pass(&self) {
        let is_here = std::thread::current().name() == Some(self.thread);
        if is_here && self.is_armed.load(Ordering::Acquire) {
            self.has_blown.store(true, Ordering::Release);
            panic!("a device that panics");
        }
    }
}

/// The same devices, with a fuse for the thread of that name.
fn fused(devices: &Devices, thread: &'static str) -> (Devices, Fuse) {
    let fuse = Fuse { thread, is_armed: Arc::default(), has_blown: Arc::default() };
    let wrap = |inner: &Arc<dyn Device>| -> Arc<dyn Device> {
        let fuse = fuse.clone();
        Arc::new(HookDevice::new(inner.clone()).on_command(move |_| {
            fuse.pass();
            Fate::Pass
        }))
    };
    let Devices { manifest, capacity, staging } = devices;
    let devices = Devices {
        manifest: wrap(manifest),
        capacity: wrap(capacity),
        staging: staging.as_ref().map(wrap),
    };
    (devices, fuse)
}

fn options() -> Options {
    test_options(Tuning { workers: 2, ..small_tuning() }).with(|set| {
        set.maintenance = Maintenance::Threads;
        set.clock = Clock::real();
        set.durability.ms = 20;
    })
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn is_panic<T>(result: Result<T, KvError>) -> bool {
    matches!(result, Err(KvError::Panicked { message, .. }) if message == "a device that panics")
}

/// Runs it in a thread of its own, and fails when it takes longer than anybody would wait.
fn in_time<T: Send + 'static>(name: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    thread::spawn(name, move || send.send(run())).unwrap();
    receive.recv_timeout(Duration::from_secs(60)).expect("it ends, and soon")
}

/// Puts until that is refused; returns how many were acknowledged, and why no more were.
fn put_until_refused(kvs: &Kvs) -> (u64, KvError) {
    let refused = (0..).find_map(|n| {
        let put = kvs.put(key(n), [7; 300]);
        put.err().map(|error| (n, error))
    });
    refused.expect("a medium has an end")
}

#[test]
fn panic_in_any_thread_stops_the_kvdb_for_all_and_loses_nothing_acknowledged() {
    for thread in THREADS {
        let memory = in_memory(thread, [4 << 20, 64 << 20, 64 << 20]);
        let (devices, fuse) = fused(&memory, thread);
        let db = Arc::new(Kvdb::create_on(devices, options()).unwrap());
        let kvs = db.create_kvs("a", Policy::default()).unwrap();
        fuse.is_armed.store(true, Ordering::Release);
        let writer = kvs.clone();
        if thread == "caller" {
            // A panic in work of a caller's thread is the caller's error, too.
            kvs.put(key(0), [7; 300]).unwrap();
            let caller = db.clone();
            assert!(is_panic(in_time(thread, move || caller.compact(CompactRequest::Full))));
        }
        let (acknowledged, error) = in_time("writer", move || put_until_refused(&writer));
        assert!(fuse.has_blown.load(Ordering::Acquire), "{thread}: {error}");
        // A flush of the log that panicked is one that failed: records that it held are not durable.
        let is_durable = !error.to_string().starts_with("a flush of the log");
        assert!(is_durable || !["esker-open", "esker-age", "esker-help"].contains(&thread));
        assert!(is_panic::<()>(Err(error)), "{thread}");

        assert!(is_panic(kvs.get(key(0))), "{thread}");
        assert!(is_panic(kvs.cursor().map(drop)), "{thread}");
        assert!(is_panic(kvs.delete(key(0))), "{thread}");
        assert!(is_panic(db.sync()), "{thread}");
        assert!(is_panic(db.step()), "{thread}");
        assert!(is_panic(db.create_kvs("b", Policy::default()).map(drop)), "{thread}");
        assert!(db.stats().stopped.unwrap().contains("a device that panics"), "{thread}");
        fuse.is_armed.store(false, Ordering::Release);
        let db = Arc::into_inner(db).unwrap();
        assert!(is_panic(in_time("closer", move || db.close())), "{thread}");

        let db = Kvdb::open_on(memory, options()).unwrap();
        let kvs = db.kvs("a").unwrap();
        let there = (0..acknowledged).filter(|n| kvs.get(key(*n)).unwrap().is_some()).count();
        assert!(!is_durable || there as u64 == acknowledged, "{thread}: {there} of {acknowledged}");
        db.close().unwrap();
    }
}

#[test]
fn waiting_callers_are_woken_by_a_panic() {
    let memory = in_memory("waits", [4 << 20, 64 << 20, 64 << 20]);
    let (devices, fuse) = fused(&memory, "esker-flush");
    // Each write waits for the log.
    let options = options().with(|set| {
        set.durability.ms = 1000;
        set.durability.bytes = 1;
    });
    let db = Arc::new(Kvdb::create_on(devices, options).unwrap());
    let kvs = db.create_kvs("a", Policy::default()).unwrap();
    fuse.is_armed.store(true, Ordering::Release);
    let waiting: Vec<_> = (0..4u64)
        .map(|n| {
            let kvs = kvs.clone();
            let puts = move || (0..).find_map(|_| kvs.put(key(n), [7; 300]).err()).unwrap();
            thread::spawn("waits", puts).unwrap()
        })
        .collect();
    in_time("joins", move || {
        let refused = waiting.into_iter().map(|thread| thread.join().unwrap());
        refused.for_each(|error| assert!(is_panic::<()>(Err(error))));
    });
    in_time("drops", move || drop((kvs, db)));
}
