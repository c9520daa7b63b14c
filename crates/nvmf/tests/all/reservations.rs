//! Reservations that outlive the target, as hosts see them.

use std::path::Path;
use std::sync::Arc;

use crate::common::client::{Client, Identity};
use crate::common::{config, memory};
use esker_base::{AlignedBuf, ErrorKind};
use esker_device::Device;
use esker_nvmf::conn::Payload;
use esker_nvmf::target::Target;
use esker_nvmf::wire::capsule::{NSID_ALL, Sqe};
use esker_nvmf::wire::command::{LbaRange, Registrant, ReservationKeys, ReservationStatus, io};
use esker_nvmf::wire::identify::{self, IdentifyNamespace, cns};
use esker_nvmf::wire::{feature, status::Status};

const KEEP: u32 = 0;
const OFF: u32 = 2 << 30;
const ON: u32 = 3 << 30;

fn start(device: &Arc<dyn Device>, path: Option<&Path>) -> Target {
    let mut config = config(device.clone());
    config.reservations = path.map(Path::to_owned);
    Target::start(&config).unwrap()
}

fn host(target: &Target, n: u8) -> (Client, Client) {
    Client::pair(target.addresses()[0], &Identity::new(n))
}

fn keys(current: u64, other: u64) -> Payload {
    let keys = ReservationKeys { crkey: current, other };
    Payload::Out(AlignedBuf::padded(&keys.encode(), 1))
}

fn register(host: &mut Client, key: u64, cptpl: u32) -> Status {
    let sqe = Sqe::new(io::RESERVATION_REGISTER, 1).with_dword(10, cptpl);
    host.run(sqe, keys(0, key)).0.status
}

fn acquire(host: &mut Client, key: u64, kind: u32) -> Status {
    let sqe = Sqe::new(io::RESERVATION_ACQUIRE, 1).with_dword(10, kind << 8);
    host.run(sqe, keys(key, 0)).0.status
}

fn write(host: &mut Client) -> Status {
    let range = LbaRange { slba: 0, count: 1, fua: false, placement: None };
    host.run(range.put(Sqe::new(io::WRITE, 1)), Payload::Out(AlignedBuf::zeroed(512))).0.status
}

/// Generation, type and persistence, and the registrants: keys, and whether each holds.
fn report(host: &mut Client) -> ((u32, u8, u8), Vec<(u64, u8)>) {
    let sqe = Sqe::new(io::RESERVATION_REPORT, 1).with_dword(10, 1023).with_dword(11, 1);
    let bytes = host.fetch(sqe, 4096);
    let status = ReservationStatus::decode(&bytes).unwrap();
    let registrants = bytes[64..].chunks(64).take(status.regctl.into());
    let registrants = registrants.map(|one| Registrant::decode(one).unwrap());
    let registrants = registrants.map(|one| (one.rkey, one.rcsts)).collect();
    ((status.gen_, status.rtype, status.ptpls), registrants)
}

fn persistence(admin: &mut Client, nsid: u32) -> (Status, u64) {
    let id = u32::from(feature::RESERVATION_PERSISTENCE);
    let (cqe, _) = admin.run(Sqe::new(feature::GET, nsid).with_dword(10, id), Payload::None);
    (cqe.status, cqe.result)
}

fn persist(admin: &mut Client, nsid: u32, value: u32) -> Status {
    let id = u32::from(feature::RESERVATION_PERSISTENCE);
    let sqe = Sqe::new(feature::SET, nsid).with_dword(10, id).with_dword(11, value);
    admin.run(sqe, Payload::None).0.status
}

fn rescap(admin: &mut Client) -> u8 {
    let sqe = Sqe::new(identify::OPCODE, 1).with_dword(10, cns::NAMESPACE.into());
    IdentifyNamespace::decode(&admin.fetch(sqe, 4096)).unwrap().rescap
}

#[test]
fn persistent_reservations_are_in_force_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reservations");
    let device = memory(1);
    let before = {
        let target = start(&device, Some(&path));
        let (mut admin, mut first) = host(&target, 1);
        let (_other, mut second) = host(&target, 2);
        assert_eq!(rescap(&mut admin), 0xff);
        assert!(register(&mut first, 0xa, ON).is_success());
        assert!(register(&mut second, 0xb, KEEP).is_success());
        assert!(acquire(&mut first, 0xa, 1).is_success());
        assert_eq!(persistence(&mut admin, 1), (Status::SUCCESS, 1));
        assert_eq!(write(&mut second), Status::RESERVATION_CONFLICT.final_());
        report(&mut first)
    };
    assert_eq!(before, ((2, 1, 1), vec![(0xa, 1), (0xb, 0)]));
    // As after a power cut: the medium has every answered change, at any time.
    let target = start(&device, Some(&path));
    let (_second_admin, mut second) = host(&target, 2);
    let (_first_admin, mut first) = host(&target, 1);
    assert_eq!(write(&mut second), Status::RESERVATION_CONFLICT.final_());
    assert!(write(&mut first).is_success());
    assert_eq!(report(&mut first), before);
    // Off again, nothing persists.
    let sqe = Sqe::new(io::RESERVATION_REGISTER, 1).with_dword(10, OFF | 2);
    assert!(first.run(sqe, keys(0xa, 0xc)).0.status.is_success());
    assert_eq!(report(&mut first).0, (3, 1, 0));
    drop(target);
    let target = start(&device, Some(&path));
    let (_admin, mut second) = host(&target, 2);
    assert!(write(&mut second).is_success());
    assert_eq!(report(&mut second), ((0, 0, 0), vec![]));
}

