//! Everything at once against a plain oracle: reads, writes, zeroes, discards, handle updates,
//! namespaces that come and go, checkpoints and power cuts, on drives of every kind; and counters
//! that reconcile with those of the device under the drive.
//!
//! The long campaign:
//! `cargo test --release -p esker-flash --test all drive_model:: -- --ignored --nocapture`

use std::sync::Arc;

use crate::common::outlet::Outlet;
use crate::common::script::{Open, Script, reopen};
use crate::common::tiny;
use esker_base::Clock;
use esker_device::{Device, MemoryDevice};
use esker_flash::drive::Media;
use esker_flash::ftl::{Cleaning, CleaningPace, Frontier};
use esker_flash::{Pace, Parameters, Ssd};

/// Differences between drives, by number: all combinations are below 512.
const DRIVES: u64 = 512;

fn drive(number: u64) -> (Parameters, Option<usize>, bool) {
    let mut left = number;
    let mut pick = |n: u64| {
        let picked = usize::try_from(left % n).unwrap();
        left /= n;
        picked
    };
    let is_timed = pick(2) == 1;
    let cleaning =
        [Cleaning::Greedy, Cleaning::Fifo, Cleaning::Choices(3), Cleaning::CostBenefit][pick(4)];
    let placement = [None, Some(0), Some(1), Some(2)][pick(4)];
    let frontier = [Frontier::Separate, Frontier::Shared][pick(2)];
    let (lba_size, page_size) =
        [(512, 4096), (4096, 4096), (512, 16 << 10), (4096, 16 << 10)][pick(4)];
    let is_in_place = pick(4) == 3;
    let mut parameters = tiny(if is_in_place { Media::InPlace } else { Media::Flash });
    parameters.cleaning = cleaning;
    parameters.frontier = frontier;
    if number % 5 == 4 {
        parameters.pace = CleaningPace::WhenNeeded;
    }
    parameters.lba_size = lba_size;
    if page_size > 4096 {
        parameters.page_size = page_size;
        parameters.nand_page_size = page_size;
        parameters.program_size = 2 * page_size;
        parameters.unit_size = 4 * u64::from(page_size);
        parameters.capacity = 128 * u64::from(page_size);
    }
    parameters.wear_spread = [None, Some(2)][usize::try_from(number % 3 / 2).unwrap()];
    (parameters, placement.filter(|_| !is_in_place), is_timed)
}

/// Runs a drive for so many steps; returns how many units it erased.
fn run(number: u64, seed: u64, steps: u64) -> u64 {
    let (parameters, placement, is_timed) = drive(number);
    let what = format!("drive {number} with seed {seed}");
    let all = Ssd::image_bytes(&parameters).unwrap();
    let memory = Arc::new(MemoryDevice::new("below", all, 4096));
    let outlet = Outlet::new(memory, all - parameters.media_bytes());
    let below: Arc<dyn Device> = outlet.clone();
    let clock = Clock::virtual_time();
    let pace = || if is_timed { Pace::virtual_time(clock.clone()) } else { Pace::untimed() };
    let ssd = Ssd::create("fuzzed", &parameters, below.clone(), pace()).unwrap();
    let mut open = Open::new(ssd);
    let mut script = Script::new(seed, &parameters, placement);
    script.begin(&mut open).unwrap();
    let mut media = 0;
    let mut power_cuts = 0;
    for step in 0..steps {
        script.step(&mut open).unwrap_or_else(|error| panic!("{what}, step {step}: {error}"));
        let is_cut = (step * 7 + seed) % 97 == 96;
        if is_cut || step % 31 == 30 {
            script.check_now(&mut open).unwrap_or_else(|error| panic!("{what}, {step}: {error}"));
            let report = open.ssd.report();
            assert_eq!(report.host_written_bytes, script.host_bytes(), "{what}, step {step}");
            let written = outlet.bytes() - media;
            assert_eq!(report.media_written_bytes(), written, "{what}, step {step}");
            let valid: u64 = report.writers.iter().map(|(_, units)| units.valid_pages).sum();
            assert!(valid <= parameters.capacity / u64::from(parameters.page_size));
        }
        if is_cut {
            power_cuts += 1;
            if power_cuts % 4 != 0 {
                outlet.cut();
            }
            drop(open);
            open = reopen(&below, pace()).unwrap_or_else(|error| panic!("{what}, {step}: {error}"));
            let ended = script.steps();
            script
                .check(&mut open, ended)
                .unwrap_or_else(|error| panic!("{what}, after the power cut at {step}: {error}"));
            script.resume(&mut open).unwrap();
            // The lost command has reached the device all the same.
            media = outlet.bytes() - open.ssd.report().media_written_bytes();
        }
    }
    let report = open.ssd.report();
    report.wear.iter().map(|(erasures, units)| u64::from(erasures * units)).sum()
}

#[test]
fn no_drive_ever_returns_wrong_data_or_counts_wrong() {
    let mut erasures = 0;
    // Every kind of everything, each a little.
    for number in (0..DRIVES).step_by(3) {
        erasures += run(number, number * 3 + 1, 200);
    }
    println!("{erasures} units erased");
    assert!(erasures > 10_000);
}

#[test]
#[ignore = "the long run: see the top of the file"]
fn no_drive_ever_returns_wrong_data_or_counts_wrong_for_long() {
    for round in 0..4 {
        let mut erasures = 0;
        for number in 0..DRIVES {
            let seed = 1000 + round * DRIVES + number;
            println!("drive {number} with seed {seed}");
            erasures += run(number, seed, 2500);
        }
        println!("round {round}: {erasures} units erased");
    }
}
