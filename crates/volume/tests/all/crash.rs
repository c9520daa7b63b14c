//! A crash of all devices at once, after every write, with any subset of what was not flushed: what was acknowledged is
//! there, an act that was under way is there as a whole or not at all, and nothing else is.
//!
//! Each image is opened, compared with the oracle, and counted anew (live bytes, slots). Some are opened without as
//! many drives as may be missing. Some are crashed again while they are recovered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::rig::{self, Act, Oracle, SMALL, Shape};
use esker_base::{AlignedBuf, Lba, LbaCount, Rng};
use esker_device::{Command, Device, Op, Tag};
use esker_sim::{
    CrashDevice, CrashRecorder, Effect, FaultDevice, FaultPlan, Image, ImageId, Kept, LbaSet, Plan,
    Target,
};
use esker_volume::types::id::DriveIndex;
use esker_volume::{MemberState, OpenOptions, Pool, Role};

/// A pool with two parities, and its log on two buffer devices.
const LARGE: Shape = Shape { drives: 6, buffers: 2, parity: 2, lba_size: 512, ..SMALL };
/// A pool of one drive.
const SINGLE: Shape = Shape { drives: 1, parity: 0, drive_bytes: 7 << 20, ..SMALL };
/// Memory for next to no leaf of the map: they are written all the time.
const FRUGAL: Shape = Shape { map_bytes: 1, ..SMALL };

/// One drive more than a segment is wide.
const ROOMY: Shape = Shape { drives: 5, width: Some(4), ..SMALL };
/// The same with two parities.
const DOUBLE: Shape = Shape { drives: 6, parity: 2, width: Some(5), lba_size: 512, ..SMALL };

/// How the members of a pool are after an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Members {
    /// Nothing is missing, and no chunk.
    Whole,
    /// This drive is missing, and is waited for.
    Without(usize),
    /// Something is being rebuilt or verified: nothing else may be missing.
    Changing,
}

struct Recorded {
    recorder: CrashRecorder,
    /// The content of the pool after each act; the first is empty.
    oracles: Vec<Oracle>,
    acts: Vec<Act>,
    members: Vec<Members>,
    /// Devices, spare ones included.
    devices: usize,
    /// Acts that may be under way at a time.
    under_way: usize,
}

impl Recorded {
    /// The last act that was acknowledged before an image, or one behind it that was: then all before it have happened.
    fn acknowledged(&self, image: &Image) -> Option<usize> {
        image.marks().iter().max().map(|mark| usize::try_from(*mark).unwrap())
    }

    /// The contents that the pool may have after that act.
    fn allowed(&self, acked: usize) -> Vec<&Oracle> {
        self.oracles[acked..].iter().take(1 + self.under_way).collect()
    }
}

fn record(shape: &Shape, seed: u64, count: usize) -> Recorded {
    let mut rng = Rng::new(seed);
    record_acts(shape, count, |oracle, n| oracle.random(&mut rng, 1 + n as u64 * 16, 64))
}

fn record_acts(
    shape: &Shape,
    count: usize,
    mut next: impl FnMut(&Oracle, usize) -> Act,
) -> Recorded {
    let recorder = CrashRecorder::new();
    let devices = rig::create_recorded(shape, &recorder);
    recorder.mark(0);
    let mut pool = rig::open(&devices, shape);
    let mut oracles = vec![Oracle::default()];
    let mut acts = Vec::new();
    for n in 0..count {
        let mut oracle = oracles[n].clone();
        let act = next(&oracle, n);
        pool = rig::reopened(pool, &devices, shape, &act);
        rig::run(&pool, &act).unwrap();
        oracle.apply(&act);
        oracles.push(oracle);
        acts.push(act);
        recorder.mark(n as u64 + 1);
    }
    let members = vec![Members::Whole; oracles.len()];
    let devices = shape.drives + shape.buffers;
    Recorded { recorder, oracles, acts, members, devices, under_way: 1 }
}

/// Writes that are in flight at a time.
const FLIGHTS: u64 = 5;

