//! Chains of clones whose origins were deleted: what no volume and no snapshot shows is free again, soon, and before anyone is
//! told that the pool is full.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::rig::{self, Act, BLOCK, Oracle, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, Lba, LbaCount, Rng};
use esker_device::{Command, Device, Op, Port, Tag};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};
use esker_volume::{OpenOptions, Pool, VolumeOptions};

const RAW: VolumeOptions = VolumeOptions { compression: false, iops_limit: 0, bytes_limit: 0 };
const BLOCKS: u64 = 128;
const BYTES: u64 = BLOCKS * BLOCK as u64;

fn write(pool: &Pool, volume: &str, blocks: std::ops::Range<u64>, version: u64) {
    let mut port = Port::open(&*pool.volume(volume).unwrap(), 1).unwrap();
    for block in blocks {
        let mut buf = AlignedBuf::zeroed(BLOCK);
        Rng::new(version << 32 | block).fill(&mut buf);
        port.write(Lba(block), buf, None).unwrap();
    }
}

/// A clone takes the place of its origin, which is deleted with its snapshot.
fn succeed(pool: &Pool, origin: &str, clone: &str) {
    pool.snapshot(origin, "s").unwrap();
    pool.clone_volume(origin, "s", clone).unwrap();
    pool.delete_snapshot(origin, "s").unwrap();
    pool.delete_volume(origin, 0).unwrap();
}

/// Maintenance for so many seconds.
fn pass(pool: &Pool, clock: &Clock, secs: u64) {
    for _ in 0..secs {
        while pool.step().unwrap() {}
        clock.advance(Duration::from_secs(1));
    }
    while pool.step().unwrap() {}
}

fn opened(shape: &Shape) -> (Pool, Clock) {
    let devices = rig::create(shape);
    let clock = Clock::virtual_time();
    let options = OpenOptions { clock: clock.clone(), ..rig::open_options(shape) };
    (Pool::open(&devices, options).unwrap(), clock)
}

#[test]
fn space_of_pruned_clones_is_back_a_minute_after_it_was_written_over() {
    let (pool, clock) = opened(&SMALL);
    pool.create_volume("v0", BYTES, RAW).unwrap();
    write(&pool, "v0", 0..BLOCKS, 1);
    for round in 1..24 {
        let (origin, clone) = (format!("v{}", round - 1), format!("v{round}"));
        succeed(&pool, &origin, &clone);
        write(&pool, &clone, 0..BLOCKS, 1 + round);
        pass(&pool, &clock, 60);
        assert_eq!(pool.status().space.live, BYTES, "round {round}");
        let space = pool.du(&clone).unwrap();
        assert_eq!((space.stored, space.unique, space.unswept), (BYTES, BYTES, 0));
        pool.check().unwrap();
    }
}

#[test]
fn space_of_pruned_clones_is_back_before_the_pool_is_called_full() {
    let (pool, _) = opened(&SMALL);
    pool.create_volume("v0", BYTES, RAW).unwrap();
    write(&pool, "v0", 0..BLOCKS, 1);
    for round in 1..100 {
        let (origin, clone) = (format!("v{}", round - 1), format!("v{round}"));
        succeed(&pool, &origin, &clone);
        write(&pool, &clone, 0..BLOCKS, 1 + round); // and nobody else does anything
    }
    pool.check().unwrap();
}

/// Of a chain of clones, each of which wrote a part, what `du` and forecasts say is what is there.
#[test]
fn space_of_ancestors_is_told() {
    let (pool, clock) = opened(&SMALL);
    pool.create_volume("v0", BYTES, RAW).unwrap();
    write(&pool, "v0", 0..BLOCKS, 1);
    pool.drain().unwrap();
    pool.snapshot("v0", "s").unwrap();
    pool.clone_volume("v0", "s", "v1").unwrap();
    write(&pool, "v1", 0..BLOCKS / 2, 2);
    pool.drain().unwrap();
    assert_eq!(pool.if_deleted("v0", Some("s")).unwrap(), 0);
    // Nothing but the origin and its snapshot shows the first half any more.
    assert_eq!(pool.if_deleted("v0", None).unwrap(), BYTES / 2);
    pool.delete_volume("v0", 0).unwrap();
    let space = pool.du("v1").unwrap();
    assert_eq!((space.stored, space.unique), (BYTES, BYTES));
    assert_eq!((space.inherited, space.unswept), (BYTES / 2, BYTES / 2));
    pass(&pool, &clock, 1);
    let space = pool.du("v1").unwrap();
    assert_eq!((space.inherited, space.unswept), (BYTES / 2, 0));
    assert_eq!(pool.status().space.live, BYTES);
    assert_eq!(pool.if_deleted("v1", None).unwrap(), BYTES);
    // The snapshot sees the half that the ancestor still has; without it the clone is free to go.
    pool.snapshot("v1", "t").unwrap();
    write(&pool, "v1", BLOCKS / 2..BLOCKS, 3);
    pass(&pool, &clock, 60);
    assert_eq!(pool.status().space.live, BYTES + BYTES / 2);
    assert_eq!(pool.if_deleted("v1", Some("t")).unwrap(), BYTES / 2);
    pool.delete_snapshot("v1", "t").unwrap();
    pass(&pool, &clock, 1);
    assert_eq!(pool.status().space.live, BYTES);
    assert_eq!(pool.du("v1").unwrap().inherited, 0);
    pool.check().unwrap();
}

