//! The budget of writes to the flash device, and the warning of a cache that turns over too fast.

use crate::rig;
use std::time::Duration;

use esker_base::Clock;
use esker_base::policy::Kind;
use esker_cache::{Admission, Cache, CreateOptions, Mode, OpenOptions};
use esker_device::{Device, Port};

const BLOCKS: u64 = 64 << 10;
/// Bytes that a budget may be overdrawn by: those written between two looks at the clock, and the
/// block that triggers the look. Later time pays them back.
const OVERDRAFT: u64 = (256 << 10) + 4096;

fn cache(options: OpenOptions) -> Cache {
    let made = rig::large_options(Mode::WriteThrough);
    let (origin, flash) = rig::large_devices(BLOCKS * 4096, 16 << 20, &made);
    Cache::open(origin, flash, options).unwrap()
}

fn read(port: &mut Port, blocks: std::ops::Range<u64>) {
    blocks.for_each(|block| drop(rig::read(port, block)));
}

#[test]
fn beyond_the_budget_nothing_new_is_let_in_until_time_has_passed() {
    let clock = Clock::virtual_time();
    // Once its size in a day: a 24th of it at first, which an hour saves up.
    let options =
        OpenOptions { writes_per_day: Some(1.0), clock: clock.clone(), ..rig::open_options() };
    let cache = cache(options);
    let mut port = Port::open(&cache, 4).unwrap();
    let capacity = cache.figures().capacity_bytes;
    assert_eq!(cache.figures().budget_bytes_per_day, Some(capacity));
    read(&mut port, 0..8_000);
    let spent = cache.figures();
    assert!(spent.is_over_budget);
    let hour = capacity / 24;
    let written = spent.flash_written_bytes - spent.flash_metadata_bytes;
    assert!((hour..=hour + OVERDRAFT).contains(&written), "{written} of {hour}");
    // Hits are served as ever, and cached blocks may be written.
    let filled = spent.fills;
    read(&mut port, 0..filled / 2);
    let after = cache.figures();
    assert_eq!((after.read_hits - spent.read_hits, after.fills), (filled / 2, filled));
    // Over a whole day no more than once its size is written beyond the hour at the beginning,
    // for any load: an overdraft is there once, not once an hour.
    for round in 1..=24 {
        clock.sleep(Duration::from_secs(3_600));
        read(&mut port, round * 2_000..round * 2_000 + 2_000);
    }
    let day = cache.figures();
    let written = day.flash_written_bytes - day.flash_metadata_bytes;
    assert!(written <= capacity + hour + OVERDRAFT, "{written} of {capacity}");
    assert!(written > capacity / 2, "{written} of {capacity}");
    assert!(day.turnovers_per_day < 1.2, "{}", day.turnovers_per_day);
    assert!(cache.remarks().is_empty(), "{:?}", cache.remarks());
}

#[test]
fn a_cache_that_turns_over_too_fast_says_so() {
    let clock = Clock::virtual_time();
    let cache = cache(OpenOptions { clock: clock.clone(), ..rig::open_options() });
    let mut port = Port::open(&cache, 4).unwrap();
    // Twelve times its size in a day is eight hundredths of it in ten minutes.
    read(&mut port, 0..20_000);
    assert!(cache.remarks().is_empty(), "too early to tell");
    clock.sleep(Duration::from_secs(601));
    let remarks = cache.remarks();
    assert!(remarks.len() == 1 && remarks[0].contains("turns over"), "{remarks:?}");
    clock.sleep(Duration::from_secs(10 * 86_400));
    assert!(cache.remarks().is_empty(), "{:?}", cache.remarks());
}

#[test]
fn admission_again_keeps_blocks_that_are_read_once_off_the_flash() {
    let written = |policy, admission| {
        let cache = cache(OpenOptions { admission, policy, ..rig::open_options() });
        let mut port = Port::open(&cache, 4).unwrap();
        let slots = cache.figures().slots;
        read(&mut port, 0..slots); // fills the free slots
        let full = cache.figures().fills;
        read(&mut port, 20_000..40_000);
        // A block that comes again is let in, and found the third time.
        read(&mut port, 50_000..50_200);
        read(&mut port, 50_000..50_200);
        let before = cache.figures().read_hits;
        read(&mut port, 50_000..50_200);
        let hits = cache.figures().read_hits - before;
        assert!(hits > 150, "{policy}, {admission}: {hits} hits");
        cache.figures().fills - full
    };
    for policy in [Kind::Lru, Kind::default()] {
        let (all, again) = (written(policy, Admission::All), written(policy, Admission::Again));
        assert!(all > 20_000 && again < all / 10, "{policy}: {again} of {all}");
    }
}

#[test]
fn the_budget_goes_on_when_the_size_changes() {
    let clock = Clock::virtual_time();
    let made =
        CreateOptions { flash_bytes: Some(16 << 20), ..rig::large_options(Mode::WriteThrough) };
    let (origin, flash) = rig::large_devices(BLOCKS * 4096, 64 << 20, &made);
    let options =
        OpenOptions { writes_per_day: Some(1.0), clock: clock.clone(), ..rig::open_options() };
    let cache = Cache::open(origin, flash, options).unwrap();
    let mut port = Port::open(&cache, 4).unwrap();
    clock.sleep(Duration::from_secs(12 * 3_600));
    read(&mut port, 0..8_000);
    let before = cache.figures();
    assert!(before.is_over_budget);
    cache.resize(32 << 20).unwrap();
    read(&mut port, 8_000..16_000);
    let after = cache.figures();
    assert_eq!(after.fills, before.fills, "nothing was earned");
    assert!(after.is_over_budget && after.slots > before.slots);
    assert!(after.turnovers_per_day < before.turnovers_per_day * 2.0, "the time goes on");
    // A larger cache earns more.
    clock.sleep(Duration::from_secs(3_600));
    read(&mut port, 20_000..28_000);
    let bytes = (cache.figures().fills - after.fills) * 4096;
    let hour = after.capacity_bytes / 24;
    assert!(bytes + OVERDRAFT > hour && bytes < hour + OVERDRAFT, "{bytes} of {hour}");
}
