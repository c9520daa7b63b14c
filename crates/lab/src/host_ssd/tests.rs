//! The study, small: that it runs, says the same each time, and shows everything.

use std::ops::ControlFlow;

use super::*;
use crate::steps::Progress;
use crate::{Report, study};

type HostSsdReport = Report<HostSsd>;

fn run(
    options: &HostSsdOptions,
    mut follow: impl FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<HostSsdReport, LabError> {
    study::run(options, &mut HostMachine::default(), &mut follow)
}

fn small() -> HostSsdOptions {
    HostSsdOptions {
        drive_bytes: 1 << 30,
        reads: 4_000,
        depths: vec![1, 32, 256],
        data_bytes: 64 << 20,
        lookups: 4_000,
        threads: vec![1, 16],
        ..HostSsdOptions::default()
    }
}

fn follow(_: &Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn the_study_says_the_same_twice_and_shows_everything() {
    let report = run(&small(), follow).unwrap();
    assert_eq!(report, run(&small(), follow).unwrap());
    let (text, page, json) = (report.page().text(), report.page().html(), report.json());
    for part in
        ["conventional", "from issue", "INPUT: 5.5 GB/s", "context switches", "kernel, 8 pages"]
    {
        assert!(text.contains(part) && page.contains(part), "{part} is missing:\n{text}");
    }
    let again: HostSsdFigures = serde_json::from_value(json).unwrap();
    // Floating point numbers of JSON may differ in their last bit.
    assert_eq!(again.assumptions, report.figures.assumptions);
    assert_eq!(HostSsd::verdicts(&again), report.verdicts);
    let other = run(&HostSsdOptions { seed: 2, ..small() }, follow).unwrap();
    assert_ne!(other.figures.depths, report.figures.depths);
}

/// By hand: tR, channel, link and the time of the host or of the firmware.
#[test]
fn one_read_at_a_time_takes_the_sum_of_its_parts() {
    let report = run(&small(), follow).unwrap();
    let one = &report.figures.depths[0];
    assert_eq!(one.depth, 1);
    let ns = |us: f64| format!("{:.0}", us * 1000.0);
    assert_eq!(
        ns(one.conventional.p50_us),
        (25_000 + 60_000 + 10_240 + 1_463 + 10_000).to_string()
    );
    for seen in [&one.in_order, &one.submission, &one.issue] {
        assert_eq!(ns(seen.p50_us), (60_000 + 10_240 + 745 + 5_000).to_string());
        assert_eq!(seen.p50_us, seen.p99_us);
    }
}

#[test]
fn each_step_is_worth_what_it_is_for() {
    let report = run(&small(), follow).unwrap();
    let factors = |index: usize| {
        let one = &report.figures.account[index].by_threads[0];
        (one.lookup_factor, one.scan_factor)
    };
    assert_eq!(factors(0), (1.0, 1.0));
    // Polling and the host's FTL shorten every read; whole pages and reading ahead only scans.
    let (polled, host, whole, esker) = (factors(1), factors(2), factors(4), factors(5));
    assert!(polled.0 > 1.0 && host.0 > 1.3 && host.1 > 1.3, "{polled:?} {host:?}");
    assert!((whole.0 / host.0 - 1.0).abs() < 0.02 && whole.1 > 2.0 * host.1, "{whole:?}");
    assert!((esker.0 / host.0 - 1.0).abs() < 0.02 && esker.1 > 2.0 * whole.1, "{esker:?}");
}

#[test]
fn options_that_make_no_study_are_refused() {
    let refused = |options: HostSsdOptions, part: &str| {
        let why = run(&options, follow).err().unwrap().to_string();
        assert!(why.contains(part), "{why}");
    };
    refused(HostSsdOptions { depths: vec![], ..small() }, "depths");
    refused(HostSsdOptions { threads: vec![0], ..small() }, "threads");
    refused(HostSsdOptions { drive_bytes: 1 << 20, ..small() }, "at least");
    refused(HostSsdOptions { data_bytes: 4 << 30, ..small() }, "the table");
    refused(HostSsdOptions { reads: 1, ..small() }, "1,000");
    refused(HostSsdOptions { reads: usize::MAX, ..small() }, "at most");
    refused(HostSsdOptions { lookups: u64::MAX, ..small() }, "at most");
    let ended = run(&small(), |_| ControlFlow::Break(()));
    assert!(matches!(ended, Err(LabError::Interrupted)));
}

/// The figures until then are those of a whole study, and nothing is judged.
#[test]
fn ended_study_reports_what_it_has_measured() {
    let whole = run(&small(), follow).unwrap();
    for last in [1, 5, 8, 17] {
        let part = run(&small(), |progress| match progress.done < last {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        let part = part.unwrap();
        assert!(part.verdicts.is_empty() && !part.figures.depths.is_empty(), "{part:?}");
        assert_eq!(part.figures.depths[..], whole.figures.depths[..part.figures.depths.len()]);
        let measured = |report: &HostSsdReport| {
            let account =
                report.figures.account.iter().map(|step| step.by_threads.len()).sum::<usize>();
            report.figures.depths.len() + account + report.figures.sensitivity.len()
        };
        // The depth that is searched is a step as well.
        assert_eq!(measured(&part) + usize::from(last > 3), last);
        assert!(!part.page().text().is_empty() && part.page().html().contains("conventional"));
    }
}
