//! Rules of the specifications for hosts that err, or that ask for more than usual: each test has the paragraph.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::script::Script;
use crate::common::{NQN, config, memory, serve};
use esker_base::{AlignedBuf, Clock, thread};
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{Access, HostConfig, NamespaceConfig, Target};
use esker_nvmf::wire::capsule::{NSID_ALL, Sgl, Sqe};
use esker_nvmf::wire::command::{LbaRange, Registrant, ReservationKeys, admin, io};
use esker_nvmf::wire::fabrics::{CNTLID_ANY, CONNECT, Connect, ConnectData, OPCODE};
use esker_nvmf::wire::feature;
use esker_nvmf::wire::identify::{self, OAES_NAMESPACE, cns};
use esker_nvmf::wire::log::{self, event, lid};
use esker_nvmf::wire::pdu::{FatalStatus, PduType};
use esker_nvmf::wire::status::Status;

const PREFIX: &str = "nqn.2026-01.io.example:";
/// Where the names are in the data of Connect, with IATTR.
const SUBNQN: u64 = 256 | 1 << 16;
const HOSTNQN: u64 = 512 | 1 << 16;

/// Returns the answer to a Connect with these names.
fn connected(target: &Target, host: &[u8], subsystem: &[u8]) -> (Status, u64) {
    let mut script = Script::open(target);
    script.initialize();
    let mut data = ConnectData { hostid: [7; 16], cntlid: CNTLID_ANY, ..ConnectData::default() };
    data.hostnqn[..host.len()].copy_from_slice(host);
    data.subnqn[..subsystem.len()].copy_from_slice(subsystem);
    let connect = Connect { sqsize: 31, ..Connect::default() };
    let sgl = Sgl { address: 0, length: 1024, kind: Sgl::IN_CAPSULE };
    let sqe = Sqe { sgl, ..Sqe::new(OPCODE, CONNECT.into()) }.with_arguments(&connect.encode());
    script.pdu(PduType::CapsuleCmd, &sqe.encode(), &data.encode());
    let cqe = script.response();
    (cqe.status, cqe.result)
}

/// Base 2.1, 4.7 and 6.3: a name is UTF-8 of at most 223 bytes and ends with a zero byte.
#[test]
fn connect_refuses_what_is_no_name_and_says_where() {
    let target = serve(memory(1));
    let long = format!("{PREFIX}{}", "x".repeat(224 - PREFIX.len()));
    let endless = "x".repeat(256);
    let lines = format!("{PREFIX}a\"}} 1\nesker_target_reads_total 7\n");
    let escape = format!("{PREFIX}\u{1b}]0;title\u{7}");
    let raw = [PREFIX.as_bytes(), &[0xff, 0xfe]].concat();
    let wrong: [&[u8]; 9] = [
        b"",
        b"host",
        b" nqn.2026-01.io.example:a",
        b"nqn.2026-01.io.example:a ",
        long.as_bytes(),
        endless.as_bytes(),
        lines.as_bytes(),
        escape.as_bytes(),
        &raw,
    ];
    for name in wrong {
        let invalid = Status::CONNECT_INVALID.final_();
        assert_eq!(connected(&target, name, NQN.as_bytes()), (invalid, HOSTNQN), "{name:?}");
        assert_eq!(connected(&target, b"nqn.2026-01.io.a", name), (invalid, SUBNQN), "{name:?}");
    }
    let longest = format!("{PREFIX}{}", "x".repeat(223 - PREFIX.len()));
    assert_eq!(connected(&target, longest.as_bytes(), NQN.as_bytes()).0, Status::SUCCESS);
    assert!(target.metrics().flows.is_empty());
}

/// Base 2.1, 4.7: names are compared byte by byte.
#[test]
fn name_that_differs_in_a_space_or_in_case_is_another_host() {
    let mut config = config(memory(1));
    let listed = format!("{PREFIX}listed");
    config.subsystems[0].access = Access::Hosts(vec![HostConfig::new(&listed)]);
    let target = Target::start(&config).unwrap();
    let status = |name: &str| connected(&target, name.as_bytes(), NQN.as_bytes()).0;
    assert_eq!(status(&listed), Status::SUCCESS);
    for other in [" ", "\t", "\r\n", "\u{a0}", "d"] {
        let name = format!("{listed}{other}");
        assert_eq!(status(&name), Status::CONNECT_INVALID.final_(), "{name:?}");
    }
    assert_eq!(status(&listed.to_uppercase()), Status::CONNECT_INVALID.final_());
    config.subsystems[0].access = Access::Hosts(vec![HostConfig::new(&format!("{listed} "))]);
    let refused = Target::start(&config).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("white space"), "{refused}");
}

