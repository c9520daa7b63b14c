//! Frames of the write buffer that are in flight together, and a crash that takes one of them: those behind it are never
//! applied, then or later. A replay tells lost acknowledged frames from the end.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Lba};
use esker_device::{Command, Device, Op, Port, Tag};
use esker_sim::{Effect, FaultDevice, FaultPlan, ImageDevice, Target};
use esker_volume::{Pool, VolumeOptions};

/// One drive: the write buffer has one copy.
const SINGLE: Shape = Shape { drives: 1, parity: 0, drive_bytes: 7 << 20, ..SMALL };
/// Blocks of the volume.
const BLOCKS: usize = 64;
/// The write whose frame is lost, and the one in flight behind it: first block and version.
const LOST: (u64, u64, u64) = (8, 4, 100);
const BEHIND: (u64, u64, u64) = (0, 1, 200);

/// A write of `count` blocks from `block` on, the first of which gets `version`.
fn write((block, count, version): (u64, u64, u64)) -> Command {
    let mut buf = AlignedBuf::zeroed(BLOCK * usize::try_from(count).unwrap());
    for (version, part) in (version..).zip(buf.chunks_mut(BLOCK)) {
        rig::fill(part, version);
    }
    Command { tag: Tag(0), op: Op::Write { lba: Lba(block), buf, placement: None, fua: false } }
}

/// The versions of the blocks after these writes.
fn versions(writes: &[(u64, u64, u64)]) -> Vec<u64> {
    let mut versions = vec![0; BLOCKS];
    for (block, count, version) in writes {
        for n in 0..*count {
            versions[usize::try_from(block + n).unwrap()] = version + n;
        }
    }
    versions
}

fn blocks(device: &dyn Device) -> Vec<AlignedBuf> {
    let mut port = Port::open(device, 1).unwrap();
    let count = device.geometry().capacity.0;
    (0..count).map(|lba| port.read(Lba(lba), AlignedBuf::zeroed(BLOCK)).unwrap()).collect()
}

/// Writes what the blocks were before, where that is something else than afterwards; how many.
fn undo(device: &dyn Device, before: &[AlignedBuf], after: &[AlignedBuf]) -> usize {
    let mut port = Port::open(device, 1).unwrap();
    let changed = before.iter().zip(after).enumerate().filter(|(_, (old, new))| old[..] != new[..]);
    changed
        .map(|(lba, (old, _))| {
            let buf = AlignedBuf::padded(old, BLOCK);
            port.write(Lba(lba as u64), buf, None).unwrap();
        })
        .count()
}

/// A drive of a pool after a crash with two frames in flight, the first of which did not reach it; and its blocks before
/// and after the second one did.
struct Crashed {
    drive: Arc<dyn Device>,
    before: Vec<AlignedBuf>,
    after: Vec<AlignedBuf>,
}

fn crash() -> Crashed {
    let drive = Arc::new(ImageDevice::new("d0", SINGLE.drive_bytes, SINGLE.lba_size));
    let plan = FaultPlan::new();
    let devices: Vec<Arc<dyn Device>> = vec![Arc::new(FaultDevice::new(drive.clone(), &plan))];
    Pool::create(&devices, &[], &rig::create_options(&SINGLE)).unwrap();
    let pool = rig::open(&devices, &SINGLE);
    pool.create_volume("v1", (BLOCKS * BLOCK) as u64, VolumeOptions::default()).unwrap();
    let mut queue = pool.volume("v1").unwrap().queue_pair(8).unwrap();
    plan.from_then_on(Target::Write, plan.seen(Target::Write), Effect::Hang);
    let empty = blocks(&*drive);
    queue.submit(&mut VecDeque::from([write(LOST)])).unwrap();
    let before = blocks(&*drive);
    queue.submit(&mut VecDeque::from([write(BEHIND)])).unwrap();
    let after = blocks(&*drive);
    let crashed: Arc<dyn Device> = Arc::new(drive.fork());
    assert_eq!(undo(&*crashed, &empty, &before), 5, "a frame of four blocks");
    assert_eq!(queue.in_flight(), 2);
    plan.heal();
    Crashed { drive: crashed, before, after }
}

fn open(drive: &Arc<dyn Device>) -> Pool {
    rig::open(std::slice::from_ref(drive), &SINGLE)
}

fn holds(pool: &Pool, writes: &[(u64, u64, u64)]) {
    rig::compare(&*pool.volume("v1").unwrap(), &versions(writes)).unwrap();
}

/// Writes in one frame.
fn write_together(pool: &Pool, writes: &[(u64, u64, u64)]) {
    let mut queue = pool.volume("v1").unwrap().queue_pair(8).unwrap();
    queue.submit(&mut writes.iter().map(|one| write(*one)).collect()).unwrap();
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.wait(&mut done, None).unwrap();
    }
    done.drain(..).for_each(|one| one.result.unwrap());
}

#[test]
fn frame_behind_a_hole_is_not_taken_when_the_lost_write_is_repeated() {
    let Crashed { drive, .. } = crash();
    for _ in 0..2 {
        holds(&open(&drive), &[]);
    }
    write_together(&open(&drive), &[LOST]);
    holds(&open(&drive), &[LOST]);
}

#[test]
fn frame_behind_a_hole_that_was_misread_is_not_taken_later() {
    let Crashed { drive, before, after } = crash();
    // The first open does not see it.
    assert_eq!(undo(&*drive, &before, &after), 2);
    let pool = open(&drive);
    write_together(&pool, &[LOST]);
    drop(pool);
    undo(&*drive, &after, &before);
    holds(&open(&drive), &[LOST]);
}

#[test]
fn frame_behind_a_hole_is_not_taken_for_what_a_segment_lost() {
    let Crashed { drive, .. } = crash();
    let pool = open(&drive);
    // A smaller frame, whose second record is of the block of the frame that was left; that one stays whole.
    let writes = [(20, 1, 300), (BEHIND.0, 1, 400)];
    write_together(&pool, &writes);
    let before = blocks(&*drive);
    pool.drain().unwrap();
    let after = blocks(&*drive);
    pool.checkpoint().unwrap();
    drop(pool);
    assert!(undo(&*drive, &before, &after) > 1);
    let pool = open(&drive);
    while pool.step().unwrap() {}
    assert_eq!(pool.status().written.salvaged, 2);
    holds(&pool, &writes);
}

#[test]
fn acknowledged_frame_that_is_lost_is_told_from_the_end() {
    let drive: Arc<dyn Device> =
        Arc::new(ImageDevice::new("d0", SINGLE.drive_bytes, SINGLE.lba_size));
    Pool::create(std::slice::from_ref(&drive), &[], &rig::create_options(&SINGLE)).unwrap();
    let pool = open(&drive);
    pool.create_volume("v1", (BLOCKS * BLOCK) as u64, VolumeOptions::default()).unwrap();
    let before = blocks(&*drive);
    write_together(&pool, &[LOST]);
    let after = blocks(&*drive);
    write_together(&pool, &[BEHIND]);
    drop(pool);
    undo(&*drive, &before, &after);
    let error = Pool::open(&[drive], rig::open_options(&SINGLE)).err().unwrap().to_string();
    assert!(error.contains("is good on drive 0"), "{error}");
}
