//! The drive in time, against closed forms and against an independent simulation.

use esker_base::{Nanos, Rng};
use esker_flash::emulate::{Start, Ticket};
use esker_flash::timing::{Controller, HostBytes, Part, Place, Program, Suspension, Timing};

/// A host-managed board: no firmware, a host that polls.
fn board() -> Timing {
    Timing {
        read_ns: 60_000,
        program_ns: 1_950_000,
        cache_register: true,
        erase_ns: 3_000_000,
        channel_bytes_per_s: 400_000_000,
        copy_bytes_per_s: 0,
        link_read_bytes_per_s: 5_800_000_000,
        link_write_bytes_per_s: 5_800_000_000,
        read_firmware_ns: 0,
        write_firmware_ns: 0,
        commands_per_s: 0,
        host_ns: 5_000,
        buffer_bytes: 64 << 20,
        reads_overtake: false,
        suspension: None,
        host_queues: None,
    }
}

/// A conventional drive with the same dies.
fn conventional() -> Timing {
    Timing {
        read_firmware_ns: 25_000,
        write_firmware_ns: 10_000,
        host_ns: 10_000,
        link_read_bytes_per_s: 3_200_000_000,
        link_write_bytes_per_s: 3_200_000_000,
        ..board()
    }
}

/// A drive and the commands in flight.
struct Host {
    drive: Controller,
    started: Vec<Nanos>,
    now: Nanos,
    finished: Vec<(Ticket, Nanos)>,
}

impl Host {
    fn new(timing: &Timing, channels: u32, dies: u32) -> Host {
        let drive = Controller::new(timing, channels, dies).unwrap();
        Host { drive, started: Vec::new(), now: Nanos(0), finished: Vec::new() }
    }

    fn start(&mut self, ticket: u32) -> Start {
        let index = ticket as usize;
        self.started.resize(self.started.len().max(index + 1), Nanos(0));
        self.started[index] = self.now;
        Start { now: self.now, ticket: Ticket(ticket) }
    }

    fn read(&mut self, ticket: u32, die: u32, bytes: u32) {
        let start = self.start(ticket);
        self.drive.read(start, [part(die, bytes)], bytes);
    }

    /// Runs to the next end of commands: their tickets and latencies.
    fn next(&mut self) -> Vec<(u32, u64)> {
        while self.finished.is_empty() {
            self.now = self.drive.next_event().expect("commands in flight");
            self.drive.advance(self.now, &mut self.finished);
        }
        let started = &self.started;
        let latency =
            |(Ticket(ticket), end): (Ticket, Nanos)| (ticket, end.0 - started[ticket as usize].0);
        self.finished.drain(..).map(latency).collect()
    }

    /// Runs until nothing happens any more.
    fn settle(&mut self) {
        while let Some(next) = self.drive.next_event() {
            self.now = next;
            self.drive.advance(next, &mut self.finished);
        }
    }
}

fn part(die: u32, bytes: u32) -> Part {
    Part { place: Place { die, program: u32::MAX }, bytes, page: None }
}

/// Observations of a closed loop.
struct Seen {
    latencies_ns: Vec<u64>,
    per_s: f64,
}

impl Seen {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn us(&self, quantile: f64) -> f64 {
        let rank = (self.latencies_ns.len() as f64 * quantile) as usize;
        self.latencies_ns[rank.min(self.latencies_ns.len() - 1)] as f64 / 1000.0
    }
}

/// Reads of `bytes` bytes in a closed loop, `depth` in flight, from dies chosen by `die_of`.
#[allow(clippy::cast_precision_loss)]
fn closed_loop(
    host: &mut Host,
    depth: u32,
    bytes: u32,
    count: usize,
    mut die_of: impl FnMut() -> u32,
) -> Seen {
    for ticket in 0..depth {
        host.read(ticket, die_of(), bytes);
    }
    let warm_up = count / 10;
    let (mut latencies_ns, mut ended, mut began) = (Vec::new(), 0, Nanos(0));
    while latencies_ns.len() < count {
        for (ticket, latency_ns) in host.next() {
            ended += 1;
            match ended {
                n if n < warm_up => {}
                n if n == warm_up => began = host.now,
                _ => latencies_ns.push(latency_ns),
            }
            host.read(ticket, die_of(), bytes);
        }
    }
    let per_s = latencies_ns.len() as f64 / (host.now - began).as_secs_f64();
    latencies_ns.sort_unstable();
    Seen { latencies_ns, per_s }
}

