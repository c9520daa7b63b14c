//! The cost of the seam itself: commands through `dyn QueuePair` on a device that stores nothing. A write
//! costs nothing else; a read fills its buffer with zeroes, too.
//!
//! `cargo bench -p esker-device --bench seam`

#![allow(clippy::print_stdout)]

#[path = "../tests/common/counting.rs"]
mod counting;
#[path = "common/machine.rs"]
mod machine;

use std::collections::VecDeque;

use esker_base::{AlignedBuf, Clock, Lba, LbaCount};
use esker_device::{Command, Device, NullDevice, Op, Tag};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const ROUNDS: usize = 11;
const COMMANDS: usize = 2_000_000;

fn main() {
    println!("kernel  {}", machine::kernel());
    println!("cpu     {}", machine::cpu());
    println!("device  null, 4 KiB commands through dyn QueuePair, median of {ROUNDS} rounds");
    println!("command cargo bench -p esker-device --bench seam");
    for (kind, depth) in [("write", 1), ("write", 32), ("read", 1), ("read", 32)] {
        let (mut figures, mut allocations) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
            let (nanos, allocated) = round(kind == "read", depth);
            figures.push(nanos);
            allocations += allocated;
        }
        println!(
            "{kind:<5} depth {depth:>2}: {:6.1} ns per command, {allocations} allocations in {} commands",
            machine::median(&mut figures),
            ROUNDS * COMMANDS
        );
    }
}

/// Nanoseconds per command at this depth, and the allocations of all of them.
fn round(reads: bool, depth: usize) -> (f64, u64) {
    let device: Box<dyn Device> = Box::new(NullDevice::new(LbaCount(1 << 30), 4096));
    let mut queue = device.queue_pair(depth).expect("a queue pair");
    let mut commands = VecDeque::with_capacity(depth);
    let mut done = Vec::with_capacity(depth);
    let mut bufs: Vec<_> = (0..depth).map(|_| AlignedBuf::zeroed(4096)).collect();
    let clock = Clock::real();
    let (start, allocated) = (clock.now(), counting::allocations());
    for lba in 0..(COMMANDS / depth) as u64 {
        let op = |(buf, number): (AlignedBuf, u64)| {
            let lba = Lba(number);
            let op = match reads {
                true => Op::Read { lba, buf },
                false => Op::Write { lba, buf, placement: None, fua: false },
            };
            Command { tag: Tag(number), op }
        };
        commands.extend(bufs.drain(..).zip(lba..).map(op));
        queue.submit(&mut commands).expect("submit");
        while queue.in_flight() > 0 {
            queue.wait(&mut done, None).expect("wait");
        }
        bufs.extend(done.drain(..).filter_map(|done| done.buf));
    }
    let elapsed = clock.now() - start;
    (
        elapsed.as_secs_f64() * 1e9 / (COMMANDS / depth * depth) as f64,
        counting::allocations() - allocated,
    )
}
