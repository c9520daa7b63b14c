//! Encrypted connections, both ends, and those that are refused. With the feature `tls`:
//! `cargo test -p esker-nvmf --features tls --test tls`.

#![cfg(feature = "tls")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::client::{Client, Identity};
use common::{NQN, memory, reach};
use esker_base::{AlignedBuf, ErrorKind, Lba};
use esker_device::{Port, conformance};
use esker_nvmf::target::{
    Access, HostConfig, NamespaceConfig, PortalConfig, SubsystemConfig, Target, TargetConfig,
};
use esker_nvmf::tls::TlsKey;
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::fabrics::{CNTLID_ANY, DISCOVERY_NQN};
use esker_nvmf::wire::log::{self, DiscoveryEntry, DiscoveryHeader, lid};
use esker_nvmf::wire::pdu::{CommonHeader, IcReq, PduType};
use esker_nvmf::wire::status::Status;
use esker_nvmf::wire::text;
use esker_nvmf::{Initiator, InitiatorConfig, NvmfError};

fn key(byte: u8) -> TlsKey {
    TlsKey::new(&[byte; 32], false).unwrap()
}

fn host(n: u8, tls_key: Option<TlsKey>) -> HostConfig {
    HostConfig { tls_key, ..HostConfig::new(&Identity::new(n).host_nqn) }
}

/// Portal 0 is plain, portal 1 has TLS. Host 1 has key 1, host 2 key 2, host 3 none.
fn config(first: TlsKey) -> TargetConfig {
    let mut subsystem = SubsystemConfig::new(NQN);
    let hosts = vec![host(1, Some(first)), host(2, Some(key(2))), host(3, None)];
    subsystem.access = Access::Hosts(hosts);
    subsystem.namespaces.push(NamespaceConfig { nsid: 1, device: memory(4), uuid: None });
    let mut config = TargetConfig::default();
    let plain = PortalConfig::new("127.0.0.1:0".parse().unwrap());
    config.portals = vec![plain.clone(), PortalConfig { tls: true, ..plain }];
    config.subsystems.push(subsystem);
    config
}

fn open(
    target: &Target,
    portal: usize,
    n: u8,
    tls_key: Option<TlsKey>,
) -> Result<Initiator, NvmfError> {
    let (host_nqn, host_id) = (Identity::new(n).host_nqn, [n; 16]);
    let to = reach(vec![target.addresses()[portal]]);
    let timeout = Duration::from_secs(30);
    Initiator::open(InitiatorConfig { host_nqn, host_id, tls_key, timeout, ..to })
}

#[test]
fn an_encrypted_namespace_is_a_device_like_any_other() {
    for first in
        [key(1), TlsKey::new(&[1; 48], false).unwrap(), TlsKey::new(&[1; 32], true).unwrap()]
    {
        let target = Target::start(&config(first.clone())).unwrap();
        let initiator = open(&target, 1, 1, Some(first)).unwrap();
        for (depth, seed) in [(1, 1), (32, 2), (100, 3)] {
            conformance::check(&initiator, depth, 1000, seed);
        }
        let mut port = Port::open(&initiator, 8).unwrap();
        for (number, size) in (0u8..).zip([512, 16 << 10, (16 << 10) + 512, 1 << 20]) {
            let mut buf = AlignedBuf::zeroed(size);
            buf.iter_mut().zip(0u32..).for_each(|(byte, at)| *byte = at.to_le_bytes()[1] ^ number);
            let written = port.write(Lba(3), buf, None).unwrap();
            let read = port.read(Lba(3), AlignedBuf::zeroed(size)).unwrap();
            assert!(read[..] == written[..], "{size} bytes");
        }
        assert_eq!(target.metrics().unauthenticated, 0);
    }
}

#[test]
fn deep_queues_and_several_workers_come_through() {
    let mut config = config(key(1));
    config.limits.workers = 2;
    let target = Target::start(&config).unwrap();
    let initiator = open(&target, 1, 1, Some(key(1))).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let initiator = &initiator;
            esker_base::thread::spawn_scoped(scope, "user", move || {
                let mut port = Port::open(initiator, 32).unwrap();
                let base = u64::from(thread) * 2048;
                for round in 0..20u8 {
                    let ops = (0..16u64).map(|n| {
                        let mut buf = AlignedBuf::zeroed(65_536);
                        buf.fill(thread ^ round);
                        let lba = Lba(base + n * 128);
                        esker_device::Op::Write { lba, buf, placement: None, fua: false }
                    });
                    port.run_all(ops, |_, outcome| drop(outcome.unwrap())).unwrap();
                    let read = port.read(Lba(base), AlignedBuf::zeroed(1 << 20)).unwrap();
                    assert!(read.iter().all(|&byte| byte == thread ^ round));
                }
            })
            .unwrap();
        }
    });
}

