//! The cost of a rebuild of lost chunks: the drives' bandwidth that it uses when nobody else does, its effect on the
//! latency of reads beside it, and processor time.
//!
//! `cargo test --release -p esker-tests --test rebuild -- --ignored --nocapture`

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Create, Device, DeviceStats, MemoryDevice, Op, Port};
use esker_stack::{Spec, Stack};
use esker_volume::{CreateOptions, Maintenance, OpenOptions, Pool, VolumeOptions};

const DRIVES: usize = 8;
const DRIVE_BYTES: u64 = 256 << 20;
const VOLUME_BYTES: u64 = 512 << 20;
/// How much slower the modelled drives are than real ones: the processor must not be the bottleneck.
const DILATION: u32 = 200;

/// One clock for all: each counts from its own beginning.
fn clock() -> &'static Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(Clock::real)
}

fn create(devices: &[Arc<dyn Device>]) {
    let options = CreateOptions {
        chunk_bytes: 2 << 20,
        log_bytes: 16 << 20,
        overwrite: true,
        ..CreateOptions::default()
    };
    Pool::create(devices, &[], &options).unwrap();
    let pool = Pool::open(devices, OpenOptions::default()).unwrap();
    let options = VolumeOptions { compression: false, ..VolumeOptions::default() };
    pool.create_volume("a", VOLUME_BYTES, options).unwrap();
    let mut port = Port::open(&*pool.volume("a").unwrap(), 4).unwrap();
    let mut rng = Rng::new(1);
    for lba in (0..VOLUME_BYTES / 4096).step_by(64) {
        let mut buf = AlignedBuf::zeroed(256 << 10);
        rng.fill(&mut buf[..4096]);
        let start = lba.to_le_bytes();
        buf.chunks_mut(4096).for_each(|block| block[..8].copy_from_slice(&start));
        port.write(Lba(lba), buf, None).unwrap();
    }
    drop(port);
    pool.close().unwrap();
}

fn moved(devices: &[Arc<dyn Device>]) -> (u64, u64) {
    let stats: Vec<DeviceStats> = devices.iter().map(|device| device.stats()).collect();
    let read = stats.iter().map(|stats| stats.read_bytes).sum();
    (read, stats.iter().map(|stats| stats.written_bytes).sum())
}

/// Opens the pool without its first drive; it is given up after `grace`.
fn without_one(devices: &[Arc<dyn Device>], grace: Duration, maintenance: Maintenance) -> Pool {
    let options = OpenOptions {
        degraded: true,
        missing_grace: grace,
        maintenance,
        patience: Duration::from_secs(60),
        ..OpenOptions::default()
    };
    Pool::open(&devices[1..], options).unwrap()
}

fn is_whole(pool: &Pool) -> bool {
    let status = pool.status();
    status.rebuild.is_none() && status.segments[1..] == [0, 0, 0]
}

/// Latencies of random reads of 4 KiB, one at a time with pauses, until `is_over`; the 50th and the 99th percentile.
fn latencies(pool: &Pool, is_over: &AtomicBool) -> (usize, Duration, Duration) {
    let mut port = Port::open(&*pool.volume("a").unwrap(), 1).unwrap();
    let mut rng = Rng::new(2);
    let mut spans = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let lba = Lba(rng.below(VOLUME_BYTES / 4096));
        let start = clock().now();
        port.read(lba, AlignedBuf::zeroed(4096)).unwrap();
        spans.push(clock().now().since(start));
        clock().sleep(Duration::from_millis(rng.below(10)));
    }
    spans.sort_unstable();
    let at = |part: usize| spans[(spans.len() * part / 100).min(spans.len() - 1)];
    (spans.len(), at(50), at(99))
}

fn latencies_for(pool: &Pool, time: Duration) -> (usize, Duration, Duration) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            clock().sleep(time);
            is_over.store(true, Ordering::Relaxed);
        });
        latencies(pool, &is_over)
    })
}

/// CPU time of this process, in steps of 10 ms.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Modelled drives with a pool, and the bytes a second that one of them reads in order.
#[allow(clippy::cast_precision_loss)]
fn dilated() -> (Vec<Arc<dyn Device>>, f64) {
    let stack = Stack::new();
    let one = |_| {
        let text = format!("ssd:micron-7450?capacity={DRIVE_BYTES}&time={DILATION}x");
        stack.open(&text.parse::<Spec>().unwrap(), Create::New).unwrap().device
    };
    let devices: Vec<Arc<dyn Device>> = (0..DRIVES).map(one).collect();
    create(&devices);
    let mut port = Port::open(&*devices[1], 8).unwrap();
    let lba_size = u64::from(devices[1].geometry().lba_size);
    let ops =
        |n: u64| Op::Read { lba: Lba((n << 20) / lba_size), buf: AlignedBuf::zeroed(1 << 20) };
    let start = clock().now();
    port.run_all((0..32).map(ops).collect::<Vec<_>>(), |_, result| drop(result.unwrap())).unwrap();
    let rate = (32 << 20) as f64 / clock().now().since(start).as_secs_f64();
    println!("one drive reads {:.1} MB/s in order", rate / 1e6);
    (devices, rate)
}

