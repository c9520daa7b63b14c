//! A cache and an origin that do not belong together: the pair is refused, before a byte of either is changed.

use crate::rig::{self, bytes_of};

use std::sync::Arc;

use esker_base::{AlignedBuf, ErrorKind, Lba};
use esker_cache::omf::{BLOCK, Superblock};
use esker_cache::{Cache, CacheError, Dirty, Mode};
use esker_device::{Device, Fact, Identity, MemoryDevice, Port};

const BLOCKS: u64 = 4096;
const FLASH: u64 = 4 << 20;

fn named(name: &str) -> Identity {
    Identity::default().with(Fact::Wwid, name)
}

/// An origin every seventh block of which holds `version`.
fn origin(identity: Option<Identity>, version: u64) -> Arc<dyn Device> {
    let mut origin = MemoryDevice::new("origin", BLOCKS * BLOCK, 4096);
    if let Some(identity) = identity {
        origin = origin.identified(identity);
    }
    let mut port = Port::open(&origin, 1).unwrap();
    (0..BLOCKS).step_by(7).for_each(|block| rig::write(&mut port, block, version));
    drop(port);
    Arc::new(origin)
}

/// The flash device of a cache for `origin`.
fn flash_of(origin: &Arc<dyn Device>, mode: Mode) -> Arc<dyn Device> {
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", FLASH, 4096));
    Cache::create(&**origin, &flash, &rig::large_options(mode)).unwrap();
    flash
}

/// A cache that has a dirty block, 700, and a clean one, 7.
fn used(origin: &Arc<dyn Device>) -> Arc<dyn Device> {
    let flash = flash_of(origin, Mode::WriteBack);
    let cache = rig::open(origin, &flash);
    let mut port = Port::open(&cache, 1).unwrap();
    rig::read(&mut port, 7);
    rig::write(&mut port, 700, 9);
    port.flush().unwrap();
    cache.close().unwrap();
    assert_eq!((cache.figures().dirty_blocks, cache.figures().read_misses), (1, 1));
    flash
}

fn copy_of(device: &Arc<dyn Device>, identity: Option<Identity>) -> Arc<dyn Device> {
    let mut copy = MemoryDevice::new("copy", device.geometry().capacity.bytes(4096), 4096);
    if let Some(identity) = identity {
        copy = copy.identified(identity);
    }
    let content = AlignedBuf::padded(&bytes_of(device), 4096);
    Port::open(&copy, 1).unwrap().write(Lba(0), content, None).unwrap();
    Arc::new(copy)
}

fn superblock(flash: &Arc<dyn Device>) -> Superblock {
    Superblock::decode(&bytes_of(flash)[..4096], 0).unwrap()
}

/// The pair is refused by everything that opens it, with these words, and no byte of it changes.
fn is_refused(origin: &Arc<dyn Device>, flash: &Arc<dyn Device>, words: &[&str]) {
    let before = (bytes_of(origin), bytes_of(flash));
    let opened = Cache::open(origin.clone(), flash.clone(), rig::open_options()).map(drop);
    let remade = Cache::remake(origin, flash, None);
    for result in [opened, remade] {
        let error = result.expect_err("a wrong pair was opened");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        let text = error.to_string();
        words.iter().for_each(|word| assert!(text.contains(word), "no '{word}' in: {text}"));
        assert!(
            text.contains("nothing was changed") && text.contains("esker cache accept"),
            "{text}"
        );
    }
    assert!(!Cache::pairing(&**origin, flash).unwrap().is_right());
    assert!(before == (bytes_of(origin), bytes_of(flash)), "something was written");
}

#[test]
fn flash_of_another_origin_is_refused() {
    let (a, b) = (origin(Some(named("a")), 1), origin(Some(named("b")), 2));
    let (flash_of_a, flash_of_b) = (used(&a), used(&b));
    is_refused(
        &a,
        &flash_of_b,
        &["made for wwid=b; this one is wwid=a", "blocks differ", "4.00 KiB"],
    );
    is_refused(&b, &flash_of_a, &["made for wwid=a; this one is wwid=b", "blocks differ"]);
    for (origin, flash) in [(&a, &flash_of_a), (&b, &flash_of_b)] {
        let cache = rig::open(origin, flash);
        assert!(
            rig::read(&mut Port::open(&cache, 1).unwrap(), 700)[..] == rig::content(700, 9)[..]
        );
        assert!(cache.remarks().is_empty());
        cache.detach().unwrap();
    }
}

