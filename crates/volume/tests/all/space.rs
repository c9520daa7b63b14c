//! A pool that is filled to the last block, emptied, and filled again: what does not fit is refused, what was
//! acknowledged stays, and the figures add up to the byte.

use std::sync::Arc;
use std::time::Duration;

use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, ErrorKind, Lba, LbaCount, Rng};
use esker_device::{Device, MemoryDevice, Op, Port};
use esker_volume::{CreateOptions, OpenOptions, Pool, VolumeOptions};

const RAW: VolumeOptions = VolumeOptions { compression: false, iops_limit: 0, bytes_limit: 0 };

fn pool() -> (Pool, u64) {
    let shape = Shape { drive_bytes: 12 << 20, map_bytes: 256 << 10, ..SMALL };
    let (drives, buffers) = rig::devices(&shape);
    let options = CreateOptions {
        log_bytes: 1 << 20,
        root_bytes: Some(128 << 10),
        ..rig::create_options(&shape)
    };
    Pool::create(&drives, &buffers, &options).unwrap();
    let pool = rig::open(&drives, &shape);
    let usable = pool.status().space.usable;
    (pool, usable)
}

fn write(port: &mut Port, block: u64, version: u64) -> Result<(), esker_device::DeviceError> {
    let mut buf = AlignedBuf::zeroed(BLOCK);
    Rng::new(version).fill(&mut buf);
    port.write(Lba(block), buf, None).map(drop)
}

fn holds(port: &mut Port, block: u64, version: u64) -> bool {
    let mut expected = vec![0; BLOCK];
    Rng::new(version).fill(&mut expected);
    port.read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap()[..] == expected
}

/// Writes blocks from `from` on until there is no space. Returns how many fitted.
fn fill(port: &mut Port, from: u64) -> u64 {
    for block in from.. {
        if let Err(error) = write(port, block, 1 + block) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            assert!(error.to_string().contains("discard"), "{error}");
            return block - from;
        }
    }
    unreachable!()
}

#[test]
fn first_refusal_comes_when_what_was_advertised_is_written() {
    let (pool, usable) = pool();
    pool.create_volume("a", 1 << 30, RAW).unwrap();
    let mut port = Port::open(&*pool.volume("a").unwrap(), 1).unwrap();
    let blocks = fill(&mut port, 0);
    let written = blocks * BLOCK as u64;
    assert!(written >= usable / 100 * 99, "{written} of {usable} bytes");
    pool.check().unwrap();
    // Blocks that are there may be overwritten, all of them, more than once.
    let mut rng = Rng::new(1);
    let mut versions: Vec<u64> = (1..=blocks).collect();
    for n in 0..2 * blocks {
        let block = rng.below(blocks);
        write(&mut port, block, 1_000_000 + n)
            .unwrap_or_else(|error| panic!("{n}: {error} {:#?}", pool.status()));
        versions[usize::try_from(block).unwrap()] = 1_000_000 + n;
    }
    assert_eq!(fill(&mut port, blocks), 0, "it is still full");
    for (block, version) in (0..).zip(&versions) {
        assert!(holds(&mut port, block, *version), "block {block}");
    }
    pool.check().unwrap();
    // Discarded blocks can be written again at once.
    port.discard(Lba(0), LbaCount(blocks / 2)).unwrap();
    assert!(fill(&mut port, blocks) >= blocks / 2 - 8);
    pool.check().unwrap();
    assert!(holds(&mut port, blocks - 1, versions[usize::try_from(blocks - 1).unwrap()]));
}

#[test]
fn deleted_volumes_and_snapshots_give_their_space_back() {
    let (pool, _) = pool();
    let mut counts = Vec::new();
    for round in 0..3 {
        pool.create_volume("a", 1 << 30, RAW).unwrap();
        let mut port = Port::open(&*pool.volume("a").unwrap(), 1).unwrap();
        (0..500).for_each(|block| write(&mut port, block, block).unwrap());
        pool.snapshot("a", "s").unwrap();
        (0..500).for_each(|block| write(&mut port, block, 1000 + block).unwrap());
        pool.clone_volume("a", "s", "b").unwrap();
        let mut clone = Port::open(&*pool.volume("b").unwrap(), 1).unwrap();
        assert!((0..500).all(|block| holds(&mut clone, block, block)));
        counts.push(fill(&mut port, 500));
        pool.delete_volume("a", 0).unwrap();
        pool.delete_volume("b", 0).unwrap();
        while pool.step().unwrap() {}
        pool.drain().unwrap();
        pool.checkpoint().unwrap();
        let space = pool.status().space;
        assert_eq!(space.live, 0, "round {round}: {space:?}");
        pool.check().unwrap();
    }
    assert_eq!(counts[0], counts[2]);
}

