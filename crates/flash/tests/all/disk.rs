//! Disks: their published figures come out again.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_base::units::to_usize;
use esker_base::{AlignedBuf, Clock, Lba, Rng, thread};
use esker_device::{Command, Device, MemoryDevice, Op, Port, QueuePair, Tag, conformance};
use esker_flash::disk::{Disk, DiskParameters};
use esker_flash::emulate::{Emulated, Handout, Pace};
use esker_sim::CrashRecorder;

fn profiles() -> [DiskParameters; 2] {
    [DiskParameters::sata_7200(), DiskParameters::sas_10k()]
}

fn disk(parameters: &DiskParameters, clock: &Clock) -> Emulated<Disk> {
    Disk::new(parameters, None).unwrap().emulate("disk", Pace::virtual_time(clock.clone()))
}

fn read(lba: u64, bytes: u64) -> Op {
    Op::Read { lba: Lba(lba), buf: AlignedBuf::zeroed(to_usize(bytes)) }
}

fn write(lba: u64, bytes: u64) -> Op {
    let buf = AlignedBuf::zeroed(to_usize(bytes));
    Op::Write { lba: Lba(lba), buf, placement: None, fua: false }
}

fn near(value: f64, expected: f64, tolerance: f64, what: &str) {
    let off = value / expected - 1.0;
    assert!(off.abs() <= tolerance, "{what}: {value}, expected {expected} within {tolerance}");
}

/// Seconds that a closed loop of `count` commands takes.
fn seconds(
    device: &dyn Device,
    clock: &Clock,
    depth: usize,
    count: u64,
    mut op: impl FnMut() -> Op,
) -> f64 {
    let mut queue = device.queue_pair(depth).unwrap();
    let mut commands: VecDeque<_> = VecDeque::new();
    let (mut done, mut ended) = (Vec::new(), 0);
    let began = clock.now();
    while ended < count {
        while queue.in_flight() + commands.len() < depth {
            commands.push_back(Command { tag: Tag(0), op: op() });
        }
        queue.submit(&mut commands).unwrap();
        ended += queue.wait(&mut done, None).unwrap() as u64;
        done.clear();
    }
    (clock.now() - began).as_secs_f64()
}

fn random_lba(device: &dyn Device, rng: &mut Rng) -> u64 {
    rng.below(device.geometry().capacity.0 / 8 - 1) * 8
}

/// Overhead, the average seek, half a rotation, and the transfer.
#[test]
#[allow(clippy::cast_precision_loss)]
fn a_random_access_takes_what_the_data_sheet_says() {
    for parameters in profiles() {
        for (is_read, seek) in [(true, parameters.read_seek), (false, parameters.write_seek)] {
            let clock = Clock::virtual_time();
            let device = disk(&parameters, &clock);
            let mut rng = Rng::new(1);
            let count = 10_000;
            let took_s = seconds(&device, &clock, 1, count, || {
                let lba = random_lba(&device, &mut rng);
                if is_read { read(lba, 4096) } else { write(lba, 4096) }
            });
            let rotation_ns = parameters.rotation_ns() as f64;
            let sectors = f64::from(parameters.outer_sectors + parameters.inner_sectors) / 2.0;
            let transfer_ns = rotation_ns * 8.0 / sectors;
            let expected_ns =
                (parameters.overhead_ns + seek.average_ns) as f64 + rotation_ns / 2.0 + transfer_ns;
            let what = format!("{}, reads: {is_read}", parameters.model);
            near(took_s * 1e9 / count as f64, expected_ns, 0.02, &what);
        }
    }
}

/// Tracks and the gaps between them; the published sustained rates of the 7.2k disk follow.
#[test]
#[allow(clippy::cast_precision_loss)]
fn sequential_reads_reach_the_rate_of_the_media() {
    for parameters in profiles() {
        let clock = Clock::virtual_time();
        let device = disk(&parameters, &clock);
        let end = device.geometry().capacity.0;
        for (mut lba, sectors) in
            [(0, parameters.outer_sectors), (end - 200_000, parameters.inner_sectors)]
        {
            let bytes = 128 << 10;
            seconds(&device, &clock, 1, 1, || read(lba, bytes));
            let took_s = seconds(&device, &clock, 1, 700, || {
                lba += bytes / 512;
                read(lba, bytes)
            });
            let track_ns = (parameters.rotation_ns() + parameters.switch_ns) as f64;
            let rate = f64::from(sectors) * 512.0 / track_ns * 1e3;
            near(700.0 * bytes as f64 / took_s / 1e6, rate, 0.01, parameters.model);
            if parameters.rpm == 7200 {
                let published = if lba < end / 2 { 175.0 } else { 83.0 };
                near(rate, published, 0.01, "published MB/s");
            }
        }
    }
}

