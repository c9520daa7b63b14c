//! Namespaces that go, or get another device, while a host still has a write for them under way.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::script::Script;
use crate::common::{NQN, config, memory};
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::{Device, Port};
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{NamespaceConfig, Target, TargetConfig};
use esker_nvmf::wire::capsule::{Cqe, Sgl, Sqe};
use esker_nvmf::wire::command::{LbaRange, io};
use esker_nvmf::wire::fabrics::CNTLID_ANY;
use esker_nvmf::wire::feature;
use esker_nvmf::wire::pdu::{PduType, Transfer};
use esker_nvmf::wire::status::Status;

/// More than a capsule takes: the host is asked for it.
const BYTES: usize = 64 << 10;
/// Longer than a worker needs to close the queue pair of a namespace that is gone.
const CLOSED: Duration = Duration::from_millis(700);

const GONE: Status = Status::INVALID_NAMESPACE.final_();

fn command(opcode: u8, nsid: u32, bytes: usize) -> Sqe {
    let count = u32::try_from(bytes / 512).unwrap();
    LbaRange { slba: 0, count, fua: false, placement: None }.put(Sqe::new(opcode, nsid))
}

fn write(host: &mut Client, nsid: u32, fill: u8) -> Status {
    let mut buf = AlignedBuf::zeroed(BYTES);
    buf.fill(fill);
    host.run(command(io::WRITE, nsid, BYTES), Payload::Out(buf)).0.status
}

fn content(device: &Arc<dyn Device>) -> Vec<u8> {
    Port::open(&**device, 1).unwrap().read(Lba(0), AlignedBuf::zeroed(BYTES)).unwrap().to_vec()
}

fn two_namespaces() -> (TargetConfig, Arc<dyn Device>, Arc<dyn Device>) {
    let (first, second) = (memory(1), memory(1));
    let mut config = config(first.clone());
    let namespace = NamespaceConfig { nsid: 2, device: second.clone(), uuid: None };
    config.subsystems[0].namespaces.push(namespace);
    (config, first, second)
}

/// An I/O queue that sends the data it is asked for when it is told to.
struct Slow {
    queue: Script,
    _admin: Client,
}

impl Slow {
    fn connect(target: &Target) -> Slow {
        let host_nqn = "nqn.2026-01.io.esker:script".to_owned();
        let who = Identity { host_nqn, host_id: [7; 16], nqn: NQN.to_owned() };
        let (mut admin, cntlid) =
            Client::connect(target.addresses()[0], &who, 0, CNTLID_ANY).unwrap();
        admin.enable();
        let queues = Sqe::new(feature::SET, 0).with_dword(10, feature::QUEUES.into());
        assert!(admin.run(queues, Payload::None).0.status.is_success());
        let mut queue = Script::open(target);
        queue.initialize();
        assert_eq!(queue.connect(1, cntlid, NQN)[22..], [0, 0]);
        Slow { queue, _admin: admin }
    }

    /// Sends a write, and returns what the target asks for.
    fn begin(&mut self, nsid: u32) -> Transfer {
        let length = u32::try_from(BYTES).unwrap();
        let sgl = Sgl { address: 0, length, kind: Sgl::TRANSPORT };
        let sqe = Sqe { cid: 9, sgl, ..command(io::WRITE, nsid, BYTES) };
        self.queue.command(&sqe);
        let mut r2t = [0; 24];
        self.queue.0.read_exact(&mut r2t).unwrap();
        assert_eq!(r2t[0], PduType::R2t as u8);
        Transfer::decode(&r2t[8..]).unwrap()
    }

    /// Sends the data, and returns the answer.
    fn end(&mut self, asked: &Transfer, fill: u8) -> Cqe {
        let Transfer { cccid, ttag, offset, length } = *asked;
        let transfer = Transfer { cccid, ttag, offset, length };
        self.queue.pdu(PduType::H2cData, &transfer.encode(), &vec![fill; BYTES]);
        self.queue.response()
    }
}

#[test]
fn write_to_a_namespace_that_is_gone_is_refused_and_other_hosts_go_on() {
    let (mut config, first, _) = two_namespaces();
    let target = Target::start(&config).unwrap();
    let at = target.addresses()[0];
    let (_admin, mut host) = Client::pair(at, &Identity::new(1));
    let (_other_admin, mut other) = Client::pair(at, &Identity::new(2));
    assert!(write(&mut host, 1, 1).is_success() && write(&mut other, 2, 1).is_success());
    config.subsystems[0].namespaces.remove(0);
    target.reconfigure(&config).unwrap();
    for _ in 0..2 {
        // At once, and when the queue pair is closed.
        assert_eq!(write(&mut host, 1, 2), GONE);
        assert!(write(&mut other, 2, 2).is_success());
        Clock::real().sleep(CLOSED);
    }
    assert!(content(&first).iter().all(|&byte| byte == 1));
    assert!(write(&mut host, 2, 3).is_success(), "its other namespace");
    target.close().unwrap();
}

#[test]
fn data_that_comes_after_its_namespace_went_is_dropped() {
    let (mut config, first, _) = two_namespaces();
    let target = Target::start(&config).unwrap();
    let (_admin, mut other) = Client::pair(target.addresses()[0], &Identity::new(2));
    let mut slow = Slow::connect(&target);
    let asked = slow.begin(1);
    config.subsystems[0].namespaces.remove(0);
    target.reconfigure(&config).unwrap();
    Clock::real().sleep(CLOSED);
    assert!(write(&mut other, 2, 2).is_success());
    assert_eq!(slow.end(&asked, 5).status, GONE);
    assert!(content(&first).iter().all(|&byte| byte == 0));
    assert!(write(&mut other, 2, 3).is_success());
    target.close().unwrap();
}

#[test]
fn data_asked_for_one_device_never_goes_to_the_next_under_its_number() {
    for pause in [Duration::ZERO, CLOSED] {
        let (mut config, first, second) = two_namespaces();
        let target = Target::start(&config).unwrap();
        let (_admin, mut other) = Client::pair(target.addresses()[0], &Identity::new(2));
        let mut slow = Slow::connect(&target);
        // It has used the namespace before, so it has found its device.
        let asked = slow.begin(1);
        assert!(slow.end(&asked, 1).status.is_success());
        let asked = slow.begin(1);
        let next = memory(1);
        config.subsystems[0].namespaces[0].device = next.clone();
        target.reconfigure(&config).unwrap();
        Clock::real().sleep(pause);
        // Another host has the new device open, in the place of the old one if that is closed.
        assert!(write(&mut other, 1, 7).is_success() && write(&mut other, 2, 2).is_success());
        assert_eq!(slow.end(&asked, 5).status, GONE);
        assert!(content(&next).iter().all(|&byte| byte == 7), "the new device is touched");
        assert!(content(&first).iter().all(|&byte| byte == 1));
        assert!(content(&second).iter().all(|&byte| byte == 2));
        let asked = slow.begin(1);
        assert!(slow.end(&asked, 6).status.is_success(), "a new write is for the new device");
        assert!(content(&next).iter().all(|&byte| byte == 6));
        target.close().unwrap();
    }
}
