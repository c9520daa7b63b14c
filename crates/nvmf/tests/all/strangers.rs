//! Hosts of which nothing is known: they fill nothing that known hosts need.

use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::{NQN, config, memory, open};
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::Port;
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{Access, HostConfig, Target};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::command::{LbaRange, io};
use esker_nvmf::wire::fabrics::{CNTLID_ANY, DISCOVERY_NQN};

fn stranger(number: u16, nqn: &str) -> Identity {
    let host_nqn = format!("nqn.2026-01.io.esker:invented-{number}");
    Identity { host_nqn, host_id: [9; 16], nqn: nqn.to_owned() }
}

/// Discovery controllers under so many invented names, which stay.
fn strangers(target: &Target, count: u16) -> Vec<Client> {
    let at = target.addresses()[0];
    let connect = |number| Client::connect(at, &stranger(number, DISCOVERY_NQN), 0, CNTLID_ANY);
    (0..count).map(|number| connect(number).expect("a stranger is let in").0).collect()
}

fn read() -> (Sqe, Payload) {
    let range = LbaRange { slba: 0, count: 1, fua: false, placement: None };
    (range.put(Sqe::new(io::READ, 1)), Payload::In(AlignedBuf::zeroed(512)))
}

#[test]
fn discovery_controllers_of_strangers_keep_no_other_host_out() {
    for is_listed in [false, true] {
        let mut config = config(memory(1));
        config.limits.connections = 100;
        if is_listed {
            let host = HostConfig::new(&Identity::new(1).host_nqn);
            config.subsystems[0].access = Access::Hosts(vec![host]);
        }
        let target = Target::start(&config).unwrap();
        let at = target.addresses()[0];
        let (_admin, mut before) = Client::pair(at, &Identity::new(1));
        let all = strangers(&target, 150);
        let clock = Clock::real();
        let began = clock.now();
        let (_admin, mut after) = Client::pair(at, &Identity::new(1));
        for host in [&mut before, &mut after] {
            let (sqe, payload) = read();
            assert!(host.run(sqe, payload).0.status.is_success());
        }
        let took = clock.now().since(began);
        assert!(took < Duration::from_secs(5), "{took:?}");
        let metrics = target.metrics();
        assert!(metrics.connections <= 30, "{} connections", metrics.connections);
        assert!(metrics.displaced > 100, "{metrics:?}");
        drop(all);
    }
}

#[test]
fn initiator_connects_beside_strangers_that_come_all_the_time() {
    let mut config = config(memory(1));
    config.limits.connections = 60;
    let target = Target::start(&config).unwrap();
    let all = strangers(&target, 80);
    let device = open(&target);
    let mut ports: Vec<_> = (0..4).map(|_| Port::open(&device, 1).unwrap()).collect();
    let more = strangers(&target, 40);
    for port in &mut ports {
        port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
    }
    drop((all, more));
}

#[test]
fn invented_names_leave_metrics_of_a_bounded_size() {
    let target = Target::start(&config(memory(1))).unwrap();
    let at = target.addresses()[0];
    let (_admin, mut first) = Client::pair(at, &Identity::new(1));
    let (sqe, payload) = read();
    assert!(first.run(sqe, payload).0.status.is_success());
    for number in 0..200 {
        let (_admin, mut host) = Client::pair(at, &stranger(number, NQN));
        let (sqe, payload) = read();
        assert!(host.run(sqe, payload).0.status.is_success());
    }
    let flows = target.metrics().flows;
    assert!(flows.len() <= 65, "{} hosts are told of", flows.len());
    assert_eq!(flows.iter().map(|flow| flow.reads).sum::<u64>(), 201, "nothing is lost");
    let host = Identity::new(1).host_nqn;
    assert!(flows.iter().any(|flow| flow.host == host), "a host that is connected keeps its name");
}
