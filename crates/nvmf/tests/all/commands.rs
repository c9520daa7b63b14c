//! Commands that Esker's initiator does not send: Copy, Abort, and features.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::{config, memory, serve};
use esker_base::{AlignedBuf, Clock, Lba, LbaCount, Rng};
use esker_device::{
    Command, Device, DeviceError, MemoryDevice, Op, OpKind, Port, QueuePair, WriteThrough, forward,
};
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{NamespaceConfig, Target};
use esker_nvmf::wire::capsule::{Cqe, Sqe};
use esker_nvmf::wire::command::{CopyArguments, LbaRange, SourceRange, admin, io};
use esker_nvmf::wire::feature;
use esker_nvmf::wire::identify::{
    self, IdentifyController, IdentifyNamespace, NSFEAT_VWCNP, ONCS_COPY, cns,
};
use esker_nvmf::wire::status::Status;
use esker_sim::{CrashRecorder, refusing};

fn copy(to: u64, ranges: &[(u64, u64)]) -> (Sqe, Payload) {
    let sources = ranges.iter().map(|&(slba, count)| {
        let nlb = u16::try_from(count - 1).unwrap();
        SourceRange { slba, nlb }.encode()
    });
    let data: Vec<u8> = sources.flatten().collect();
    let arguments = CopyArguments {
        sdlba: to,
        ranges: u16::try_from(ranges.len()).unwrap(),
        format: 0,
        fua: false,
        placement: None,
    };
    (arguments.put(Sqe::new(io::COPY, 1)), Payload::Out(AlignedBuf::padded(&data, 1)))
}

/// A device with other content in each LBA.
fn filled(mib: u64, seed: u64) -> (Arc<dyn Device>, Vec<u8>) {
    let device = memory(mib);
    let mut port = Port::open(&*device, 1).unwrap();
    let mut content = vec![0; usize::try_from(mib << 20).unwrap()];
    Rng::new(seed).fill(&mut content);
    for (number, part) in (0..).zip(content.chunks(1 << 20)) {
        port.write(Lba(number * 2048), AlignedBuf::padded(part, 1), None).unwrap();
    }
    (device, content)
}

fn all_of(device: &dyn Device, size: usize) -> Vec<u8> {
    let mut port = Port::open(device, 1).unwrap();
    port.read(Lba(0), AlignedBuf::zeroed(size)).unwrap().to_vec()
}

#[test]
fn copies_are_what_they_were_copied_from() {
    let (device, mut content) = filled(40, 1);
    let target = serve(device.clone());
    let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    let mut rng = Rng::new(2);
    let mut cases = vec![
        (40_000, vec![(0, 32_768)]), // 16 MiB in one range
        (40_000, (0..128).map(|n| (n * 256, 256)).collect()), // and in 128
        (0, vec![(81_919, 1)]),
    ];
    for _ in 0..12 {
        // Sources below LBA 40,000, and a destination above.
        let count = 1 + rng.below(20);
        let ranges = (0..count).map(|_| (rng.below(38_000), 1 + rng.below(1500))).collect();
        cases.push((40_000 + rng.below(10_000), ranges));
    }
    for (to, ranges) in cases {
        let (sqe, data) = copy(to, &ranges);
        let (cqe, _) = host.run(sqe, data);
        assert_eq!((cqe.status, cqe.result), (Status::SUCCESS, 0));
        let mut at = usize::try_from(to).unwrap() * 512;
        for (slba, count) in ranges {
            let from = usize::try_from(slba).unwrap() * 512;
            let size = usize::try_from(count).unwrap() * 512;
            content.copy_within(from..from + size, at);
            at += size;
        }
        assert!(all_of(&*device, content.len()) == content, "after a copy to {to}");
    }
}

