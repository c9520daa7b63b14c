//! Targets that are broken or mean harm, as the initiator sees them: it goes to another path, it
//! waits between attempts, and it gives up when it said it would.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use crate::common::relay::{Mood, Relay, Trickle};
use crate::common::{memory, reach, serve};
use esker_base::{AlignedBuf, Clock, ErrorKind, Lba, thread};
use esker_device::{Device, DeviceError, Port};
use esker_nvmf::wire::status::Status;
use esker_nvmf::{Initiator, InitiatorConfig};

fn read(port: &mut Port) -> Result<AlignedBuf, DeviceError> {
    port.read(Lba(0), AlignedBuf::zeroed(4096))
}

/// How long something takes.
fn timed<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let clock = Clock::real();
    let began = clock.now();
    let result = act();
    (result, clock.now().since(began))
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn broken_target_is_tried_with_growing_pauses_until_give_up() {
    let target = serve(memory(1));
    let relay = Relay::to(target.addresses()[0], Mood::Well);
    let config = InitiatorConfig { give_up: seconds(2), ..reach(vec![relay.address]) };
    let host = config.host_nqn.clone();
    let initiator = Initiator::open(config).unwrap();
    let mut port = Port::open(&initiator, 4).unwrap();
    read(&mut port).unwrap();
    relay.set(Mood::Breaks);
    let before = relay.queues();
    let (outcome, took) = timed(|| read(&mut port));
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    let said = format!("host {host} gave up after 2s without progress (give-up)");
    assert!(error.to_string().contains(&said), "{error}");
    assert!((seconds(1)..seconds(5)).contains(&took), "{took:?} instead of 2 s");
    let attempts = relay.queues() - before;
    assert!((2..=40).contains(&attempts), "{attempts} attempts in {took:?}");
    // The device goes on when the target does.
    relay.set(Mood::Well);
    read(&mut port).unwrap();
}

#[test]
fn queue_pair_over_broken_target_is_dropped_in_bounded_time() {
    let target = serve(memory(1));
    let relay = Relay::to(target.addresses()[0], Mood::Breaks);
    let initiator = Initiator::open(reach(vec![relay.address])).unwrap();
    let mut queue = initiator.queue_pair(4).unwrap();
    let op = esker_device::Op::Read { lba: Lba(0), buf: AlignedBuf::zeroed(512) };
    let command = esker_device::Command { tag: esker_device::Tag(1), op };
    queue.submit(&mut [command].into()).unwrap();
    let ((), took) = timed(|| drop((queue, initiator)));
    assert!(took < seconds(7), "{took:?}, and give-up is 30 s");
}

#[test]
fn commands_leave_a_path_whose_io_fails_though_it_connects() {
    for mood in [
        Mood::Breaks,
        Mood::Says(Status::PATH_INTERNAL),
        Mood::Says(Status::ANA_INACCESSIBLE),
        Mood::Says(Status::ANA_TRANSITION),
        Mood::Says(Status(0x371)),
        Mood::Trickles(Trickle::NoData),
    ] {
        let target = serve(memory(1));
        let (ill, well) =
            (Relay::to(target.addresses()[0], mood), Relay::to(target.addresses()[0], Mood::Well));
        let portals = vec![ill.address, well.address];
        let initiator =
            Initiator::open(InitiatorConfig { give_up: seconds(10), ..reach(portals) }).unwrap();
        let mut port = Port::open(&initiator, 4).unwrap();
        let (outcome, took) = timed(|| read(&mut port));
        outcome.unwrap_or_else(|error| panic!("{mood:?}: {error}"));
        assert!(took < seconds(3), "{mood:?}: {took:?}");
        // It is tried again, less and less often; the other one serves meanwhile.
        let clock = Clock::real();
        for _ in 0..100 {
            read(&mut port).unwrap();
            clock.sleep(Duration::from_millis(10));
        }
        assert!(ill.queues() < 30, "{mood:?}: {} queues on the path that is ill", ill.queues());
        // When it has recovered it is taken again, if the other one is lost.
        ill.set(Mood::Well);
        well.set(Mood::Breaks);
        read(&mut port).unwrap_or_else(|error| panic!("{mood:?}: {error}"));
    }
}