/// Writes of which several are in flight at a time, each in a frame of its own, and which the drives end in any order.
fn record_flights(shape: &Shape, seed: u64, rounds: u64) -> Recorded {
    let mut rng = Rng::new(seed);
    let recorder = CrashRecorder::new();
    let (drives, buffers) = rig::devices(shape);
    let mut attach = |device: Arc<dyn Device>| -> Arc<dyn Device> {
        let plan = FaultPlan::new();
        for n in 0..4000 {
            let count = u32::try_from(rng.below(5)).unwrap();
            plan.once(Target::Write, n, Effect::DelayPolls { count });
        }
        recorder.attach(Arc::new(FaultDevice::new(device, &plan)))
    };
    let drives: Vec<_> = drives.into_iter().map(&mut attach).collect();
    let buffers: Vec<_> = buffers.into_iter().map(attach).collect();
    Pool::create(&drives, &buffers, &rig::create_options(shape)).unwrap();
    let devices = [drives, buffers].concat();
    recorder.mark(0);
    let pool = rig::open(&devices, shape);
    let mut oracle = Oracle::default();
    let (mut oracles, mut acts) = (vec![oracle.clone()], Vec::new());
    let create = Act::Create(1, 64);
    rig::run(&pool, &create).unwrap();
    oracle.apply(&create);
    oracles.push(oracle.clone());
    acts.push(create);
    recorder.mark(1);
    let mut queue = pool.volume("v1").unwrap().queue_pair(8).unwrap();
    for round in 0..rounds {
        for _ in 0..1 + rng.below(FLIGHTS) {
            let (tag, version) = (Tag(oracles.len() as u64), 1 + acts.len() as u64 * 16);
            // Of large frames more are in flight than of small ones: this is the largest.
            let count = if rng.chance(1, 2) { 15 } else { 1 + rng.below(8) };
            let block = rng.below(64 - count);
            let mut buf = AlignedBuf::zeroed(rig::BLOCK * usize::try_from(count).unwrap());
            for (version, part) in (version..).zip(buf.chunks_mut(rig::BLOCK)) {
                rig::fill(part, version);
            }
            let act = Act::Write { volume: 1, block, count, version };
            oracle.apply(&act);
            oracles.push(oracle.clone());
            acts.push(act);
            let op = Op::Write { lba: Lba(block), buf, placement: None, fua: false };
            assert_eq!(queue.submit(&mut VecDeque::from([Command { tag, op }])).unwrap(), 1);
        }
        if rng.chance(1, 3) {
            pool.checkpoint().unwrap(); // beside frames in flight
        }
        let mut done = Vec::new();
        while queue.in_flight() > 0 {
            queue.wait(&mut done, None).unwrap();
            for done in done.drain(..) {
                done.result.unwrap();
                recorder.mark(done.tag.0);
            }
        }
        if round % 3 == 0 {
            pool.step().unwrap();
        }
    }
    drop(queue);
    let members = vec![Members::Whole; oracles.len()];
    let under_way = usize::try_from(FLIGHTS).unwrap();
    Recorded { recorder, oracles, acts, members, devices: devices.len(), under_way }
}

