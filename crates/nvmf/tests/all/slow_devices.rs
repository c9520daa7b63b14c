//! Devices that are slow, or hang: other namespaces go on, hosts are answered in time, a write that is still
//! under way meets no later one, and the target can be closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::{config, memory};
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::{Device, MemoryDevice, Port};
use esker_nvmf::NvmfError;
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{NamespaceConfig, Target};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::command::{LbaRange, io};
use esker_nvmf::wire::status::Status;
use esker_sim::{Fate, HookDevice};

/// Longest time for a small command of another namespace, on a machine that has other work.
const SOON: Duration = Duration::from_secs(1);
/// How long the target waits for a device.
const LIMIT: Duration = Duration::from_millis(500);

/// Where a device hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// Its queue pair is not opened.
    Opening,
    /// The thread that submits is not let go.
    Submitting,
    /// Commands are taken, and nothing comes of them.
    Within,
}

/// Memory behind a gate: commands that come while it is shut are executed when it opens.
struct Gated {
    memory: Arc<dyn Device>,
    device: Arc<HookDevice>,
    is_shut: Arc<AtomicBool>,
}

impl Gated {
    fn new(hangs: Where) -> Gated {
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("gated", 1 << 20, 512));
        let is_shut = Arc::new(AtomicBool::new(true));
        let (opening, submitting) = (is_shut.clone(), is_shut.clone());
        let pass = |is_shut: &AtomicBool| {
            while is_shut.load(Ordering::SeqCst) {
                Clock::real().sleep(Duration::from_millis(1));
            }
        };
        let device = HookDevice::new(memory.clone())
            .on_open(move || {
                if hangs == Where::Opening {
                    pass(&opening);
                }
                Ok(())
            })
            .on_command(move |op| {
                if hangs == Where::Submitting {
                    pass(&submitting);
                }
                // Commands that begin with an odd LBA pass.
                let is_odd = op.range(512).0.0 % 2 == 1;
                match submitting.load(Ordering::SeqCst) && !is_odd {
                    true => Fate::Hold,
                    false => Fate::Pass,
                }
            });
        Gated { memory, device: Arc::new(device), is_shut }
    }

    fn open(&self) {
        self.is_shut.store(false, Ordering::SeqCst);
    }
}

/// A target with a gated namespace 1 and memory as namespace 2.
fn target(hangs: Where) -> (Target, Gated) {
    let gated = Gated::new(hangs);
    let mut config = config(gated.device.clone());
    let second = NamespaceConfig { nsid: 2, device: memory(1), uuid: None };
    config.subsystems[0].namespaces.push(second);
    config.limits.command = LIMIT;
    config.limits.closing = LIMIT;
    (Target::start(&config).unwrap(), gated)
}

fn command(opcode: u8, nsid: u32, slba: u64, fill: u8) -> (Sqe, Payload) {
    let sqe = LbaRange { slba, count: 1, fua: false, placement: None }.put(Sqe::new(opcode, nsid));
    let mut buf = AlignedBuf::zeroed(512);
    buf.fill(fill);
    (sqe, if opcode == io::READ { Payload::In(buf) } else { Payload::Out(buf) })
}

fn submit(host: &mut Client, (sqe, payload): (Sqe, Payload)) -> u16 {
    host.submit(sqe, payload)
}

fn run(host: &mut Client, (sqe, payload): (Sqe, Payload)) -> Status {
    host.run(sqe, payload).0.status
}

#[test]
fn namespace_whose_device_hangs_holds_back_no_other() {
    for hangs in [Where::Opening, Where::Submitting, Where::Within] {
        let (target, gated) = target(hangs);
        let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
        // One that the device has, and one more that comes while it hangs.
        let first = submit(&mut host, command(io::READ, 1, 0, 0));
        let clock = Clock::real();
        for _ in 0..20 {
            let began = clock.now();
            assert_eq!(run(&mut host, command(io::WRITE, 2, 7, 7)), Status::SUCCESS);
            let took = clock.now().since(began);
            assert!(took < SOON, "{hangs:?}: a neighbour waited for {took:?}");
        }
        let status = host.wait(first).0.status;
        assert_eq!(status, Status::PATH_INTERNAL, "{hangs:?}: nothing has changed");
        gated.open();
        while run(&mut host, command(io::READ, 1, 0, 0)) != Status::SUCCESS {}
        target.close().unwrap();
    }
}

