//! A cache in use without a pause: what is dirty is written back, and what is clean is named, once it is of an age.

use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, Lba, LbaCount};
use esker_cache::{Background, Bounds, Cache, CreateOptions, Mode, OpenOptions};
use esker_device::{Device, Op, Port};

use crate::rig::{self, content, read, write};

const SECOND: Duration = Duration::from_secs(1);

struct Used {
    origin: Arc<dyn Device>,
    flash: Arc<dyn Device>,
    cache: Cache,
    port: Port,
    clock: Clock,
}

impl Used {
    fn with(change: impl FnOnce(&mut OpenOptions)) -> Used {
        let large = rig::large_options(Mode::WriteBack);
        let options = CreateOptions { flash_bytes: Some(16 << 20), ..large };
        let (origin, flash) = rig::large_devices(32 << 20, 24 << 20, &options);
        let clock = Clock::virtual_time();
        let mut options = OpenOptions { clock: clock.clone(), ..rig::open_options() };
        change(&mut options);
        let cache = Cache::open(origin.clone(), flash.clone(), options).unwrap();
        let port = Port::open(&cache, 4).unwrap();
        Used { origin, flash, cache, port, clock }
    }

    /// A second in which the cache is used, and does a few steps of its own.
    fn second(&mut self, user: impl FnOnce(&mut Port)) {
        user(&mut self.port);
        for _ in 0..20 {
            self.clock.advance(SECOND / 20);
            self.cache.step(false).unwrap();
        }
    }

    fn dirty(&self) -> u64 {
        self.cache.figures().dirty_blocks
    }
}

#[test]
fn dirty_blocks_are_written_back_within_their_age_beside_reads() {
    let mut used = Used::with(|_| {});
    (0..1_500).for_each(|block| write(&mut used.port, block * 3, 1));
    used.port.flush().unwrap();
    assert_eq!(used.dirty(), 1_500);
    let (mut early, mut seconds) = (0, 0);
    while used.dirty() > 0 {
        seconds += 1;
        assert!(seconds <= 30, "{} blocks are dirty after 30 s", used.dirty());
        early += u64::from(seconds <= 12 && used.dirty() < 1_500);
        used.second(|port| drop(read(port, 1)));
    }
    assert_eq!(early, 0, "they were written back long before");
    let mut port = Port::open(&*used.origin, 1).unwrap();
    assert!((0..1_500).all(|block| read(&mut port, block * 3)[..] == content(block * 3, 1)[..]));
}

#[test]
fn block_that_is_written_every_second_reaches_the_origin_within_its_age() {
    let mut used = Used::with(|_| {});
    let mut port = Port::open(&*used.origin, 1).unwrap();
    let mut there = 0;
    for version in 1..100 {
        used.second(|port| write(port, 7, version));
        let found = read(&mut port, 7);
        let newest = (there + 1..=version).rev().find(|at| found[..] == content(7, *at)[..]);
        there = newest.unwrap_or(there);
        assert!(version - there <= 30, "the origin has version {there}, and {version} is written");
    }
    assert!(used.cache.figures().cleaned <= 12, "it is written back far too often");
}

#[test]
fn blocks_that_were_dirty_before_opening_are_written_back_within_their_age() {
    let mut used = Used::with(|_| {});
    (0..300).for_each(|block| write(&mut used.port, block * 5, 1));
    used.port.flush().unwrap();
    let Used { origin, flash, cache, port, .. } = used;
    std::mem::forget((cache, port)); // a crash
    let clock = Clock::virtual_time();
    let options = OpenOptions { clock: clock.clone(), ..rig::open_options() };
    let cache = Cache::open(origin.clone(), flash.clone(), options).unwrap();
    let port = Port::open(&cache, 4).unwrap();
    let mut used = Used { origin, flash, cache, port, clock };
    assert_eq!(used.dirty(), 300);
    (0..30).for_each(|_| used.second(|port| drop(read(port, 4_000))));
    assert_eq!(used.dirty(), 0);
}

#[test]
fn served_blocks_are_found_after_a_kill_beside_use() {
    let mut used = Used::with(|_| {});
    for second in 0..15 {
        used.second(|port| (0..100).for_each(|n| drop(read(port, second * 100 + n))));
    }
    let Used { origin, flash, cache, port, .. } = used;
    std::mem::forget((cache, port)); // no close
    assert!(Cache::inspect(&flash).unwrap().named_blocks >= 500);
    let cache = rig::open(&origin, &flash);
    let mut port = Port::open(&cache, 4).unwrap();
    (0..500).for_each(|block| drop(read(&mut port, block)));
    assert_eq!(cache.figures().read_hits, 500, "of those that were cached for 10 s and more");
}

