//! Drives that fail, lie, lose, misdirect, and return stale: as long as there are no more of them than parities, what a
//! pool holds is what was done to it, and the drive that did it is named. With more of them there are errors, and never
//! wrong bytes.

use std::sync::Arc;

use crate::rig::{self, Act, Oracle, SMALL, Shape};
use esker_base::{LbaCount, Rng};
use esker_device::{Device, Port};
use esker_sim::{Effect, FaultDevice, FaultPlan, ImageDevice, Target};
use esker_volume::{MemberState, OpenOptions, Pool, Status};

const DOUBLE: Shape = Shape { drives: 6, parity: 2, lba_size: 512, ..SMALL };

/// Drives, of which each has a plan of faults.
struct Rig {
    memory: Vec<Arc<ImageDevice>>,
    plans: Vec<FaultPlan>,
    devices: Vec<Arc<dyn Device>>,
}

impl Rig {
    fn new(shape: Shape) -> Rig {
        let device = |n| ImageDevice::new(&format!("d{n}"), shape.drive_bytes, shape.lba_size);
        let memory: Vec<_> = (0..shape.drives).map(|n| Arc::new(device(n))).collect();
        Rig::over(memory)
    }

    fn over(memory: Vec<Arc<ImageDevice>>) -> Rig {
        let plans: Vec<FaultPlan> = memory.iter().map(|_| FaultPlan::new()).collect();
        let devices = memory.iter().zip(&plans).map(|(memory, plan)| {
            Arc::new(FaultDevice::new(memory.clone(), plan)) as Arc<dyn Device>
        });
        let devices = devices.collect();
        Rig { memory, plans, devices }
    }

    fn create(shape: Shape) -> Rig {
        let rig = Rig::new(shape);
        Pool::create(&rig.devices, &[], &rig::create_options(&shape)).unwrap();
        rig
    }
}

/// Does random acts that succeed, and compares now and then.
fn churn(
    pool: &Pool,
    oracle: &mut Oracle,
    rng: &mut Rng,
    from: u64,
    acts: u64,
) -> Result<(), String> {
    for n in from..from + acts {
        let act = oracle.random(rng, 1 + n * 16, 64);
        if matches!(act, Act::Reopen | Act::Abandon) {
            continue;
        }
        rig::run(pool, &act).map_err(|error| format!("act {n}, {act:?}: {error}"))?;
        oracle.apply(&act);
        if n % 8 == 0 {
            rig::compare_all(pool, oracle).map_err(|why| format!("act {n}, {act:?}: {why}"))?;
            pool.check()?;
        }
    }
    rig::compare_all(pool, oracle)
}

fn settle(pool: &Pool) {
    for _ in 0..400 {
        if !pool.step().unwrap() {
            return;
        }
    }
    panic!("maintenance does not end: {:#?}", pool.status());
}

/// A random fault of a drive, from a command on.
fn plant(plan: &FaultPlan, kind: u64, rng: &mut Rng) {
    let nth = |target| plan.seen(target);
    let distance = LbaCount(8 * (1 + rng.below(60)));
    match kind {
        0 => plan.from_then_on(Target::Any, nth(Target::Any) + rng.below(60), Effect::Fail),
        1 => plan.from_then_on(Target::Write, nth(Target::Write) + rng.below(20), Effect::Fail),
        2 => plan.from_then_on(Target::Read, nth(Target::Read) + rng.below(20), Effect::Fail),
        3 => {
            for n in 0..200 {
                if rng.chance(1, 3) {
                    let effect = Effect::Corrupt {
                        offset: usize::try_from(rng.below(1 << 16)).unwrap(),
                        mask: 4,
                    };
                    plan.once(Target::Write, nth(Target::Write) + n, effect);
                }
            }
        }
        4 => {
            for n in 0..200 {
                if rng.chance(1, 3) {
                    let effect = Effect::Corrupt {
                        offset: usize::try_from(rng.below(1 << 16)).unwrap(),
                        mask: 64,
                    };
                    plan.once(Target::Read, nth(Target::Read) + n, effect);
                }
            }
        }
        5 => {
            for n in 0..200 {
                if rng.chance(1, 3) {
                    plan.once(Target::Write, nth(Target::Write) + n, Effect::Lose);
                }
            }
        }
        6 => {
            for n in 0..200 {
                if rng.chance(1, 3) {
                    plan.once(
                        Target::Write,
                        nth(Target::Write) + n,
                        Effect::Misdirect { distance },
                    );
                }
            }
        }
        7 => {
            for n in 0..200 {
                if rng.chance(1, 3) {
                    plan.once(Target::Read, nth(Target::Read) + n, Effect::Misdirect { distance });
                }
            }
        }
        _ => plan.from_then_on(Target::Flush, nth(Target::Flush) + rng.below(4), Effect::Fail),
    }
}