fn random_reads(timing: &Timing, channels: u32, dies: u32, depth: u32, bytes: u32) -> Seen {
    let mut rng = Rng::new(u64::from(depth));
    let die_of = || u32::try_from(rng.below(u64::from(dies))).unwrap();
    closed_loop(&mut Host::new(timing, channels, dies), depth, bytes, 400_000, die_of)
}

/// Latencies of separate simulations, written from the same description with other means, to
/// which this one must agree to 1 %, and to 2 % in the tail, above which there are few.
/// Rates follow from latencies by Little's law.
#[test]
#[allow(clippy::cast_precision_loss)]
fn a_host_managed_board_has_the_latencies_of_an_independent_simulation() {
    let table = [
        (1, [75.9, 75.9, 75.9, 75.9]),
        (16, [75.9, 75.9, 125.0, 142.0]),
        (32, [75.9, 81.7, 134.0, 174.0]),
        (64, [78.3, 91.0, 159.0, 208.0]),
        (128, [92.9, 125.0, 220.0, 300.0]),
    ];
    for (depth, expected) in table {
        let seen = random_reads(&board(), 16, 256, depth, 4096);
        for (quantile, expected) in [0.5, 0.8, 0.99, 0.999].into_iter().zip(expected) {
            let tolerance = if quantile > 0.9 { 0.02 } else { 0.01 };
            near(seen.us(quantile), expected, tolerance, &format!("QD {depth}, p{quantile}"));
        }
        let mean_ns = seen.latencies_ns.iter().sum::<u64>() as f64 / seen.latencies_ns.len() as f64;
        near(seen.per_s, f64::from(depth) * 1e9 / mean_ns, 0.002, &format!("QD {depth}, rate"));
    }
}

/// The same without a cache register, where a die is busy until its page is carried away.
#[test]
fn a_die_without_cache_register_waits_for_the_channel() {
    let timing = Timing { cache_register: false, ..board() };
    for (depth, expected) in [(16, [75.9, 75.9, 135.9]), (128, [90.7, 135.8, 276.5])] {
        let seen = random_reads(&timing, 16, 256, depth, 4096);
        for (quantile, expected) in [0.5, 0.8, 0.99].into_iter().zip(expected) {
            near(seen.us(quantile), expected, 0.02, &format!("QD {depth}, p{quantile}"));
        }
    }
}

/// The same for a conventional drive, where the 80th percentile is known.
#[test]
fn a_conventional_drive_has_the_latencies_of_an_independent_simulation() {
    let one = random_reads(&conventional(), 8, 64, 1, 4096);
    assert_eq!(one.latencies_ns[0], 25_000 + 60_000 + 10_240 + 1_280 + 10_000);
    assert_eq!(one.latencies_ns[0], one.latencies_ns[one.latencies_ns.len() - 1]);
    let table = [(8, 64, 32, 124.0), (8, 64, 64, 160.0), (8, 64, 128, 235.0)];
    for (channels, dies, depth, p80) in
        table.into_iter().chain([(16, 128, 64, 126.0), (16, 128, 128, 184.0)])
    {
        let seen = random_reads(&conventional(), channels, dies, depth, 4096);
        near(seen.us(0.8), p80, 0.01, &format!("{dies} dies, QD {depth}"));
    }
}

#[test]
fn scans_are_bound_by_the_link_or_by_the_pages_in_flight() {
    let mut next = 0;
    let mut striped = |depth| {
        let die_of = || {
            next = (next + 1) % 256;
            next
        };
        closed_loop(&mut Host::new(&board(), 16, 256), depth, 16 << 10, 100_000, die_of)
    };
    near(striped(32).per_s * 16384.0 / 1e9, 4.82, 0.01, "QD 32 striped, GB/s");
    near(striped(48).per_s * 16384.0 / 1e9, 5.8, 0.001, "QD 48 striped, GB/s");
    for (depth, gigabytes) in [(48, 4.72), (64, 5.24), (128, 5.8)] {
        let seen = random_reads(&board(), 16, 256, depth, 16 << 10);
        near(seen.per_s * 16384.0 / 1e9, gigabytes, 0.01, &format!("QD {depth} random, GB/s"));
    }
}