#[test]
fn write_that_was_answered_early_is_never_done_over_a_later_one() {
    let (target, gated) = target(Where::Within);
    let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    let late = submit(&mut host, command(io::WRITE, 1, 0, 1));
    assert_eq!(host.wait(late).0.status, Status::INTERNAL, "it may still happen");
    assert_eq!(target.metrics().late, 1);
    // Other LBAs are not kept; these are, until the late write has ended or the host has waited long enough.
    assert_eq!(run(&mut host, command(io::WRITE, 1, 1, 9)), Status::SUCCESS);
    assert_eq!(run(&mut host, command(io::WRITE, 1, 0, 2)), Status::PATH_INTERNAL);
    let newer = submit(&mut host, command(io::WRITE, 1, 0, 3));
    gated.open();
    assert_eq!(host.wait(newer).0.status, Status::SUCCESS);
    let mut port = Port::open(&*gated.memory, 1).unwrap();
    Clock::real().sleep(Duration::from_millis(100)); // whatever is still under way arrives
    assert_eq!(port.read(Lba(0), AlignedBuf::zeroed(512)).unwrap()[0], 3);
    // The queue is as good as before.
    for round in 0..100 {
        assert_eq!(run(&mut host, command(io::WRITE, 1, round, 4)), Status::SUCCESS);
    }
}

#[test]
fn write_of_a_connection_that_ended_is_never_done_over_a_later_one() {
    let (target, gated) = target(Where::Within);
    let at = target.addresses()[0];
    let pair = Client::pair(at, &Identity::new(1));
    let (admin, mut host) = pair;
    submit(&mut host, command(io::WRITE, 1, 0, 1));
    while gated.device.held() < 1 {
        Clock::real().sleep(Duration::from_millis(1));
    }
    drop((admin, host));
    let clock = Clock::real();
    clock.sleep(Duration::from_millis(50)); // the target hears of it
    let (_admin, mut host) = Client::pair(at, &Identity::new(1));
    let newer = submit(&mut host, command(io::WRITE, 1, 0, 2));
    clock.sleep(Duration::from_millis(50)); // and of this write
    gated.open();
    assert_eq!(host.wait(newer).0.status, Status::SUCCESS);
    clock.sleep(Duration::from_millis(100));
    let mut port = Port::open(&*gated.memory, 1).unwrap();
    assert_eq!(port.read(Lba(0), AlignedBuf::zeroed(512)).unwrap()[0], 2);
}

#[test]
fn device_that_hangs_for_long_is_given_no_more_than_so_many_commands() {
    let (target, gated) = target(Where::Within);
    let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    for _ in 0..6 {
        let ids: Vec<_> = (0..30).map(|_| submit(&mut host, command(io::READ, 1, 0, 0))).collect();
        for id in ids {
            assert_eq!(host.wait(id).0.status, Status::PATH_INTERNAL);
        }
    }
    let held = gated.device.held();
    assert!(held < 64 + 30, "{held}");
    gated.open();
    while run(&mut host, command(io::READ, 1, 0, 0)) != Status::SUCCESS {}
}

#[test]
fn target_whose_device_hangs_closes_in_time_and_says_so() {
    for hangs in [Where::Opening, Where::Submitting, Where::Within] {
        let (target, gated) = target(hangs);
        let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
        let late = submit(&mut host, command(io::WRITE, 1, 0, 1));
        assert_eq!(run(&mut host, command(io::WRITE, 2, 0, 1)), Status::SUCCESS);
        let _ = host.wait(late);
        let clock = Clock::real();
        let began = clock.now();
        let error = target.close().unwrap_err();
        let took = clock.now().since(began);
        assert!(took < 2 * LIMIT + SOON, "{hangs:?}: {took:?}");
        assert!(matches!(&error, NvmfError::Hung { device, .. } if device == "gated"), "{error}");
        gated.open(); // its threads end
    }
}