/// Base 2.1, 5.1.13.2.1: text that Identify has no room for is refused, and not cut.
#[test]
fn serial_numbers_and_models_fit_their_fields() {
    for (serial, model, is_good) in [
        (Some("x".repeat(20)), "y".repeat(40), true),
        (None, "y".to_owned(), true),
        (Some("x".repeat(21)), "y".to_owned(), false),
        (Some(String::new()), "y".to_owned(), false),
        (Some("ü".to_owned()), "y".to_owned(), false),
        (Some("a\nb".to_owned()), "y".to_owned(), false),
        (None, "y".repeat(41), false),
    ] {
        let mut config = config(memory(1));
        (config.subsystems[0].serial, config.subsystems[0].model) = (serial, model);
        let what = format!("{:?} {:?}", config.subsystems[0].serial, config.subsystems[0].model);
        assert_eq!(Target::start(&config).is_ok(), is_good, "{what}");
    }
}

fn get_keep_alive(admin: &mut Client) -> u64 {
    let get = Sqe::new(feature::GET, 0).with_dword(10, feature::KEEP_ALIVE.into());
    admin.run(get, Payload::None).0.result
}

/// TCP 1.1, 3.5: the transport limits the timeout neither way. Base 2.1, 3.9: it is rounded up to KAS, here 1 s.
#[test]
fn keep_alive_is_what_the_host_asks_for_rounded_up() {
    let target = serve(memory(1));
    let at = target.addresses()[0];
    for (asked, has) in [(0, 0), (1, 1000), (1500, 2000), (120_001, 121_000), (800_000, 800_000)] {
        let connect = Connect { sqsize: 31, kato: asked, ..Connect::default() };
        let (mut host, _) =
            Client::connect_with(at, &Identity::new(1), &connect, CNTLID_ANY).unwrap();
        host.enable();
        assert_eq!(get_keep_alive(&mut host), has, "Connect with {asked}");
        let set = Sqe::new(feature::SET, 0).with_dword(10, feature::KEEP_ALIVE.into());
        assert!(host.run(set.with_dword(11, asked), Payload::None).0.status.is_success());
        assert_eq!(get_keep_alive(&mut host), has, "Set Features with {asked}");
    }
    let (mut host, _) = Client::connect(at, &Identity::new(1), 0, CNTLID_ANY).unwrap();
    let sqe = Sqe::new(identify::OPCODE, 0).with_dword(10, cns::CONTROLLER.into());
    host.enable();
    let kas = identify::IdentifyController::decode(&host.fetch(sqe, 4096)).unwrap().kas;
    assert_eq!(kas, 10, "the granularity that the host is told of");
}

fn namespace(nsid: u32) -> NamespaceConfig {
    NamespaceConfig { nsid, device: memory(1), uuid: None }
}

/// Base 2.1, 3.7.2: a controller level reset ends all commands that came before.
#[test]
fn event_requests_end_with_the_reset_of_their_controller() {
    let target = serve(memory(1));
    let (mut host, _) =
        Client::connect(target.addresses()[0], &Identity::new(1), 0, CNTLID_ANY).unwrap();
    for round in 0..3 {
        host.enable();
        let request = || Sqe::new(admin::ASYNC_EVENT, 0);
        let events = Sqe::new(feature::SET, 0).with_dword(10, feature::EVENTS.into());
        let set = host.run(events.with_dword(11, OAES_NAMESPACE), Payload::None);
        assert!(set.0.status.is_success());
        let before: Vec<_> = (0..4).map(|_| host.submit(request(), Payload::None)).collect();
        target.add_namespace(NQN, &namespace(2 + round)).unwrap();
        let (cqe, _) = host.wait(before[0]);
        assert_eq!(cqe.result, u64::from(event::NAMESPACE), "round {round}");
        host.configure(0);
        for cid in &before[1..] {
            assert_eq!(host.wait(*cid).0.status, Status::ABORTED, "round {round}");
        }
    }
}

fn changed(host: &mut Client, cdw10: u32, offset: u32, room: usize) -> Result<Vec<u8>, Status> {
    let sqe = Sqe::new(log::OPCODE, NSID_ALL)
        .with_dword(10, u32::from(lid::CHANGED_NAMESPACES) | 1023 << 16 | cdw10)
        .with_dword(12, offset);
    let (cqe, payload) = host.run(sqe, Payload::In(AlignedBuf::zeroed(room)));
    match cqe.status.is_success() {
        true => Ok(payload.into_buf().unwrap()[..8].to_vec()),
        false => Err(cqe.status),
    }
}

