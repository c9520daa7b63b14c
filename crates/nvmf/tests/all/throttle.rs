//! Limits of namespaces: they hold, no other namespace waits for them, and they change while hosts are connected.

use std::sync::Arc;
use std::time::Duration;

use crate::common::client::{Client, Identity};
use crate::common::{config, memory, open};
use esker_base::pace::Rate;
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::{Device, Port};
use esker_nvmf::conn::Payload;
use esker_nvmf::target::{NamespaceConfig, Target, TargetConfig};
use esker_nvmf::wire::capsule::Sqe;
use esker_nvmf::wire::command::{LbaRange, io};
use esker_nvmf::wire::status::Status;

/// Two namespaces, of which the first has a limit.
fn limited(device: Arc<dyn Device>, rate: Rate) -> TargetConfig {
    let mut config = config(device);
    let second = NamespaceConfig { nsid: 2, device: memory(1), uuid: None };
    config.subsystems[0].namespaces.push(second);
    config.subsystems[0].rates.insert(1, rate);
    config
}

fn read(host: &mut Client, nsid: u32) -> u16 {
    let range = LbaRange { slba: 0, count: 8, fua: false, placement: None };
    host.submit(range.put(Sqe::new(io::READ, nsid)), Payload::In(AlignedBuf::zeroed(4096)))
}

fn all_succeed(host: &mut Client, ids: Vec<u16>) {
    ids.into_iter().for_each(|id| assert_eq!(host.wait(id).0.status, Status::SUCCESS));
}

fn timed(work: impl FnOnce()) -> Duration {
    let clock = Clock::real();
    let began = clock.now();
    work();
    clock.now().since(began)
}

#[test]
fn limit_holds_and_other_namespaces_of_the_connection_do_not_wait() {
    let ms = Duration::from_millis;
    for rate in [Rate { operations: 20, bytes: 0 }, Rate { operations: 0, bytes: 20 * 4096 }] {
        let target = Target::start(&limited(memory(1), rate)).unwrap();
        let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
        let held: Vec<_> = (0..21).map(|_| read(&mut host, 1)).collect();
        let took = timed(|| {
            for _ in 0..100 {
                let id = read(&mut host, 2);
                all_succeed(&mut host, vec![id]);
            }
        });
        assert!(took < ms(500), "{rate:?}: {took:?}, and the limited ones take a second");
        assert!(!host.has_answer(held[20]), "{rate:?}");
        let rest = took + timed(|| all_succeed(&mut host, held));
        assert!((ms(900)..ms(3000)).contains(&rest), "{rate:?}: 20 a second, and 21 took {rest:?}");
    }
}

#[test]
fn limit_changes_for_commands_that_it_holds_already() {
    let slow = Rate { operations: 1, bytes: 0 };
    let mut config = limited(memory(1), slow);
    let target = Target::start(&config).unwrap();
    let (_admin, mut host) = Client::pair(target.addresses()[0], &Identity::new(1));
    let held: Vec<_> = (0..30).map(|_| read(&mut host, 1)).collect();
    Clock::real().sleep(Duration::from_millis(100));
    config.subsystems[0].rates.insert(1, Rate { operations: 1000, bytes: 0 });
    let took = timed(|| {
        target.reconfigure(&config).unwrap();
        all_succeed(&mut host, held);
    });
    assert!(took < Duration::from_secs(10), "30 at one a second: {took:?}");
    config.subsystems[0].rates.clear();
    target.reconfigure(&config).unwrap();
    let ids = (0..30).map(|_| read(&mut host, 1)).collect();
    all_succeed(&mut host, ids);
    // A limit that comes while the host is there holds, too.
    config.subsystems[0].rates.insert(1, Rate { operations: 20, bytes: 0 });
    target.reconfigure(&config).unwrap();
    let ids = (0..11).map(|_| read(&mut host, 1)).collect();
    let took = timed(|| all_succeed(&mut host, ids));
    assert!(took > Duration::from_millis(400), "{took:?}");
}

/// The limit makes commands wait longer than a device may be silent: they are no errors.
#[test]
fn commands_that_a_limit_holds_are_not_late_and_end_with_their_connection() {
    let mut config = limited(memory(1), Rate { operations: 2, bytes: 0 });
    config.limits.command = Duration::from_millis(300);
    let target = Target::start(&config).unwrap();
    let at = target.addresses()[0];
    let (admin, mut host) = Client::pair(at, &Identity::new(1));
    let ids = (0..5).map(|_| read(&mut host, 1)).collect();
    all_succeed(&mut host, ids);
    assert_eq!(target.metrics().late, 0);
    // Ten seconds of commands are left, and the host goes.
    for _ in 0..20 {
        read(&mut host, 1);
    }
    host.run(Sqe::new(io::FLUSH, 2), Payload::None);
    drop((admin, host));
    let clock = Clock::real();
    for _ in 0..300 {
        if target.metrics().connections == 0 {
            break;
        }
        clock.sleep(Duration::from_millis(10));
    }
    assert_eq!(target.metrics().connections, 0, "it waits for commands that nobody wants");
    drop(target.close());
}

#[test]
fn initiator_keeps_to_the_limit() {
    let target =
        Target::start(&limited(memory(1), Rate { operations: 0, bytes: 1 << 20 })).unwrap();
    let initiator = open(&target);
    let mut port = Port::open(&initiator, 4).unwrap();
    let took = timed(|| {
        for lba in 0..128 {
            port.write(Lba(lba * 8), AlignedBuf::zeroed(4096), None).unwrap();
        }
    });
    assert!(took > Duration::from_millis(400), "512 KiB at 1 MiB a second: {took:?}");
}
