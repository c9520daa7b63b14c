//! A device that held another drive before, and a drive that crashes while it recovers from a crash:
//! the drive found is one as it was flushed, never a mixture.

use std::sync::Arc;

use crate::common::outlet::Outlet;
use crate::common::script::{Open, Script, reopen};
use crate::common::tiny;
use esker_device::{Device, MemoryDevice};
use esker_flash::drive::Media;
use esker_flash::{FlashError, Pace, Parameters, Ssd};
use esker_sim::enumerate::Images;
use esker_sim::{CrashRecorder, Plan};

/// Makes a drive on `device`, which goes on until the power is cut.
fn live(device: &Arc<dyn Device>, name: &str, seed: u64, parameters: &Parameters) -> Script {
    let outlet = Outlet::new(device.clone(), 0);
    let below: Arc<dyn Device> = outlet.clone();
    let ssd = Ssd::create(name, parameters, below, Pace::untimed()).unwrap();
    let mut open = Open::new(ssd);
    let mut script = Script::new(seed, parameters, None);
    script.begin(&mut open).unwrap();
    for _ in 0..40 {
        script.step(&mut open).unwrap();
    }
    outlet.cut();
    script
}

/// Images of the writes of `run` to a device.
fn images_of(
    device: Arc<dyn Device>,
    plan: Plan,
    run: impl FnOnce(&CrashRecorder, Arc<dyn Device>),
) -> Images {
    let recorder = CrashRecorder::new();
    let extent = device.geometry().capacity;
    run(&recorder, recorder.attach_holding(device, extent).unwrap());
    recorder.history().images(&plan)
}

#[test]
fn a_power_cut_while_a_drive_is_made_over_another_leaves_one_of_them_or_none() {
    let mut found = [0; 3];
    for (seed, media) in [(1, Media::Flash), (2, Media::InPlace), (3, Media::Flash)] {
        let mut parameters = tiny(media);
        let bytes = 2 * Ssd::image_bytes(&parameters).unwrap();
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", bytes, 512));
        let mut former = live(&device, "former", seed, &parameters);
        // The new one lies elsewhere on the device, or where the former one did.
        if seed == 3 {
            parameters.units += 8;
            former = live(&device, "former", seed + 10, &parameters);
            parameters.units -= 8;
        }
        let mut new = Script::new(seed + 20, &parameters, None);
        let plan = Plan { all_subsets: 2, singles: 3, random_subsets: 2, ..Plan::default() };
        let images = images_of(device, plan, |recorder, device| {
            let ssd = Ssd::create("new", &parameters, device, Pace::untimed()).unwrap();
            recorder.mark(0);
            let mut open = Open::new(ssd);
            new.begin(&mut open).unwrap();
            recorder.mark(new.steps());
            for _ in 0..30 {
                new.step(&mut open).unwrap();
                recorder.mark(new.steps());
            }
        });
        for image in images {
            let ended = image.marks().last().copied();
            match reopen(&image.device(0), Pace::untimed()) {
                Ok(mut open) if open.ssd.name() == "former" => {
                    assert_eq!(ended, None, "the former drive is back: {image}");
                    former.check(&mut open, former.steps()).unwrap();
                    found[0] += 1;
                }
                Ok(mut open) => {
                    let checked = new.check(&mut open, ended.unwrap_or(0));
                    checked.unwrap_or_else(|broken| panic!("{broken}\nimage: {image}"));
                    found[2] += 1;
                }
                Err(FlashError::Corrupt(_)) if ended.is_none() => found[1] += 1,
                Err(error) => panic!("{error}\nimage: {image}"),
            }
        }
    }
    println!("{found:?}");
    assert!(found[0] > 3 && found[1] > 20 && found[2] > 500, "{found:?}");
}

#[test]
fn a_power_cut_while_a_drive_recovers_from_one_loses_nothing() {
    let parameters = tiny(Media::Flash);
    let bytes = Ssd::image_bytes(&parameters).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", bytes, 512));
    // Superblocks of more than an LBA, which may be torn.
    let name = "long".repeat(200);
    let script = live(&device, &name, 5, &parameters);
    let few = Plan { all_subsets: 2, tears: 12, ..Plan::default() };
    let open = |_: &CrashRecorder, device| drop(reopen(&device, Pace::untimed()).unwrap());
    let mut images = 0;
    for first in images_of(device, few.clone(), open) {
        for second in images_of(first.device(0), few.clone(), open) {
            let about = format!("{first}, then {second}");
            let opened = reopen(&second.device(0), Pace::untimed());
            let mut opened = opened.unwrap_or_else(|error| panic!("{error}: {about}"));
            let checked = script.check(&mut opened, script.steps());
            checked.unwrap_or_else(|broken| panic!("{broken}: {about}"));
            images += 1;
        }
    }
    assert!(images > 100, "{images} images");
}
