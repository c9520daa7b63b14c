//! Target and initiator, over the loopback.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{NQN, config, memory, open, reach, serve};
use esker_base::{AlignedBuf, Clock, ErrorKind, Lba, LbaCount, Nanos};
use esker_device::{
    Command, Completion, Device, DeviceError, DeviceStats, Geometry, Op, Port, QueuePair,
    conformance,
};
use esker_nvmf::auth::Secret;
use esker_nvmf::target::{Access, HostConfig, NamespaceConfig, Target};
use esker_nvmf::wire::log::AnaState;
use esker_nvmf::{Initiator, InitiatorConfig};
use esker_sim::HookDevice;

/// Waits until something is so, for some seconds.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = Clock::real();
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        clock.sleep(Duration::from_millis(5));
    }
    panic!("{what}: not within five seconds");
}

#[test]
fn a_remote_namespace_is_a_device_like_any_other() {
    let target = serve(memory(1));
    for (depth, seed) in [(1, 1), (32, 2), (200, 3)] {
        let initiator = open(&target);
        assert!(initiator.discards_zero(), "memory does, and the target says so");
        conformance::check(&initiator, depth, 3000, seed);
    }
}

#[test]
fn discards_promise_no_zeroes_when_the_device_does_not() {
    let target = serve(Arc::new(Slow(memory(1), Duration::ZERO)));
    let initiator = open(&target);
    assert!(!initiator.discards_zero());
    conformance::check(&initiator, 8, 300, 6);
}

#[test]
fn digests_change_nothing_but_the_bytes_on_the_wire() {
    for (header, data) in [(true, false), (false, true), (true, true)] {
        let target = serve(memory(1));
        let config = reach(target.addresses());
        let config = InitiatorConfig { header_digest: header, data_digest: data, ..config };
        let initiator = Initiator::open(config).unwrap();
        conformance::check(&initiator, 16, 1000, 4);
        write_and_read_large(&mut Port::open(&initiator, 8).unwrap(), 512 << 10);
    }
}

/// Writes and reads ever more bytes at once, up to `most`.
fn write_and_read_large(port: &mut Port, most: usize) {
    let sizes = [512, 8192, 16 << 10, (16 << 10) + 512, 300 << 10, 1 << 20];
    for (number, size) in (0u8..).zip(sizes.into_iter().filter(|&size| size <= most)) {
        let mut buf = AlignedBuf::zeroed(size);
        buf.iter_mut().zip(0u32..).for_each(|(byte, at)| *byte = at.to_le_bytes()[1] ^ number);
        let written = port.write(Lba(3), buf.clone(), None).unwrap();
        let read = port.read(Lba(3), AlignedBuf::zeroed(size)).unwrap();
        assert!(read[..] == buf[..] && written[..] == buf[..], "{size} bytes");
    }
}

#[test]
fn large_transfers_and_large_ranges_arrive_whole() {
    let device = memory(64);
    let target = serve(device.clone());
    let initiator = open(&target);
    assert_eq!(initiator.geometry().max_transfer_size, 1 << 20);
    let mut port = Port::open(&initiator, 8).unwrap();
    write_and_read_large(&mut port, 1 << 20);
    // More LBAs than one Write Zeroes command takes.
    let count = LbaCount(device.geometry().capacity.0 - 3);
    port.run(Op::WriteZeroes { lba: Lba(3), count }).unwrap();
    port.discard(Lba(0), device.geometry().capacity).unwrap();
    let read = port.read(Lba(3), AlignedBuf::zeroed(1 << 20)).unwrap();
    assert!(read.iter().all(|&byte| byte == 0));
    let metrics = target.metrics();
    let flow = metrics.flows.iter().find(|flow| flow.nsid == 1).unwrap();
    assert_eq!((flow.reads, flow.writes), (7, 6));
    assert!(flow.latency.percentile(0.99) > Duration::ZERO && flow.in_flight == 0);
}

