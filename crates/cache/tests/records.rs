//! Commits of so many names that they take several records of the journal.

#[path = "support/rig.rs"]
mod rig;

use std::sync::Arc;

use esker_cache::{Cache, CreateOptions, Division, Mode};
use esker_device::{Device, Port};

use rig::{content, read, write};

/// Nearly as many as there are slots, and more than two records hold.
const BLOCKS: u64 = 8_000;

/// A cache of two sets of 4,032 slots, whose records hold some 2,900 names.
fn devices(flash_bytes: u64) -> (Arc<dyn Device>, Arc<dyn Device>) {
    let options = CreateOptions {
        set_bytes: 4032 * 4096,
        division: Division::Linear,
        ..rig::large_options(Mode::WriteBack)
    };
    rig::large_devices(64 << 20, flash_bytes, &options)
}

#[test]
fn a_flush_of_three_records_names_the_blocks_of_the_first() {
    let (origin, flash) = devices(40 << 20);
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
