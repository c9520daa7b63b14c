//! Drives that are retired from pools with little room: refused by exact figures, or emptied to the end; a retirement for which
//! room runs out all the same waits, leaves the pool as usable as it was, goes on when there is room, and can be called off.

use std::sync::Arc;

use crate::rig::{self, Act, BLOCK, Content, Oracle, SMALL, Shape};
use esker_base::{ErrorKind, Lba, LbaCount, Rng};
use esker_device::{Device, MemoryDevice, Port};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};
use esker_volume::types::id::DriveIndex;
use esker_volume::{CreateOptions, MemberState, Pool, Role, VolumeError, VolumeOptions};

const RAW: VolumeOptions = VolumeOptions { compression: false, iops_limit: 0, bytes_limit: 0 };
/// A segment lies on all drives: without one of them it is narrower, and what it holds is moved.
const WIDE: Shape = Shape { drives: 5, map_bytes: 256 << 10, ..SMALL };
/// A chunk has other drives to go to.
const NARROW: Shape = Shape { width: Some(3), ..WIDE };

/// A pool on drives of so many MiB, with one volume.
struct Rig {
    pool: Pool,
    oracle: Oracle,
    plans: Vec<FaultPlan>,
    devices: Vec<Arc<dyn Device>>,
    shape: Shape,
    /// The next version to write.
    next: u64,
}

impl Rig {
    fn new(shape: Shape, mib: &[u64]) -> Rig {
        let plans: Vec<FaultPlan> = mib.iter().map(|_| FaultPlan::new()).collect();
        let drives = (0..).zip(mib.iter().zip(&plans));
        let devices: Vec<Arc<dyn Device>> = drives
            .map(|(n, (mib, plan))| {
                let memory = MemoryDevice::new(&format!("d{n}"), mib << 20, shape.lba_size);
                Arc::new(FaultDevice::new(Arc::new(memory), plan)) as Arc<dyn Device>
            })
            .collect();
        let options = CreateOptions {
            log_bytes: 1 << 20,
            root_bytes: Some(128 << 10),
            ..rig::create_options(&shape)
        };
        Pool::create(&devices, &[], &options).unwrap();
        let pool = rig::open(&devices, &shape);
        let blocks = 18 << 10;
        pool.create_volume("v0", blocks * BLOCK as u64, RAW).unwrap();
        let content =
            Content { blocks: vec![0; usize::try_from(blocks).unwrap()], ..Content::default() };
        let oracle = Oracle([(0, content)].into());
        Rig { pool, oracle, plans, devices, shape, next: 1 }
    }

    fn write(&mut self, block: u64, count: u64) -> Result<(), VolumeError> {
        let act = Act::Write { volume: 0, block, count, version: self.next };
        self.next += count;
        rig::run(&self.pool, &act)?;
        self.oracle.apply(&act);
        Ok(())
    }

    /// Blocks that are written, from the first one on.
    fn written(&self) -> u64 {
        self.oracle.0[&0].blocks.iter().filter(|version| **version > 0).count() as u64
    }

    /// Fills the pool to so many percent of what it can hold, and writes a third of it anew.
    fn fill(&mut self, percent: u64) {
        let blocks = self.pool.status().space.usable * percent / 100 / BLOCK as u64;
        let mut block = 0;
        while block < blocks {
            let count = (blocks - block).min(8);
            self.write(block, count).unwrap();
            block += count;
        }
        let mut rng = Rng::new(percent);
        for _ in 0..blocks / 12 {
            self.write(rng.below(blocks - 4), 4).unwrap();
        }
    }