/// Page reads of one die, one channel or one link are a single server; the slowest is the bound.
#[test]
#[allow(clippy::cast_precision_loss)]
fn throughput_is_that_of_the_slowest_stage() {
    let plain = Timing { host_ns: 0, ..board() };
    // One die without a cache register: array, then transfer.
    let one_die = Timing { cache_register: false, ..plain.clone() };
    near(random_reads(&one_die, 1, 1, 8, 16 << 10).per_s, 1e9 / (60_000.0 + 40_960.0), 1e-4, "die");
    // With one, both at once.
    near(random_reads(&plain, 1, 1, 8, 16 << 10).per_s, 1e9 / 60_000.0, 1e-4, "array");
    // Sixteen dies on one channel.
    near(random_reads(&plain, 1, 16, 256, 16 << 10).per_s, 1e9 / 40_960.0, 1e-4, "channel");
    // A link slower than its channels.
    let linked = Timing { link_read_bytes_per_s: 1_000_000_000, ..plain.clone() };
    near(random_reads(&linked, 16, 256, 128, 4096).per_s, 1e9 / 4096.0, 1e-4, "link");
    // Firmware that starts 200,000 commands a second.
    let slow = Timing { commands_per_s: 200_000, read_firmware_ns: 20_000, ..plain };
    near(random_reads(&slow, 16, 256, 128, 4096).per_s, 200_000.0, 1e-4, "firmware");
}

/// M/D/1: commands that arrive at random at a server with constant service time wait
/// `load / (2 (1 - load))` service times on average (Pollaczek and Khinchine).
#[test]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn a_die_under_random_arrivals_waits_as_the_formula_says() {
    let timing = Timing {
        cache_register: false,
        channel_bytes_per_s: u64::MAX,
        copy_bytes_per_s: 0,
        link_read_bytes_per_s: u64::MAX,
        host_ns: 0,
        ..board()
    };
    for load in [0.3, 0.6, 0.8] {
        let mut host = Host::new(&timing, 1, 1);
        let mut rng = Rng::new(1);
        let (mut arrival, mut total, mut ended) = (0.0, 0, 0);
        let mut free: Vec<u32> = (0..10_000).collect();
        for _ in 0..400_000 {
            arrival += -(1.0 - rng.unit()).ln() * 60_000.0 / load;
            let now = Nanos(arrival as u64);
            host.drive.advance(now, &mut host.finished);
            host.now = now;
            for (Ticket(ticket), end) in host.finished.drain(..) {
                total += end.0 - host.started[ticket as usize].0;
                ended += 1;
                free.push(ticket);
            }
            host.read(free.pop().unwrap(), 0, 4096);
        }
        let mean_ns = total as f64 / f64::from(ended);
        let expected = 60_000.0 * (1.0 + load / (2.0 * (1.0 - load)));
        near(mean_ns, expected, 0.02, &format!("load {load}"));
    }
}

