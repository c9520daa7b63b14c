//! The cost of cleaning: bytes written to segments for each byte of the user, at 20 % spare, and the CPU time of reads
//! and writes over drives in memory.
//!
//! `cargo test --release -p esker-volume --test waf -- --ignored --nocapture --test-threads=1`

#[path = "support/rig.rs"]
mod rig;

use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Op, Port};
use esker_volume::{CreateOptions, Maintenance, OpenOptions, Pool, VolumeOptions};
use rig::{BLOCK, SMALL, Shape};

const RAW: VolumeOptions = VolumeOptions { compression: false, iops_limit: 0, bytes_limit: 0 };

/// Nine drives with some 1,200 segments of 960 KiB, 20 % of which are spare, and a volume of all the rest.
fn pool(segments: u64) -> (Pool, u64) {
    let log = 16 << 20;
    let root = 1 << 20;
    let drive_bytes = segments * (128 << 10) + log + 2 * root + (64 << 10);
    let shape = Shape { drives: 9, drive_bytes, map_bytes: 64 << 20, ..SMALL };
    let options = CreateOptions {
        width: Some(9),
        chunk_bytes: 128 << 10,
        unit_bytes: 4 << 10,
        log_bytes: log,
        root_bytes: Some(root),
        spare_percent: 20,
        ..rig::create_options(&shape)
    };
    let (drives, _) = rig::devices(&shape);
    Pool::create(&drives, &[], &options).unwrap();
    let open = OpenOptions {
        maintenance: Maintenance::Manual,
        clock: Clock::real(),
        ..rig::open_options(&shape)
    };
    let pool = Pool::open(&drives, open).unwrap();
    let blocks = pool.status().space.usable / BLOCK as u64;
    pool.create_volume("a", blocks * BLOCK as u64, RAW).unwrap();
    (pool, blocks)
}

/// Ranks by Zipf's law with exponent 0.99, scattered over the blocks.
struct Zipf {
    sums: Vec<f64>,
    blocks: u64,
}

impl Zipf {
    #[allow(clippy::cast_precision_loss)] // far below 2^53
    fn new(blocks: u64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=blocks).map(|rank| {
            sum += (rank as f64).powf(-0.99);
            sum
        });
        Zipf { sums: sums.collect(), blocks }
    }

    fn next(&self, rng: &mut Rng) -> u64 {
        let total = self.sums[self.sums.len() - 1];
        let at = rng.unit() * total;
        let rank = self.sums.partition_point(|sum| *sum < at) as u64;
        rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.blocks
    }
}

/// Overwrites the volume so many times, and says what was written for each byte, and for pages of the map.
#[allow(clippy::cast_precision_loss)]
fn waf(name: &str, times: u64, pick: &dyn Fn(&mut Rng, u64) -> u64) {
    let (pool, blocks) = pool(1200);
    let mut rng = Rng::new(1);
    let mut port = Port::open(&*pool.volume("a").unwrap(), 32).unwrap();
    let mut write = |block: &dyn Fn(&mut Rng, u64) -> u64, count: u64| {
        for first in (0..count).step_by(32) {
            let ops = (first..count.min(first + 32)).map(|n| {
                let mut buf = AlignedBuf::zeroed(BLOCK);
                buf[..8].copy_from_slice(&n.to_le_bytes());
                let lba = Lba(block(&mut rng, n));
                Op::Write { lba, buf, placement: None, fua: false }
            });
            port.run_all(ops.collect::<Vec<_>>(), |_, result| drop(result.unwrap())).unwrap();
            while pool.step().unwrap() {}
        }
    };
    write(&|_, n| n, blocks);
    write(&|rng, _| pick(rng, blocks), blocks * times / 2);
    let before = pool.status().written;
    write(&|rng, _| pick(rng, blocks), blocks * times / 2);
    let after = pool.status().written;
    let user = (after.user - before.user) as f64;
    let data = (after.destaged + after.cleaned - before.destaged - before.cleaned) as f64;
    let metadata = (after.metadata - before.metadata) as f64;
    println!(
        "{name}: {:.2} for blocks, {:.2} for the map, {} checkpoints",
        data / user,
        metadata / user,
        after.checkpoints - before.checkpoints
    );
    pool.check().unwrap();
}

#[test]
#[ignore = "minutes; prints figures"]
fn cleaning_costs_what_it_costs() {
    waf("uniform", 3, &|rng, blocks| rng.below(blocks));
    let (_, blocks) = pool(1200);
    let zipf = Zipf::new(blocks);
    waf("zipf .99", 3, &|rng, _| zipf.next(rng));
}

/// CPU time of this process, in nanoseconds, in steps of 10 ms.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks * 10_000_000
}

#[test]
#[ignore = "prints figures"]
fn operations_take_so_much_of_the_processor() {
    for compression in [false, true] {
        let (pool, blocks) = pool(1200);
        let options = VolumeOptions { compression, ..RAW };
        pool.configure("a", options, &[]).unwrap();
        let blocks = blocks / 4;
        let mut rng = Rng::new(2);
        let mut half_random = vec![0; BLOCK];
        rng.fill(&mut half_random[..BLOCK / 2]);
        let mut port = Port::open(&*pool.volume("a").unwrap(), 32).unwrap();
        let mut measure = |name: &str, count: u64, op: &mut dyn FnMut(u64) -> Op| {
            let before = cpu_ns();
            for first in (0..count).step_by(32) {
                let ops: Vec<Op> = (first..count.min(first + 32)).map(&mut *op).collect();
                port.run_all(ops, |_, result| drop(result.unwrap())).unwrap();
                while pool.step().unwrap() {}
            }
            println!("compression {compression}: {name} {} ns", (cpu_ns() - before) / count);
        };
        measure("write of 4 KiB, with destaging", blocks, &mut |n| {
            let mut buf = AlignedBuf::zeroed(BLOCK);
            buf.copy_from_slice(&half_random);
            buf[..8].copy_from_slice(&n.to_le_bytes());
            Op::Write { lba: Lba(n), buf, placement: None, fua: false }
        });
        pool.drain().unwrap();
        pool.checkpoint().unwrap();
        measure("random read of 4 KiB", blocks, &mut |_| Op::Read {
            lba: Lba(rng.below(blocks)),
            buf: AlignedBuf::zeroed(BLOCK),
        });
    }
}
