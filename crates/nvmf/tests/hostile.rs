//! Hosts that mean harm, or are broken: their connection ends, others are not disturbed.

mod common;

use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::script::Script;
use common::{NQN, config, memory, open, serve};
use esker_base::{AlignedBuf, BufPool, Clock, Lba, Rng};
use esker_device::Port;
use esker_nvmf::conn::{
    ControllerConnection, ControllerEvent, ControllerSettings, HostConnection, HostEvent,
    HostSettings, Payload,
};
use esker_nvmf::target::Target;
use esker_nvmf::wire::capsule::{Sgl, Sqe};
use esker_nvmf::wire::command::{LbaRange, io};
use esker_nvmf::wire::fabrics::{CONNECT, Connect, OPCODE};
use esker_nvmf::wire::pdu::{CommonHeader, FatalStatus, IcReq, PduType, Transfer};
use esker_nvmf::wire::status::Status;
use rustix::process::{Resource, getrlimit, setrlimit};

const SETTINGS: ControllerSettings = ControllerSettings {
    slots: 8,
    in_capsule_bytes: 8192,
    max_h2c_bytes: 4096,
    digests: true,
    staging_bytes: 4096,
};

fn host(header_digest: bool, data_digest: bool) -> HostConnection {
    HostConnection::new(HostSettings {
        slots: 4,
        in_capsule_bytes: 4096,
        header_digest,
        data_digest,
        staging_bytes: 4096,
    })
}

/// Takes the next output of one end, at most so many bytes.
fn joined<'a>(fill: impl FnOnce(&mut [IoSlice<'a>]) -> usize, most: usize) -> Option<Vec<u8>> {
    let mut slices = [IoSlice::new(&[]); 8];
    let count = fill(&mut slices);
    let mut bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
    bytes.truncate(most);
    (!bytes.is_empty()).then_some(bytes)
}

fn take_from_host(host: &mut HostConnection, most: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = joined(|slices| host.slices(slices), most) {
        host.sent(bytes.len());
        all.extend(bytes);
    }
    all
}

fn take_from_controller(
    controller: &mut ControllerConnection,
    pool: &mut BufPool,
    most: usize,
) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = joined(|slices| controller.slices(slices), most) {
        controller.sent(bytes.len(), pool);
        all.extend(bytes);
    }
    all
}

fn put(spaces: &mut [std::io::IoSliceMut<'_>; 2], bytes: &[u8]) -> usize {
    let mut at = 0;
    for space in spaces {
        let size = space.len().min(bytes.len() - at);
        space[..size].copy_from_slice(&bytes[at..at + size]);
        at += size;
    }
    at
}

/// A controller's end that answers everything with some data.
fn serve_some(controller: &mut ControllerConnection, pool: &mut BufPool, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let count = put(&mut controller.spaces(), bytes);
        if count == 0 {
            return false;
        }
        controller.received(count);
        bytes = &bytes[count..];
        loop {
            match controller.poll(pool) {
                Ok(Some(ControllerEvent::Command { slot, sqe, data, .. })) => {
                    let length = usize::try_from(sqe.sgl.length).unwrap();
                    if sqe.is_from_host() && data.is_none() && (1..=1 << 20).contains(&length) {
                        controller.request_data(slot, pool.take(length));
                    } else if !sqe.is_from_host() && length <= 1 << 20 {
                        controller.respond_with_data(slot, pool.take(length), 1);
                    } else {
                        controller.respond(slot, 0, Status::SUCCESS);
                    }
                }
                Ok(Some(ControllerEvent::Data { slot, .. })) => {
                    controller.respond(slot, 0, Status::SUCCESS);
                }
                Ok(None) => break,
                Err(_) => return false,
            }
        }
    }
    true
}