/// Writes of 64 KiB, each carried by one program, in a closed loop.
#[test]
fn sustained_writes_run_at_the_rate_of_the_dies_and_the_buffer_never_holds_more_than_its_size() {
    let timing = Timing { buffer_bytes: 1 << 20, ..board() };
    let (dies, bytes) = (8, 64 << 10);
    let mut host = Host::new(&timing, 8, dies);
    let mut issued = 0;
    let mut write = |host: &mut Host, ticket| {
        let start = host.start(ticket);
        let end = host.drive.write(start, bytes) + u64::from(bytes);
        let place = Place { die: issued % dies, program: issued };
        issued += 1;
        let data = Some(HostBytes { count: bytes, end });
        host.drive.program(host.now, Program { place, bytes, host: data, copies: None });
    };
    (0..32).for_each(|ticket| write(&mut host, ticket));
    let (mut ended, mut began) = (0u32, Nanos(0));
    let mut fullest = 0;
    while ended < 4000 {
        for (ticket, _) in host.next() {
            ended += 1;
            if ended == 1000 {
                began = host.now;
            }
            write(&mut host, ticket);
        }
        fullest = fullest.max(host.drive.buffered_bytes());
        assert!(fullest <= 1 << 20, "{fullest} bytes in the buffer");
    }
    assert_eq!(fullest, 1 << 20);
    // A die takes its transfer and its program in turn.
    let program_s = (163_840.0 + 1_950_000.0) / 1e9;
    let per_s = 3000.0 / (host.now - began).as_secs_f64();
    near(per_s, 8.0 / program_s, 0.01, "programs a second");
    host.settle();
    assert_eq!(host.drive.buffered_bytes(), 0);
}

#[test]
fn a_write_is_finished_when_it_is_in_the_buffer_and_waits_for_room_in_line() {
    let timing = Timing { buffer_bytes: 64 << 10, host_ns: 0, ..board() };
    let mut host = Host::new(&timing, 1, 1);
    let bytes = 64 << 10;
    for ticket in 0..2 {
        let start = host.start(ticket);
        let end = host.drive.write(start, bytes) + u64::from(bytes);
        let (place, data) = (Place { die: 0, program: ticket }, HostBytes { count: bytes, end });
        let program = Program { place, bytes, host: Some(data), copies: None };
        host.drive.program(Nanos(0), program);
    }
    let link_ns = 11_299; // 64 KiB at 5.8 GB/s
    assert_eq!(host.next(), [(0, link_ns)]);
    // The second waits until the first is on the media.
    let on_media_ns = link_ns + 163_840 + 1_950_000;
    assert_eq!(host.next(), [(1, on_media_ns + link_ns)]);
    // Its data is read from the buffer while its program is under way, and then from the die.
    let read = |host: &mut Host| {
        let start = host.start(0);
        let part = Part { place: Place { die: 0, program: 1 }, bytes: 4096, page: None };
        host.drive.read(start, [part], 4096);
        host.next()
    };
    assert_eq!(read(&mut host), [(0, 706)]);
    host.settle();
    assert_eq!(read(&mut host), [(0, 60_000 + 10_240 + 706)]);
}

#[test]
fn a_write_larger_than_the_buffer_passes_through_and_a_buffer_too_small_does_not_block() {
    let timing = Timing { buffer_bytes: 100_000, host_ns: 0, ..board() };
    let mut host = Host::new(&timing, 4, 4);
    let start = host.start(0);
    let position = host.drive.write(start, 1 << 20);
    for (index, die) in (0..16).zip([0, 1, 2, 3].into_iter().cycle()) {
        let end = position + u64::from(index + 1) * (64 << 10);
        let (place, bytes) = (Place { die, program: index }, 64 << 10);
        let data = Some(HostBytes { count: bytes, end });
        host.drive.program(Nanos(0), Program { place, bytes, host: data, copies: None });
    }
    // 100,000 bytes hold one program and a half, so programs run one after the other.
    let (_, latency_ns) = host.next()[0];
    assert!(latency_ns > 14 * 2_113_840, "{latency_ns}");
    host.settle();
    assert_eq!(host.drive.buffered_bytes(), 0);
    // Ten handles' worth of pages that no program carries yet are more than it holds.
    for ticket in 0..10 {
        let start = host.start(ticket);
        host.drive.write(start, 32 << 10);
    }
    let mut ended = 0;
    while ended < 10 {
        ended += host.next().len();
    }
    assert_eq!(host.drive.buffered_bytes(), 10 * (32 << 10));
}

