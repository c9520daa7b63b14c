//! A target sends a host the data it asked for: no byte is left over from a write or read of another host.

use std::sync::Arc;

use crate::common::client::{Client, Identity};
use crate::common::{NQN, config, memory};
use esker_base::{AlignedBuf, LbaCount};
use esker_device::{Device, NullDevice};
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{Access, NamespaceConfig, SubsystemConfig, Target};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::command::{LbaRange, io};
use esker_nvmf::wire::log::lid;
use esker_nvmf::wire::{feature, identify, log};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target as Kind};

const OTHER: &str = "nqn.2026-01.io.esker:other";
/// Data that one host writes and the other must not see.
const SECRET: u8 = 0x5e;

/// A target with a subsystem in memory, and another one of `devices`.
fn two_subsystems(devices: Vec<Arc<dyn Device>>) -> Target {
    let mut config = config(memory(4));
    let mut other = SubsystemConfig::new(OTHER);
    other.access = Access::Any;
    for (nsid, device) in (1..).zip(devices) {
        other.namespaces.push(NamespaceConfig { nsid, device, uuid: None });
    }
    config.subsystems.push(other);
    Target::start(&config).unwrap()
}

/// Leaves the secret in buffers of every size that a host may have.
fn leave_secrets(io: &mut Client) {
    for shift in 0..=8 {
        let size = 4096 << shift;
        let mut buf = AlignedBuf::zeroed(size);
        buf.fill(SECRET);
        let count = u32::try_from(size / 512).unwrap();
        let range = LbaRange { slba: 0, count, fua: false, placement: None };
        let (cqe, _) = io.run(range.put(Sqe::new(io::WRITE, 1)), Payload::Out(buf));
        assert!(cqe.status.is_success(), "{}", cqe.status);
        let read = range.put(Sqe::new(io::READ, 1));
        assert!(io.fetch(read, size).iter().all(|byte| *byte == SECRET));
    }
}

fn identity(n: u8, nqn: &str) -> Identity {
    Identity { nqn: nqn.to_owned(), ..Identity::new(n) }
}

#[test]
fn reads_of_a_device_that_stores_nothing_show_no_other_hosts_data() {
    let null: Arc<dyn Device> = Arc::new(NullDevice::new(LbaCount(1 << 20), 512));
    let target = two_subsystems(vec![null]);
    let at = target.addresses()[0];
    let (_admin, mut io) = Client::pair(at, &identity(1, NQN));
    leave_secrets(&mut io);
    let (_other_admin, mut other) = Client::pair(at, &identity(2, OTHER));
    for count in [1, 8, 9, 64, 200, 256, 2048] {
        let range = LbaRange { slba: 0, count, fua: false, placement: None };
        let size = usize::try_from(count).unwrap() * 512;
        let seen = other.fetch(range.put(Sqe::new(io::READ, 1)), size);
        assert!(seen.iter().all(|byte| *byte != SECRET), "{count} LBAs");
    }
}

#[test]
fn a_read_that_failed_or_was_short_sends_nothing() {
    let plan = FaultPlan::new();
    let device = FaultDevice::new(memory(1), &plan);
    let target = two_subsystems(vec![Arc::new(device)]);
    let at = target.addresses()[0];
    let (_admin, mut io) = Client::pair(at, &identity(1, NQN));
    leave_secrets(&mut io);
    let (_other_admin, mut other) = Client::pair(at, &identity(2, OTHER));
    for (nth, effect) in (0..).zip([Effect::Fail, Effect::Short]) {
        plan.once(Kind::Read, nth, effect);
        let range = LbaRange { slba: 0, count: 64, fua: false, placement: None };
        let buf = AlignedBuf::zeroed(64 * 512);
        let (cqe, payload) = other.run(range.put(Sqe::new(io::READ, 1)), Payload::In(buf));
        assert!(!cqe.status.is_success());
        assert!(payload.into_buf().unwrap().iter().all(|byte| *byte == 0), "data of a failed read");
    }
}

#[test]
fn identify_and_log_data_is_not_padded_with_other_hosts_data() {
    let target = two_subsystems(vec![memory(1)]);
    let at = target.addresses()[0];
    let (_admin, mut io) = Client::pair(at, &identity(1, NQN));
    leave_secrets(&mut io);
    let (mut admin, _other) = Client::pair(at, &identity(2, OTHER));
    // Longer than any page is: 64 KiB.
    let dwords = 16_383_u32;
    for page in [lid::SUPPORTED, lid::ERROR, lid::SMART, lid::FIRMWARE, lid::EFFECTS, lid::ANA] {
        let sqe = Sqe::new(log::OPCODE, 0).with_dword(10, u32::from(page) | dwords << 16);
        let seen = admin.fetch(sqe, 64 << 10);
        assert!(seen.iter().all(|byte| *byte != SECRET), "log page {page:#x}");
    }
    for cns in [0x00_u32, 0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x12, 0x13, 0x1c] {
        let nsid = if [0x02, 0x07].contains(&cns) { 0 } else { 1 };
        let sqe = Sqe::new(identify::OPCODE, nsid).with_dword(10, cns);
        let seen = admin.fetch(sqe, 4096);
        assert!(seen.iter().all(|byte| *byte != SECRET), "identify {cns:#x}");
    }
    let host_id = u32::from(feature::HOST_ID);
    let sqe = Sqe::new(feature::GET, 0).with_dword(10, host_id).with_dword(11, 1);
    assert_eq!(admin.fetch(sqe, 16), [2; 16]);
    let report = Sqe::new(io::RESERVATION_REPORT, 1).with_dword(10, 1023).with_dword(11, 1);
    let (_third, mut io) = Client::pair(at, &identity(3, OTHER));
    assert!(io.fetch(report, 4096).iter().all(|byte| *byte != SECRET), "reservation report");
}
