//! Drives that are missing when a pool is opened: they are named, waited for, taken in again, or given up.

use std::sync::Arc;
use std::time::Duration;

use crate::rig::{self, Act, Oracle, SMALL, Shape};
use esker_base::{AlignedBuf, Lba, Rng};
use esker_device::{Device, Port};
use esker_sim::{Effect, FaultDevice, FaultPlan, ImageDevice, Target};
use esker_volume::types::id::DriveIndex;
use esker_volume::{MemberState, OpenOptions, Pool};

const DOUBLE: Shape = Shape { drives: 6, parity: 2, lba_size: 512, ..SMALL };
/// One drive more than a segment is wide: a lost chunk has a place to go to.
const ROOMY: Shape = Shape { drives: 5, width: Some(4), ..SMALL };

/// A pool's drives, which can be looked at, copied, and made to fail.
struct Rig {
    shape: Shape,
    memory: Vec<Arc<ImageDevice>>,
    plans: Vec<FaultPlan>,
    oracle: Oracle,
    rng: Rng,
    acts: u64,
}

impl Rig {
    fn create(shape: Shape, seed: u64) -> Rig {
        let device = |n| ImageDevice::new(&format!("d{n}"), shape.drive_bytes, shape.lba_size);
        let memory: Vec<_> = (0..shape.drives).map(|n| Arc::new(device(n))).collect();
        let plans = memory.iter().map(|_| FaultPlan::new()).collect();
        let (oracle, rng) = (Oracle::default(), Rng::new(seed));
        let rig = Rig { shape, memory, plans, oracle, rng, acts: 0 };
        Pool::create(&rig.without(&[]), &[], &rig::create_options(&shape)).unwrap();
        rig
    }

    fn without(&self, missing: &[usize]) -> Vec<Arc<dyn Device>> {
        let drives = (0..self.memory.len()).filter(|drive| !missing.contains(drive));
        let device = |at: usize| FaultDevice::new(self.memory[at].clone(), &self.plans[at]);
        drives.map(|drive| Arc::new(device(drive)) as Arc<dyn Device>).collect()
    }

    fn open(&self, missing: &[usize]) -> Pool {
        Pool::open(&self.without(missing), rig::open_options(&self.shape)).unwrap()
    }

    fn refused(&self, missing: &[usize]) -> String {
        let result = Pool::open(&self.without(missing), rig::open_options(&self.shape));
        result.err().expect("it is refused").to_string()
    }

    fn open_degraded(&self, missing: &[usize]) -> Pool {
        Pool::open(&self.without(missing), rig::degraded(&self.shape)).unwrap()
    }

    /// Random acts, and a comparison.
    fn churn(&mut self, pool: &Pool, acts: u64) {
        for _ in 0..acts {
            self.acts += 1;
            let act = self.oracle.random(&mut self.rng, 1 + self.acts * 16, 64);
            if matches!(act, Act::Reopen | Act::Abandon) {
                continue;
            }
            rig::run(pool, &act).unwrap_or_else(|error| panic!("{act:?}: {error}"));
            self.oracle.apply(&act);
        }
        self.compare(pool);
    }

    fn compare(&self, pool: &Pool) {
        rig::compare_all(pool, &self.oracle).unwrap();
        pool.check().unwrap();
    }

    /// Leaves a pool, closed or as after a crash.
    fn leave(&mut self, pool: Pool) {
        match self.rng.chance(1, 2) {
            true => pool.close().unwrap(),
            false => drop(pool),
        }
    }

    /// Damages every `nth` block of what a drive has of segments.
    fn damage(&self, drive: usize, nth: u64) {
        let device: Arc<dyn Device> = self.memory[drive].clone();
        let mut port = Port::open(&*device, 1).unwrap();
        let block = 4096 / u64::from(self.shape.lba_size);
        let blocks = device.geometry().capacity.0 / block;
        for at in (96..blocks - 16).step_by(usize::try_from(nth).unwrap()) {
            port.write(Lba(at * block), AlignedBuf::zeroed(4096), None).unwrap();
        }
    }

    fn fail(&self, drive: usize) {
        self.plans[drive].from_then_on(Target::Any, 0, Effect::Fail);
    }
}

