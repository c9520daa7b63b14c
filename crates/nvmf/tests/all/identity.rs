//! Identities of namespaces: what hosts know a device by, whatever its number is.

use std::path::Path;
use std::sync::Arc;

use crate::common::client::{Client, Identity};
use crate::common::{NQN, config, memory};
use esker_base::AlignedBuf;
use esker_device::{Create, Device, FileDevice, FileOptions};
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{NamespaceConfig, Target};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::command::{LbaRange, ReservationKeys, ReservationStatus, io};
use esker_nvmf::wire::identify::{self, IdentifyNamespace, OAES_NAMESPACE, cns, uuid_of};
use esker_nvmf::wire::log::event;
use esker_nvmf::wire::status::Status;

fn file(path: &Path) -> Arc<dyn Device> {
    let create = if path.exists() { Create::Never } else { Create::New };
    let options = FileOptions {
        create,
        capacity_bytes: Some(1 << 20),
        lba_size: Some(512),
        ..FileOptions::default()
    };
    Arc::new(FileDevice::open(path, &options).unwrap())
}

/// The identity of a namespace, which Identify and its descriptors agree on.
fn identity(admin: &mut Client, nsid: u32) -> [u8; 16] {
    let get = |which: u8| Sqe::new(identify::OPCODE, nsid).with_dword(10, which.into());
    let namespace = IdentifyNamespace::decode(&admin.fetch(get(cns::NAMESPACE), 4096)).unwrap();
    let uuid = uuid_of(&admin.fetch(get(cns::DESCRIPTORS), 4096)).unwrap();
    assert_eq!(namespace.nguid, uuid);
    uuid
}

fn host(target: &Target, n: u8) -> (Client, Client) {
    Client::pair(target.addresses()[0], &Identity::new(n))
}

/// Registers and reserves all writes.
fn reserve(host: &mut Client, nsid: u32, key: u64) {
    let keys = |crkey, other| {
        Payload::Out(AlignedBuf::padded(&ReservationKeys { crkey, other }.encode(), 1))
    };
    let register = Sqe::new(io::RESERVATION_REGISTER, nsid);
    assert!(host.run(register, keys(0, key)).0.status.is_success());
    let acquire = Sqe::new(io::RESERVATION_ACQUIRE, nsid).with_dword(10, 1 << 8);
    assert!(host.run(acquire, keys(key, 0)).0.status.is_success());
}

fn registrants(host: &mut Client, nsid: u32) -> u16 {
    let sqe = Sqe::new(io::RESERVATION_REPORT, nsid).with_dword(10, 1023).with_dword(11, 1);
    ReservationStatus::decode(&host.fetch(sqe, 4096)).unwrap().regctl
}

fn write(host: &mut Client, nsid: u32) -> Status {
    let range = LbaRange { slba: 0, count: 1, fua: false, placement: None };
    let sqe = range.put(Sqe::new(io::WRITE, nsid));
    host.run(sqe, Payload::Out(AlignedBuf::zeroed(512))).0.status
}

const CONFLICT: Status = Status::RESERVATION_CONFLICT.final_();

#[test]
fn device_under_the_number_of_another_has_its_own_identity_and_reservations() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["a", "b"].map(|name| file(&folder.path().join(name)));
    for devices in [files, [memory(1), memory(1)]] {
        let has_identity = devices[0].identity().is_some();
        let mut config = config(devices[0].clone());
        let target = Target::start(&config).unwrap();
        let (mut admin, mut first) = host(&target, 1);
        let (_admin, mut second) = host(&target, 2);
        let old = identity(&mut admin, 1);
        reserve(&mut first, 1, 7);
        assert_eq!(write(&mut second, 1), CONFLICT);

        let told = admin.watch(OAES_NAMESPACE);
        config.subsystems[0].namespaces[0].device = devices[1].clone();
        target.reconfigure(&config).unwrap();
        assert_eq!(admin.wait(told).0.result, event::NAMESPACE.into());
        let new = identity(&mut admin, 1);
        assert_ne!(new, old);
        assert_eq!(registrants(&mut second, 1), 0);
        assert!(write(&mut second, 1).is_success());

        // The device comes back under another number, with what it had.
        let device = devices[0].clone();
        config.subsystems[0].namespaces.push(NamespaceConfig { nsid: 2, device, uuid: None });
        target.reconfigure(&config).unwrap();
        assert_eq!(identity(&mut admin, 1), new);
        if has_identity {
            assert_eq!(identity(&mut admin, 2), old);
            assert_eq!(write(&mut second, 2), CONFLICT);
            assert!(write(&mut first, 2).is_success());
        }
        assert_eq!(write(&mut second, 1), Status::SUCCESS);
    }
}

#[test]
fn device_keeps_its_identity_over_restarts_moves_and_targets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let seen = |path: &Path, nsid: u32| {
        let mut config = config(file(path));
        config.subsystems[0].namespaces[0].nsid = nsid;
        let target = Target::start(&config).unwrap();
        let seen = identity(&mut host(&target, 1).0, nsid);
        target.close().unwrap();
        seen
    };
    let first = seen(&path, 1);
    assert_eq!(seen(&path, 1), first, "after a restart");
    let moved = folder.path().join("b");
    std::fs::rename(&path, &moved).unwrap();
    assert_eq!(seen(&moved, 5), first, "under another path and number");
    // A file in its place is another device.
    std::fs::copy(&moved, &path).unwrap();
    assert_ne!(seen(&path, 1), first);

    // One device, two targets of the subsystem; and a device without an identity.
    for device in [file(&moved), memory(1)] {
        let targets = [(); 2].map(|()| Target::start(&config(device.clone())).unwrap());
        let [one, other] = targets.map(|target| identity(&mut host(&target, 1).0, 1));
        assert_eq!(one, other);
    }
}

#[test]
fn number_of_devices_without_an_identity_is_kept_with_the_reservations() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(memory(1));
    config.reservations = Some(folder.path().join("reservations"));
    let target = Target::start(&config).unwrap();
    let mut seen = vec![identity(&mut host(&target, 1).0, 1)];
    for _ in 0..2 {
        config.subsystems[0].namespaces[0].device = memory(1);
        target.reconfigure(&config).unwrap();
        target.reconfigure(&config).unwrap();
        let now = identity(&mut host(&target, 1).0, 1);
        assert!(!seen.contains(&now));
        seen.push(now);
    }
    // The same object that goes and comes back is the same device.
    target.remove_namespace(NQN, 1).unwrap();
    target.add_namespace(NQN, &config.subsystems[0].namespaces[0]).unwrap();
    assert_eq!(Some(&identity(&mut host(&target, 1).0, 1)), seen.last());
    target.close().unwrap();
    let target = Target::start(&config).unwrap();
    assert_eq!(Some(&identity(&mut host(&target, 1).0, 1)), seen.last());
}

#[test]
fn one_device_under_two_numbers_has_two_identities_and_a_given_one_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let device = file(&folder.path().join("a"));
    let mut config = config(device.clone());
    let namespace = |nsid, uuid| NamespaceConfig { nsid, device: device.clone(), uuid };
    config.subsystems[0].namespaces.push(namespace(2, None));
    config.subsystems[0].namespaces.push(namespace(3, Some([9; 16])));
    let target = Target::start(&config).unwrap();
    let (mut admin, _io) = host(&target, 1);
    let [one, two, three] = [1, 2, 3].map(|nsid| identity(&mut admin, nsid));
    assert!(one != two && three == [9; 16]);
}