#[test]
fn both_ends_understand_each_other_in_pieces_of_any_size() {
    for most in [1, 7, 64, 100_000] {
        for (header, data) in [(false, false), (true, true)] {
            let (mut host, mut pool) = (host(header, data), BufPool::new(1 << 20));
            let mut controller = ControllerConnection::new(SETTINGS);
            let mut exchange = |host: &mut HostConnection| {
                let mut events = Vec::new();
                loop {
                    let out = take_from_host(host, most);
                    assert!(serve_some(&mut controller, &mut pool, &out));
                    let back = take_from_controller(&mut controller, &mut pool, most);
                    if back.is_empty() {
                        return events;
                    }
                    let mut rest = &back[..];
                    while !rest.is_empty() {
                        let count = put(&mut host.spaces(), rest);
                        host.received(count);
                        rest = &rest[count..];
                        while let Some(event) = host.poll().unwrap() {
                            events.push(event);
                        }
                    }
                }
            };
            assert!(matches!(exchange(&mut host)[..], [HostEvent::Ready]));
            for size in [512, 4096, 4608, 20_000] {
                for payload in
                    [Payload::Out(AlignedBuf::zeroed(size)), Payload::In(AlignedBuf::zeroed(size))]
                {
                    let opcode = match payload {
                        Payload::Out(_) => io::WRITE,
                        _ => io::READ,
                    };
                    host.submit(Sqe::new(opcode, 1), payload);
                }
                let done = exchange(&mut host);
                assert_eq!(done.len(), 2);
                for event in done {
                    let HostEvent::Completion { cqe, payload, .. } = event else { panic!() };
                    assert!(cqe.status.is_success(), "{}", cqe.status);
                    assert_eq!(payload.into_buf().unwrap().len(), size);
                }
            }
        }
    }
}

/// Two ends that have found each other.
fn pair(header: bool, data: bool) -> (HostConnection, ControllerConnection, BufPool) {
    let (mut host, mut pool) = (host(header, data), BufPool::new(0));
    let mut controller = ControllerConnection::new(SETTINGS);
    let request = take_from_host(&mut host, usize::MAX);
    assert!(serve_some(&mut controller, &mut pool, &request));
    let response = take_from_controller(&mut controller, &mut pool, usize::MAX);
    let count = put(&mut host.spaces(), &response);
    host.received(count);
    assert!(matches!(host.poll(), Ok(Some(HostEvent::Ready))));
    (host, controller, pool)
}

#[test]
fn digests_find_a_bit_that_changed() {
    for at in [20, 100, 600] {
        let (mut host, mut controller, mut pool) = pair(true, true);
        host.submit(Sqe::new(io::WRITE, 1), Payload::Out(AlignedBuf::zeroed(512)));
        let mut said = take_from_host(&mut host, usize::MAX);
        assert_eq!(said.len(), 72 + 4 + 512 + 4);
        // A byte of the header, or of the data, or of nothing.
        if let Some(byte) = said.get_mut(at) {
            *byte ^= 4;
        }
        let count = put(&mut controller.spaces(), &said);
        controller.received(count);
        match (at, controller.poll(&mut pool)) {
            (20, Err(violation)) => assert_eq!(violation.status, FatalStatus::HeaderDigest),
            (100, Ok(Some(ControllerEvent::Command { fault, .. }))) => {
                assert_eq!(fault, Some(Status::TRANSIENT_TRANSPORT))
            }
            (600, Ok(Some(ControllerEvent::Command { fault, .. }))) => assert_eq!(fault, None),
            (_, other) => panic!("at {at}: {other:?}"),
        }
    }
}

#[test]
fn data_that_was_not_asked_for_is_not_taken() {
    let answer = |transfer: Transfer, size: usize, flags: u8| {
        let (mut host, mut controller, mut pool) = pair(false, false);
        host.submit(Sqe::new(io::WRITE, 1), Payload::Out(AlignedBuf::zeroed(6000)));
        let said = take_from_host(&mut host, usize::MAX);
        let count = put(&mut controller.spaces(), &said);
        controller.received(count);
        let Ok(Some(ControllerEvent::Command { slot, .. })) = controller.poll(&mut pool) else {
            panic!("a command");
        };
        controller.request_data(slot, AlignedBuf::zeroed(6000));
        let transfer = Transfer { ttag: slot.0, ..transfer };
        let plen = u32::try_from(24 + size).unwrap();
        let kind = PduType::H2cData as u8;
        let common = CommonHeader { kind, flags, hlen: 24, pdo: 24, plen };
        let said = [&common.encode()[..], &transfer.encode(), &vec![0; size]].concat();
        let mut rest = &said[..];
        while !rest.is_empty() {
            let count = put(&mut controller.spaces(), rest);
            controller.received(count);
            rest = &rest[count..];
            if let Err(violation) = controller.poll(&mut pool) {
                return Some(violation.status);
            }
        }
        None
    };
    let data = |offset, length| Transfer { offset, length, ..Transfer::default() };
    assert_eq!(answer(data(0, 4096), 4096, 0), None);
    assert_eq!(answer(data(4096, 1904), 1904, 4), Some(FatalStatus::OutOfRange));
    assert_eq!(answer(data(0, 4096), 4096, 4), Some(FatalStatus::InvalidHeaderField));
    assert_eq!(answer(data(0, 4096), 512, 0), Some(FatalStatus::InvalidHeaderField));
    assert_eq!(answer(data(0, 6000), 6000, 4), Some(FatalStatus::LimitExceeded));
    assert_eq!(answer(data(u32::MAX, 512), 512, 0), Some(FatalStatus::OutOfRange));
    let other = Transfer { cccid: 3, ..data(0, 512) };
    assert_eq!(answer(other, 512, 0), Some(FatalStatus::InvalidHeaderField));
}

