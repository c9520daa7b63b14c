//! The host's queues over dies: times by hand, the order of a plain queue, and the distribution that a
//! separate simulation has.

use esker_base::{Nanos, Rng};
use esker_flash::emulate::{Start, Ticket};
use esker_flash::timing::{
    Controller, HostBytes, HostQueues, NandPage, Part, Place, Program, Timing,
};

const QUEUES: HostQueues =
    HostQueues { window: 64, in_flight: 0, cached_pages: 16, copy_bytes_per_s: 4_000_000_000 };

/// The profile's times: tR 60 µs, 400 MB/s, 5.5 GB/s, 5 µs to find a completion.
fn board(queues: Option<HostQueues>) -> Timing {
    Timing {
        read_ns: 60_000,
        program_ns: 1_575_000,
        cache_register: false,
        erase_ns: 3_000_000,
        channel_bytes_per_s: 400_000_000,
        copy_bytes_per_s: 0,
        link_read_bytes_per_s: 5_500_000_000,
        link_write_bytes_per_s: 4_300_000_000,
        read_firmware_ns: 0,
        write_firmware_ns: 0,
        commands_per_s: 0,
        host_ns: 5_000,
        buffer_bytes: 32 << 20,
        reads_overtake: true,
        suspension: None,
        host_queues: queues,
    }
}

/// 4 KiB over a channel, and over the link; 16 KiB over both.
const SMALL: (u64, u64) = (10_240, 745);
const WHOLE: (u64, u64) = (40_960, 2_979);
/// A read of 4 KiB that nothing delays.
const CLEAN: u64 = 60_000 + SMALL.0 + SMALL.1 + 5_000;

struct Bed {
    drive: Controller,
    finished: Vec<(Ticket, Nanos)>,
}

impl Bed {
    fn new(timing: &Timing, channels: u32, dies: u32) -> Bed {
        Bed { drive: Controller::new(timing, channels, dies).unwrap(), finished: Vec::new() }
    }

    /// Reads 4 KiB of a NAND page.
    fn read(&mut self, now: u64, ticket: u32, die: u32, page: u32) {
        self.drive.advance(Nanos(now), &mut self.finished);
        let place = Place { die, program: u32::MAX };
        let page = Some(NandPage { number: page, bytes: 16 << 10 });
        let start = Start { now: Nanos(now), ticket: Ticket(ticket) };
        self.drive.read(start, [Part { place, bytes: 4096, page }], 4096);
    }

    /// Runs to the end: ticket, when it went to its die, when the host found it.
    fn run(&mut self) -> Vec<(u32, u64, u64)> {
        while let Some(next) = self.drive.next_event() {
            self.drive.advance(next, &mut self.finished);
        }
        let drive = &self.drive;
        let mut all: Vec<_> = self
            .finished
            .drain(..)
            .map(|(ticket, end)| (ticket.0, drive.issued(ticket).0, end.0))
            .collect();
        all.sort_unstable();
        all
    }
}

#[test]
fn a_read_waits_in_the_host_until_its_die_is_free_and_others_overtake_it() {
    let mut bed = Bed::new(&board(Some(QUEUES)), 2, 4);
    bed.read(0, 0, 0, 100);
    bed.read(0, 1, 0, 200);
    bed.read(0, 2, 1, 300);
    // The die is free when the channel has its page, 5.7 µs before the host has found it.
    let free = 60_000 + SMALL.0;
    assert_eq!(bed.run(), [(0, 0, CLEAN), (1, free, free + CLEAN), (2, 0, CLEAN + SMALL.1)]);
}

#[test]
fn no_more_reads_than_the_window_are_held_back() {
    for (window, issued) in [(0, [0, 0, 0]), (1, [0, 0, 140_480]), (2, [0, 70_240, 140_480])] {
        let mut bed = Bed::new(&board(Some(HostQueues { window, ..QUEUES })), 1, 2);
        (0..3).for_each(|ticket| bed.read(0, ticket, 0, 100 * (ticket + 1)));
        let seen = bed.run();
        assert_eq!(seen.iter().map(|one| one.1).collect::<Vec<_>>(), issued, "window {window}");
        // When it goes changes nothing about when it ends.
        assert_eq!(seen[2].2, 2 * 70_240 + CLEAN, "window {window}");
    }
}