const KINDS: u64 = 9;

/// Which drives were named: out of the pool, or with errors.
fn named(status: &Status) -> Vec<usize> {
    let members = status.members.iter().enumerate();
    let named = members.filter(|(_, member)| {
        let errors = member.read_errors + member.write_errors + member.checksum_errors;
        member.state != MemberState::Online || errors > 0
    });
    named.map(|(index, _)| index).collect()
}

/// Runs a pool with faults on as many drives as there are parities; says which were named without a fault.
fn survive(shape: Shape, kind: u64, seed: u64) -> Result<usize, String> {
    let mut rng = Rng::new(seed);
    let rig = Rig::create(shape);
    let pool = rig::open(&rig.devices, &shape);
    let mut oracle = Oracle::default();
    churn(&pool, &mut oracle, &mut rng, 0, 30)?;
    let mut bad = Vec::new();
    while bad.len() < usize::from(shape.parity) {
        let drive = usize::try_from(rng.below(shape.drives as u64)).unwrap();
        if !bad.contains(&drive) {
            plant(&rig.plans[drive], kind, &mut rng);
            bad.push(drive);
        }
    }
    churn(&pool, &mut oracle, &mut rng, 30, 40)?;
    let innocent = named(&pool.status()).into_iter().filter(|drive| !bad.contains(drive)).count();
    // Opened again with the same faults, as after a crash, and with all drives healed.
    drop(pool);
    let pool = Pool::open(&rig.devices, rig::degraded(&shape)).map_err(|e| e.to_string())?;
    rig::compare_all(&pool, &oracle).map_err(|why| format!("opened again: {why}"))?;
    churn(&pool, &mut oracle, &mut rng, 70, 20)?;
    rig.plans.iter().for_each(FaultPlan::heal);
    drop(pool);
    let pool = Pool::open(&rig.devices, rig::degraded(&shape)).map_err(|e| e.to_string())?;
    rig::compare_all(&pool, &oracle).map_err(|why| format!("opened again, healed: {why}"))?;
    Ok(innocent)
}

fn survive_all(shape: Shape, seeds: std::ops::Range<u64>) {
    let (mut innocent, mut runs) = (0, 0);
    for seed in seeds {
        for kind in 0..KINDS {
            match survive(shape, kind, seed * 100 + kind) {
                Ok(named) => innocent += named,
                Err(why) => panic!("kind {kind}, seed {}: {why}", seed * 100 + kind),
            }
            runs += 1;
        }
    }
    assert!(innocent * 100 <= runs, "{innocent} innocent drives were named in {runs} runs");
}

#[test]
fn one_bad_drive_loses_nothing_with_one_parity() {
    survive_all(SMALL, 0..12);
}

#[test]
fn two_bad_drives_lose_nothing_with_two_parities() {
    survive_all(DOUBLE, 20..28);
}

