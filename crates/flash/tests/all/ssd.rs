//! The drive as a device.

use std::sync::Arc;

use crate::common::small;
use esker_base::{AlignedBuf, Clock, Lba, LbaCount};
use esker_device::fdp::{EventType, HandleUse, Reporter};
use esker_device::{Device, MemoryDevice, PlacementId, Port, conformance};
use esker_flash::drive::Media;
use esker_flash::{Pace, Parameters, Ssd};

fn paces() -> [Pace; 2] {
    [Pace::untimed(), Pace::virtual_time(Clock::virtual_time())]
}

#[test]
fn a_namespace_keeps_the_contract_of_devices() {
    for media in [Media::Flash, Media::InPlace] {
        for pace in paces() {
            let lba_size = if pace.clock().is_some() { 512 } else { 4096 };
            let parameters = Parameters { lba_size, ..small(media) };
            let ssd = Ssd::new("model", &parameters, pace).unwrap();
            let id = ssd.create_namespace(2 << 20, None).unwrap();
            let other = ssd.create_namespace(1 << 20, None).unwrap();
            assert_eq!(ssd.namespace(id).unwrap().discards_zero(), lba_size == 4096);
            conformance::check(&ssd.namespace(id).unwrap(), 8, 3000, 1);
            conformance::check(&ssd.namespace(other).unwrap(), 1, 1000, 2);
        }
    }
}

/// Read and write commands that a drive has had, and bytes read.
fn commands_of(namespace: &dyn Device) -> (u128, u128, u128) {
    let endurance = namespace.data_placement().unwrap().endurance();
    (endurance.host_reads, endurance.host_writes, endurance.host_read_bytes)
}

#[test]
fn a_drive_on_a_device_is_found_again() {
    for media in [Media::Flash, Media::InPlace] {
        let parameters = small(media);
        let bytes = Ssd::image_bytes(&parameters).unwrap();
        let below: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", bytes, 4096));
        let mut ssd = Ssd::create("kept", &parameters, below.clone(), Pace::untimed()).unwrap();
        let id = ssd.create_namespace(2 << 20, None).unwrap();
        let mut rng = esker_base::Rng::new(4);
        let mut expected = vec![0u8; 2 << 20];
        for round in 0..40u8 {
            let namespace = ssd.namespace(id).unwrap();
            let mut port = Port::open(&namespace, 4).unwrap();
            for _ in 0..50 {
                let lba = rng.below(4096 - 40);
                let size = 512 * usize::try_from(1 + rng.below(40)).unwrap();
                let at = usize::try_from(lba).unwrap() * 512;
                if rng.chance(1, 8) {
                    let count = LbaCount((size / 512) as u64);
                    port.run(esker_device::Op::WriteZeroes { lba: Lba(lba), count }).unwrap();
                    expected[at..at + size].fill(0);
                } else {
                    let mut buf = AlignedBuf::zeroed(size);
                    buf.fill(round + 1);
                    port.write(Lba(lba), buf, None).unwrap();
                    expected[at..at + size].fill(round + 1);
                }
            }
            port.flush().unwrap();
            let host = ssd.report().host_written_bytes;
            let pages = ssd.report().pages;
            let commands = commands_of(&namespace);
            assert_eq!(commands.0 > 0, round > 0);
            ssd = Ssd::open(below.clone(), Pace::untimed()).unwrap();
            assert_eq!((ssd.name(), ssd.namespaces()), ("kept", vec![id]));
            assert_eq!(ssd.report().host_written_bytes, host);
            assert_eq!(ssd.report().pages, pages);
            let namespace = ssd.namespace(id).unwrap();
            assert_eq!(commands_of(&namespace), commands);
            let drive = &namespace.stats().below[0];
            assert_eq!((drive.reads, drive.written_bytes, drive.media_written_bytes), (0, 0, 0));
            let mut port = Port::open(&namespace, 4).unwrap();
            let all = port.read(Lba(0), AlignedBuf::zeroed(1 << 20)).unwrap();
            assert!(all[..] == expected[..1 << 20], "round {round}");
            let all = port.read(Lba(2048), AlignedBuf::zeroed(1 << 20)).unwrap();
            assert!(all[..] == expected[1 << 20..], "round {round}");
        }
    }
}

