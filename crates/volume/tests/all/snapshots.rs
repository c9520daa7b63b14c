//! Many snapshots: what one takes however many there are, what they cost a reader, what deleting them frees, and where they
//! end.
//!
//! `cargo test --release -p esker-volume --test all snapshots:: -- --ignored --nocapture` prints the figures.

use std::sync::Arc;
use std::time::Duration;

use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, ErrorKind, Lba, Rng};
use esker_device::{Device, MemoryDevice, Op, Port};
use esker_volume::{CreateOptions, Pool, VolumeOptions};

const BLOCKS: u64 = 2048;
const RAW: VolumeOptions = VolumeOptions { compression: false, iops_limit: 0, bytes_limit: 0 };

/// Four drives with one parity, and room for many rows in a checkpoint.
fn pool(root_bytes: u64) -> (Pool, Vec<Arc<dyn Device>>) {
    pool_of(root_bytes, BLOCKS)
}

fn pool_of(root_bytes: u64, blocks: u64) -> (Pool, Vec<Arc<dyn Device>>) {
    let shape = Shape { drive_bytes: 192 << 20, map_bytes: 64 << 20, ..SMALL };
    let options = CreateOptions {
        chunk_bytes: 256 << 10,
        unit_bytes: 64 << 10,
        log_bytes: 16 << 20,
        root_bytes: Some(root_bytes),
        ..rig::create_options(&shape)
    };
    let (drives, _) = rig::devices(&shape);
    Pool::create(&drives, &[], &options).unwrap();
    let pool = Pool::open(&drives, rig::open_options(&shape)).unwrap();
    pool.create_volume("a", blocks * BLOCK as u64, RAW).unwrap();
    (pool, drives)
}

fn write_random(pool: &Pool, rng: &mut Rng, count: usize) {
    let volume = pool.volume("a").unwrap();
    let blocks = volume.geometry().capacity.0;
    let mut port = Port::open(&*volume, 32).unwrap();
    let mut write = |_| {
        let mut buf = AlignedBuf::zeroed(BLOCK);
        rng.fill(&mut buf[..16]);
        Op::Write { lba: Lba(rng.below(blocks)), buf, placement: None, fua: false }
    };
    let ops: Vec<Op> = (0..count).map(&mut write).collect();
    port.run_all(ops, |_, result| drop(result.unwrap())).unwrap();
}

fn write_all(pool: &Pool) {
    let volume = pool.volume("a").unwrap();
    let mut port = Port::open(&*volume, 1).unwrap();
    for lba in (0..volume.geometry().capacity.0).step_by(64) {
        let mut buf = AlignedBuf::zeroed(64 * BLOCK);
        Rng::new(lba).fill(&mut buf);
        port.write(Lba(lba), buf, None).unwrap();
    }
}

/// Commands that the drives have had.
fn commands(drives: &[Arc<dyn Device>]) -> u64 {
    drives.iter().map(|drive| drive.stats()).map(|s| s.reads + s.writes + s.flushes).sum()
}

/// Makes and deletes a snapshot; the commands that each took.
fn one_more(pool: &Pool, drives: &[Arc<dyn Device>]) -> (u64, u64) {
    let before = commands(drives);
    pool.snapshot("a", "one-more").unwrap();
    let between = commands(drives);
    pool.delete_snapshot("a", "one-more").unwrap();
    (between - before, commands(drives) - between)
}

#[test]
fn snapshot_and_its_deletion_take_a_frame_however_many_there_are() {
    let (pool, drives) = pool(1 << 20);
    write_all(&pool);
    pool.drain().unwrap();
    let few = one_more(&pool, &drives);
    for n in 0..1000 {
        pool.snapshot("a", &format!("s{n}")).unwrap();
        if n % 50 == 0 {
            while pool.step().unwrap() {}
        }
    }
    let many = one_more(&pool, &drives);
    assert_eq!(few, many);
    assert_eq!(few, (2, 2), "a frame on each of two copies");
}

#[test]
fn deletion_of_many_snapshots_frees_what_only_they_showed_to_the_byte() {
    let (pool, _) = pool(1 << 20);
    let mut rng = Rng::new(1);
    write_all(&pool);
    for n in 0..200 {
        write_random(&pool, &mut rng, 10);
        pool.snapshot("a", &format!("s{n}")).unwrap();
        while pool.step().unwrap() {}
    }
    write_random(&pool, &mut rng, 100);
    pool.drain().unwrap();
    let alone = pool.du("a").unwrap();
    assert_eq!(alone.stored, BLOCKS * BLOCK as u64);
    let live = || pool.status().space.live;
    let mut before = live();
    assert!(before > alone.stored, "snapshots keep what was written over");
    for n in (0..200).rev() {
        let name = format!("s{n}");
        let freed = pool.if_deleted("a", Some(&name)).unwrap();
        pool.delete_snapshot("a", &name).unwrap();
        while pool.step().unwrap() {}
        assert_eq!(before - live(), freed, "{name}");
        before = live();
    }
    assert_eq!(live(), alone.stored);
    assert_eq!(pool.du("a").unwrap().unique, alone.stored);
    pool.check().unwrap();
}

