//! Another configuration for a target that runs, and its end.

use std::sync::Arc;

use crate::common::client::{Client, Identity};
use crate::common::{NQN, config, memory, open};
use esker_base::{AlignedBuf, Lba};
use esker_device::{Device, Port};
use esker_nvmf::auth::Secret;
use esker_nvmf::target::{
    Access, HostConfig, NamespaceConfig, PortalConfig, RefusalReason, SubsystemConfig, Target,
    TargetConfig,
};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::fabrics::{CNTLID_ANY, DISCOVERY_NQN};
use esker_nvmf::wire::identify::{self, OAES_DISCOVERY, OAES_NAMESPACE, cns, namespaces_of};
use esker_nvmf::wire::log::{self, DiscoveryEntry, DiscoveryHeader, event, lid};
use esker_nvmf::wire::status::Status;
use esker_nvmf::wire::text;

const OTHER: &str = "nqn.2026-01.io.esker:other";

fn hosts(numbers: &[u8]) -> Access {
    let host = |&n: &u8| HostConfig {
        nqn: Identity::new(n).host_nqn,
        secret: None,
        controller_secret: None,
        tls_key: None,
    };
    Access::Hosts(numbers.iter().map(host).collect())
}

fn other(device: Arc<dyn Device>, access: Access) -> SubsystemConfig {
    let mut subsystem = SubsystemConfig::new(OTHER);
    subsystem.access = access;
    subsystem.namespaces.push(NamespaceConfig { nsid: 1, device, uuid: None });
    subsystem
}

fn namespaces(admin: &mut Client) -> Vec<u32> {
    let sqe = Sqe::new(identify::OPCODE, 0).with_dword(10, cns::ACTIVE_NAMESPACES.into());
    namespaces_of(&admin.fetch(sqe, 4096))
}

fn log_page(admin: &mut Client, which: u8, size: usize) -> Vec<u8> {
    let dwords = u32::try_from(size / 4 - 1).unwrap();
    let sqe = Sqe::new(log::OPCODE, 0xffff_ffff).with_dword(10, u32::from(which) | dwords << 16);
    admin.fetch(sqe, size)
}

/// The subsystems that a discovery controller tells of.
fn discovered(admin: &mut Client) -> Vec<String> {
    let bytes = log_page(admin, lid::DISCOVERY, 1024 * 8);
    let count = usize::try_from(DiscoveryHeader::decode(&bytes).unwrap().numrec).unwrap();
    let entries = bytes[1024..].chunks(1024).take(count);
    let names = entries.map(|entry| text(&DiscoveryEntry::decode(entry).unwrap().subnqn));
    names.filter(|nqn| nqn != DISCOVERY_NQN).collect()
}

fn watcher(target: &Target, n: u8) -> Client {
    let who = Identity { nqn: DISCOVERY_NQN.to_owned(), ..Identity::new(n) };
    let (mut watcher, _) = Client::connect(target.addresses()[0], &who, 0, CNTLID_ANY).unwrap();
    watcher.enable();
    watcher
}