fn settle(pool: &Pool) {
    for _ in 0..1000 {
        if !pool.step().unwrap() {
            return;
        }
    }
    panic!("maintenance does not end: {:#?}", pool.status());
}

fn state(pool: &Pool, drive: usize) -> MemberState {
    pool.status().members[drive].state
}

fn has_alarm(pool: &Pool, code: &str) -> bool {
    pool.status().alarms.iter().any(|alarm| alarm.code == code)
}

#[test]
fn forgotten_drive_is_named_and_nothing_is_changed() {
    let mut rig = Rig::create(SMALL, 1);
    let pool = rig.open(&[]);
    rig.churn(&pool, 30);
    rig.leave(pool);
    let before: Vec<_> = rig.memory.iter().map(|memory| memory.stats().written_bytes).collect();
    let error = rig.refused(&[2]);
    assert!(error.contains("missing: drive 2 (") && error.contains("last seen as d2"), "{error}");
    assert!(error.contains("`degraded`"), "{error}");
    let after: Vec<_> = rig.memory.iter().map(|memory| memory.stats().written_bytes).collect();
    assert_eq!(before, after);
    let pool = rig.open(&[]);
    assert!(pool.remarks().is_empty(), "{:?}", pool.remarks());
    rig.compare(&pool);
}

#[test]
fn missing_drive_is_waited_for_and_used_again_when_it_returns() {
    for (shape, seed) in [(SMALL, 1), (SMALL, 2), (ROOMY, 3), (ROOMY, 4), (DOUBLE, 5), (DOUBLE, 6)]
    {
        for acts in [0, 10, 60] {
            let mut rig = Rig::create(shape, seed);
            let pool = rig.open(&[]);
            rig.churn(&pool, 60);
            rig.leave(pool);
            let pool = rig.open_degraded(&[1]);
            assert_eq!(state(&pool, 1), MemberState::Missing);
            assert!(has_alarm(&pool, "DRIVE_MISSING"), "{:?}", pool.status().alarms);
            rig.churn(&pool, acts);
            settle(&pool);
            let log = pool.status().log.members;
            assert!(log.len() > usize::from(shape.parity) && !log.contains(&DriveIndex(1)));
            rig.leave(pool);
            // It needs no flag again.
            let pool = rig.open(&[1]);
            rig.churn(&pool, acts);
            assert_eq!(pool.status().written.rebuilt, 0);
            rig.leave(pool);
            let pool = rig.open(&[]);
            assert_eq!(state(&pool, 1), MemberState::Rejoining);
            assert!(has_alarm(&pool, "DRIVE_REJOINING"), "{:?}", pool.status().alarms);
            rig.compare(&pool);
            rig.churn(&pool, acts);
            settle(&pool);
            assert_eq!(state(&pool, 1), MemberState::Online);
            assert_eq!(pool.status().members[1].checksum_errors, 0);
            // It counts again: as many others may fail as there are parities.
            for drive in 2..2 + usize::from(shape.parity) {
                rig.fail(drive);
            }
            rig.compare(&pool);
        }
    }
}

/// A copy of the write buffer misses a frame, there is a crash, and the other copy is gone. The one that is left must not
/// stand for what it missed: the open is refused, or another drive has had its copy since.
#[test]
fn copy_of_the_log_that_missed_a_frame_does_not_count() {
    for (seed, settles) in (0..8).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut rig = Rig::create(ROOMY, seed);
        let pool = rig.open(&[]);
        rig.churn(&pool, 30);
        let copies: Vec<usize> =
            pool.status().log.members.iter().map(|index| usize::from(index.0)).collect();
        let plan = &rig.plans[copies[1]];
        plan.once(Target::Write, plan.seen(Target::Write) + seed, Effect::Fail);
        let mut written = 0;
        while rig.plans[copies[1]].fired() == 0 || written < 10 {
            rig::write_somewhere(&pool, &mut rig.oracle, 9000 + written * 3);
            written += 1;
        }
        if settles {
            settle(&pool);
        }
        drop(pool);
        match Pool::open(&rig.without(&[copies[0]]), rig::degraded(&ROOMY)) {
            Ok(pool) => rig.compare(&pool),
            Err(error) => assert!(!settles, "{error}"),
        }
    }
}