/// Bytes that a host sends in a short session: ICReq, commands with and without data.
fn session(rng: &mut Rng) -> Vec<u8> {
    let (mut host, mut pool) = (host(rng.chance(1, 2), rng.chance(1, 2)), BufPool::new(0));
    let mut controller = ControllerConnection::new(SETTINGS);
    let mut said = take_from_host(&mut host, usize::MAX);
    serve_some(&mut controller, &mut pool, &said);
    for round in 0..4 {
        let back = take_from_controller(&mut controller, &mut pool, usize::MAX);
        let mut rest = &back[..];
        while !rest.is_empty() {
            let count = put(&mut host.spaces(), rest);
            host.received(count);
            rest = &rest[count..];
            while host.poll().unwrap().is_some() {}
        }
        if round < 2 {
            host.submit(Sqe::new(io::WRITE, 1), Payload::Out(AlignedBuf::zeroed(512)));
            host.submit(Sqe::new(io::WRITE, 1), Payload::Out(AlignedBuf::zeroed(10_000)));
        }
        let out = take_from_host(&mut host, usize::MAX);
        serve_some(&mut controller, &mut pool, &out);
        said.extend(out);
    }
    said
}

#[test]
fn any_change_to_what_a_host_says_ends_in_a_violation_or_an_answer() {
    let soak = std::env::var("ESKER_SOAK").ok().and_then(|count| count.parse().ok());
    let sessions: u64 = soak.unwrap_or(2000);
    let mut rng = Rng::new(3 + sessions);
    let mut violations = 0;
    for _ in 0..sessions {
        let mut said = session(&mut rng);
        for _ in 0..=rng.below(3) {
            let at = usize::try_from(rng.below(said.len() as u64)).unwrap();
            match rng.below(3) {
                0 => said[at] = rng.u64().to_le_bytes()[0],
                1 => said.truncate(at),
                _ => {
                    let copy = said[at..].to_vec();
                    said.extend(copy);
                }
            }
            if said.is_empty() {
                break;
            }
        }
        let mut controller = ControllerConnection::new(SETTINGS);
        let mut pool = BufPool::new(0);
        if !serve_some(&mut controller, &mut pool, &said) {
            violations += 1;
            assert!(matches!(controller.poll(&mut pool), Ok(None)), "nothing follows a violation");
        }
        take_from_controller(&mut controller, &mut pool, 999);
    }
    assert!(violations > sessions / 4, "{violations}");
}

#[test]
fn a_host_survives_whatever_a_controller_says() {
    let mut rng = Rng::new(5);
    let mut violations = 0;
    for _ in 0..3000 {
        let (header, data) = (rng.chance(1, 2), rng.chance(1, 2));
        let (mut host, mut controller, mut pool) = pair(header, data);
        host.submit(Sqe::new(io::READ, 1), Payload::In(AlignedBuf::zeroed(5000)));
        host.submit(Sqe::new(io::WRITE, 1), Payload::Out(AlignedBuf::zeroed(9000)));
        let out = take_from_host(&mut host, usize::MAX);
        serve_some(&mut controller, &mut pool, &out);
        let mut said = take_from_controller(&mut controller, &mut pool, usize::MAX);
        for _ in 0..=rng.below(3) {
            let at = usize::try_from(rng.below(said.len() as u64)).unwrap();
            // The headers are where the meaning is.
            let at = if rng.chance(2, 3) { at % 64 } else { at };
            said[at] = rng.u64().to_le_bytes()[0];
        }
        let mut rest = &said[..];
        while !rest.is_empty() {
            let count = put(&mut host.spaces(), rest);
            host.received(count);
            rest = &rest[count..];
            let mut event = host.poll();
            while matches!(event, Ok(Some(_))) {
                take_from_host(&mut host, 777);
                event = host.poll();
            }
            if event.is_err() {
                violations += 1;
                break;
            }
        }
        assert!(host.abandon().count() <= 2);
    }
    assert!(violations > 500, "{violations}");
}

