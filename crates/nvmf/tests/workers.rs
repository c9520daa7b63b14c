//! Fairness between the connections of one worker, and hosts of a worker that panics.

mod common;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::client::{Client, Identity};
use common::config;
use esker_base::{AlignedBuf, Clock, thread};
use esker_device::{
    Command, Completion, Device, DeviceError, DeviceStats, Geometry, MemoryDevice, QueuePair,
};
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{Target, TargetConfig};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::command::{LbaRange, io};
use esker_nvmf::{NvmfError, wire::status::Status};

/// Memory that does something else before it takes commands.
struct Odd<F> {
    memory: MemoryDevice,
    first: Arc<F>,
}

struct OddQueue<F> {
    queue: Box<dyn QueuePair>,
    first: Arc<F>,
}

impl<F: Fn() + Send + Sync + 'static> Odd<F> {
    fn new(first: F) -> Arc<Odd<F>> {
        Arc::new(Odd { memory: MemoryDevice::new("odd", 1 << 20, 512), first: Arc::new(first) })
    }
}

impl<F: Fn() + Send + Sync + 'static> Device for Odd<F> {
    fn name(&self) -> &str {
        "odd"
    }
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        Ok(Box::new(OddQueue { queue: self.memory.queue_pair(depth)?, first: self.first.clone() }))
    }
    fn stats(&self) -> DeviceStats {
        self.memory.stats()
    }
}

impl<F: Fn() + Send + Sync> QueuePair for OddQueue<F> {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        (self.first)();
        self.queue.submit(commands)
    }
    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        self.queue.poll(done)
    }
    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.queue.wait(done, timeout)
    }
    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }
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
    let device = Odd::new(move || slow.sleep(Duration::from_millis(2)));
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

#[test]
fn a_worker_that_panics_ends_the_target_and_is_told_of() {
    let is_bad = Arc::new(AtomicBool::new(false));
    let bad = is_bad.clone();
    let device = Odd::new(move || assert!(!bad.swap(false, Ordering::SeqCst), "a bad day"));
    // The queues of a host are on different workers.
    let target = Target::start(&with_workers(2, device)).unwrap();
    let at = target.addresses()[0];
    let (mut admin, mut host) = Client::pair(at, &Identity::new(1));
    let (sqe, data) = read(1);
    assert_eq!(host.run(sqe, data).0.status, Status::SUCCESS);
    assert!(target.is_running());
    is_bad.store(true, Ordering::SeqCst);
    let (sqe, data) = read(1);
    host.submit(sqe, data);
    assert!(host.is_closed() && admin.is_closed());
    assert!(!target.is_running());
    let error = target.close().unwrap_err();
    assert_eq!(error, NvmfError::Panicked { message: "a bad day".to_owned() });
}