#[test]
fn the_feature_says_and_sets_what_persists() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reservations");
    let device = memory(1);
    let target = start(&device, Some(&path));
    let (mut admin, mut first) = host(&target, 1);
    assert!(register(&mut first, 0xa, KEEP).is_success());
    assert_eq!(persistence(&mut admin, 1), (Status::SUCCESS, 0));
    assert!(persist(&mut admin, NSID_ALL, 1).is_success());
    assert_eq!(persistence(&mut admin, 1), (Status::SUCCESS, 1));
    assert_eq!(persistence(&mut admin, NSID_ALL).0, Status::INVALID_NAMESPACE.final_());
    drop(target);
    let target = start(&device, Some(&path));
    let (mut admin, mut first) = host(&target, 1);
    assert_eq!(report(&mut first), ((1, 0, 1), vec![(0xa, 0)]));
    assert!(persist(&mut admin, 1, 0).is_success());
    drop(target);
    let target = start(&device, Some(&path));
    let (_admin, mut first) = host(&target, 1);
    assert_eq!(report(&mut first), ((0, 0, 0), vec![]));
    let sqe = Sqe::new(io::RESERVATION_REGISTER, 1).with_dword(10, 1 << 30);
    assert_eq!(first.run(sqe, keys(0, 1)).0.status, Status::INVALID_FIELD.final_(), "CPTPL 1");
}

#[test]
fn without_a_file_hosts_that_ask_are_served_and_told_that_nothing_persists() {
    let target = start(&memory(1), None);
    let (mut admin, mut first) = host(&target, 1);
    assert_eq!(rescap(&mut admin), 0xfe);
    assert!(register(&mut first, 0xa, ON).is_success(), "Linux asks always");
    assert!(acquire(&mut first, 0xa, 1).is_success());
    assert_eq!(report(&mut first), ((1, 1, 0), vec![(0xa, 1)]));
    assert_eq!(persistence(&mut admin, 1), (Status::SUCCESS, 0));
    assert_eq!(persist(&mut admin, 1, 1), Status::NOT_CHANGEABLE.final_());
}

#[test]
fn reservations_that_cannot_be_made_durable_are_not_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("within/reservations");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let target = start(&memory(1), Some(&path));
    let (_admin, mut first) = host(&target, 1);
    assert!(register(&mut first, 0xa, ON).is_success());
    let hidden = folder.path().join("hidden");
    std::fs::rename(path.parent().unwrap(), &hidden).unwrap();
    let before = report(&mut first);
    assert_eq!(acquire(&mut first, 0xa, 2), Status::INTERNAL);
    assert_eq!(report(&mut first), before);
    let (_other_admin, mut second) = host(&target, 2);
    assert!(write(&mut second).is_success());
    std::fs::rename(&hidden, path.parent().unwrap()).unwrap();
    assert!(acquire(&mut first, 0xa, 2).is_success());
    assert_eq!(write(&mut second), Status::RESERVATION_CONFLICT.final_());
}

#[test]
fn a_file_belongs_to_one_target_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reservations");
    let device = memory(1);
    let first = start(&device, Some(&path));
    let mut config = config(device.clone());
    config.reservations = Some(path.clone());
    let error = Target::start(&config).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("another target uses them"), "{error}");
    drop(first);
    drop(start(&device, Some(&path)));
}

#[test]
fn a_damaged_file_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reservations");
    let device = memory(1);
    {
        let target = start(&device, Some(&path));
        let (_admin, mut first) = host(&target, 1);
        assert!(register(&mut first, 0xa, ON).is_success());
    }
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let mut config = config(device);
    config.reservations = Some(path.clone());
    let error = Target::start(&config).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let text = error.to_string();
    assert!(text.contains("checksum") && text.contains("restore it from a copy"), "{text}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "the file is left as it is");
    config.reservations = Some(folder.path().join("nowhere/reservations"));
    assert!(Target::start(&config).is_err());
}