#[test]
fn two_drives_that_take_turns_to_be_missing_lose_nothing() {
    for seed in 0..6 {
        let mut rig = Rig::create(DOUBLE, seed);
        let pool = rig.open(&[]);
        rig.churn(&pool, 40);
        rig.leave(pool);
        for missing in [&[0][..], &[0, 1], &[1], &[1, 2], &[2, 0], &[0], &[]] {
            let pool = rig.open_degraded(missing);
            rig.churn(&pool, 20);
            rig.leave(pool);
        }
        let pool = rig.open(&[]);
        settle(&pool);
        assert!(pool.status().members.iter().all(|member| member.state == MemberState::Online));
        assert!(pool.status().members.iter().all(|member| member.checksum_errors == 0));
        rig.fail(3);
        rig.fail(4);
        rig.compare(&pool);
    }
}

#[test]
fn missing_drive_is_given_up_after_its_time_and_refused_then() {
    for (shape, seed) in [(SMALL, 1), (ROOMY, 2), (DOUBLE, 3)] {
        let mut rig = Rig::create(shape, seed);
        let pool = rig.open(&[]);
        rig.churn(&pool, 60);
        pool.close().unwrap();
        let options = rig::degraded(&shape);
        let clock = options.clock.clone();
        let grace = options.missing_grace;
        let pool = Pool::open(&rig.without(&[1]), options).unwrap();
        clock.sleep(grace - Duration::from_secs(1));
        settle(&pool);
        assert_eq!(state(&pool, 1), MemberState::Missing);
        assert!(pool.status().segments[1] > 0);
        clock.sleep(Duration::from_secs(2));
        settle(&pool);
        assert_eq!(state(&pool, 1), MemberState::Faulted);
        assert_eq!(pool.status().segments[1..], [0, 0, 0]);
        rig.churn(&pool, 20);
        rig.leave(pool);
        let pool = rig.open(&[]);
        let refused =
            pool.remarks().iter().any(|remark| remark.starts_with("d1: drive 1 is faulted"));
        assert!(refused, "{:?}", pool.remarks());
        rig.compare(&pool);
    }
}

#[test]
fn missing_drive_that_was_replaced_or_retired_is_refused_when_it_returns() {
    for replaced in [false, true] {
        let mut rig = Rig::create(ROOMY, 1);
        let pool = rig.open(&[]);
        rig.churn(&pool, 60);
        rig.leave(pool);
        let pool = rig.open_degraded(&[1]);
        let spare: Arc<dyn Device> = Arc::new(ImageDevice::new("spare", 4 << 20, 512));
        if replaced {
            pool.replace(DriveIndex(1), &spare, false).unwrap();
        } else {
            pool.retire(DriveIndex(1)).unwrap();
        }
        settle(&pool);
        assert_eq!(state(&pool, 1), MemberState::Retired);
        assert_eq!(pool.status().segments[1..], [0, 0, 0]);
        rig.churn(&pool, 20);
        drop(pool);
        let mut devices = rig.without(&[]);
        if replaced {
            devices.push(spare);
        }
        let pool = Pool::open(&devices, rig::open_options(&ROOMY)).unwrap();
        let refused =
            pool.remarks().iter().any(|remark| remark.starts_with("d1: drive 1 is retired"));
        assert!(refused, "{:?}", pool.remarks());
        rig.compare(&pool);
    }
}

#[test]
fn missing_drive_that_returns_with_an_earlier_content_is_refused() {
    for seed in 0..8 {
        let mut rig = Rig::create(SMALL, seed);
        let pool = rig.open(&[]);
        rig.churn(&pool, 20);
        let earlier = Arc::new(rig.memory[1].fork());
        rig.churn(&pool, 20);
        for _ in 0..3 {
            pool.checkpoint().unwrap();
        }
        rig.leave(pool);
        let pool = rig.open_degraded(&[1]);
        rig.churn(&pool, 20);
        rig.leave(pool);
        rig.memory[1] = earlier;
        let pool = rig.open(&[]);
        assert_eq!(state(&pool, 1), MemberState::Missing);
        let named =
            pool.remarks().iter().any(|remark| remark.contains("it has an earlier content"));
        assert!(named, "{:?}", pool.remarks());
        rig.churn(&pool, 20);
    }
}

