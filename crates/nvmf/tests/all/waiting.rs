//! Devices and targets that are slow, silent or refuse, and what hosts see of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::paced::{Order, Paced};
use crate::common::relay::{Mood, Relay};
use crate::common::{NQN, config, memory, reach, serve};
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::{
    Command, Completion, Device, DeviceError, DeviceStats, Geometry, Op, Port, QueuePair, Tag,
};
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{Access, NamespaceConfig, Target};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::command::{LbaRange, io};
use esker_nvmf::wire::status::Status;
use esker_nvmf::{Initiator, InitiatorConfig};

const DEPTH: usize = 128;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn read(tag: u64) -> Command {
    Command { tag: Tag(tag), op: Op::Read { lba: Lba(tag), buf: AlignedBuf::zeroed(512) } }
}

/// How long something takes.
fn timed<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let clock = Clock::real();
    let began = clock.now();
    let result = act();
    (result, clock.now().since(began))
}

/// Reads at full depth, to the end; returns the first error.
fn read_deep(initiator: &Initiator) -> Option<DeviceError> {
    let mut queue = initiator.queue_pair(DEPTH).unwrap();
    let mut commands = (0..DEPTH as u64).map(read).collect();
    assert_eq!(queue.submit(&mut commands).unwrap(), DEPTH);
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.wait(&mut done, None).unwrap();
    }
    assert_eq!(done.len(), DEPTH);
    done.into_iter().find_map(|one| one.result.err())
}

#[test]
fn target_that_is_slow_under_a_deep_queue_is_waited_for() {
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let target = serve(Paced::over(memory(1), ms(25), order));
        let relay = Relay::to(target.addresses()[0], Mood::Well);
        // The oldest waits for several times as long.
        let config =
            InitiatorConfig { timeout: ms(800), give_up: ms(800), ..reach(vec![relay.address]) };
        let initiator = Initiator::open(config).unwrap();
        assert_eq!(read_deep(&initiator), None, "{order:?}");
        assert_eq!(relay.queues(), 1, "{order:?}: it was connected again");
    }
}

#[test]
fn device_that_is_slow_under_a_deep_queue_is_waited_for() {
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let mut config = config(Paced::over(memory(1), ms(25), order));
        config.limits.command = ms(800);
        let target = Target::start(&config).unwrap();
        let initiator = crate::common::open(&target);
        assert_eq!(read_deep(&initiator), None, "{order:?}");
        assert_eq!(target.metrics().late, 0, "{order:?}");
    }
}

/// Memory that keeps commands for LBA 0 while it is shut, and counts its queue pairs.
struct Doored {
    memory: Arc<dyn Device>,
    is_shut: Arc<AtomicBool>,
    opened: AtomicUsize,
}

impl Doored {
    fn new(is_shut: bool) -> Arc<Doored> {
        let is_shut = Arc::new(AtomicBool::new(is_shut));
        Arc::new(Doored { memory: memory(1), is_shut, opened: AtomicUsize::new(0) })
    }

    fn set(&self, is_shut: bool) {
        self.is_shut.store(is_shut, Ordering::SeqCst);
    }
}

impl Device for Doored {
    fn name(&self) -> &str {
        "doored"
    }
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        let (below, is_shut) = (self.memory.queue_pair(depth)?, self.is_shut.clone());
        Ok(Box::new(DooredQueue { below, is_shut, held: VecDeque::new() }))
    }
    fn stats(&self) -> DeviceStats {
        self.memory.stats()
    }
}

struct DooredQueue {
    below: Box<dyn QueuePair>,
    is_shut: Arc<AtomicBool>,
    held: VecDeque<Command>,
}

impl QueuePair for DooredQueue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let count = commands.len();
        let is_shut = self.is_shut.load(Ordering::SeqCst);
        let (held, passing): (VecDeque<_>, _) =
            commands.drain(..).partition(|one| is_shut && one.op.range(512).0 == Lba(0));
        self.held.extend(held);
        self.below.submit(&mut { passing })?;
        Ok(count)
    }
    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        if !self.is_shut.load(Ordering::SeqCst) {
            self.below.submit(&mut self.held)?;
        }
        self.below.poll(done)
    }
    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        Clock::real().sleep(timeout.unwrap_or(ms(1)).min(Duration::from_micros(200)));
        self.poll(done)
    }
    fn in_flight(&self) -> usize {
        self.held.len() + self.below.in_flight()
    }
}

fn at(slba: u64) -> (Sqe, Payload) {
    let range = LbaRange { slba, count: 1, fua: false, placement: None };
    (range.put(Sqe::new(io::READ, 1)), Payload::In(AlignedBuf::zeroed(512)))
}

#[test]
fn command_that_a_device_passes_over_is_answered_though_it_answers_others() {
    let device = Doored::new(true);
    let mut config = config(device.clone());
    (config.limits.command, config.limits.device_depth) = (ms(500), 4);
    let target = Target::start(&config).unwrap();
    let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    let (sqe, payload) = at(0);
    let lost = host.submit(sqe, payload);
    let mut others = 0;
    while !host.has_answer(lost) {
        let (sqe, payload) = at(1);
        assert_eq!(host.run(sqe, payload).0.status, Status::SUCCESS);
        others += 1;
        assert!(others < 200_000, "it is not answered");
    }
    assert_eq!(host.wait(lost).0.status, Status::PATH_INTERNAL);
    assert!(others >= 16 * 4, "{others}");
    device.set(false);
}