/// Acts between which drives go missing, return, are given up, replaced, added and retired.
fn record_members(shape: &Shape, seed: u64, count: usize) -> Recorded {
    let recorder = CrashRecorder::new();
    let spares = 3;
    let (drives, _) = rig::devices(&Shape { drives: shape.drives + spares, buffers: 0, ..*shape });
    let all: Vec<Arc<dyn Device>> =
        drives.into_iter().map(|d| recorder.attach(d) as Arc<dyn Device>).collect();
    Pool::create(&all[..shape.drives], &[], &rig::create_options(shape)).unwrap();
    recorder.mark(0);
    let mut rng = Rng::new(seed);
    let mut next = shape.drives;
    let mut pool = rig::open(&all[..next], shape);
    let mut recorded = Recorded {
        recorder: recorder.clone(),
        oracles: vec![Oracle::default()],
        acts: Vec::new(),
        members: vec![Members::Whole],
        devices: all.len(),
        under_way: 1,
    };
    for n in 0..count {
        let mut oracle = recorded.oracles[n].clone();
        let mut members = recorded.members[n];
        let mut act = oracle.random(&mut rng, 1 + n as u64 * 16, 64);
        if matches!(act, Act::Reopen | Act::Abandon) || rng.chance(1, 4) {
            act = Act::Step;
            let online: Vec<usize> = pool
                .status()
                .members
                .iter()
                .filter(|member| member.state == MemberState::Online)
                .map(|member| usize::from(member.index.0))
                .collect();
            let one = online[usize::try_from(rng.below(online.len() as u64)).unwrap()];
            let index = |drive: usize| DriveIndex(u16::try_from(drive).unwrap());
            let without = |drive: usize| -> Vec<Arc<dyn Device>> {
                let there = (0..next).filter(|at| *at != drive);
                there.map(|at| all[at].clone()).collect()
            };
            let leave =
                |pool: Pool, closes: bool| if closes { drop(pool.close()) } else { drop(pool) };
            let closes = rng.chance(1, 2);
            members = match (members, rng.below(4)) {
                (Members::Whole, 0 | 1) if online.len() > usize::from(shape.parity) + 2 => {
                    leave(pool, closes);
                    pool = Pool::open(&without(one), rig::degraded(shape)).unwrap();
                    Members::Without(one)
                }
                (Members::Whole, 2) if online.len() > shape.drives - 1 => {
                    pool.retire(index(one)).unwrap();
                    Members::Changing
                }
                (Members::Without(_), 0) => {
                    leave(pool, closes);
                    pool = rig::open(&all[..next], shape);
                    Members::Changing
                }
                (Members::Without(drive), 1) => {
                    pool.rejoin(index(drive), &all[drive]).unwrap();
                    Members::Changing
                }
                (Members::Without(drive), 2) => {
                    leave(pool, closes);
                    let options =
                        OpenOptions { missing_grace: Duration::ZERO, ..rig::open_options(shape) };
                    pool = Pool::open(&without(drive), options).unwrap();
                    Members::Changing
                }
                (Members::Without(drive), _) if next < all.len() => {
                    next += 1;
                    pool.replace(index(drive), &all[next - 1], true).unwrap();
                    Members::Changing
                }
                (Members::Whole, _) if online.len() < shape.drives && next < all.len() => {
                    next += 1;
                    pool.add(&all[next - 1], Role::Drive, true).unwrap();
                    Members::Whole
                }
                (Members::Changing, 0 | 1) => {
                    while pool.step().unwrap() {}
                    pool.checkpoint().unwrap();
                    Members::Whole
                }
                (members, _) => {
                    for _ in 0..4 {
                        pool.step().unwrap();
                    }
                    members
                }
            };
        } else {
            rig::run(&pool, &act).unwrap_or_else(|error| panic!("{seed}: {act:?}: {error}"));
        }
        oracle.apply(&act);
        recorded.oracles.push(oracle);
        recorded.acts.push(act);
        recorded.members.push(members);
        recorder.mark(n as u64 + 1);
    }
    recorded
}

fn image_devices(image: &Image, recorded: &Recorded) -> Vec<Arc<dyn Device>> {
    (0..recorded.devices).map(|index| image.device(index)).collect()
}

/// How the members may be in an image: as after the last act that was acknowledged, or as after the next one.
fn members_of(recorded: &Recorded, acked: usize) -> Members {
    let now = recorded.members[acked];
    match recorded.members.get(acked + 1) {
        Some(next) if *next != now => Members::Changing,
        _ => now,
    }
}

/// Which of the states that are allowed the pool is in.
fn state_of(pool: &Pool, allowed: &[&Oracle]) -> Result<usize, String> {
    let mut whys = Vec::new();
    for (number, oracle) in allowed.iter().enumerate() {
        match rig::compare_all(pool, oracle) {
            Ok(()) => return Ok(number),
            Err(why) => whys.push(why),
        }
    }
    Err(whys.join("\n  or: "))
}

/// Whether what is sealed agrees with its checksums, chunk by chunk.
fn check_parities(pool: &Pool) -> Result<(), String> {
    pool.scrub();
    while pool.status().scrub.is_some_and(|scrub| scrub.is_running) {
        pool.step().map_err(|error| error.to_string())?;
    }
    let status = pool.status();
    // Repairs before the scrub count, too: a crash by itself damages nothing.
    let blamed = status.members.iter().find(|member| member.checksum_errors > 0);
    match (status.scrub.map_or(0, |scrub| scrub.errors), blamed) {
        (0, None) => Ok(()),
        (errors, None) => Err(format!("a scrub found {errors} chunks wrong")),
        (_, Some(member)) => Err(format!("{} is blamed for bytes that are wrong", member.index)),
    }
}

