//! How fast virtual time is: random 4 KiB reads in a closed loop on 64 dies and 8 channels.
//!
//! `cargo bench -p esker-flash --bench timing`

#![allow(clippy::print_stdout)]

use esker_base::{Clock, Nanos, Rng};
use esker_flash::emulate::{Start, Ticket};
use esker_flash::timing::{Controller, HostBytes, Part, Place, Program, Timing};

const READS: u64 = 4_000_000;
const WRITES: u64 = 2_000_000;
const ROUNDS: usize = 5;

fn main() {
    println!("command cargo bench -p esker-flash --bench timing (median of {ROUNDS})");
    for depth in [1, 32, 64, 256] {
        let rate = median(|| reads(depth));
        println!("random 4 KiB reads, QD {depth:>3}: {rate:5.2} M commands/s");
    }
    let rate = median(|| writes(64));
    println!("4 KiB writes, QD  64: {rate:5.2} M commands/s, a program every 8 of them");
}

fn median(mut round: impl FnMut() -> f64) -> f64 {
    let mut rates: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    rates.sort_by(f64::total_cmp);
    rates[ROUNDS / 2]
}

fn drive() -> Controller {
    let timing = Timing {
        read_ns: 60_000,
        program_ns: 600_000,
        cache_register: true,
        erase_ns: 3_000_000,
        channel_bytes_per_s: 400_000_000,
        copy_bytes_per_s: 0,
        link_read_bytes_per_s: 3_200_000_000,
        link_write_bytes_per_s: 3_200_000_000,
        read_firmware_ns: 25_000,
        write_firmware_ns: 10_000,
        commands_per_s: 1_000_000,
        host_ns: 10_000,
        buffer_bytes: 64 << 20,
        reads_overtake: true,
        suspension: None,
        host_queues: None,
    };
    Controller::new(&timing, 8, 64).expect("a drive")
}

/// Runs commands in a closed loop; millions of them a second.
#[allow(clippy::cast_precision_loss)]
fn closed_loop(depth: u32, count: u64, mut start: impl FnMut(&mut Controller, Start)) -> f64 {
    let mut drive = drive();
    let clock = Clock::real();
    let began = clock.now();
    let mut finished = (0..depth).map(|ticket| (Ticket(ticket), Nanos(0))).collect::<Vec<_>>();
    let mut ended = 0;
    while ended < count {
        for (ticket, now) in finished.drain(..) {
            ended += 1;
            start(&mut drive, Start { now, ticket });
        }
        while finished.is_empty() {
            let next = drive.next_event().expect("commands in flight");
            drive.advance(next, &mut finished);
        }
    }
    ended as f64 / (clock.now() - began).as_secs_f64() / 1e6
}

fn reads(depth: u32) -> f64 {
    let mut rng = Rng::new(1);
    closed_loop(depth, READS, |drive, start| {
        let die = u32::try_from(rng.below(64)).expect("a die");
        drive.read(
            start,
            [Part { place: Place { die, program: 0 }, bytes: 4096, page: None }],
            4096,
        );
    })
}

fn writes(depth: u32) -> f64 {
    let mut count = 0;
    closed_loop(depth, WRITES, |drive, start| {
        let end = drive.write(start, 4096) + 4096;
        count += 1;
        if count % 8 == 0 {
            let program = count / 8;
            let (place, bytes) = (Place { die: program % 64, program }, 8 * 4096);
            let host = Some(HostBytes { count: bytes, end });
            drive.program(start.now, Program { place, bytes, host, copies: None });
        }
    })
}