#[test]
fn subsystems_namespaces_and_hosts_come_and_go_and_hosts_are_told() {
    let device = memory(1);
    let mut config = config(device.clone());
    config.subsystems[0].access = hosts(&[1, 2]);
    let target = Target::start(&config).unwrap();
    let at = target.addresses()[0];
    let (mut admin, _io) = Client::pair(at, &Identity::new(1));
    let (mut expelled, _other_io) = Client::pair(at, &Identity::new(2));
    let mut watcher = watcher(&target, 1);
    let of_namespaces = admin.watch(OAES_NAMESPACE);
    let of_discovery = watcher.watch(OAES_DISCOVERY);
    assert_eq!(discovered(&mut watcher), [NQN]);

    // A namespace and a subsystem more, a host less.
    config.subsystems[0].access = hosts(&[1]);
    config.subsystems[0].namespaces.push(NamespaceConfig {
        nsid: 5,
        device: memory(2),
        uuid: None,
    });
    config.subsystems.push(other(memory(1), hosts(&[1, 3])));
    assert_eq!(target.reconfigure(&config).unwrap(), Vec::<String>::new());
    assert_eq!(admin.wait(of_namespaces).0.result, event::NAMESPACE.into());
    assert_eq!(log_page(&mut admin, lid::CHANGED_NAMESPACES, 4096)[..4], [5, 0, 0, 0]);
    assert_eq!(namespaces(&mut admin), [1, 5]);
    assert_eq!(watcher.wait(of_discovery).0.result, event::DISCOVERY.into());
    assert_eq!(discovered(&mut watcher), [NQN, OTHER]);
    assert!(expelled.is_closed(), "host 2 may not use it any more");
    let refused = Client::connect(at, &Identity::new(2), 0, CNTLID_ANY).err();
    assert_eq!(refused, Some(Status::CONNECT_INVALID.final_()));
    let third = Identity { nqn: OTHER.to_owned(), ..Identity::new(3) };
    let (mut third, _third_io) = Client::pair(at, &third);
    assert_eq!(namespaces(&mut third), [1]);

    // Another device for a namespace, one of them gone, and the other subsystem as well.
    let of_namespaces = admin.watch(OAES_NAMESPACE);
    let of_discovery = watcher.watch(OAES_DISCOVERY);
    config.subsystems.pop();
    config.subsystems[0].namespaces =
        vec![NamespaceConfig { nsid: 5, device: memory(3), uuid: None }];
    target.reconfigure(&config).unwrap();
    assert_eq!(admin.wait(of_namespaces).0.result, event::NAMESPACE.into());
    assert_eq!(log_page(&mut admin, lid::CHANGED_NAMESPACES, 4096)[..8], [1, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!(namespaces(&mut admin), [5]);
    watcher.wait(of_discovery);
    assert_eq!(discovered(&mut watcher), [NQN]);
    assert!(third.is_closed());
    assert_eq!(target.metrics().controllers, 1);

    // Remarks name the changes that need another start.
    config.limits.workers = 2;
    config.subsystems[0].serial = Some("other".to_owned());
    let remarks = target.reconfigure(&config).unwrap();
    assert_eq!(remarks.len(), 2, "{remarks:?}");
    // Nothing changed for the host that was there all the time.
    assert_eq!(namespaces(&mut admin), [5]);
}

/// A subsystem has portals of its own while hosts are connected.
#[test]
fn portals_of_a_subsystem_change_and_discovery_tells_of_it() {
    let mut config = config(memory(1));
    config.portals.push(PortalConfig::new("127.0.0.1:0".parse().unwrap()));
    let target = Target::start(&config).unwrap();
    let portals = target.addresses();
    let mut watcher = watcher(&target, 1);
    assert_eq!(discovered(&mut watcher), [NQN, NQN]);
    let (mut first, _first_io) = Client::pair(portals[0], &Identity::new(1));
    let (mut second, _second_io) = Client::pair(portals[1], &Identity::new(2));

    let told = watcher.watch(OAES_DISCOVERY);
    config.subsystems[0].listeners = vec![portals[0]];
    target.reconfigure(&config).unwrap();
    assert_eq!(watcher.wait(told).0.result, event::DISCOVERY.into());
    assert_eq!(discovered(&mut watcher), [NQN]);
    assert!(second.is_closed(), "it came through the other portal");
    assert_eq!(namespaces(&mut first), [1]);
    let refused = Client::connect(portals[1], &Identity::new(2), 0, CNTLID_ANY).err();
    assert_eq!(refused, Some(Status::CONNECT_INVALID.final_()));
    assert_eq!(target.refusals()[0].reason, RefusalReason::OtherPortal);

    let told = watcher.watch(OAES_DISCOVERY);
    config.subsystems[0].listeners.clear();
    target.reconfigure(&config).unwrap();
    watcher.wait(told);
    assert_eq!(discovered(&mut watcher), [NQN, NQN]);
    let (mut second, _io) = Client::pair(portals[1], &Identity::new(2));
    assert_eq!(namespaces(&mut second), [1]);
}

#[test]
fn a_namespace_that_stays_goes_on_under_load() {
    let device = memory(4);
    let mut config = config(device);
    let target = Target::start(&config).unwrap();
    let initiator = open(&target);
    let mut port = Port::open(&initiator, 4).unwrap();
    for round in 0..50u8 {
        let mut buf = AlignedBuf::zeroed(4096);
        buf.fill(round);
        port.write(Lba(u64::from(round)), buf, None).unwrap();
        if round % 2 == 0 {
            let device = memory(1);
            config.subsystems[0].namespaces.push(NamespaceConfig { nsid: 9, device, uuid: None });
        } else {
            config.subsystems[0].namespaces.pop();
        }
        target.reconfigure(&config).unwrap();
        let read = port.read(Lba(u64::from(round)), AlignedBuf::zeroed(4096)).unwrap();
        assert!(read.iter().all(|&byte| byte == round));
    }
    assert_eq!(target.metrics().accepted, 2, "nothing was connected again");
}

#[test]
fn keys_are_asked_for_from_then_on() {
    let mut config = config(memory(1));
    config.subsystems[0].access = hosts(&[1]);
    let target = Target::start(&config).unwrap();
    let at = target.addresses()[0];
    let (mut before, cntlid) = Client::connect(at, &Identity::new(1), 0, CNTLID_ANY).unwrap();
    before.enable();
    let secret = Secret::new(&[7; 32], None);
    config.subsystems[0].access = Access::Hosts(vec![HostConfig {
        nqn: Identity::new(1).host_nqn,
        secret: Some(secret),
        controller_secret: None,
        tls_key: None,
    }]);
    target.reconfigure(&config).unwrap();
    assert_eq!(namespaces(&mut before), [1], "who was let in stays in: controller {cntlid}");
    let (mut after, _) = Client::connect(at, &Identity::new(1), 0, CNTLID_ANY).unwrap();
    let sqe = Sqe::new(identify::OPCODE, 0).with_dword(10, cns::CONTROLLER.into());
    let answer = after.run(sqe, esker_nvmf::conn::Payload::In(AlignedBuf::zeroed(4096)));
    assert_eq!(answer.0.status, Status::AUTHENTICATION_REQUIRED.final_());
}

#[test]
fn a_configuration_that_is_wrong_changes_nothing() {
    let config = config(memory(1));
    let target = Target::start(&config).unwrap();
    let (mut admin, _io) = Client::pair(target.addresses()[0], &Identity::new(1));
    let wrong: [fn(&mut TargetConfig); 4] = [
        |config| {
            config.subsystems[0].namespaces.push(NamespaceConfig {
                nsid: 0,
                device: memory(1),
                uuid: None,
            })
        },
        |config| {
            let twice = config.subsystems[0].namespaces[0].clone();
            config.subsystems[0].namespaces.push(twice);
        },
        |config| config.subsystems.push(SubsystemConfig::new("disk1")),
        |config| {
            let mut new = other(memory(1), Access::Any);
            new.namespaces[0].nsid = 4000;
            config.subsystems.push(new);
        },
    ];
    for change in wrong {
        let mut next = config.clone();
        next.subsystems[0].namespaces.push(NamespaceConfig {
            nsid: 3,
            device: memory(1),
            uuid: None,
        });
        change(&mut next);
        assert!(target.reconfigure(&next).is_err());
        assert_eq!(namespaces(&mut admin), [1]);
    }
}

#[test]
fn the_end_closes_connections_and_flushes_devices() {
    let device = memory(1);
    let target = Target::start(&config(device.clone())).unwrap();
    let (mut admin, mut io) = Client::pair(target.addresses()[0], &Identity::new(1));
    let flushes = device.stats().flushes;
    target.close().unwrap();
    assert!(admin.is_closed() && io.is_closed());
    assert_eq!(device.stats().flushes, flushes + 1);
}