/// Base 2.1, 5.1.12: events are cleared by a Get Log Page that succeeds, without RAE.
#[test]
fn log_page_that_cannot_be_had_keeps_what_it_says() {
    const KEEP: u32 = 1 << 15;
    let target = serve(memory(1));
    let (mut host, _) =
        Client::connect(target.addresses()[0], &Identity::new(1), 0, CNTLID_ANY).unwrap();
    host.enable();
    let first = host.watch(OAES_NAMESPACE);
    target.add_namespace(NQN, &namespace(2)).unwrap();
    host.wait(first);
    let second = host.watch(OAES_NAMESPACE);
    target.add_namespace(NQN, &namespace(3)).unwrap();
    let invalid = Status::INVALID_FIELD.final_();
    let list = [2, 0, 0, 0, 3, 0, 0, 0].to_vec();
    assert_eq!(changed(&mut host, 0, 1 << 20, 4096), Err(invalid), "an offset beyond the page");
    assert_eq!(changed(&mut host, 0, 2, 4096), Err(invalid), "an offset that is no dword's");
    assert_eq!(changed(&mut host, 0, 0, 512), Err(Status::DATA_LENGTH.final_()), "no room for it");
    assert_eq!(changed(&mut host, KEEP, 0, 4096), Ok(list.clone()), "it is to be kept");
    assert!(!host.has_answer(second), "the event is not sent again before the page was read");
    assert_eq!(changed(&mut host, 0, 0, 4096), Ok(list));
    assert_eq!(host.wait(second).0.result, u64::from(event::NAMESPACE));
    assert_eq!(changed(&mut host, 0, 0, 4096), Ok(vec![0; 8]), "it was read");
}

fn write_through(host: &mut Client) -> Status {
    let range = LbaRange { slba: 0, count: 1, fua: false, placement: None };
    host.run(range.put(Sqe::new(io::WRITE, 1)), Payload::Out(AlignedBuf::zeroed(512))).0.status
}

fn reserve(host: &mut Client, opcode: u8, cdw10: u32, crkey: u64, other: u64) -> Status {
    let keys = ReservationKeys { crkey, other }.encode();
    let sqe = Sqe::new(opcode, 1).with_dword(10, cdw10);
    host.run(sqe, Payload::Out(AlignedBuf::padded(&keys, 1))).0.status
}

fn nameless(at: SocketAddr, n: u8) -> (Client, Client) {
    Client::pair(at, &Identity { host_id: [0; 16], ..Identity::new(n) })
}

/// Base 2.1, 5.1.25.1.28: a host with identifier 0 is associated with no other controller.
#[test]
fn hosts_without_identifiers_share_no_reservation() {
    let target = serve(memory(1));
    let at = target.addresses()[0];
    let (mut first_admin, mut first) = nameless(at, 1);
    let (_second_admin, mut second) = nameless(at, 1);
    assert!(reserve(&mut first, io::RESERVATION_REGISTER, 0, 0, 7).is_success());
    assert!(reserve(&mut first, io::RESERVATION_ACQUIRE, 1 << 8, 7, 0).is_success());
    let conflict = Status::RESERVATION_CONFLICT.final_();
    assert!(write_through(&mut first).is_success());
    assert_eq!(write_through(&mut second), conflict);
    assert_eq!(reserve(&mut second, io::RESERVATION_RELEASE, 1 << 8, 7, 0), conflict);
    let report = Sqe::new(io::RESERVATION_REPORT, 1).with_dword(10, 1023).with_dword(11, 1);
    let one = Registrant::decode(&second.fetch(report, 4096)[64..]).unwrap();
    assert_eq!((one.hostid, one.rkey, one.rcsts), ([0; 16], 7, 1));
    // They do not outlast a reset of the controller.
    first_admin.configure(0);
    assert!(write_through(&mut second).is_success());
    // Nor its end.
    let (third_admin, mut third) = nameless(at, 3);
    assert!(reserve(&mut third, io::RESERVATION_REGISTER, 0, 0, 9).is_success());
    assert!(reserve(&mut third, io::RESERVATION_ACQUIRE, 2 << 8, 9, 0).is_success());
    assert_eq!(write_through(&mut second), conflict);
    drop((third_admin, third));
    let (clock, mut status) = (Clock::real(), conflict);
    for _ in 0..500 {
        status = write_through(&mut second);
        if status.is_success() {
            return;
        }
        clock.sleep(Duration::from_millis(10));
    }
    panic!("the reservation outlasts its host: {status}");
}

