//! No device allocates memory per command once it runs. (The only test of its process: the
//! allocator counts for all threads.)

#[path = "common/mod.rs"]
mod common;
#[path = "common/counting.rs"]
mod counting;

use std::collections::VecDeque;

use common::TempDir;
use esker_base::{AlignedBuf, Lba, LbaCount};
use esker_device::{Command, Device, FileDevice, FileOptions, NullDevice, Op, Preference, Tag};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const DEPTH: usize = 32;

#[test]
fn no_command_allocates_memory_in_steady_state() {
    let dir = TempDir::new();
    let open = |name, io_uring| {
        let options = FileOptions { io_uring, ..FileOptions::default() };
        FileDevice::open(dir.path().join(name), &options).unwrap()
    };
    let devices: [Box<dyn Device>; 3] = [
        Box::new(NullDevice::new(LbaCount(1 << 20), 4096)),
        Box::new(open("uring", Preference::Prefer)),
        Box::new(open("synchronous", Preference::Never)),
    ];
    for device in devices {
        let allocations = allocations_of(&*device, 30);
        assert_eq!(allocations, 0, "{}", device.name());
    }
}

/// The allocations of `rounds` full batches of commands of all kinds, after a few to warm up.
fn allocations_of(device: &dyn Device, rounds: u64) -> u64 {
    let mut queue = device.queue_pair(DEPTH).unwrap();
    let mut commands = VecDeque::with_capacity(DEPTH);
    let mut done = Vec::with_capacity(DEPTH);
    let mut bufs: Vec<_> = (0..DEPTH).map(|_| AlignedBuf::zeroed(4096)).collect();
    let mut before = 0;
    for round in 0..rounds + 3 {
        if round == 3 {
            before = counting::allocations();
        }
        for n in 0..DEPTH as u64 {
            let lba = Lba(n);
            let op = match n % 8 {
                0..4 => bufs.pop().map(|buf| Op::Read { lba, buf }),
                4..6 => {
                    bufs.pop().map(|buf| Op::Write { lba, buf, placement: None, fua: n % 8 == 4 })
                }
                6 => Some(Op::WriteZeroes { lba, count: LbaCount(1) }),
                _ => Some(Op::Flush),
            };
            let op = op.expect("a buffer for every read and write");
            commands.push_back(Command { tag: Tag(n), op });
        }
        queue.submit(&mut commands).unwrap();
        while queue.in_flight() > 0 {
            queue.wait(&mut done, None).unwrap();
        }
        for completion in done.drain(..) {
            completion.result.unwrap();
            bufs.extend(completion.buf);
        }
    }
    counting::allocations() - before
}
