//! Devices that lose unflushed writes, fail one flush, and go on: a remote one that was started again.

use crate::rig;
use std::sync::{Arc, Mutex};

use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_cache::Mode;
use esker_device::{Device, Op, Port};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target, refusing};

/// Devices with a cache, whose faults are in the plans: the origin's, and the flash device's.
struct Forgetful {
    origin: Arc<dyn Device>,
    flash: Arc<dyn Device>,
    bad_origin: Arc<dyn Device>,
    bad_flash: Arc<dyn Device>,
    origin_plan: FaultPlan,
    flash_plan: FaultPlan,
}

fn forgetful(mode: Mode) -> Forgetful {
    let (origin, flash) = rig::devices(mode, 4096, 4096);
    let (origin_plan, flash_plan) = (FaultPlan::new(), FaultPlan::new());
    let bad_origin = Arc::new(FaultDevice::new(origin.clone(), &origin_plan));
    let bad_flash = Arc::new(FaultDevice::new(flash.clone(), &flash_plan));
    Forgetful { origin, flash, bad_origin, bad_flash, origin_plan, flash_plan }
}

#[test]
fn failed_flush_of_the_origin_keeps_blocks_dirty() {
    let rig = forgetful(Mode::WriteBack);
    let cache = rig::open(&rig.bad_origin, &rig.bad_flash);
    let mut port = Port::open(&cache, 4).unwrap();
    (1..6).for_each(|block| rig::write(&mut port, block, 9));
    port.flush().unwrap();
    // The origin acknowledges the blocks that are written back, loses them, and fails one flush.
    let (writes, flushes) =
        (rig.origin_plan.seen(Target::Write), rig.origin_plan.seen(Target::Flush));
    for n in 0..5 {
        rig.origin_plan.once(Target::Write, writes + n, Effect::Lose);
    }
    rig.origin_plan.once(Target::Flush, flushes, Effect::Fail);
    assert!(cache.clean_all().is_err() && cache.figures().dirty_blocks == 5);
    rig.origin_plan.heal();
    // Writes that the host was told are durable are so, on the flash device.
    port.flush().unwrap();
    cache.detach().unwrap();
    let mut port = Port::open(&*rig.origin, 1).unwrap();
    for block in 1..6 {
        assert!(rig::read(&mut port, block)[..] == rig::content(block, 9)[..], "block {block}");
    }
}

#[test]
fn block_stays_dirty_when_another_flush_fails_while_it_is_written_back() {
    let rig = forgetful(Mode::WriteBack);
    // While the first block is written back, the user of a queue pair flushes: that flush is the one that fails.
    let other: Arc<Mutex<Option<Port>>> = Arc::default();
    let user = other.clone();
    let origin = refusing(&rig.bad_origin, move |op| {
        if matches!(op, Op::Write { .. })
            && let Some(mut port) = user.lock().unwrap().take()
        {
            assert!(port.flush().is_err(), "the discard may be gone");
        }
        false
    });
    let cache = rig::open(&origin, &rig.bad_flash);
    let mut port = Port::open(&cache, 4).unwrap();
    rig::write(&mut port, 1, 9);
    port.flush().unwrap();
    port.discard(Lba(50), LbaCount(1)).unwrap();
    rig.origin_plan.once(Target::Write, rig.origin_plan.seen(Target::Write), Effect::Lose);
    rig.origin_plan.once(Target::Flush, rig.origin_plan.seen(Target::Flush), Effect::Fail);
    *other.lock().unwrap() = Some(Port::open(&cache, 4).unwrap());
    assert!(cache.clean_all().is_err());
    assert_eq!(cache.figures().dirty_blocks, 1, "the origin does not have it");
    cache.clean_all().unwrap();
    assert!(rig::read(&mut Port::open(&*rig.origin, 1).unwrap(), 1)[..] == rig::content(1, 9)[..]);
}

#[test]
fn failed_flush_of_the_origin_is_told_to_every_queue_pair_once() {
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        let rig = forgetful(mode);
        let cache = rig::open(&rig.bad_origin, &rig.bad_flash);
        let mut ports = [0, 1, 2].map(|_| Port::open(&cache, 4).unwrap());
        for (block, port) in (1..).zip(&mut ports) {
            rig::write(port, block, 9);
        }
        rig.origin_plan.once(Target::Flush, rig.origin_plan.seen(Target::Flush), Effect::Fail);
        for port in &mut ports {
            assert!(port.flush().is_err(), "{mode}: its writes may be gone");
        }
        assert!(ports.iter_mut().all(|port| port.flush().is_ok()), "{mode}");
        assert!(Port::open(&cache, 4).unwrap().flush().is_ok(), "{mode}: it wrote nothing");
    }
}

#[test]
fn failed_flush_of_the_flash_names_nothing_that_may_be_gone() {
    let rig = forgetful(Mode::WriteBack);
    let cache = rig::open(&rig.bad_origin, &rig.bad_flash);
    let mut port = Port::open(&cache, 4).unwrap();
    rig::write(&mut port, 1, 1);
    port.flush().unwrap();
    // The slot of block 2 is acknowledged, and lost.
    rig.flash_plan.once(Target::Write, rig.flash_plan.seen(Target::Write), Effect::Lose);
    rig.flash_plan.once(Target::Flush, rig.flash_plan.seen(Target::Flush), Effect::Fail);
    // The sample of block 2 is of the origin, which is not written: the first write is that of the slot.
    rig::write(&mut port, 2, 2);
    assert!(port.flush().is_err(), "block 2 is gone");
    rig.flash_plan.heal();
    assert!(port.flush().is_err(), "and stays so");
    let read = port.read(Lba(2), AlignedBuf::zeroed(4096));
    assert!(read.is_err(), "what the slot holds is another's");
    drop((port, cache));
    let cache = rig::open(&rig.origin, &rig.flash);
    let mut port = Port::open(&cache, 4).unwrap();
    assert!(rig::read(&mut port, 1)[..] == rig::content(1, 1)[..], "what was flushed is there");
    assert!(rig::read(&mut port, 2).iter().all(|&byte| byte == 0), "as the origin has it");
}

#[test]
fn write_through_goes_on_when_its_flash_has_forgotten() {
    let rig = forgetful(Mode::WriteThrough);
    let cache = rig::open(&rig.bad_origin, &rig.bad_flash);
    let mut port = Port::open(&cache, 4).unwrap();
    rig::write(&mut port, 1, 1);
    rig.flash_plan.once(Target::Flush, rig.flash_plan.seen(Target::Flush), Effect::Fail);
    let _ = cache.close();
    assert!(cache.figures().is_flash_lost);
    rig.flash_plan.heal();
    rig::write(&mut port, 1, 2);
    port.flush().unwrap();
    assert!(rig::read(&mut port, 1)[..] == rig::content(1, 2)[..]);
    drop((port, cache));
    let cache = rig::open(&rig.origin, &rig.flash);
    assert!(rig::read(&mut Port::open(&cache, 4).unwrap(), 1)[..] == rig::content(1, 2)[..]);
}