/// Without read-ahead, the next command must find its first sector where the last one ended, across
/// tracks, cylinders and zones.
#[test]
#[allow(clippy::cast_precision_loss)]
fn commands_in_a_row_lose_no_rotation() {
    for parameters in profiles() {
        let clock = Clock::virtual_time();
        let parameters = DiskParameters { read_ahead_bytes: 0, zones: 5_000, ..parameters };
        let device = disk(&parameters, &clock);
        let (count, bytes, mut lba) = (2000, 64 << 10, 0);
        let took_s = seconds(&device, &clock, 4, count, || {
            lba += bytes / 512;
            read(lba - bytes / 512, bytes)
        });
        let tracks = (count * bytes) as f64 / (f64::from(parameters.outer_sectors) * 512.0);
        let track_ns = (parameters.rotation_ns() + parameters.switch_ns) as f64;
        near(took_s, tracks * track_ns / 1e9, 0.02, parameters.model);
    }
}

#[test]
fn a_sequential_write_without_cache_waits_a_rotation_for_the_next_sector() {
    let parameters = DiskParameters::sas_10k();
    let clock = Clock::virtual_time();
    let device = disk(&parameters, &clock);
    let mut lba = 0;
    let took_s = seconds(&device, &clock, 1, 1000, || {
        lba += 8;
        write(lba, 4096)
    });
    near(took_s / 1000.0, 0.006, 0.02, "seconds a write");
    let cached = DiskParameters { write_cache_bytes: 8 << 20, ..parameters };
    let device = disk(&cached, &clock);
    let took_s = seconds(&device, &clock, 1, 1000, || {
        lba += 8;
        write(lba, 4096)
    });
    assert!(took_s / 1000.0 < 0.0003, "{took_s}");
    assert!(device.geometry().volatile_write_cache);
}

#[test]
fn the_further_the_longer() {
    let parameters = DiskParameters::sata_7200();
    let clock = Clock::virtual_time();
    let device = disk(&parameters, &clock);
    let end = device.geometry().capacity.0 - 8;
    let mut port = Port::open(&device, 1).unwrap();
    let mut last_s = 0.0;
    for step in 1..=10 {
        let mut total_s = 0.0;
        for round in 0..400 {
            // From the outer edge, at the angle at which the last one ended.
            port.run(read(round * 97, 512)).unwrap();
            let began = clock.now();
            port.run(read(end / 10 * step - round * 131, 512)).unwrap();
            total_s += (clock.now() - began).as_secs_f64();
        }
        assert!(total_s > last_s, "step {step}: {total_s} after {last_s}");
        last_s = total_s;
    }
}

/// With 32 places to choose from, seek and rotation together shrink to less than half, not to
/// less than a third: the nearest of 32 is still a few milliseconds away.
#[test]
#[allow(clippy::cast_precision_loss)]
fn a_queue_of_32_lets_the_disk_choose_and_more_than_doubles_its_rate() {
    for parameters in profiles() {
        let rate = |queue_depth| {
            let clock = Clock::virtual_time();
            let device = disk(&DiskParameters { queue_depth, ..parameters.clone() }, &clock);
            let mut rng = Rng::new(2);
            3000.0
                / seconds(&device, &clock, 32, 3000, || read(random_lba(&device, &mut rng), 4096))
        };
        let (in_order, chosen) = (rate(1), rate(32));
        let factor = chosen / in_order;
        assert!((2.0..3.0).contains(&factor), "{}: {in_order} to {chosen}", parameters.model);
        assert!(rate(4) > in_order && rate(4) < chosen);
    }
}

#[test]
fn a_disk_keeps_the_contract_untimed_and_in_virtual_time() {
    let clock = Clock::virtual_time();
    for write_cache_bytes in [0, 64 << 10] {
        for pace in [Pace::untimed(), Pace::virtual_time(clock.clone())] {
            let parameters = DiskParameters { write_cache_bytes, ..DiskParameters::sas_10k() };
            let device = Disk::new(&parameters, None).unwrap().emulate("disk", pace);
            conformance::check(&device, 1, 300, 1);
            conformance::check(&device, 48, 1500, 2);
            let stats = device.stats();
            assert_eq!(stats.below[0].written_bytes, stats.written_bytes);
        }
    }
}

#[test]
fn a_flush_waits_until_the_write_cache_is_on_the_platters() {
    let clock = Clock::virtual_time();
    let parameters = DiskParameters { write_cache_bytes: 1 << 20, ..DiskParameters::sata_7200() };
    let device = disk(&parameters, &clock);
    let mut port = Port::open(&device, 1).unwrap();
    let mut rng = Rng::new(3);
    let began = clock.now();
    for _ in 0..20 {
        port.run(write(random_lba(&device, &mut rng), 4096)).unwrap();
    }
    let written_s = (clock.now() - began).as_secs_f64();
    assert!(written_s < 0.006, "{written_s}");
    port.flush().unwrap();
    let flushed_s = (clock.now() - began).as_secs_f64();
    assert!((0.08..0.25).contains(&flushed_s), "20 random writes take {flushed_s} s");
    let began = clock.now();
    port.flush().unwrap();
    assert_eq!((clock.now() - began).as_micros(), 200, "nothing is left to flush");
}

