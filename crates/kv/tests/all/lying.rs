//! Devices that lie: writes and flushes that are acknowledged and lost, reads and writes that go to another
//! place, devices that are slow, and one that returns with an earlier content. Every read is right or an error;
//! so is every read after the KVDB was opened again.
//!
//! Nothing behind the last flush proves that it was whole (`docs/format/kv.md`, "What is not
//! detected"). So each run ends with writes that no fault strikes.
//!
//! A debug build tries every seventh command, a release build every one.

use std::sync::Arc;

use crate::common::script::{NAMES, Script, create_kvss};
use crate::common::{Devices, OnDevices};
use crate::common::{faulty, in_memory, test_options, tiny_tuning};
use esker_base::{Clock, LbaCount};
use esker_kv::{KvError, Kvdb, Kvs};
use esker_sim::{Effect, FaultPlan, ImageDevice, Target};

const STEP: usize = if cfg!(debug_assertions) { 7 } else { 1 };
const BYTES: [u64; 3] = [1 << 20, 8 << 20, 4 << 20];

/// How runs ended.
#[derive(Debug, Default)]
struct Tally {
    /// Faults that changed nothing.
    harmless: u64,
    /// Faults that an error told of: while the KVDB was open, when it was opened, when it was read then.
    told: [u64; 3],
}

/// Runs a script with one fault, and reads everything then and after the KVDB was opened again. Whether the fault
/// struck.
fn strike(target: Target, nth: u64, effect: Effect, tally: &mut Tally) -> bool {
    let about = format!("{target:?} {nth} {effect:?}");
    let media = in_memory("the-", BYTES);
    let plan = FaultPlan::new();
    let options = test_options(tiny_tuning());
    let mut script = Script::new(7, &options, 60);
    let db = Kvdb::create_on(faulty(&media, &plan), options.clone()).unwrap();
    let kvss = create_kvss(&db).unwrap();
    plan.once(target, plan.seen(target) + nth, effect);
    let told = run(&db, &kvss, &mut script, &about);
    let struck = plan.fired() > 0;
    plan.heal();
    if told.is_err() {
        assert!(struck, "{about}: an error without a fault: {told:?}");
        tally.told[0] += 1;
        return true;
    }
    if let Err(error) = tail(&db, &kvss, &mut script) {
        assert!(struck, "{about}: an error without a fault: {error}");
        tally.told[0] += 1;
        return true;
    }
    drop((kvss, db));
    match Kvdb::open_on(media.clone(), options) {
        Err(_) if struck => tally.told[1] += 1,
        Err(error) => panic!("{about}: {error}"),
        Ok(db) => match script.try_state_of(&db) {
            Err(_) if struck => tally.told[2] += 1,
            Err(error) => panic!("{about}: {error}"),
            Ok(state) => {
                assert_eq!(state, Some(script.written()), "{about}: opened again");
                tally.harmless += 1;
            }
        },
    }
    struck
}

/// The script: every read in between shows the last write.
fn run(db: &Kvdb, kvss: &[Kvs; 2], script: &mut Script, about: &str) -> Result<(), KvError> {
    for n in 0..260 {
        script.step(db, kvss)?;
        if n % 20 == 19 {
            let state = script.try_state_of(db)?;
            assert_eq!(state, Some(script.written()), "{about}: step {n}");
        }
    }
    Ok(())
}

/// Writes and flushes behind everything that the fault may have struck.
fn tail(db: &Kvdb, kvss: &[Kvs; 2], script: &mut Script) -> Result<(), KvError> {
    for _ in 0..2 {
        for _ in 0..6 {
            script.step(db, kvss)?;
        }
        db.sync()?;
    }
    Ok(())
}

fn strike_all(target: Target, effect: &Effect) -> Tally {
    let mut tally = Tally::default();
    for nth in (0..).step_by(STEP) {
        if !strike(target, nth, effect.clone(), &mut tally) {
            assert!(nth > 10, "{target:?}: {nth} commands");
            break;
        }
    }
    println!("{target:?}, {effect:?}: {tally:?}");
    tally
}

#[test]
fn lost_writes_are_told_of_or_harmless() {
    let tally = strike_all(Target::Write, &Effect::Lose);
    assert!(tally.told.iter().sum::<u64>() > 3, "{tally:?}");
}

#[test]
fn misdirected_writes_are_told_of_or_harmless() {
    for distance in [1, 32, 3001] {
        let effect = Effect::Misdirect { distance: LbaCount(distance) };
        let tally = strike_all(Target::Write, &effect);
        assert!(tally.told.iter().sum::<u64>() > 3, "{tally:?}");
    }
}

#[test]
fn misdirected_reads_are_told_of_or_harmless() {
    for distance in [1, 32, 3001] {
        let effect = Effect::Misdirect { distance: LbaCount(distance) };
        let tally = strike_all(Target::Read, &effect);
        // Maintenance reads again.
        assert!(tally.harmless > 3 && tally.told[1..] == [0, 0], "{tally:?}");
    }
}

#[test]
fn lost_flushes_are_harmless_without_a_crash() {
    let tally = strike_all(Target::Flush, &Effect::Lose);
    assert_eq!(tally.told, [0; 3]);
}

#[test]
fn slow_commands_change_nothing() {
    for target in [Target::Read, Target::Write, Target::Flush] {
        let span = std::time::Duration::from_secs(3);
        let effect = Effect::DelaySpan { clock: Clock::virtual_time(), span };
        assert_eq!(strike_all(target, &effect).told, [0; 3]);
    }
}

#[test]
fn device_that_returns_with_an_earlier_content_is_told_of() {
    for which in 0..3 {
        let options = test_options(tiny_tuning());
        let mut script = Script::new(11, &options, 60);
        let images = ["manifest", "capacity", "staging"]
            .map(|name| Arc::new(ImageDevice::new(name, 8 << 20, 512)));
        let media = devices(&images);
        let db = Kvdb::create_on(media.clone(), options.clone()).unwrap();
        let kvss = create_kvss(&db).unwrap();
        let mut work = |db: &Kvdb, kvss: &[Kvs; 2]| {
            run(db, kvss, &mut script, "no fault").unwrap();
        };
        work(&db, &kvss);
        db.close().unwrap();
        let earlier = Arc::new(images[which].fork());
        let db = Kvdb::open_on(media.clone(), options.clone()).unwrap();
        let kvss = NAMES.map(|name| db.kvs(name).unwrap());
        work(&db, &kvss);
        db.close().unwrap();
        drop(kvss);
        let mut images = images;
        images[which] = earlier;
        let told = match Kvdb::open_on(devices(&images), options) {
            Err(_) => true,
            Ok(db) => script.try_state_of(&db).is_err(),
        };
        assert!(told, "device {which}");
    }
}

fn devices(images: &[Arc<ImageDevice>; 3]) -> Devices {
    let [manifest, capacity, staging] = images.clone();
    Devices { manifest, capacity, staging: Some(staging) }
}