#[test]
fn connections_without_the_right_key_are_refused() {
    let target = Target::start(&config(key(1))).unwrap();
    let refused = |portal, n, tls_key| open(&target, portal, n, tls_key).err().unwrap();
    let wrong = refused(1, 1, Some(key(9)));
    assert_eq!(wrong.kind(), ErrorKind::Conflict, "{wrong}");
    assert!(wrong.to_string().contains("TLS"), "{wrong}");
    refused(1, 1, Some(key(2))); // another host's
    refused(1, 2, Some(key(1)));
    refused(1, 4, Some(key(1))); // a host that is not on the list
    refused(1, 3, Some(key(1))); // one that has no key there
    assert!(target.metrics().unauthenticated >= 5);
    // Without TLS at the portal that has it, with TLS at the one that has not.
    refused(1, 1, None);
    refused(0, 1, Some(key(1)));
    // A host that has a key has to use it.
    refused(0, 1, None);
    assert_eq!(target.metrics().controllers, 0);
    open(&target, 1, 1, Some(key(1))).unwrap();
    open(&target, 1, 2, Some(key(2))).unwrap();
    open(&target, 0, 3, None).unwrap();
}

#[test]
fn a_plain_host_gets_nothing_but_the_end_from_a_portal_with_tls() {
    let target = Target::start(&config(key(1))).unwrap();
    let mut stream = TcpStream::connect(target.addresses()[1]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let header =
        CommonHeader { kind: PduType::IcReq as u8, flags: 0, hlen: 128, pdo: 0, plen: 128 };
    stream.write_all(&[&header.encode()[..], &IcReq::default().encode()].concat()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer); // a reset is an end, too
    assert!(answer.is_empty() || answer[0] == 0x15, "an alert of TLS at most: {answer:?}");
    // One that says nothing at all is closed, as without TLS.
    let mut config = config(key(1));
    config.limits.handshake = Duration::from_millis(200);
    let target = Target::start(&config).unwrap();
    let mut stream = TcpStream::connect(target.addresses()[1]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0)));
}

#[test]
fn discovery_tells_each_host_the_portals_that_it_can_use() {
    let target = Target::start(&config(key(1))).unwrap();
    let found = |n: u8| {
        let who = Identity { nqn: DISCOVERY_NQN.to_owned(), ..Identity::new(n) };
        let (mut admin, _) = Client::connect(target.addresses()[0], &who, 0, CNTLID_ANY).unwrap();
        admin.enable();
        let sqe = Sqe::new(log::OPCODE, 0).with_dword(10, u32::from(lid::DISCOVERY) | 2047 << 16);
        let bytes = admin.fetch(sqe, 8192);
        let count = usize::try_from(DiscoveryHeader::decode(&bytes).unwrap().numrec).unwrap();
        let entries = bytes[1024..].chunks(1024).take(count);
        let entries = entries.map(|entry| DiscoveryEntry::decode(entry).unwrap());
        let its: Vec<_> = entries.filter(|one| text(&one.subnqn) == NQN).collect();
        let [entry] = &its[..] else { panic!("{} portals", its.len()) };
        (entry.portid, entry.treq & 3, entry.tsas[0])
    };
    assert_eq!(found(1), (2, 1, 2));
    assert_eq!(found(3), (1, 0, 0));
    // A host that says it is another.
    let other = Identity::new(2);
    let refused = Client::connect(target.addresses()[0], &other, 0, CNTLID_ANY).err();
    assert_eq!(refused, Some(Status::CONNECT_INVALID.final_()));
}

#[test]
fn random_bytes_instead_of_a_handshake_disturb_nobody() {
    let target = Target::start(&config(key(1))).unwrap();
    let neighbour = open(&target, 1, 1, Some(key(1))).unwrap();
    let mut port = Port::open(&neighbour, 1).unwrap();
    let mut rng = esker_base::Rng::new(1);
    for _ in 0..50 {
        let mut stream = TcpStream::connect(target.addresses()[1]).unwrap();
        let mut bytes = vec![0; 600];
        rng.fill(&mut bytes);
        if rng.chance(1, 2) {
            // A record of a handshake, and nonsense in it.
            bytes[..5].copy_from_slice(&[0x16, 3, 1, 2, 0]);
        }
        let _ = stream.write_all(&bytes);
        port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
    }
    assert!(target.metrics().unauthenticated > 0);
}
