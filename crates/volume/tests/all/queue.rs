//! Commands of one queue pair overlap, on drives that take their time. Virtual time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::paced::{Handle, Paced};
use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::{Command, Device, Op, Port, QueuePair, Tag};
use esker_volume::{CreateOptions, OpenOptions, Pool, VolumeOptions};

const SHAPE: Shape = Shape { drive_bytes: 6 << 20, map_bytes: 1 << 20, ..SMALL };

fn pool(map_bytes: usize) -> (Clock, Vec<Arc<dyn Device>>, Pool) {
    let clock = Clock::virtual_time();
    let drive = |n| Paced::new(&format!("d{n}"), SHAPE.drive_bytes, &clock, n);
    let drives = (0..4).map(|n| Arc::new(Handle(drive(n))) as Arc<dyn Device>);
    let drives: Vec<_> = drives.collect();
    let create = CreateOptions { log_bytes: 2 << 20, ..rig::create_options(&SHAPE) };
    Pool::create(&drives, &[], &create).unwrap();
    let open = OpenOptions { clock: clock.clone(), map_bytes, ..rig::open_options(&SHAPE) };
    let pool = Pool::open(&drives, open).unwrap();
    pool.create_volume("a", 1 << 30, VolumeOptions::default()).unwrap();
    (clock, drives, pool)
}

fn write(lba: u64) -> Op {
    let mut buf = AlignedBuf::zeroed(BLOCK);
    rig::fill(&mut buf, 3 * lba + 3);
    Op::Write { lba: Lba(lba), buf, placement: None, fua: false }
}

fn read(lba: u64) -> Op {
    Op::Read { lba: Lba(lba), buf: AlignedBuf::zeroed(BLOCK) }
}

/// Submits these one by one, then waits for all; how long it took.
fn run(clock: &Clock, queue: &mut dyn QueuePair, ops: impl Iterator<Item = Op>) -> Duration {
    let began = clock.now();
    for (tag, op) in (0..).zip(ops) {
        queue.submit(&mut VecDeque::from([Command { tag: Tag(tag), op }])).unwrap();
    }
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.wait(&mut done, None).unwrap();
    }
    done.into_iter().for_each(|completion| completion.result.unwrap());
    clock.now().since(began)
}

#[test]
fn single_commands_of_a_queue_pair_overlap() {
    let (clock, _, pool) = pool(1 << 20);
    let mut queue = pool.volume("a").unwrap().queue_pair(32).unwrap();
    let one = run(&clock, &mut *queue, [write(0)].into_iter());
    let many = run(&clock, &mut *queue, (1..=24).map(write));
    // The first one's frame is in flight when the others come; they share the next.
    assert!(many < 4 * one, "one write takes {one:?}, 24 take {many:?}");
    pool.drain().unwrap();
    let one = run(&clock, &mut *queue, [read(0)].into_iter());
    let many = run(&clock, &mut *queue, (0..24).map(read));
    assert!(many < 5 * one, "one read takes {one:?}, 24 take {many:?}");
}

#[test]
fn reads_wait_for_leaves_of_the_map_at_the_same_time() {
    let (clock, drives, made) = pool(1 << 20);
    // A block in each of so many leaves.
    let blocks = || (0..16).map(|leaf| leaf * 512);
    let mut port = Port::open(&*made.volume("a").unwrap(), 16).unwrap();
    port.run_all(blocks().map(write).collect::<Vec<_>>(), |_, result| drop(result.unwrap()))
        .unwrap();
    drop(port);
    made.close().unwrap();
    // Memory for one leaf at a time.
    let open = OpenOptions { clock: clock.clone(), map_bytes: 1, ..rig::open_options(&SHAPE) };
    let pool = Pool::open(&drives, open).unwrap();
    let mut queue = pool.volume("a").unwrap().queue_pair(32).unwrap();
    let one = run(&clock, &mut *queue, [read(0)].into_iter());
    let loads = pool.status().map_loads;
    let many = run(&clock, &mut *queue, blocks().map(read));
    assert!(pool.status().map_loads >= loads + 15, "leaves were read");
    assert!(many < 5 * one, "one read takes {one:?}, 16 take {many:?}");
}

#[test]
fn limits_hold_commands_back_and_not_their_queue() {
    let (clock, _, pool) = pool(1 << 20);
    let options = VolumeOptions { iops_limit: 100, ..VolumeOptions::default() };
    pool.configure("a", options, &[]).unwrap();
    let mut queue = pool.volume("a").unwrap().queue_pair(32).unwrap();
    clock.advance(Duration::from_secs(1));
    let began = clock.now();
    let mut batch: VecDeque<Command> =
        (0..32).map(|tag| Command { tag: Tag(tag), op: read(tag) }).collect();
    queue.submit(&mut batch).unwrap();
    assert_eq!(clock.now(), began, "taking commands waits for nothing");
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.wait(&mut done, None).unwrap();
    }
    let took = clock.now().since(began);
    assert!(took >= Duration::from_millis(290) && took < Duration::from_millis(340), "{took:?}");
}