#[test]
fn violations_are_answered_as_the_specification_says() {
    let target = serve(memory(1));
    let neighbour = open(&target);
    let mut port = Port::open(&neighbour, 1).unwrap();
    type Step = fn(&mut Script);
    let table: [(&str, u8, Step); 8] = [
        ("a command before ICReq", 2, |script| {
            script.pdu(PduType::CapsuleCmd, &Sqe::default().encode(), &[]);
        }),
        ("a second ICReq", 2, |script| {
            script.initialize();
            script.pdu(PduType::IcReq, &IcReq::default().encode(), &[]);
        }),
        ("a version that does not exist", 6, |script| {
            script.pdu(PduType::IcReq, &IcReq { pfv: 9, ..IcReq::default() }.encode(), &[]);
        }),
        ("a type that does not exist", 1, |script| {
            script.0.write_all(&[0x55, 0, 24, 0, 24, 0, 0, 0]).unwrap();
        }),
        ("a header of a wrong length", 1, |script| {
            script.initialize();
            script.0.write_all(&[4, 0, 70, 0, 70, 0, 0, 0]).unwrap();
        }),
        ("a PDU of controllers", 2, |script| {
            script.initialize();
            script.pdu(PduType::R2t, &Transfer::default().encode(), &[]);
        }),
        ("data that nobody asked for", 1, |script| {
            script.initialize();
            let transfer = Transfer { length: 512, ..Transfer::default() };
            script.pdu(PduType::H2cData, &transfer.encode(), &[0; 512]);
        }),
        ("more data in a capsule than announced", 4, |script| {
            script.initialize();
            script.pdu(PduType::CapsuleCmd, &Sqe::default().encode(), &[0; 8196]);
        }),
    ];
    for (what, status, step) in table {
        let mut script = Script::open(&target);
        step(&mut script);
        assert_eq!(script.termination(), (PduType::C2hTermReq as u8, status), "{what}");
        port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
    }
    assert_eq!(target.metrics().violations, 8);
}

#[test]
fn a_queue_that_nobody_opened_is_refused() {
    let target = serve(memory(1));
    let status = |response: [u8; 24]| u16::from_le_bytes([response[22], response[23]]) >> 1;
    let mut script = Script::open(&target);
    script.initialize();
    // An I/O command before Connect.
    let range = LbaRange { slba: 0, count: 1, fua: false, placement: None };
    let read = range.put(Sqe::new(io::READ, 1));
    script.pdu(PduType::CapsuleCmd, &read.encode(), &[]);
    let mut response = [0; 24];
    script.0.read_exact(&mut response).unwrap();
    assert_eq!(status(response), Status::SEQUENCE.final_().0);
    assert_eq!(status(script.connect(1, 5, NQN)), Status::CONNECT_INVALID.final_().0);
    assert_eq!(status(script.connect(0, 5, NQN)), Status::CONNECT_INVALID.final_().0);
    let other = "nqn.2026-01.io.esker:other";
    assert_eq!(status(script.connect(0, 0xffff, other)), Status::CONNECT_INVALID.final_().0);
    assert_eq!(status(script.connect(0, 0xffff, NQN)), 0);
    assert_eq!(status(script.connect(0, 0xffff, NQN)), Status::SEQUENCE.final_().0);
}

#[test]
fn random_bytes_disturb_nobody() {
    let target = serve(memory(1));
    let neighbour = open(&target);
    let mut port = Port::open(&neighbour, 4).unwrap();
    let mut rng = Rng::new(11);
    for round in 0..200 {
        let mut said = session(&mut rng);
        let at = usize::try_from(rng.below(said.len() as u64)).unwrap();
        if round % 2 == 0 {
            said[at] ^= 1 << rng.below(8);
        } else {
            rng.fill(&mut said[at..]);
        }
        let mut script = Script::open(&target);
        let _ = script.0.write_all(&said); // it may be closed in the middle
        if round % 10 == 0 {
            port.write(Lba(round), AlignedBuf::zeroed(512), None).unwrap();
        }
    }
    port.read(Lba(0), AlignedBuf::zeroed(512)).unwrap();
    let clock = Clock::real();
    for _ in 0..12_000 {
        // Two connections of the neighbour stay.
        if target.metrics().connections == 2 {
            return;
        }
        clock.sleep(Duration::from_millis(5));
    }
    panic!("connections are left: {}", target.metrics().connections);
}

