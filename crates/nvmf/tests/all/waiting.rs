//! Devices and targets that are slow, silent or refuse, and what hosts see of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::paced::{Order, Paced};
use crate::common::relay::{Mood, Relay};
use crate::common::{NQN, config, memory, reach, serve};
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::{Command, Device, DeviceError, Op, Port, Tag};
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{Access, NamespaceConfig, Target};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::command::{LbaRange, io};
use esker_nvmf::wire::status::Status;
use esker_nvmf::{Initiator, InitiatorConfig};
use esker_sim::{Fate, HookDevice};

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

fn at(slba: u64) -> (Sqe, Payload) {
    let range = LbaRange { slba, count: 1, fua: false, placement: None };
    (range.put(Sqe::new(io::READ, 1)), Payload::In(AlignedBuf::zeroed(512)))
}

#[test]
fn command_that_a_device_passes_over_is_answered_though_it_answers_others() {
    let is_shut = Arc::new(AtomicBool::new(true));
    let shut = is_shut.clone();
    let device = HookDevice::new(memory(1)).on_command(move |op| {
        let is_held = shut.load(Ordering::SeqCst) && op.range(512).0 == Lba(0);
        if is_held { Fate::Hold } else { Fate::Pass }
    });
    let mut config = config(Arc::new(device));
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
    is_shut.store(false, Ordering::SeqCst);
}

#[test]
fn queue_pairs_are_open_before_commands_come() {
    let counting = || {
        let opened = Arc::new(AtomicUsize::new(0));
        let count = opened.clone();
        let device = HookDevice::new(memory(1)).on_open(move || {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        (Arc::new(device), opened)
    };
    let ((first, first_opened), (second, second_opened)) = (counting(), counting());
    let config = config(first);
    let target = Target::start(&config).unwrap();
    let _queues = Client::pair(target.addresses()[0], &Identity::new(1));
    let until_open = |opened: &AtomicUsize| {
        for _ in 0..5000 {
            if opened.load(Ordering::SeqCst) == 1 {
                return;
            }
            Clock::real().sleep(ms(1));
        }
        panic!("no command has come, and it is not open");
    };
    until_open(&first_opened);
    let namespace = NamespaceConfig { nsid: 2, device: second, uuid: None };
    target.add_namespace(NQN, &namespace).unwrap();
    until_open(&second_opened);
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
