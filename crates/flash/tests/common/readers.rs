//! Many threads with a read each in flight, and their cost.

use std::collections::VecDeque;
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba, Rng, thread};
use esker_device::{Command, Device, Op, Tag};
use esker_flash::emulate::{Handout, Pace, Waits};

/// Unit in which Linux counts processor time.
const TICK: Duration = Duration::from_millis(10);

/// Observations of the threads.
pub(crate) struct Seen {
    pub(crate) record: Vec<Handout>,
    pub(crate) waits: Waits,
    /// The processor time of the process meanwhile, user and system.
    pub(crate) cpu: Duration,
}

/// Reads of a drive without content in closed loops of so many threads, for so long in real time.
pub(crate) fn run(pace: &Pace, threads: u64, span: Duration) -> Seen {
    let device = crate::timed::device(pace.clone());
    device.emulation().start_record();
    let real = Clock::real();
    let end = real.now() + span;
    let before = cpu();
    std::thread::scope(|scope| {
        for seed in 0..threads {
            let (device, real) = (&device, &real);
            let work = move || {
                let mut queue = device.queue_pair(1).expect("a queue pair");
                let (mut commands, mut done) = (VecDeque::new(), Vec::new());
                let (mut rng, mut buf) = (Rng::new(seed), Some(AlignedBuf::zeroed(4096)));
                while let Some(own) = buf.take().filter(|_| real.now() < end) {
                    let op = Op::Read { lba: Lba(rng.below(1 << 20)), buf: own };
                    commands.push_back(Command { tag: Tag(0), op });
                    queue.submit(&mut commands).expect("submit");
                    while queue.wait(&mut done, None).expect("wait") == 0 {}
                    buf = done.pop().and_then(|done| done.buf);
                }
            };
            thread::spawn_scoped(scope, "reader", work).expect("a thread");
        }
    });
    let cpu = cpu().saturating_sub(before);
    Seen { record: device.emulation().take_record(), waits: device.emulation().waits(), cpu }
}

pub(crate) fn median(all: impl Iterator<Item = u64>) -> u64 {
    let mut all: Vec<u64> = all.collect();
    all.sort_unstable();
    all[all.len() / 2]
}

/// The processor time of this process so far.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let ticks = fields.split_whitespace().skip(11).take(2);
    TICK * ticks.map(|ticks| ticks.parse::<u32>().expect("a number")).sum::<u32>()
}