#[test]
fn several_workers_serve_several_queues() {
    let mut config = config(memory(4));
    config.limits.workers = 3;
    let target = Target::start(&config).unwrap();
    let initiator = open(&target);
    std::thread::scope(|scope| {
        for thread in 0..6u8 {
            let initiator = &initiator;
            esker_base::thread::spawn_scoped(scope, "user", move || {
                let mut port = Port::open(initiator, 4).unwrap();
                let lba = Lba(u64::from(thread) * 64);
                for round in 0..200u8 {
                    let mut buf = AlignedBuf::zeroed(4096);
                    buf.fill(thread ^ round);
                    port.write(lba, buf, None).unwrap();
                    let read = port.read(lba, AlignedBuf::zeroed(4096)).unwrap();
                    assert!(read.iter().all(|&byte| byte == thread ^ round));
                }
            })
            .unwrap();
        }
    });
}

/// How often, with `ESKER_SOAK` set to something else than a test has time for.
fn times(default: u32) -> u32 {
    std::env::var("ESKER_SOAK").ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

#[test]
fn commands_survive_the_restart_of_the_target() {
    let device = memory(4);
    let mut config = config(device.clone());
    let target = Target::start(&config).unwrap();
    let addresses = target.addresses();
    config.portals[0].listen = addresses[0];
    let initiator = open(&target);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = esker_base::thread::spawn_scoped(scope, "writer", || {
            let mut port = Port::open(&initiator, 16).unwrap();
            let mut rounds = 0u64;
            while !stop.load(Ordering::Relaxed) {
                rounds += 1;
                let ops = (0..64).map(|lba| {
                    let mut buf = AlignedBuf::zeroed(512);
                    buf[..8].copy_from_slice(&rounds.to_le_bytes());
                    Op::Write { lba: Lba(lba), buf, placement: None, fua: false }
                });
                let mut failed = 0;
                port.run_all(ops, |_, outcome| failed += u32::from(outcome.is_err())).unwrap();
                assert_eq!(failed, 0, "round {rounds}");
                let read = port.read(Lba(0), AlignedBuf::zeroed(64 * 512)).unwrap();
                for block in read.chunks(512) {
                    assert_eq!(block[..8], rounds.to_le_bytes(), "round {rounds}");
                }
            }
            rounds
        })
        .unwrap();
        let clock = Clock::real();
        let mut target = Some(target);
        for _ in 0..times(5) {
            clock.sleep(Duration::from_millis(100));
            drop(target.take());
            clock.sleep(Duration::from_millis(30));
            target = Some(Target::start(&config).unwrap());
        }
        clock.sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 10);
    });
}

#[test]
fn a_second_portal_takes_over_and_ana_says_when() {
    let mut config = config(memory(4));
    let second = config.portals[0].clone();
    config.portals.push(second);
    let target = Target::start(&config).unwrap();
    let initiator = open(&target);
    assert_eq!(initiator.paths(), 2);
    let mut port = Port::open(&initiator, 4).unwrap();
    let write = |port: &mut Port| port.write(Lba(0), AlignedBuf::zeroed(4096), None).map(drop);
    write(&mut port).unwrap();
    for (first, second) in [
        (AnaState::Inaccessible, AnaState::Optimized),
        (AnaState::NonOptimized, AnaState::Inaccessible),
        (AnaState::Change, AnaState::NonOptimized),
    ] {
        target.set_ana(1, second).unwrap();
        target.set_ana(0, first).unwrap();
        for _ in 0..20 {
            write(&mut port).unwrap();
        }
    }
}

#[test]
fn commands_go_on_when_a_portal_is_closed_under_load() {
    let mut config = config(memory(4));
    let second = config.portals[0].clone();
    config.portals.push(second);
    let target = Target::start(&config).unwrap();
    let initiator = open(&target);
    let mut port = Port::open(&initiator, 32).unwrap();
    for round in 0..200u8 {
        if round == 100 {
            target.close_portal(0).unwrap();
        }
        let ops = (0..64).map(|lba| {
            let mut buf = AlignedBuf::zeroed(512);
            buf.fill(round);
            Op::Write { lba: Lba(lba), buf, placement: None, fua: false }
        });
        port.run_all(ops, |_, outcome| drop(outcome.unwrap())).unwrap();
        let read = port.read(Lba(0), AlignedBuf::zeroed(64 * 512)).unwrap();
        assert!(read.iter().all(|&byte| byte == round), "round {round}");
    }
    wait_until("one path is left", || initiator.paths() == 1);
}

