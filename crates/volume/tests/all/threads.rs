//! Many queue pairs at once, with maintenance in its thread: every thread reads what it wrote last, whatever is
//! moved meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, Lba, LbaCount, Rng, thread};
use esker_device::{Device, Op, Port};
use esker_sim::{Effect, Fate, FaultDevice, FaultPlan, HookDevice, Target};
use esker_volume::{CreateOptions, Maintenance, OpenOptions, Pool, VolumeOptions};

const BLOCKS: u64 = 200;

/// Writes and reads its own part of a volume.
fn work(pool: &Pool, number: u64, rounds: u64) {
    let volume = pool.volume("a").unwrap();
    let mut port = Port::open(&*volume, 4).unwrap();
    let mut rng = Rng::new(number);
    let mut versions = vec![0; usize::try_from(BLOCKS).unwrap()];
    let mut expected = vec![0; BLOCK];
    for round in 0..rounds {
        let block = rng.below(BLOCKS);
        let (lba, at) = (Lba(number * BLOCKS + block), usize::try_from(block).unwrap());
        match rng.below(10) {
            0 => {
                port.run(Op::Discard { lba, count: LbaCount(1) }).unwrap();
                versions[at] = 0;
            }
            1..5 => {
                let version = 1 + number * rounds + round;
                let mut buf = AlignedBuf::zeroed(BLOCK);
                rig::fill(&mut buf, version);
                port.write(lba, buf, None).unwrap();
                versions[at] = version;
            }
            _ => {
                let read = port.read(lba, AlignedBuf::zeroed(BLOCK)).unwrap();
                rig::fill(&mut expected, versions[at]);
                assert!(expected == read[..], "thread {number}, round {round}, block {block}");
            }
        }
    }
}

#[test]
fn threads_read_what_they_wrote_while_segments_move() {
    let shape = Shape { drive_bytes: 3584 << 10, map_bytes: 1, ..SMALL };
    let (drives, buffers) = rig::devices(&shape);
    let options = CreateOptions { log_bytes: 256 << 10, ..rig::create_options(&shape) };
    Pool::create(&drives, &buffers, &options).unwrap();
    let open = OpenOptions { maintenance: Maintenance::Thread, ..rig::open_options(&shape) };
    // Reads take a while, so that what they found could be moved and overwritten meanwhile.
    let plan = FaultPlan::new();
    let (clock, span) = (Clock::real(), Duration::from_micros(400));
    plan.from_then_on(Target::Read, 0, Effect::DelaySpan { clock, span });
    let slow = drives.iter().map(|d| Arc::new(FaultDevice::new(d.clone(), &plan)));
    let slow: Vec<Arc<dyn Device>> = slow.map(|d| d as Arc<dyn Device>).collect();
    let pool = Arc::new(Pool::open(&slow, open).unwrap());
    pool.create_volume("a", 4 * BLOCKS * BLOCK as u64, VolumeOptions::default()).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let keeper = {
        let (pool, is_over) = (pool.clone(), is_over.clone());
        thread::spawn("keeper", move || {
            let mut snapshots = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                // Everything moves all the time: segments empty, become free, and are used again.
                pool.drain().unwrap();
                pool.checkpoint().unwrap();
                let name = format!("s{}", snapshots % 2);
                pool.snapshot("a", &name).unwrap();
                pool.delete_snapshot("a", &name).unwrap();
                snapshots += 1;
            }
        })
        .unwrap()
    };
    let workers: Vec<_> = (0..4)
        .map(|number| {
            let pool = pool.clone();
            thread::spawn("worker", move || work(&pool, number, 3000)).unwrap()
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    keeper.join().unwrap();
    pool.check().unwrap();
    let status = pool.status();
    assert!(status.written.checkpoints > 20 && status.written.reconstructed == 0, "{status:#?}");
}

/// A close and writers end at the same time: what was acknowledged is there after the next open, which looks for no frames
/// of a pool that was closed. Discards come after the last label, and take a while here.
#[test]
fn close_beside_writers_loses_nothing() {
    const BLOCKS: u64 = 16;
    let mut discarded = 0;
    for _ in 0..8 {
        // A write buffer that the writer does not fill: it would wait for the close to end.
        let shape = Shape { drive_bytes: 10 << 20, ..SMALL };
        let (drives, _) = rig::devices(&shape);
        let is_closing = Arc::new(AtomicBool::new(false));
        let wrap = |drive: Arc<dyn Device>| -> Arc<dyn Device> {
            let is_closing = is_closing.clone();
            Arc::new(HookDevice::new(drive).on_command(move |op| {
                if matches!(op, Op::Discard { .. }) && is_closing.load(Ordering::Acquire) {
                    Clock::real().sleep(Duration::from_millis(5));
                }
                Fate::Pass
            }))
        };
        let drives: Vec<Arc<dyn Device>> = drives.into_iter().map(wrap).collect();
        let options = CreateOptions { log_bytes: 4 << 20, ..rig::create_options(&shape) };
        Pool::create(&drives, &[], &options).unwrap();
        let pool = rig::open(&drives, &SMALL);
        for name in ["a", "b"] {
            pool.create_volume(name, 256 * BLOCK as u64, VolumeOptions::default()).unwrap();
        }
        // Segments that are empty at the close: their slots are discarded then.
        let mut port = Port::open(&*pool.volume("b").unwrap(), 1).unwrap();
        for block in 0..256 {
            let mut buf = AlignedBuf::zeroed(BLOCK);
            rig::fill(&mut buf, 3 * block + 3);
            port.write(Lba(block), buf, None).unwrap();
        }
        pool.drain().unwrap();
        pool.checkpoint().unwrap();
        port.discard(Lba(0), LbaCount(256)).unwrap();
        let volume = pool.volume("a").unwrap();
        let writer = thread::spawn("writer", move || {
            let mut port = Port::open(&*volume, 1).unwrap();
            for version in 1.. {
                let mut buf = AlignedBuf::zeroed(BLOCK);
                rig::fill(&mut buf, version);
                if port.write(Lba(version % BLOCKS), buf, None).is_err() {
                    return version - 1;
                }
            }
            0
        })
        .unwrap();
        Clock::real().sleep(Duration::from_millis(3));
        is_closing.store(true, Ordering::Release);
        let count = || drives.iter().map(|drive| drive.stats().discards).sum::<u64>();
        let before = count();
        pool.close().unwrap();
        discarded += count() - before;
        let last = writer.join().unwrap();
        is_closing.store(false, Ordering::Release);
        let pool = rig::open(&drives, &SMALL);
        let newest =
            |block| (0..BLOCKS).map(|age| last.saturating_sub(age)).find(|v| v % BLOCKS == block);
        let mut versions: Vec<u64> = (0..BLOCKS).map(|block| newest(block).unwrap_or(0)).collect();
        versions.resize(256, 0);
        rig::compare(&*pool.volume("a").unwrap(), &versions).unwrap();
    }
    assert!(discarded > 0);
}
