//! A volume beside one that asks for far more than its limit: what each gets, and how long the neighbour's commands take.
//! Virtual time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::paced::{Handle, Paced, per_mille};
use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Command, Device, Op, QueuePair, Tag};
use esker_volume::{CreateOptions, OpenOptions, Pool, VolumeOptions};

const BLOCKS: u64 = 1500;
const SHAPE: Shape = Shape { drives: 9, parity: 2, drive_bytes: 12 << 20, ..SMALL };
/// Commands that the flooder has in flight.
const FLOOD: usize = 64;
const GLANCE: Duration = Duration::from_micros(20);

/// Random commands, of which every fourth is a write, as many in flight as the depth.
struct Flooder {
    queue: Box<dyn QueuePair>,
    rng: Rng,
    count: u64,
}

impl Flooder {
    fn turn(&mut self) {
        let mut batch = VecDeque::new();
        let mut done = Vec::new();
        self.queue.poll(&mut done).unwrap();
        done.drain(..).for_each(|done| done.result.unwrap());
        for _ in self.queue.in_flight()..FLOOD {
            let (lba, buf) = (Lba(self.rng.below(BLOCKS)), AlignedBuf::zeroed(BLOCK));
            let op = match self.rng.chance(1, 4) {
                true => Op::Write { lba, buf, placement: None, fua: false },
                false => Op::Read { lba, buf },
            };
            self.count += 1;
            batch.push_back(Command { tag: Tag(self.count), op });
        }
        self.queue.submit(&mut batch).unwrap();
    }
}

struct Rig {
    clock: Clock,
    pool: Pool,
    rng: Rng,
}

fn rig() -> Rig {
    let clock = Clock::virtual_time();
    let drive = |n| -> Arc<dyn Device> {
        let drive = Paced::new(&format!("d{n}"), SHAPE.drive_bytes, &clock, n);
        drive.limit_bandwidth(3_000_000_000);
        Arc::new(Handle(drive))
    };
    let devices: Vec<_> = (0..9).map(drive).collect();
    let create =
        CreateOptions { width: Some(7), log_bytes: 2 << 20, ..rig::create_options(&SHAPE) };
    Pool::create(&devices, &[], &create).unwrap();
    let open =
        OpenOptions { clock: clock.clone(), map_bytes: 1 << 20, ..rig::open_options(&SHAPE) };
    let pool = Pool::open(&devices, open).unwrap();
    for name in ["neighbour", "flooder"] {
        pool.create_volume(name, BLOCKS * BLOCK as u64, VolumeOptions::default()).unwrap();
        let mut port = esker_device::Port::open(&*pool.volume(name).unwrap(), 16).unwrap();
        let write = |n: u64| {
            let mut buf = AlignedBuf::zeroed(BLOCK);
            rig::fill(&mut buf, n + 1);
            Op::Write { lba: Lba(n), buf, placement: None, fua: false }
        };
        let ops: Vec<Op> = (0..BLOCKS).map(write).collect();
        port.run_all(ops, |_, result| drop(result.unwrap())).unwrap();
    }
    pool.drain().unwrap();
    pool.checkpoint().unwrap();
    Rig { clock, pool, rng: Rng::new(5) }
}

impl Rig {
    /// The neighbour's load for so long: latencies of its reads and writes, sorted, in nanoseconds.
    fn run(&mut self, secs: u64, mut flooder: Option<&mut Flooder>) -> (Vec<u64>, Vec<u64>) {
        let Rig { clock, pool, rng } = self;
        let mut queue = pool.volume("neighbour").unwrap().queue_pair(8).unwrap();
        let (mut reads, mut writes, mut done) = (Vec::new(), Vec::new(), Vec::new());
        let end = clock.now() + Duration::from_secs(secs);
        while clock.now() < end {
            let began = clock.now();
            let mut batch: VecDeque<Command> = (0..5)
                .map(|tag| {
                    let (lba, buf) = (Lba(rng.below(BLOCKS)), AlignedBuf::zeroed(BLOCK));
                    let op = match tag {
                        0 => Op::Write { lba, buf, placement: None, fua: false },
                        _ => Op::Read { lba, buf },
                    };
                    Command { tag: Tag(tag), op }
                })
                .collect();
            queue.submit(&mut batch).unwrap();
            while queue.in_flight() > 0 {
                flooder.iter_mut().for_each(|flooder| flooder.turn());
                queue.wait(&mut done, Some(GLANCE)).unwrap();
                for done in done.drain(..) {
                    done.result.unwrap();
                    let ns = u64::try_from(clock.now().since(began).as_nanos()).unwrap();
                    if done.tag.0 == 0 { writes.push(ns) } else { reads.push(ns) }
                }
            }
            for _ in 0..20 {
                flooder.iter_mut().for_each(|flooder| flooder.turn());
                clock.advance(GLANCE);
            }
            while pool.step().unwrap() {}
        }
        reads.sort_unstable();
        writes.sort_unstable();
        (reads, writes)
    }
}

#[test]
fn neighbour_of_a_flooder_at_its_limit_hardly_notices() {
    let mut rig = rig();
    let alone = rig.run(5, None);
    for (limit, read_goal) in [(2_000, 1.2), (10_000, 1.5), (0, f64::INFINITY)] {
        let options = VolumeOptions { iops_limit: limit, ..VolumeOptions::default() };
        rig.pool.configure("flooder", options, &[]).unwrap();
        let queue = rig.pool.volume("flooder").unwrap().queue_pair(FLOOD).unwrap();
        let mut flooder = Flooder { queue, rng: Rng::new(6), count: 0 };
        rig.run(1, Some(&mut flooder));
        let before = flooder.count;
        let secs = if limit > 0 { 10 } else { 2 };
        let beside = rig.run(secs, Some(&mut flooder));
        let rate = (flooder.count - before) / secs;
        let ratio = |beside: &[u64], alone: &[u64]| {
            per_mille(beside, 990) as f64 / per_mille(alone, 990) as f64
        };
        let (reads, writes) = (ratio(&beside.0, &alone.0), ratio(&beside.1, &alone.1));
        println!(
            "limit {limit}: the flooder gets {rate} commands a second; the neighbour's p99 is {reads:.2} times as long \
             for reads, {writes:.2} for writes"
        );
        if limit > 0 {
            assert!(rate.abs_diff(limit) * 100 <= limit * 3, "{rate} of {limit}");
        }
        // Of all reads of a drive one percent takes twice as long: a few more make that the p99.
        assert!(reads <= read_goal, "{reads}");
        // Without a limit a write of the neighbour waits for a frame of the flooder.
        assert!(limit == 0 || writes <= 1.2, "{writes}");
    }
}