#[test]
fn more_bad_drives_than_parities_give_errors_and_never_wrong_bytes() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let rig = Rig::create(SMALL);
        let pool = rig::open(&rig.devices, &SMALL);
        let mut oracle = Oracle::default();
        churn(&pool, &mut oracle, &mut rng, 0, 40).unwrap();
        pool.drain().unwrap();
        pool.checkpoint().unwrap();
        for drive in [seed % 4, (seed + 1) % 4] {
            let plan = &rig.plans[usize::try_from(drive).unwrap()];
            let effect = match seed % 3 {
                0 => Effect::Corrupt { offset: usize::try_from(seed * 13).unwrap(), mask: 1 },
                1 => Effect::Misdirect { distance: LbaCount(16) },
                _ => Effect::Fail,
            };
            plan.from_then_on(Target::Read, 0, effect);
        }
        for (volume, content) in oracle.0.iter().filter(|(_, content)| !content.is_trashed) {
            let device = pool.volume(&rig::volume_name(*volume)).unwrap();
            let mut port = Port::open(&*device, 1).unwrap();
            for (lba, version) in (0..).zip(&content.blocks) {
                let buf = esker_base::AlignedBuf::zeroed(rig::BLOCK);
                let Ok(read) = port.read(esker_base::Lba(lba), buf) else { continue };
                let mut expected = vec![0; rig::BLOCK];
                rig::fill(&mut expected, *version);
                assert!(expected == read[..], "seed {seed}, v{volume}, block {lba}");
            }
        }
    }
}

#[test]
fn failed_drive_is_replaced_and_everything_is_protected_again() {
    for (shape, seed) in [(SMALL, 1), (SMALL, 2), (DOUBLE, 3), (DOUBLE, 4)] {
        let mut rng = Rng::new(seed);
        let rig = Rig::create(shape);
        let pool = rig::open(&rig.devices, &shape);
        let mut oracle = Oracle::default();
        churn(&pool, &mut oracle, &mut rng, 0, 60).unwrap();
        pool.drain().unwrap();
        let lost: Vec<usize> = (0..usize::from(shape.parity)).collect();
        for &drive in &lost {
            rig.plans[drive].from_then_on(Target::Any, 0, Effect::Fail);
        }
        churn(&pool, &mut oracle, &mut rng, 60, 20).unwrap();
        pool.checkpoint().unwrap();
        for &drive in &lost {
            assert_eq!(pool.status().members[drive].state, MemberState::Faulted);
            let name = format!("spare{drive}");
            let spare = ImageDevice::new(&name, shape.drive_bytes, shape.lba_size);
            let spare: Arc<dyn Device> = Arc::new(spare);
            let index = esker_volume::types::id::DriveIndex(u16::try_from(drive).unwrap());
            pool.replace(index, &spare, false).unwrap();
        }
        settle(&pool);
        pool.checkpoint().unwrap();
        let status = pool.status();
        assert_eq!(status.segments[1..], [0, 0, 0], "{status:#?}");
        assert!(status.alarms.is_empty(), "{:?}", status.alarms);
        churn(&pool, &mut oracle, &mut rng, 80, 30).unwrap();
        // As many may fail again as there are parities.
        for drive in shape.drives - usize::from(shape.parity)..shape.drives {
            rig.plans[drive].from_then_on(Target::Any, 0, Effect::Fail);
        }
        rig::compare_all(&pool, &oracle).unwrap();
    }
}

#[test]
fn drive_that_returns_with_an_earlier_content_is_left_aside() {
    for seed in 0..24 {
        let mut rng = Rng::new(seed);
        let rig = Rig::create(SMALL);
        let pool = rig::open(&rig.devices, &SMALL);
        let mut oracle = Oracle::default();
        churn(&pool, &mut oracle, &mut rng, 0, 20 + seed).unwrap();
        let stale = usize::try_from(rng.below(4)).unwrap();
        let image = Arc::new(rig.memory[stale].fork());
        churn(&pool, &mut oracle, &mut rng, 100, 10 + seed).unwrap();
        pool.checkpoint().unwrap();
        pool.checkpoint().unwrap();
        if rng.chance(1, 2) {
            pool.close().unwrap();
        } else {
            drop(pool);
        }
        let mut memory = rig.memory.clone();
        memory[stale] = image;
        let rig = Rig::over(memory);
        let error = Pool::open(&rig.devices, rig::open_options(&SMALL)).err().unwrap().to_string();
        assert!(error.contains(&format!("d{stale}: drive {stale} is stale")), "{seed}: {error}");
        let pool = Pool::open(&rig.devices, rig::degraded(&SMALL)).unwrap();
        let remarks = pool.remarks();
        let name = format!("d{stale}: ");
        assert!(remarks.iter().any(|remark| remark.starts_with(&name)), "{seed}: {remarks:?}");
        rig::compare_all(&pool, &oracle).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        churn(&pool, &mut oracle, &mut rng, 200, 20).unwrap();
        pool.check().unwrap();
    }
}