#[test]
fn blocks_are_named_beside_discards() {
    let mut used = Used::with(|_| {});
    (0..200).for_each(|block| drop(read(&mut used.port, block)));
    for _ in 0..11 {
        used.second(|port| {
            let count = LbaCount(8);
            port.run(Op::Discard { lba: Lba(5_000), count }).unwrap();
        });
    }
    assert!(Cache::inspect(&used.flash).unwrap().named_blocks >= 200);
}

#[test]
fn ages_are_options() {
    let mut used = Used::with(|options| {
        options.dirty_age = Some(4 * SECOND);
        options.name_age = None;
    });
    (0..50).for_each(|block| write(&mut used.port, block, 1));
    (100..150).for_each(|block| drop(read(&mut used.port, block)));
    used.port.flush().unwrap();
    (0..4).for_each(|_| used.second(|port| drop(read(port, 1))));
    assert_eq!(used.dirty(), 0);
    (0..40).for_each(|_| used.second(|port| drop(read(port, 1))));
    assert!(Cache::inspect(&used.flash).unwrap().named_blocks <= 50, "only what was written back");
    let mut used = Used::with(|options| options.dirty_age = None);
    write(&mut used.port, 1, 1);
    (0..100).for_each(|_| used.second(|port| drop(read(port, 1))));
    assert_eq!(used.dirty(), 1);
}

#[test]
fn change_to_write_through_leaves_nothing_dirty_soon_beside_use() {
    let mut used = Used::with(|options| options.dirty_age = None);
    (0..1_500).for_each(|block| write(&mut used.port, block * 2, 1));
    used.port.flush().unwrap();
    used.cache.set_mode(Mode::WriteThrough).unwrap();
    for version in 2..7 {
        used.second(|port| write(port, 2, version));
    }
    assert_eq!(used.dirty(), 0);
}

#[test]
fn change_of_mode_ends_with_a_clean_cache_although_a_dirty_block_is_written_without_a_pause() {
    let (origin, flash) =
        rig::large_devices(32 << 20, 16 << 20, &rig::large_options(Mode::WriteBack));
    let options =
        OpenOptions { background: Background::Thread, clock: Clock::real(), ..rig::open_options() };
    let cache = Cache::open(origin, flash, options).unwrap();
    let mut port = Port::open(&cache, 4).unwrap();
    (0..500).for_each(|block| write(&mut port, block, 1));
    port.flush().unwrap();
    cache.set_mode(Mode::WriteThrough).unwrap();
    let clock = Clock::real();
    let begun = clock.now();
    for version in 2.. {
        write(&mut port, 1, version);
        if version % 64 == 0 && cache.figures().dirty_blocks == 0 {
            break;
        }
        assert!(clock.now() - begun < 60 * SECOND, "{:?}", cache.figures());
    }
}

#[test]
fn bounds_change_in_use_and_outlast_a_change_of_size() {
    let mut used = Used::with(|options| options.dirty_age = None);
    write(&mut used.port, 1, 1);
    let bounds = used.cache.bounds();
    assert!(used.cache.set_bounds(Bounds { dirty_percent: 0, ..bounds }).is_err());
    let bounds = Bounds { dirty_age: Some(4 * SECOND), ..bounds };
    used.cache.set_bounds(bounds).unwrap();
    used.cache.resize(24 << 20).unwrap();
    assert_eq!(used.cache.bounds(), bounds);
    (0..4).for_each(|_| used.second(|port| drop(read(port, 9))));
    assert_eq!(used.dirty(), 0);
}

#[test]
fn what_is_dirty_is_written_back_on_request_whatever_becomes_dirty_meanwhile() {
    let mut used = Used::with(|_| {});
    (0..700).for_each(|block| write(&mut used.port, block * 3, 1));
    used.cache.write_back().unwrap();
    assert_eq!((used.dirty(), used.cache.info().dirty_blocks), (0, 0));
    let mut port = Port::open(&*used.origin, 1).unwrap();
    assert!((0..700).all(|block| read(&mut port, block * 3)[..] == content(block * 3, 1)[..]));
    write(&mut used.port, 2, 1);
    assert_eq!(used.cache.info().dirty_blocks, 1);
}
