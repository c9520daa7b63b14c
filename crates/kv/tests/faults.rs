//! Every device error, at every position: it surfaces as an error that names device, address and
//! operation; the KVDB stays readable; nothing promised is lost.

mod common;

use std::sync::Arc;

use common::script::{NAMES, Script, create_kvss};
use common::{small_tuning, test_options};
use esker_device::{Device, MemoryDevice};
use esker_kv::{Devices, KvError, Kvdb, Options, Policy};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};

fn options() -> Options {
    test_options(esker_kv::Tuning {
        memtable_bytes: 10 << 10,
        block_bytes: 16 << 10,
        frame_bytes: 2 << 10,
        spill_kvsets: 2,
        compact_kvsets: 3,
        ..small_tuning()
    })
}

/// The devices themselves, and the same with faults.
fn devices(plan: &FaultPlan) -> (Devices, Devices) {
    let memory = |name: &str, bytes: u64| -> Arc<dyn Device> {
        Arc::new(MemoryDevice::new(name, bytes, 512))
    };
    let sound = Devices {
        manifest: memory("the-manifest", 256 << 10),
        capacity: memory("the-capacity", 4 << 20),
        staging: Some(memory("the-staging", 2 << 20)),
    };
    let faulty = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
        Arc::new(FaultDevice::new(device.clone(), plan))
    };
    let with_faults = Devices {
        manifest: faulty(&sound.manifest),
        capacity: faulty(&sound.capacity),
        staging: sound.staging.as_ref().map(faulty),
    };
    (sound, with_faults)
}

/// Runs the script until its end or the first error.
fn run(devices: &Devices, script: &mut Script, db: &mut Option<Kvdb>) -> Result<(), KvError> {
    *db = Some(Kvdb::create_on(devices.clone(), options())?);
    let mut kvss = create_kvss(db.as_ref().unwrap())?;
    for step in 0..160 {
        if step == 80 {
            db.take().unwrap().close()?;
            *db = Some(Kvdb::open_on(devices.clone(), options())?);
            let open = db.as_ref().unwrap();
            kvss = [open.kvs(NAMES[0])?, open.kvs(NAMES[1])?];
        }
        script.step(db.as_ref().unwrap(), &kvss)?;
        if step % 5 == 0 {
            kvss[0].get(format!("{:03}---", (step % 90) | 1).as_bytes())?;
        }
    }
    Ok(())
}

fn names_what_failed(error: &KvError) -> bool {
    let text = error.to_string();
    let device = ["the-manifest", "the-capacity", "the-staging"].iter().any(|d| text.contains(d));
    let operation = ["read", "write", "flush", "discard"].iter().any(|op| text.contains(op));
    // A flush has no address.
    device && operation && (text.contains("LBA") || text.contains("flush"))
}

/// Strikes command number `nth` of `target` and checks what must hold then. False: the run ended
/// before that command.
fn strike(target: Target, nth: u64, effect: Effect) -> bool {
    let plan = FaultPlan::new();
    plan.once(target, nth, effect.clone());
    let (sound, faulty) = devices(&plan);
    let mut script = Script::new(11, &options(), 90);
    let mut db = None;
    let what = format!("{target:?} number {nth}, {effect:?}");
    let result = run(&faulty, &mut script, &mut db);
    if plan.fired() == 0 {
        result.unwrap_or_else(|error| panic!("{what}: no fault, and yet {error}"));
        return false;
    }
    if let Err(error) = &result {
        assert!(names_what_failed(error), "{what}: {error}");
    }
    let promised = script.promised();
    if let Some(db) = db {
        // The fault has passed; what is in the KVDB can be read, whatever was stopped.
        let state =
            script.state_of(&db).unwrap_or_else(|| panic!("{what}: a state that never was"));
        assert!(state >= script.written(), "{what}: acknowledged writes are not readable");
        Script::check_reads(&db);
        if let Some(why) = db.stats().stopped {
            let error = match db.kvs(NAMES[0]) {
                Ok(kvs) => kvs.put(b"k", b"v").unwrap_err(),
                Err(_) => db.create_kvs(NAMES[0], Policy::default()).err().unwrap(),
            };
            assert!(names_what_failed(&error), "{what}: {error} ({why})");
        }
        std::mem::forget(db);
    }
    match Kvdb::open_on(sound, options()) {
        Ok(db) => {
            let state = script.state_of(&db);
            let state =
                state.unwrap_or_else(|| panic!("{what}: reopened to a state that never was"));
            assert!(state >= promised, "{what}: state {state} of {promised} promised");
        }
        Err(KvError::NotAKvdb { .. }) => {
            assert_eq!(script.written(), 0, "{what}: the KVDB is gone");
        }
        Err(error) => panic!("{what}: it does not open any more: {error}"),
    }
    true
}

#[test]
fn a_failing_command_at_any_position_surfaces_and_loses_nothing() {
    let mut strikes = 0;
    for target in [Target::Read, Target::Write, Target::Flush, Target::Discard] {
        let mut nth = 0;
        while strike(target, nth, Effect::Fail) {
            nth += 1;
        }
        assert!(nth > 3, "{target:?}: the run has commands of every kind");
        strikes += nth;
    }
    println!("{strikes} commands failed, one in each run");
}

#[test]
fn a_short_transfer_at_any_position_surfaces_and_loses_nothing() {
    for target in [Target::Read, Target::Write] {
        let mut nth = 0;
        while strike(target, nth, Effect::Short) {
            nth += 3;
        }
    }
}

/// A bit that flips on its way is noticed by a checksum, or hit what nobody reads; it never comes
/// back as a value.
#[test]
fn a_flipped_bit_in_any_read_is_never_taken_for_data() {
    let mut noticed = 0;
    for nth in 0..400usize {
        let plan = FaultPlan::new();
        plan.once(Target::Read, nth as u64, Effect::Corrupt { offset: nth * 37, mask: 0x10 });
        let (sound, faulty) = devices(&plan);
        let mut script = Script::new(11, &options(), 90);
        let mut db = None;
        let result = run(&faulty, &mut script, &mut db);
        noticed += u32::from(result.is_err());
        if let Some(db) = db {
            match script.try_state_of(&db) {
                Ok(state) => assert!(state.is_some(), "read {nth}: a state that never was"),
                Err(error) => {
                    assert!(names_what_failed(&error) || error.to_string().contains("damaged"));
                    noticed += 1;
                }
            }
            std::mem::forget(db);
        }
        if let Ok(db) = Kvdb::open_on(sound, options()) {
            assert!(
                script.state_of(&db).is_some(),
                "read {nth}: reopened to a state that never was"
            );
        }
    }
    assert!(noticed > 20, "only {noticed} of 400 were noticed");
}
