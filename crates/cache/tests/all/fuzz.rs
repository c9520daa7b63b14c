//! Anything in any order against a plain oracle: commands many at a time, changes of mode, steps in
//! the background, devices that fail, crashes, resizing. `ESKER_SOAK=SECONDS` makes it long.

use crate::rig;
use std::sync::Arc;

use crate::oracle::{Act, Oracle, op, random};
use esker_base::policy::Kind;
use esker_base::units::to_usize;
use esker_base::{Clock, Rng};
use esker_cache::{Admission, Cache, OpenOptions};
use esker_device::{Device, Port};
use esker_sim::{CrashRecorder, Effect, FaultDevice, FaultPlan, Plan, Target};

/// One life after the other of one cache.
fn lives(seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let sizes = [(512, 512), (4096, 4096), (512, 4096), (4096, 512)];
    let (outer, inner) = sizes[to_usize(rng.below(4))];
    let (lba_size, per_block) = (outer as usize, u64::from(4096 / outer));
    let lbas = rig::ORIGIN / u64::from(outer);
    let mode = rig::MODES[to_usize(rng.below(3))];
    let (mut origin, mut flash) = rig::devices(mode, outer, inner);
    let mut oracle = Oracle::new(lbas, lba_size);
    let (mut version, mut count) = (0, 0);
    for life in 0..6 {
        let recorder = CrashRecorder::new();
        let record = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
            let extent = device.geometry().capacity;
            recorder.attach_holding(device.clone(), extent).unwrap()
        };
        let (recorded_origin, recorded_flash) = (record(&origin), record(&flash));
        let plan = FaultPlan::new();
        let faulty = |device: Arc<dyn Device>| -> Arc<dyn Device> {
            Arc::new(FaultDevice::new(device, &plan))
        };
        let policy = Kind::ALL[to_usize(rng.below(Kind::ALL.len() as u64))];
        let read_ahead_bytes = 4096 * rng.below(2) * (1 + rng.below(8));
        let (_, admission) = Admission::NAMES[to_usize(rng.below(3))];
        let options = OpenOptions { policy, admission, read_ahead_bytes, ..rig::open_options() };
        let (a, b) = (faulty(recorded_origin), faulty(recorded_flash));
        let cache = Cache::open(a, b, options).unwrap();
        let mut port = Port::open(&cache, 8).unwrap();
        if rng.chance(1, 2) {
            let nth = plan.seen(Target::Any) + rng.below(300);
            plan.once(Target::Any, nth, Effect::Fail);
        }
        let about = format!("seed {seed}, life {life}");
        for _ in 0..rng.below(120) {
            version += 1;
            count += 1;
            match rng.below(30) {
                0 => drop(cache.set_mode(rig::MODES[to_usize(rng.below(3))])),
                1 | 2 => drop(cache.step(rng.chance(1, 2))),
                3 => drop(cache.clean_all()),
                4 => drop(cache.close()),
                5 | 6 if seed.is_multiple_of(4) => {
                    let _ = cache.resize(rig::FLASH + rng.below(5) * (rig::SPARE / 4));
                }
                _ => {
                    let act = random(&mut rng, lbas, per_block, version);
                    if matches!(act, Act::Discard { .. }) {
                        continue; // the recorder promises nothing of discarded blocks
                    }
                    run_batch(&mut rng, &mut port, &mut oracle, act, lbas, &about);
                }
            }
        }
        drop(port);
        drop(cache);
        if rng.chance(2, 3) {
            // The power fails: one of the images of the last moments.
            let history = recorder.history();
            let seed = rng.u64();
            let images = Plan { all_subsets: 0, singles: 0, random_subsets: 2, tears: 1, seed };
            let image = history.images(&images).last().unwrap();
            (origin, flash) = (image.device(0), image.device(1));
            oracle.crash();
        } else if rng.chance(1, 3) {
            let bytes = [rig::FLASH, rig::FLASH - (32 << 10), rig::FLASH - (56 << 10)];
            let resized = Cache::remake(&origin, &flash, Some(bytes[to_usize(rng.below(3))]));
            resized.unwrap_or_else(|error| panic!("{about}: {error}"));
            oracle.crash();
        } else {
            oracle.crash(); // the process ended, the devices did not
        }
        let cache = rig::open(&origin, &flash);
        let mut port = Port::open(&cache, 4).unwrap();
        oracle.check_all(&mut port, &about);
        oracle.check_all(&mut port, &format!("{about}, again"));
        assert_settles(&mut port, &mut oracle);
    }
    let cache = rig::open(&origin, &flash);
    cache.detach().unwrap();
    let mut port = Port::open(&*origin, 4).unwrap();
    oracle.check_all(&mut port, &format!("seed {seed}, detached"));
    count
}

/// Makes the present content durable.
fn assert_settles(port: &mut Port, oracle: &mut Oracle) {
    port.flush().unwrap();
    oracle.done(&Act::Flush);
}

/// A command, sometimes with others beside it that touch other blocks.
fn run_batch(
    rng: &mut Rng,
    port: &mut Port,
    oracle: &mut Oracle,
    first: Act,
    lbas: u64,
    about: &str,
) {
    let range = |act: &Act| match act {
        Act::Read { lba, count }
        | Act::Write { lba, count, .. }
        | Act::Zero { lba, count }
        | Act::Discard { lba, count } => *lba..lba + count,
        Act::Flush => 0..lbas,
    };
    let lba_size = to_usize(rig::ORIGIN / lbas);
    let mut acts = vec![first];
    for n in 0..rng.below(5) {
        let version = 1_000_000 + rng.below(1_000_000) * 8 + n;
        let act = random(rng, lbas, 4096 / lba_size as u64, version);
        let mine = range(&act);
        let overlaps = |other: &Act| {
            let other = range(other);
            mine.start < other.end && other.start < mine.end
        };
        if !matches!(act, Act::Discard { .. }) && !acts.iter().any(overlaps) {
            acts.push(act);
        }
    }
    let ops: Vec<_> = acts.iter().map(|act| op(act, lba_size)).collect();
    port.run_all(ops, |n, result| match (&acts[n], result) {
        (Act::Read { lba, .. }, Ok(buf)) => oracle.check(*lba, &buf.unwrap(), &about),
        (act, Ok(_)) => oracle.done(act),
        (act, Err(_)) => oracle.maybe(act),
    })
    .unwrap();
}

#[test]
fn anything_in_any_order_agrees_with_an_oracle() {
    let soak: Option<u64> = std::env::var("ESKER_SOAK").ok().and_then(|text| text.parse().ok());
    let clock = Clock::real();
    // One seed alone, to find its failure.
    let only: Option<u64> = std::env::var("ESKER_SEED").ok().and_then(|text| text.parse().ok());
    if let Some(seed) = only {
        lives(seed);
        return;
    }
    let (start, mut commands, mut seed) = (clock.now(), 0, 0);
    while match soak {
        Some(seconds) => (clock.now() - start).as_secs() < seconds,
        None => seed < 60,
    } {
        commands += lives(seed);
        seed += 1;
    }
    if soak.is_some() {
        println!("{commands} commands in the lives of {seed} caches");
    }
    assert!(commands > 1_000);
}
