//! Repair beside writes that never end: it gets its share of maintenance's time, and ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::moody::{Mood, Moody};
use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, Lba, Rng, thread};
use esker_device::{Command, Device, Op, Port, Tag};
use esker_volume::{CreateOptions, Maintenance, MemberState, OpenOptions, Pool, VolumeOptions};

const SHAPE: Shape = Shape {
    drives: 6,
    width: Some(3),
    drive_bytes: 48 << 20,
    map_bytes: 4 << 20,
    chunk_bytes: 256 << 10,
    ..SMALL
};
const BLOCKS: u64 = 16 << 8;
const DEPTH: u64 = 64;
/// The longest rebuild; without a share it does not end before the writes do.
const MOST: Duration = Duration::from_secs(60);

/// Writes blocks as fast as the pool takes them.
fn write(pool: &Pool, is_over: &AtomicBool, written: &AtomicU64) {
    let mut queue = pool.volume("v").unwrap().queue_pair(64).unwrap();
    let (mut rng, mut done, mut next) = (Rng::new(3), Vec::new(), 0);
    while !is_over.load(Ordering::Relaxed) || queue.in_flight() > 0 {
        let mut commands = VecDeque::new();
        if !is_over.load(Ordering::Relaxed) && (queue.in_flight() as u64) < DEPTH {
            let mut buf = AlignedBuf::zeroed(4 * BLOCK);
            rng.fill(&mut buf);
            let op =
                Op::Write { lba: Lba(rng.below(BLOCKS / 4) * 4), buf, placement: None, fua: false };
            commands.push_back(Command { tag: Tag(next), op });
            next += 1;
        }
        queue.submit(&mut commands).unwrap();
        queue.poll(&mut done).unwrap();
        for completion in done.drain(..) {
            completion.result.unwrap();
            written.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn rebuild_ends_beside_writes_that_do_not() {
    let drives: Vec<Moody> =
        (0..SHAPE.drives).map(|n| Moody::new(&format!("d{n}"), SHAPE.drive_bytes)).collect();
    let devices: Vec<Arc<dyn Device>> =
        drives.iter().map(|drive| Arc::new(drive.clone()) as Arc<dyn Device>).collect();
    let create = CreateOptions {
        log_bytes: 2 << 20,
        root_bytes: Some(128 << 10),
        ..rig::create_options(&SHAPE)
    };
    Pool::create(&devices, &[], &create).unwrap();
    let clock = Clock::real();
    let options = OpenOptions {
        maintenance: Maintenance::Thread,
        clock: clock.clone(),
        ..rig::open_options(&SHAPE)
    };
    let pool = Arc::new(Pool::open(&devices, options).unwrap());
    // Most of what is stored is old, so that cleaning does not move it by itself.
    let raw = VolumeOptions { compression: false, ..VolumeOptions::default() };
    for name in ["old", "v"] {
        pool.create_volume(name, 8 * BLOCKS * BLOCK as u64, raw).unwrap();
    }
    let mut port = Port::open(&*pool.volume("old").unwrap(), 1).unwrap();
    for n in 0..BLOCKS / 4 {
        let mut buf = AlignedBuf::zeroed(16 * BLOCK);
        Rng::new(n).fill(&mut buf);
        port.write(Lba(n * 16), buf, None).unwrap();
    }
    pool.drain().unwrap();
    assert!(pool.set_repair_share(0).is_err() && pool.set_repair_share(91).is_err());
    pool.set_repair_share(30).unwrap();
    assert_eq!(pool.repair_share(), 30);
    let (is_over, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writer = {
        let (pool, is_over, written) = (pool.clone(), is_over.clone(), written.clone());
        thread::spawn("writer", move || write(&pool, &is_over, &written)).unwrap()
    };
    clock.sleep(Duration::from_secs(1));
    drives[5].be(Mood::Refusing);
    let began = clock.now();
    loop {
        let status = pool.status();
        let is_degraded = status.alarms.iter().any(|alarm| alarm.code == "DEGRADED");
        if status.members[5].state == MemberState::Faulted && !is_degraded {
            break;
        }
        assert!(clock.now() - began < MOST, "{status:#?}");
        clock.sleep(Duration::from_millis(50));
    }
    println!("rebuilt in {:?} beside {written:?} writes", clock.now() - began);
    assert!(written.load(Ordering::Relaxed) > 0);
    is_over.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    pool.check().unwrap();
}