#[test]
fn origin_without_an_identity_is_known_by_its_content() {
    let (a, b) = (origin(None, 1), origin(None, 2));
    let (flash_of_a, flash_of_b) = (used(&a), used(&b));
    is_refused(&a, &flash_of_b, &["written without its cache on flash, or is another device"]);
    is_refused(&b, &flash_of_a, &["blocks differ, the first one at byte 0"]);
    rig::open(&a, &flash_of_a).detach().unwrap();
}

#[test]
fn copy_with_the_same_content_is_another_origin() {
    let first = origin(Some(named("a")), 1);
    let flash = used(&first);
    let copy = copy_of(&first, Some(named("b")));
    is_refused(&copy, &flash, &["made for wwid=a; this one is wwid=b; all 6"]);
    // So is one that cannot be told apart by its content.
    let blank = |name| -> Arc<dyn Device> {
        Arc::new(MemoryDevice::new(name, BLOCKS * BLOCK, 4096).identified(named(name)))
    };
    let (c, d) = (blank("c"), blank("d"));
    is_refused(&d, &used(&c), &["wwid=c", "wwid=d"]);
}

#[test]
fn change_of_any_sampled_block_is_found() {
    for mode in rig::MODES {
        let origin = origin(Some(named("a")), 1);
        let flash = flash_of(&origin, mode);
        // A write of the cache itself is no change, wherever it is.
        let cache = rig::open(&origin, &flash);
        let mut port = Port::open(&cache, 1).unwrap();
        (0..BLOCKS).step_by(5).for_each(|block| rig::write(&mut port, block, 3));
        let zero =
            esker_device::Op::WriteZeroes { lba: Lba(512), count: esker_base::LbaCount(600) };
        port.run(zero).unwrap();
        port.discard(Lba(2048), esker_base::LbaCount(600)).unwrap();
        port.flush().unwrap();
        cache.close().unwrap();
        drop((port, cache));
        let known = superblock(&flash).origin;
        assert_eq!(known.armed.count_ones() as usize, known.samples.len(), "{mode}");
        assert!(known.samples.len() > 60, "{}", known.samples.len());
        let mut port = Port::open(&*origin, 1).unwrap();
        for sample in &known.samples {
            let was = rig::read(&mut port, sample.block);
            rig::write(&mut port, sample.block, 77);
            let pair = Cache::pairing(&*origin, &flash).unwrap();
            assert_eq!(pair.differing, [sample.block], "{mode}");
            port.write(Lba(sample.block), was, None).unwrap();
            assert!(Cache::pairing(&*origin, &flash).unwrap().is_right());
        }
        rig::write(&mut port, 0, 77);
        is_refused(&origin, &flash, &["was written without its cache", "first one at byte 0"]);
    }
}

#[test]
fn older_copy_of_the_origin_is_refused() {
    let origin = origin(None, 1);
    let flash = flash_of(&origin, Mode::WriteThrough);
    let backup = copy_of(&origin, None);
    let cache = rig::open(&origin, &flash);
    let mut port = Port::open(&cache, 1).unwrap();
    (0..BLOCKS).for_each(|block| rig::write(&mut port, block, 5));
    port.flush().unwrap();
    cache.close().unwrap();
    drop((port, cache));
    is_refused(&backup, &flash, &["blocks differ"]);
}

#[test]
fn change_under_an_open_cache_is_found_before_it_is_detached() {
    let origin = origin(Some(named("a")), 1);
    let flash = used(&origin);
    let cache = rig::open(&origin, &flash);
    let mut port = Port::open(&*origin, 1).unwrap();
    let was = rig::read(&mut port, 0);
    rig::write(&mut port, 0, 77);
    let before = bytes_of(&origin);
    let error = cache.detach().unwrap_err();
    assert!(matches!(error, CacheError::WrongOrigin { .. }), "{error}");
    assert!(before == bytes_of(&origin), "dirty blocks went over it");
    port.write(Lba(0), was, None).unwrap();
    cache.detach().unwrap();
    assert!(rig::read(&mut port, 700)[..] == rig::content(700, 9)[..]);
}

