//! Thousands of Aborts against a device with a thread of its own: each command has one answer, and each read that
//! succeeds the content of its own LBAs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::{config, memory};
use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Command, Device, DeviceError, DeviceStats, Geometry, Port, QueuePair};
use esker_nvmf::conn::Payload;
use esker_nvmf::target::Target;
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::command::{DSM_DEALLOCATE, DsmRange, LbaRange, admin, io};
use esker_nvmf::wire::status::Status;

const LBAS: u64 = 2048;

/// Memory that is driven by a thread, and slow enough for commands to wait for it.
struct Aside(Arc<dyn Device>);

struct Queue(Box<dyn QueuePair>);

impl Device for Aside {
    fn queue_pair(&self, depth: usize) -> Result<Box<dyn QueuePair>, DeviceError> {
        Ok(Box::new(Queue(self.0.queue_pair(depth)?)))
    }
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn name(&self) -> &str {
        self.0.name()
    }
    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }
}

impl QueuePair for Queue {
    fn submit(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, DeviceError> {
        let mut first = commands.drain(..commands.len().min(1)).collect();
        self.0.submit(&mut first)
    }

    esker_device::forward!(0: poll, wait, in_flight);
}

/// A device whose every LBA begins with its number.
fn numbered() -> Arc<dyn Device> {
    let device = memory(1);
    let mut port = Port::open(&*device, 1).unwrap();
    for lba in 0..LBAS {
        let mut buf = AlignedBuf::zeroed(512);
        buf.as_chunks_mut::<8>().0.fill(lba.to_le_bytes());
        port.write(Lba(lba), buf, None).unwrap();
    }
    device
}

fn read(lba: u64, count: u32) -> (Sqe, Payload) {
    let range = LbaRange { slba: lba, count, fua: false, placement: None };
    let size = usize::try_from(count).unwrap() * 512;
    (range.put(Sqe::new(io::READ, 1)), Payload::In(AlignedBuf::zeroed(size)))
}

/// A command of several pieces: ranges that nobody reads are freed.
fn discard() -> (Sqe, Payload) {
    let range = |n| DsmRange { attributes: 0, count: 1, slba: LBAS - 1 - n }.encode();
    let data: Vec<u8> = (0..8).flat_map(range).collect();
    let sqe = Sqe::new(io::DSM, 1).with_dword(10, 7).with_dword(11, DSM_DEALLOCATE);
    (sqe, Payload::Out(AlignedBuf::padded(&data, 1)))
}

fn abort(cid: u16) -> Sqe {
    Sqe::new(admin::ABORT, 0).with_dword(10, 1 | u32::from(cid) << 16)
}

#[test]
fn aborted_commands_have_one_answer_and_reads_have_their_own_content() {
    for workers in [1, 2] {
        let mut config = config(Arc::new(Aside(numbered())));
        config.limits.workers = workers;
        let target = Target::start(&config).unwrap();
        let (mut admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
        let mut rng = Rng::new(7);
        let (mut asked, mut aborted) = (0, 0);
        let clock = Clock::real();
        let end = clock.now() + Duration::from_secs(25);
        while asked < 12_000 && clock.now() < end {
            let mut sent = VecDeque::new();
            for _ in 0..16 {
                let lba = rng.below(LBAS - 16);
                let (sqe, data) = if rng.below(8) == 0 { discard() } else { read(lba, 1) };
                let is_read = sqe.opcode == io::READ;
                sent.push_back((host.submit(sqe, data), lba, is_read));
            }
            let mut aborts = Vec::new();
            for _ in 0..4 {
                let (cid, ..) = sent[usize::try_from(rng.below(16)).unwrap()];
                aborts.push((admin.submit(abort(cid), Payload::None), cid));
            }
            asked += aborts.len();
            let answers: Vec<_> = aborts
                .into_iter()
                .map(|(asked, cid)| {
                    let (cqe, _) = admin.wait(asked);
                    assert!(cqe.status.is_success(), "{}", cqe.status);
                    (cid, cqe.result == 0)
                })
                .collect();
            for (cid, lba, is_read) in sent {
                // A second answer breaks the protocol, which the host finds.
                let (cqe, payload) = host.wait(cid);
                let is_aborted = answers.contains(&(cid, true));
                if is_aborted {
                    assert_eq!(cqe.status, Status::ABORTED, "{cid}");
                    aborted += 1;
                    continue;
                }
                assert!(cqe.status.is_success(), "{cid}: {}", cqe.status);
                let buf = payload.into_buf().filter(|_| is_read);
                if let Some(buf) = buf {
                    let got = u64::from_le_bytes(buf[..8].try_into().unwrap());
                    assert_eq!(got, lba, "after {asked} Aborts: the content of another LBA");
                }
            }
        }
        assert!(asked >= 2000 && aborted > asked / 20, "{aborted} of {asked} were aborted");
        let flows = target.metrics().flows;
        assert_eq!(flows.iter().map(|flow| flow.in_flight).sum::<u64>(), 0);
        target.close().unwrap();
    }
}

fn write(lba: u64) -> (Sqe, Payload) {
    let range = LbaRange { slba: lba, count: 1, fua: false, placement: None };
    let mut buf = AlignedBuf::zeroed(512);
    buf.as_chunks_mut::<8>().0.fill(lba.to_le_bytes());
    (range.put(Sqe::new(io::WRITE, 1)), Payload::Out(buf))
}

#[test]
fn queues_that_end_among_aborts_leave_content_and_answers_right() {
    let mut config = config(Arc::new(Aside(numbered())));
    config.limits.workers = 2;
    let target = Target::start(&config).unwrap();
    let at = target.addresses()[0];
    let (_admin, mut witness) = Client::pair(at, &Identity::new(2));
    let mut rng = Rng::new(11);
    for round in 0..200 {
        let (mut admin, mut host) = Client::pair(at, &Identity::new(1));
        let sent: Vec<u16> = (0..16)
            .map(|_| {
                let lba = rng.below(LBAS - 16);
                let (sqe, data) = if rng.below(2) == 0 { write(lba) } else { read(lba, 1) };
                host.submit(sqe, data)
            })
            .collect();
        let aborts: Vec<u16> = (0..4)
            .map(|_| {
                let cid = sent[usize::try_from(rng.below(16)).unwrap()];
                admin.submit(abort(cid), Payload::None)
            })
            .collect();
        match round % 3 {
            0 => drop(host),
            1 => {
                admin.configure(0);
                drop(host);
            }
            _ => drop((host, std::mem::replace(&mut admin, Client::pair(at, &Identity::new(3)).0))),
        }
        // Each Abort has its answer, whatever became of the queue: a reset aborts it, too.
        for cid in aborts.into_iter().filter(|_| round % 3 < 2) {
            let (cqe, _) = admin.wait(cid);
            assert!(cqe.status.is_success() || cqe.status == Status::ABORTED, "{}", cqe.status);
        }
        for _ in 0..16 {
            let lba = rng.below(LBAS - 16);
            let (sqe, _) = read(lba, 1);
            let got = witness.fetch(sqe, 512);
            assert!(got.chunks(8).all(|part| part == lba.to_le_bytes()), "round {round}");
        }
    }
    target.close().unwrap();
}
