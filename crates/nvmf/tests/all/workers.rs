//! Fairness between the connections of one worker, and workers that panic.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::{config, memory};
use esker_base::{AlignedBuf, Clock, Lba, thread};
use esker_device::{Device, MemoryDevice};
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{NamespaceConfig, Target, TargetConfig};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::command::{LbaRange, io};
use esker_nvmf::wire::identify::{self, cns};
use esker_nvmf::{NvmfError, wire::status::Status};
use esker_sim::{Fate, HookDevice};

/// Memory that does something else before it takes a command, driven by a thread of its own.
fn odd(first: impl Fn() + Send + Sync + 'static) -> HookDevice {
    HookDevice::new(Arc::new(MemoryDevice::new("odd", 1 << 20, 512))).on_command(move |_| {
        first();
        Fate::Pass
    })
}

fn with_workers(workers: usize, device: Arc<dyn Device>) -> TargetConfig {
    let mut config = config(device);
    config.limits.workers = workers;
    config
}

fn read(lbas: u32) -> (Sqe, Payload) {
    let range = LbaRange { slba: 0, count: lbas, fua: false, placement: None };
    let size = usize::try_from(lbas).unwrap() * 512;
    (range.put(Sqe::new(io::READ, 1)), Payload::In(AlignedBuf::zeroed(size)))
}

/// Keeps 30 large reads in flight until it is stopped, for at most so long.
fn flood(at: SocketAddr, is_stopped: &AtomicBool, done: &AtomicU64, longest: Duration) {
    let (_admin, mut host) = Client::pair(at, &Identity::new(1));
    let submit = |host: &mut Client| {
        let (sqe, data) = read(256);
        host.submit(sqe, data)
    };
    let mut ids: VecDeque<u16> = (0..30).map(|_| submit(&mut host)).collect();
    let clock = Clock::real();
    let end = clock.now() + longest;
    while let Some(cid) = ids.pop_front() {
        assert_eq!(host.wait(cid).0.status, Status::SUCCESS);
        done.fetch_add(1, Ordering::SeqCst);
        if clock.now() < end && !is_stopped.load(Ordering::SeqCst) {
            ids.push_back(submit(&mut host));
        }
    }
}

#[test]
fn a_host_that_always_has_more_to_send_keeps_no_worker_to_itself() {
    const LONGEST: Duration = Duration::from_secs(10);
    let clock = Clock::real();
    let slow = clock.clone();
    let device = Arc::new(odd(move || slow.sleep(Duration::from_millis(2))));
    let target = Target::start(&with_workers(1, device)).unwrap();
    let at = target.addresses()[0];
    let (_admin, mut other) = Client::pair(at, &Identity::new(2));
    let (is_stopped, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let run = || flood(at, &is_stopped, &done, LONGEST);
        thread::spawn_scoped(scope, "flood", run).unwrap();
        while done.load(Ordering::SeqCst) < 40 {
            clock.sleep(Duration::from_millis(1));
        }
        let began = clock.now();
        let (sqe, data) = read(1);
        assert_eq!(other.run(sqe, data).0.status, Status::SUCCESS);
        let took = clock.now().since(began);
        is_stopped.store(true, Ordering::SeqCst);
        assert!(took < LONGEST / 2, "it waited for {took:?}");
    });
    target.close().unwrap();
}

/// A device that panics at the next command when it is told to.
fn bad(is_prompt: bool) -> (Arc<dyn Device>, Arc<AtomicBool>) {
    let is_bad = Arc::new(AtomicBool::new(false));
    let bad = is_bad.clone();
    let device = odd(move || assert!(!bad.swap(false, Ordering::SeqCst), "a bad day"));
    (Arc::new(if is_prompt { device.prompt() } else { device }), is_bad)
}

/// Hosts connect, and their commands are answered, within a second.
fn is_served_soon(target: &Target, nsid: u32) {
    let clock = Clock::real();
    let began = clock.now();
    // More than there are workers: each has some.
    let hosts: Vec<_> =
        (10..16).map(|n| Client::pair(target.addresses()[0], &Identity::new(n))).collect();
    for (_admin, mut host) in hosts {
        let (sqe, data) = read(1);
        assert_eq!(host.run(Sqe { nsid, ..sqe }, data).0.status, Status::SUCCESS);
    }
    let took = clock.now().since(began);
    assert!(took < Duration::from_secs(1), "hosts waited for {took:?}");
}