/// Opens an image and checks it. Returns which state it was in.
fn check(
    recorded: &Recorded,
    image: &Image,
    shape: &Shape,
    rng: &mut Rng,
) -> Result<usize, String> {
    let Some(acked) = recorded.acknowledged(image) else { return Ok(0) };
    let allowed = recorded.allowed(acked);
    let mut devices = image_devices(image, recorded);
    match members_of(recorded, acked) {
        Members::Whole if rng.chance(1, 4) && recorded.devices == shape.drives + shape.buffers => {
            // Members may be missing: a buffer device, and as many drives as there are parities, less than half.
            let most = usize::from(shape.parity).min((shape.drives - 1) / 2);
            for _ in 0..most {
                let drives = devices.len() as u64 - shape.buffers as u64;
                devices.remove(usize::try_from(rng.below(drives)).unwrap());
            }
            if shape.buffers == 2 && rng.chance(1, 2) {
                devices.pop();
            }
        }
        Members::Whole if recorded.devices > shape.drives + shape.buffers && rng.chance(1, 4) => {
            devices.remove(usize::try_from(rng.below(devices.len() as u64)).unwrap());
        }
        Members::Without(drive) if rng.chance(1, 2) => drop(devices.remove(drive)),
        _ => {}
    }
    // A crash by itself makes no drive missing.
    let is_all = devices.len() == recorded.devices;
    let options = if is_all { rig::open_options(shape) } else { rig::degraded(shape) };
    let pool = Pool::open(&devices, options).map_err(|error| error.to_string())?;
    let state = state_of(&pool, &allowed)?;
    pool.check()?;
    // It goes on from there.
    for _ in 0..3 + rng.below(20) {
        pool.step().map_err(|error| error.to_string())?;
    }
    if rng.chance(1, 4) {
        pool.drain().map_err(|error| error.to_string())?;
        pool.checkpoint().map_err(|error| error.to_string())?;
    }
    rig::compare_all(&pool, allowed[state])?;
    pool.check()?;
    while pool.status().sweeping > 0 {
        pool.step().map_err(|error| error.to_string())?;
    }
    rig::compare_all(&pool, allowed[state])?;
    pool.check()?;
    check_parities(&pool)?;
    Ok(state)
}

/// Crashes the recovery of an image.
fn check_recovery(
    recorded: &Recorded,
    image: &Image,
    shape: &Shape,
    seed: u64,
) -> Result<u64, String> {
    let Some(acked) = recorded.acknowledged(image) else { return Ok(0) };
    let allowed = recorded.allowed(acked);
    let recorder = CrashRecorder::new();
    let devices = image_devices(image, recorded).into_iter().map(|device| {
        let extent = LbaCount(device.geometry().capacity.0);
        let device: Arc<CrashDevice> = recorder.attach_holding(device, extent).unwrap();
        device as Arc<dyn Device>
    });
    let devices: Vec<_> = devices.collect();
    let pool = Pool::open(&devices, rig::open_options(shape)).map_err(|error| error.to_string())?;
    let state = state_of(&pool, &allowed)?;
    recorder.mark(1);
    for _ in 0..1 + seed % 5 {
        pool.step().map_err(|error| error.to_string())?;
    }
    pool.drain().map_err(|error| error.to_string())?;
    pool.checkpoint().map_err(|error| error.to_string())?;
    drop(pool);
    let plan = Plan { all_subsets: 2, singles: 2, random_subsets: 2, tears: 1, seed };
    let mut count = 0;
    let mut rng = Rng::new(seed);
    for again in recorder.history().images(&plan).step_by(7) {
        let mut devices = image_devices(&again, recorded);
        let is_whole = members_of(recorded, acked) == Members::Whole;
        if shape.parity > 0 && is_whole && rng.chance(1, 2) {
            // One of those that have the log, or one of the others.
            let buffers = devices.len() - shape.drives;
            let from = if buffers > 0 { shape.drives } else { 0 };
            devices.remove(from + usize::try_from(rng.below(2)).unwrap());
        }
        let pool = Pool::open(&devices, rig::degraded(shape))
            .map_err(|error| format!("{again}: {error}"))?;
        let now = state_of(&pool, &allowed).map_err(|why| format!("{again}: {why}"))?;
        if !again.marks().is_empty() && now != state {
            return Err(format!("{again}: what was seen after the first crash is gone"));
        }
        pool.check().map_err(|why| format!("{again}: {why}"))?;
        count += 1;
    }
    Ok(count)
}