#[test]
fn commands_come_back_to_the_better_path() {
    let device = memory(1);
    let mut config = config(device);
    config.subsystems[0].namespaces[0].uuid = Some([9; 16]);
    let near = Target::start(&config).unwrap();
    config.portals[0].ana = AnaState::NonOptimized;
    let far = Target::start(&config).unwrap();
    let initiator = Initiator::open(reach(vec![far.addresses()[0], near.addresses()[0]])).unwrap();
    let mut port = Port::open(&initiator, 4).unwrap();
    let writes =
        |target: &Target| -> u64 { target.metrics().flows.iter().map(|flow| flow.writes).sum() };
    let mut write = |to: &Target| {
        wait_until("commands take that path", || {
            let before = writes(to);
            port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
            writes(to) > before
        });
    };
    write(&near); // optimized, though the second in the list
    near.set_ana(0, AnaState::Inaccessible).unwrap();
    write(&far);
    near.set_ana(0, AnaState::Optimized).unwrap();
    write(&near);
}

#[test]
fn nothing_goes_through_a_portal_that_is_not_accessible() {
    let device = memory(1);
    let target = serve(device.clone());
    let config = reach(target.addresses());
    let give_up = Duration::from_millis(200);
    let initiator = Initiator::open(InitiatorConfig { give_up, ..config }).unwrap();
    let mut port = Port::open(&initiator, 4).unwrap();
    target.set_ana(0, AnaState::Inaccessible).unwrap();
    port.write(Lba(0), AlignedBuf::zeroed(4096), None).unwrap_err();
    assert_eq!(device.stats().writes, 0);
    target.set_ana(0, AnaState::Optimized).unwrap();
    wait_until("the host knows", || port.write(Lba(0), AlignedBuf::zeroed(4096), None).is_ok());
}

#[test]
fn nobody_waits_for_ever_when_the_target_is_gone() {
    let target = serve(memory(1));
    let mut config = reach(target.addresses());
    config.give_up = Duration::from_millis(200);
    let initiator = Initiator::open(config).unwrap();
    let mut port = Port::open(&initiator, 4).unwrap();
    drop(target);
    let error = port.read(Lba(0), AlignedBuf::zeroed(512)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert_eq!(initiator.paths(), 0);
}

/// A device that takes its time: commands reach the memory some milliseconds after they came.
struct Slow(Arc<dyn Device>, Duration);

impl Device for Slow {
    fn name(&self) -> &str {
        "slow"
    }
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let (below, clock) = (self.0.queue_pair(depth)?, Clock::real());
        Ok(Box::new(SlowQueue { below, clock, delay: self.1, held: VecDeque::new() }))
    }
    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }
}

struct SlowQueue {
    below: Box<dyn QueuePair>,
    clock: Clock,
    delay: Duration,
    held: VecDeque<(Nanos, Command)>,
}

impl QueuePair for SlowQueue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let due = self.clock.now() + self.delay;
        let count = commands.len();
        self.held.extend(commands.drain(..).map(|command| (due, command)));
        Ok(count)
    }
    fn poll(&mut self, done: &mut Vec<Completion>) -> Result<usize, DeviceError> {
        let now = self.clock.now();
        while self.held.front().is_some_and(|(due, _)| *due <= now) {
            let (_, command) = self.held.pop_front().unwrap();
            self.below.submit(&mut VecDeque::from([command]))?;
        }
        self.below.poll(done)
    }
    fn wait(
        &mut self,
        done: &mut Vec<Completion>,
        _: Option<Duration>,
    ) -> Result<usize, DeviceError> {
        self.clock.sleep(Duration::from_micros(100));
        self.poll(done)
    }
    fn in_flight(&self) -> usize {
        self.held.len() + self.below.in_flight()
    }
}

