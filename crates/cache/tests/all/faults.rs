//! Devices that fail: every command once, and each device for good, in every mode.

use crate::rig;
use std::sync::Arc;

use crate::oracle::{Act, Oracle, op, random};
use esker_base::{AlignedBuf, Lba, Rng};
use esker_cache::{Cache, CacheError, CreateOptions, Division, Mode};
use esker_device::{Device, DeviceError, MemoryDevice, Port};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};

const LBA: usize = 4096;
const LBAS: u64 = rig::ORIGIN / 4096;

struct Faulty {
    origin: Arc<dyn Device>,
    flash: Arc<dyn Device>,
    /// The same with faults.
    bad_origin: Arc<dyn Device>,
    bad_flash: Arc<dyn Device>,
    origin_plan: FaultPlan,
    flash_plan: FaultPlan,
}

fn faulty(mode: Mode) -> Faulty {
    let (origin, flash) = rig::devices(mode, 4096, 4096);
    faulty_of(origin, flash)
}

fn faulty_of(origin: Arc<dyn Device>, flash: Arc<dyn Device>) -> Faulty {
    let (origin_plan, flash_plan) = (FaultPlan::new(), FaultPlan::new());
    let bad_origin = Arc::new(FaultDevice::new(origin.clone(), &origin_plan));
    let bad_flash = Arc::new(FaultDevice::new(flash.clone(), &flash_plan));
    Faulty { origin, flash, bad_origin, bad_flash, origin_plan, flash_plan }
}

fn write(port: &mut Port, oracle: &mut Oracle, lba: u64, version: u64) -> Result<(), DeviceError> {
    act(port, oracle, &Act::Write { lba, count: 1, version, fua: false })
}

fn act(port: &mut Port, oracle: &mut Oracle, act: &Act) -> Result<(), DeviceError> {
    let result = port.run(op(act, LBA));
    match &result {
        Ok(_) => oracle.done(act),
        Err(_) => oracle.maybe(act),
    }
    result.map(drop)
}

#[test]
fn any_command_may_fail_once_and_nothing_is_lost_or_stale() {
    for mode in rig::MODES {
        for is_flash in [false, true] {
            let mut nth = 0;
            loop {
                let rig = faulty(mode);
                let plan = if is_flash { &rig.flash_plan } else { &rig.origin_plan };
                let opened = rig::open(&rig.bad_origin, &rig.bad_flash);
                let mut oracle = Oracle::new(LBAS, LBA);
                let mut port = Port::open(&opened, 4).unwrap();
                plan.once(Target::Any, plan.seen(Target::Any) + nth, Effect::Fail);
                let mut rng = Rng::new(5);
                let mut errors = 0;
                for n in 0..60 {
                    let act = random(&mut rng, LBAS, 1, n + 1);
                    let result = port.run(op(&act, LBA));
                    match (&result, &act) {
                        (Ok(Some(buf)), Act::Read { lba, .. }) => {
                            oracle.check(*lba, buf, &format!("{mode} {is_flash} {nth}: {n}"));
                        }
                        (Ok(_), _) => oracle.done(&act),
                        (Err(_), _) => {
                            oracle.maybe(&act);
                            errors += 1;
                        }
                    }
                    if n % 7 == 3 {
                        let _ = opened.step(n % 2 == 0);
                    }
                }
                let about = format!("{mode}, flash {is_flash}, command {nth}, {errors} errors");
                let is_lost = opened.figures().is_flash_lost;
                let is_over = plan.fired() == 0;
                plan.heal();
                if !is_lost {
                    oracle.check_all(&mut port, &format!("{about}, through the cache"));
                }
                drop(port);
                drop(opened);
                // A process that ends now, and no power failure.
                oracle.crash();
                match Cache::open(rig.origin.clone(), rig.flash.clone(), rig::open_options()) {
                    Ok(cache) => {
                        let mut port = Port::open(&cache, 4).unwrap();
                        oracle.check_all(&mut port, &format!("{about}, opened again"));
                        cache.detach().unwrap();
                        let mut port = Port::open(&*rig.origin, 4).unwrap();
                        oracle.check_all(&mut port, &format!("{about}, the origin"));
                    }
                    Err(error) => panic!("{about}: {error}"),
                }
                if is_over {
                    assert!(nth > 30, "{about}");
                    break;
                }
                nth += 1;
            }
        }
    }
}

