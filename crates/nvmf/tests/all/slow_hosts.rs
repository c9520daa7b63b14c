//! Hosts that are slow on purpose: their memory is bounded, and they are shed in a time, so that
//! other hosts of the same worker do not wait for them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::{config, memory};
use esker_base::{AlignedBuf, Clock};
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{Target, TargetMetrics};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::command::{LbaRange, io};
use esker_nvmf::wire::fabrics::CNTLID_ANY;
use esker_nvmf::wire::feature;
use esker_nvmf::wire::pdu::{CommonHeader, PduType};

/// How long the target has patience with a host.
const PATIENCE: Duration = Duration::from_secs(4);
/// Longest time for a small command of another host, on a machine that has other work.
const SOON: Duration = Duration::from_secs(1);

fn target() -> Target {
    let mut config = config(memory(8));
    config.limits.transfer = PATIENCE;
    Target::start(&config).unwrap()
}

fn command(opcode: u8, bytes: usize) -> (Sqe, Payload) {
    let count = u32::try_from(bytes / 512).unwrap();
    let sqe = LbaRange { slba: 0, count, fua: false, placement: None }.put(Sqe::new(opcode, 1));
    let buf = AlignedBuf::zeroed(bytes);
    (sqe, if opcode == io::READ { Payload::In(buf) } else { Payload::Out(buf) })
}

/// An admin queue, and `queues` I/O queues with 31 commands of 1 MiB each, in none of which the host does
/// its part: the data of writes never comes, and that of reads is never taken.
fn hold(at: SocketAddr, host: u8, queues: u16, opcode: u8) -> Vec<Client> {
    let who = Identity::new(host);
    let (mut admin, cntlid) = Client::connect(at, &who, 0, CNTLID_ANY).unwrap();
    admin.enable();
    let many = Sqe::new(feature::SET, 0).with_dword(10, feature::QUEUES.into());
    let many = many.with_dword(11, u32::from(queues) | u32::from(queues) << 16);
    assert!(admin.run(many, Payload::None).0.status.is_success());
    let mut all = vec![admin];
    for qid in 1..=queues {
        let (mut client, _) = Client::connect(at, &who, qid, cntlid).unwrap();
        for _ in 0..31 {
            let (sqe, payload) = command(opcode, 1 << 20);
            client.submit(sqe, payload);
        }
        all.push(client);
    }
    all
}

/// The longest that a small command takes, of several of each size.
fn longest(host: &mut Client) -> Duration {
    let clock = Clock::real();
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        for bytes in [512, 4096, 64 << 10, 200 << 10] {
            for opcode in [io::READ, io::WRITE] {
                let (sqe, payload) = command(opcode, bytes);
                let began = clock.now();
                assert!(host.run(sqe, payload).0.status.is_success());
                longest = longest.max(clock.now().since(began));
            }
        }
    }
    longest
}

/// Waits until so many connections were closed because their host was slow.
fn shed(target: &Target, count: u64) -> TargetMetrics {
    let clock = Clock::real();
    let end = clock.now() + 10 * PATIENCE;
    loop {
        let metrics = target.metrics();
        if metrics.slow >= count {
            return metrics;
        }
        assert!(clock.now() < end, "{} of {count} were shed", metrics.slow);
        clock.sleep(Duration::from_millis(20));
    }
}

fn slow_hosts_hold_back_nobody(hosts: u8, queues: u16, opcode: u8, reason: &str) {
    let target = target();
    let at = target.addresses()[0];
    let (_admin, mut other) = Client::pair(at, &Identity::new(1));
    let slow: Vec<_> = (2..2 + hosts).map(|host| hold(at, host, queues, opcode)).collect();
    let took = longest(&mut other);
    assert!(took < SOON, "a small command waited for {took:?}");
    let metrics = shed(&target, u64::from(hosts) * u64::from(queues));
    assert!(metrics.closed.iter().all(|why| why.contains(reason)), "{:?}", metrics.closed);
    let (sqe, payload) = command(io::WRITE, 1 << 20);
    assert!(
        other.run(sqe, payload).0.status.is_success(),
        "a host that is not slow keeps its connection"
    );
    drop(slow);
}

#[test]
fn writes_whose_data_never_comes_hold_back_no_other_host() {
    slow_hosts_hold_back_nobody(1, 10, io::WRITE, "the data of a command");
}

#[test]
fn reads_that_are_never_taken_hold_back_no_other_host() {
    slow_hosts_hold_back_nobody(1, 10, io::READ, "it has not taken");
}

#[test]
fn many_slow_hosts_together_hold_back_no_other_host() {
    slow_hosts_hold_back_nobody(12, 3, io::WRITE, "the data of a command");
}

/// An admin queue whose host begins a command and goes on with a byte now and then. How long that goes.
fn trickle(target: &Target, keep_alive_ms: u32) -> Duration {
    let clock = Clock::real();
    let mut stream = TcpStream::connect(target.addresses()[0]).unwrap();
    stream.set_nodelay(true).unwrap();
    let beside = Box::new(stream.try_clone().unwrap());
    let (mut admin, _) = Client::over(beside, &Identity::new(1), 0, CNTLID_ANY).unwrap();
    admin.enable();
    let timer = Sqe::new(feature::SET, 0).with_dword(10, feature::KEEP_ALIVE.into());
    let set = admin.run(timer.with_dword(11, keep_alive_ms), Payload::None).0.status;
    assert!(set.is_success());
    let (kind, plen) = (PduType::CapsuleCmd as u8, 72 + 8192);
    let header = CommonHeader { kind, flags: 0, hlen: 72, pdo: 72, plen }.encode();
    stream.write_all(&header).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let began = clock.now();
    loop {
        let is_gone = stream.write_all(&[0]).is_err();
        if is_gone || matches!(stream.read(&mut [0; 512]), Ok(0)) {
            return clock.now().since(began);
        }
        assert!(clock.now().since(began) < 10 * PATIENCE, "it trickles for ever");
    }
}

#[test]
fn host_that_trickles_a_command_is_shed() {
    let target = target();
    let took = trickle(&target, 0);
    assert!(took >= PATIENCE, "{took:?}");
    let metrics = shed(&target, 1);
    assert!(metrics.closed[0].contains("a PDU that it began"), "{:?}", metrics.closed);
}

#[test]
fn bytes_that_trickle_keep_no_controller_alive() {
    let target = target();
    let took = trickle(&target, 500);
    assert!(took < PATIENCE, "{took:?}");
    assert_eq!((target.metrics().timeouts, target.metrics().slow), (1, 0));
}