#[test]
fn worker_that_panics_closes_its_connections_and_hosts_are_served_again() {
    for (workers, is_prompt) in [(1, true), (1, false), (2, true), (2, false)] {
        let (device, is_bad) = bad(is_prompt);
        let target = Target::start(&with_workers(workers, device)).unwrap();
        for round in 1..=3 {
            // The queues of a host are on different workers.
            let (mut admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
            is_bad.store(true, Ordering::SeqCst);
            let (sqe, data) = read(1);
            host.submit(sqe, data);
            assert!(host.is_closed());
            drop(host);
            // One on another worker stays.
            let identify = Sqe::new(identify::OPCODE, 0).with_dword(10, cns::CONTROLLER.into());
            match workers {
                1 => assert!(admin.is_closed()),
                _ => assert_eq!(admin.fetch(identify, 4096).len(), 4096),
            }
            drop(admin);
            is_served_soon(&target, 1);
            assert!(target.is_running());
            assert_eq!(target.metrics().panics, round);
            let said = target.take_panics();
            assert!(said.len() == 1 && said[0].contains("a bad day"), "{said:?}");
        }
        // Nothing is counted that is gone.
        let clock = Clock::real();
        let is_empty = |_: &u32| {
            clock.sleep(Duration::from_millis(10));
            let metrics = target.metrics();
            (metrics.connections, metrics.controllers, target.hosts().len()) == (0, 0, 0)
        };
        assert!((0..500).find(is_empty).is_some(), "{:?}", target.metrics());
        target.close().unwrap();
    }
}

#[test]
fn panic_of_which_nobody_asks_is_told_at_the_end() {
    let (device, is_bad) = bad(true);
    let target = Target::start(&with_workers(1, device)).unwrap();
    let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    is_bad.store(true, Ordering::SeqCst);
    let (sqe, data) = read(1);
    host.submit(sqe, data);
    assert!(host.is_closed());
    is_served_soon(&target, 1);
    let error = target.close().unwrap_err();
    let NvmfError::Panicked { message } = error else { panic!("{error}") };
    assert_eq!(message, "worker 0 has panicked: a bad day");
}

#[test]
fn hosts_of_other_workers_go_on_when_one_panics() {
    let (device, is_bad) = bad(true);
    let mut config = with_workers(2, device);
    let namespace = NamespaceConfig { nsid: 2, device: memory(1), uuid: None };
    config.subsystems[0].namespaces.push(namespace);
    let target = Target::start(&config).unwrap();
    let at = target.addresses()[0];
    // Admin queues are on worker 0, I/O queues on worker 1.
    let (mut first_admin, mut first) = Client::pair(at, &Identity::new(1));
    let (_second_admin, mut second) = Client::pair(at, &Identity::new(2));
    let pattern = |nsid| {
        let range = LbaRange { slba: 7, count: 1, fua: false, placement: None };
        let mut buf = AlignedBuf::zeroed(512);
        buf.fill(7);
        (range.put(Sqe::new(io::WRITE, nsid)), Payload::Out(buf))
    };
    let (sqe, data) = pattern(2);
    assert!(second.run(sqe, data).0.status.is_success());
    is_bad.store(true, Ordering::SeqCst);
    let (sqe, data) = read(1);
    first.submit(sqe, data);
    assert!(first.is_closed() && second.is_closed(), "both were the worker's");
    // The controller, whose admin queue is elsewhere, gets another I/O queue.
    let identify = Sqe::new(identify::OPCODE, 0).with_dword(10, cns::CONTROLLER.into());
    let bytes = first_admin.fetch(identify, 4096);
    let cntlid = u16::from_le_bytes([bytes[78], bytes[79]]);
    let (mut again, _) = Client::connect(at, &Identity::new(1), 1, cntlid).unwrap();
    let range = LbaRange { slba: 7, count: 1, fua: false, placement: None };
    let content = again.fetch(range.put(Sqe::new(io::READ, 2)), 512);
    assert!(content.iter().all(|&byte| byte == 7));
    drop(target.take_panics());
    target.close().unwrap();
}

#[test]
fn late_commands_of_a_worker_that_panicked_fence_until_their_device_ends_them() {
    let is_held = Arc::new(AtomicBool::new(true));
    let (memory, holds) = (MemoryDevice::new("held", 1 << 20, 512), is_held.clone());
    // Driven by the worker; the command for LBA 9 panics.
    let device = Arc::new(HookDevice::new(Arc::new(memory)).prompt().on_command(move |op| {
        assert_ne!(op.range(512).0, Lba(9));
        if holds.load(Ordering::SeqCst) { Fate::Hold } else { Fate::Pass }
    }));
    let mut config = with_workers(1, device);
    let target = Target::start(&config).unwrap();
    let at = target.addresses()[0];
    let write = |lba, fill| {
        let range = LbaRange { slba: lba, count: 1, fua: false, placement: None };
        let mut buf = AlignedBuf::zeroed(512);
        buf.fill(fill);
        (range.put(Sqe::new(io::WRITE, 1)), Payload::Out(buf))
    };
    let (_admin, mut host) = Client::pair(at, &Identity::new(1));
    let (sqe, data) = write(3, 1);
    host.submit(sqe, data);
    let (sqe, data) = write(9, 1);
    host.submit(sqe, data);
    assert!(host.is_closed());
    // The device has the first write still: a later one for its LBA waits.
    let (_admin, mut host) = Client::pair(at, &Identity::new(1));
    let (sqe, data) = write(3, 2);
    let newer = host.submit(sqe, data);
    let (sqe, data) = write(4, 2);
    let other = host.submit(sqe, data);
    Clock::real().sleep(Duration::from_millis(300));
    is_held.store(false, Ordering::SeqCst);
    assert!(host.wait(newer).0.status.is_success() && host.wait(other).0.status.is_success());
    let range = LbaRange { slba: 3, count: 1, fua: false, placement: None };
    let content = host.fetch(range.put(Sqe::new(io::READ, 1)), 512);
    assert!(content.iter().all(|&byte| byte == 2), "the older write came after the newer one");
    // Nobody holds the device any more once its namespace is gone.
    let device = Arc::downgrade(&config.subsystems[0].namespaces.remove(0).device);
    target.reconfigure(&config).unwrap();
    drop(config);
    let is_closed = |_: &u32| {
        Clock::real().sleep(Duration::from_millis(10));
        device.strong_count() == 0
    };
    assert!((0..500).find(is_closed).is_some(), "the device is still in use");
    drop(target.take_panics());
    target.close().unwrap();
}
