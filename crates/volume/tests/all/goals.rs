//! Processor time of reads and writes, beside the same on a bare drive in memory, and how long an
//! acknowledgement takes: figures for `docs/volume.md`.
//!
//! `cargo test --release -p esker-volume --test all goals:: -- --ignored --nocapture --test-threads=1`

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Command, Device, MemoryDevice, Op, QueuePair, Tag};
use esker_volume::{CreateOptions, Maintenance, OpenOptions, Pool, VolumeOptions};

const BLOCKS: u64 = 60_000;
const DEPTH: u64 = 128;
const RAW: VolumeOptions = VolumeOptions { compression: false, iops_limit: 0, bytes_limit: 0 };

/// Time that this thread has had a processor, in nanoseconds.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

/// Eight drives, two of which may be lost.
fn pool(compression: bool) -> (Pool, Vec<Arc<dyn Device>>) {
    let shape =
        Shape { drives: 8, parity: 2, drive_bytes: 192 << 20, map_bytes: 64 << 20, ..SMALL };
    let options = CreateOptions {
        width: Some(8),
        chunk_bytes: 1 << 20,
        unit_bytes: 64 << 10,
        log_bytes: 64 << 20,
        root_bytes: Some(1 << 20),
        ..rig::create_options(&shape)
    };
    let (drives, _) = rig::devices(&shape);
    // The memory of the drives is there before it is measured how long they are written: so is that of the bare one.
    for drive in &drives {
        let mut port = esker_device::Port::open(&**drive, 1).unwrap();
        for lba in (0..drive.geometry().capacity.0).step_by(256) {
            port.write(Lba(lba), AlignedBuf::zeroed(256 * BLOCK), None).unwrap();
        }
    }
    Pool::create(&drives, &[], &options).unwrap();
    let open = OpenOptions {
        maintenance: Maintenance::Manual,
        clock: Clock::real(),
        ..rig::open_options(&shape)
    };
    let pool = Pool::open(&drives, open).unwrap();
    let options = VolumeOptions { compression, ..RAW };
    pool.create_volume("a", BLOCKS * BLOCK as u64, options).unwrap();
    (pool, drives)
}

/// Content of which so many bytes of each block are random.
fn content(random: usize) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    Rng::new(3).fill(&mut block[..random]);
    block
}

/// A load that keeps `DEPTH` commands in flight with buffers of its own.
struct Load {
    queue: Box<dyn QueuePair>,
    bufs: Vec<AlignedBuf>,
    batch: VecDeque<Command>,
}

impl Load {
    fn new(device: &dyn Device) -> Load {
        let bufs = (0..DEPTH).map(|_| AlignedBuf::zeroed(BLOCK)).collect();
        let queue = device.queue_pair(usize::try_from(DEPTH).unwrap()).unwrap();
        Load { queue, bufs, batch: VecDeque::new() }
    }

    /// Runs so many commands in batches; what each takes of the processor, in nanoseconds.
    fn run(
        &mut self,
        count: u64,
        op: &mut dyn FnMut(u64, AlignedBuf) -> Op,
        then: &dyn Fn(),
    ) -> u64 {
        let begin = cpu_ns();
        let mut done = Vec::new();
        let mut number = 0;
        while number < count || self.queue.in_flight() > 0 {
            while number < count
                && let Some(buf) = self.bufs.pop()
            {
                self.batch.push_back(Command { tag: Tag(number), op: op(number, buf) });
                number += 1;
            }
            self.queue.submit(&mut self.batch).unwrap();
            self.queue.wait(&mut done, Some(Duration::from_millis(1))).unwrap();
            for completion in done.drain(..) {
                completion.result.unwrap();
                self.bufs.extend(completion.buf);
            }
            then();
        }
        (cpu_ns() - begin) / count
    }
}

fn write(content: &[u8]) -> impl FnMut(u64, AlignedBuf) -> Op {
    move |number, mut buf| {
        buf.copy_from_slice(content);
        buf[..8].copy_from_slice(&number.to_le_bytes());
        Op::Write { lba: Lba(number % BLOCKS), buf, placement: None, fua: false }
    }
}

fn read(seed: u64) -> impl FnMut(u64, AlignedBuf) -> Op {
    let mut rng = Rng::new(seed);
    move |_, buf| Op::Read { lba: Lba(rng.below(BLOCKS)), buf }
}

