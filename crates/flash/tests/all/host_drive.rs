//! A drive that the host manages, as a device. Where it puts data, before and after power cuts, and the work of the
//! same translation layer on either side.

use std::sync::Arc;

use crate::common::outlet::Outlet;
use crate::common::small;
use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Device, MemoryDevice, Port};
use esker_flash::drive::Media;
use esker_flash::profile::Profile;
use esker_flash::timing::HostQueues;
use esker_flash::{Pace, Parameters, Ssd};

fn managed() -> Parameters {
    let mut parameters = small(Media::Flash);
    parameters.timing.host_queues = Some(HostQueues {
        window: 8,
        in_flight: 0,
        cached_pages: 8,
        copy_bytes_per_s: 4_000_000_000,
    });
    (parameters.channels, parameters.dies, parameters.configurations) = (2, 8, Vec::new());
    parameters
}

fn virtual_time() -> Pace {
    Pace::virtual_time(Clock::virtual_time())
}

/// Writes at random, with reads between, so that dies are busy in no order.
fn churn(ssd: &Ssd, rounds: u64, seed: u64) {
    let namespace = ssd.namespace(1).unwrap();
    let geometry = namespace.geometry();
    let pages = geometry.capacity.bytes(geometry.lba_size) / 4096;
    let mut port = Port::open(&namespace, 16).unwrap();
    let mut rng = Rng::new(seed);
    for round in 0..rounds {
        let lba = Lba(rng.below(pages) * u64::from(4096 / geometry.lba_size));
        let mut buf = AlignedBuf::zeroed(4096);
        buf[..8].copy_from_slice(&round.to_le_bytes());
        port.write(lba, buf, None).unwrap();
        for _ in 0..rng.below(3) {
            let lba = Lba(rng.below(pages) * u64::from(4096 / geometry.lba_size));
            port.read(lba, AlignedBuf::zeroed(4096)).unwrap();
        }
    }
    port.flush().unwrap();
}

fn dies(ssd: &Ssd) -> Vec<Option<u32>> {
    let namespace = ssd.namespace(1).unwrap();
    let geometry = namespace.geometry();
    let pages = geometry.capacity.bytes(geometry.lba_size) / 4096;
    let per_page = u64::from(4096 / geometry.lba_size);
    (0..pages).map(|page| ssd.die(1, Lba(page * per_page)).unwrap()).collect()
}

#[test]
fn dies_that_the_host_chose_are_found_again_after_a_power_cut() {
    for seed in 0..6 {
        let parameters = managed();
        let bytes = Ssd::image_bytes(&parameters).unwrap();
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", bytes, 512));
        let outlet = Outlet::new(memory.clone(), 0);
        let ssd = Ssd::create("managed", &parameters, outlet.clone(), virtual_time()).unwrap();
        ssd.create_namespace(parameters.capacity, None).unwrap();
        churn(&ssd, 400 * (seed + 1), seed);
        let before = dies(&ssd);
        let in_turn = (0..).zip(&before).filter(|(page, die)| **die == Some(page / 4 % 8)).count();
        assert!(in_turn < before.len() / 2, "the host has chosen");
        outlet.cut();
        drop(ssd);
        // Whether time is modelled or not, and through a checkpoint without it.
        assert_eq!(dies(&Ssd::open(memory.clone(), virtual_time()).unwrap()), before);
        assert_eq!(dies(&Ssd::open(memory.clone(), Pace::untimed()).unwrap()), before);
        let ssd = Ssd::open(memory, virtual_time()).unwrap();
        assert_eq!(dies(&ssd), before);
        churn(&ssd, 300, seed + 100);
    }
}

/// The layer is one, told apart by the media under it: the same writes lead to the same maps and counts.
#[test]
fn the_layer_writes_the_same_on_either_side() {
    let of = |parameters: &Parameters, pace: Pace| {
        let ssd = Ssd::without_data("drive", parameters, pace).unwrap();
        ssd.create_namespace(parameters.capacity, None).unwrap();
        churn(&ssd, 6_000, 5);
        ssd.report().pages
    };
    let mut conventional = managed();
    conventional.timing.host_queues = None;
    let expected = of(&conventional, Pace::untimed());
    assert!(expected.copied > 1000, "{expected:?}");
    for pace in [Pace::untimed(), virtual_time()] {
        assert_eq!(of(&managed(), pace), expected);
    }
    assert_eq!(of(&conventional, virtual_time()), expected);
}

#[test]
fn a_host_that_chooses_dies_puts_writes_where_no_read_is() {
    // Die 0 is read all the time; of a row that is written meanwhile it gets the last stripe.
    let mut parameters = managed();
    parameters.timing.host_queues.as_mut().unwrap().cached_pages = 0;
    (parameters.unit_size, parameters.units) = (2 * parameters.unit_size, parameters.units / 2);
    let clock = Clock::virtual_time();
    let ssd = Ssd::without_data("drive", &parameters, Pace::virtual_time(clock.clone())).unwrap();
    ssd.create_namespace(parameters.capacity, None).unwrap();
    let namespace = ssd.namespace(1).unwrap();
    let mut port = Port::open(&namespace, 32).unwrap();
    let write = |port: &mut Port, page: u64| {
        port.write(Lba(page * 8), AlignedBuf::zeroed(16 << 10), None).unwrap();
    };
    (0..8).for_each(|stripe| write(&mut port, 4 * stripe));
    clock.advance(std::time::Duration::from_millis(20));
    let busy = ssd.die(1, Lba(0)).unwrap().unwrap();
    let mut queue = namespace.queue_pair(64).unwrap();
    let mut batch: std::collections::VecDeque<_> = (0..40)
        .map(|n| {
            let (lba, buf) = (Lba(n % 4 * 8), AlignedBuf::zeroed(512));
            esker_device::Command {
                tag: esker_device::Tag(n),
                op: esker_device::Op::Read { lba, buf },
            }
        })
        .collect();
    queue.submit(&mut batch).unwrap();
    // The reads are with the host's queues now.
    clock.advance(std::time::Duration::from_micros(10));
    (8..15).for_each(|stripe| write(&mut port, 4 * stripe));
    let chosen: Vec<u32> =
        (8..15).map(|stripe| ssd.die(1, Lba(32 * stripe)).unwrap().unwrap()).collect();
    assert!(!chosen.contains(&busy), "{chosen:?} has {busy}");
}

#[test]
fn the_profile_has_both_sides_of_the_same_nand() {
    let host = Profile::find("host-managed-256").unwrap();
    let drive = host.in_drive.clone().unwrap();
    let (host, drive) = (host.ssd().unwrap().clone(), drive.ssd().unwrap().clone());
    assert!(host.timing.host_queues.is_some() && drive.timing.host_queues.is_none());
    let nand = |one: &Parameters| {
        let timing = &one.timing;
        (one.dies, one.channels, one.media_bytes(), timing.read_ns, timing.program_ns)
    };
    assert_eq!(nand(&host), nand(&drive));
}