#[test]
fn halves_that_were_both_opened_on_purpose_are_not_put_together() {
    let shape = Shape { drives: 2, drive_bytes: 4 << 20, ..SMALL };
    let mut rig = Rig::create(shape, 1);
    let pool = rig.open(&[]);
    rig.churn(&pool, 30);
    drop(pool);
    let halves = [0, 1].map(|half| {
        let options = OpenOptions { accept_half: true, ..rig::open_options(&shape) };
        let pool = Pool::open(&rig.without(&[half]), options).unwrap();
        let mut oracle = rig.oracle.clone();
        rig::write_somewhere(&pool, &mut oracle, 9000 + half as u64 * 3);
        if half == 1 {
            pool.checkpoint().unwrap(); // its labels are the newest
        }
        oracle
    });
    let pool = rig.open(&[]);
    let named = pool.remarks().iter().any(|remark| remark.contains("another half of the pool"));
    assert!(named, "{:?}", pool.remarks());
    rig::compare_all(&pool, &halves[1]).unwrap();
}

/// A copy of all drives is opened elsewhere, and one of its drives has a label with the very number that this pool's had when
/// it went missing: only the epoch tells them apart.
#[test]
fn drive_of_another_copy_with_the_number_of_the_missing_one_is_refused() {
    for behind in [0, 1] {
        let mut rig = Rig::create(SMALL, 11);
        let pool = rig.open(&[]);
        rig.churn(&pool, 30);
        pool.close().unwrap();
        let sequence = |drive: &ImageDevice| Pool::examine(drive).unwrap().sequence;
        let copies: Vec<_> = rig.memory.iter().map(|drive| Arc::new(drive.fork())).collect();
        let pool = rig.open(&[]);
        rig.churn(&pool, 20);
        for _ in 0..20 {
            pool.checkpoint().unwrap();
        }
        pool.close().unwrap();
        let left = sequence(&rig.memory[1]);
        let pool = rig.open_degraded(&[1]);
        rig.churn(&pool, 20);
        rig.leave(pool);
        // The copy goes on without its first drive, and as far as that.
        let others: Vec<Arc<dyn Device>> =
            copies[1..].iter().map(|copy| copy.clone() as Arc<dyn Device>).collect();
        let pool = Pool::open(&others, rig::degraded(&SMALL)).unwrap();
        while sequence(&copies[1]) < left - behind {
            let act = Act::Write { volume: 9, block: 0, count: 1, version: 9999 };
            if pool.show("v9").is_err() {
                rig::run(&pool, &Act::Create(9, 16)).unwrap();
            }
            rig::run(&pool, &act).unwrap();
            pool.checkpoint().unwrap();
        }
        assert_eq!(sequence(&copies[1]), left - behind);
        drop(pool);
        rig.memory[1] = copies[1].clone();
        let pool = rig.open(&[]);
        assert_eq!(state(&pool, 1), MemberState::Missing);
        let named = pool.remarks().iter().any(|remark| remark.contains("another half of the pool"));
        assert!(named, "{:?}", pool.remarks());
        rig.compare(&pool);
    }
}

/// Three of four drives fail a flush at once: the labels that would take them out are on one drive, which is no
/// majority. So nothing is acknowledged any more, and nothing was lost when they are well again.
#[test]
fn configuration_that_most_drives_did_not_take_stops_the_pool() {
    for (shape, seed) in [(SMALL, 1), (SMALL, 2), (DOUBLE, 3)] {
        let mut rig = Rig::create(shape, seed);
        let pool = rig.open(&[]);
        rig.churn(&pool, 40);
        for drive in 1..shape.drives {
            rig.plans[drive].from_then_on(Target::Flush, 0, Effect::Fail);
        }
        let error = pool.checkpoint().unwrap_err().to_string();
        assert!(error.contains("half are needed"), "{error}");
        assert!(has_alarm(&pool, "POOL_STOPPED"), "{:?}", pool.status().alarms);
        for volume in 0..4 {
            let write = Act::Write { volume, block: 0, count: 1, version: 7 };
            assert!(rig::run(&pool, &write).is_err());
        }
        drop(pool);
        rig.plans = rig.memory.iter().map(|_| FaultPlan::new()).collect();
        // One has labels that the others do not have: without it they are a majority, too.
        for missing in [&[][..], &[0]] {
            let pool = Pool::open(&rig.without(missing), rig::degraded(&shape)).unwrap();
            rig.compare(&pool);
        }
    }
}

