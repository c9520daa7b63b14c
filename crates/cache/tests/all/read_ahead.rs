//! Streams that are read ahead: fewer commands to the origin, and never any content but the
//! origin's.

use std::sync::Arc;

use esker_base::{AlignedBuf, Lba};
use esker_cache::{Admission, Cache, Mode, OpenOptions};
use esker_device::{Op, Port};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};

use crate::rig::{self, content, write};

const BLOCKS: u64 = 8 << 10;
const AHEAD: u64 = 16;

struct Rig {
    cache: Cache,
    /// Faults of the origin.
    plan: FaultPlan,
}

/// A cache of some 3,500 slots, before an origin whose every block says its number.
fn rig(options: OpenOptions) -> Rig {
    let made = rig::large_options(Mode::WriteBack);
    let (origin, flash) = rig::bare_devices(BLOCKS * 4096, 16 << 20);
    let mut port = Port::open(&*origin, 4).unwrap();
    (0..BLOCKS).for_each(|block| write(&mut port, block, 0));
    Cache::create(&*origin, &flash, &made).unwrap();
    let plan = FaultPlan::new();
    let origin = Arc::new(FaultDevice::new(origin, &plan));
    Rig { cache: Cache::open(origin, flash, options).unwrap(), plan }
}

fn ahead() -> OpenOptions {
    OpenOptions { read_ahead_bytes: AHEAD * 4096, ..rig::open_options() }
}

fn check(port: &mut Port, block: u64, version: u64) {
    assert_eq!(rig::read(port, block)[..], content(block, version)[..], "block {block}");
}

/// Reads of the origin while `what` happens.
fn reads(rig: &Rig, what: impl FnOnce()) -> u64 {
    let before = rig.plan.seen(Target::Read);
    what();
    rig.plan.seen(Target::Read) - before
}

#[test]
fn a_stream_costs_the_origin_few_reads() {
    let rig = rig(ahead());
    let mut port = Port::open(&rig.cache, 4).unwrap();
    // As in the simulator: 9 commands, of which the last reads seven blocks too many.
    let count = reads(&rig, || (0..100).for_each(|block| check(&mut port, block, 0)));
    assert_eq!(count, 9);
    let figures = rig.cache.figures();
    assert_eq!((figures.read_ahead, figures.read_hits, figures.fills), (98, 91, 107));
    assert_eq!(figures.origin_read_bytes, 107 * 4096);
    // Reads outside a stream are done as they are asked for, and so is the last block of the
    // origin.
    let count = reads(&rig, || (0..50).for_each(|n| check(&mut port, 3_000 - 20 * n, 0)));
    assert_eq!(count, 50);
    (BLOCKS - 4..BLOCKS).for_each(|block| check(&mut port, block, 0));
    assert_eq!(rig.cache.figures().read_ahead, 98 + 2);
}

#[test]
fn commands_side_by_side_wait_for_what_is_read_ahead() {
    let rig = rig(ahead());
    let mut port = Port::open(&rig.cache, 32).unwrap();
    let count = reads(&rig, || {
        let ops = (0..100).map(|block| Op::Read { lba: Lba(block), buf: AlignedBuf::zeroed(4096) });
        port.run_all(ops.collect::<Vec<_>>(), |n, result| {
            let block = n as u64;
            assert_eq!(result.unwrap().unwrap()[..], content(block, 0)[..], "block {block}");
        })
        .unwrap();
    });
    assert!(count < 20, "{count} reads");
}

#[test]
fn cached_and_bypassing_blocks_end_read_ahead() {
    let rig = rig(OpenOptions { sequential_bytes: 20 * 4096, ..ahead() });
    let mut port = Port::open(&rig.cache, 4).unwrap();
    let count = reads(&rig, || (0..30).for_each(|block| check(&mut port, block, 0)));
    assert_eq!(count, 4 + 10, "twenty blocks are let in, ten pass by");
    // A dirty block in the way is not read, and later writes are not lost.
    write(&mut port, 203, 1);
    (200..210).for_each(|block| check(&mut port, block, u64::from(block == 203)));
    (204..208).for_each(|block| write(&mut port, block, 2));
    (200..204).for_each(|block| check(&mut port, block, u64::from(block == 203)));
    (204..208).for_each(|block| check(&mut port, block, 2));
}

#[test]
fn when_it_fails_the_host_gets_what_it_asked_for() {
    let rig = rig(ahead());
    let mut port = Port::open(&rig.cache, 4).unwrap();
    check(&mut port, 0, 0);
    // The command that reads ahead fails; the block alone does not.
    rig.plan.once(Target::Read, rig.plan.seen(Target::Read), Effect::Fail);
    assert_eq!(reads(&rig, || check(&mut port, 1, 0)), 2);
    assert_eq!(rig.plan.fired(), 1);
    assert_eq!(rig.cache.figures().read_ahead, 2);
    (0..100).for_each(|block| check(&mut port, block, 0));
    (0..100).for_each(|block| check(&mut port, block, 0));
}

#[test]
fn it_keeps_to_the_budget_and_to_what_may_be_let_in() {
    // Backwards, which is no stream; nearly twice the capacity, so that every set is full.
    let fill = |port: &mut Port| (0..BLOCKS - 300).rev().for_each(|block| check(port, block, 0));
    // Beyond the budget, and into a full cache that takes only repeated blocks: nothing unasked.
    let poor = rig(OpenOptions { writes_per_day: Some(0.001), ..ahead() });
    let strict = rig(OpenOptions { admission: Admission::Again, ..ahead() });
    for rig in [poor, strict] {
        let mut port = Port::open(&rig.cache, 4).unwrap();
        fill(&mut port);
        let before = rig.cache.figures().read_ahead;
        (BLOCKS - 200..BLOCKS - 100).for_each(|block| check(&mut port, block, 0));
        assert_eq!(rig.cache.figures().read_ahead, before);
    }
}