#[test]
fn write_through_goes_on_without_its_flash_and_loses_nothing() {
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        let rig = faulty(mode);
        let cache = rig::open(&rig.bad_origin, &rig.bad_flash);
        let mut oracle = Oracle::new(LBAS, LBA);
        let mut port = Port::open(&cache, 4).unwrap();
        for lba in 0..20 {
            write(&mut port, &mut oracle, lba, lba + 1).unwrap();
        }
        oracle.check_all(&mut port, &"before");
        cache.close().unwrap(); // so that much is named on the flash device
        rig.flash_plan.from_then_on(Target::Any, 0, Effect::Fail);
        oracle.check_all(&mut port, &"clean blocks come from the origin");
        for lba in 0..LBAS {
            write(&mut port, &mut oracle, lba, 100 + lba).unwrap();
        }
        act(&mut port, &mut oracle, &Act::Zero { lba: 3, count: 4 }).unwrap();
        act(&mut port, &mut oracle, &Act::Flush).unwrap();
        oracle.check_all(&mut port, &"after");
        assert!(cache.figures().is_flash_lost);
        assert!(cache.remarks().iter().any(|remark| remark.contains("has failed")));
        let mut origin = Port::open(&*rig.origin, 4).unwrap();
        oracle.check_all(&mut origin, &"the origin has all");
        // The device comes back: it is told that its clean blocks do not count.
        rig.flash_plan.heal();
        act(&mut port, &mut oracle, &Act::Flush).unwrap();
        drop(port);
        drop(cache);
        assert_eq!(Cache::inspect(&rig.flash).unwrap().named_blocks, 0, "{mode}");
        let cache = rig::open(&rig.origin, &rig.flash);
        let mut port = Port::open(&cache, 4).unwrap();
        oracle.check_all(&mut port, &"opened again");
    }
}

#[test]
fn write_back_without_its_flash_serves_what_is_clean_and_refuses_what_is_dirty() {
    // Not all of its blocks are sampled: these are refused, too.
    let lbas = 4 * LBAS;
    let (size, made) = (rig::FLASH, rig::create_options(Mode::WriteBack));
    let (origin, flash) = rig::large_devices(4 * rig::ORIGIN, size, &made);
    let rig = faulty_of(origin, flash);
    let cache = rig::open(&rig.bad_origin, &rig.bad_flash);
    let mut oracle = Oracle::new(lbas, LBA);
    let mut port = Port::open(&cache, 4).unwrap();
    for lba in 0..8 {
        write(&mut port, &mut oracle, lba, lba + 1).unwrap();
    }
    cache.clean_all().unwrap();
    cache.close().unwrap();
    for lba in 4..8 {
        write(&mut port, &mut oracle, lba, lba + 11).unwrap();
    }
    act(&mut port, &mut oracle, &Act::Flush).unwrap();
    rig.flash_plan.from_then_on(Target::Any, 0, Effect::Fail);
    for lba in 0..lbas {
        let read = port.run(op(&Act::Read { lba, count: 1 }, LBA));
        match read {
            Ok(buf) => {
                assert!(!(4..8).contains(&lba), "a dirty block came from somewhere: {lba}");
                oracle.check(lba, &buf.unwrap(), &"clean");
            }
            Err(error) => assert!((4..8).contains(&lba), "LBA {lba}: {error}"),
        }
    }
    // Every write now has to hold when the flash device comes back.
    let mut refused = 0;
    for lba in 0..lbas {
        if write(&mut port, &mut oracle, lba, lba + 200).is_err() {
            refused += 1;
        }
    }
    assert!((4..LBAS + 8).contains(&refused), "{refused} refused");
    assert!(cache.detach().is_err());
    drop(port);
    drop(cache);
    oracle.crash();
    let cache = rig::open(&rig.origin, &rig.flash);
    let mut port = Port::open(&cache, 4).unwrap();
    oracle.check_all(&mut port, &"the flash device is back");
    cache.detach().unwrap();
    let mut port = Port::open(&*rig.origin, 4).unwrap();
    oracle.check_all(&mut port, &"and everything is written back");
}