#[test]
fn accepted_origin_gets_what_was_kept_and_nothing_that_was_dropped() {
    for dirty in [Dirty::Keep, Dirty::Drop] {
        let (a, b) = (origin(Some(named("a")), 1), origin(Some(named("b")), 2));
        let flash = used(&a);
        let before = bytes_of(&b);
        Cache::accept(&*b, &flash, dirty).unwrap();
        assert!(before == bytes_of(&b), "to accept writes nothing to the origin");
        assert!(Cache::pairing(&*b, &flash).unwrap().is_right());
        is_refused(&a, &flash, &["made for wwid=b; this one is wwid=a"]);
        let kept = u64::from(dirty == Dirty::Keep);
        let info = Cache::inspect(&flash).unwrap();
        assert_eq!((info.dirty_blocks, info.mode), (kept, Mode::WriteBack));
        let cache = rig::open(&b, &flash);
        let mut port = Port::open(&cache, 1).unwrap();
        assert!(rig::read(&mut port, 7)[..] == rig::content(7, 2)[..], "of the former origin");
        let expected = if kept == 1 { rig::content(700, 9) } else { rig::content(700, 2) };
        assert!(rig::read(&mut port, 700)[..] == expected[..], "{dirty:?}");
        cache.detach().unwrap();
        assert!(rig::read(&mut Port::open(&*b, 1).unwrap(), 700)[..] == expected[..], "{dirty:?}");
    }
}

#[test]
fn accepted_change_drops_what_is_stale() {
    let origin = origin(Some(named("a")), 1);
    let flash = used(&origin);
    let mut port = Port::open(&*origin, 1).unwrap();
    [0, 7].into_iter().for_each(|block| rig::write(&mut port, block, 77));
    is_refused(&origin, &flash, &["written without its cache"]);
    Cache::accept(&*origin, &flash, Dirty::Keep).unwrap();
    let cache = rig::open(&origin, &flash);
    let mut port = Port::open(&cache, 1).unwrap();
    assert!(rig::read(&mut port, 7)[..] == rig::content(7, 77)[..], "stale");
    assert!(rig::read(&mut port, 700)[..] == rig::content(700, 9)[..], "lost");
}

#[test]
fn larger_origin_with_the_same_content_is_the_same() {
    let first = origin(Some(named("a")), 1);
    let flash = used(&first);
    let larger = MemoryDevice::new("larger", 2 * BLOCKS * BLOCK, 4096).identified(named("a"));
    let content = AlignedBuf::padded(&bytes_of(&first), 4096);
    Port::open(&larger, 1).unwrap().write(Lba(0), content, None).unwrap();
    rig::open(&(Arc::new(larger) as Arc<dyn Device>), &flash).detach().unwrap();
    let smaller: Arc<dyn Device> = Arc::new(MemoryDevice::new("smaller", 1 << 20, 4096));
    let flash = used(&first);
    let opened = Cache::open(smaller, flash, rig::open_options()).map(drop);
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn cache_of_an_older_version_learns_its_origin_and_says_so() {
    let (a, b) = (origin(Some(named("a")), 1), origin(Some(named("b")), 2));
    let flash = used(&a);
    // As version 2 wrote it: nothing behind the rows.
    let flash = rig::former(&flash, 2);
    assert_eq!(Cache::inspect(&flash).unwrap().origin, None);
    // To change its mode needs no origin.
    Cache::change_mode(&flash, Mode::WriteThrough).unwrap();
    let cache = rig::open(&a, &flash);
    let remarks = cache.remarks();
    assert!(
        remarks.iter().any(|it| it.contains("from now on") && it.contains("wwid=a")),
        "{remarks:?}"
    );
    drop(cache);
    assert!(rig::open(&a, &flash).remarks().is_empty(), "once is enough");
    is_refused(&b, &flash, &["made for wwid=a; this one is wwid=b"]);
    assert!(Cache::inspect(&flash).unwrap().armed_samples > 60);
}

#[test]
fn cache_over_an_origin_is_not_that_origin() {
    let origin = origin(Some(named("a")), 1);
    let cache = rig::open(&origin, &flash_of(&origin, Mode::WriteBack));
    let (own, its) = (cache.identity().unwrap(), origin.identity().unwrap());
    assert!(!own.is_same(&its) && own.is_same(&own), "{own}");
}