#[test]
fn a_bound_of_reads_at_the_dies_chooses_the_channel_that_carries_least() {
    let queues = HostQueues { in_flight: 2, ..QUEUES };
    let mut bed = Bed::new(&board(Some(queues)), 2, 8);
    // Die 0 and then die 2 are on channel 0, die 1 is on the other one.
    bed.read(0, 0, 0, 100);
    bed.read(0, 1, 1, 200);
    bed.read(0, 2, 2, 300);
    bed.read(0, 3, 3, 400);
    bed.read(0, 4, 4, 500);
    let seen = bed.run();
    assert_eq!(seen[..2], [(0, 0, CLEAN), (1, 0, CLEAN + SMALL.1)]);
    // When one has left its die, another one goes: first to the channel that has none.
    assert_eq!([seen[2].1, seen[3].1, seen[4].1], [70_240, 70_240, 140_480]);
}

#[test]
fn neighbours_share_one_read_of_their_page() {
    let mut bed = Bed::new(&board(Some(QUEUES)), 1, 1);
    // The first goes alone; the second shows that neighbours are wanted; the third comes with it.
    (0..3).for_each(|ticket| bed.read(0, ticket, 0, 7));
    let whole = 70_240 + 60_000 + WHOLE.0 + WHOLE.1 + 5_000;
    assert_eq!(bed.run(), [(0, 0, CLEAN), (1, 70_240, whole), (2, 0, whole)]);
    // Later the page is in memory, until it is erased.
    let copy = 4096 * 1_000_000_000 / 4_000_000_000;
    bed.read(1_000_000, 3, 0, 7);
    assert_eq!(bed.run(), [(3, 1_000_000, 1_000_000 + copy)]);
    bed.drive.forget(&(4..8));
    bed.read(2_000_000, 4, 0, 7);
    let again = 2_000_000 + 60_000 + WHOLE.0 + WHOLE.1 + 5_000;
    assert_eq!(bed.run(), [(4, 2_000_000, again)]);
}

#[test]
fn the_page_after_one_that_came_whole_does_too_and_others_do_not() {
    let clean = |now: u64| now + CLEAN;
    let whole = |now: u64| now + 60_000 + WHOLE.0 + WHOLE.1 + 5_000;
    let ends = |cached_pages: u32| -> Vec<u64> {
        let mut bed = Bed::new(&board(Some(HostQueues { cached_pages, ..QUEUES })), 4, 4);
        // A page, its neighbour, the first one again, its neighbour again, and one further on.
        for (ticket, page) in (0..).zip([20, 21, 20, 21, 22, 24]) {
            bed.read(200_000 * u64::from(ticket), ticket, page % 4, page);
        }
        bed.run().iter().map(|one| one.2).collect()
    };
    let expected = [
        clean(0),
        clean(200_000),
        whole(400_000),
        whole(600_000),
        whole(800_000),
        clean(1_000_000),
    ];
    assert_eq!(ends(16), expected);
    // Without memory for them no page comes whole.
    assert_eq!(ends(0), [0, 1, 2, 3, 4, 5].map(|n| clean(200_000 * n)));
}

#[test]
fn a_page_that_is_erased_while_it_comes_serves_only_those_who_wait_for_it() {
    let mut bed = Bed::new(&board(Some(QUEUES)), 1, 1);
    (0..3).for_each(|ticket| bed.read(0, ticket, 0, 7));
    bed.drive.advance(Nanos(0), &mut bed.finished);
    bed.drive.forget(&(7..8));
    bed.read(1_000, 3, 0, 7);
    let seen = bed.run();
    let whole = 70_240 + 60_000 + WHOLE.0 + WHOLE.1 + 5_000;
    assert_eq!((seen[1].2, seen[2].2), (whole, whole));
    assert_eq!(seen[3].1, 70_240 + 60_000 + WHOLE.0);
}

#[test]
fn a_read_that_is_held_back_goes_before_a_program_that_waits() {
    let mut bed = Bed::new(&board(Some(QUEUES)), 1, 1);
    let bytes = 32 << 10;
    for ticket in 10..12 {
        let start = Start { now: Nanos(0), ticket: Ticket(ticket) };
        let end = bed.drive.write(start, bytes) + u64::from(bytes);
        let host = Some(HostBytes { count: bytes, end });
        let place = Place { die: 0, program: ticket };
        bed.drive.program(Nanos(0), Program { place, bytes, host, copies: None });
    }
    bed.read(100_000, 0, 0, 7);
    let arrived = 7_620; // 32 KiB at 4.3 GB/s
    let program = arrived + 81_920 + 1_575_000;
    assert_eq!(bed.run()[0], (0, program, program + CLEAN));
}

