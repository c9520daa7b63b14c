//! Loads on a device in memory and on a modelled drive in virtual time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use esker_base::Clock;
use esker_device::{Device, MemoryDevice};
use esker_flash::profile::Profile;
use esker_flash::{Pace, Ssd};
use esker_trace::{Op, Request};

use super::{Job, Pattern, Size, Source, Target, Timing, run};
use crate::text::one_line;

static NEVER: AtomicBool = AtomicBool::new(false);

fn memory() -> Target {
    let device = Arc::new(MemoryDevice::new("memory", 16 << 20, 4096));
    Target { device, clock: Clock::real(), model: None }
}

fn drive(placement: bool) -> Target {
    let parameters =
        Profile::find("micron-7450").unwrap().ssd().unwrap().scaled(256 << 20).unwrap();
    let clock = Clock::virtual_time();
    let ssd = Ssd::new("micron-7450", &parameters, Pace::virtual_time(clock.clone())).unwrap();
    let mut handles = None;
    if placement {
        ssd.enable_placement(Some(0)).unwrap();
        handles = Some([0, 1, 2, 3]);
    }
    let capacity = parameters.capacity;
    ssd.create_namespace(capacity, handles.as_ref().map(|list| &list[..])).unwrap();
    let device: Arc<dyn Device> = Arc::new(ssd.namespace(1).unwrap());
    Target { device, clock, model: Some(ssd) }
}

#[test]
fn a_load_moves_as_many_bytes_as_it_was_told() {
    let job = Job {
        read_percent: 40,
        discard_percent: 10,
        sizes: vec![Size { bytes: 8192, weight: 1 }],
        threads: 2,
        depth: 8,
        flush_every: Some(16),
        time_limit: None,
        bytes_limit: Some(8 << 20),
        fill: true,
        ..Job::default()
    };
    let target = memory();
    let report = run(&job, Source::Mix, &target, &NEVER).unwrap();
    let kinds: Vec<&str> = report.kinds.iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(kinds, ["read", "write", "discard", "flush"]);
    let moved = report.carried.read_bytes + report.carried.written_bytes;
    assert!((8 << 20..(8 << 20) + 2 * 8 * 8192 + 8192).contains(&moved), "{moved}");
    let counted: u64 = report.kinds.iter().map(|one| one.requests).sum();
    assert_eq!(counted, report.course.iter().map(|one| one.requests).sum::<u64>());
    // The device counts the fill; the load does not.
    assert!(target.device.stats().written_bytes >= 16 << 20);
    assert!(one_line(&report.page().text()).contains("in flight on 2 thread(s)"));
}

/// The same figures on every machine, and those of the profile: random reads one at a time.
#[test]
fn a_modelled_drive_answers_in_its_own_time() {
    let job = Job {
        depth: 1,
        bytes_limit: Some(4 << 20),
        time_limit: None,
        fill: true,
        ..Job::default()
    };
    let seen = || {
        let report = run(&job, Source::Mix, &drive(false), &NEVER).unwrap();
        (report.elapsed_ns, report.kinds[0].latency.clone().unwrap().p50_ns)
    };
    let (first, again) = (seen(), seen());
    assert_eq!(first, again);
    assert!((50_000..120_000).contains(&first.1), "{first:?}");
}

#[test]
fn reads_of_an_empty_drive_are_not_comparable_wherever_they_are_shown() {
    let job = |fill| Job { bytes_limit: Some(4 << 20), time_limit: None, fill, ..Job::default() };
    let report = |fill| run(&job(fill), Source::Mix, &drive(false), &NEVER).unwrap();
    let empty = report(false);
    for shown in [one_line(&empty.page().text()), empty.json(), empty.page().headline] {
        assert!(shown.contains("not comparable: the drive held less"), "{shown}");
    }
    let full = report(true);
    for shown in [one_line(&full.page().text()), full.json(), full.page().headline] {
        assert!(!shown.contains("not comparable"), "{shown}");
    }
}

