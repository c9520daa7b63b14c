//! No memory is allocated for a command, at neither end.

mod common;
#[path = "../../device/tests/common/counting.rs"]
mod counting;

use std::collections::VecDeque;

use common::{memory, open, serve};
use esker_base::{AlignedBuf, Lba};
use esker_device::{Command, Device, Op, Tag};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const DEPTH: u64 = 32;
const ROUNDS: u64 = 400;

#[test]
fn commands_need_no_new_memory() {
    let target = serve(memory(4));
    let initiator = open(&target);
    let mut queue = initiator.queue_pair(32).unwrap();
    let (mut batch, mut done) = (VecDeque::new(), Vec::new());
    let mut free: Vec<_> = (0..DEPTH).map(|_| AlignedBuf::zeroed(4096)).collect();
    let mut before = 0;
    for round in 0..2 * ROUNDS {
        if round == ROUNDS {
            before = counting::allocations(); // whatever grows has grown
        }
        for (tag, buf) in (0..DEPTH).zip(free.drain(..)) {
            let lba = Lba(tag * 8);
            let op = match round % 2 {
                0 => Op::Write { lba, buf, placement: None, fua: false },
                _ => Op::Read { lba, buf },
            };
            batch.push_back(Command { tag: Tag(tag), op });
        }
        while queue.in_flight() > 0 || !batch.is_empty() {
            queue.submit(&mut batch).unwrap();
            queue.wait(&mut done, None).unwrap();
        }
        free.extend(done.drain(..).map(|completion| {
            completion.result.unwrap();
            completion.buf.unwrap()
        }));
    }
    let allocations = counting::allocations() - before;
    let commands = ROUNDS * DEPTH;
    // The rest is the upkeep of paths and devices, a few times a second.
    assert!(allocations < commands / 50, "{allocations} for {commands} commands");
}