/// Base 2.1, 4.1.1: in fabrics there are SGLs, and no PRPs.
#[test]
fn commands_without_sgls_are_refused() {
    let target = serve(memory(1));
    let (mut admin, mut queue) = Client::pair(target.addresses()[0], &Identity::new(1));
    let identify = Sqe::new(identify::OPCODE, 0).with_dword(10, cns::CONTROLLER.into());
    let range = LbaRange { slba: 0, count: 1, fua: false, placement: None };
    let read = range.put(Sqe::new(io::READ, 1));
    let room = |size| Payload::In(AlignedBuf::zeroed(size));
    let invalid = Status::INVALID_FIELD.final_();
    for flags in [0x00, 0x80, 0xc0, 0x41, 0x42] {
        let (cqe, _) = admin.run(Sqe { flags, ..identify }, room(4096));
        assert_eq!(cqe.status, invalid, "Identify with {flags:#x}");
        let (cqe, _) = queue.run(Sqe { flags, ..read }, room(512));
        assert_eq!(cqe.status, invalid, "Read with {flags:#x}");
        let write = range.put(Sqe { flags, ..Sqe::new(io::WRITE, 1) });
        for size in [512, 32 << 10] {
            // In the capsule, and to be asked for.
            let (cqe, _) = queue.run(write, Payload::Out(AlignedBuf::zeroed(size)));
            assert_eq!(cqe.status, invalid, "Write of {size} with {flags:#x}");
        }
    }
    assert!(queue.run(read, room(512)).0.status.is_success());
}

/// Base 2.1, 4.2.3: Command ID Conflict.
#[test]
fn identifier_in_use_is_a_conflict_and_stays_the_first_commands() {
    let target = serve(memory(1));
    let mut script = Script::admin(&target, 31);
    let command = |opcode: u8, cid: u16| Sqe { cid, ..Sqe::new(opcode, 0) };
    for round in 0..3 {
        script.command(&command(admin::ASYNC_EVENT, 1000));
        for _ in 0..2 {
            script.command(&command(admin::KEEP_ALIVE, 1000));
            let cqe = script.response();
            assert_eq!((cqe.cid, cqe.status), (1000, Status::ID_CONFLICT.final_()));
        }
        script.command(&command(admin::KEEP_ALIVE, 1001));
        assert_eq!(script.response().status, Status::SUCCESS);
        // The request is there still, and its identifier is free when it is answered.
        script.command(&command(admin::ABORT, 7).with_dword(10, 1000 << 16));
        let (aborted, abort) = (script.response(), script.response());
        assert_eq!((aborted.cid, aborted.status), (1000, Status::ABORTED), "round {round}");
        assert_eq!((abort.cid, abort.result), (7, 0));
    }
}

/// Base 2.1, 3.3.1: a queue is full with one entry free, so SQSIZE, 0's based, is its capacity in commands.
#[test]
fn queue_holds_one_command_less_than_it_has_entries() {
    let target = serve(memory(1));
    for sqsize in [1, 2, 4] {
        let command = |opcode: u8, cid: u16| Sqe { cid, ..Sqe::new(opcode, 0) };
        let mut script = Script::admin(&target, sqsize);
        for cid in 1..sqsize {
            script.command(&command(admin::ASYNC_EVENT, cid));
        }
        script.command(&command(admin::KEEP_ALIVE, 100));
        let cqe = script.response();
        assert_eq!((cqe.cid, cqe.status), (100, Status::SUCCESS), "SQSIZE {sqsize}");
        script.command(&command(admin::ASYNC_EVENT, sqsize));
        script.command(&command(admin::KEEP_ALIVE, 101));
        let said = (PduType::C2hTermReq as u8, FatalStatus::Sequence as u8);
        assert_eq!(script.termination(), said, "SQSIZE {sqsize}");
    }
}

/// TCP 1.1, 3.6.2.4: a host is told why its connection is terminated, whatever else it was sending.
#[test]
fn termination_request_arrives_before_the_connection_ends() {
    let target = serve(memory(1));
    for size in [0, 1, 100 << 10, 8 << 20] {
        let mut script = Script::open(&target);
        script.initialize();
        script.0.write_all(&[4, 0, 70, 0, 70, 0, 0, 0]).unwrap();
        let mut more = script.0.try_clone().unwrap();
        let sender = thread::spawn("sender", move || more.write_all(&vec![0xa5; size])).unwrap();
        assert_eq!(
            sender.join().unwrap().map_err(|error| error.kind()),
            Ok(()),
            "{size} bytes behind"
        );
        let said = (PduType::C2hTermReq as u8, FatalStatus::InvalidHeaderField as u8);
        assert_eq!(script.termination(), said, "{size} bytes behind");
    }
}

/// TCP 1.1, 3.6.2.4: a host that does not close its end is not waited for without end.
#[test]
fn host_that_ignores_its_termination_is_closed_all_the_same() {
    let mut config = config(memory(1));
    config.limits.handshake = Duration::from_millis(300);
    let target = Target::start(&config).unwrap();
    let mut script = Script::open(&target);
    script.initialize();
    script.0.write_all(&[4, 0, 70, 0, 70, 0, 0, 0]).unwrap();
    let clock = Clock::real();
    let start = clock.now();
    while target.metrics().connections > 0 {
        assert!(clock.now().since(start) < Duration::from_secs(30), "it is still connected");
        clock.sleep(Duration::from_millis(10));
    }
    assert_eq!(target.metrics().violations, 1);
}
