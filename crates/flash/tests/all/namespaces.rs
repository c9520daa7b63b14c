//! Namespaces that come and go under their devices, and drives in time that are left in the middle
//! of something.

use std::collections::VecDeque;

use crate::common::small;
use esker_base::{AlignedBuf, Clock, ErrorKind, Lba, LbaCount};
use esker_device::{Command, Device, Op, PlacementId, Port, Tag};
use esker_flash::drive::Media;
use esker_flash::{Pace, Ssd};

fn write(lba: u64, bytes: usize) -> Op {
    Op::Write { lba: Lba(lba), buf: AlignedBuf::zeroed(bytes), placement: None, fua: false }
}

#[test]
fn a_device_of_a_deleted_namespace_fails_and_nothing_else_does() {
    let ssd = Ssd::new("model", &small(Media::Flash), Pace::untimed()).unwrap();
    let old = ssd.create_namespace(2 << 20, None).unwrap();
    let other = ssd.create_namespace(1 << 20, None).unwrap();
    let (device, kept) = (ssd.namespace(old).unwrap(), ssd.namespace(other).unwrap());
    let mut port = Port::open(&device, 1).unwrap();
    ssd.delete_namespace(old).unwrap();
    // A smaller one takes its number and its place.
    assert_eq!(ssd.create_namespace(4096, None).unwrap(), old);
    for op in [
        write(4000, 512),
        Op::Read { lba: Lba(0), buf: AlignedBuf::zeroed(512) },
        Op::Flush,
        Op::WriteZeroes { lba: Lba(0), count: LbaCount(8) },
    ] {
        let error = port.run(op).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(error.to_string().contains("the namespace was deleted"), "{error}");
    }
    Port::open(&kept, 1).unwrap().run(write(0, 512)).unwrap();
    assert!(device.data_placement().unwrap().handles().is_err());
}

#[test]
fn free_bytes_are_those_of_the_largest_gap() {
    let ssd = Ssd::new("model", &small(Media::Flash), Pace::untimed()).unwrap();
    let ids: Vec<u32> = (0..4).map(|_| ssd.create_namespace(1 << 20, None).unwrap()).collect();
    assert_eq!(ssd.free_bytes(), 0);
    ssd.delete_namespace(ids[0]).unwrap();
    ssd.delete_namespace(ids[2]).unwrap();
    assert_eq!(ssd.free_bytes(), 1 << 20);
    assert!(ssd.create_namespace(2 << 20, None).is_err());
    ssd.create_namespace(1 << 20, None).unwrap();
}

/// Pages that an update leaves incomplete, and those that zeroed edges complete, are programmed:
/// later they are read from a die and no longer from the buffer.
#[test]
fn updates_and_zeroed_edges_leave_nothing_in_the_buffer() {
    let clock = Clock::virtual_time();
    let ssd = Ssd::new("timed", &small(Media::Flash), Pace::virtual_time(clock.clone())).unwrap();
    ssd.enable_placement(Some(0)).unwrap();
    let id = ssd.create_namespace(2 << 20, Some(&[0])).unwrap();
    let namespace = ssd.namespace(id).unwrap();
    let mut port = Port::open(&namespace, 1).unwrap();
    let read = |port: &mut Port, page: u64| {
        clock.advance(std::time::Duration::from_secs(1));
        let start = clock.now();
        port.run(Op::Read { lba: Lba(page * 8), buf: AlignedBuf::zeroed(4096) }).unwrap();
        (clock.now() - start).as_nanos()
    };
    port.run(write(0, 3 * 4096)).unwrap();
    assert!(read(&mut port, 1) < 50_000, "three pages of a stripe of four are in the buffer");
    port.run(Op::WriteZeroes { lba: Lba(1), count: LbaCount(3) }).unwrap();
    assert!(read(&mut port, 1) > 50_000, "the fourth page is an edge of zeroes");
    port.run(write(64, 4096)).unwrap();
    assert!(read(&mut port, 8) < 50_000);
    namespace.data_placement().unwrap().update(&[PlacementId(0)]).unwrap();
    assert!(read(&mut port, 8) > 50_000, "the unit was closed");
}

#[test]
fn commands_in_flight_end_though_their_namespace_and_the_placement_do_not_stay() {
    let ssd = Ssd::new("timed", &small(Media::Flash), Pace::virtual_time(Clock::virtual_time()));
    let ssd = ssd.unwrap();
    let id = ssd.create_namespace(2 << 20, None).unwrap();
    let namespace = ssd.namespace(id).unwrap();
    let mut queue = namespace.queue_pair(16).unwrap();
    let mut commands: VecDeque<Command> =
        (0..16).map(|n| Command { tag: Tag(n), op: write(n * 16, 4096) }).collect();
    assert_eq!(queue.submit(&mut commands).unwrap(), 16);
    ssd.delete_namespace(id).unwrap();
    ssd.enable_placement(Some(1)).unwrap();
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.wait(&mut done, None).unwrap();
    }
    assert!(done.len() == 16 && done.iter().all(|completion| completion.result.is_ok()));
}