#[test]
#[ignore = "prints figures"]
fn reads_and_writes_take_so_much_of_the_processor() {
    let raw = MemoryDevice::new("raw", BLOCKS * BLOCK as u64, 4096);
    let mut load = Load::new(&raw);
    load.run(BLOCKS, &mut write(&content(BLOCK)), &|| ());
    let raw_write = load.run(BLOCKS, &mut write(&content(BLOCK)), &|| ());
    let raw_read = load.run(4 * BLOCKS, &mut read(1), &|| ());
    println!("bare drive: write {raw_write} ns, read {raw_read} ns");
    for (name, compression, random) in [
        ("as they are", false, BLOCK),
        ("random, to be compressed", true, BLOCK),
        ("half random, lz4", true, BLOCK / 2),
    ] {
        let (pool, _) = pool(compression);
        let volume = pool.volume("a").unwrap();
        let mut load = Load::new(&*volume);
        let step = || while pool.step().unwrap() {};
        let written = load.run(BLOCKS, &mut write(&content(random)), &step);
        pool.drain().unwrap();
        pool.checkpoint().unwrap();
        load.run(BLOCKS, &mut read(1), &|| ());
        let read = load.run(4 * BLOCKS, &mut read(2), &|| ());
        println!(
            "{name}: write and destage {} ns over the bare drive's, verified read {} ns",
            written.saturating_sub(raw_write),
            read.saturating_sub(raw_read)
        );
    }
}

#[test]
#[ignore = "prints figures"]
fn acknowledgement_takes_so_long() {
    let (pool, _) = pool(true);
    let volume: Arc<dyn Device> = pool.volume("a").unwrap();
    let mut queue = volume.queue_pair(1).unwrap();
    let clock = Clock::real();
    let content = content(BLOCK / 2);
    let mut op = write(&content);
    let (mut took, mut done) = (Vec::new(), Vec::new());
    let mut buf = Some(AlignedBuf::zeroed(BLOCK));
    for number in 0..20_000 {
        let op = op(number, buf.take().unwrap());
        let began = clock.now();
        queue.submit(&mut VecDeque::from([Command { tag: Tag(0), op }])).unwrap();
        while queue.in_flight() > 0 {
            queue.wait(&mut done, None).unwrap();
        }
        took.push(clock.now().since(began));
        buf = done.pop().unwrap().buf;
        if number % 64 == 0 {
            while pool.step().unwrap() {}
        }
    }
    took.sort_unstable();
    println!(
        "acknowledged at p50 {:?}, p99 {:?}",
        took[took.len() / 2],
        took[took.len() * 99 / 100]
    );
}

#[test]
#[ignore = "prints figures"]
#[allow(clippy::cast_precision_loss)]
fn reads_need_so_many_reads_of_the_map() {
    // A 4096th of what is mapped, as 2 MiB are of 8 GiB.
    let shape =
        Shape { drives: 8, parity: 2, drive_bytes: 192 << 20, map_bytes: 60 << 10, ..SMALL };
    let made = pool(false);
    let drives = made.1;
    let mut load = Load::new(&*made.0.volume("a").unwrap());
    load.run(BLOCKS, &mut write(&content(BLOCK)), &|| while made.0.step().unwrap() {});
    drop(load);
    made.0.close().unwrap();
    let pool = Pool::open(&drives, rig::open_options(&shape)).unwrap();
    let mut load = Load::new(&*pool.volume("a").unwrap());
    let count = 20_000;
    // Ranks by Zipf's law with exponent 0.99, neighbours beside one another and scattered.
    let sums: Vec<f64> = (1..=BLOCKS)
        .scan(0.0, |sum, rank| {
            *sum += (rank as f64).powf(-0.99);
            Some(*sum)
        })
        .collect();
    let rank = |rng: &mut Rng| {
        let at = rng.unit() * sums[sums.len() - 1];
        sums.partition_point(|sum| *sum < at) as u64
    };
    for (name, pick) in [
        ("uniform", &|rng: &mut Rng| rng.below(BLOCKS)),
        ("zipf .99", &|rng: &mut Rng| rank(rng)),
        ("zipf .99, scattered", &|rng: &mut Rng| {
            rank(rng).wrapping_mul(0x9e37_79b9_7f4a_7c15) % BLOCKS
        }),
    ] as [(&str, &dyn Fn(&mut Rng) -> u64); 3]
    {
        let mut rng = Rng::new(4);
        let before = pool.status().map_loads;
        load.run(count, &mut |_, buf| Op::Read { lba: Lba(pick(&mut rng)), buf }, &|| ());
        let status = pool.status();
        let loads = (status.map_loads - before) as f64 / count as f64;
        println!(
            "{name}: {loads:.2} reads of the map for each read, {} bytes of leaves",
            status.map_bytes
        );
    }
}