/// The blocks that the pool has to keep: of each what volumes and snapshots show, and no more.
fn shown(oracle: &Oracle) -> u64 {
    let mut shown = BTreeSet::new();
    for content in oracle.0.values() {
        for blocks in content.snapshots.values().chain([&content.blocks]) {
            let blocks = (0_u64..).zip(blocks);
            shown.extend(blocks.filter(|(_, version)| **version > 0).map(|(at, v)| (at, *v)));
        }
    }
    shown.len() as u64
}

/// Random chains: the pool shows what the oracle does, and keeps that and nothing else.
fn check_chains(shape: &Shape, seed: u64, acts: u64) {
    let mut rng = Rng::new(seed);
    let devices = rig::create(shape);
    let mut pool = rig::open(&devices, shape);
    let mut oracle = Oracle::default();
    pool.create_volume(&rig::volume_name(0), 64 * BLOCK as u64, RAW).unwrap();
    oracle.apply(&Act::Create(0, 64));
    for n in 0..acts {
        let act = oracle.random_chain(&mut rng, 1 + n * 16);
        pool = rig::reopened(pool, &devices, shape, &act);
        rig::run(&pool, &act).unwrap_or_else(|e| panic!("{seed}, act {n}, {act:?}: {e}"));
        oracle.apply(&act);
        if n % 8 == 0 || matches!(act, Act::Reopen | Act::Abandon | Act::Delete(_)) {
            let tell = |why| panic!("seed {seed}, after act {n}, {act:?}: {why}");
            rig::compare_all(&pool, &oracle).unwrap_or_else(tell);
            pool.check().unwrap_or_else(tell);
        }
        if n % 16 == 0 {
            let forecast = oracle.0.keys().next().map(|volume| {
                let name = rig::volume_name(*volume);
                (*volume, pool.if_deleted(&name, None).unwrap())
            });
            pool.drain().unwrap();
            while pool.status().sweeping > 0 {
                pool.step().unwrap();
            }
            let kept = pool.status().space.live / BLOCK as u64;
            assert_eq!(kept, shown(&oracle), "seed {seed}, after act {n}, {act:?}");
            if let Some((volume, freed)) = forecast {
                let mut without = oracle.clone();
                without.apply(&Act::Delete(volume));
                let freed = freed / BLOCK as u64;
                assert_eq!(freed, kept - shown(&without), "seed {seed}, act {n}: v{volume}");
            }
        }
    }
}

#[test]
fn chains_with_deleted_origins_keep_what_is_shown_and_no_more() {
    for seed in 0..12 {
        check_chains(&SMALL, seed, 600);
    }
}

#[test]
fn chains_on_next_to_no_memory_keep_what_is_shown_and_no_more() {
    let shape = Shape { map_bytes: 1, ..SMALL };
    for seed in 20..24 {
        check_chains(&shape, seed, 400);
    }
}

/// A read waits for a leaf of an ancestor, and meanwhile what it looks for is written over and swept: it sees the block as
/// it was, or as it is.
#[test]
fn read_beside_a_sweep_sees_what_was_or_what_is() {
    let shape = Shape { map_bytes: 1, ..SMALL };
    let mut swept_midway = 0;
    for polls in 0..24 {
        let plan = FaultPlan::new();
        let slow = |device: Arc<dyn Device>| -> Arc<dyn Device> {
            Arc::new(FaultDevice::new(device, &plan))
        };
        let devices: Vec<_> = rig::create(&shape).into_iter().map(slow).collect();
        let pool = rig::open(&devices, &shape);
        pool.create_volume("v0", BYTES, RAW).unwrap();
        write(&pool, "v0", 0..8, 1);
        succeed(&pool, "v0", "v1");
        write(&pool, "v1", 1..2, 2);
        pool.drain().unwrap();
        while pool.status().sweeping > 0 {
            pool.step().unwrap();
        }
        pool.close().unwrap();
        let pool = rig::open(&devices, &shape); // no leaf is in memory
        plan.from_then_on(Target::Read, 0, Effect::DelayPolls { count: 6 });
        let mut queue = pool.volume("v1").unwrap().queue_pair(1).unwrap();
        let op = Op::Read { lba: Lba(5), buf: AlignedBuf::zeroed(BLOCK) };
        queue.submit(&mut VecDeque::from([Command { tag: Tag(1), op }])).unwrap();
        let mut done = Vec::new();
        for _ in 0..polls {
            queue.poll(&mut done).unwrap();
        }
        swept_midway += u64::from(done.is_empty());
        write(&pool, "v1", 5..6, 3);
        pool.drain().unwrap();
        while pool.status().sweeping > 0 {
            pool.step().unwrap();
        }
        while done.is_empty() {
            queue.wait(&mut done, None).unwrap();
        }
        let read = done.pop().unwrap().buf.unwrap();
        let is_of = |version: u64| {
            let mut buf = AlignedBuf::zeroed(BLOCK);
            Rng::new(version << 32 | 5).fill(&mut buf);
            buf[..] == read[..]
        };
        assert!(is_of(1) || is_of(3), "after {polls} polls it is neither");
    }
    assert!(swept_midway > 4, "{swept_midway}");
}

/// A discard of a clone hides what the ancestor has, which is nobody's then.
#[test]
fn discard_of_a_clone_frees_what_its_origin_left() {
    let (pool, clock) = opened(&SMALL);
    pool.create_volume("v0", BYTES, RAW).unwrap();
    write(&pool, "v0", 0..BLOCKS, 1);
    succeed(&pool, "v0", "v1");
    let mut port = Port::open(&*pool.volume("v1").unwrap(), 1).unwrap();
    port.discard(Lba(0), LbaCount(BLOCKS)).unwrap();
    pass(&pool, &clock, 60);
    assert_eq!(pool.status().space.live, 0);
    pool.check().unwrap();
}
