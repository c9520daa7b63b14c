//! Power cuts: every image that a crash may leave of a drive's device opens, and shows nothing
//! older than the last flush and nothing that was never there.
//!
//! The long campaign:
//! `cargo test --release -p esker-flash --test all crash:: -- --ignored --nocapture`

use std::sync::Arc;

use crate::common::outlet::Outlet;
use crate::common::script::{Open, Script, Step, reopen};
use crate::common::tiny;
use esker_base::Clock;
use esker_device::{Device, MemoryDevice};
use esker_flash::drive::Media;
use esker_flash::ftl::{Cleaning, Frontier};
use esker_flash::timing::HostQueues;
use esker_flash::{FlashError, Pace, Parameters, Ssd};
use esker_sim::{CrashRecorder, Image, Plan};

/// A recorded run: the script that knows its own steps, and the events of the device.
struct Run {
    script: Script,
    recorder: CrashRecorder,
    erasures: u64,
}

/// Time that does not pass by itself, where the host chooses dies: it chooses by their work.
fn pace_of(parameters: &Parameters) -> Pace {
    match parameters.timing.host_queues {
        Some(_) => Pace::virtual_time(Clock::virtual_time()),
        None => Pace::untimed(),
    }
}

fn record(seed: u64, parameters: &Parameters, placement: Option<usize>, steps: usize) -> Run {
    let pace = || pace_of(parameters);
    let recorder = CrashRecorder::new();
    let bytes = Ssd::image_bytes(parameters).unwrap();
    let below: Arc<dyn Device> = recorder.attach(Arc::new(MemoryDevice::new("below", bytes, 512)));
    let mut script = Script::new(seed, parameters, placement);
    let ssd = Ssd::create("crashed", parameters, below.clone(), pace()).unwrap();
    recorder.mark(0);
    let mut open = Open::new(ssd);
    script.begin(&mut open).unwrap();
    recorder.mark(script.steps());
    for step in 0..steps {
        if step % 200 == 199 {
            // Recovery is crashed as well. The test does not wait for the drive's work at its end.
            drop(open);
            open = reopen(&below, pace()).unwrap();
        }
        script.step(&mut open).unwrap();
        recorder.mark(script.steps());
    }
    let report = open.ssd.report();
    let erasures = report.wear.iter().map(|(n, units)| u64::from(n * units)).sum();
    Run { script, recorder, erasures }
}

/// Opens an image and checks it. `Err` names the broken promise.
fn check(run: &Run, image: &Image) -> Result<(), String> {
    let ended = image.marks().last().copied();
    let device = image.device(0);
    let mut open = match reopen(&device, Pace::untimed()) {
        Ok(open) => open,
        // Before `create` has returned there may be no drive yet.
        Err(FlashError::Corrupt(_)) if ended.is_none() => return Ok(()),
        Err(error) => return Err(format!("it does not open: {error}")),
    };
    let ended: Step = ended.unwrap_or(0);
    run.script.check(&mut open, ended)?;
    // Now and then, go on: a recovered drive must keep later writes, too.
    let number = image.id().to_string().len() as u64 + ended;
    if number.is_multiple_of(16) {
        drop(open);
        go_on(run, device, ended)?;
    }
    Ok(())
}

/// Goes on with the program, cuts the power again, and looks.
fn go_on(run: &Run, device: Arc<dyn Device>, ended: Step) -> Result<(), String> {
    let outlet = Outlet::new(device, 0);
    let below: Arc<dyn Device> = outlet.clone();
    let mut open = reopen(&below, Pace::untimed()).map_err(|error| error.to_string())?;
    let mut script = run.script.fork(ended, &mut open).map_err(|error| error.to_string())?;
    if ended == 0 {
        script.begin(&mut open).map_err(|error| error.to_string())?;
    }
    for _ in 0..60 {
        script.step(&mut open).map_err(|error| error.to_string())?;
    }
    script.check_now(&mut open)?;
    outlet.cut();
    drop(open);
    let mut again = reopen(&below, Pace::untimed()).map_err(|error| error.to_string())?;
    script.check(&mut again, script.steps())
}

