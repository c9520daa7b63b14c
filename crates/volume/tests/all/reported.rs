//! Shapes of bugs that users of other storage systems reported, where no other test has them.

use std::sync::Arc;

use crate::rig::{self, Act, BLOCK, Devices, Oracle, SMALL, Shape};
use esker_base::{AlignedBuf, Lba, Rng};
use esker_device::{Device, Port};
use esker_sim::ImageDevice;
use esker_volume::{CreateOptions, MemberState, Pool};

/// One drive more than a segment is wide: a lost chunk has a place to go to.
const ROOMY: Shape = Shape { drives: 5, width: Some(4), ..SMALL };

/// A pool's drives, and what its volumes should hold.
struct Rig {
    shape: Shape,
    drives: Vec<Arc<ImageDevice>>,
    oracle: Oracle,
    rng: Rng,
    acts: u64,
}

impl Rig {
    fn create(shape: Shape, seed: u64) -> Rig {
        let drive = |n| ImageDevice::new(&format!("d{n}"), shape.drive_bytes, shape.lba_size);
        let drives: Vec<_> = (0..shape.drives).map(|n| Arc::new(drive(n))).collect();
        let rig = Rig { shape, drives, oracle: Oracle::default(), rng: Rng::new(seed), acts: 0 };
        let options = CreateOptions { seed: Some(seed), ..rig::create_options(&shape) };
        Pool::create(&rig.devices(), &[], &options).unwrap();
        rig
    }

    fn devices(&self) -> Devices {
        self.drives.iter().map(|drive| drive.clone() as Arc<dyn Device>).collect()
    }

    fn open(&self) -> Pool {
        rig::open(&self.devices(), &self.shape)
    }

    /// A pool with live data, all of it in segments, of which some are open.
    fn filled(shape: Shape, seed: u64) -> (Rig, Pool) {
        let mut rig = Rig::create(shape, seed);
        let pool = rig.open();
        rig.act(&pool, &Act::Create(9, 192));
        for block in (0..192).step_by(8) {
            rig.act(&pool, &Act::Write { volume: 9, block, count: 8, version: 9000 + 3 * block });
        }
        rig.churn(&pool, 60);
        pool.drain().unwrap();
        pool.checkpoint().unwrap();
        settle(&pool);
        (rig, pool)
    }

    /// Random acts.
    fn churn(&mut self, pool: &Pool, acts: u64) {
        for _ in 0..acts {
            self.acts += 1;
            let act = self.oracle.random(&mut self.rng, 1 + self.acts * 16, 64);
            if !matches!(act, Act::Reopen | Act::Abandon) {
                self.act(pool, &act);
            }
        }
    }

    fn act(&mut self, pool: &Pool, act: &Act) {
        rig::run(pool, act).unwrap_or_else(|error| panic!("{act:?}: {error}"));
        assert!(self.oracle.apply(act), "{act:?}");
    }

    fn compare(&self, pool: &Pool) {
        rig::compare_all(pool, &self.oracle).unwrap();
        pool.check().unwrap();
    }

    /// Damages every `nth` block of what a drive has of segments.
    fn damage(&self, drive: usize, nth: usize) {
        let device = &*self.drives[drive];
        let mut port = Port::open(device, 1).unwrap();
        for lba in (96..device.geometry().capacity.0 - 16).step_by(nth) {
            port.write(Lba(lba), AlignedBuf::zeroed(BLOCK), None).unwrap();
        }
    }