#[test]
fn drive_that_was_being_emptied_is_not_waited_for() {
    let mut rig = Rig::create(ROOMY, 3);
    let pool = rig.open(&[]);
    rig.churn(&pool, 80);
    pool.drain().unwrap();
    pool.checkpoint().unwrap();
    pool.retire(DriveIndex(2)).unwrap();
    drop(pool);
    let pool = rig.open_degraded(&[2]);
    assert_eq!(state(&pool, 2), MemberState::Faulted);
    settle(&pool);
    assert_eq!(pool.status().segments[1..], [0, 0, 0]);
    rig.churn(&pool, 10);
    drop(pool);
    let pool = rig.open(&[]);
    let refused = pool.remarks().iter().any(|remark| remark.starts_with("d2: drive 2 is faulted"));
    assert!(refused, "{:?}", pool.remarks());
    rig.fail(0);
    rig.compare(&pool);
}

#[test]
fn drives_that_were_missing_before_count_as_missing() {
    let mut rig = Rig::create(DOUBLE, 4);
    let pool = rig.open(&[]);
    rig.churn(&pool, 40);
    rig.leave(pool);
    for missing in [&[0][..], &[0, 1]] {
        let pool = rig.open_degraded(missing);
        rig.churn(&pool, 10);
        rig.leave(pool);
    }
    let third = Pool::open(&rig.without(&[0, 1, 2]), rig::degraded(&DOUBLE));
    let error = third.err().expect("it is refused").to_string();
    assert!(error.contains("2 may be missing"), "{error}");
    let pool = rig.open(&[0, 1]);
    rig.compare(&pool);
}

#[test]
fn damage_on_a_drive_that_returned_is_found_and_repaired() {
    let mut rig = Rig::create(ROOMY, 7);
    let pool = rig.open(&[]);
    rig.churn(&pool, 80);
    pool.close().unwrap();
    let pool = rig.open_degraded(&[1]);
    rig.churn(&pool, 10);
    rig.leave(pool);
    // Some of what it had is not what it was.
    rig.damage(1, 3);
    let pool = rig.open(&[]);
    settle(&pool);
    assert_eq!(state(&pool, 1), MemberState::Online);
    assert!(pool.status().members[1].checksum_errors > 0);
    let innocent = [0, 2, 3, 4].map(|drive| pool.status().members[drive].checksum_errors);
    assert_eq!(innocent, [0; 4]);
    pool.scrub();
    settle(&pool);
    assert_eq!(pool.status().scrub.map_or(0, |scrub| scrub.errors), 0);
    rig.fail(2);
    rig.compare(&pool);
}

/// A pool with live data whose drive 0 fails now.
fn with_a_lost_drive(shape: Shape, seed: u64) -> (Rig, Pool) {
    let mut rig = Rig::create(shape, seed);
    let pool = rig.open(&[]);
    rig.churn(&pool, 80);
    pool.drain().unwrap();
    pool.checkpoint().unwrap();
    settle(&pool);
    rig.fail(0);
    pool.checkpoint().unwrap();
    assert_eq!(state(&pool, 0), MemberState::Faulted);
    (rig, pool)
}

#[test]
fn lost_chunks_are_rebuilt_and_nothing_is_moved() {
    for (shape, seed) in [(ROOMY, 1), (ROOMY, 2), (Shape { width: Some(5), ..DOUBLE }, 3)] {
        let (mut rig, pool) = with_a_lost_drive(shape, seed);
        let before = pool.status();
        let rebuild = before.rebuild.unwrap();
        assert!(rebuild.chunks > 0 && rebuild.bytes_left > 0, "{rebuild:?}");
        settle(&pool);
        let after = pool.status();
        assert_eq!(after.segments[1..], [0, 0, 0]);
        assert_eq!(after.written.cleaned, before.written.cleaned);
        assert_eq!(after.written.rebuilt, rebuild.bytes_left);
        assert_eq!(after.rebuild, None);
        pool.scrub();
        settle(&pool);
        assert_eq!(pool.status().scrub.map_or(0, |scrub| scrub.errors), 0);
        rig.churn(&pool, 20);
        drop(pool);
        let pool = rig.open(&[0]);
        rig.fail(3);
        rig.compare(&pool);
    }
}