#[test]
fn error_of_the_medium_is_the_callers_at_once() {
    let target = serve(memory(1));
    let status = Status::READ_ERROR.final_();
    let ill = Relay::to(target.addresses()[0], Mood::Says(status));
    let well = Relay::to(target.addresses()[0], Mood::Well);
    let initiator = Initiator::open(reach(vec![ill.address, well.address])).unwrap();
    let mut port = Port::open(&initiator, 4).unwrap();
    let error = read(&mut port).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_eq!((ill.commands(), well.commands()), (1, 0));
}

#[test]
fn bytes_that_complete_nothing_postpone_no_deadline() {
    let target = serve(memory(1));
    for what in [Trickle::NoData, Trickle::Dwords] {
        let relay = Relay::to(target.addresses()[0], Mood::Trickles(what));
        let config = InitiatorConfig {
            timeout: Duration::from_millis(500),
            give_up: seconds(1),
            keep_alive: Duration::from_millis(500),
            ..reach(vec![relay.address])
        };
        let initiator = Initiator::open(config).unwrap();
        let mut port = Port::open(&initiator, 4).unwrap();
        let buf = AlignedBuf::zeroed(1 << 20);
        let (outcome, took) = timed(|| port.read(Lba(0), buf));
        outcome.unwrap_err();
        assert!(took < seconds(5), "{what:?}: {took:?}");
    }
}

/// A listener that reads everything, and says a byte of `said` every 20 ms, over and over.
fn mumbler(said: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn("mumbler", move || {
        for stream in listener.incoming() {
            let (mut stream, said) = (stream.unwrap(), said.clone());
            thread::spawn("mumble", move || {
                let clock = Clock::real();
                let mut reader = stream.try_clone().unwrap();
                thread::spawn(
                    "listen",
                    move || while reader.read(&mut [0; 4096]).unwrap_or(0) > 0 {},
                )
                .unwrap();
                for byte in said.iter().cycle() {
                    if stream.write_all(&[*byte]).is_err() {
                        return;
                    }
                    clock.sleep(Duration::from_millis(20));
                }
            })
            .unwrap();
        }
    })
    .unwrap();
    address
}

#[test]
fn connecting_ends_in_time_whatever_trickles_in() {
    // An ICResp, which takes 2.5 s to come; then the same again, which is none of its business.
    let mut ic_resp = vec![0; 128];
    (ic_resp[0], ic_resp[2], ic_resp[4]) = (1, 128, 128);
    ic_resp[12..16].copy_from_slice(&(1u32 << 20).to_le_bytes());
    let address = mumbler(ic_resp);
    let config = InitiatorConfig { timeout: Duration::from_millis(500), ..reach(vec![address]) };
    let (outcome, took) = timed(|| Initiator::open(config));
    assert!(outcome.is_err());
    assert!(took < seconds(2), "{took:?}");
}

#[test]
fn slow_answers_do_not_add_up_while_connecting() {
    // Each answer comes just in time; all of them together do not.
    let target = serve(memory(1));
    let relay =
        crate::common::relay::Sluggish::to(target.addresses()[0], Duration::from_millis(350));
    let config = InitiatorConfig { timeout: Duration::from_millis(500), ..reach(vec![relay]) };
    let (outcome, took) = timed(|| Initiator::open(config));
    assert!(outcome.is_err());
    assert!(took < seconds(2), "{took:?}");
}

#[test]
fn remarks_tell_how_often_a_path_has_failed() {
    let target = serve(memory(1));
    let (ill, well) = (
        Relay::to(target.addresses()[0], Mood::Breaks),
        Relay::to(target.addresses()[0], Mood::Well),
    );
    let initiator = Arc::new(Initiator::open(reach(vec![ill.address, well.address])).unwrap());
    let mut port = Port::open(&*initiator, 4).unwrap();
    read(&mut port).unwrap();
    let remarks = initiator.remarks().join("\n");
    assert!(remarks.contains(&ill.address.to_string()) && remarks.contains("failed"), "{remarks}");
    ill.cut();
}
