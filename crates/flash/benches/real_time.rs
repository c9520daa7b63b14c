//! Lateness of completions in real time, the cost of waiting for them, and the speed of an emulated device in virtual
//! time. Nothing is stored, so that only emulation and timing are measured. The machine's own part comes
//! first: the share of moments at which a thread that only reads the clock is away, for another
//! 5 µs or more. No completion can be in time then.
//!
//! `cargo bench -p esker-flash --bench real_time`

#![allow(clippy::print_stdout)]

#[path = "../tests/common/readers.rs"]
mod readers;
#[path = "../tests/common/timed.rs"]
mod timed;

use std::collections::VecDeque;
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Lba, Rng};
use esker_device::{Command, Completion, Device, Op, Tag};
use esker_flash::emulate::{Handout, Pace};

fn main() {
    println!("command cargo bench -p esker-flash --bench real_time");
    println!("the machine itself is more than 5 us late at {:.2} % of moments", away_percent());
    println!("random 4 KiB reads of 64 dies; lateness in real time, in microseconds");
    for depth in [1, 8, 32] {
        lateness("real", &Pace::real(), depth, 200_000);
    }
    lateness("dilated by 10", &Pace::dilated(10), 32, 100_000);
    println!("one read in flight in each of many threads; processor time is of all of them");
    for (name, pace, threads) in [
        ("real", Pace::real(), 2),
        ("dilated by 3", Pace::dilated(3), 32),
        ("dilated by 12", Pace::dilated(12), 32),
        ("dilated by 48", Pace::dilated(48), 32),
    ] {
        crowd(name, &pace, threads);
    }
    for depth in [1, 32, 64] {
        let clock = Clock::real();
        let began = clock.now();
        let count = 3_000_000;
        run(&Pace::virtual_time(Clock::virtual_time()), depth, count, false);
        let nanos = u64::try_from((clock.now() - began).as_nanos()).expect("seconds");
        println!("virtual, QD {depth:>3}: {:.2} M commands/s", per_us(count, nanos));
    }
}

#[allow(clippy::cast_precision_loss)]
fn away_percent() -> f64 {
    let clock = Clock::real();
    let (mut last, mut away_ns) = (clock.now(), 0);
    while last.0 < 3_000_000_000 {
        let now = clock.now();
        away_ns += (now.0 - last.0).saturating_sub(5_000);
        last = now;
    }
    away_ns as f64 * 100.0 / last.0 as f64
}

#[allow(clippy::cast_precision_loss)] // a figure for people
fn per_us(count: u64, nanos: u64) -> f64 {
    count as f64 * 1000.0 / nanos as f64
}

#[allow(clippy::cast_precision_loss)]
fn lateness(name: &str, pace: &Pace, depth: usize, count: u64) {
    let mut late = run(pace, depth, count, true);
    late.sort_unstable();
    let at = |per_mille: usize| late[(late.len() - 1) * per_mille / 1000] as f64 / 1000.0;
    println!(
        "{name}, QD {depth:>2}: p50 {:.2}, p99 {:.2}, p99.9 {:.2}, most {:.1}",
        at(500),
        at(990),
        at(999),
        at(1000)
    );
}

/// Threads with a read each in a closed loop, for two seconds.
#[allow(clippy::cast_precision_loss)] // figures for people
fn crowd(name: &str, pace: &Pace, threads: u64) {
    let seen = readers::run(pace, threads, Duration::from_secs(2));
    let readers::Seen { record, waits, cpu } = &seen;
    let count = record.len() as f64;
    let at = |times: &dyn Fn(&Handout) -> u64| readers::median(record.iter().map(times)) as f64;
    let model_us = at(&|one| one.finished.0 - one.started.0) / 1000.0;
    let seen_us = at(&|one| one.handed_out.0 - one.started.0) / 1000.0;
    println!(
        "{name}, {threads} threads: {count} reads, {:.0} % of a processor, {:.1} us of it a read, p50 \
         {seen_us:.1} us, by the model {model_us:.1}; {:.2} moments and {:.2} wake-ups a read",
        cpu.as_secs_f64() * 50.0,
        cpu.as_secs_f64() * 1e6 / count,
        waits.moments as f64 / count,
        (waits.served + waits.promoted + waits.hastened) as f64 / count,
    );
}

/// Reads in a closed loop: how many nanoseconds late each completion was handed out.
fn run(pace: &Pace, depth: usize, count: u64, is_recorded: bool) -> Vec<u64> {
    let device = timed::device(pace.clone());
    let mut queue = device.queue_pair(depth).expect("a queue pair");
    let mut bufs: Vec<_> = (0..depth).map(|_| AlignedBuf::zeroed(4096)).collect();
    let (mut commands, mut done) = (VecDeque::new(), Vec::<Completion>::new());
    let mut rng = Rng::new(1);
    if is_recorded {
        device.emulation().start_record();
    }
    let mut ended = 0;
    while ended < count {
        commands.extend(bufs.drain(..).map(|buf| {
            let lba = Lba(rng.below(1 << 20));
            Command { tag: Tag(0), op: Op::Read { lba, buf } }
        }));
        queue.submit(&mut commands).expect("submit");
        queue.wait(&mut done, None).expect("wait");
        ended += u64::try_from(done.len()).expect("at most the depth");
        bufs.extend(done.drain(..).filter_map(|done| done.buf));
    }
    let record = device.emulation().take_record();
    record.iter().map(|times| times.handed_out.0 - times.finished.0).collect()
}