#[test]
fn two_halves_are_never_both_open() {
    let rig = Rig::create(SMALL);
    let halves = [[0, 1], [2, 3]].map(|half| half.map(|at| rig.devices[at].clone()));
    for half in &halves {
        let error = Pool::open(half, rig::open_options(&SMALL)).err().unwrap().to_string();
        assert!(error.contains("2 of 4 drives are there"), "{error}");
    }
    let three = [0, 1, 2].map(|at| rig.devices[at].clone());
    drop(Pool::open(&three, rig::degraded(&SMALL)).unwrap());
    // The fourth one does not open alone, nor with one of the others.
    let two = [2, 3].map(|at| rig.devices[at].clone());
    assert!(Pool::open(&two, OpenOptions { accept_half: true, ..rig::degraded(&SMALL) }).is_err());
    let options = OpenOptions { accept_half: true, ..rig::open_options(&SMALL) };
    assert!(Pool::open(&[rig.devices[3].clone()], options).is_err());
}

#[test]
fn half_of_a_pool_opens_only_when_it_is_told_to() {
    let shape = Shape { drives: 2, drive_bytes: 4 << 20, ..SMALL };
    let rig = Rig::create(shape);
    let mut rng = Rng::new(5);
    let mut oracle = Oracle::default();
    let pool = rig::open(&rig.devices, &shape);
    churn(&pool, &mut oracle, &mut rng, 0, 30).unwrap();
    // A drive that fails in use is taken out, and the other one goes on alone; a crash does not change that.
    drop(pool);
    let one = [rig.devices[1].clone()];
    let error = Pool::open(&one, rig::open_options(&shape)).err().unwrap().to_string();
    assert!(error.contains("accept_half"), "{error}");
    let options = OpenOptions { accept_half: true, ..rig::open_options(&shape) };
    let pool = Pool::open(&one, options).unwrap();
    churn(&pool, &mut oracle, &mut rng, 30, 30).unwrap();
    drop(pool);
    let pool = rig::open(&one, &shape);
    rig::compare_all(&pool, &oracle).unwrap();
    drop(pool);
    let other = [rig.devices[0].clone()];
    assert!(Pool::open(&other, rig::open_options(&shape)).is_err());
}

#[test]
fn buffer_devices_that_are_lost_are_named_and_their_loss_is_refused() {
    let shape = Shape { buffers: 2, ..SMALL };
    let devices = rig::create(&shape);
    let mut rng = Rng::new(6);
    let mut oracle = Oracle::default();
    let pool = rig::open(&devices, &shape);
    churn(&pool, &mut oracle, &mut rng, 0, 30).unwrap();
    let at_checkpoint = {
        pool.drain().unwrap();
        pool.checkpoint().unwrap();
        oracle.clone()
    };
    while oracle == at_checkpoint {
        churn(&pool, &mut oracle, &mut rng, 100, 1).unwrap();
    }
    drop(pool);
    let without = &devices[..4];
    let error = Pool::open(without, rig::open_options(&shape)).err().unwrap().to_string();
    assert!(error.contains("missing: drive 4"), "{error}");
    let error = Pool::open(without, rig::degraded(&shape)).err().unwrap().to_string();
    assert!(
        error.contains("no device with the write buffer") && error.contains("drive 4"),
        "{error}"
    );
    // With one of them nothing is lost.
    let pool = Pool::open(&devices[..5], rig::degraded(&shape)).unwrap();
    rig::compare_all(&pool, &oracle).unwrap();
    settle(&pool);
    pool.close().unwrap();
    // Closed cleanly, it is not needed at all: the log goes on on drives.
    let pool = Pool::open(without, rig::degraded(&shape)).unwrap();
    rig::compare_all(&pool, &oracle).unwrap();
    churn(&pool, &mut oracle, &mut rng, 200, 30).unwrap();
    drop(pool);
    let pool = rig::open(without, &shape);
    rig::compare_all(&pool, &oracle).unwrap();
}

