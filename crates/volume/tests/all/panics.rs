//! A panic in the middle of maintenance, or of a turn at the write buffer, stops the pool: every later command says so, those
//! who wait are told, closing ends, and an open finds all that was acknowledged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::rig::{self, BLOCK, SMALL};
use esker_base::{AlignedBuf, Clock, Lba, thread};
use esker_device::{Device, Op, Port};
use esker_sim::{Fate, HookDevice};
use esker_volume::{CreateOptions, Maintenance, OpenOptions, Pool, VolumeError, VolumeOptions};

const MESSAGE: &str = "a panic for the test";
const LIMIT: Duration = Duration::from_secs(20);

/// The devices of a pool, and the same behind wrappers that panic for a thread of this name once that is asked for.
type Devices = (Vec<Arc<dyn Device>>, Vec<Arc<dyn Device>>, Arc<AtomicBool>);

fn devices(victim: &'static str) -> Devices {
    let (drives, _) = rig::devices(&SMALL);
    let options = CreateOptions { log_bytes: 512 << 10, ..rig::create_options(&SMALL) };
    Pool::create(&drives, &[], &options).unwrap();
    let is_due = Arc::new(AtomicBool::new(false));
    let wrap = |drive: &Arc<dyn Device>| -> Arc<dyn Device> {
        let is_due = is_due.clone();
        Arc::new(HookDevice::new(drive.clone()).on_command(move |_| {
            let is_victim = std::thread::current().name().is_some_and(|name| name == victim);
            assert!(!(is_victim && is_due.load(Ordering::Acquire)), "{MESSAGE}");
            Fate::Pass
        }))
    };
    let wrapped = drives.iter().map(wrap).collect();
    (drives, wrapped, is_due)
}

fn write(port: &mut Port, version: u64) -> Result<(), String> {
    let mut buf = AlignedBuf::zeroed(BLOCK);
    rig::fill(&mut buf, version);
    let result = port.write(Lba(version % 64), buf, None);
    result.map(drop).map_err(|error| error.to_string())
}

/// Writes until a write fails: the last version that was acknowledged, and the error.
fn write_on(pool: &Pool) -> (u64, String) {
    let mut port = Port::open(&*pool.volume("v1").unwrap(), 1).unwrap();
    for version in 1.. {
        if let Err(error) = write(&mut port, version) {
            return (version - 1, error);
        }
    }
    unreachable!()
}

/// After `acked` writes the pool has failed: nothing is done with it any more, it says why, and nothing is lost.
fn check_failed(pool: Pool, bare: &[Arc<dyn Device>], acked: u64, why: &str) {
    let clock = Clock::real();
    let began = clock.now();
    let mut port = Port::open(&*pool.volume("v1").unwrap(), 1).unwrap();
    let read = port.read(Lba(0), AlignedBuf::zeroed(BLOCK)).unwrap_err().to_string();
    let errors = [
        read,
        write(&mut port, 1).unwrap_err(),
        port.run(Op::Discard { lba: Lba(0), count: esker_base::LbaCount(1 << 12) })
            .unwrap_err()
            .to_string(),
        pool.snapshot("v1", "s").unwrap_err().to_string(),
        pool.step().unwrap_err().to_string(),
        pool.drain().unwrap_err().to_string(),
        pool.checkpoint().unwrap_err().to_string(),
        pool.du("v1").unwrap_err().to_string(),
    ];
    for error in errors {
        assert!(error.contains("is stopped") && error.contains(why), "{error}");
    }
    let alarms = pool.status().alarms;
    let alarm = alarms.iter().find(|alarm| alarm.code == "POOL_STOPPED").unwrap();
    assert!(alarm.text.contains(why), "{alarm:?}");
    drop(port);
    assert!(matches!(pool.close(), Err(VolumeError::Failed { .. })));
    assert!(clock.now().since(began) < LIMIT);
    let pool = rig::open(bare, &SMALL);
    let versions: Vec<u64> = (0..64)
        .map(|block| (1..=acked).rev().find(|version| version % 64 == block).unwrap_or(0))
        .collect();
    let mut port = Port::open(&*pool.volume("v1").unwrap(), 1).unwrap();
    let mut expected = vec![0; BLOCK];
    for (block, version) in (0..).zip(versions) {
        let read = port.read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap();
        rig::fill(&mut expected, version);
        // The write that failed may have become durable.
        let is_next = block == (acked + 1) % 64;
        assert!(is_next || expected == read[..], "block {block}, version {version}");
    }
    pool.check().unwrap();
}