    /// Writes behind what is written until there is no space. Returns how many blocks fitted.
    fn fill_up(&mut self) -> u64 {
        let begin = self.written();
        loop {
            let block = self.written();
            match self.write(block, 1) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                    return block - begin;
                }
            }
        }
    }

    /// Discards the last of the blocks that are written.
    fn discard(&mut self, count: u64) {
        let block = self.written() - count;
        let volume = self.pool.volume("v0").unwrap();
        Port::open(&*volume, 1).unwrap().discard(Lba(block), LbaCount(count)).unwrap();
        let act = Act::Zero { volume: 0, block, count, discard: true };
        assert!(self.oracle.apply(&act));
    }

    fn settle(&self) {
        for _ in 0..5000 {
            if !self.pool.step().unwrap() {
                return;
            }
        }
        panic!("maintenance does not end: {:#?}", self.pool.status());
    }

    fn state(&self, drive: u16) -> MemberState {
        self.pool.status().members[usize::from(drive)].state
    }

    fn has_alarm(&self, code: &str) -> bool {
        self.pool.status().alarms.iter().any(|alarm| alarm.code == code)
    }

    fn compare(&self) {
        rig::compare_all(&self.pool, &self.oracle).unwrap();
        self.pool.check().unwrap();
    }

    fn reopen(self) -> Rig {
        let Rig { pool, oracle, plans, devices, shape, next } = self;
        drop(pool);
        let pool = rig::open(&devices, &shape);
        Rig { pool, oracle, plans, devices, shape, next }
    }
}

/// The bytes stored and the room for them, of a refusal.
fn figures(error: &VolumeError) -> (u64, u64) {
    match error {
        VolumeError::NoRoomElsewhere { stored, room, .. } => (*stored, *room),
        other => panic!("{other}"),
    }
}

#[test]
fn drive_is_retired_when_what_is_stored_fits_the_others_and_not_before() {
    let shapes: [(Shape, [u64; 5], &[u16]); 4] = [
        (WIDE, [12; 5], &[0, 3]),
        (NARROW, [12; 5], &[0, 3]),
        (WIDE, [10, 12, 14, 10, 16], &[0, 2, 4]),
        (NARROW, [8, 10, 18, 10, 14], &[0, 2, 4]),
    ];
    let (mut refused, mut accepted, mut waited) = (0, 0, 0);
    for (number, (shape, mib, drives)) in shapes.into_iter().enumerate() {
        for percent in [60, 80, 95] {
            for &drive in drives {
                let mut rig = Rig::new(shape, &mib);
                rig.fill(percent);
                let what = format!("shape {number}, {percent} %, drive {drive}");
                let index = DriveIndex(drive);
                let before = rig.pool.if_failed(index).unwrap().usable;
                if let Err(error) = rig.pool.check_retire(index) {
                    refused += 1;
                    let (stored, room) = figures(&error);
                    assert_eq!(stored, rig.written() * BLOCK as u64, "{what}");
                    assert_eq!(figures(&rig.pool.retire(index).unwrap_err()), (stored, room));
                    assert_eq!(rig.state(drive), MemberState::Online, "{what}");
                    // To the block: with one more it is refused, and without it is not.
                    let excess = (stored - room).div_ceil(BLOCK as u64);
                    assert!(error.to_string().contains(&format!("{} bytes", stored - room)));
                    if excess > 1 {
                        rig.discard(excess - 1);
                    }
                    assert!(rig.pool.check_retire(index).is_err(), "{what}");
                    rig.discard(1);
                }
                accepted += 1;
                rig.pool.retire(index).unwrap();
                let usable = rig.pool.status().space.usable;
                assert_eq!(usable, before, "{what}");
                rig.settle();
                if rig.state(drive) == MemberState::Draining {
                    // It fits to the block, and garbage takes a little more: that is said, and some room is enough.
                    waited += 1;
                    assert!(rig.has_alarm("RETIRE_WAITING"), "{what}: {:#?}", rig.pool.status());
                    rig.discard(rig.written() / 40);
                    rig.settle();
                }
                assert_eq!(
                    rig.state(drive),
                    MemberState::Retired,
                    "{what}: {:#?}",
                    rig.pool.status()
                );
                assert_eq!(rig.pool.status().space.usable, usable, "{what}");
                rig.compare();
                // It is a pool like any other: full where it says so, and what is there can be overwritten.
                rig.fill_up();
                let blocks = rig.written();
                assert!(blocks * BLOCK as u64 >= usable / 100 * 99, "{what}: {blocks} of {usable}");
                // With drives of one size, whose free slots are always of use.
                let mut rng = Rng::new(7);
                for _ in 0..if number < 2 { 200 } else { 0 } {
                    rig.write(rng.below(blocks), 1)
                        .unwrap_or_else(|error| panic!("{what}: {error}"));
                }
                rig.compare();
            }
        }
    }
    assert!(waited <= 6, "{waited}");
    assert!(refused >= 10 && accepted == 30, "{refused} {accepted}");
}

