//! Cold blocks are compressed together when they are moved, take less space, and come back as they were.

use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Lba, Rng};
use esker_device::Port;
use esker_volume::{CreateOptions, Pool, VolumeOptions};

const BLOCKS: u64 = 1600;
const SHAPE: Shape = Shape { drive_bytes: 5 << 20, map_bytes: 1 << 20, ..SMALL };

fn create_options() -> CreateOptions {
    let shape = rig::create_options(&SHAPE);
    CreateOptions { chunk_bytes: 128 << 10, unit_bytes: 16 << 10, log_bytes: 512 << 10, ..shape }
}

/// Half of it is random.
fn content(block: u64, version: u64) -> Vec<u8> {
    let mut content = vec![0; BLOCK];
    Rng::new(block << 32 | version).fill(&mut content[..BLOCK / 2]);
    content
}

fn is_hot(block: u64) -> bool {
    block % 16 >= 12
}

fn write(port: &mut Port, block: u64, version: u64) {
    let buf = AlignedBuf::padded(&content(block, version), BLOCK);
    port.write(Lba(block), buf, None).unwrap();
}

/// Bytes that live, of each block.
#[allow(clippy::cast_precision_loss)]
fn stored(pool: &Pool) -> f64 {
    pool.status().space.live as f64 / BLOCKS as f64
}

#[test]
fn cold_neighbours_are_compressed_together_and_come_back() {
    let (drives, _) = rig::devices(&SHAPE);
    Pool::create(&drives, &[], &create_options()).unwrap();
    let pool = rig::open(&drives, &SHAPE);
    pool.create_volume("a", BLOCKS * BLOCK as u64, VolumeOptions::default()).unwrap();
    let mut port = Port::open(&*pool.volume("a").unwrap(), 1).unwrap();
    let mut versions = vec![1; usize::try_from(BLOCKS).unwrap()];
    for block in 0..BLOCKS {
        write(&mut port, block, 1);
    }
    pool.drain().unwrap();
    let before = stored(&pool);
    assert!((2500.0..2570.0).contains(&before), "five sectors: {before}");
    pool.snapshot("a", "s").unwrap();
    pool.delete_snapshot("a", "s").unwrap();
    let mut rng = Rng::new(1);
    for round in 2..12_000 {
        let block = rng.below(BLOCKS / 16) * 16 + 12 + rng.below(4);
        write(&mut port, block, round);
        versions[usize::try_from(block).unwrap()] = round;
        if round % 16 == 0 {
            while pool.step().unwrap() {}
        }
        if round == 6_000 {
            pool.snapshot("a", "middle").unwrap();
        }
        if round == 8_000 {
            pool.delete_snapshot("a", "middle").unwrap();
        }
    }
    pool.drain().unwrap();
    while pool.step().unwrap() {}
    pool.check().unwrap();
    let after = stored(&pool);
    println!("{before:.0} bytes a block before, {after:.0} after cleaning");
    assert!(after < 0.92 * before, "{after} of {before}");
    drop(port);
    pool.close().unwrap();
    // As it comes from the media; single blocks, and whole bundles.
    let pool = rig::open(&drives, &SHAPE);
    let mut port = Port::open(&*pool.volume("a").unwrap(), 1).unwrap();
    let expected = |block: u64| content(block, versions[usize::try_from(block).unwrap()]);
    for block in 0..BLOCKS {
        let read = port.read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap();
        assert!(read[..] == expected(block)[..], "block {block}");
    }
    for first in (0..BLOCKS).step_by(16) {
        let read = port.read(Lba(first), AlignedBuf::zeroed(16 * BLOCK)).unwrap();
        for (block, bytes) in (first..).zip(read.chunks(BLOCK)) {
            assert!(bytes == &expected(block)[..], "block {block} of 16");
        }
    }
    // Part of a bundle is overwritten: the others stay, and its bytes are accounted for.
    for block in (0..BLOCKS).step_by(8).filter(|block| !is_hot(*block)) {
        write(&mut port, block, 7);
        versions[usize::try_from(block).unwrap()] = 7;
    }
    pool.drain().unwrap();
    pool.check().unwrap();
    let read = port.read(Lba(1), AlignedBuf::zeroed(BLOCK)).unwrap();
    assert!(read[..] == content(1, 1)[..]);
}
