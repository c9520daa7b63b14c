//! Devices that are slow, or hang: other namespaces go on, hosts are answered in time, a write that is still
//! under way meets no later one, and the target can be closed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::{config, memory};
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::{
    Command, Completion, Device, DeviceError, DeviceStats, Geometry, Port, QueuePair,
};
use esker_nvmf::NvmfError;
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{NamespaceConfig, Target};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::command::{LbaRange, io};
use esker_nvmf::wire::status::Status;

/// Longest time for a small command of another namespace, on a machine that has other work.
const SOON: Duration = Duration::from_secs(1);
/// How long the target waits for a device.
const LIMIT: Duration = Duration::from_millis(500);

/// Where a device hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// Its queue pair is not opened.
    Opening,
    /// The thread that submits is not let go.
    Submitting,
    /// Commands are taken, and nothing comes of them.
    Within,
}

/// State of the gate: whether it is shut, and how many commands it holds.
#[derive(Default)]
struct Gate {
    is_shut: AtomicBool,
    /// Commands that it has taken while it was shut.
    held: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        while self.is_shut.load(Ordering::SeqCst) {
            Clock::real().sleep(Duration::from_millis(1));
        }
    }
}

/// Memory behind a gate: commands that come while it is shut are executed when it opens.
struct Gated {
    memory: Arc<dyn Device>,
    hangs: Where,
    gate: Arc<Gate>,
}

impl Gated {
    fn new(hangs: Where) -> (Arc<Gated>, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        gate.is_shut.store(true, Ordering::SeqCst);
        (Arc::new(Gated { memory: memory(1), hangs, gate: gate.clone() }), gate)
    }
}

impl Device for Gated {
    fn name(&self) -> &str {
        "gated"
    }
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        if self.hangs == Where::Opening {
            self.gate.pass();
        }
        let (below, gate) = (self.memory.queue_pair(depth)?, self.gate.clone());
        Ok(Box::new(Queue { below, hangs: self.hangs, gate, held: VecDeque::new() }))
    }
    fn stats(&self) -> DeviceStats {
        self.memory.stats()
    }
}

struct Queue {
    below: Box<dyn QueuePair>,
    hangs: Where,
    gate: Arc<Gate>,
    held: VecDeque<Command>,
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        if self.hangs == Where::Submitting {
            self.gate.pass();
        }
        if !self.gate.is_shut.load(Ordering::SeqCst) {
            return self.below.submit(commands);
        }
        // Commands that begin with an odd LBA pass.
        let count = commands.len();
        let mut passing = VecDeque::new();
        for command in commands.drain(..) {
            let is_odd = command.op.range(512).0.0 % 2 == 1;
            let list = if is_odd { &mut passing } else { &mut self.held };
            list.push_back(command);
        }
        self.gate.held.store(self.held.len(), Ordering::SeqCst);
        self.below.submit(&mut passing)?;
        Ok(count)
    }
    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let count = self.below.poll(done)?;
        if !self.gate.is_shut.load(Ordering::SeqCst) {
            // Commands in flight have no order: the newest comes first.
            let mut held = self.held.drain(..).rev().collect();
            self.below.submit(&mut held)?;
        }
        Ok(count)
    }
    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        let pause = Duration::from_micros(100);
        Clock::real().sleep(timeout.map_or(pause, |timeout| timeout.min(pause)));
        self.poll(done)
    }
    fn in_flight(&self) -> usize {
        self.held.len() + self.below.in_flight()
    }
}

/// A target with a gated namespace 1 and memory as namespace 2.
fn target(hangs: Where) -> (Target, Arc<Gate>, Arc<Gated>) {
    let (device, gate) = Gated::new(hangs);
    let mut config = config(device.clone());
    let second = NamespaceConfig { nsid: 2, device: memory(1), uuid: None };
    config.subsystems[0].namespaces.push(second);
    config.limits.command = LIMIT;
    config.limits.closing = LIMIT;
    (Target::start(&config).unwrap(), gate, device)
}

fn command(opcode: u8, nsid: u32, slba: u64, fill: u8) -> (Sqe, Payload) {
    let sqe = LbaRange { slba, count: 1, fua: false, placement: None }.put(Sqe::new(opcode, nsid));
    let mut buf = AlignedBuf::zeroed(512);
    buf.fill(fill);
    (sqe, if opcode == io::READ { Payload::In(buf) } else { Payload::Out(buf) })
}

fn submit(host: &mut Client, (sqe, payload): (Sqe, Payload)) -> u16 {
    host.submit(sqe, payload)
}

fn run(host: &mut Client, (sqe, payload): (Sqe, Payload)) -> Status {
    host.run(sqe, payload).0.status
}

/// Waits until the device has so many commands.
fn until_held(gate: &Gate, count: usize) {
    while gate.held.load(Ordering::SeqCst) < count {
        Clock::real().sleep(Duration::from_millis(1));
    }
}

