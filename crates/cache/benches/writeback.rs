//! Slowdown of the host's hits while the cache writes back.
//!
//! `cargo bench -p esker-cache --bench writeback`
//!
//! A cache is filled, half of it dirty. One thread reads blocks of the clean half, 32 at a time:
//! once when nothing is due to be written back, once while everything dirty is; in turn, several
//! times. The ratio of each pair counts.

#![allow(missing_docs)] // a program, not a library

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_cache::{Cache, CreateOptions, Mode, OpenOptions};
use esker_device::{Command, Device, MemoryDevice, Op, Port, Tag};

const BLOCKS: u64 = 128 << 10;
const ROUNDS: usize = 9;

/// Hits in a second, until `is_over` or for this long at most.
fn hits(cache: &Cache, limit: Duration, is_over: impl Fn() -> bool) -> f64 {
    let clock = Clock::real();
    let mut queue = cache.queue_pair(32).unwrap();
    let mut rng = Rng::new(5);
    let mut buffers: Vec<AlignedBuf> = (0..32).map(|_| AlignedBuf::zeroed(4096)).collect();
    let (mut batch, mut done, mut count) = (VecDeque::new(), Vec::new(), 0u32);
    let start = clock.now();
    loop {
        for buf in buffers.drain(..) {
            let lba = Lba(BLOCKS / 2 + rng.below(BLOCKS / 2));
            batch.push_back(Command { tag: Tag(0), op: Op::Read { lba, buf } });
        }
        queue.submit(&mut batch).unwrap();
        queue.wait(&mut done, None).unwrap();
        count += u32::try_from(done.len()).unwrap();
        buffers.extend(done.drain(..).map(|completion| completion.buf.unwrap()));
        let passed = clock.now() - start;
        if count.is_multiple_of(4096) && (passed > limit || is_over()) {
            return f64::from(count) / passed.as_secs_f64();
        }
    }
}

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        return; // run as a test: nothing to measure
    }
    let origin: Arc<dyn Device> = Arc::new(MemoryDevice::new("origin", BLOCKS * 4096, 4096));
    let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", 768 << 20, 4096));
    let made = CreateOptions { id: 7, mode: Mode::WriteBack, ..CreateOptions::default() };
    Cache::create(&*origin, &flash, &made).unwrap();
    let open = |dirty_percent| {
        let options = OpenOptions { dirty_percent, sequential_bytes: 0, ..OpenOptions::default() };
        Cache::open(origin.clone(), flash.clone(), options).unwrap()
    };
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let quiet = open(100);
        let mut port = Port::open(&quiet, 1).unwrap();
        for block in (BLOCKS / 2..BLOCKS).filter(|_| round == 0) {
            port.run(Op::Read { lba: Lba(block), buf: AlignedBuf::zeroed(4096) }).unwrap();
        }
        for block in 0..BLOCKS / 2 {
            let buf = AlignedBuf::zeroed(4096);
            let lba = Lba(block);
            port.run(Op::Write { lba, buf, placement: None, fua: false }).unwrap();
        }
        drop(port);
        let warm = Duration::from_millis(100);
        hits(&quiet, warm, || false);
        let alone = hits(&quiet, Duration::from_millis(500), || false);
        drop(quiet);
        let busy = open(1);
        hits(&busy, warm, || false);
        let before = busy.figures().cleaned;
        let clock = Clock::real();
        let begin = clock.now();
        let beside =
            hits(&busy, Duration::from_millis(500), || busy.figures().dirty_blocks < 2_000);
        let cleaned = (busy.figures().cleaned - before) as f64 * 4096.0;
        let rate = cleaned / (clock.now() - begin).as_secs_f64() / f64::from(1 << 20);
        busy.clean_all().unwrap();
        if round > 0 {
            println!(
                "{:.2} M hits/s alone, {:.2} M beside {rate:.0} MiB/s written back: {:.3}",
                alone / 1e6,
                beside / 1e6,
                beside / alone
            );
            ratios.push(beside / alone);
        }
    }
    ratios.sort_by(f64::total_cmp);
    println!("the median of {ROUNDS} ratios is {:.3}", ratios[ROUNDS / 2]);
}
