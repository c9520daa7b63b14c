//! Every command of the device under a drive fails once: the drive says so, goes no further, and
//! is found again with everything that was flushed.

use std::sync::Arc;

use crate::common::script::{Open, Script, reopen};
use crate::common::tiny;
use esker_base::Clock;
use esker_device::{Device, MemoryDevice};
use esker_flash::drive::Media;
use esker_flash::{FlashError, Pace, Parameters, Ssd};
use esker_sim::{Effect, FaultDevice, FaultPlan, Target};

fn parameters(media: Media) -> Parameters {
    Parameters { capacity: 64 * 4096, units: 32, ..tiny(media) }
}

/// Runs a program to its end or the first error.
fn run(
    device: &Arc<dyn Device>,
    pace: Pace,
    script: &mut Script,
    kept: &mut Option<Open>,
    parameters: &Parameters,
) -> Result<(), FlashError> {
    let ssd = Ssd::create("faulty", parameters, device.clone(), pace)?;
    let open = kept.insert(Open::new(ssd));
    script.begin(open)?;
    for step in 0..60 {
        script.step(open)?;
        if step % 20 == 19 {
            script.check_now(open).map_err(FlashError::Invalid)?;
        }
    }
    Ok(())
}

/// Strikes command number `nth` of `target`. False: the run ended before that command.
fn strike(media: Media, is_timed: bool, target: Target, nth: u64, effect: Effect) -> bool {
    let what = format!("{media:?}, {target:?} number {nth}, {effect:?}");
    let parameters = parameters(media);
    let plan = FaultPlan::new();
    plan.once(target, nth, effect);
    let bytes = Ssd::image_bytes(&parameters).unwrap();
    let sound: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", bytes, 4096));
    let faulty: Arc<dyn Device> = Arc::new(FaultDevice::new(sound.clone(), &plan));
    let pace = if is_timed { Pace::virtual_time(Clock::virtual_time()) } else { Pace::untimed() };
    let placement = if media == Media::Flash { Some(1) } else { None };
    let mut script = Script::new(3, &parameters, placement);
    let mut open = None;
    let result = run(&faulty, pace, &mut script, &mut open, &parameters);
    if plan.fired() == 0 {
        result.unwrap_or_else(|error| panic!("{what}: no fault, and yet {error}"));
        return false;
    }
    if let Err(error) = &result {
        let text = error.to_string();
        assert!(text.contains("below"), "{what}: {error}");
        assert!(!text.contains("holds"), "{what}: {error}");
    }
    // Reads are right, whatever command was refused. A drive that has failed refuses all.
    if let Some(mut open) = open {
        if let Err(broken) = script.check(&mut open, script.steps()) {
            // A namespace that could not be made is not open here, either.
            let is_told = broken.contains("open it again") || broken.contains("is closed");
            assert!(is_told, "{what}: {broken}");
        }
        if result.is_err() && matches!(target, Target::Write | Target::Flush) {
            let error = open.ssd.checkpoint().expect_err(&what);
            assert!(error.to_string().contains("open it again"), "{what}: {error}");
            let error = open.ssd.create_namespace(4096, None).expect_err(&what);
            assert!(error.to_string().contains("open it again"), "{what}: {error}");
        }
    }
    match reopen(&sound, Pace::untimed()) {
        Ok(mut again) => script
            .check(&mut again, script.steps())
            .unwrap_or_else(|broken| panic!("{what}: {broken}")),
        Err(error) => assert_eq!(script.steps(), 0, "{what}: it is gone: {error}"),
    }
    true
}

#[test]
fn a_failing_command_at_any_position_is_told_and_loses_nothing() {
    let mut strikes = 0;
    for media in [Media::Flash, Media::InPlace] {
        for target in [Target::Read, Target::Write, Target::Flush, Target::Discard] {
            let mut nth = 0;
            while strike(media, nth % 2 == 1, target, nth, Effect::Fail) {
                nth += 1;
            }
            assert!(nth > 1, "{media:?} {target:?}: the run has commands of every kind");
            strikes += nth;
        }
    }
    println!("{strikes} commands failed, one in each run");
}

#[test]
fn a_short_transfer_at_any_position_is_told_and_loses_nothing() {
    for media in [Media::Flash, Media::InPlace] {
        for target in [Target::Read, Target::Write] {
            let mut nth = 0;
            while strike(media, nth % 2 == 0, target, nth, Effect::Short) {
                nth += 2;
            }
        }
    }
}