#[test]
fn whole_volume_is_discarded_without_a_record_for_each_block() {
    let (pool, _) = pool();
    pool.create_volume("a", 1 << 40, RAW).unwrap();
    let volume = pool.volume("a").unwrap();
    let mut port = Port::open(&*volume, 1).unwrap();
    let last = volume.geometry().capacity.0 - 1;
    for block in [0, 77, last / 2, last] {
        write(&mut port, block, block).unwrap();
    }
    pool.drain().unwrap();
    pool.checkpoint().unwrap();
    write(&mut port, 78, 1).unwrap();
    port.run(Op::Discard { lba: Lba(0), count: LbaCount(last) }).unwrap();
    for block in [0, 77, 78, last / 2] {
        assert!(port.read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap().iter().all(|&b| b == 0));
    }
    assert!(holds(&mut port, last, last));
    pool.drain().unwrap();
    assert_eq!(pool.status().space.live, BLOCK as u64);
    pool.check().unwrap();
}

#[test]
fn volume_in_the_trash_is_deleted_for_good_when_it_is_asked_for() {
    let (pool, _) = pool();
    pool.create_volume("a", 1 << 20, RAW).unwrap();
    let mut port = Port::open(&*pool.volume("a").unwrap(), 1).unwrap();
    (0..100).for_each(|n| write(&mut port, n, n).unwrap());
    pool.drain().unwrap();
    pool.delete_volume("a", 1000).unwrap();
    while pool.step().unwrap() {}
    assert_eq!(pool.status().space.live, 100 * BLOCK as u64);
    let error = pool.delete_volume("a", 1000).unwrap_err().to_string();
    assert!(error.contains("in the trash") && error.contains("`restore`"), "{error}");
    pool.delete_volume("a", 0).unwrap();
    while pool.step().unwrap() {}
    assert_eq!(pool.status().space.live, 0);
    assert!(pool.restore("a").is_err() && pool.delete_volume("a", 0).is_err());
    pool.check().unwrap();
}

#[test]
fn space_of_volumes_is_counted_to_the_byte() {
    let (pool, _) = pool();
    let block = BLOCK as u64;
    let du = |name: &str| {
        let space = pool.du(name).unwrap();
        assert_eq!(space.stored, space.unique + space.shared);
        (space.used / block, space.unique / block, space.shared / block)
    };
    pool.create_volume("a", 1000 * block, RAW).unwrap();
    let mut port = Port::open(&*pool.volume("a").unwrap(), 1).unwrap();
    (0..100).for_each(|n| write(&mut port, n, n).unwrap());
    assert_eq!(du("a"), (100, 100, 0));
    pool.snapshot("a", "s").unwrap();
    assert_eq!(du("a"), (100, 0, 100));
    (0..30).for_each(|n| write(&mut port, n, 1000 + n).unwrap());
    assert_eq!(du("a"), (100, 30, 70));
    pool.clone_volume("a", "s", "b").unwrap();
    assert_eq!(du("b"), (100, 0, 100));
    let mut clone = Port::open(&*pool.volume("b").unwrap(), 1).unwrap();
    (20..60).for_each(|n| write(&mut clone, n, 2000 + n).unwrap());
    clone.discard(Lba(90), LbaCount(10)).unwrap();
    assert_eq!(du("b"), (90, 40, 50));
    // Without the snapshot, what the clone wrote over is no longer shared with it.
    pool.delete_snapshot("a", "s").unwrap();
    while pool.step().unwrap() {}
    assert_eq!(du("a"), (100, 30 + 30 + 10, 30));
    assert_eq!(du("b"), (90, 40 + 20, 30));
    // Deleting one frees what was its alone, to the byte. Blocks of its parent that it had written over, and that nobody
    // else saw, are free already.
    let live = |pool: &Pool| pool.status().space.live / block;
    let before = live(&pool);
    let unique = du("b").1;
    pool.delete_volume("b", 0).unwrap();
    while pool.step().unwrap() {}
    assert_eq!(before - live(&pool), unique);
    assert_eq!(du("a"), (100, 100, 0));
    pool.check().unwrap();
}

