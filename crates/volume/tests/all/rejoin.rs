//! Drives that are missing, or that fail, and are taken in again while the pool is open.

use std::sync::Arc;

use crate::rig::{self, Act, Oracle, SMALL, Shape};
use esker_base::{AlignedBuf, Lba, Rng};
use esker_device::{Device, Port};
use esker_sim::{Effect, FaultDevice, FaultPlan, ImageDevice, Target};
use esker_volume::types::id::DriveIndex;
use esker_volume::{CreateOptions, MemberState, Pool};

const DOUBLE: Shape = Shape { drives: 6, parity: 2, lba_size: 512, ..SMALL };
/// One drive more than a segment is wide: a lost chunk has a place to go to.
const ROOMY: Shape = Shape { drives: 5, width: Some(4), ..SMALL };
const BUFFERED: Shape = Shape { buffers: 2, ..SMALL };

/// A pool's devices, drives first, which can be pulled, and an oracle.
struct Rig {
    shape: Shape,
    memory: Vec<Arc<ImageDevice>>,
    plans: Vec<FaultPlan>,
    devices: Vec<Arc<dyn Device>>,
    oracle: Oracle,
    rng: Rng,
    acts: u64,
}

impl Rig {
    fn create(shape: Shape, seed: u64) -> Rig {
        let bytes = |n| if n < shape.drives { shape.drive_bytes } else { 384 << 10 };
        let device = |n| ImageDevice::new(&format!("d{n}"), bytes(n), shape.lba_size);
        let memory: Vec<_> =
            (0..shape.drives + shape.buffers).map(|n| Arc::new(device(n))).collect();
        let plans: Vec<FaultPlan> = memory.iter().map(|_| FaultPlan::new()).collect();
        let devices = memory.iter().zip(&plans);
        let devices: Vec<_> = devices
            .map(|(memory, plan)| {
                Arc::new(FaultDevice::new(memory.clone(), plan)) as Arc<dyn Device>
            })
            .collect();
        let (drives, buffers) = devices.split_at(shape.drives);
        Pool::create(drives, buffers, &rig::create_options(&shape)).unwrap();
        let (oracle, rng) = (Oracle::default(), Rng::new(seed));
        Rig { shape, memory, plans, devices, oracle, rng, acts: 0 }
    }

    fn open(&self) -> Pool {
        rig::open(&self.devices, &self.shape)
    }

    fn open_without(&self, missing: usize) -> Pool {
        let mut devices = self.devices.clone();
        devices.remove(missing);
        Pool::open(&devices, rig::degraded(&self.shape)).unwrap()
    }

