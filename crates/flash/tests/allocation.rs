//! No command of an emulated drive allocates memory in steady state. (The only test of its process:
//! the allocator counts for all threads.)

#[path = "../../device/tests/common/counting.rs"]
mod counting;
#[path = "common/timed.rs"]
mod timed;

use std::collections::VecDeque;

use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Command, Completion, Device, Op, Tag};
use esker_flash::emulate::Pace;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const DEPTH: usize = 32;

#[test]
fn no_command_of_an_emulated_drive_allocates_memory_in_steady_state() {
    for pace in [Pace::untimed(), Pace::virtual_time(Clock::virtual_time())] {
        let device = timed::device(pace);
        let mut queue = device.queue_pair(DEPTH).unwrap();
        let mut bufs: Vec<_> = (0..DEPTH).map(|_| AlignedBuf::zeroed(4096)).collect();
        let mut commands = VecDeque::with_capacity(DEPTH);
        let mut done: Vec<Completion> = Vec::with_capacity(DEPTH);
        let mut rng = Rng::new(1);
        let mut before = 0;
        for round in 0..20_000 {
            if round == 10_000 {
                before = counting::allocations();
            }
            commands.extend(bufs.drain(..).map(|buf| {
                let lba = Lba(rng.below(1 << 20));
                let op = if rng.chance(1, 3) {
                    Op::Write { lba, buf, placement: None, fua: false }
                } else {
                    Op::Read { lba, buf }
                };
                Command { tag: Tag(round), op }
            }));
            queue.submit(&mut commands).unwrap();
            queue.wait(&mut done, None).unwrap();
            bufs.extend(done.drain(..).filter_map(|done| done.buf));
        }
        assert_eq!(counting::allocations() - before, 0);
    }
}