#[test]
fn lost_buffer_goes_back_to_the_last_checkpoint_when_told_to() {
    let shape = Shape { buffers: 1, ..SMALL };
    let devices = rig::create(&shape);
    let mut rng = Rng::new(8);
    let mut oracle = Oracle::default();
    let pool = rig::open(&devices, &shape);
    churn(&pool, &mut oracle, &mut rng, 0, 40).unwrap();
    pool.drain().unwrap();
    pool.checkpoint().unwrap();
    let at_checkpoint = oracle.clone();
    rig::write_somewhere(&pool, &mut oracle, 9000);
    drop(pool);
    let without = &devices[..4];
    assert!(Pool::open(without, rig::open_options(&shape)).is_err());
    let options = OpenOptions { lose_buffer: true, ..rig::open_options(&shape) };
    let pool = Pool::open(without, options).unwrap();
    rig::compare_all(&pool, &at_checkpoint).unwrap();
    assert!(pool.remarks().iter().any(|remark| remark.contains("write buffer was lost")));
}

#[test]
fn drive_that_does_not_answer_is_taken_out_and_nothing_waits_for_it() {
    for (seed, target) in
        [(1, Target::Read), (2, Target::Write), (3, Target::Flush), (4, Target::Any)]
    {
        let mut rng = Rng::new(seed);
        let rig = Rig::create(SMALL);
        let patience = std::time::Duration::from_millis(40);
        let options = OpenOptions { patience, ..rig::open_options(&SMALL) };
        let pool = Pool::open(&rig.devices, options).unwrap();
        let mut oracle = Oracle::default();
        let mut acts = vec![Act::Create(7, 64)];
        acts.extend((0..8).map(|n| Act::Write {
            volume: 7,
            block: 8 * n,
            count: 8,
            version: 10_000 + 8 * n,
        }));
        for act in acts {
            rig::run(&pool, &act).unwrap();
            oracle.apply(&act);
        }
        pool.drain().unwrap();
        pool.checkpoint().unwrap();
        let plan = &rig.plans[1];
        plan.from_then_on(target, plan.seen(target), Effect::Hang);
        churn(&pool, &mut oracle, &mut rng, 40, 40).unwrap();
        pool.checkpoint().unwrap();
        settle(&pool);
        let status = pool.status();
        assert_eq!(status.members[1].state, MemberState::Faulted, "{target:?}");
        assert!(status.alarms.iter().any(|alarm| alarm.code == "DRIVE_FAULTED"), "{status:#?}");
        plan.heal();
        rig::compare_all(&pool, &oracle).unwrap();
    }
}

/// `ESKER_SEEDS=10000 cargo test --release -p esker-volume --test all faults:: -- --ignored --nocapture`
#[test]
#[ignore = "hours"]
fn bad_drives_lose_nothing_with_very_many_seeds() {
    let seeds: u64 = std::env::var("ESKER_SEEDS").map_or(10_000, |n| n.parse().unwrap());
    let (mut innocent, mut runs) = (0, 0_u64);
    for seed in 10_000..10_000 + seeds {
        let shape = if seed % 3 == 0 { DOUBLE } else { SMALL };
        for kind in 0..KINDS {
            match survive(shape, kind, seed * 100 + kind) {
                Ok(named) => innocent += named,
                Err(why) => panic!("kind {kind}, seed {}: {why}", seed * 100 + kind),
            }
            runs += 1;
        }
        if seed % 100 == 0 {
            println!("seed {seed}: {runs} runs, {innocent} innocent drives named");
        }
    }
}

#[test]
fn misdirected_read_of_the_log_is_read_from_the_other_copy() {
    survive(DOUBLE, 7, 1_021_507).unwrap();
}