#[test]
fn chunks_of_a_drive_that_is_emptied_are_copied() {
    let mut rig = Rig::create(ROOMY, 4);
    let pool = rig.open(&[]);
    rig.churn(&pool, 80);
    settle(&pool);
    let before = pool.status().written;
    pool.retire(DriveIndex(2)).unwrap();
    settle(&pool);
    assert_eq!(state(&pool, 2), MemberState::Retired);
    let after = pool.status().written;
    assert!(after.rebuilt > before.rebuilt && after.cleaned == before.cleaned);
    rig.fail(0);
    rig.compare(&pool);
}

#[test]
fn chunks_are_rebuilt_from_what_is_right_only() {
    for seed in 0..24 {
        let (mut rig, pool) = with_a_lost_drive(DOUBLE, seed);
        rig.damage(2, 1 + seed % 4);
        settle(&pool);
        assert_eq!(pool.status().segments[1..], [0, 0, 0]);
        rig.fail(3);
        if seed % 2 == 1 {
            // Damage elsewhere is repaired, too; then another drive may fail.
            pool.scrub();
            settle(&pool);
            pool.scrub();
            settle(&pool);
            assert_eq!(pool.status().scrub.map_or(0, |scrub| scrub.errors), 0);
            rig.churn(&pool, 5);
            rig.fail(4);
        }
        rig.compare(&pool);
    }
}

#[test]
fn rebuild_goes_on_where_its_targets_fail() {
    for seed in 0..8 {
        let (mut rig, pool) = with_a_lost_drive(DOUBLE, seed);
        pool.step().unwrap();
        let plan = &rig.plans[5];
        plan.from_then_on(Target::Write, plan.seen(Target::Write) + seed, Effect::Fail);
        settle(&pool);
        rig.churn(&pool, 20);
        settle(&pool);
        assert_eq!(pool.status().beyond_repair, 0);
        rig.compare(&pool);
    }
}

#[test]
fn rebuild_goes_on_while_its_segments_are_emptied() {
    // Chunks that are rebuilt in several steps.
    let shape =
        Shape { drive_bytes: 12 << 20, chunk_bytes: 512 << 10, unit_bytes: 4 << 10, ..ROOMY };
    for seed in 0..4 {
        let mut rig = Rig::create(shape, seed);
        let pool = rig.open(&[]);
        let create = Act::Create(1, 1024);
        rig::run(&pool, &create).unwrap();
        rig.oracle.apply(&create);
        let write = |rig: &mut Rig, block: u64, version: u64| {
            let act = Act::Write { volume: 1, block: block % 1024 / 8 * 8, count: 8, version };
            rig::run(&pool, &act).unwrap();
            rig.oracle.apply(&act);
        };
        (0..1024).step_by(8).for_each(|block| write(&mut rig, block, 3 * block));
        pool.drain().unwrap();
        pool.checkpoint().unwrap();
        rig.fail(0);
        pool.checkpoint().unwrap();
        for n in 0..64_u64 {
            pool.step().unwrap();
            for m in 0..4 {
                write(&mut rig, 4096 - n * 32 - m * 8 - seed * 8, 5000 + n * 24 + m * 3);
            }
            if n % 4 == seed {
                pool.drain().unwrap();
                pool.checkpoint().unwrap();
            }
        }
        settle(&pool);
        assert_eq!(pool.status().segments[1..], [0, 0, 0]);
        let blamed = pool.status().members.iter().any(|member| member.checksum_errors > 0);
        assert!(!blamed, "{:?}", pool.status().alarms);
        rig.compare(&pool);
        rig.fail(1 + usize::try_from(seed).unwrap());
        rig.compare(&pool);
    }
}