#[test]
fn limits_hold_over_ten_seconds() {
    let shape = Shape { drive_bytes: 12 << 20, ..SMALL };
    let (drives, _) = rig::devices(&shape);
    Pool::create(&drives, &[], &rig::create_options(&shape)).unwrap();
    let options = rig::open_options(&shape);
    let clock = options.clock.clone();
    let pool = Pool::open(&drives, options).unwrap();
    let limits = VolumeOptions { iops_limit: 200, ..VolumeOptions::default() };
    pool.create_volume("a", 1 << 20, limits).unwrap();
    let mut port = Port::open(&*pool.volume("a").unwrap(), 1).unwrap();
    let begin = clock.now();
    for n in 0..2000 {
        write(&mut port, n % 256, n).unwrap();
    }
    let seconds = clock.now().since(begin).as_secs_f64();
    assert!((9.7..10.3).contains(&seconds), "{seconds} s");
    pool.configure("a", VolumeOptions { bytes_limit: 1 << 20, ..VolumeOptions::default() }, &[])
        .unwrap();
    let begin = clock.now();
    for n in 0..2560 {
        port.read(Lba(n % 256), AlignedBuf::zeroed(BLOCK)).unwrap();
    }
    let seconds = clock.now().since(begin).as_secs_f64();
    assert!((9.7..10.3).contains(&seconds), "{seconds} s");
}

/// With the thread of a served pool, a queue as deep as a host's, and few small segments.
#[test]
fn pool_that_is_filled_at_depth_refuses_and_goes_on() {
    for drive_mib in [24, 32, 64] {
        let drive = |n| -> Arc<dyn Device> {
            Arc::new(MemoryDevice::new(&format!("drive-{n}"), drive_mib << 20, 4096))
        };
        let drives: Vec<Arc<dyn Device>> = (0..3).map(drive).collect();
        let options = CreateOptions {
            chunk_bytes: 256 << 10,
            log_bytes: 2 << 20,
            ..CreateOptions::default()
        };
        Pool::create(&drives, &[], &options).unwrap();
        let pool = Pool::open(&drives, OpenOptions::default()).unwrap();
        let usable = pool.status().space.usable;
        pool.create_volume("a", 1 << 30, RAW).unwrap();
        let mut port = Port::open(&*pool.volume("a").unwrap(), 32).unwrap();
        let (clock, mut rng) = (Clock::real(), Rng::new(3));
        let mut write_at = |lba: u64| {
            let mut buf = AlignedBuf::zeroed(64 << 10);
            rng.fill(&mut buf);
            Op::Write { lba: Lba(lba), buf, placement: None, fua: false }
        };
        for round in 0..4 {
            let (mut refused, mut lba, mut written) = (false, 0, 0);
            while !refused {
                let ops: Vec<Op> = (0..32).map(|n| write_at(lba + 16 * n)).collect();
                lba += 16 * 32;
                port.run_all(ops, |_, result| match result {
                    Ok(_) => written += 64 << 10,
                    Err(error) => {
                        assert_eq!(
                            error.kind(),
                            ErrorKind::NoSpace,
                            "{drive_mib} {round}: {error}"
                        );
                        refused = true;
                    }
                })
                .unwrap();
            }
            let status = pool.status();
            let codes: Vec<&str> = status.alarms.iter().map(|alarm| alarm.code).collect();
            assert_eq!(codes, ["POOL_FULL"], "{drive_mib} {round}: {:#?}", status.alarms);
            assert!(
                written + (2 << 20) >= usable / 100 * 99,
                "{drive_mib} {round}: {written} of {usable}"
            );
            // Nobody writes: maintenance comes to an end.
            let wrote = || {
                let written = pool.status().written;
                (written.cleaned, written.checkpoints)
            };
            let deadline = clock.now() + Duration::from_secs(20);
            let mut before = wrote();
            while clock.now() < deadline {
                clock.sleep(Duration::from_millis(500));
                let after = wrote();
                if after == before {
                    break;
                }
                before = after;
            }
            assert!(clock.now() < deadline, "{drive_mib} {round}: a full pool goes on cleaning");
            assert!(pool.snapshot("a", "s").is_ok());
            pool.delete_snapshot("a", "s").unwrap();
            port.discard(Lba(0), LbaCount(lba)).unwrap();
        }
        pool.close().unwrap();
    }
}