#[test]
fn many_copies_of_one_queue_are_all_done() {
    let (device, mut content) = filled(2, 3);
    let target = serve(device.clone());
    let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    let ids: Vec<u16> = (0..30)
        .map(|n| {
            let (sqe, data) = copy(2048 + n * 32, &[(n * 64, 30), (n * 64 + 40, 2)]);
            host.submit(sqe, data)
        })
        .collect();
    for cid in ids {
        assert!(host.wait(cid).0.status.is_success());
    }
    for n in 0..30 {
        content.copy_within(n * 64 * 512..(n * 64 + 30) * 512, (2048 + n * 32) * 512);
        content.copy_within((n * 64 + 40) * 512..(n * 64 + 42) * 512, (2078 + n * 32) * 512);
    }
    assert!(all_of(&*device, content.len()) == content);
}

#[test]
fn invalid_copy_is_refused_with_its_status_and_writes_nothing() {
    let (device, content) = filled(40, 4);
    let target = serve(device.clone());
    let (mut admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    let identify = |which: u8| Sqe::new(identify::OPCODE, 1).with_dword(10, which.into());
    let bytes = admin.fetch(identify(cns::CONTROLLER), 4096);
    let controller = IdentifyController::decode(&bytes).unwrap();
    assert!(controller.oncs & ONCS_COPY != 0 && controller.ocfs == 1);
    let bytes = admin.fetch(identify(cns::NAMESPACE), 4096);
    let namespace = IdentifyNamespace::decode(&bytes).unwrap();
    assert_eq!((namespace.mssrl, namespace.mcl, namespace.msrc), (32_768, 32_768, 127));
    let mut status = |to: u64, ranges: &[(u64, u64)]| {
        let (sqe, data) = copy(to, ranges);
        host.run(sqe, data).0.status
    };
    let (limit, range) = (Status::SIZE_LIMIT.final_(), Status::LBA_RANGE.final_());
    assert_eq!(status(40_000, &[(0, 32_769)]), limit, "a range above MSSRL");
    assert_eq!(status(40_000, &[(0, 32_768), (0, 1)]), limit, "more than MCL in all");
    assert_eq!(status(40_000, &vec![(0, 1); 129]), limit, "more ranges than MSRC");
    assert_eq!(status(40_000, &[(0, 1), (81_919, 2)]), range, "a source beyond the end");
    assert_eq!(status(40_000, &[(u64::MAX, 2)]), range);
    assert_eq!(status(81_919, &[(0, 2)]), range, "a destination beyond the end");
    assert_eq!(status(u64::MAX, &[(0, 2)]), range);
    assert_eq!(
        status(10, &[(0, 8), (17, 4)]),
        Status::OVERLAP.final_(),
        "the last LBA is read, too"
    );
    let (sqe, data) = copy(40_000, &[(0, 8)]);
    let other = sqe.with_dword(12, sqe.dword(12) | 1 << 8);
    assert_eq!(host.run(other, data).0.status, Status::INVALID_FIELD.final_(), "format 1");
    let (sqe, data) = copy(40_000, &[(0, 8)]);
    let more = sqe.with_dword(12, 1);
    assert_eq!(host.run(more, data).0.status, Status::DATA_LENGTH.final_(), "one range is missing");
    let (sqe, _) = copy(40_000, &[(0, 8)]);
    assert_eq!(host.run(sqe, Payload::None).0.status, Status::DATA_LENGTH.final_(), "no data");
    assert!(all_of(&*device, content.len()) == content, "something was written");
}

/// Memory that takes no commands while it is full.
struct Full {
    memory: MemoryDevice,
    is_full: Arc<AtomicBool>,
}

impl Full {
    fn new() -> Full {
        Full { memory: MemoryDevice::new("full", 4 << 20, 512), is_full: Arc::default() }
    }

    fn set(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }
}

impl Device for Full {
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        let queue = self.memory.queue_pair(depth)?;
        Ok(Box::new(FullQueue { queue, is_full: self.is_full.clone() }))
    }

    forward!(memory: name, geometry, stats);
}