#[test]
fn an_origin_that_fails_costs_misses_and_no_dirty_block() {
    for mode in rig::MODES {
        let rig = faulty(mode);
        let cache = rig::open(&rig.bad_origin, &rig.bad_flash);
        let mut oracle = Oracle::new(LBAS, LBA);
        let mut port = Port::open(&cache, 4).unwrap();
        for lba in 0..6 {
            write(&mut port, &mut oracle, lba, lba + 1).unwrap();
            let read = Act::Read { lba, count: 1 };
            port.run(op(&read, LBA)).unwrap();
        }
        act(&mut port, &mut oracle, &Act::Flush).unwrap();
        rig.origin_plan.from_then_on(Target::Any, 0, Effect::Fail);
        for lba in 0..6 {
            let buf = port.run(op(&Act::Read { lba, count: 1 }, LBA));
            oracle.check(lba, &buf.unwrap().unwrap(), &format!("{mode}: a hit needs no origin"));
        }
        let missed = port.run(op(&Act::Read { lba: 40, count: 1 }, LBA));
        assert!(missed.is_err(), "{mode}: a miss needs the origin");
        let written = write(&mut port, &mut oracle, 1, 77);
        assert_eq!(written.is_ok(), mode == Mode::WriteBack, "{mode}: {written:?}");
        if mode == Mode::WriteBack {
            assert!(cache.clean_all().is_err());
        }
        rig.origin_plan.heal();
        act(&mut port, &mut oracle, &Act::Flush).unwrap();
        oracle.check_all(&mut port, &format!("{mode}: healed"));
        cache.detach().unwrap();
        let mut origin = Port::open(&*rig.origin, 4).unwrap();
        oracle.check_all(&mut origin, &format!("{mode}: detached"));
    }
}

#[test]
fn a_flipped_bit_of_metadata_is_detected_or_does_no_harm() {
    let (origin, flash) = rig::devices(Mode::WriteBack, 4096, 4096);
    let mut oracle = Oracle::new(LBAS, LBA);
    let cache = rig::open(&origin, &flash);
    let mut port = Port::open(&cache, 4).unwrap();
    for n in 0..40 {
        write(&mut port, &mut oracle, n % 13, n + 1).unwrap();
        act(&mut port, &mut oracle, &Act::Flush).unwrap();
    }
    // The last record says nothing new, so that damage to it loses nothing.
    cache.close().unwrap();
    drop(port);
    drop(cache);
    let mut raw = Port::open(&*flash, 1).unwrap();
    let (mut detected, mut mended) = (0, 0);
    let last = rig::LAST / 4096;
    for lba in (0..rig::DATA / 4096).chain(last..last + 1) {
        let content = raw.read(Lba(lba), AlignedBuf::zeroed(LBA)).unwrap();
        if content.iter().all(|&byte| byte == 0) {
            continue;
        }
        for at in (0..LBA).step_by(if lba < 2 || lba == last { 8 } else { 67 }).chain(0..64) {
            let mut damaged = content.clone();
            damaged[at] ^= 0x10;
            raw.write(Lba(lba), damaged, None).unwrap();
            match Cache::open(origin.clone(), flash.clone(), rig::open_options()) {
                Ok(cache) => {
                    mended += usize::from(!cache.remarks().is_empty());
                    let mut port = Port::open(&cache, 4).unwrap();
                    let mut oracle = oracle.clone();
                    let read = port.run(op(&Act::Read { lba: 0, count: LBAS }, LBA));
                    match read {
                        Ok(buf) => {
                            let about = format!("LBA {lba} byte {at}");
                            oracle.check(0, &buf.unwrap(), &about);
                        }
                        Err(_) => detected += 1,
                    }
                }
                Err(CacheError::Corrupt { .. } | CacheError::NoCache { .. }) => detected += 1,
                Err(other) => panic!("LBA {lba} byte {at}: {other}"),
            }
            raw.write(Lba(lba), content.clone(), None).unwrap();
        }
    }
    // All but pages of the table has a copy that counts alone.
    assert!(mended > 50, "{detected} detected, {mended} mended");
}