#[test]
fn no_older_write_comes_after_a_newer_one() {
    let memory = memory(1);
    let mut config = config(Arc::new(Slow(memory.clone(), Duration::from_millis(300))));
    let uuid = Some([7; 16]);
    config.subsystems[0].namespaces[0].uuid = uuid;
    let slow = Target::start(&config).unwrap();
    // The same data through another target, which is quick.
    config.subsystems[0].namespaces[0] = NamespaceConfig { nsid: 1, device: memory, uuid };
    let quick = Target::start(&config).unwrap();
    let portals = vec![slow.addresses()[0], quick.addresses()[0]];
    let initiator = Initiator::open(reach(portals)).unwrap();
    let mut port = Port::open(&initiator, 1).unwrap();
    let write = |port: &mut Port, byte: u8| {
        let mut buf = AlignedBuf::zeroed(512);
        buf.fill(byte);
        port.write(Lba(0), buf, None).map(drop).unwrap();
    };
    std::thread::scope(|scope| {
        esker_base::thread::spawn_scoped(scope, "close", || {
            Clock::real().sleep(Duration::from_millis(100));
            slow.close_portal(0).unwrap();
        })
        .unwrap();
        write(&mut port, 1); // in the slow device when its portal closes; repeated elsewhere
        write(&mut port, 2);
    });
    Clock::real().sleep(Duration::from_millis(400)); // whatever is still under way arrives
    let read = port.read(Lba(0), AlignedBuf::zeroed(512)).unwrap();
    assert_eq!(read[0], 2, "the first copy of the older write came last");
}

#[test]
fn a_target_short_of_memory_serves_all_the_same() {
    let mut config = config(memory(1));
    config.limits.data_bytes = 64 << 10;
    config.limits.data_bytes_per_connection = 24 << 10;
    let target = Target::start(&config).unwrap();
    let initiator = open(&target);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let initiator = &initiator;
            esker_base::thread::spawn_scoped(scope, "user", move || {
                let mut port = Port::open(initiator, 64).unwrap();
                for round in 0..20u8 {
                    let size = 20_480;
                    let ops = (0..16).map(|n| {
                        let mut buf = AlignedBuf::zeroed(size);
                        buf.fill(round);
                        let lba = Lba(thread * 650 + n * 40);
                        Op::Write { lba, buf, placement: None, fua: false }
                    });
                    port.run_all(ops, |_, outcome| drop(outcome.unwrap())).unwrap();
                    let lba = |n: u64| Lba(thread * 650 + n * 40);
                    let reads =
                        (0..16).map(|n| Op::Read { lba: lba(n), buf: AlignedBuf::zeroed(size) });
                    let check = |_, outcome: Result<Option<AlignedBuf>, DeviceError>| {
                        let buf = outcome.unwrap().unwrap();
                        assert!(buf.iter().all(|&byte| byte == round));
                    };
                    port.run_all(reads, check).unwrap();
                }
            })
            .unwrap();
        }
    });
}

#[test]
fn a_host_sees_its_namespace_grow() {
    let capacity = Arc::new(AtomicU64::new(2048));
    let shown = capacity.clone();
    let target = serve(Arc::new(HookDevice::new(memory(2)).with_geometry(move |geometry| {
        geometry.capacity = LbaCount(shown.load(Ordering::Relaxed));
    })));
    let initiator = open(&target);
    let mut port = Port::open(&initiator, 1).unwrap();
    assert!(port.read(Lba(2048), AlignedBuf::zeroed(512)).is_err());
    capacity.store(4096, Ordering::Relaxed);
    wait_until("the host sees 4,096 LBAs", || initiator.geometry().capacity.0 == 4096);
    port.read(Lba(4095), AlignedBuf::zeroed(512)).unwrap();
}

#[test]
fn a_host_that_saw_its_namespace_go_hears_of_what_comes_after() {
    let uuid = Some([5; 16]);
    let mut config = config(memory(1));
    config.subsystems[0].namespaces[0].uuid = uuid;
    let target = Target::start(&config).unwrap();
    let initiator = open(&target);
    target.remove_namespace(NQN, 1).unwrap();
    // Enough for the host to have asked.
    Clock::real().sleep(Duration::from_millis(500));
    let larger = NamespaceConfig { nsid: 1, device: memory(2), uuid };
    target.add_namespace(NQN, &larger).unwrap();
    wait_until("the host sees 4,096 LBAs", || initiator.geometry().capacity.0 == 4096);
}