#[test]
fn namespace_whose_device_hangs_holds_back_no_other() {
    for hangs in [Where::Opening, Where::Submitting, Where::Within] {
        let (target, gate, _) = target(hangs);
        let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
        // One that the device has, and one more that comes while it hangs.
        let first = submit(&mut host, command(io::READ, 1, 0, 0));
        let clock = Clock::real();
        for _ in 0..20 {
            let began = clock.now();
            assert_eq!(run(&mut host, command(io::WRITE, 2, 7, 7)), Status::SUCCESS);
            let took = clock.now().since(began);
            assert!(took < SOON, "{hangs:?}: a neighbour waited for {took:?}");
        }
        let status = host.wait(first).0.status;
        assert_eq!(status, Status::PATH_INTERNAL, "{hangs:?}: nothing has changed");
        gate.is_shut.store(false, Ordering::SeqCst);
        while run(&mut host, command(io::READ, 1, 0, 0)) != Status::SUCCESS {}
        target.close().unwrap();
    }
}

#[test]
fn write_that_was_answered_early_is_never_done_over_a_later_one() {
    let (target, gate, device) = target(Where::Within);
    let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    let late = submit(&mut host, command(io::WRITE, 1, 0, 1));
    assert_eq!(host.wait(late).0.status, Status::INTERNAL, "it may still happen");
    assert_eq!(target.metrics().late, 1);
    // Other LBAs are not kept; these are, until the late write has ended or the host has waited long enough.
    assert_eq!(run(&mut host, command(io::WRITE, 1, 1, 9)), Status::SUCCESS);
    assert_eq!(run(&mut host, command(io::WRITE, 1, 0, 2)), Status::PATH_INTERNAL);
    let newer = submit(&mut host, command(io::WRITE, 1, 0, 3));
    gate.is_shut.store(false, Ordering::SeqCst);
    assert_eq!(host.wait(newer).0.status, Status::SUCCESS);
    let mut port = Port::open(&*device.memory, 1).unwrap();
    Clock::real().sleep(Duration::from_millis(100)); // whatever is still under way arrives
    assert_eq!(port.read(Lba(0), AlignedBuf::zeroed(512)).unwrap()[0], 3);
    // The queue is as good as before.
    for round in 0..100 {
        assert_eq!(run(&mut host, command(io::WRITE, 1, round, 4)), Status::SUCCESS);
    }
}

#[test]
fn write_of_a_connection_that_ended_is_never_done_over_a_later_one() {
    let (target, gate, device) = target(Where::Within);
    let at = target.addresses()[0];
    let pair = Client::pair(at, &Identity::new(1));
    let (admin, mut host) = pair;
    submit(&mut host, command(io::WRITE, 1, 0, 1));
    until_held(&gate, 1);
    drop((admin, host));
    let clock = Clock::real();
    clock.sleep(Duration::from_millis(50)); // the target hears of it
    let (_admin, mut host) = Client::pair(at, &Identity::new(1));
    let newer = submit(&mut host, command(io::WRITE, 1, 0, 2));
    clock.sleep(Duration::from_millis(50)); // and of this write
    gate.is_shut.store(false, Ordering::SeqCst);
    assert_eq!(host.wait(newer).0.status, Status::SUCCESS);
    clock.sleep(Duration::from_millis(100));
    let mut port = Port::open(&*device.memory, 1).unwrap();
    assert_eq!(port.read(Lba(0), AlignedBuf::zeroed(512)).unwrap()[0], 2);
}

#[test]
fn device_that_hangs_for_long_is_given_no_more_than_so_many_commands() {
    let (target, gate, _) = target(Where::Within);
    let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    for _ in 0..6 {
        let ids: Vec<_> = (0..30).map(|_| submit(&mut host, command(io::READ, 1, 0, 0))).collect();
        for id in ids {
            assert_eq!(host.wait(id).0.status, Status::PATH_INTERNAL);
        }
    }
    let held = gate.held.load(Ordering::SeqCst);
    assert!(held < 64 + 30, "{held}");
    gate.is_shut.store(false, Ordering::SeqCst);
    while run(&mut host, command(io::READ, 1, 0, 0)) != Status::SUCCESS {}
}

#[test]
fn target_whose_device_hangs_closes_in_time_and_says_so() {
    for hangs in [Where::Opening, Where::Submitting, Where::Within] {
        let (target, gate, _) = target(hangs);
        let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
        let late = submit(&mut host, command(io::WRITE, 1, 0, 1));
        assert_eq!(run(&mut host, command(io::WRITE, 2, 0, 1)), Status::SUCCESS);
        let _ = host.wait(late);
        let clock = Clock::real();
        let began = clock.now();
        let error = target.close().unwrap_err();
        let took = clock.now().since(began);
        assert!(took < 2 * LIMIT + SOON, "{hangs:?}: {took:?}");
        assert!(matches!(&error, NvmfError::Hung { device, .. } if device == "gated"), "{error}");
        gate.is_shut.store(false, Ordering::SeqCst); // its threads end
    }
}