    /// Random acts.
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
    }

    fn compare(&self, pool: &Pool) {
        rig::compare_all(pool, &self.oracle).unwrap();
        pool.check().unwrap();
    }

    fn pull(&self, device: usize) {
        self.plans[device].from_then_on(Target::Any, 0, Effect::Fail);
    }

    /// All is online, and as many drives may fail as there are parities.
    fn is_whole(&self, pool: &Pool) {
        settle(pool);
        let status = pool.status();
        assert!(status.members.iter().all(|one| one.state == MemberState::Online), "{status:#?}");
        assert_eq!(status.segments[1..], [0, 0, 0]);
        let copies = if self.shape.buffers > 0 { 2 } else { usize::from(self.shape.parity) + 1 };
        assert_eq!(status.log.members.len(), copies);
        pool.scrub();
        settle(pool);
        assert_eq!(pool.status().scrub.map_or(0, |scrub| scrub.errors), 0);
        self.compare(pool);
        for drive in 2..2 + usize::from(self.shape.parity) {
            self.pull(drive);
        }
        self.compare(pool);
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

/// A pool whose drive 1 was pulled after some acts, and some acts after that.
fn pulled(shape: Shape, seed: u64, acts: u64) -> (Rig, Pool) {
    let mut rig = Rig::create(shape, seed);
    let pool = rig.open();
    rig.churn(&pool, 80);
    rig.pull(1);
    rig.churn(&pool, acts);
    pool.checkpoint().unwrap();
    assert_eq!(state(&pool, 1), MemberState::Faulted);
    (rig, pool)
}

#[test]
fn missing_drive_is_taken_in_again_while_the_pool_is_open() {
    for (shape, seed) in [(SMALL, 1), (SMALL, 2), (ROOMY, 3), (DOUBLE, 4), (DOUBLE, 5)] {
        for acts in [0, 10, 60] {
            let mut rig = Rig::create(shape, seed);
            let pool = rig.open();
            rig.churn(&pool, 60);
            drop(pool);
            let pool = rig.open_without(1);
            rig.churn(&pool, acts);
            pool.rejoin(DriveIndex(1), &rig.devices[1]).unwrap();
            assert_eq!(state(&pool, 1), MemberState::Rejoining);
            rig.compare(&pool);
            rig.churn(&pool, acts);
            rig.is_whole(&pool);
            assert_eq!(pool.status().members[1].checksum_errors, 0);
        }
    }
}

#[test]
fn pulled_drive_is_taken_in_again_while_it_is_being_rebuilt() {
    for (shape, seed) in
        [(SMALL, 1), (ROOMY, 2), (ROOMY, 3), (DOUBLE, 4), (DOUBLE, 5), (BUFFERED, 6)]
    {
        for steps in [0, 1, 3, 1000] {
            let (mut rig, pool) = pulled(shape, seed, steps % 7 * 5);
            (0..steps).find(|_| !pool.step().unwrap());
            rig.churn(&pool, 10);
            rig.plans[1].heal();
            let device = pool.device_of(DriveIndex(1)).unwrap();
            pool.rejoin(DriveIndex(1), &device).unwrap();
            rig.compare(&pool);
            rig.churn(&pool, 20);
            rig.is_whole(&pool);
        }
    }
}

#[test]
fn pulled_drive_comes_back_over_and_over_and_crashes_lose_nothing() {
    for seed in 0..6 {
        let shape = [SMALL, ROOMY, DOUBLE][usize::try_from(seed % 3).unwrap()];
        let mut rig = Rig::create(shape, seed);
        let mut pool = rig.open();
        rig.churn(&pool, 60);
        for round in 0..6 {
            let drive = usize::try_from(rig.rng.below(shape.drives as u64)).unwrap();
            rig.pull(drive);
            rig.churn(&pool, 10);
            pool.checkpoint().unwrap();
            rig.plans[drive].heal();
            let index = DriveIndex(u16::try_from(drive).unwrap());
            pool.rejoin(index, &rig.devices[drive]).unwrap();
            for _ in 0..rig.rng.below(20) {
                pool.step().unwrap();
            }
            rig.churn(&pool, 5);
            if round % 2 == 0 {
                drop(pool);
                pool = rig.open();
                rig.compare(&pool);
            }
            settle(&pool);
            rig.compare(&pool);
        }
        rig.is_whole(&pool);
    }
}

#[test]
fn content_that_changed_while_it_was_away_is_never_shown() {
    let (mut rig, pool) = pulled(ROOMY, 7, 10);
    rig.plans[1].heal();
    let device: Arc<dyn Device> = rig.memory[1].clone();
    let mut port = Port::open(&*device, 1).unwrap();
    for at in (96..device.geometry().capacity.0 - 16).step_by(2) {
        port.write(Lba(at), AlignedBuf::zeroed(4096), None).unwrap();
    }
    pool.rejoin(DriveIndex(1), &rig.devices[1]).unwrap();
    rig.compare(&pool);
    rig.churn(&pool, 10);
    settle(&pool);
    assert!(pool.status().members[1].checksum_errors > 0);
    let others = [0, 2, 3, 4].map(|drive| pool.status().members[drive].checksum_errors);
    assert_eq!(others, [0; 4]);
    rig.is_whole(&pool);
}

#[test]
fn buffer_device_is_taken_in_again() {
    for acts in [0, 10, 60] {
        let mut rig = Rig::create(BUFFERED, 3);
        let pool = rig.open();
        rig.churn(&pool, 40);
        let buffer = rig.shape.drives;
        rig.pull(buffer);
        rig.churn(&pool, 10);
        let write = Act::Write { volume: 9, block: 0, count: 1, version: 7 };
        for act in [Act::Create(9, 16), write] {
            rig::run(&pool, &act).unwrap();
            rig.oracle.apply(&act);
        }
        assert_eq!(state(&pool, buffer), MemberState::Faulted);
        rig.plans[buffer].heal();
        let index = DriveIndex(u16::try_from(buffer).unwrap());
        pool.rejoin(index, &rig.devices[buffer]).unwrap();
        rig.churn(&pool, acts);
        settle(&pool);
        // It has all that is acknowledged: the other one may go.
        rig.churn(&pool, 5);
        rig.pull(buffer + 1);
        rig.churn(&pool, 5);
        drop(pool);
        rig.plans[buffer + 1].heal();
        let pool = rig.open_without(buffer + 1);
        rig.compare(&pool);
    }
}

#[test]
fn drive_that_fails_again_is_out_again() {
    for after in 0..40 {
        let (mut rig, pool) = pulled(ROOMY, after, 5);
        rig.plans[1].heal();
        let seen = rig.plans[1].seen(Target::Any);
        rig.plans[1].from_then_on(Target::Any, seen + after, Effect::Fail);
        let _ = pool.rejoin(DriveIndex(1), &rig.devices[1]);
        rig.churn(&pool, 10);
        settle(&pool);
        rig.compare(&pool);
        rig.plans[1].heal();
        if state(&pool, 1) == MemberState::Faulted {
            pool.rejoin(DriveIndex(1), &rig.devices[1]).unwrap();
        }
        rig.is_whole(&pool);
    }
}

#[test]
fn other_drives_are_refused_and_nothing_is_changed() {
    let mut rig = Rig::create(ROOMY, 1);
    let pool = rig.open();
    rig.churn(&pool, 40);
    let earlier: Arc<dyn Device> = Arc::new(rig.memory[1].fork());
    rig.churn(&pool, 20);
    for _ in 0..3 {
        pool.checkpoint().unwrap();
    }
    drop(pool);
    let elsewhere: Vec<Arc<dyn Device>> =
        rig.memory.iter().map(|one| Arc::new(one.fork()) as Arc<dyn Device>).collect();
    let pool = Pool::open(&elsewhere, rig::open_options(&ROOMY)).unwrap();
    pool.checkpoint().unwrap();
    drop(pool);
    let pool = rig.open_without(1);
    rig.churn(&pool, 10);
    let (other, _) = rig::devices(&Shape { name: "x", ..ROOMY });
    let options = CreateOptions { seed: Some(8), ..rig::create_options(&ROOMY) };
    Pool::create(&other, &[], &options).unwrap();
    let blank: Arc<dyn Device> = Arc::new(ImageDevice::new("blank", 4 << 20, 512));
    let short: Arc<dyn Device> =
        Arc::new(ImageDevice::new("short", rig.shape.drive_bytes / 2, 512));
    let before = (pool.status().epoch, rig.memory[1].stats().written_bytes);
    for (number, device, words) in [
        (1, &other[1], "of pool 'tank'"),
        (1, &blank, "no label"),
        (1, &short, "no label"),
        (1, &rig.devices[2], "it is drive 2"),
        (1, &earlier, "earlier content"),
        (1, &elsewhere[1], "another half"),
        (2, &rig.devices[2], "there already"),
        (2, &rig.devices[1], "it is drive 1"),
        (9, &rig.devices[1], "'9'"),
    ] {
        for is_rehearsal in [true, false] {
            let result = match is_rehearsal {
                true => pool.check_rejoin(DriveIndex(number), device),
                false => pool.rejoin(DriveIndex(number), device),
            };
            let error = result.unwrap_err().to_string();
            assert!(error.contains(words), "{number} {}: {error}", device.name());
        }
    }
    assert_eq!((pool.status().epoch, rig.memory[1].stats().written_bytes), before);
    rig.compare(&pool);
    pool.check_rejoin(DriveIndex(1), &rig.devices[1]).unwrap();
    pool.retire(DriveIndex(1)).unwrap();
    let error = pool.rejoin(DriveIndex(1), &rig.devices[1]).unwrap_err().to_string();
    assert!(error.contains("retired or replaced"), "{error}");
}