/// Waits until a pool is whole, and prints the share of the survivors' bandwidth that this used.
#[allow(clippy::cast_precision_loss)]
fn finish(pool: &Pool, devices: &[Arc<dyn Device>], rate: f64) {
    let (start, before) = (clock().now(), moved(&devices[1..]));
    let rebuilt = pool.status().written.rebuilt;
    while !is_whole(pool) {
        clock().sleep(Duration::from_millis(20));
    }
    let (time, after) = (clock().now().since(start).as_secs_f64(), moved(&devices[1..]));
    let bytes = (after.0 + after.1 - before.0 - before.1) as f64;
    println!(
        "alone: {} MiB of chunks in {time:.2} s, {} MiB read and {} MiB written: {:.2} of the survivors' bandwidth",
        (pool.status().written.rebuilt - rebuilt) >> 20,
        (after.0 - before.0) >> 20,
        (after.1 - before.1) >> 20,
        bytes / time / rate / (DRIVES - 1) as f64
    );
}

#[test]
#[ignore = "prints figures"]
fn rebuild_alone_takes_so_much_of_the_drives() {
    let (devices, rate) = dilated();
    let pool = without_one(&devices, Duration::ZERO, Maintenance::Thread);
    finish(&pool, &devices, rate);
}

#[test]
#[ignore = "minutes; prints figures"]
#[allow(clippy::cast_precision_loss)]
fn rebuild_beside_reads_takes_so_much_of_the_drives() {
    let (devices, one) = dilated();
    let pool = Pool::open(&devices, OpenOptions::default()).unwrap();
    // The drives keep the writes in their buffers for a while.
    clock().sleep(Duration::from_secs(150));
    let healthy = latencies_for(&pool, Duration::from_secs(20));
    pool.close().unwrap();
    let pool = without_one(&devices, Duration::from_secs(1 << 30), Maintenance::Thread);
    let degraded = latencies_for(&pool, Duration::from_secs(20));
    pool.close().unwrap();
    println!("reads: count, p50, p99: healthy {healthy:?}, degraded {degraded:?}");

    // Beside reads, for a while; then alone until it is done.
    let pool = without_one(&devices, Duration::ZERO, Maintenance::Thread);
    let before = moved(&devices[1..]);
    let beside = latencies_for(&pool, Duration::from_secs(30));
    let share = pool.status().rebuild;
    let after = moved(&devices[1..]);
    let bytes = (after.0 + after.1 - before.0 - before.1) as f64;
    println!("reads beside the rebuild: {beside:?}; {share:?}");
    println!(
        "p99 {:.2} of healthy, {:.2} of degraded; drives {:.2} in use",
        beside.2.as_secs_f64() / healthy.2.as_secs_f64(),
        beside.2.as_secs_f64() / degraded.2.as_secs_f64(),
        bytes / 30.0 / one / (DRIVES - 1) as f64
    );
    clock().sleep(Duration::from_millis(500));
    finish(&pool, &devices, one);
}

#[test]
#[ignore = "prints figures"]
#[allow(clippy::cast_precision_loss)]
fn rebuild_takes_so_much_of_the_processor() {
    let memory = |n| MemoryDevice::new(&format!("d{n}"), DRIVE_BYTES, 4096);
    let devices: Vec<Arc<dyn Device>> =
        (0..DRIVES).map(|n| Arc::new(memory(n)) as Arc<dyn Device>).collect();
    create(&devices);
    let pool = without_one(&devices, Duration::ZERO, Maintenance::Manual);
    let (before, start) = (moved(&devices[1..]), cpu());
    while pool.step().unwrap() {}
    let (after, time) = (moved(&devices[1..]), cpu() - start);
    assert!(is_whole(&pool));
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let (read, written) = (gib(after.0 - before.0), gib(after.1 - before.1));
    println!(
        "{time:?} of CPU for {read:.2} GiB read and {written:.2} GiB written: {:.3} s for each GiB of both, {:.3} s for \
         each GiB rebuilt",
        time.as_secs_f64() / (read + written),
        time.as_secs_f64() / gib(pool.status().written.rebuilt)
    );
}