#[test]
fn panic_of_the_maintenance_thread_stops_the_pool() {
    let (bare, devices, is_due) = devices("pool-keeper");
    let options = OpenOptions { maintenance: Maintenance::Thread, ..rig::open_options(&SMALL) };
    let pool = Pool::open(&devices, options).unwrap();
    pool.create_volume("v1", 1 << 20, VolumeOptions::default()).unwrap();
    is_due.store(true, Ordering::Release);
    let (acked, error) = write_on(&pool);
    assert!(error.contains("is stopped"), "{error}");
    let clock = Clock::real();
    let deadline = clock.now() + LIMIT;
    let said = || pool.status().alarms.iter().any(|alarm| alarm.text.contains(MESSAGE));
    while !said() {
        assert!(clock.now() < deadline, "{:#?}", pool.status().alarms);
        clock.sleep(Duration::from_millis(5));
    }
    check_failed(pool, &bare, acked, MESSAGE);
}

/// Many wait at once when it happens: none waits for ever.
#[test]
fn panic_of_the_maintenance_thread_wakes_those_who_wait() {
    let (_, devices, is_due) = devices("pool-keeper");
    let options = OpenOptions { maintenance: Maintenance::Thread, ..rig::open_options(&SMALL) };
    let pool = Arc::new(Pool::open(&devices, options).unwrap());
    pool.create_volume("v1", 1 << 20, VolumeOptions::default()).unwrap();
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let pool = pool.clone();
            thread::spawn("writer", move || write_on(&pool)).unwrap()
        })
        .collect();
    let drains = {
        let pool = pool.clone();
        thread::spawn("drains", move || while pool.drain().is_ok() {}).unwrap()
    };
    Clock::real().sleep(Duration::from_millis(100));
    is_due.store(true, Ordering::Release);
    let clock = Clock::real();
    let deadline = clock.now() + LIMIT;
    while !(writers.iter().all(|writer| writer.is_finished()) && drains.is_finished()) {
        assert!(clock.now() < deadline, "somebody waits for ever");
        clock.sleep(Duration::from_millis(5));
    }
    for writer in writers {
        assert!(writer.join().unwrap().1.contains("is stopped"));
    }
    drains.join().unwrap();
}

/// A caller that does maintenance, or whose turn it is at the write buffer, panics: it is the same.
#[test]
fn panic_of_a_caller_in_the_middle_of_a_change_stops_the_pool() {
    for what in ["drain", "write"] {
        let (bare, devices, is_due) = devices("caller");
        let pool = Arc::new(rig::open(&devices, &SMALL));
        pool.create_volume("v1", 1 << 20, VolumeOptions::default()).unwrap();
        let mut port = Port::open(&*pool.volume("v1").unwrap(), 1).unwrap();
        (1..=20).for_each(|version| write(&mut port, version).unwrap());
        is_due.store(true, Ordering::Release);
        let caller = {
            let pool = pool.clone();
            thread::spawn("caller", move || {
                let act = AssertUnwindSafe(|| match what {
                    "drain" => pool.drain().unwrap(),
                    _ => {
                        let mut port = Port::open(&*pool.volume("v1").unwrap(), 1).unwrap();
                        write(&mut port, 21).unwrap();
                    }
                });
                catch_unwind(act).is_err()
            })
            .unwrap()
        };
        assert!(caller.join().unwrap(), "{what}");
        is_due.store(false, Ordering::Release);
        drop(port);
        check_failed(Arc::into_inner(pool).unwrap(), &bare, 20, "a thread panicked");
    }
}