/// Checks all images of a run; returns how many there were.
fn check_all(run: &Run, plan: &Plan) -> u64 {
    let mut images = 0;
    for image in run.recorder.history().images(plan) {
        if let Err(broken) = check(run, &image) {
            panic!("{broken}\nimage: {image}");
        }
        images += 1;
    }
    images
}

/// Drives that differ in everything that matters here.
fn drives(seed: u64) -> (Parameters, Option<usize>) {
    let cleaning = [Cleaning::Greedy, Cleaning::Fifo, Cleaning::Choices(2), Cleaning::CostBenefit];
    let mut parameters = tiny(if seed % 7 == 6 { Media::InPlace } else { Media::Flash });
    let pick = |n: u64| usize::try_from(seed % n).unwrap();
    parameters.cleaning = cleaning[pick(4)];
    parameters.frontier = [Frontier::Separate, Frontier::Shared][pick(3) / 2];
    if seed % 5 == 3 {
        (parameters.page_size, parameters.program_size, parameters.nand_page_size) =
            (16 << 10, 16 << 10, 16 << 10);
        (parameters.capacity, parameters.unit_size) = (4 * parameters.capacity, 64 << 10);
    }
    if seed % 2 == 1 && parameters.media == Media::Flash {
        parameters.lba_size = 4096;
    }
    parameters.wear_spread = [None, Some(2)][pick(2)];
    if seed % 3 == 1 && parameters.media == Media::Flash {
        // The layer is in the host, which chooses among the dies.
        parameters.timing.host_queues = Some(HostQueues {
            window: 4,
            in_flight: 0,
            cached_pages: 4,
            copy_bytes_per_s: 4_000_000_000,
        });
    }
    let placement = [None, Some(0), Some(1), Some(2)][pick(4)];
    // As few as each can do with, so that it cleans all the time.
    parameters.units = [36, 40, 44, 44][pick(4)];
    (parameters.clone(), placement.filter(|_| parameters.media == Media::Flash))
}

#[test]
fn no_power_cut_loses_what_was_flushed() {
    let plan = Plan { all_subsets: 2, singles: 2, random_subsets: 1, ..Plan::default() };
    let (mut images, mut erasures) = (0, 0);
    for seed in 0..14 {
        let (parameters, placement) = drives(seed);
        let run = record(seed, &parameters, placement, 80);
        images += check_all(&run, &plan);
        println!("seed {seed}: {images} images so far, {} units erased", run.erasures);
        erasures += run.erasures;
    }
    assert!(images >= 10_000 && erasures >= 150, "{images} images and {erasures} erasures");
}

#[test]
#[ignore = "the long run: see the top of the file"]
fn no_power_cut_loses_what_was_flushed_in_a_million_images() {
    let (mut images, mut seed) = (0, 100);
    while images < 1_000_000 {
        let (parameters, placement) = drives(seed);
        let run = record(seed, &parameters, placement, 1200);
        let plan = Plan { all_subsets: 5, random_subsets: 8, tears: 2, seed, ..Plan::default() };
        images += check_all(&run, &plan);
        println!("seed {seed}: {images} images so far, {} units erased", run.erasures);
        seed += 1;
    }
}

#[test]
fn a_power_cut_during_recovery_changes_nothing() {
    let plan = Plan { all_subsets: 3, singles: 2, random_subsets: 1, ..Plan::default() };
    let mut images = 0;
    for seed in [1, 2, 3, 6] {
        let (parameters, placement) = drives(seed);
        let run = record(seed, &parameters, placement, 110);
        for image in run.recorder.history().images(&plan).step_by(307) {
            let Some(&ended) = image.marks().last() else { continue };
            let again = CrashRecorder::new();
            let device = image.device(0);
            let extent = device.geometry().capacity;
            let device: Arc<dyn Device> = again.attach_holding(device, extent).unwrap();
            let mut open = reopen(&device, Pace::untimed()).unwrap();
            run.script.check(&mut open, ended).unwrap();
            for second in again.history().images(&plan) {
                let mut open = reopen(&second.device(0), Pace::untimed())
                    .unwrap_or_else(|error| panic!("{error}\nimage: {image}\nthen: {second}"));
                if let Err(broken) = run.script.check(&mut open, ended) {
                    panic!("{broken}\nimage: {image}\nthen: {second}");
                }
                images += 1;
            }
        }
    }
    println!("{images} images of recoveries");
    assert!(images > 300, "only {images} images of crashed recoveries");
}

