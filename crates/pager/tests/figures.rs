//! The cost of faults, scans and page-outs, beside the plain system calls on the same file.
//!
//! `cargo test --release -p esker-pager --test figures -- --ignored --nocapture`

#![allow(unsafe_code, clippy::cast_precision_loss)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Create, Device, FileDevice, FileOptions, MemoryDevice, Op, Port};
use esker_pager::{Arena, Mode, Options, PAGE};
use support::{Slow, below};

const SIZE: usize = 512 << 20;
const BUDGET: usize = 128 << 20;
const FAULTS: usize = 20_000;

fn us(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1000.0
}

fn median(mut spans: Vec<Duration>) -> (f64, f64) {
    spans.sort_unstable();
    (us(spans[spans.len() / 2]), us(spans[spans.len() / 10]))
}

fn file(name: &str) -> FileDevice {
    let path = format!("/var/tmp/esker-figures-{}-{name}", std::process::id());
    let capacity_bytes = Some(SIZE as u64);
    let create = Create::New;
    let options = FileOptions { create, capacity_bytes, fixed: true, ..FileOptions::default() };
    let device = FileDevice::open(&path, &options).unwrap();
    std::fs::remove_file(path).unwrap();
    device
}

/// Processor time that the arena's thread has used, in nanoseconds.
fn pager_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_pager = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "pager")
    };
    let used = |task: std::path::PathBuf| {
        let stat = std::fs::read_to_string(task.join("schedstat")).unwrap();
        stat.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    tasks.filter(is_pager).map(used).sum()
}

/// Fills memory, and gives the time of random faults, of a scan in MiB/s, and of leaving pages.
fn measure(what: &str, device: Arc<dyn Device>, mode: Mode) {
    let options =
        Options { budget_bytes: BUDGET, slow_bytes: SIZE, read_ahead: true, compress: false };
    let Ok(arena) = Arena::new(device, options, 0, mode) else {
        println!("SKIPPED: userfaultfd is refused");
        return;
    };
    let clock = Clock::real();
    let memory = Slow::new(&arena, SIZE);
    let mut rng = Rng::new(1);
    let began = clock.now();
    for page in 0..SIZE / PAGE {
        memory.slice(page * PAGE, 8).copy_from_slice(&(page as u64 + 1).to_le_bytes());
    }
    let fill = clock.now().since(began);
    let left_us = pager_ns() as f64 / 1000.0 / arena.stats().evicted_pages as f64;
    let read = |page: usize| {
        let bytes = memory.slice(page * PAGE, 8);
        assert_eq!(u64::from_le_bytes(bytes.try_into().unwrap()), page as u64 + 1);
    };
    let mut spans = Vec::with_capacity(FAULTS);
    let before = arena.stats();
    let all = clock.now();
    for _ in 0..FAULTS {
        let page = below(&mut rng, SIZE / PAGE);
        let faults = arena.stats().read_faults;
        let began = clock.now();
        read(page);
        let span = clock.now().since(began);
        if arena.stats().read_faults > faults {
            spans.push(span);
        }
    }
    let rate = FAULTS as f64 / clock.now().since(all).as_secs_f64();
    let wasted = arena.stats().ahead_pages - before.ahead_pages;
    let (p50, p10) = median(spans);
    let mut scans = Vec::new();
    for _ in 0..3 {
        let began = clock.now();
        (0..SIZE / PAGE).for_each(read);
        scans.push((SIZE >> 20) as f64 / clock.now().since(began).as_secs_f64());
    }
    let best = scans.iter().copied().fold(0.0, f64::max);
    println!(
        "| {what} | {p50:.1} | {p10:.1} | {rate:.0} | {best:.0} | {:.0} |",
        (SIZE >> 20) as f64 / fill.as_secs_f64()
    );
    println!("{what}: {left_us:.2} us of the arena's thread for each page that left in the fill");
    assert!(wasted < FAULTS as u64 / 100, "{wasted} pages were read ahead of random touches");
}

#[test]
#[ignore = "figures"]
fn figures() {
    let clock = Clock::real();
    for mode in [Mode::Handler, Mode::Signal] {
        let device = Arc::new(MemoryDevice::new("memory", SIZE as u64, 4096));
        measure(&format!("memory, `{mode:?}`"), device, mode);
    }
    let device = file("device");
    let mut port = Port::open(&device, 8).unwrap();
    let mut rng = Rng::new(2);
    for chunk in 0..SIZE >> 20 {
        let mut buf = AlignedBuf::zeroed(1 << 20);
        rng.fill(&mut buf);
        port.write(Lba((chunk as u64) << 8), buf, None).unwrap();
    }
    let mut spans = Vec::new();
    for _ in 0..FAULTS {
        let lba = Lba(rng.below((SIZE / PAGE) as u64));
        let buf = AlignedBuf::zeroed(PAGE);
        let began = clock.now();
        port.read(lba, buf).unwrap();
        spans.push(clock.now().since(began));
    }
    let (p50, p10) = median(spans);
    let began = clock.now();
    let reads = (0..SIZE >> 18)
        .map(|n| Op::Read { lba: Lba((n as u64) << 6), buf: AlignedBuf::zeroed(1 << 18) });
    port.run_all(reads, |_, outcome| drop(outcome.unwrap())).unwrap();
    let scan = (SIZE >> 20) as f64 / clock.now().since(began).as_secs_f64();
    println!("| plain reads of the file, 256 KiB x 8 | {p50:.1} | {p10:.1} | | {scan:.0} | |");
    drop(port);
    drop(device);
    for mode in [Mode::Handler, Mode::Signal] {
        measure(&format!("file, `{mode:?}`"), Arc::new(file("paged")), mode);
    }
}