#[test]
fn silent_connections_are_shed_and_never_more_than_allowed() {
    // Both ends of all connections are in this process.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let mut config = config(memory(1));
    config.limits.handshake = Duration::from_secs(3);
    config.limits.connections = 100;
    let target = Target::start(&config).unwrap();
    let neighbour = open(&target);
    let mut port = Port::open(&neighbour, 1).unwrap();
    let silent: Vec<TcpStream> =
        (0..1000).map(|_| TcpStream::connect(target.addresses()[0]).unwrap()).collect();
    port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
    assert!(target.metrics().connections <= 100);
    let clock = Clock::real();
    let mut metrics = target.metrics();
    for _ in 0..12_000 {
        // Each is refused, displaced or shed; two connections of the neighbour stay.
        if metrics.refused + metrics.displaced + metrics.timeouts >= 1000
            && metrics.connections == 2
        {
            break;
        }
        clock.sleep(Duration::from_millis(5));
        metrics = target.metrics();
    }
    let gone = metrics.refused + metrics.displaced + metrics.timeouts;
    assert_eq!((gone, metrics.connections, metrics.timeouts > 0), (1000, 2, true), "{metrics:?}");
    port.write(Lba(0), AlignedBuf::zeroed(512), None).unwrap();
    drop(silent);
}

#[test]
fn a_host_that_falls_silent_is_dropped_with_its_controller() {
    let target = serve(memory(1));
    let mut script = Script::open(&target);
    script.initialize();
    let connect = Connect { sqsize: 31, kato: 200, ..Connect::default() };
    assert_eq!(script.connect_with(connect, 0xffff, NQN)[22..], [0, 0]);
    assert_eq!(target.metrics().controllers, 1);
    assert_eq!(script.0.read(&mut [0; 8]).unwrap(), 0, "the target closes the connection");
    let metrics = target.metrics();
    assert_eq!((metrics.controllers, metrics.timeouts), (0, 1));
}

#[test]
fn one_host_cannot_have_all_connections() {
    let mut config = config(memory(1));
    config.limits.connections_per_host = 3;
    let target = Target::start(&config).unwrap();
    let greedy = open(&target); // an admin queue
    let ports: Vec<_> = (0..2).map(|_| Port::open(&greedy, 1).unwrap()).collect();
    let mut script = Script::open(&target);
    script.initialize();
    assert_eq!(script.connect(0, 0xffff, NQN)[22..], [0, 0], "another host still gets in");
    assert_eq!(target.metrics().connections, 4);
    drop(ports);
}

#[test]
fn a_connection_counts_for_the_host_that_it_names_last() {
    let mut config = config(memory(1));
    config.limits.connections_per_host = 1;
    let target = Target::start(&config).unwrap();
    let host = |n: u8| format!("nqn.2026-01.io.esker:host{n}");
    let status = |script: &mut Script, n: u8, nqn: &str| {
        let connect = Connect { sqsize: 31, ..Connect::default() };
        let response = script.connect_as(&host(n), connect, 0xffff, nqn);
        Status(u16::from_le_bytes([response[22], response[23]]) >> 1)
    };
    let open = || {
        let mut script = Script::open(&target);
        script.initialize();
        script
    };
    let (mut first, mut second) = (open(), open());
    for n in [1, 1, 2] {
        let refused = status(&mut first, n, "nqn.2026-01.io.esker:other");
        assert_eq!(refused, Status::CONNECT_INVALID.final_(), "as host {n}");
    }
    assert_eq!(status(&mut first, 3, NQN), Status::SUCCESS);
    assert_eq!(status(&mut second, 3, NQN), Status::CONNECT_BUSY, "host 3 has one");
    assert_eq!(status(&mut second, 1, NQN), Status::SUCCESS, "host 1 has none any more");
}

#[test]
fn a_stranger_gets_no_memory_for_data_that_does_not_come() {
    let target = serve(memory(1));
    let mut script = Script::open(&target);
    script.initialize();
    let mut answer = |opcode: u8, length: u32| {
        let sgl = Sgl { address: 0, length, kind: Sgl::TRANSPORT };
        let sqe = Sqe { sgl, ..Sqe::new(opcode, CONNECT.into()) };
        script.pdu(PduType::CapsuleCmd, &sqe.encode(), &[]);
        let mut response = [0; 24];
        script.0.read_exact(&mut response).unwrap();
        response
    };
    for opcode in [OPCODE, io::WRITE] {
        let response = answer(opcode, 1 << 20);
        assert_eq!(response[0], PduType::CapsuleResp as u8, "the data was asked for");
        let status = u16::from_le_bytes([response[22], response[23]]) >> 1;
        assert_eq!(status, Status::INVALID_FIELD.final_().0);
    }
    assert_eq!(answer(OPCODE, 1024)[0], PduType::R2t as u8);
}
