//! A cache that grows and shrinks in use: the blocks it keeps, the sizes it refuses, its users.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_base::thread::spawn_scoped;
use esker_base::{AlignedBuf, ErrorKind, Lba, LbaCount, Rng};
use esker_cache::{Cache, CreateOptions, Mode, OpenOptions};
use esker_device::{Command, Device, NullDevice, Op, Port, Tag};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};

use crate::rig::{self, content, read, write};

const BLOCKS: u64 = 8 << 10;

fn devices(flash_bytes: u64, mode: Mode) -> (Arc<dyn Device>, Arc<dyn Device>) {
    let options = CreateOptions {
        flash_bytes: Some(flash_bytes),
        set_bytes: 4032 * 4096 / 4,
        ..rig::large_options(mode)
    };
    rig::large_devices(BLOCKS * 4096, 64 << 20, &options)
}

#[test]
fn growing_keeps_all_cached_blocks_and_shrinking_keeps_most() {
    let (origin, flash) = devices(24 << 20, Mode::WriteBack);
    let cache = rig::open(&origin, &flash);
    let mut port = Port::open(&cache, 4).unwrap();
    (0..2_400).for_each(|block| write(&mut port, block, 1));
    (2_400..3_200).for_each(|block| drop(read(&mut port, block)));
    let before = cache.figures();
    cache.resize(48 << 20).unwrap();
    assert_eq!(Cache::inspect(&flash).unwrap().flash_bytes, 48 << 20);
    let after = cache.figures();
    assert!(after.slots > before.slots * 3 / 2, "{} of {}", after.slots, before.slots);
    assert_eq!(after.dirty_blocks, before.dirty_blocks, "nothing had to be written back");
    assert_eq!(after.write_misses, before.write_misses, "counts go on");
    (0..3_200).for_each(|block| {
        let version = u64::from(block < 2_400);
        let expected = if version == 0 { AlignedBuf::zeroed(4096) } else { content(block, 1) };
        assert_eq!(&read(&mut port, block)[..], &expected[..], "block {block}");
    });
    assert_eq!(cache.figures().read_misses, after.read_misses, "all of it was cached");
    // The new slots are used.
    (4_000..8_000).for_each(|block| write(&mut port, block, 2));
    assert!(cache.figures().dirty_blocks > before.slots, "{:?}", cache.figures());

    let full = cache.figures();
    cache.resize(24 << 20).unwrap();
    let shrunk = cache.figures();
    assert_eq!(shrunk.slots, before.slots);
    assert!(shrunk.dirty_blocks > before.slots / 2, "what stays is not written back");
    (0..8_000).for_each(|block| {
        let version = match block {
            0..2_400 => 1,
            2_400..4_000 => 0,
            _ => 2,
        };
        let expected =
            if version == 0 { AlignedBuf::zeroed(4096) } else { content(block, version) };
        assert_eq!(&read(&mut port, block)[..], &expected[..], "block {block}");
    });
    let hits = cache.figures().read_hits - full.read_hits;
    assert!(hits > before.slots / 2, "{hits} hits");
    drop(port);
    cache.close().unwrap();
    drop(cache);
    assert_eq!(Cache::inspect(&flash).unwrap().flash_bytes, 24 << 20);
    let cache = rig::open(&origin, &flash);
    cache.detach().unwrap();
    let mut port = Port::open(&*origin, 4).unwrap();
    assert_eq!(&read(&mut port, 7_999)[..], &content(7_999, 2)[..]);
}