struct FullQueue {
    queue: Box<dyn QueuePair>,
    is_full: Arc<AtomicBool>,
}

impl QueuePair for FullQueue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        if self.is_full.load(Ordering::SeqCst) { Ok(0) } else { self.queue.submit(commands) }
    }

    forward!(queue: poll, wait, in_flight);
}

#[test]
fn a_copy_that_fails_says_which_range_was_not_copied() {
    let ranges: Vec<(u64, u64)> = (0..10).map(|n| (n * 100, 100)).collect();
    for (fails, bad, status) in
        [(OpKind::Read, 450, Status::READ_ERROR), (OpKind::Write, 4450, Status::WRITE_FAULT)]
    {
        let is_bad = Arc::new(AtomicBool::new(true));
        let fault = is_bad.clone();
        let target = serve(refusing(&memory(4), move |op| {
            let (lba, bytes) = op.range(512);
            let touches = lba.0 <= bad && bad < lba.0 + bytes / 512;
            op.kind() == fails && touches && fault.load(Ordering::SeqCst)
        }));
        let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
        let (sqe, data) = copy(4000, &ranges);
        let (Cqe { status: got, result, .. }, _) = host.run(sqe, data);
        assert_eq!((got, result), (status.final_(), 4), "{fails}");
        is_bad.store(false, Ordering::SeqCst);
        let (sqe, data) = copy(4000, &ranges);
        assert!(host.run(sqe, data).0.status.is_success());
    }
}

fn read(lba: u64, lbas: u32) -> (Sqe, Payload) {
    let range = LbaRange { slba: lba, count: lbas, fua: false, placement: None };
    let size = usize::try_from(lbas).unwrap() * 512;
    (range.put(Sqe::new(io::READ, 1)), Payload::In(AlignedBuf::zeroed(size)))
}

fn write(lba: u64, lbas: u32) -> (Sqe, Payload) {
    let range = LbaRange { slba: lba, count: lbas, fua: false, placement: None };
    let mut buf = AlignedBuf::zeroed(usize::try_from(lbas).unwrap() * 512);
    buf.fill(9);
    (range.put(Sqe::new(io::WRITE, 1)), Payload::Out(buf))
}

#[test]
fn zeroes_with_force_unit_access_are_flushed_before_they_are_done() {
    let device = memory(1);
    let target = serve(device.clone());
    let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    let (sqe, data) = write(0, 8);
    assert!(host.run(sqe, data).0.status.is_success());
    for (flushes, fua) in [(0, false), (1, true)] {
        let range = LbaRange { slba: 0, count: 8, fua, placement: None };
        let (cqe, _) = host.run(range.put(Sqe::new(io::WRITE_ZEROES, 1)), Payload::None);
        assert!(cqe.status.is_success());
        assert_eq!(device.stats().flushes, flushes);
    }
    assert!(all_of(&*device, 4096).iter().all(|&byte| byte == 0));
}

fn abort(sqid: u16, cid: u16) -> Sqe {
    Sqe::new(admin::ABORT, 0).with_dword(10, u32::from(sqid) | u32::from(cid) << 16)
}