#[test]
fn no_power_cut_around_the_end_of_the_journal_loses_what_was_flushed() {
    let parameters = tiny(Media::Flash);
    let recorder = CrashRecorder::new();
    let bytes = Ssd::image_bytes(&parameters).unwrap();
    let below = recorder.attach(Arc::new(MemoryDevice::new("below", bytes, 4096)));
    let mut script = Script::new(5, &parameters, None);
    let ssd = Ssd::create("wraps", &parameters, below, Pace::untimed()).unwrap();
    let mut open = Open::new(ssd);
    recorder.mark(0);
    let mut around = Vec::new();
    let mut journal = 0;
    script.begin(&mut open).unwrap();
    recorder.mark(script.steps());
    while around.len() < 2 {
        let before = recorder.history().len();
        script.durable_write(&mut open).unwrap();
        recorder.mark(script.steps());
        let events = recorder.history().len() - before;
        journal += 1;
        // A checkpoint takes more than a frame of the journal and a few discards.
        if journal > 1 && events > 9 {
            around.push(before - 60..before + events + 60);
        }
    }
    for _ in 0..15 {
        script.durable_write(&mut open).unwrap();
        recorder.mark(script.steps());
    }
    let run = Run { script, recorder, erasures: 0 };
    let plan = Plan { all_subsets: 6, ..Plan::default() };
    let mut images = 0;
    for image in run.recorder.history().images(&plan) {
        if around.iter().any(|points| points.contains(&image.id().point)) {
            check(&run, &image).unwrap_or_else(|broken| panic!("{broken}\nimage: {image}"));
            images += 1;
        }
    }
    println!("{images} images around the ends of {journal} frames");
    assert!(journal > 1000 && images > 100, "only {images} images");
}

#[test]
fn flushes_that_do_nothing_are_caught() {
    let plan = Plan { all_subsets: 2, singles: 2, random_subsets: 1, ..Plan::default() };
    for seed in [0, 1, 6] {
        let (parameters, placement) = drives(seed);
        let run = record(seed, &parameters, placement, 60);
        let flushes = run.recorder.history().flushes(0);
        assert!(flushes > 3, "the device is flushed");
        for n in 0..flushes {
            run.recorder.skip_flush(0, n);
        }
        let caught = run.recorder.history().images(&plan).any(|image| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&run, &image)))
                .map_or(true, |result| result.is_err())
        });
        assert!(caught, "flushes could be left out and no image would tell");
    }
}

#[test]
fn a_power_cut_after_a_drive_was_made_over_another_leaves_the_new_one() {
    let parameters = tiny(Media::Flash);
    let bytes = Ssd::image_bytes(&parameters).unwrap();
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new("below", bytes, 4096));
    let ssd = Ssd::create("old", &parameters, memory.clone(), Pace::untimed()).unwrap();
    let mut old = Script::new(9, &parameters, None);
    let mut open = Open::new(ssd);
    (0..60).for_each(|_| old.step(&mut open).unwrap());
    drop(open);
    let recorder = CrashRecorder::new();
    let extent = memory.geometry().capacity;
    let below = recorder.attach_holding(memory, extent).unwrap();
    let ssd = Ssd::create("new", &parameters, below, Pace::untimed()).unwrap();
    recorder.mark(0);
    let mut script = Script::new(10, &parameters, None);
    let mut open = Open::new(ssd);
    for _ in 0..25 {
        script.step(&mut open).unwrap();
        recorder.mark(script.steps());
    }
    drop(open);
    let plan = Plan { all_subsets: 3, singles: 1, random_subsets: 1, ..Plan::default() };
    for image in recorder.history().images(&plan) {
        match reopen(&image.device(0), Pace::untimed()) {
            Ok(mut open) if open.ssd.name() == "new" => script
                .check(&mut open, image.marks().last().copied().unwrap_or(0))
                .unwrap_or_else(|broken| panic!("{broken}\nimage: {image}")),
            found => {
                let name = found.map_or_else(|e| e.to_string(), |open| open.ssd.name().to_owned());
                assert!(image.marks().is_empty(), "{name} is found\nimage: {image}");
            }
        }
    }
}