#[test]
fn a_size_that_cannot_be_is_refused_with_the_size_that_can() {
    let (origin, flash) = devices(24 << 20, Mode::WriteThrough);
    let cache = rig::open(&origin, &flash);
    let error = cache.resize(65 << 20).unwrap_err().to_string();
    assert!(error.contains("67108864 bytes"), "{error}");
    let error = cache.resize(1 << 20).unwrap_err().to_string();
    let least = error.split("below ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let least: u64 = least.parse().unwrap();
    assert!(cache.resize(least - 4096).is_err());
    cache.resize(least).unwrap();
    assert!(cache.figures().capacity_bytes < least && cache.figures().slots > 0);
    cache.resize(24 << 20).unwrap();
    cache.resize((24 << 20) + 4096).unwrap();
}

#[test]
fn commands_under_way_finish_before_the_size_changes() {
    let (origin, flash) = devices(24 << 20, Mode::WriteBack);
    write(&mut Port::open(&*origin, 1).unwrap(), 7, 1);
    let plan = FaultPlan::new();
    let late: Arc<dyn Device> = Arc::new(FaultDevice::new(origin.clone(), &plan));
    let cache = rig::open(&late, &flash);
    let mut queue = cache.queue_pair(4).unwrap();
    // It is not done when it was submitted, nor at the next looks.
    let effect = Effect::DelayPolls { count: 5 };
    plan.once(Target::Read, plan.seen(Target::Read), effect);
    let op = Op::Read { lba: Lba(7), buf: AlignedBuf::zeroed(4096) };
    queue.submit(&mut VecDeque::from([Command { tag: Tag(1), op }])).unwrap();
    let mut done = Vec::new();
    assert_eq!((queue.poll(&mut done).unwrap(), queue.in_flight()), (0, 1));
    cache.resize(48 << 20).unwrap();
    // It is done: there is nothing left to wait for.
    assert_eq!((queue.poll(&mut done).unwrap(), plan.fired()), (1, 1));
    assert_eq!(done[0].buf.as_ref().unwrap()[..], content(7, 1)[..]);
    assert_eq!(cache.figures().fills, 1);
}

#[test]
fn readers_and_writers_go_on_while_the_size_changes() {
    let (origin, flash) = devices(16 << 20, Mode::WriteBack);
    let options =
        OpenOptions { background: esker_cache::Background::Thread, ..rig::open_options() };
    let cache = Cache::open(origin.clone(), flash.clone(), options).unwrap();
    let stop = AtomicBool::new(false);
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3u64)
            .map(|thread| {
                let (cache, stop) = (&cache, &stop);
                spawn_scoped(scope, "user", move || {
                    // Each has blocks of its own, and opens queue pairs again and again.
                    let (mut rng, mut count) = (Rng::new(thread), 0);
                    let mut versions = vec![0u64; 2_000];
                    while !stop.load(Ordering::Relaxed) || count < 500 {
                        let mut port = Port::open(cache, 4).unwrap();
                        for _ in 0..100 {
                            let at = rng.below(2_000);
                            let block = thread * 2_000 + at;
                            let version = &mut versions[usize::try_from(at).unwrap()];
                            if rng.chance(1, 2) {
                                *version += 1;
                                write(&mut port, block, *version);
                            } else if *version > 0 {
                                let expected = content(block, *version);
                                assert_eq!(&read(&mut port, block)[..], &expected[..]);
                            }
                            count += 1;
                        }
                    }
                    count
                })
                .unwrap()
            })
            .collect();
        let mut rng = Rng::new(9);
        for _ in 0..12 {
            let bytes = (12 << 20) + rng.below(8) * (4 << 20);
            let resized = cache.resize(bytes);
            assert!(
                resized.is_ok()
                    || matches!(&resized, Err(error) if error.kind() == ErrorKind::Invalid),
                "{resized:?}"
            );
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(counts.iter().all(|&count| count >= 500), "{counts:?}");
    assert!(cache.figures().host_written_bytes > 0);
}

#[test]
fn sets_that_are_too_small_for_the_flash_are_refused() {
    let tebibytes = |count: u64| LbaCount((count << 40) / 4096);
    let origin = NullDevice::new(tebibytes(64), 4096);
    let flash: Arc<dyn Device> = Arc::new(NullDevice::new(tebibytes(15), 4096));
    for (set_bytes, is_good) in [(32 << 10, false), (256 << 10, false), (4 << 20, true)] {
        let options = CreateOptions {
            set_bytes,
            run_bytes: 32 << 10,
            area_bytes: None,
            ..rig::large_options(Mode::WriteBack)
        };
        match Cache::create(&origin, &flash, &options) {
            Ok(()) => assert!(is_good, "sets of {set_bytes} bytes"),
            Err(error) => {
                assert!(!is_good && error.kind() == ErrorKind::Invalid, "{error}");
                assert!(error.to_string().contains("sets of"), "{error}");
            }
        }
    }
}

#[test]
fn a_cache_whose_sets_have_grown_large_is_made_anew() {
    let options = CreateOptions {
        flash_bytes: Some(160 << 20),
        set_bytes: 128 << 20,
        ..rig::large_options(Mode::WriteBack)
    };
    let (origin, flash) = rig::large_devices(BLOCKS * 4096, 400 << 20, &options);
    let cache = rig::open(&origin, &flash);
    write(&mut Port::open(&cache, 4).unwrap(), 7, 1);
    cache.resize(320 << 20).unwrap();
    assert!(cache.figures().slots > 40_000 * u64::from(cache.figures().sets));
    cache.close().unwrap();
    drop(cache);
    Cache::remake(&origin, &flash, None).unwrap();
    let info = Cache::inspect(&flash).unwrap();
    assert!(info.capacity_bytes > 320 << 20 && info.set_bytes <= 128 << 20, "{info:?}");
    assert!(read(&mut Port::open(&*origin, 1).unwrap(), 7)[..] == content(7, 1)[..]);
}