/// Under any load: a read that waits in the host instead of at the die ends no later, and those of a die go
/// in the order in which they came.
#[test]
fn holding_reads_back_costs_none_of_them_anything() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let window = u32::try_from(rng.below(70)).unwrap();
        let cache_register = rng.chance(1, 2);
        let run = |queues: Option<HostQueues>| {
            let mut rng = Rng::new(1000 + seed);
            let timing = Timing { cache_register, ..board(queues) };
            let mut bed = Bed::new(&timing, 4, 16);
            let (mut now, mut dies) = (0, Vec::new());
            for ticket in 0..400 {
                now += rng.below(9_000);
                let die = u32::try_from(rng.below(16)).unwrap();
                dies.push(die);
                bed.read(now, ticket, die, 10 * ticket);
            }
            (bed.run(), dies)
        };
        let (plain, dies) = run(None);
        let queues = HostQueues { window, cached_pages: 0, ..QUEUES };
        let (held, _) = run(Some(queues));
        let mut last = [0; 16];
        for (one, other) in held.iter().zip(&plain) {
            assert_eq!((one.0, one.2), (other.0, other.2), "seed {seed}, window {window}");
            let die = dies[one.0 as usize] as usize;
            assert!(last[die] <= one.1, "seed {seed}: {} before its turn", one.0);
            last[die] = one.1;
        }
    }
}

/// Latencies of a closed loop, in nanoseconds: from issue and from submission.
fn closed_loop(timing: &Timing, depth: u32, reads: usize) -> [Vec<u64>; 2] {
    let mut bed = Bed::new(timing, 16, 256);
    let mut rng = Rng::new(7);
    let mut started = vec![0; depth as usize];
    let mut die = || u32::try_from(rng.below(256)).unwrap();
    let mut page = 0u32;
    for ticket in 0..depth {
        page += 10;
        let die = die();
        bed.read(0, ticket, die, page);
    }
    let mut seen = [Vec::new(), Vec::new()];
    let mut ended = 0;
    while seen[0].len() < reads {
        let now = bed.drive.next_event().unwrap();
        bed.drive.advance(now, &mut bed.finished);
        for (Ticket(ticket), end) in std::mem::take(&mut bed.finished) {
            ended += 1;
            if ended > reads / 10 {
                seen[0].push(end.0 - bed.drive.issued(Ticket(ticket)).0);
                seen[1].push(end.0 - started[ticket as usize]);
            }
            page = page.wrapping_add(10) % (1 << 30);
            started[ticket as usize] = end.0;
            let die = die();
            bed.read(end.0, ticket, die, page);
        }
    }
    seen.iter_mut().for_each(|one| one.sort_unstable());
    seen
}

fn quantiles(sorted: &[u64]) -> [f64; 4] {
    [0.5, 0.8, 0.99, 0.999].map(|quantile| {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        let rank = (sorted.len() as f64 * quantile) as usize;
        #[allow(clippy::cast_precision_loss)]
        let us = sorted[rank.min(sorted.len() - 1)] as f64 / 1000.0;
        us
    })
}

fn near(value: f64, expected: f64, tolerance: f64, what: &str) {
    let off = value / expected - 1.0;
    assert!(off.abs() <= tolerance, "{what}: {value}, expected {expected} within {tolerance}");
}

/// The distribution of a separate simulation, written from the same description with other means: from issue, with
/// a cache register and 5.8 GB/s.
#[test]
fn the_window_has_the_latencies_of_an_independent_simulation() {
    let table = [
        (16, [75.9, 75.9, 85.5, 92.2]),
        (32, [75.9, 76.7, 90.4, 97.1]),
        (64, [76.7, 84.5, 101.0, 113.0]),
    ];
    for (depth, expected) in table {
        let queues = HostQueues { cached_pages: 0, ..QUEUES };
        let timing = Timing {
            cache_register: true,
            link_read_bytes_per_s: 5_800_000_000,
            ..board(Some(queues))
        };
        let [issue, _] = closed_loop(&timing, depth, 200_000);
        for (seen, expected) in quantiles(&issue).into_iter().zip(expected) {
            near(seen, expected, 0.02, &format!("{depth} at a time"));
        }
    }
}

/// The drive's purpose: from issue, the tail stays near the median.
#[test]
fn reads_at_depth_32_take_nearly_the_same_from_issue() {
    for in_flight in [0, 32] {
        let outstanding = if in_flight == 0 { 32 } else { in_flight + 64 };
        let timing = board(Some(HostQueues { in_flight, cached_pages: 0, ..QUEUES }));
        let [issue, _] = closed_loop(&timing, outstanding, 200_000);
        let [p50, _, p99, p999] = quantiles(&issue);
        assert!(p99 <= 1.2 * p50 && p999 <= 1.3 * p50, "{p50} {p99} {p999}");
    }
}