#[test]
fn a_full_write_cache_takes_writes_as_fast_as_the_platters_do() {
    let clock = Clock::virtual_time();
    let parameters = DiskParameters { write_cache_bytes: 128 << 10, ..DiskParameters::sas_10k() };
    let device = disk(&parameters, &clock);
    let mut rng = Rng::new(5);
    let mut took_ms = |count: u32| {
        let op = || write(random_lba(&device, &mut rng), 4096);
        seconds(&device, &clock, 1, u64::from(count), op) * 1000.0 / f64::from(count)
    };
    let (first, later) = (took_ms(32), took_ms(1000));
    assert!(first < 0.3, "32 writes of 4 KiB fit: {first} ms each");
    // The disk chooses among 32.
    assert!((2.0..4.5).contains(&later), "the others take {later} ms each");
}

#[test]
fn a_smaller_disk_has_the_same_access_time() {
    let clock = Clock::virtual_time();
    let full = DiskParameters::sata_7200();
    let small = full.clone().with_capacity(4 << 30).unwrap();
    let random_s = |parameters: &DiskParameters| {
        let device = disk(parameters, &clock);
        let mut rng = Rng::new(4);
        seconds(&device, &clock, 1, 4000, || read(random_lba(&device, &mut rng), 4096))
    };
    near(random_s(&small), random_s(&full), 0.02, "small over full");
    let capacity = disk(&small, &clock).geometry().capacity.bytes(512);
    assert!((4 << 30..5 << 30).contains(&capacity), "{capacity}");
}

#[test]
fn impossible_disks_are_refused() {
    let sas = DiskParameters::sas_10k;
    assert!(Disk::new(&DiskParameters { heads: 0, ..sas() }, None).is_err());
    assert!(Disk::new(&DiskParameters { switch_ns: 100_000, ..sas() }, None).is_err());
    let content: Arc<dyn Device> = Arc::new(MemoryDevice::new("small", 1 << 20, 512));
    let error = Disk::new(&sas(), Some(content)).map(drop).unwrap_err();
    assert!(error.to_string().contains("small has 2048 LBAs"), "{error}");
    assert!(!disk(&sas(), &Clock::virtual_time()).remarks().is_empty());
}

/// Random commands from one seed: when each one started and finished.
fn trace(seed: u64) -> Vec<Handout> {
    let parameters = DiskParameters { write_cache_bytes: 256 << 10, ..DiskParameters::sata_7200() };
    let clock = Clock::virtual_time();
    let device = disk(&parameters, &clock);
    let mut queues: Vec<Box<dyn QueuePair>> =
        (0..2).map(|_| device.queue_pair(40).unwrap()).collect();
    let (mut rng, mut commands, mut done) = (Rng::new(seed), VecDeque::new(), Vec::new());
    device.emulation().start_record();
    for _ in 0..1500 {
        let queue = &mut queues[to_usize(rng.below(2))];
        let lba = random_lba(&device, &mut rng);
        let op = match rng.below(10) {
            0..5 => read(lba, 4096),
            5..7 => read(lba % 4096, 8192),
            7..9 => write(lba, 4096),
            _ => Op::Flush,
        };
        commands.push_back(Command { tag: Tag(0), op });
        queue.submit(&mut commands).unwrap();
        if rng.chance(1, 2) {
            queue.wait(&mut done, None).unwrap();
        }
    }
    drop(queues);
    device.emulation().take_record()
}

#[test]
fn the_same_seed_gives_the_same_times_on_every_thread() {
    let expected = trace(3);
    assert!(expected.len() > 1000 && expected != trace(4));
    std::thread::scope(|scope| {
        let runs: Vec<_> =
            (0..2).map(|_| thread::spawn_scoped(scope, "trace", || trace(3)).unwrap()).collect();
        for run in runs {
            assert_eq!(run.join().unwrap(), expected);
        }
    });
}

/// Data on the platters is in the content: where that may forget it, so may the disk, whose users
/// send no flushes otherwise.
#[test]
fn a_disk_is_as_volatile_as_what_holds_its_content() {
    let small = DiskParameters::sas_10k().with_capacity(20 << 20).unwrap();
    let bytes = Disk::new(&small, None).unwrap().emulate("disk", Pace::untimed()).geometry();
    let bytes = bytes.capacity.bytes(small.lba_size);
    let is_volatile = |content: Arc<dyn Device>, write_cache_bytes| {
        let parameters = DiskParameters { write_cache_bytes, ..small.clone() };
        let disk = Disk::new(&parameters, Some(content)).unwrap();
        disk.emulate("disk", Pace::untimed()).geometry().volatile_write_cache
    };
    let memory = || Arc::new(MemoryDevice::new("content", bytes, small.lba_size));
    let forgetful = || CrashRecorder::new().attach(memory());
    assert!(!is_volatile(memory(), 0) && is_volatile(memory(), 1 << 20));
    assert!(is_volatile(forgetful(), 0) && is_volatile(forgetful(), 1 << 20));
}