    /// Each of the drives may be lost: what it had is computed from the others.
    fn any_drive_may_be_lost(&self) {
        for lost in 0..self.drives.len() {
            let fork = |drive: &Arc<ImageDevice>| Arc::new(drive.fork()) as Arc<dyn Device>;
            let mut devices: Devices = self.drives.iter().map(fork).collect();
            devices.remove(lost);
            self.compare(&Pool::open(&devices, rig::degraded(&self.shape)).unwrap());
        }
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

fn scrub(pool: &Pool) -> u64 {
    pool.scrub();
    settle(pool);
    pool.status().scrub.map_or(0, |scrub| scrub.errors)
}

#[test]
fn scrub_repairs_chunks_where_they_belong_and_touches_nothing_else() {
    for (shape, seed) in [(SMALL, 1), (SMALL, 2), (ROOMY, 3), (ROOMY, 4)] {
        let (rig, pool) = Rig::filled(shape, seed);
        for drive in 0..shape.drives {
            rig.damage(drive, 2 + drive);
            assert!(scrub(&pool) > 0, "drive {drive}, seed {seed}");
            assert_eq!(scrub(&pool), 0, "drive {drive}, seed {seed}");
            rig.compare(&pool);
        }
        pool.close().unwrap();
        rig.any_drive_may_be_lost();
    }
}

#[test]
fn block_that_a_read_finds_damaged_is_repaired() {
    for seed in 0..4 {
        let (rig, pool) = Rig::filled(if seed % 2 == 0 { SMALL } else { ROOMY }, seed);
        rig.damage(2, 1);
        let errors = || pool.status().members.iter().map(|member| member.checksum_errors).sum();
        rig.compare(&pool);
        let found: u64 = errors();
        assert!(found > 0 && pool.status().members[2].checksum_errors == found);
        settle(&pool);
        // Nobody asked for a scrub, and reads find nothing wrong any more.
        let repaired: u64 = errors();
        rig.compare(&pool);
        assert_eq!(errors(), repaired, "seed {seed}, {found} found by reads");
    }
}

#[test]
fn rollback_leaves_the_other_snapshots_and_the_clones() {
    let mut rig = Rig::create(SMALL, 5);
    let pool = rig.open();
    let write = |block, version| Act::Write { volume: 1, block, count: 8, version };
    rig.act(&pool, &Act::Create(1, 64));
    for snapshot in 0..3 {
        rig.act(&pool, &write(u64::from(snapshot) * 4, 100 * (u64::from(snapshot) + 1)));
        rig.act(&pool, &Act::Snapshot(1, snapshot));
    }
    // A clone has snapshots of its own, and the volume is set back under it.
    rig.act(&pool, &Act::Clone(1, 1, 2));
    rig.act(&pool, &Act::Write { volume: 2, block: 0, count: 4, version: 700 });
    rig.act(&pool, &Act::Snapshot(2, 0));
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (version, snapshot) in (1000..).step_by(8).zip(orders.concat()) {
        rig.act(&pool, &Act::Rollback(1, snapshot));
        rig.compare(&pool);
        rig.act(&pool, &write(version % 56, version));
        settle(&pool);
        rig.compare(&pool);
    }
    rig.act(&pool, &Act::Write { volume: 2, block: 2, count: 4, version: 800 });
    rig.act(&pool, &Act::Rollback(2, 0));
    // The one that the clone was made from goes; the others can still be gone back to.
    rig.act(&pool, &Act::DeleteSnapshot(1, 1));
    rig.act(&pool, &Act::Rollback(1, 2));
    rig.act(&pool, &Act::Rollback(1, 0));
    settle(&pool);
    rig.compare(&pool);
    pool.close().unwrap();
    rig.compare(&rig.open());
}

/// A larger device that begins with what `drive` has, and ends with what `other` ends with.
fn grown(drive: &ImageDevice, other: &ImageDevice) -> ImageDevice {
    let (geometry, size) = (drive.geometry(), other.geometry());
    let larger = ImageDevice::new(drive.name(), size.capacity.bytes(size.lba_size), size.lba_size);
    let copy = |from: &ImageDevice, lbas: std::ops::Range<u64>| {
        let (mut from, mut to) = (Port::open(from, 1).unwrap(), Port::open(&larger, 1).unwrap());
        for lba in lbas.map(Lba) {
            let block = from.read(lba, AlignedBuf::zeroed(BLOCK)).unwrap();
            to.write(lba, block, None).unwrap();
        }
    };
    copy(other, geometry.capacity.0..size.capacity.0);
    copy(drive, 0..geometry.capacity.0);
    larger
}

#[test]
fn labels_of_an_earlier_pool_at_the_end_of_a_drive_that_grew_do_not_count() {
    // The earlier pool was opened more often, so that its labels have the higher numbers.
    let earlier = Rig::create(Shape { drive_bytes: 2 * SMALL.drive_bytes, ..SMALL }, 6);
    for _ in 0..8 {
        earlier.open().close().unwrap();
    }
    let (mut rig, pool) = Rig::filled(SMALL, 7);
    pool.close().unwrap();
    for drive in 0..rig.drives.len() {
        rig.drives[drive] = Arc::new(grown(&rig.drives[drive], &earlier.drives[drive]));
        for acts in [0, 20] {
            let pool = rig.open();
            let members = pool.status().members;
            assert!(members.iter().all(|one| one.state == MemberState::Online), "{members:#?}");
            rig.churn(&pool, acts);
            settle(&pool);
            rig.compare(&pool);
            pool.close().unwrap();
        }
    }
    rig.any_drive_may_be_lost();
}