#[test]
fn blocks_zeroed_while_the_flash_is_unreadable_are_not_stale_later() {
    for count in [16, 7] {
        let origin: Arc<dyn Device> = Arc::new(MemoryDevice::new("origin", rig::ORIGIN, 512));
        let flash: Arc<dyn Device> = Arc::new(MemoryDevice::new("flash", rig::FLASH, 512));
        let options = rig::create_options(Mode::WriteThrough);
        let options = CreateOptions { division: Division::Linear, ..options };
        Cache::create(&*origin, &flash, &options).unwrap();
        let mut oracle = Oracle::new(rig::ORIGIN / 512, 512);
        let mut act = |port: &mut Port, act: Act| {
            port.run(op(&act, 512)).unwrap();
            oracle.done(&act);
        };
        let write = |version| Act::Write { lba: 0, count: 32, version, fua: false };
        let cache = rig::open(&origin, &flash);
        act(&mut Port::open(&cache, 4).unwrap(), write(1));
        cache.close().unwrap();
        drop(cache);

        let plan = FaultPlan::new();
        let bad: Arc<dyn Device> = Arc::new(FaultDevice::new(flash.clone(), &plan));
        let cache = rig::open(&origin, &bad);
        let mut port = Port::open(&cache, 4).unwrap();
        // Of the first set alone; it fails when it gets a name.
        act(&mut port, Act::Write { lba: 0, count: 8, version: 2, fua: false });
        plan.from_then_on(Target::Write, plan.seen(Target::Write), Effect::Fail);
        assert!(cache.close().is_err() && cache.figures().is_flash_lost);
        plan.from_then_on(Target::Any, plan.seen(Target::Any), Effect::Fail);
        act(&mut port, Act::Zero { lba: 16, count });
        plan.heal();
        act(&mut port, Act::Flush);
        drop((port, cache));
        let cache = rig::open(&origin, &flash);
        oracle.check_all(&mut Port::open(&cache, 4).unwrap(), &count);
    }
}

#[test]
fn a_mode_that_could_not_be_set_is_as_it_was_when_the_cache_is_opened_again() {
    let mut failed = 0;
    for nth in 0.. {
        let (origin, flash) = rig::devices(Mode::WriteThrough, 4096, 4096);
        let plan = FaultPlan::new();
        let bad: Arc<dyn Device> = Arc::new(FaultDevice::new(flash.clone(), &plan));
        let cache = rig::open(&origin, &bad);
        plan.once(Target::Any, plan.seen(Target::Any) + nth, Effect::Fail);
        let set = cache.set_mode(Mode::WriteAround);
        if plan.fired() == 0 {
            break;
        }
        failed += usize::from(set.is_err());
        drop(cache);
        let wanted = if set.is_ok() { Mode::WriteAround } else { Mode::WriteThrough };
        assert_eq!(Cache::inspect(&flash).unwrap().mode, wanted, "command {nth}");
    }
    assert!(failed > 1, "{failed}");
}