#[test]
fn placement_is_told_and_counted() {
    let ssd = Ssd::new("fdp", &small(Media::Flash), Pace::untimed()).unwrap();
    let id = ssd.create_namespace(1 << 20, None).unwrap();
    let plain = ssd.namespace(id).unwrap();
    assert_eq!(plain.geometry().placement_handles, 0);
    let fdp = plain.data_placement().unwrap();
    assert_eq!((fdp.enabled(), fdp.configurations().len()), (None, 3));
    assert!(fdp.usage().unwrap_err().to_string().contains("enable a configuration"));
    assert!(fdp.enable(Some(0)).unwrap_err().to_string().contains("no namespace"));
    ssd.delete_namespace(id).unwrap();
    ssd.enable_placement(Some(0)).unwrap();
    // One for each of four handles and for cleaning, and one more.
    assert_eq!(ssd.report().reserve_units, 6);
    let id = ssd.create_namespace(1 << 20, Some(&[2, 0])).unwrap();
    let other = ssd.create_namespace(1 << 20, None).unwrap();
    let namespace = ssd.namespace(id).unwrap();
    assert_eq!(namespace.geometry().placement_handles, 2);
    let fdp = namespace.data_placement().unwrap();
    use HandleUse::{Host, Unused};
    assert_eq!(fdp.usage().unwrap(), [Host, Unused, Host, Unused]);
    assert_eq!(ssd.namespace(other).unwrap().geometry().placement_handles, 1);

    fdp.report_events(PlacementId(0), &EventType::ALL, true).unwrap();
    let mut port = Port::open(&namespace, 1).unwrap();
    port.write(Lba(0), AlignedBuf::zeroed(8192), Some(PlacementId(0))).unwrap();
    port.write(Lba(64), AlignedBuf::zeroed(4096), Some(PlacementId(1))).unwrap();
    let writable = |index: usize| fdp.handles().unwrap()[index].writable;
    assert_eq!((writable(0), writable(1)), (LbaCount(14 * 8), LbaCount(15 * 8)));
    let status = fdp.handles().unwrap()[0];
    assert_eq!((status.placement, status.handle), (PlacementId(0), 2));
    fdp.update(&[PlacementId(0)]).unwrap();
    assert_eq!(writable(0), LbaCount(16 * 8));
    assert!(fdp.update(&[PlacementId(0), PlacementId(2)]).is_err());
    port.write(Lba(128), AlignedBuf::zeroed(4096), Some(PlacementId(7))).unwrap();
    let kinds: Vec<_> =
        fdp.events(Reporter::Host).unwrap().iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventType::NotFullyWritten, EventType::InvalidPlacementId]);
    let statistics = fdp.statistics().unwrap();
    assert_eq!((statistics.host_bytes, statistics.media_bytes), (16_384, 16_384));
}

#[test]
fn unit_that_cleaning_moved_is_told_to_the_handle_whose_pages_it_had() {
    let pages = 1000;
    let moved_for = |reporting: u16| {
        let ssd = Ssd::new("fdp", &small(Media::Flash), Pace::untimed()).unwrap();
        ssd.enable_placement(Some(0)).unwrap();
        let id = ssd.create_namespace(pages * 4096, Some(&[0, 1])).unwrap();
        let namespace = ssd.namespace(id).unwrap();
        let fdp = namespace.data_placement().unwrap();
        let kinds = [EventType::MediaReallocated];
        fdp.report_events(PlacementId(reporting), &kinds, true).unwrap();
        let mut port = Port::open(&namespace, 1).unwrap();
        let mut write = |page: u64, handle| {
            port.write(Lba(page * 8), AlignedBuf::zeroed(4096), Some(PlacementId(handle))).unwrap();
        };
        (0..pages).for_each(|page| write(page, 0));
        // Units of handle 0 lose half of their pages; those of handle 1 all of them, before they are cleaned.
        for _ in 0..8 {
            (0..pages).step_by(2).for_each(|page| write(page, 1));
        }
        let events = fdp.events(Reporter::Controller).unwrap();
        events.iter().map(|event| (event.location, event.moved.unwrap().0)).collect::<Vec<_>>()
    };
    let units = moved_for(0);
    // One for each unit with half of its 16 pages, of 8 LBAs.
    assert!((1..=63).contains(&units.len()), "{units:?}");
    assert!(units.iter().all(|unit| *unit == (Some((0, 0)), 64)), "{units:?}");
    assert_eq!(moved_for(1), []);
}