#[test]
fn queue_pairs_are_open_before_commands_come() {
    let (first, second) = (Doored::new(false), Doored::new(false));
    let config = config(first.clone());
    let target = Target::start(&config).unwrap();
    let _queues = Client::pair(target.addresses()[0], &Identity::new(1));
    let until_open = |device: &Doored| {
        for _ in 0..5000 {
            if device.opened.load(Ordering::SeqCst) == 1 {
                return;
            }
            Clock::real().sleep(ms(1));
        }
        panic!("no command has come, and it is not open");
    };
    until_open(&first);
    let namespace = NamespaceConfig { nsid: 2, device: second.clone(), uuid: None };
    target.add_namespace(NQN, &namespace).unwrap();
    until_open(&second);
}

#[test]
fn first_path_that_says_nothing_leaves_the_other_its_time() {
    let target = serve(memory(1));
    let mute = Relay::to(target.addresses()[0], Mood::Well);
    let well = Relay::to(target.addresses()[0], Mood::Well);
    let config = InitiatorConfig {
        timeout: ms(3000),
        keep_alive: ms(20_000), // its controller is there all the time
        ..reach(vec![mute.address, well.address])
    };
    let initiator = Initiator::open(config).unwrap();
    mute.set(Mood::Mute);
    let (port, took) = timed(|| Port::open(&initiator, 4));
    port.unwrap().read(Lba(0), AlignedBuf::zeroed(512)).unwrap();
    assert!(took < ms(3000), "{took:?}");
    assert_eq!(well.queues(), 1);
}

#[test]
fn host_that_is_refused_for_good_is_told_at_once_and_goes_on_when_it_is_let_in() {
    let device = memory(1);
    let mut config = config(device);
    let target = Target::start(&config).unwrap();
    let initiator = crate::common::open(&target);
    let mut port = Port::open(&initiator, 4).unwrap();
    let mut read = || port.read(Lba(0), AlignedBuf::zeroed(512));
    read().unwrap();
    config.subsystems[0].access = Access::Hosts(Vec::new());
    target.reconfigure(&config).unwrap();
    let (error, took) = timed(|| read().unwrap_err());
    assert!(took < ms(5000), "{took:?}, of 30 s after which it gives up");
    assert!(error.to_string().contains("connect invalid parameters"), "{error}");
    config.subsystems[0].access = Access::Any;
    target.reconfigure(&config).unwrap();
    let clock = Clock::real();
    let began = clock.now();
    while let Err(error) = read() {
        assert!(clock.now().since(began) < Duration::from_secs(30), "{error}");
        clock.sleep(ms(20));
    }
}

/// A fault of the target's device, or of the way to it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    SlowAndAnswering,
    /// For half of the time after which a command gives up.
    SilentForAWhile,
    SilentForGood,
    Refusing,
}

/// Every shape with one path and with two, of which the other is well: what a caller sees, and afterwards.
#[test]
fn callers_see_what_the_table_says_of_each_shape() {
    let give_up = ms(4000);
    for has_other in [false, true] {
        for shape in
            [Shape::SlowAndAnswering, Shape::SilentForAWhile, Shape::SilentForGood, Shape::Refusing]
        {
            let is_slow = shape == Shape::SlowAndAnswering;
            let device: Arc<dyn Device> = match is_slow {
                true => Paced::over(memory(1), ms(20), Order::NewestFirst),
                false => memory(1),
            };
            let target = serve(device);
            let to = || Relay::to(target.addresses()[0], Mood::Well);
            let (ill, other) = (to(), to());
            let mut portals = vec![ill.address];
            portals.extend(has_other.then_some(other.address));
            let config = InitiatorConfig {
                timeout: ms(700),
                give_up,
                keep_alive: ms(400),
                ..reach(portals)
            };
            let initiator = Initiator::open(config).unwrap();
            let mut port = Port::open(&initiator, 4).unwrap();
            let mut read = || port.read(Lba(0), AlignedBuf::zeroed(512));
            read().unwrap();
            let what = format!("{shape:?}, other path: {has_other}");
            let seen = match shape {
                Shape::SlowAndAnswering => {
                    let failed = read_deep(&initiator);
                    assert_eq!((ill.queues(), other.queues()), (2, 0), "{what}");
                    failed.map_or(Ok(()), Err)
                }
                Shape::SilentForAWhile => {
                    ill.set(Mood::Silent);
                    let ill = &ill;
                    std::thread::scope(|scope| {
                        scope.spawn(move || {
                            Clock::real().sleep(give_up / 2);
                            ill.set(Mood::Well);
                        });
                        read().map(drop)
                    })
                }
                Shape::SilentForGood | Shape::Refusing => {
                    ill.set(match shape {
                        Shape::Refusing => Mood::Breaks,
                        _ => Mood::Silent,
                    });
                    let (seen, took) = timed(|| read().map(drop));
                    let most = if has_other { give_up } else { give_up + ms(8000) };
                    assert!(took < most, "{what}: {took:?}");
                    seen
                }
            };
            let fails = !has_other && matches!(shape, Shape::SilentForGood | Shape::Refusing);
            assert_eq!(seen.is_err(), fails, "{what}: {seen:?}");
            if let Err(error) = &seen {
                let said = error.to_string();
                assert!(said.contains(&ill.address.to_string()), "{what}: {said}");
            }
            ill.set(Mood::Well);
            read().unwrap_or_else(|error| panic!("{what}, and it is back: {error}"));
        }
    }
}
