//! Replays on devices in memory: the same hits as simulated, and refusals before anything is written.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker_base::{Clock, Rng};
use esker_device::MemoryDevice;

use super::*;
use crate::flash_cache::{FlashCache, FlashCacheFigures, FlashCacheOptions};
use crate::steps::Progress;
use crate::text::one_line;
use crate::{Report, study};

fn small() -> FlashCacheOptions {
    FlashCacheOptions {
        transactions: 2_000,
        data_bytes: 64 << 20,
        sizes_percent: vec![20],
        ..FlashCacheOptions::default()
    }
}

fn memory(name: &str, bytes: u64) -> RealDevice {
    RealDevice { name: name.to_owned(), device: Arc::new(MemoryDevice::new(name, bytes, 4096)) }
}

fn real(options: RealOptions, disk_bytes: u64, flash_bytes: u64) -> Real {
    let (disk, flash) = (memory("slow", disk_bytes), memory("fast", flash_bytes));
    let remarks = vec!["assumed: nothing".to_owned()];
    Real { options, disk, flash, clock: Clock::real(), remarks }
}

fn run_beside(
    options: &FlashCacheOptions,
    real: Real,
    mut follow: impl FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<Report<FlashCache>, LabError> {
    study::run(options, &mut Some(real), &mut follow)
}

fn run(real: Real) -> Result<Report<FlashCache>, LabError> {
    run_beside(&small(), real, |_| ControlFlow::Continue(()))
}

/// A trace of skewed reads of 16 MiB, with a write among 64.
fn mostly_reads() -> FlashCacheOptions {
    let mut rng = Rng::new(7);
    let line = |n: u64| {
        let block = rng.below(4_096).min(rng.below(4_096)).min(rng.below(4_096));
        let op = if n.is_multiple_of(64) { "Write" } else { "Read" };
        format!("{},host,0,{op},{},4096,100\n", 128_166_372_000_000_000 + n * 1000, block * 4096)
    };
    let name = format!("esker-lab-real-{}.csv", std::process::id());
    let trace = std::env::temp_dir().join(name);
    std::fs::write(&trace, (0..8_000).map(line).collect::<String>()).unwrap();
    FlashCacheOptions { traces: vec![trace], transactions: 0, ..small() }
}

#[test]
fn measured_hits_are_the_simulated_ones() {
    let study = mostly_reads();
    // Side by side, blocks that are still being filled in are missed, so many as the machine makes it.
    for (depth, points) in [(1, 2.0), (8, 12.0)] {
        // So large that it hits far less while it is still filling.
        let options = RealOptions { percent: 50, requests: 8_000, depth };
        let real = real(options, 1 << 30, 256 << 20);
        let report = run_beside(&study, real, |_| ControlFlow::Continue(())).unwrap();
        let one = &report.figures.real.as_ref().unwrap().workloads[0];
        assert!(one.difference().abs() < points, "depth {depth}: {one:?}");
        assert!((0.2..0.9).contains(&one.hit_ratio), "{one:?}");
        assert_eq!((one.warming_requests, one.measured_requests), (4_000, 4_000));
        assert_eq!(one.blocks, 4_000);
        let share = one.cache_bytes * 100 / one.touched_bytes;
        assert!((49..=51).contains(&share), "{one:?}");
    }
    std::fs::remove_file(&study.traces[0]).unwrap();
}

#[test]
fn the_disk_is_asked_for_each_request_alone_and_for_misses_behind_the_cache() {
    let options = RealOptions { requests: 8_000, ..RealOptions::default() };
    let report = run(real(options, 1 << 30, 256 << 20)).unwrap();
    let one = &report.figures.real.as_ref().unwrap().workloads[0];
    let (alone, cached) = (&one.alone.disk, &one.cached.disk);
    assert_eq!(alone.reads + alone.writes + alone.flushes, one.measured_requests);
    assert!(cached.reads < alone.reads && cached.read_bytes < alone.read_bytes, "{one:?}");
    assert!(one.cached.flash.unwrap().written_bytes > 0 && one.alone.flash.is_none());
    assert!(one.left_dirty_bytes > 0 && one.requests_beyond == 0, "{one:?}");
}

#[test]
fn text_json_and_page_have_both_arms_and_the_devices() {
    let options = RealOptions { requests: 1_000, ..RealOptions::default() };
    // A disk that is smaller than the table, so that addresses wrap around.
    let report = run(real(options, 16 << 20, 64 << 20)).unwrap();
    let back: FlashCacheFigures = serde_json::from_value(report.json()).unwrap();
    assert_eq!(back.real.unwrap().workloads[0].measured_requests, 500);
    for text in [one_line(&report.page().text()), report.page().html()] {
        for part in [
            "disk alone",
            "with the cache",
            "simulated",
            "slow",
            "fast",
            "assumed: nothing",
            "wrap around",
            "the first half warms",
            "p99.9",
            "left to write back",
        ] {
            assert!(text.contains(part), "no '{part}' in {text}");
        }
    }
    let page = report.page().html();
    assert!(
        page.contains("times as many requests a second") && page.contains("in 100 takes longer")
    );
}

#[test]
fn a_flash_device_that_is_too_small_is_refused_before_anything_is_written() {
    let options = RealOptions { requests: 8_000, percent: 50, ..RealOptions::default() };
    let mut small = Some(real(options, 1 << 30, 4 << 20));
    let ran =
        study::run::<FlashCache>(&self::small(), &mut small, &mut |_| ControlFlow::Continue(()));
    let why = ran.err().unwrap().to_string();
    let less: u32 = why.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(why.contains("4.00 MiB") && why.contains("--real-size") && less < 50, "{why}");
    let real = small.unwrap();
    assert_eq!((real.disk.device.stats().writes, real.flash.device.stats().writes), (0, 0));
    // The size that the message names would do.
    let options = RealOptions { percent: less, ..real.options.clone() };
    assert!(run(Real { options, ..real }).is_ok());
}

#[test]
fn senseless_replays_are_refused_with_their_remedy() {
    let usual = RealOptions::default();
    for (options, part) in [
        (RealOptions { percent: 0, ..usual.clone() }, "--real-size 1 to 100"),
        (RealOptions { requests: 10, ..usual.clone() }, "--real-requests"),
        (RealOptions { depth: 0, ..usual.clone() }, "--real-depth 1 to"),
    ] {
        let why = run(real(options, 1 << 30, 256 << 20)).err().unwrap().to_string();
        assert!(why.contains(part), "{why}");
    }
    let mut timeless = real(usual.clone(), 1 << 30, 256 << 20);
    timeless.clock = Clock::virtual_time();
    assert!(run(timeless).err().unwrap().to_string().contains("time=none, real or 10x"));
    let few = FlashCacheOptions { transactions: 10, ..small() };
    let real = real(usual, 1 << 30, 256 << 20);
    let why = run_beside(&few, real, |_| ControlFlow::Continue(())).err().unwrap().to_string();
    assert!(why.contains("needs 200 requests"), "{why}");
}

#[test]
fn each_arm_is_a_step_that_may_end_the_study() {
    let options = RealOptions { requests: 400, ..RealOptions::default() };
    let mut steps = Vec::new();
    let ended =
        run_beside(&small(), real(options, 1 << 30, 256 << 20), |progress: &Progress<'_>| {
            steps.push((progress.run.to_owned(), progress.done, progress.count));
            match progress.done {
                2 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
    // The simulation is through, and the replay is not.
    let report = ended.unwrap();
    assert_eq!(
        (report.figures.workloads.len(), report.figures.real.as_ref().unwrap().workloads.len()),
        (1, 0)
    );
    assert!(
        report.page().text().contains(&report.figures.workloads[0].name)
            && !report.page().html().is_empty()
    );
    assert_eq!(steps.len(), 3);
    assert!(steps[1].0.contains("slow alone") && steps[2].0.contains("cache on fast"), "{steps:?}");
    assert_eq!(steps[2].2, 3);
}
