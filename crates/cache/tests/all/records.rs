//! Commits of so many names that they take several records of the journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_base::Lba;
use esker_cache::{Cache, CreateOptions, Division, Mode};
use esker_device::{Device, MemoryDevice, Op, Port};
use esker_sim::refusing;

use crate::rig::{self, content, read, write};

/// Nearly as many as there are slots, and more than two records hold.
const BLOCKS: u64 = 8_000;

/// A cache of two sets of 4,032 slots, whose records hold some 2,900 names.
fn devices(flash_lba: u32) -> (Arc<dyn Device>, Arc<dyn Device>) {
    let options = CreateOptions {
        set_bytes: 4032 * 4096,
        division: Division::Linear,
        ..rig::large_options(Mode::WriteBack)
    };
    let origin: Arc<dyn Device> = Arc::new(MemoryDevice::new("origin", 64 << 20, 4096));
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", 40 << 20, flash_lba));
    Cache::create(&*origin, &flash, &options).unwrap();
    (origin, flash)
}

#[test]
fn a_flush_of_three_records_names_the_blocks_of_the_first() {
    let (origin, flash) = devices(4096);
    let cache = rig::open(&origin, &flash);
    let mut port = Port::open(&cache, 4).unwrap();
    (0..BLOCKS).for_each(|block| write(&mut port, block, 1));
    port.flush().unwrap();
    assert_eq!(cache.figures().dirty_blocks, BLOCKS);
    // A process that ends, and closes nothing.
    drop((port, cache));
    assert_eq!(Cache::inspect(&flash).unwrap().dirty_blocks, BLOCKS);
    let cache = rig::open(&origin, &flash);
    let mut port = Port::open(&cache, 4).unwrap();
    (0..BLOCKS).for_each(|block| {
        assert!(read(&mut port, block)[..] == content(block, 1)[..], "block {block}");
    });
}

#[test]
fn a_block_that_moves_to_another_slot_has_a_name_whichever_record_is_the_last() {
    let blocks = 3_000;
    let mut records = 0;
    for nth in 0.. {
        // LBAs of the flash device are smaller than the origin's: a rewritten block moves.
        let (origin, flash) = devices(512);
        let (left, refused) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicU64::new(0)));
        let (left_to, refusals) = (left.clone(), refused.clone());
        let bad = refusing(&flash, move |op| {
            // In the journal; writes behind the last one are refused, too.
            let is_record = matches!(op, Op::Write { lba, .. } if *lba < Lba(rig::TABLE / 512));
            let is_refused = match is_record {
                true => left_to
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_err(),
                false => left_to.load(Ordering::Relaxed) == 0,
            };
            refusals.fetch_add(u64::from(is_refused), Ordering::Relaxed);
            is_refused
        });
        let cache = rig::open(&origin, &bad);
        let mut port = Port::open(&cache, 4).unwrap();
        (0..blocks).for_each(|block| write(&mut port, block, 1));
        port.flush().unwrap();
        (0..blocks).for_each(|block| write(&mut port, block, 2));
        left.store(nth, Ordering::Relaxed);
        let flushed = port.flush();
        drop((port, cache));
        let is_over = refused.load(Ordering::Relaxed) == 0;
        assert_eq!(flushed.is_ok(), is_over, "{nth}");
        let cache = rig::open(&origin, &flash);
        let mut port = Port::open(&cache, 4).unwrap();
        for block in 0..blocks {
            let found = read(&mut port, block);
            let is_old = !is_over && found[..] == content(block, 1)[..];
            assert!(is_old || found[..] == content(block, 2)[..], "block {block}, record {nth}");
        }
        if is_over {
            break;
        }
        records += 1;
    }
    assert!(records > 2, "{records}");
}
