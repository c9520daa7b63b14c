//! Cost of a hit in process: beside the flash device alone, and with several threads.
//!
//! `cargo bench -p esker-cache --bench hit`

#![allow(missing_docs)] // a program, not a library

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_base::policy::Kind;
use esker_base::thread::spawn_scoped;
use esker_base::{AlignedBuf, Clock, Lba, LbaCount, Rng};
use esker_cache::{Background, Cache, CreateOptions, OpenOptions};
use esker_device::{Command, Device, MemoryDevice, NullDevice, Op, Port, QueuePair, Tag};
use esker_sim::{Fate, HookDevice};

const BLOCKS: u64 = 16 << 10;

/// A flash device whose data costs a copy and no write to shared memory: the rest is the cache's own cost.
fn quick(memory: Arc<dyn Device>, data: Lba) -> Arc<dyn Device> {
    let page = vec![7; 4096];
    Arc::new(HookDevice::new(memory).on_command(move |op| match op {
        Op::Read { lba, buf } if *lba >= data => {
            for part in buf.chunks_mut(4096) {
                part.copy_from_slice(&page[..part.len()]);
            }
            Fate::Done
        }
        _ => Fate::Pass,
    }))
}

fn cache(flash: Arc<dyn Device>, policy: Kind) -> Cache {
    let origin: Arc<dyn Device> = Arc::new(NullDevice::new(LbaCount(1 << 18), 4096));
    Cache::create(&*origin, &flash, &CreateOptions { id: 7, ..CreateOptions::default() }).unwrap();
    let options = OpenOptions {
        policy,
        background: Background::Manual,
        sequential_bytes: 0,
        ..OpenOptions::default()
    };
    let cache = Cache::open(origin, flash, options).unwrap();
    let mut port = Port::open(&cache, 1).unwrap();
    for _ in 0..2 {
        for block in 0..BLOCKS {
            port.run(Op::Read { lba: Lba(block), buf: AlignedBuf::zeroed(4096) }).unwrap();
        }
    }
    drop(port);
    cache
}

/// Nanoseconds at the median of single reads, one in flight.
fn median(device: &dyn Device) -> u64 {
    let clock = Clock::real();
    let mut queue = device.queue_pair(1).unwrap();
    let mut rng = Rng::new(1);
    let mut buf = Some(AlignedBuf::zeroed(4096));
    let (mut batch, mut done) = (VecDeque::new(), Vec::new());
    let mut times: Vec<u64> = (0..200_000)
        .map(|_| {
            let op = Op::Read { lba: Lba(rng.below(BLOCKS)), buf: buf.take().unwrap() };
            batch.push_back(Command { tag: Tag(0), op });
            let start = clock.now();
            queue.submit(&mut batch).unwrap();
            while queue.wait(&mut done, None).unwrap() == 0 {}
            let passed = clock.now() - start;
            buf = done.pop().unwrap().buf;
            u64::try_from(passed.as_nanos()).unwrap()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn hits(queue: &mut dyn QueuePair, seed: u64, stop: &AtomicBool) -> u64 {
    let mut rng = Rng::new(seed);
    let mut buffers: Vec<AlignedBuf> = (0..32).map(|_| AlignedBuf::zeroed(4096)).collect();
    let (mut batch, mut done, mut count) = (VecDeque::new(), Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        for buf in buffers.drain(..) {
            let op = Op::Read { lba: Lba(rng.below(BLOCKS)), buf };
            batch.push_back(Command { tag: Tag(0), op });
        }
        queue.submit(&mut batch).unwrap();
        queue.wait(&mut done, None).unwrap();
        count += done.len() as u64;
        buffers.extend(done.drain(..).map(|completion| completion.buf.unwrap()));
    }
    count
}

/// Reads in a second, by this many threads, 32 in flight each.
fn throughput(device: &dyn Device, threads: u64) -> u64 {
    let (stop, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let clock = Clock::real();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, total) = (&stop, &total);
            spawn_scoped(scope, "reader", move || {
                let mut queue = device.queue_pair(32).unwrap();
                total.fetch_add(hits(&mut *queue, thread, stop), Ordering::Relaxed);
            })
            .unwrap();
        }
        clock.sleep(std::time::Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
    });
    total.load(Ordering::Relaxed)
}

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        return; // run as a test: nothing to measure
    }
    let memory = Arc::new(MemoryDevice::new("flash", 256 << 20, 4096));
    // The metadata of a cache of this size takes less than 8 MiB.
    let flash = quick(memory, Lba(2048));
    let alone = median(&*flash);
    for policy in [Kind::Lru, Kind::default()] {
        let cache = cache(flash.clone(), policy);
        let with = median(&cache);
        println!("{policy}: a hit takes {with} ns, the flash device alone {alone} ns");
        for threads in [1, 2, 4] {
            let best = (0..5).map(|_| throughput(&cache, threads)).max().unwrap();
            println!("{policy}: {threads} threads, {:.2} M hits/s", best as f64 / 1e6);
        }
        cache.detach().unwrap();
    }
    for threads in [1, 2] {
        let best = (0..3).map(|_| throughput(&*flash, threads)).max().unwrap();
        println!("the flash device alone: {threads} threads, {:.2} M/s", best as f64 / 1e6);
    }
}
