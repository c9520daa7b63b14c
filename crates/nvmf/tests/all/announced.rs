//! Facts that a target tells of itself: the ids of its controllers, its addresses, and the size of a file that grows.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::{NQN, config, memory};
use esker_base::Clock;
use esker_device::{Device, FileDevice, FileOptions};
use esker_nvmf::NvmfError;
use esker_nvmf::target::{PortalConfig, Target};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::fabrics::{CNTLID_ANY, DISCOVERY_NQN};
use esker_nvmf::wire::log::{self, DiscoveryEntry, DiscoveryHeader, lid};
use esker_nvmf::wire::text;

fn controller(target: &Target) -> u16 {
    Client::connect(target.addresses()[0], &Identity::new(1), 0, CNTLID_ANY).unwrap().1
}

#[test]
fn targets_of_one_subsystem_have_controllers_with_different_ids() {
    let start = || Target::start(&config(memory(1))).unwrap();
    let (one, other) = (start(), start());
    let first: Vec<u16> = (0..20).map(|_| controller(&one)).collect();
    let second: Vec<u16> = (0..20).map(|_| controller(&other)).collect();
    assert!(first.iter().all(|id| !second.contains(id)), "{first:?} {second:?}");
}

#[test]
fn ids_of_controllers_are_those_of_the_range_that_was_configured() {
    let mut config = config(memory(1));
    config.controller_ids = Some(700..=701);
    let target = Target::start(&config).unwrap();
    let connect = |n| Client::connect(target.addresses()[0], &Identity::new(n), 0, CNTLID_ANY);
    let first = connect(1).unwrap();
    let second = connect(2).unwrap();
    assert_eq!([first.1, second.1], [700, 701]);
    assert!(connect(3).err().unwrap().may_retry(), "there is none left for now");
    for wrong in [0..=7, 8..=0xfff0, std::ops::RangeInclusive::new(9, 8)] {
        config.controller_ids = Some(wrong.clone());
        let refused = Target::start(&config).err();
        assert!(matches!(refused, Some(NvmfError::Config(_))), "{wrong:?}: {refused:?}");
    }
}

/// The addresses of a subsystem that the discovery service tells a host that reaches it so.
fn discovered(at: SocketAddr) -> Vec<String> {
    let who = Identity { nqn: DISCOVERY_NQN.to_owned(), ..Identity::new(1) };
    let (mut admin, _) = Client::connect(at, &who, 0, CNTLID_ANY).unwrap();
    admin.enable();
    let sqe = Sqe::new(log::OPCODE, 0).with_dword(10, u32::from(lid::DISCOVERY) | 2047 << 16);
    let bytes = admin.fetch(sqe, 8192);
    let count = usize::try_from(DiscoveryHeader::decode(&bytes).unwrap().numrec).unwrap();
    let entries = bytes[1024..].chunks(1024).take(count);
    let entries = entries.map(|entry| DiscoveryEntry::decode(entry).unwrap());
    let its = entries.filter(|entry| text(&entry.subnqn) == NQN);
    its.map(|entry| format!("{}:{}", text(&entry.traddr), text(&entry.trsvcid))).collect()
}

#[test]
fn portal_on_every_address_announces_the_one_that_the_host_reached() {
    let mut config = config(memory(1));
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let told = PortalConfig {
        announce: Some("192.0.2.7:4420".parse().unwrap()),
        ..PortalConfig::new(everywhere)
    };
    config.portals = vec![PortalConfig::new(everywhere), told];
    let target = Target::start(&config).unwrap();
    let port = target.addresses()[0].port();
    for ip in ["127.0.0.1", "127.0.0.2"] {
        let at = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port);
        assert_eq!(discovered(at), [format!("{ip}:{port}"), "192.0.2.7:4420".to_owned()]);
    }
}

#[test]
fn file_that_becomes_larger_while_it_is_served_is_larger_for_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("served");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let options = FileOptions { fixed: true, ..FileOptions::default() };
    let device = Arc::new(FileDevice::open(&path, &options).unwrap());
    let target = crate::common::serve(device);
    let initiator = crate::common::open(&target);
    let bytes = || initiator.geometry().capacity.bytes(initiator.geometry().lba_size);
    assert_eq!(bytes(), 1 << 20);
    file.set_len(2 << 20).unwrap();
    for _ in 0..10_000 {
        if bytes() == 2 << 20 {
            return;
        }
        Clock::real().sleep(Duration::from_millis(1));
    }
    panic!("it has {} bytes still", bytes());
}