/// Four parts that are overwritten at random, each with an identifier of its own or without: placement helps when
/// parts die at different rates, and never hurts.
#[test]
fn writes_wear_a_drive_and_streams_reach_it() {
    let job = Job {
        read_percent: 0,
        pattern: Pattern::Zipfian(0.9),
        sizes: vec![Size { bytes: 16 << 10, weight: 1 }],
        time_limit: None,
        bytes_limit: Some(1 << 30),
        fill: true,
        ..Job::default()
    };
    let amplification = |streams, placement| {
        let target = drive(placement);
        let report = run(&Job { streams, ..job.clone() }, Source::Mix, &target, &NEVER).unwrap();
        let drive = report.drive.unwrap();
        assert!(drive.life_percent > 0.0 && drive.physical_bytes > drive.capacity_bytes);
        drive.write_amplification.unwrap()
    };
    let (without, with) = (amplification(0, false), amplification(4, true));
    assert!(without > 1.2, "{without}");
    assert!(with != without, "identifiers did not reach the drive: {with}");
}

#[test]
fn a_rate_is_kept_and_latency_counts_from_when_a_request_was_due() {
    let job = Job {
        rate: Some(1000.0),
        depth: 4,
        time_limit: Some(Duration::from_secs(1)),
        fill: true,
        ..Job::default()
    };
    let report = run(&job, Source::Mix, &drive(false), &NEVER).unwrap();
    assert!((995..=1001).contains(&report.kinds[0].requests), "{}", report.kinds[0].requests);
    // More than a drive can do one at a time: the delay of a late request counts as waiting.
    let job = Job { rate: Some(40_000.0), depth: 1, ..job };
    let report = run(&job, Source::Mix, &drive(false), &NEVER).unwrap();
    let latency = report.kinds[0].latency.clone().unwrap();
    assert!(latency.p50_ns > 100_000_000, "{}", latency.p50_ns);
}

#[test]
fn a_trace_is_replayed_in_its_own_time() {
    let request = |n: u64| Request {
        time_ns: n * 10_000_000,
        offset: n * 12_345 * 512,
        length: 4096,
        device: 0,
        op: if n.is_multiple_of(2) { Op::Read } else { Op::Write },
    };
    let requests: Vec<Request> = (0..100).map(request).collect();
    let job = Job { time_limit: None, ..Job::default() };
    let took = |timing| {
        let source = Source::Trace(requests.clone(), timing);
        let report = run(&job, source, &drive(false), &NEVER).unwrap();
        assert_eq!(report.kinds.iter().map(|one| one.requests).sum::<u64>(), 100);
        Duration::from_nanos(report.elapsed_ns)
    };
    let recorded = took(Timing::Recorded(2.0));
    assert!(
        (Duration::from_millis(494)..Duration::from_millis(510)).contains(&recorded),
        "{recorded:?}"
    );
    assert!(took(Timing::Order) < Duration::from_millis(20));
}

#[test]
fn senseless_parameters_are_refused_with_their_remedy() {
    let job = Job::default();
    for (job, part) in [
        (Job { read_percent: 90, discard_percent: 20, ..job.clone() }, "at most 100"),
        (Job { sizes: vec![Size { bytes: 1000, weight: 1 }], ..job.clone() }, "4096 bytes"),
        (Job { sizes: Vec::new(), ..job.clone() }, "sizes"),
        (Job { depth: 0, ..job.clone() }, "depth"),
        (Job { span_bytes: Some(1 << 40), ..job.clone() }, "16.00 MiB"),
        (
            Job { streams: 100, sizes: vec![Size { bytes: 1 << 20, weight: 1 }], ..job.clone() },
            "at least",
        ),
        (Job { pattern: Pattern::Zipfian(1.5), ..job.clone() }, "between 0 and 1"),
        (Job { rate: Some(0.0), ..job.clone() }, "above 0"),
    ] {
        let why = run(&job, Source::Mix, &memory(), &NEVER).unwrap_err().to_string();
        assert!(why.contains(part), "{why}");
    }
    let two = Job { threads: 2, ..job };
    let why = run(&two, Source::Mix, &drive(false), &NEVER).unwrap_err().to_string();
    assert!(why.contains("one thread"), "{why}");
}