/// Checks about `budget` images of a script. Returns how many.
fn sweep(shape: &Shape, seed: u64, acts: usize, budget: usize) -> u64 {
    sweep_of(&record(shape, seed, acts), shape, seed, budget)
}

fn sweep_of(recorded: &Recorded, shape: &Shape, seed: u64, budget: usize) -> u64 {
    let history = recorded.recorder.history();
    let plan = Plan { all_subsets: 4, singles: 6, random_subsets: 4, tears: 1, seed };
    // About how many there are is seen when they are counted; every one of the others is passed over.
    let total = history.images(&plan).count();
    let stride = total.div_ceil(budget).max(1);
    let mut rng = Rng::new(seed);
    let mut checked = 0;
    let offset = usize::try_from(rng.below(stride as u64)).unwrap();
    for (number, image) in history.images(&plan).skip(offset).step_by(stride).enumerate() {
        let acked = recorded.acknowledged(&image);
        let next = acked.and_then(|n| recorded.acts.get(n));
        if let Err(why) = check(recorded, &image, shape, &mut rng) {
            panic!("seed {seed}, acknowledged {acked:?}, then {next:?}: {why}\n{image}");
        }
        checked += 1;
        if number % 67 == 0 {
            match check_recovery(recorded, &image, shape, seed) {
                Ok(count) => checked += count,
                Err(why) => {
                    panic!("seed {seed}, acknowledged {acked:?}, then {next:?}: {why}\n{image}")
                }
            }
        }
    }
    checked
}

#[test]
fn acknowledged_acts_survive_every_crash() {
    let images: u64 = (0..3).map(|seed| sweep(&SMALL, seed, 50, 400)).sum();
    assert!(images > 1000, "{images} images");
}

#[test]
fn acknowledged_acts_survive_with_buffer_devices_and_two_parities() {
    let images: u64 = (10..12).map(|seed| sweep(&LARGE, seed, 50, 300)).sum();
    assert!(images > 500, "{images} images");
}

#[test]
fn acknowledged_acts_survive_on_one_drive() {
    let images: u64 = (20..22).map(|seed| sweep(&SINGLE, seed, 50, 300)).sum();
    assert!(images > 500, "{images} images");
}

#[test]
fn acknowledged_acts_survive_with_next_to_no_memory() {
    let images: u64 = (30..32).map(|seed| sweep(&FRUGAL, seed, 50, 300)).sum();
    assert!(images > 500, "{images} images");
}

#[test]
fn chains_with_deleted_origins_survive_every_crash() {
    let sweep = |shape: &Shape, seed| {
        let mut rng = Rng::new(seed);
        let next = |oracle: &Oracle, n| oracle.random_chain(&mut rng, 1 + n as u64 * 16);
        sweep_of(&record_acts(shape, 80, next), shape, seed, 300)
    };
    let images: u64 = (80..83).map(|seed| sweep(&SMALL, seed) + sweep(&FRUGAL, seed)).sum();
    assert!(images > 1500, "{images} images");
}

#[test]
fn acknowledged_frames_in_flight_survive_every_crash() {
    let sweep = |shape: &Shape, seed| sweep_of(&record_flights(shape, seed, 12), shape, seed, 250);
    let images: u64 = (70..73).map(|seed| sweep(&SMALL, seed)).sum();
    let images = images + sweep(&SINGLE, 73) + sweep(&LARGE, 74);
    assert!(images > 1000, "{images} images");
}

