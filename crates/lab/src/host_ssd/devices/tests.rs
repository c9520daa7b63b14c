//! Named devices that are models in virtual time or memory.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use esker_base::Clock;
use esker_device::MemoryDevice;
use esker_flash::{Pace, Ssd};

use super::super::drive::{self, Side};
use super::super::{HostMachine, HostSsd, HostSsdFigures, latency};
use super::*;
use crate::device_load::Source;
use crate::steps::Progress;
use crate::text::one_line;
use crate::{Report, study};

/// Bytes of the modelled drives.
const DRIVE: u64 = 1 << 30;

fn options() -> HostSsdOptions {
    HostSsdOptions {
        drive_bytes: DRIVE,
        reads: 20_000,
        device_reads: 20_000,
        depths: vec![1, 32, 256],
        ..HostSsdOptions::default()
    }
}

fn follow(_: &Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn named(name: &str, target: Target) -> ReadDevice {
    ReadDevice { name: name.to_owned(), target, stored_bytes: None, remarks: Vec::new() }
}

fn memory(bytes: u64, lba_size: u32) -> ReadDevice {
    let device = Arc::new(MemoryDevice::new("memory", bytes, lba_size));
    named("memory", Target { device, clock: Clock::real(), model: None })
}

/// The conventional drive itself, in virtual time; filled or not.
fn conventional(is_filled: bool) -> ReadDevice {
    let parameters = drive::parameters(Side::Drive, DRIVE, false).unwrap();
    let clock = Clock::virtual_time();
    let pace = Pace::virtual_time(clock.clone());
    let ssd = Ssd::without_data("drive", &parameters, pace).unwrap();
    let id = ssd.create_namespace(parameters.capacity, None).unwrap();
    let device = Arc::new(ssd.namespace(id).unwrap());
    let target = Target { device, clock: clock.clone(), model: Some(ssd) };
    if is_filled {
        let job = Job { fill: true, bytes_limit: Some(4096), ..Job::default() };
        device_load::run(&job, Source::Mix, &target, &AtomicBool::new(false)).unwrap();
        clock.advance(Duration::from_secs(1));
    }
    named("the same drive", target)
}

fn models(options: &HostSsdOptions) -> Vec<DepthResult> {
    let mut follow = follow;
    latency::measure(options, &mut Steps::new(&mut follow, 0)).unwrap()
}

/// The load of a named device is that of the models: it finds in the conventional drive the same figures.
#[test]
fn conventional_drive_that_is_named_has_its_own_figures() {
    let (options, device) = (options(), conventional(true));
    let written = device.target.device.stats().written_bytes;
    let found = measure(&options, &[device], &mut follow).unwrap();
    let models = models(&options);
    let close = |seen: f64, model: f64, share: f64| {
        assert!((seen / model - 1.0).abs() < share, "{seen} {model}")
    };
    for (seen, model) in found[0].depths.iter().zip(&models) {
        let (of, to) = (&seen.latency, &model.conventional);
        assert!(seen.reads >= options.device_reads, "{}", seen.reads);
        close(of.p50_us, to.p50_us, 0.01);
        close(of.p80_us, to.p80_us, 0.01);
        close(of.p99_us, to.p99_us, 0.05);
        close(of.p999_us, to.p999_us, 0.1);
        close(of.mean_us, to.mean_us, 0.01);
        close(seen.per_s, model.per_s[0], 0.01);
        for (one, other) in of.cumulative.iter().zip(&to.cumulative) {
            assert!((one - other).abs() < 0.03, "{one} {other} at {}", seen.depth);
        }
    }
    assert_eq!(found[0].depth_within, Some(32));
    // Its own count: reading wrote nothing.
    assert_eq!((written, found[0].unwritten), (DRIVE, Some(0.0)));
}

#[test]
fn devices_are_not_written() {
    let device = memory(16 << 20, 4096);
    measure(&options(), std::slice::from_ref(&device), &mut follow).unwrap();
    let stats = device.target.device.stats();
    assert_eq!((stats.written_bytes, stats.discarded_bytes), (0, 0));
    assert!(stats.read_bytes >= 3 * 20_000 * 4096);
}

#[test]
fn report_shows_a_named_device_everywhere() {
    let options = HostSsdOptions { reads: 2_000, lookups: 2_000, threads: vec![1], ..options() };
    let options = HostSsdOptions { data_bytes: 32 << 20, device_reads: 1_000, ..options };
    let run = |devices| {
        let mut machine = HostMachine { devices, installed: None };
        study::run::<HostSsd>(&options, &mut machine, &mut follow).unwrap()
    };
    let verdicts = run(Vec::new()).verdicts;
    let mut device = conventional(false);
    device.remarks.push("a remark of the device".to_owned());
    let report: Report<HostSsd> = run(vec![device]);
    assert_eq!(report.verdicts, verdicts);
    let (text, page, json) = (report.page().text(), report.page().html(), report.json());
    let comparison = report.figures.devices[0].comparison.clone();
    for part in [
        "the same drive",
        "a remark of the device",
        "100 % of the same drive hold no data",
        &comparison,
    ] {
        assert!(one_line(&text).contains(part), "{part} is missing:\n{text}");
        assert!(json.to_string().contains(part), "{part} is missing in the figures");
        assert!(page.contains(part), "{part} is missing on the page");
    }
    assert!(page.contains("shortest median of a named device"));
    // Without data there is no sense time: no read of the empty drive takes as long as one of a full drive.
    assert_eq!(report.figures.devices[0].depth_within, Some(32));
    assert!(comparison.contains("up to depth 32, there up to depth 32"), "{comparison}");
    let again: HostSsdFigures = serde_json::from_value(json).unwrap();
    assert_eq!(again.devices[0].depths.len(), 3);
}

#[test]
fn comparison_names_factors_and_depths() {
    let of = |p50_us: f64, p80_us: f64| Latency {
        p50_us,
        p80_us,
        p99_us: p80_us,
        p999_us: p80_us,
        mean_us: p50_us,
        cumulative: Vec::new(),
    };
    let model = |depth, p80_us, per_s| DepthResult {
        depth,
        conventional: of(100.0, p80_us),
        in_order: of(1.0, 1.0),
        submission: of(1.0, 1.0),
        issue: of(1.0, 1.0),
        bounded_in_order: of(1.0, 1.0),
        bounded_submission: of(1.0, 1.0),
        bounded_issue: of(1.0, 1.0),
        per_s: [per_s; 4],
    };
    let own = |depth, p50_us, per_s| DeviceDepth {
        depth,
        reads: 1000,
        per_s,
        latency: of(p50_us, p50_us),
    };
    let mut device = DeviceResult {
        name: "mine".to_owned(),
        capacity_bytes: 1 << 30,
        read_bytes: 4096,
        depths: vec![own(64, 4_000.0, 200.0), own(1, 250.0, 100.0)],
        depth_within: None,
        unwritten: None,
        comparison: String::new(),
        remarks: Vec::new(),
    };
    device.compare(&[model(64, 160.0, 400.0), model(1, 120.0, 10.0)]);
    let seen = &device.comparison;
    for part in [
        "2.50 times",
        "at depth 1,",
        "0.50 times",
        "at depth 64,",
        "at no depth, there up to depth 1.",
    ] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
}

#[test]
fn small_factors_keep_two_digits() {
    assert_eq!(
        [122.91, 1.0, 0.1, 0.05, 0.000_459].map(times),
        ["122.91", "1.00", "0.10", "0.050", "0.00046"]
    );
    assert_eq!(times(0.0), "0.00");
}

#[test]
fn small_lbas_are_read_by_4_kib() {
    let read = |lba_size| memory(16 << 20, lba_size).read_bytes();
    assert_eq!((read(512), read(4096)), (4096, 4096));
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_read() {
    let refused = |options: &HostSsdOptions, devices: &[ReadDevice], part: &str| {
        let why = check(options, devices).unwrap_err().to_string();
        assert!(why.contains(part), "{why}");
        assert_eq!(why, measure(options, devices, &mut follow).unwrap_err().to_string());
        assert!(devices.iter().all(|one| one.target.device.stats().read_bytes == 0));
    };
    let devices: Vec<ReadDevice> = (0..=MOST).map(|_| memory(1 << 20, 4096)).collect();
    refused(&options(), &devices, "at most 4");
    refused(&options(), &[memory(1 << 20, 4096), memory(2048, 512)], "4.00 KiB or more");
    refused(&HostSsdOptions { device_reads: 10, ..options() }, &devices[..1], "1,000");
    refused(&HostSsdOptions { depths: vec![0], ..options() }, &devices[..1], "depths");
    let ended = measure(&options(), &devices[..1], &mut |_| ControlFlow::Break(()));
    assert!(matches!(ended, Err(LabError::Interrupted)));
}

/// Virtual time: what a slow device takes costs nothing here.
#[test]
fn slow_device_ends_a_depth_by_time_and_not_without_a_read() {
    let device = conventional(true);
    let at = |limit| at_depth(&options(), &device, 32, limit);
    let short = at(Duration::from_millis(10)).unwrap();
    assert!((2_000..4_000).contains(&short.reads), "{}", short.reads);
    let why = at(Duration::from_nanos(1)).unwrap_err().to_string();
    assert!(why.contains("fewer than 64 reads") && why.contains("--depths"), "{why}");
}

#[test]
fn holes_of_files_are_a_share_of_the_capacity() {
    let of = |stored_bytes| ReadDevice { stored_bytes, ..memory(1 << 20, 4096) }.unwritten();
    assert_eq!((of(None), of(Some(3 << 18)), of(Some(1 << 21))), (None, Some(0.25), Some(0.0)));
}
