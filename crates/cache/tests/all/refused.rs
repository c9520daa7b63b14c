//! A flash device that refuses some commands, again and again: all other work goes on.

use crate::rig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::oracle::{Act, Oracle, op, random};
use esker_base::{Lba, LbaCount, Rng};
use esker_cache::{Cache, Mode};
use esker_device::{Device, DeviceError, Op, Port};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target, refusing};

/// As often as this something is refused; then it is not, so that a test that fails has an end.
const ENOUGH: u64 = 1_000;

/// Refusals of a device while they are on, and their count.
#[derive(Clone, Default)]
struct Refusals {
    is_on: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
}

impl Refusals {
    /// `flash` that refuses the commands that `is_it` selects, while it is on.
    fn of(
        &self,
        flash: &Arc<dyn Device>,
        is_it: impl Fn(&Op) -> bool + Send + Sync + 'static,
    ) -> Arc<dyn Device> {
        let Refusals { is_on, count } = self.clone();
        refusing(flash, move |op| {
            is_on.load(Ordering::Relaxed)
                && is_it(op)
                && count.fetch_add(1, Ordering::Relaxed) < ENOUGH
        })
    }

    fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Whether `op` writes a slot of a small cache on a device with such LBAs.
fn writes_slot(op: &Op, lba_size: u64) -> bool {
    let slots = rig::DATA / lba_size..rig::LAST / lba_size;
    matches!(op, Op::Write { lba, .. } if slots.contains(&lba.0))
}

fn act(port: &mut Port, oracle: &mut Oracle, act: &Act) -> Result<(), DeviceError> {
    let result = port.run(op(act, 4096));
    match &result {
        Ok(_) => oracle.done(act),
        Err(_) => oracle.maybe(act),
    }
    result.map(drop)
}

fn write(lba: u64, version: u64) -> Act {
    Act::Write { lba, count: 1, version, fua: false }
}

#[test]
fn a_dirty_block_whose_new_slot_is_refused_goes_to_the_origin() {
    // LBAs of the flash device are smaller than those of the origin: nothing is rewritten in place.
    let (origin, flash) = rig::devices(Mode::WriteBack, 4096, 512);
    let refusals = Refusals::default();
    let bad = refusals.of(&flash, |op| writes_slot(op, 512));
    let cache = rig::open(&origin, &bad);
    let mut oracle = Oracle::new(rig::ORIGIN / 4096, 4096);
    let mut port = Port::open(&cache, 4).unwrap();
    act(&mut port, &mut oracle, &write(7, 1)).unwrap();
    act(&mut port, &mut oracle, &Act::Flush).unwrap();
    refusals.set(true);
    act(&mut port, &mut oracle, &write(7, 2)).unwrap();
    assert_eq!(refusals.count(), 1);
    act(&mut port, &mut oracle, &Act::Flush).unwrap();
    oracle.check_all(&mut port, &"through the cache");
    assert_eq!(cache.figures().dirty_blocks, 0);
    drop((port, cache));
    oracle.crash();
    let cache = rig::open(&origin, &flash);
    oracle.check_all(&mut Port::open(&cache, 4).unwrap(), &"opened again");
}

#[test]
fn a_dirty_block_is_not_written_past_its_name_when_the_flash_is_lost() {
    let (origin, flash) = rig::devices(Mode::WriteBack, 4096, 512);
    let refusals = Refusals::default();
    let bad = refusals.of(&flash, |op| matches!(op, Op::Write { .. }));
    let cache = rig::open(&origin, &bad);
    let mut oracle = Oracle::new(rig::ORIGIN / 4096, 4096);
    let mut port = Port::open(&cache, 4).unwrap();
    act(&mut port, &mut oracle, &write(7, 1)).unwrap();
    act(&mut port, &mut oracle, &Act::Flush).unwrap();
    act(&mut port, &mut oracle, &write(8, 1)).unwrap();
    refusals.set(true);
    assert!(act(&mut port, &mut oracle, &Act::Flush).is_err());
    assert!(cache.figures().is_flash_lost);
    assert!(act(&mut port, &mut oracle, &write(7, 2)).is_err());
    let _ = act(&mut port, &mut oracle, &Act::Flush);
    assert!(refusals.count() < 10, "{}", refusals.count());
    drop((port, cache));
    oracle.crash();
    let cache = rig::open(&origin, &flash);
    oracle.check_all(&mut Port::open(&cache, 4).unwrap(), &"the flash device is back");
}

#[test]
fn a_flash_that_dies_before_a_set_was_read_stops_no_write_when_nothing_is_dirty() {
    for mode in rig::MODES {
        let (origin, flash) = rig::devices(mode, 4096, 4096);
        let mut oracle = Oracle::new(rig::ORIGIN / 4096, 4096);
        let cache = rig::open(&origin, &flash);
        let mut port = Port::open(&cache, 4).unwrap();
        (0..20).for_each(|lba| act(&mut port, &mut oracle, &write(lba, 1)).unwrap());
        cache.clean_all().unwrap();
        cache.close().unwrap();
        drop((port, cache));

        let refusals = Refusals::default();
        let bad = refusals.of(&flash, |_| true);
        let cache = rig::open(&origin, &bad);
        let mut port = Port::open(&cache, 4).unwrap();
        refusals.set(true);
        for change in
            [write(3, 2), Act::Zero { lba: 5, count: 2 }, Act::Discard { lba: 9, count: 1 }]
        {
            let done = act(&mut port, &mut oracle, &change);
            assert!(done.is_ok(), "{mode} {change:?}: {done:?}");
        }
        act(&mut port, &mut oracle, &Act::Flush).unwrap();
        oracle.check_all(&mut port, &mode);
        assert!(cache.figures().is_flash_lost, "{mode}");
        // It comes back, and is told.
        refusals.set(false);
        act(&mut port, &mut oracle, &Act::Flush).unwrap();
        drop((port, cache));
        let cache = rig::open(&origin, &flash);
        oracle.check_all(&mut Port::open(&cache, 4).unwrap(), &format!("{mode}, opened again"));
    }
}

#[test]
fn a_set_that_cannot_be_read_once_is_read_again() {
    for mode in rig::MODES {
        let (origin, flash) = rig::devices(mode, 4096, 4096);
        let cache = rig::open(&origin, &flash);
        rig::write(&mut Port::open(&cache, 4).unwrap(), 3, 1);
        cache.close().unwrap();
        drop(cache);

        let (left, refusals) = (AtomicU64::new(1), Refusals::default());
        let bad = refusals.of(&flash, move |op| {
            matches!(op, Op::Read { .. }) && left.swap(0, Ordering::Relaxed) > 0
        });
        let cache = rig::open(&origin, &bad);
        refusals.set(true);
        let mut port = Port::open(&cache, 4).unwrap();
        rig::write(&mut port, 3, 2);
        assert_eq!((refusals.count(), cache.figures().is_flash_lost), (1, false), "{mode}");
        assert!(rig::read(&mut port, 3)[..] == rig::content(3, 2)[..], "{mode}");
    }
}

#[test]
fn a_page_that_cannot_be_written_does_not_fill_the_journal() {
    let (origin, flash) = rig::devices(Mode::WriteBack, 4096, 4096);
    let refusals = Refusals::default();
    // The region between journal and slots: the table.
    let table = Lba(rig::TABLE / 4096)..Lba(rig::DATA / 4096);
    let bad =
        refusals.of(&flash, move |op| matches!(op, Op::Write { lba, .. } if table.contains(lba)));
    let mut oracle = Oracle::new(rig::ORIGIN / 4096, 4096);
    let mut cache = rig::open(&origin, &bad);
    let mut port = Port::open(&cache, 4).unwrap();
    // So many records that the other area of the journal is begun.
    for version in 1..14 {
        act(&mut port, &mut oracle, &write(version % 8, version)).unwrap();
        act(&mut port, &mut oracle, &Act::Flush).unwrap();
        act(&mut port, &mut oracle, &Act::Discard { lba: version % 8, count: 1 }).unwrap();
        act(&mut port, &mut oracle, &Act::Flush).unwrap();
    }
    act(&mut port, &mut oracle, &write(3, 50)).unwrap();
    act(&mut port, &mut oracle, &Act::Flush).unwrap();
    refusals.set(true);
    for _ in 0..3 {
        for n in 0..30 {
            assert!(cache.step(false).is_err(), "{n}");
        }
        assert!(!cache.figures().is_flash_lost);
        // The next open finds the announcement, and goes on.
        drop((port, cache));
        cache = rig::open(&origin, &bad);
        port = Port::open(&cache, 4).unwrap();
        oracle.check_all(&mut port, &"while it is refused");
    }
    refusals.set(false);
    while cache.step(false).unwrap() {}
    for version in 60..80 {
        act(&mut port, &mut oracle, &write(version % 8, version)).unwrap();
        act(&mut port, &mut oracle, &Act::Flush).unwrap();
    }
    drop((port, cache));
    let cache = rig::open(&origin, &flash);
    oracle.check_all(&mut Port::open(&cache, 4).unwrap(), &"opened again");
}

#[test]
fn dirty_blocks_of_other_sets_are_written_back_while_one_is_unreadable() {
    let (origin, flash) = rig::devices(Mode::WriteBack, 4096, 4096);
    let mut oracle = Oracle::new(rig::ORIGIN / 4096, 4096);
    let cache = rig::open(&origin, &flash);
    let sets = u64::from(cache.figures().sets);
    let mut port = Port::open(&cache, 4).unwrap();
    (0..20).for_each(|lba| act(&mut port, &mut oracle, &write(lba, 1)).unwrap());
    act(&mut port, &mut oracle, &Act::Flush).unwrap();
    drop((port, cache));

    let refusals = Refusals::default();
    let page = Lba(rig::TABLE / 4096 + 2 * (sets - 1));
    let bad = refusals.of(&flash, move |op| matches!(op, Op::Read { lba, .. } if *lba == page));
    let cache = rig::open(&origin, &bad);
    let before = cache.figures().dirty_blocks;
    refusals.set(true);
    let steps: Vec<bool> = (0..4).map(|_| cache.step(true).is_ok()).collect();
    assert!(steps.contains(&false), "{steps:?}");
    let left = cache.figures().dirty_blocks;
    assert!(left > 0 && left < before, "{left} of {before}");
    refusals.set(false);
    cache.clean_all().unwrap();
    oracle.check_all(&mut Port::open(&*origin, 4).unwrap(), &"the origin");
}

#[test]
fn writes_that_an_origin_refuses_hold_up_nothing_else() {
    let (origin, flash) = rig::devices(Mode::WriteBack, 4096, 4096);
    let refusals = Refusals::default();
    let bad = refusals.of(&origin, |op| matches!(op, Op::Write { .. }));
    let cache = rig::open(&bad, &flash);
    let mut port = Port::open(&cache, 4).unwrap();
    (0..4).for_each(|lba| drop(rig::read(&mut port, lba)));
    rig::write(&mut port, 5, 1);
    port.flush().unwrap();
    refusals.set(true);
    for _ in 0..4 {
        assert!(cache.step(true).is_err());
    }
    let info = Cache::inspect(&flash).unwrap();
    assert_eq!((info.dirty_blocks, info.named_blocks), (1, 5), "clean blocks have names");
}

#[test]
fn a_slot_that_cannot_be_written_is_set_aside() {
    for mode in rig::MODES {
        let (origin, flash) = rig::devices(mode, 4096, 4096);
        let refusals = Refusals::default();
        let bad = refusals.of(
            &flash,
            |op| matches!(op, Op::Write { lba, .. } if *lba == Lba(rig::DATA / 4096 + 3)),
        );
        refusals.set(true);
        let cache = rig::open(&origin, &bad);
        let mut oracle = Oracle::new(rig::ORIGIN / 4096, 4096);
        let mut port = Port::open(&cache, 4).unwrap();
        for version in 1..4 {
            for lba in 0..rig::ORIGIN / 4096 {
                act(&mut port, &mut oracle, &write(lba, version)).unwrap();
                let buf = port.run(op(&Act::Read { lba, count: 1 }, 4096)).unwrap().unwrap();
                oracle.check(lba, &buf, &mode);
            }
            cache.clean_all().unwrap();
        }
        assert_eq!(refusals.count(), 1, "{mode}");
        oracle.check_all(&mut port, &mode);
    }
}

#[test]
fn no_more_than_an_eighth_of_a_set_is_set_aside() {
    let (origin, flash) = rig::devices(Mode::WriteThrough, 4096, 4096);
    let refusals = Refusals::default();
    let bad = refusals.of(&flash, |op| writes_slot(op, 4096));
    let cache = rig::open(&origin, &bad);
    let (slots, sets) = (cache.figures().slots, u64::from(cache.figures().sets));
    let mut port = Port::open(&cache, 4).unwrap();
    refusals.set(true);
    (0..rig::ORIGIN / 4096).for_each(|lba| rig::write(&mut port, lba, 1));
    assert!(!cache.figures().is_flash_lost);
    refusals.set(false);
    (0..rig::ORIGIN / 4096).for_each(|lba| rig::write(&mut port, lba, 2));
    cache.close().unwrap();
    assert_eq!(Cache::inspect(&flash).unwrap().named_blocks, slots - sets);
}

#[test]
fn a_discard_that_fails_may_have_changed_the_origin_which_is_flushed() {
    let (origin, flash) = rig::devices(Mode::WriteThrough, 4096, 4096);
    let plan = FaultPlan::new();
    let bad: Arc<dyn Device> = Arc::new(FaultDevice::new(origin, &plan));
    let cache = rig::open(&bad, &flash);
    let mut port = Port::open(&cache, 4).unwrap();
    rig::write(&mut port, 3, 1);
    port.flush().unwrap();
    plan.once(Target::Discard, plan.seen(Target::Discard), Effect::Short);
    let discard = Op::Discard { lba: Lba(2), count: LbaCount(4) };
    assert!(port.run(discard).is_err());
    let flushes = plan.seen(Target::Flush);
    port.flush().unwrap();
    assert_eq!(plan.seen(Target::Flush), flushes + 1);
}

#[test]
fn an_outage_at_any_time_loses_nothing_that_was_flushed() {
    let mut lost = 0;
    for seed in 0..240 {
        let mut rng = Rng::new(seed);
        let mode = rig::MODES[usize::try_from(rng.below(3)).unwrap()];
        let sizes = [(512, 512), (4096, 4096), (512, 4096), (4096, 512)];
        let (outer, inner) = sizes[usize::try_from(rng.below(4)).unwrap()];
        let lbas = rig::ORIGIN / u64::from(outer);
        let (origin, flash) = rig::devices(mode, outer, inner);
        let mut oracle = Oracle::new(lbas, outer as usize);
        // Of several lives: sets are read late in all but the first.
        for life in 0..3 {
            let refusals = Refusals::default();
            let kind = rng.below(4);
            let bad = refusals.of(&flash, move |op| match kind {
                0 => true,
                1 => matches!(op, Op::Read { .. }),
                2 => matches!(op, Op::Write { .. }),
                _ => writes_slot(op, inner.into()),
            });
            let cache = rig::open(&origin, &bad);
            let mut port = Port::open(&cache, 4).unwrap();
            let (from, to) = (rng.below(40), rng.below(60));
            for n in 0..50 {
                refusals.set((from..to).contains(&n));
                let about = format!("seed {seed}, {mode}, {outer} {inner}, life {life}, {n}");
                match rng.below(12) {
                    0 => drop(cache.step(rng.chance(1, 2))),
                    1 => drop(cache.close()),
                    _ => {
                        let version = life * 100 + n + 1;
                        let act = random(&mut rng, lbas, u64::from(4096 / outer), version);
                        match (port.run(op(&act, outer as usize)), &act) {
                            (Ok(buf), Act::Read { lba, .. }) => {
                                oracle.check(*lba, &buf.unwrap(), &about);
                            }
                            (Ok(_), _) => oracle.done(&act),
                            (Err(_), _) => oracle.maybe(&act),
                        }
                    }
                }
            }
            refusals.set(false);
            // It is told of the writes that it has missed.
            let _ = port.flush();
            lost += u64::from(cache.figures().is_flash_lost);
            drop((port, cache));
            // The process ends; nothing loses power.
            oracle.crash();
            let cache = rig::open(&origin, &flash);
            let about = format!("seed {seed}, {mode}, {outer} {inner}, life {life}, opened again");
            oracle.check_all(&mut Port::open(&cache, 4).unwrap(), &about);
        }
    }
    assert!(lost > 50, "{lost}");
}