/// At each crash point from mark `from` on, an image with all that is not durable torn at once, on all devices: what a
/// label, a seal or a checkpoint is written over must not be needed.
fn sweep_torn(recorded: &Recorded, shape: &Shape, from: usize) -> u64 {
    let history = recorded.recorder.history();
    let prefixes = Plan { all_subsets: 0, singles: 0, random_subsets: 0, tears: 0, seed: 1 };
    let mut all = BTreeMap::new();
    for image in history.images(&prefixes) {
        let ImageId { point, kept } = image.id().clone();
        let longest: &mut Vec<Kept> = all.entry(point).or_default();
        if image.marks().len() > from && kept.len() > longest.len() {
            *longest = kept;
        }
    }
    let mut rng = Rng::new(1);
    let mut checked = 0;
    for (point, kept) in all.into_iter().filter(|(_, kept)| !kept.is_empty()) {
        let lbas = Some(LbaSet::range(0..1));
        let kept = kept.into_iter().map(|kept| Kept { lbas: lbas.clone(), ..kept }).collect();
        let image = history.image(&ImageId { point, kept }).unwrap();
        if let Err(why) = check(recorded, &image, shape, &mut rng) {
            panic!("{why}\n{image}");
        }
        checked += 1;
    }
    checked
}

#[test]
fn labels_torn_everywhere_at_once_leave_the_ones_before() {
    // Names so long that a change of the last members is in another LBA than the label's head.
    let name = "drives-with-a-name-that-is-as-long-as-some-of-the-paths-are-";
    let shape = Shape { name, ..DOUBLE };
    let images: u64 =
        (60..63).map(|seed| sweep_torn(&record_members(&shape, seed, 40), &shape, 0)).sum();
    assert!(images > 600, "{images} images");
}

#[test]
fn seals_torn_everywhere_at_once_leave_the_ones_before() {
    // Chunks of so many units that a seal has several LBAs, and is written again when it has.
    let shape = Shape {
        drives: 3,
        lba_size: 512,
        drive_bytes: 24 << 20,
        chunk_bytes: 512 << 10,
        unit_bytes: 4 << 10,
        ..SMALL
    };
    let recorded = record_acts(&shape, 80, |_, n| match n {
        0 => Act::Create(1, 1024),
        40.. if n % 4 == 2 => Act::Drain,
        40.. if n % 4 == 3 => Act::Checkpoint,
        _ => {
            let (block, version) = (n as u64 * 8 % 1024, n as u64 * 48);
            Act::Write { volume: 1, block, count: 8, version }
        }
    });
    let images = sweep_torn(&recorded, &shape, 40);
    assert!(images > 100, "{images} images");
}

#[test]
fn acknowledged_acts_survive_while_drives_come_and_go() {
    let sweep = |shape: &Shape, seed| sweep_of(&record_members(shape, seed, 60), shape, seed, 250);
    let images: u64 = (40..43).map(|seed| sweep(&ROOMY, seed)).sum();
    let images: u64 = images + (50..52).map(|seed| sweep(&DOUBLE, seed)).sum::<u64>();
    assert!(images > 1000, "{images} images");
}

/// `ESKER_IMAGES=200000 cargo test --release -p esker-volume --test all crash:: -- --ignored --nocapture`
#[test]
#[ignore = "hours"]
fn acknowledged_acts_survive_very_many_crashes() {
    let wanted: u64 = std::env::var("ESKER_IMAGES").map_or(200_000, |n| n.parse().unwrap());
    let mut images = 0;
    for seed in 1000.. {
        images += match seed % 8 {
            number @ 0..4 => {
                let shape = [SMALL, LARGE, SINGLE, FRUGAL][usize::try_from(number).unwrap()];
                sweep(&shape, seed, 120, 1500)
            }
            number @ 6..8 => {
                let shape = if number == 6 { SMALL } else { LARGE };
                sweep_of(&record_flights(&shape, seed, 40), &shape, seed, 1500)
            }
            number => {
                let shape = if number == 4 { ROOMY } else { DOUBLE };
                sweep_of(&record_members(&shape, seed, 120), &shape, seed, 1500)
            }
        };
        println!("seed {seed}: {images} images");
        if images >= wanted {
            return;
        }
    }
}