/// A checkpoint has room for so many rows: more are refused, and nothing else is.
#[test]
fn snapshots_end_where_a_checkpoint_has_no_room_for_them() {
    let (pool, drives) = pool(256 << 10);
    write_all(&pool);
    let mut made = 0;
    let error = loop {
        match pool.snapshot("a", &format!("snapshot-with-a-long-name-{made}")) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        if made % 100 == 0 {
            while pool.step().unwrap() {}
        }
        assert!(made < 10_000);
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().contains("delete some"), "{error}");
    pool.checkpoint().unwrap();
    write_random(&pool, &mut Rng::new(3), 100);
    pool.checkpoint().unwrap();
    pool.delete_volume("a", 1000).unwrap();
    pool.restore("a").unwrap();
    assert!(pool.clone_volume("a", "snapshot-with-a-long-name-0", "b").is_err());
    pool.close().unwrap();
    let pool = Pool::open(&drives, rig::open_options(&SMALL)).unwrap();
    assert_eq!(pool.show("a").unwrap().snapshots.len(), made);
    for n in 0..made / 2 {
        pool.delete_snapshot("a", &format!("snapshot-with-a-long-name-{n}")).unwrap();
    }
    while pool.step().unwrap() {}
    pool.snapshot("a", "there-is-room-again").unwrap();
    pool.check().unwrap();
}

/// Time that this thread has had a processor, in nanoseconds.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

/// Processor time of a read, in nanoseconds: the least of some rounds.
fn read_ns(pool: &Pool) -> u64 {
    let volume = pool.volume("a").unwrap();
    let blocks = volume.geometry().capacity.0;
    let mut port = Port::open(&*volume, 64).unwrap();
    let mut rng = Rng::new(9);
    let mut round = || {
        let count = 40_000;
        let buf = || AlignedBuf::zeroed(BLOCK);
        let ops: Vec<Op> =
            (0..count).map(|_| Op::Read { lba: Lba(rng.below(blocks)), buf: buf() }).collect();
        let begin = cpu_ns();
        port.run_all(ops, |_, result| drop(result.unwrap())).unwrap();
        (cpu_ns() - begin) / count
    };
    (0..8).map(|_| round()).min().unwrap()
}

#[test]
#[ignore = "prints figures"]
fn snapshots_take_so_long() {
    // More than a processor's caches hold, with snapshots and without.
    let blocks = 32 * BLOCKS;
    let (pool, _) = pool_of(4 << 20, blocks);
    let (clock, mut rng) = (Clock::real(), Rng::new(1));
    write_all(&pool);
    pool.drain().unwrap();
    let without = read_ns(&pool);
    let mut longest = Duration::ZERO;
    for n in 0..1000 {
        write_random(&pool, &mut rng, 8);
        pool.snapshot("a", &format!("s{n}")).unwrap();
        if n % 20 == 0 {
            while pool.step().unwrap() {}
        }
    }
    pool.drain().unwrap();
    let with = read_ns(&pool);
    println!(
        "a read: {without} ns of CPU without snapshots, {with} ns with 1,000, in each of which 8 blocks of {blocks} \
         were written: {:.2}",
        with as f64 / without as f64
    );
    for n in 1000..10_000 {
        pool.snapshot("a", &format!("s{n}")).unwrap();
        if n % 100 == 0 {
            while pool.step().unwrap() {}
        }
    }
    let mut took = Vec::new();
    for n in 0..200 {
        let began = clock.now();
        pool.snapshot("a", &format!("t{n}")).unwrap();
        took.push(clock.now().since(began));
    }
    took.sort_unstable();
    println!("snapshot beside 10,000: p50 {:?}, longest {:?}", took[100], took[199]);
    for n in 0..200 {
        let began = clock.now();
        pool.delete_snapshot("a", &format!("t{n}")).unwrap();
        longest = longest.max(clock.now().since(began));
    }
    println!("deletion of a snapshot beside 10,000: longest {longest:?}");
    let began = clock.now();
    pool.delete_volume("a", 0).unwrap();
    println!("deletion of a volume with 10,000 snapshots: {:?}", clock.now().since(began));
    while pool.step().unwrap() {}
    assert_eq!(pool.status().space.live, 0);
    pool.check().unwrap();
}

/// Devices whose content does not matter are made as others are.
#[test]
fn default_checkpoint_has_room_for_ten_thousand_snapshots_on_drives_of_a_gibibyte() {
    let drives: Vec<Arc<dyn Device>> = (0..3)
        .map(|n| Arc::new(MemoryDevice::new(&format!("d{n}"), 1 << 30, 4096)) as Arc<dyn Device>)
        .collect();
    let options = CreateOptions { name: "tank".to_owned(), ..CreateOptions::default() };
    let options = CreateOptions { log_bytes: CreateOptions::log_bytes_for(1 << 30), ..options };
    Pool::create(&drives, &[], &options).unwrap();
    let pool = Pool::open(&drives, rig::open_options(&SMALL)).unwrap();
    pool.create_volume("a", 1 << 20, RAW).unwrap();
    for n in 0..10_000 {
        pool.snapshot("a", &format!("hourly-{n}")).unwrap();
    }
    pool.checkpoint().unwrap();
    assert_eq!(pool.show("a").unwrap().snapshots.len(), 10_000);
}
