//! Volumes of an exbibyte with little in them: what is done to the whole of one takes the time of what is there.

use std::time::Duration;

use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, Lba, LbaCount};
use esker_device::Port;
use esker_volume::{Pool, VolumeOptions};

const HUGE: u64 = 1 << 60;
/// Blocks far from each other, the last one of the volume among them.
const USED: [u64; 4] = [0, 1, 1 << 30, (HUGE / BLOCK as u64) - 1];
/// The most that a change takes; one that goes through all places takes hours.
const MOST: Duration = Duration::from_secs(20);

fn content(version: u64) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(BLOCK);
    rig::fill(&mut buf, version);
    buf
}

fn put(pool: &Pool, name: &str, versions: [u64; 4]) {
    let mut port = Port::open(&*pool.volume(name).unwrap(), 1).unwrap();
    for (block, version) in USED.into_iter().zip(versions) {
        port.write(Lba(block), content(version), None).unwrap();
    }
}

#[track_caller]
fn holds(pool: &Pool, name: &str, versions: [u64; 4]) {
    let mut port = Port::open(&*pool.volume(name).unwrap(), 1).unwrap();
    for (block, version) in USED.into_iter().zip(versions) {
        let read = port.read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap();
        assert!(read[..] == content(version)[..], "{name}, block {block}");
    }
}

fn settle(pool: &Pool) {
    while pool.step().unwrap() {}
}

#[test]
fn change_of_a_huge_volume_takes_the_time_of_what_is_in_it() {
    let shape = Shape { drive_bytes: 12 << 20, ..SMALL };
    let devices = rig::create(&shape);
    let mut pool = rig::open(&devices, &shape);
    let clock = Clock::real();
    for is_drained in [true, false] {
        let began = clock.now();
        pool.create_volume("v", HUGE, VolumeOptions::default()).unwrap();
        put(&pool, "v", [1, 2, 3, 4]);
        if is_drained {
            pool.drain().unwrap();
        }
        pool.snapshot("v", "s").unwrap();
        pool.clone_volume("v", "s", "c").unwrap();
        for name in ["v", "c"] {
            pool.resize(name, BLOCK as u64).unwrap();
            pool.resize(name, HUGE).unwrap();
            holds(&pool, name, [1, 0, 0, 0]);
            put(&pool, name, [5, 6, 7, 8]);
        }
        drop(pool); // the changes are replayed
        pool = rig::open(&devices, &shape);
        for name in ["v", "c"] {
            holds(&pool, name, [5, 6, 7, 8]);
            let mut port = Port::open(&*pool.volume(name).unwrap(), 1).unwrap();
            port.discard(Lba(1), LbaCount(HUGE / BLOCK as u64 - 1)).unwrap();
            holds(&pool, name, [5, 0, 0, 0]);
        }
        settle(&pool);
        for name in ["v", "c"] {
            holds(&pool, name, [5, 0, 0, 0]);
        }
        pool.check().unwrap();
        pool.delete_volume("c", 0).unwrap();
        pool.delete_snapshot("v", "s").unwrap();
        pool.delete_volume("v", 0).unwrap();
        settle(&pool);
        pool.check().unwrap();
        assert_eq!(pool.status().space.live, 0);
        assert!(clock.now() - began < MOST, "{:?}", clock.now() - began);
    }
}