#[test]
fn writes_beside_a_retirement_are_refused_before_it_cannot_end() {
    for (shape, percent) in [(WIDE, 65), (NARROW, 70)] {
        let mut rig = Rig::new(shape, &[12; 5]);
        rig.fill(percent);
        rig.pool.retire(DriveIndex(1)).unwrap();
        let usable = rig.pool.status().space.usable;
        let mut rng = Rng::new(2);
        let (mut is_refused, mut steps) = (false, 0);
        while rig.pool.step().unwrap() {
            steps += 1;
            let block = rig.written();
            if let Err(error) = rig.write(block, 4) {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                is_refused = true;
            }
            rig.write(rng.below(block), 1).unwrap();
            assert!(!rig.has_alarm("RETIRE_WAITING"), "{:#?}", rig.pool.status());
            assert!(steps < 20_000, "{:#?}", rig.pool.status());
        }
        while !is_refused {
            let block = rig.written();
            is_refused = rig.write(block, 4).is_err();
        }
        rig.settle();
        assert_eq!(rig.state(1), MemberState::Retired, "{:#?}", rig.pool.status());
        assert!(rig.written() * BLOCK as u64 >= usable / 100 * 98);
        rig.compare();
    }
}

#[test]
fn retirement_without_room_waits_for_it_and_the_pool_goes_on() {
    for shape in [WIDE, NARROW] {
        for is_called_off in [false, true] {
            let mut rig = Rig::new(shape, &[12; 5]);
            rig.fill(70);
            rig.pool.retire(DriveIndex(1)).unwrap();
            rig.pool.step().unwrap();
            // Another one fails: what is stored does not fit three drives.
            rig.plans[3].from_then_on(Target::Any, 0, Effect::Fail);
            rig.write(0, 8).unwrap();
            rig.settle();
            assert_eq!((rig.state(1), rig.state(3)), (MemberState::Draining, MemberState::Faulted));
            let status = rig.pool.status();
            let alarm = status.alarms.iter().find(|alarm| alarm.code == "RETIRE_WAITING");
            let alarm = alarm.unwrap_or_else(|| panic!("{status:#?}"));
            assert!(alarm.action.contains("esker pool retire tank 1 --cancel"), "{alarm:?}");
            assert!(alarm.command.starts_with("esker pool add tank"), "{alarm:?}");
            // All that is there can be overwritten; new blocks are refused.
            let blocks = rig.written();
            let error = rig.write(blocks, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            let mut rng = Rng::new(5);
            for n in 0..blocks / 2 {
                rig.write(rng.below(blocks), 1).unwrap_or_else(|error| panic!("{n}: {error}"));
                if n % 64 == 0 {
                    rig.pool.step().unwrap();
                }
            }
            rig.settle();
            rig.compare();
            if is_called_off {
                rig.pool.cancel_retire(DriveIndex(1)).unwrap();
                rig.pool.cancel_retire(DriveIndex(1)).unwrap(); // the same again
                assert_eq!(rig.state(1), MemberState::Rejoining, "what it has is to be verified");
                rig.settle();
                assert_eq!(rig.state(1), MemberState::Online);
                assert!(!rig.has_alarm("RETIRE_WAITING"));
                assert!(rig.fill_up() > 0);
            } else {
                let excess = status.space.live - status.space.usable;
                rig.discard(excess / BLOCK as u64 + 200);
                rig.settle();
                assert_eq!(rig.state(1), MemberState::Retired, "{:#?}", rig.pool.status());
                assert!(!rig.has_alarm("RETIRE_WAITING"));
            }
            rig.compare();
        }
    }
}

#[test]
fn retirement_that_is_called_off_leaves_a_pool_as_it_was() {
    let mut rig = Rig::new(NARROW, &[12; 5]);
    rig.fill(50);
    let usable = rig.pool.status().space.usable;
    let kind = |result: Result<(), VolumeError>| result.unwrap_err().kind();
    rig.pool.retire(DriveIndex(2)).unwrap();
    assert!(rig.pool.status().space.usable < usable);
    assert!(rig.pool.step().unwrap());
    rig.pool.cancel_retire(DriveIndex(2)).unwrap();
    assert_eq!(rig.pool.status().space.usable, usable);
    rig.settle();
    let mut rig = rig.reopen();
    assert_eq!((rig.state(2), rig.pool.status().space.usable), (MemberState::Online, usable));
    rig.compare();
    // One that was being emptied is still when the pool is opened again, and can be called off then.
    rig.pool.retire(DriveIndex(2)).unwrap();
    let rig2 = rig.reopen();
    assert_eq!(rig2.state(2), MemberState::Draining);
    assert!(rig2.pool.status().space.usable < usable);
    rig2.pool.cancel_retire(DriveIndex(2)).unwrap();
    rig2.pool.retire(DriveIndex(2)).unwrap();
    rig2.settle();
    assert_eq!(rig2.state(2), MemberState::Retired);
    assert_eq!(kind(rig2.pool.cancel_retire(DriveIndex(2))), ErrorKind::Conflict);
    assert_eq!(kind(rig2.pool.cancel_retire(DriveIndex(9))), ErrorKind::NotFound);
    rig = rig2;
    rig.compare();
    // Those that are being emptied do not count for those that must stay.
    rig.discard(rig.written() - 200);
    for drive in [0, 1] {
        rig.pool.retire(DriveIndex(drive)).unwrap();
    }
    assert_eq!(kind(rig.pool.retire(DriveIndex(3))), ErrorKind::Conflict);
}

#[test]
fn drive_that_a_refusal_asks_for_suffices_and_no_smaller_one() {
    for shape in [WIDE, NARROW] {
        let mut rig = Rig::new(shape, &[12; 5]);
        rig.fill(90);
        let error = rig.pool.check_retire(DriveIndex(0)).unwrap_err().to_string();
        let bytes = error.split("add a drive of ").nth(1).expect("it says so");
        let bytes: u64 = bytes.split(' ').next().unwrap().parse().unwrap();
        let device = |bytes| -> Arc<dyn Device> { Arc::new(MemoryDevice::new("new", bytes, 4096)) };
        let small = device(bytes - shape.chunk_bytes);
        assert!(rig.pool.check_replace(DriveIndex(0), &small, false).is_err());
        assert!(rig.pool.replace(DriveIndex(0), &small, false).is_err());
        assert_eq!(rig.pool.status().members.len(), 5, "nothing was changed");
        rig.pool.add(&device(bytes), Role::Drive, false).unwrap();
        rig.pool.retire(DriveIndex(0)).unwrap();
        rig.settle();
        assert_eq!(rig.state(0), MemberState::Retired, "{:#?}", rig.pool.status());
        rig.compare();
    }
}

#[test]
fn trash_is_named_first_where_room_is_lacking() {
    let mut rig = Rig::new(WIDE, &[12; 5]);
    rig.fill(85);
    rig.pool.delete_volume("v0", 1000).unwrap();
    let error = rig.pool.check_retire(DriveIndex(0)).unwrap_err().to_string();
    assert!(error.contains("volume 'v0' is in the trash"), "{error}");
    rig.pool.delete_volume("v0", 0).unwrap();
    rig.settle();
    rig.pool.retire(DriveIndex(0)).unwrap();
    rig.settle();
    assert_eq!(rig.state(0), MemberState::Retired);
}

#[test]
fn drive_that_holds_only_garbage_is_retired() {
    for shape in [Shape { drives: 3, ..WIDE }, Shape { drives: 3, ..NARROW }] {
        for percent in [30, 80] {
            let mut rig = Rig::new(shape, &[12; 3]);
            rig.fill(percent);
            rig.pool.delete_volume("v0", 0).unwrap();
            rig.settle();
            let device = MemoryDevice::new("d3", 12 << 20, shape.lba_size);
            let device: Arc<dyn Device> = Arc::new(device);
            rig.pool.add(&device, Role::Drive, false).unwrap();
            rig.pool.retire(DriveIndex(0)).unwrap();
            rig.settle();
            assert_eq!(rig.state(0), MemberState::Retired, "{:#?}", rig.pool.status());
            rig.pool.check().unwrap();
        }
    }
}