#[test]
fn a_program_of_copies_waits_until_they_are_read() {
    let mut host = Host::new(&Timing { host_ns: 0, ..board() }, 2, 2);
    let copies = host.drive.copies();
    for program in 0..3 {
        host.drive.copy_read(Nanos(0), Place { die: 0, program }, 16 << 10, &copies);
    }
    let place = Place { die: 1, program: 7 };
    let program = Program { place, bytes: 48 << 10, host: None, copies: Some(copies) };
    host.drive.program(Nanos(0), program);
    host.settle();
    // Three reads, the transfer of the last, then that of the program.
    assert_eq!(host.now.0, 3 * 60_000 + 40_960 + 122_880 + 1_950_000);
    host.drive.erase(host.now, 0, 2);
    let began = host.now;
    host.settle();
    assert_eq!((host.now - began).as_nanos(), 6_000_000);
}

#[test]
fn reads_wait_overtake_or_suspend_as_told() {
    let waits = |timing: &Timing| {
        let mut host = Host::new(timing, 1, 1);
        host.drive.erase(Nanos(0), 0, 1);
        host.drive.erase(Nanos(0), 0, 1);
        host.now = Nanos(1_000_000);
        host.drive.advance(host.now, &mut host.finished);
        host.read(0, 0, 4096);
        let latency_ns = host.next()[0].1;
        host.settle();
        (latency_ns, host.now.0)
    };
    let base = Timing { host_ns: 0, ..board() };
    let read_ns = 60_000 + 10_240 + 706;
    assert_eq!(waits(&base), (5_000_000 + read_ns, 6_000_000 + read_ns));
    let overtake = Timing { reads_overtake: true, ..base };
    assert_eq!(waits(&overtake), (2_000_000 + read_ns, 6_060_000));
    let suspension = Some(Suspension { overhead_ns: 20_000, most: 1 });
    let suspend = Timing { suspension, ..overtake };
    assert_eq!(waits(&suspend), (20_000 + read_ns, 6_080_000));
}

#[test]
fn an_erasure_is_suspended_no_more_often_than_allowed() {
    let suspension = Some(Suspension { overhead_ns: 0, most: 3 });
    let timing = Timing { reads_overtake: true, suspension, host_ns: 0, ..board() };
    let mut host = Host::new(&timing, 1, 1);
    host.drive.erase(Nanos(0), 0, 1);
    host.now = Nanos(1000);
    host.drive.advance(host.now, &mut host.finished);
    let mut latencies = Vec::new();
    for _ in 0..5 {
        host.read(0, 0, 4096);
        latencies.push(host.next()[0].1);
        host.now = host.now + std::time::Duration::from_micros(1);
        host.drive.advance(host.now, &mut host.finished);
    }
    let quick = 60_000 + 10_240 + 706;
    assert_eq!(latencies[..3], [quick; 3]);
    assert!(latencies[3] > 2_000_000, "{latencies:?}");
    assert_eq!(latencies[4], quick);
}

#[test]
fn parameters_that_make_no_drive_are_refused() {
    let refused = |timing: Timing| Controller::new(&timing, 4, 4).map(drop).unwrap_err();
    let text = refused(Timing { channel_bytes_per_s: 0, ..board() }).to_string();
    assert!(text.contains("at least one byte a second"), "{text}");
    refused(Timing { buffer_bytes: 0, ..board() });
    let suspension = Some(Suspension { overhead_ns: 0, most: 1 });
    refused(Timing { suspension, ..board() });
    assert!(Controller::new(&board(), 8, 4).is_err() && Controller::new(&board(), 0, 4).is_err());
}

fn near(value: f64, expected: f64, tolerance: f64, what: &str) {
    let off = value / expected - 1.0;
    assert!(off.abs() <= tolerance, "{what}: {value}, expected {expected} within {tolerance}");
}

/// Runs events in the steps in which a waiting thread does. Nothing finishes before it is awake.
fn lead(drive: &mut Controller, to: Nanos, finished: &mut Vec<(Ticket, Nanos)>) {
    while let Some(next) = drive.next_finish() {
        let before = finished.len();
        drive.advance(next.min(to), finished);
        assert!(finished[before..].iter().all(|(_, end)| *end >= next), "before {next:?}");
        if next > to {
            return;
        }
    }
}