#[test]
fn another_namespace_that_takes_the_number_is_not_taken_for_the_one_before() {
    let target = serve(memory(1));
    let config = reach(target.addresses());
    let give_up = Duration::from_millis(200);
    let initiator = Initiator::open(InitiatorConfig { give_up, ..config }).unwrap();
    let mut port = Port::open(&initiator, 1).unwrap();
    target.remove_namespace(NQN, 1).unwrap();
    let other = memory(1);
    let another = NamespaceConfig { nsid: 1, device: other.clone(), uuid: Some([9; 16]) };
    target.add_namespace(NQN, &another).unwrap();
    wait_until("the host has noticed", || initiator.paths() == 0);
    port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap_err();
    assert_eq!(other.stats().writes, 0);
}

#[test]
fn namespaces_come_and_go() {
    let target = serve(memory(1));
    let more = NamespaceConfig { nsid: 2, device: memory(2), uuid: None };
    target.add_namespace(NQN, &more).unwrap();
    assert!(target.add_namespace(NQN, &more).is_err());
    let config = InitiatorConfig { nsid: 2, ..reach(target.addresses()) };
    let initiator = Initiator::open(config.clone()).unwrap();
    let mut port = Port::open(&initiator, 1).unwrap();
    port.read(Lba(0), AlignedBuf::zeroed(512)).unwrap();
    target.remove_namespace(NQN, 2).unwrap();
    let error = port.read(Lba(0), AlignedBuf::zeroed(512)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(Initiator::open(config).is_err());
    target.add_namespace(NQN, &more).unwrap();
    port.read(Lba(0), AlignedBuf::zeroed(512)).unwrap();
}

#[test]
fn only_hosts_that_are_listed_and_prove_it_get_in() {
    let (secret, other) = (Secret::new(&[1; 32], None), Secret::new(&[2; 48], None));
    let mut config = config(memory(1));
    let host = |nqn: &str, secret: Option<&Secret>| HostConfig {
        nqn: nqn.to_owned(),
        secret: secret.cloned(),
        controller_secret: secret.map(|_| other.clone()),
        tls_key: None,
    };
    config.subsystems[0].access = Access::Hosts(vec![
        host("nqn.2026-01.io.esker:open", None),
        host("nqn.2026-01.io.esker:keyed", Some(&secret)),
    ]);
    let target = Target::start(&config).unwrap();
    let open = |name: &str, secret: Option<&Secret>, controller: Option<&Secret>| {
        let initiator = Initiator::open(InitiatorConfig {
            host_nqn: format!("nqn.2026-01.io.esker:{name}"),
            secret: secret.cloned(),
            controller_secret: controller.cloned(),
            ..reach(target.addresses())
        })?;
        let mut port = Port::open(&initiator, 1)?;
        port.read(Lba(0), AlignedBuf::zeroed(512))?;
        Ok::<_, esker_nvmf::NvmfError>(())
    };
    open("open", None, None).unwrap();
    let refused = open("stranger", None, None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    let said = refused.to_string();
    assert!(said.contains("nqn.2026-01.io.esker:stranger") && said.contains("hostnqn="), "{said}");
    open("keyed", Some(&secret), None).unwrap();
    open("keyed", Some(&secret), Some(&other)).unwrap();
    assert!(
        open("keyed", None, None).unwrap_err().to_string().contains("for a key; key-file=PATH")
    );
    let wrong = open("keyed", Some(&other), None).unwrap_err();
    assert!(wrong.to_string().contains("does not accept the secret"), "{wrong}");
    let wrong = open("keyed", Some(&secret), Some(&secret)).unwrap_err();
    assert!(wrong.to_string().contains("controller's key"), "{wrong}");
    assert!(open("open", None, Some(&other)).is_err());
    assert!(target.metrics().unauthenticated >= 1);
}