#[test]
fn a_command_that_no_device_has_is_aborted() {
    let device = Arc::new(Full::new());
    let mut config = config(device.clone());
    config.limits.workers = 2; // the queues are on different ones
    let target = Target::start(&config).unwrap();
    let (mut admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    device.set(true);
    let mut ids = Vec::new();
    for (sqe, data) in
        [read(0, 8), write(8, 8), write(16, 64), copy(100, &[(0, 50)]), copy(200, &[(0, 50)])]
    {
        ids.push(host.submit(sqe, data));
    }
    let kept = host.submit(Sqe::new(io::FLUSH, 1), Payload::None);
    // The first to be sent may not have been received when the Abort is.
    let clock = Clock::real();
    while target.metrics().flows.iter().map(|flow| flow.in_flight).sum::<u64>() < 5 {
        clock.sleep(Duration::from_millis(2));
    }

    for &cid in &ids {
        let asked = admin.submit(abort(1, cid), Payload::None);
        // Data that the host was asked for has to come first.
        assert_eq!(host.wait(cid).0.status, Status::ABORTED, "{cid}");
        let (cqe, _) = admin.wait(asked);
        assert_eq!((cqe.status, cqe.result), (Status::SUCCESS, 0), "{cid} is aborted");
    }
    device.set(false);
    assert!(host.wait(kept).0.status.is_success());
    let content = all_of(&*device, 512 * 400);
    assert!(content.iter().all(|&byte| byte == 0), "an aborted command was executed");
    // A command that is done, one that never was, and queues that are not there.
    for (sqid, cid) in [(1, ids[0]), (1, 999), (7, 1), (0, 5)] {
        let (cqe, _) = admin.run(abort(sqid, cid), Payload::None);
        assert_eq!((cqe.status, cqe.result), (Status::SUCCESS, 1));
    }
    // The connection is as good as before.
    let (sqe, data) = write(0, 64);
    assert!(host.run(sqe, data).0.status.is_success());
}

#[test]
fn commands_that_wait_for_memory_and_event_requests_are_aborted() {
    let device = Arc::new(Full::new());
    let mut config = config(device.clone());
    config.limits.data_bytes_per_connection = 64 << 10;
    let target = Target::start(&config).unwrap();
    let (mut admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    device.set(true);
    let (sqe, data) = read(0, 128);
    let first = host.submit(sqe, data);
    let (sqe, data) = write(1000, 128); // not in a capsule, and there is no memory to ask for it
    let second = host.submit(sqe, data);
    let (sqe, data) = read(0, 128);
    let third = host.submit(sqe, data);
    let flush = host.submit(Sqe::new(io::FLUSH, 1), Payload::None);
    let clock = Clock::real();
    // The read, and the flush behind: commands that wait for data have no flow yet.
    while target.metrics().flows.iter().map(|flow| flow.in_flight).sum::<u64>() < 3 {
        clock.sleep(Duration::from_millis(2));
    }
    for cid in [second, third] {
        assert_eq!(admin.run(abort(1, cid), Payload::None).0.result, 0);
        assert_eq!(host.wait(cid).0.status, Status::ABORTED);
    }
    device.set(false);
    assert!(host.wait(first).0.status.is_success());
    assert!(host.wait(flush).0.status.is_success());
    let mut port = Port::open(&*device, 1).unwrap();
    let read = port.read(Lba(1000), AlignedBuf::zeroed(512)).unwrap();
    assert!(read.iter().all(|&byte| byte == 0));
    port.run(Op::Discard { lba: Lba(0), count: LbaCount(1) }).unwrap();
    let request = admin.submit(Sqe::new(admin::ASYNC_EVENT, 0), Payload::None);
    assert_eq!(admin.run(abort(0, request), Payload::None).0.result, 0);
    assert_eq!(admin.wait(request).0.status, Status::ABORTED);
}

#[test]
fn a_copy_that_stands_in_line_ends_with_its_namespace_and_touches_no_other() {
    let held = Arc::new(Full::new());
    let mut config = config(held.clone());
    let namespace = |nsid, device| NamespaceConfig { nsid, device, uuid: None };
    config.subsystems[0].namespaces.push(namespace(2, memory(1)));
    let target = Target::start(&config).unwrap();
    let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    held.set(true);
    let (sqe, data) = copy(100, &[(0, 50)]);
    let at_work = host.submit(sqe, data);
    let (sqe, data) = copy(100, &[(0, 50)]);
    let in_line = host.submit(Sqe { nsid: 2, ..sqe }, data);
    let clock = Clock::real();
    while target.metrics().flows.iter().map(|flow| flow.in_flight).sum::<u64>() < 2 {
        clock.sleep(Duration::from_millis(2));
    }
    // Its namespace goes, its device is closed, and another is opened in its place.
    let (other, content) = filled(1, 6);
    config.subsystems[0].namespaces[1] = namespace(3, other.clone());
    target.reconfigure(&config).unwrap();
    clock.sleep(Duration::from_millis(700));
    let (sqe, data) = read(0, 1);
    assert!(host.run(Sqe { nsid: 3, ..sqe }, data).0.status.is_success());
    held.set(false);
    assert!(host.wait(at_work).0.status.is_success());
    assert_eq!(host.wait(in_line).0.status, Status::INVALID_NAMESPACE.final_());
    assert!(all_of(&*other, content.len()) == content, "it wrote to another namespace");
}

#[test]
fn data_in_the_capsule_of_a_command_that_sends_none_is_refused_and_not_kept() {
    let mut config = config(memory(1));
    config.limits.data_bytes_per_connection = 64 << 10;
    let target = Target::start(&config).unwrap();
    let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    let verify = |host: &mut Client| {
        let range = LbaRange { slba: 0, count: 8, fua: false, placement: None };
        let sqe = range.put(Sqe::new(io::VERIFY, 1));
        host.run(sqe, Payload::Out(AlignedBuf::zeroed(4096))).0.status
    };
    let answers: Vec<Status> = (0..20).map(|_| verify(&mut host)).collect();
    // There is as much memory for the connection as before.
    let (sqe, data) = read(0, 100);
    assert!(host.run(sqe, data).0.status.is_success());
    assert_eq!(answers, [Status::SGL_TYPE.final_(); 20]);
    let (sqe, _) = read(0, 8);
    let (cqe, _) = host.run(sqe, Payload::Out(AlignedBuf::zeroed(4096)));
    assert_eq!(cqe.status, Status::SGL_TYPE.final_());
}

#[test]
fn write_cache_is_told_of_each_namespace_and_stays_on() {
    let volatile = || CrashRecorder::new().attach(memory(1)) as Arc<dyn Device>;
    let answers = |devices: Vec<Arc<dyn Device>>| {
        let mut config = config(devices[0].clone());
        for (nsid, device) in (2..).zip(&devices[1..]) {
            let namespace = NamespaceConfig { nsid, device: device.clone(), uuid: None };
            config.subsystems[0].namespaces.push(namespace);
        }
        let target = Target::start(&config).unwrap();
        let (mut admin, _io) = Client::pair(target.addresses()[0], &Identity::new(1));
        let controller = admin.fetch(Sqe::new(identify::OPCODE, 0).with_dword(10, 1), 4096);
        let independent: Vec<u8> = (1..=u32::try_from(devices.len()).unwrap())
            .map(|nsid| admin.fetch(Sqe::new(identify::OPCODE, nsid).with_dword(10, 8), 4096)[0])
            .collect();
        let cache = |opcode| Sqe::new(opcode, 0).with_dword(10, feature::WRITE_CACHE.into());
        let get = admin.run(cache(feature::GET), Payload::None).0;
        let set = |admin: &mut Client, value| {
            admin.run(cache(feature::SET).with_dword(11, value), Payload::None).0.status
        };
        let (on, off) = (set(&mut admin, 1), set(&mut admin, 0));
        (controller[525] & 1, independent, (get.status, get.result), on, off)
    };
    let (ok, invalid) = (Status::SUCCESS, Status::INVALID_FIELD.final_());
    let refused = Status::NOT_CHANGEABLE.final_();
    let through = WriteThrough::over(volatile());
    assert_eq!(
        answers(vec![volatile(), through.clone(), memory(1)]),
        (1, vec![0, NSFEAT_VWCNP, NSFEAT_VWCNP], (ok, 1), ok, refused)
    );
    assert_eq!(answers(vec![through]), (0, vec![NSFEAT_VWCNP], (invalid, 0), invalid, invalid));
}