/// Random commands and operations, with every combination of the dies' abilities: two streams of
/// host writes that share a buffer, copies, erasures and reads. When each command finished.
fn trace(seed: u64) -> Vec<(Ticket, Nanos)> {
    const UNIT: u32 = 32 << 10;
    let mut rng = Rng::new(seed);
    let reads_overtake = rng.chance(1, 2);
    let suspension = Suspension { overhead_ns: rng.below(30_000), most: 2 };
    let timing = Timing {
        cache_register: rng.chance(1, 2),
        reads_overtake,
        suspension: (reads_overtake && rng.chance(1, 2)).then_some(suspension),
        commands_per_s: rng.below(2) * 300_000,
        buffer_bytes: u64::from(UNIT) * (3 + rng.below(6)),
        program_ns: 300_000,
        ..conventional()
    };
    let mut drive = Controller::new(&timing, 2, 8).unwrap();
    let (mut free, mut finished): (Vec<u32>, Vec<_>) = ((0..48).collect(), Vec::new());
    let (mut ended, mut started, mut program) = (0, 0, 0);
    let mut held = [0u32; 2];
    let mut now = Nanos(0);
    for _ in 0..3000 {
        let die = u32::try_from(rng.below(8)).unwrap();
        let ticket = free.pop();
        let start = ticket.map(|ticket| Start { now, ticket: Ticket(ticket) });
        match (rng.below(10), start) {
            (0..4, Some(start)) => {
                let place = Place { die, program: program.max(5) - u32::from(rng.chance(1, 2)) };
                drive.read(
                    start,
                    [Part { place, bytes: 4096, page: None }, part(7 - die, 4096)],
                    12_288,
                );
            }
            (4..7, Some(start)) => {
                // A write ends a unit of its stream now and then; its program carries all of it.
                let stream = usize::from(rng.chance(1, 2));
                let end = drive.write(start, 8192) + 8192;
                held[stream] += 8192;
                if held[stream] == UNIT {
                    held[stream] = 0;
                    program += 1;
                    let host = Some(HostBytes { count: UNIT, end });
                    let place = Place { die, program };
                    drive.program(now, Program { place, bytes: UNIT, host, copies: None });
                }
            }
            (7, Some(start)) => drive.command(start),
            (8, other) => {
                free.extend(other.map(|start| start.ticket.0));
                let copies = drive.copies();
                for _ in 0..rng.below(4) {
                    let die = u32::try_from(rng.below(8)).unwrap();
                    drive.copy_read(now, Place { die, program }, 16 << 10, &copies);
                }
                program += 1;
                let (place, copies) = (Place { die, program }, Some(copies));
                drive.program(now, Program { place, bytes: UNIT, host: None, copies });
                drive.erase(now, die, 1);
            }
            (_, other) => {
                free.extend(other.map(|start| start.ticket.0));
                now = now + std::time::Duration::from_nanos(rng.below(500_000));
            }
        }
        if ticket.is_some() {
            started += 1;
        }
        lead(&mut drive, now, &mut finished);
        let seen: Vec<_> = finished[ended..].to_vec();
        ended = finished.len();
        free.extend(seen.iter().map(|(Ticket(ticket), _)| *ticket));
        assert!(drive.buffered_bytes() <= timing.buffer_bytes, "seed {seed}");
    }
    assert!(started > 1000);
    lead(&mut drive, Nanos(u64::MAX), &mut finished);
    free.extend(finished[ended..].iter().map(|(Ticket(ticket), _)| *ticket));
    free.sort_unstable();
    assert_eq!(free, (0..48).collect::<Vec<_>>(), "seed {seed}: every command ends once");
    assert_eq!(drive.buffered_bytes(), u64::from(held[0] + held[1]), "seed {seed}");
    assert!(finished.is_sorted_by_key(|(_, end)| *end), "seed {seed}");
    finished
}

#[test]
fn every_command_ends_once_and_the_buffer_holds_what_it_may() {
    for seed in 0..100 {
        trace(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_times_on_every_thread() {
    let expected = trace(3);
    assert_ne!(expected, trace(4));
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4)
            .map(|_| esker_base::thread::spawn_scoped(scope, "trace", || trace(3)).unwrap())
            .collect();
        for run in runs {
            assert_eq!(run.join().unwrap(), expected);
        }
    });
}
