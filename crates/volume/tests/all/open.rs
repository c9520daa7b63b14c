//! How long an open takes, and what it reads: after a crash with a full write buffer, and after a close. Virtual time on drives
//! of 3 GB/s.
//!
//! `cargo test --release -p esker-volume --test all open:: -- --ignored --nocapture` for a write buffer with 1 GiB.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::paced::{Handle, Paced};
use crate::rig::{self, BLOCK, SMALL, Shape};
use esker_base::{AlignedBuf, Clock, Lba};
use esker_device::{Command, Device, Op, Port, Tag};
use esker_volume::{CreateOptions, OpenOptions, Pool, VolumeOptions};

const DEPTH: u64 = 128;

struct Rig {
    clock: Clock,
    devices: Vec<Arc<dyn Device>>,
    blocks: u64,
    log_bytes: u64,
}

impl Rig {
    /// Four drives with one parity: the write buffer is on two of them.
    fn new(dirty: u64) -> Rig {
        let log_bytes = dirty / 4 * 5;
        let shape = Shape { drive_bytes: log_bytes + dirty + (64 << 20), ..SMALL };
        let clock = Clock::virtual_time();
        let drive = |n: u64| -> Arc<dyn Device> {
            let drive = Paced::new(&format!("d{n}"), shape.drive_bytes, &clock, n);
            drive.limit_bandwidth(3_000_000_000);
            Arc::new(Handle(drive))
        };
        let devices: Vec<_> = (0..4).map(drive).collect();
        let options = CreateOptions {
            chunk_bytes: 4 << 20,
            unit_bytes: 64 << 10,
            log_bytes,
            root_bytes: Some(1 << 20),
            ..rig::create_options(&shape)
        };
        Pool::create(&devices, &[], &options).unwrap();
        Rig { clock, devices, blocks: dirty / BLOCK as u64, log_bytes }
    }

    fn open(&self) -> Pool {
        let options = OpenOptions { clock: self.clock.clone(), ..rig::open_options(&SMALL) };
        Pool::open(&self.devices, OpenOptions { map_bytes: 64 << 20, ..options }).unwrap()
    }

    /// Writes every block once, with its number in it.
    fn fill(&self, pool: &Pool) {
        let bytes = self.blocks * BLOCK as u64;
        let raw = VolumeOptions { compression: false, ..VolumeOptions::default() };
        pool.create_volume("a", bytes, raw).unwrap();
        let volume = pool.volume("a").unwrap();
        let mut queue = volume.queue_pair(usize::try_from(DEPTH).unwrap()).unwrap();
        let (mut batch, mut done) = (VecDeque::new(), Vec::new());
        for first in (0..self.blocks).step_by(usize::try_from(DEPTH).unwrap()) {
            batch.extend((first..(first + DEPTH).min(self.blocks)).map(|block| {
                let mut buf = AlignedBuf::zeroed(BLOCK);
                buf[..8].copy_from_slice(&block.to_le_bytes());
                let op = Op::Write { lba: Lba(block), buf, placement: None, fua: false };
                Command { tag: Tag(block), op }
            }));
            queue.submit(&mut batch).unwrap();
            while queue.in_flight() > 0 {
                queue.wait(&mut done, None).unwrap();
                done.drain(..).for_each(|done| done.result.unwrap());
            }
        }
    }

    fn compare(&self, pool: &Pool) {
        let mut port = Port::open(&*pool.volume("a").unwrap(), 1).unwrap();
        for block in (0..self.blocks).step_by(61) {
            let read = port.read(Lba(block), AlignedBuf::zeroed(BLOCK)).unwrap();
            assert_eq!(read[..8], block.to_le_bytes(), "block {block}");
        }
    }

    /// Opens the pool: on the drives' clock, on the real one, and how many bytes it read.
    fn measure(&self) -> (Pool, Duration, Duration, u64) {
        let read = || self.devices.iter().map(|device| device.stats().read_bytes).sum::<u64>();
        let (real, before) = (Clock::real(), read());
        let (began, real_began) = (self.clock.now(), real.now());
        let pool = self.open();
        let (took, real_took) = (self.clock.now().since(began), real.now().since(real_began));
        (pool, took, real_took, read() - before)
    }
}

fn open_after_crash_and_close(dirty: u64) {
    let rig = Rig::new(dirty);
    let pool = rig.open();
    rig.fill(&pool);
    assert_eq!(pool.status().log.pending, dirty);
    drop(pool);
    let (pool, took, real, read) = rig.measure();
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "after a crash with {} MiB in the write buffer: {took:?} of the drives' time ({real:?} of real time), {} MiB read",
        mib(dirty),
        mib(read)
    );
    assert_eq!(pool.status().log.pending, dirty);
    // A frame that runs over the end of a window is read with the next one again.
    assert!(read <= 2 * rig.log_bytes / 16 * 17 + (48 << 20), "{read} bytes read");
    let bound = Duration::from_millis(50)
        .max(Duration::from_secs(2) / u32::try_from((1 << 30) / dirty).unwrap());
    assert!(took <= bound, "{took:?}");
    rig.compare(&pool);
    pool.close().unwrap();
    let (pool, took, real, read) = rig.measure();
    println!(
        "after a close: {took:?} of the drives' time ({real:?} of real time), {} MiB read",
        mib(read)
    );
    assert!(read <= 16 << 20, "{read} bytes read");
    assert!(took <= Duration::from_millis(300), "{took:?}");
    rig.compare(&pool);
}

#[test]
fn open_reads_the_write_buffer_once_and_not_at_all_after_a_close() {
    open_after_crash_and_close(64 << 20);
}

#[test]
#[ignore = "takes four gibibytes of memory; prints figures"]
fn open_with_a_gibibyte_in_the_write_buffer() {
    open_after_crash_and_close(1 << 30);
}
