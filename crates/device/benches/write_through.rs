//! The cost of writes that complete when they are durable: 4 KiB at random places of a file, as the file
//! device completes them, with a flush behind every batch, and through `WriteThrough`.
//!
//! `cargo bench -p esker-device --bench write_through [-- FILE]`; the file is made and removed.

#![allow(clippy::print_stdout)]

#[path = "common/machine.rs"]
mod machine;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Command, Device, FileDevice, FileOptions, Op, Port, Tag, WriteThrough};

const BYTES: u64 = 256 << 20;
const BLOCK: usize = 4096;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);

fn main() {
    // The harness adds options of its own.
    let file = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let default = || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("write-through");
    let path = file.map_or_else(default, PathBuf::from);
    let options = FileOptions { capacity_bytes: Some(BYTES), ..FileOptions::default() };
    let volatile: Arc<dyn Device> = Arc::new(FileDevice::open(&path, &options).expect("a file"));
    let mut port = Port::open(&*volatile, 1).expect("a port");
    for at in (0..BYTES).step_by(1 << 20) {
        let lba = Lba(at / u64::from(volatile.geometry().lba_size));
        port.write(lba, AlignedBuf::zeroed(1 << 20), None).expect("a write");
    }
    port.flush().expect("a flush");
    println!("kernel  {}", machine::kernel());
    println!("cpu     {}", machine::cpu());
    println!("file    {}, {} MiB, written before", path.display(), BYTES >> 20);
    println!("command cargo bench -p esker-device --bench write_through");
    let durable = WriteThrough::over(volatile.clone());
    for depth in [1, 32] {
        let ways = [
            ("as it completes them", &volatile, false),
            ("a flush behind each batch", &volatile, true),
            ("write through", &durable, false),
        ];
        for (way, device, flushes) in ways {
            let mut rates: Vec<f64> =
                (0..ROUNDS).map(|seed| round(&**device, depth, flushes, seed)).collect();
            println!("depth {depth:>2}, {way:<26} {:9.0} writes/s", machine::median(&mut rates));
        }
    }
    drop((port, durable, volatile));
    std::fs::remove_file(&path).expect("the file is removed");
}

/// Writes per second; with `flushes`, batches of `depth` writes each have a flush behind them.
fn round(device: &dyn Device, depth: usize, flushes: bool, seed: usize) -> f64 {
    let lbas = (BLOCK / device.geometry().lba_size as usize) as u64;
    let mut queue = device.queue_pair(depth).expect("a queue pair");
    let mut rng = Rng::new(seed as u64);
    let mut bufs: Vec<_> = (0..depth).map(|_| AlignedBuf::zeroed(BLOCK)).collect();
    let (mut commands, mut done) = (VecDeque::new(), Vec::new());
    let (clock, mut writes) = (Clock::real(), 0);
    let start = clock.now();
    while clock.now() - start < ROUND {
        commands.extend(bufs.drain(..).map(|buf| {
            let lba = Lba(rng.below(BYTES / BLOCK as u64) * lbas);
            Command { tag: Tag(0), op: Op::Write { lba, buf, placement: None, fua: false } }
        }));
        queue.submit(&mut commands).expect("submit");
        while queue.in_flight() > if flushes { 0 } else { depth - 1 } {
            queue.wait(&mut done, None).expect("wait");
        }
        writes += done.len();
        bufs.extend(
            done.drain(..).filter_map(|one| one.result.map(|()| one.buf).expect("a write")),
        );
        if flushes {
            commands.push_back(Command { tag: Tag(1), op: Op::Flush });
            queue.submit(&mut commands).expect("submit");
            while queue.in_flight() > 0 {
                queue.wait(&mut done, None).expect("wait");
            }
            done.clear();
        }
    }
    writes as f64 / (clock.now() - start).as_secs_f64()
}
