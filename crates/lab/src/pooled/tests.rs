//! The plan, on a bench that gives the figures it is told.

use std::ops::ControlFlow;

use esker_report::Outcome;

use super::bench::{BlockTraffic, CpuTime, Latencies, LoadedBytes, Survival};
use super::*;
use crate::steps::Progress;
use crate::{Report, study};

type PooledReport = Report<Pooled>;

const OPTIONS: PooledOptions = PooledOptions {
    nodes: 2,
    drives: 4,
    own: None,
    records: 200_000,
    rates: Vec::new(),
    seconds: 10,
    warm_up_s: 2,
    rounds: 3,
    threads: 16,
    dilation: 40,
    calibrate: false,
    compressible: 0.5,
    memory_bytes: 1200 << 20,
    heap_bytes: 768 << 20,
    controls: true,
    compare: true,
    survive: false,
    quick: false,
    seed: 1,
};

fn options() -> PooledOptions {
    PooledOptions { rates: vec![1000, 4000], ..OPTIONS }
}

/// A machine whose figures are said.
struct Told {
    missing: Vec<String>,
    /// Whether drives do not tell of their bytes.
    is_silent: bool,
    /// How many times local's operations and latencies remote has.
    remote: (f64, f64),
    /// How far the second local arm is from the first one.
    again: f64,
    machine: f64,
    /// The dilation from which on remote drives leave processors idle.
    remote_idle_from: u32,
    /// The dilation from which on drives are busy.
    busy_from: u32,
    survival: Survival,
    started: Vec<(Deployment, u32)>,
    loaded: Vec<Deployment>,
    stopped: usize,
}

impl Default for Told {
    fn default() -> Told {
        let survival =
            Survival { acknowledged: 300, at_kill: 100, at_drive: 200, ..Survival::default() };
        Told {
            missing: Vec::new(),
            is_silent: false,
            remote: (1.3, 0.8),
            again: 1.02,
            machine: 0.5,
            remote_idle_from: 0,
            busy_from: 0,
            survival,
            started: Vec::new(),
            loaded: Vec::new(),
            stopped: 0,
        }
    }
}

impl Bench for Told {
    fn missing(&mut self) -> Result<Vec<String>, LabError> {
        Ok(self.missing.clone())
    }

    fn load(&mut self, arm: Deployment) -> Result<LoadedBytes, LabError> {
        self.loaded.push(arm);
        Ok(LoadedBytes { seconds: Some(9.0), files: 5 << 20, ..LoadedBytes::default() })
    }

    fn start(&mut self, arm: Deployment, dilation: u32) -> Result<(), LabError> {
        assert_eq!(self.started.len(), self.stopped, "one arm at a time");
        self.started.push((arm, dilation));
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // told figures
    fn step(&mut self, step: &LoadStep) -> Result<LoadSample, LabError> {
        let (arm, dilation) = self.started[self.stopped];
        let (ops, latency) = match arm {
            Deployment::Remote => self.remote,
            Deployment::LocalAgain => (self.again, self.again),
            _ => (1.0, 1.0),
        };
        let ops_per_s = step.rate.map_or(5000.0 * ops, |rate| rate as f64);
        let latencies = Latencies {
            count: (ops_per_s * f64::from(step.seconds) / 2.0) as u64,
            mean_us: 10_000.0 * latency,
            p999_us: 90_000.0 * latency,
        };
        let busy = if dilation >= self.busy_from { 0.9 } else { 0.3 };
        let traffic = BlockTraffic { busy, reads: latencies.count, ..BlockTraffic::default() };
        let is_crowded = arm == Deployment::Remote && dilation < self.remote_idle_from;
        let machine = if is_crowded { 0.9 } else { self.machine };
        let cpu = CpuTime { machine, nodes_s: 5.0, ..CpuTime::default() };
        Ok(LoadSample { ops_per_s, reads: latencies, updates: latencies, failed: 0, traffic, cpu })
    }

    fn stop(&mut self) -> Result<Option<DriveBytes>, LabError> {
        self.stopped += 1;
        Ok((!self.is_silent).then_some(DriveBytes { taken: 7 << 20, ..DriveBytes::default() }))
    }

    fn survive(&mut self) -> Result<Survival, LabError> {
        Ok(self.survival.clone())
    }
}

fn run(
    options: &PooledOptions,
    told: &mut Told,
    mut follow: impl FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<PooledReport, LabError> {
    study::run::<Pooled>(options, told, &mut follow)
}

fn go(options: &PooledOptions, told: &mut Told) -> PooledReport {
    run(options, told, |_| ControlFlow::Continue(())).unwrap()
}

fn outcomes(report: &PooledReport) -> Vec<Outcome> {
    report.verdicts.iter().map(|one| one.outcome).collect()
}

#[test]
fn arms_run_in_turn_and_share_the_databases_of_local() {
    let mut told = Told::default();
    let report = go(&options(), &mut told);
    assert_eq!(
        told.loaded,
        [
            Deployment::Local,
            Deployment::Remote,
            Deployment::RemotePlain,
            Deployment::LocalPlain,
            Deployment::PoolHere
        ]
    );
    let arms: Vec<Deployment> = told.started.iter().map(|(arm, _)| *arm).collect();
    let mut back = Deployment::ALL.to_vec();
    back.reverse();
    assert_eq!(arms[..6], Deployment::ALL);
    assert_eq!(arms[6..12], back);
    assert_eq!(arms.len(), 18);
    assert_eq!(report.figures.loads.len(), 6 * 3);
    let unlimited = figures::find(&report.figures.loads, Deployment::Remote, None).unwrap();
    assert!((unlimited.ops_per_s.median - 6500.0).abs() < 1e-9);
    assert_eq!(unlimited.samples.len(), 3);
    assert!((unlimited.device_reads.median - 0.5).abs() < 1e-9);
}

#[test]
fn goals_are_reached_by_figures_that_reach_them() {
    let report = go(&options(), &mut Told::default());
    // 1000 a second is low, 4000 is not; five figures at saturation; the crossing.
    assert_eq!(outcomes(&report), [Outcome::Reached; 7], "{:#?}", report.verdicts);
    assert!(report.verdicts[0].measured.contains("reads 0.80 times local"));
    assert!(
        report.verdicts[1].measured.contains("1.30 times local; A/A spread 1 %"),
        "{:?}",
        report.verdicts[1]
    );
    assert!(
        report.verdicts[3].published.contains("28.9 ms")
            && report.verdicts[3].published.contains("40.7 ms")
    );
    assert!(report.verdicts[6].measured.contains("from 1000 a second on"));
}

#[test]
fn a_remote_pool_that_is_behind_misses_its_goals() {
    let mut told = Told { remote: (0.9, 1.2), ..Told::default() };
    assert_eq!(outcomes(&go(&options(), &mut told)), [Outcome::Missed; 7]);
    let mut told = Told { remote: (1.05, 1.05), ..Told::default() };
    let report = go(&options(), &mut told);
    assert_eq!(report.verdicts[0].outcome, Outcome::Reached, "within 10 %");
    assert_eq!(report.verdicts[1].outcome, Outcome::Missed, "not 1.1 times");
}

#[test]
fn a_ladder_without_low_rates_says_so() {
    let options = PooledOptions { rates: vec![4000], ..options() };
    let report = go(&options, &mut Told::default());
    assert_eq!(report.verdicts[0].outcome, Outcome::NotComparable);
    assert!(
        report.verdicts[0].why()[0].contains("a rate that local keeps"),
        "{:?}",
        report.verdicts[0]
    );
}

#[test]
fn an_effect_below_the_spread_of_repetition_is_missed() {
    let mut told = Told { again: 2.0, ..Told::default() };
    let report = go(&options(), &mut told);
    assert!(
        report.verdicts[1..6].iter().all(|one| one.outcome == Outcome::Missed),
        "{:#?}",
        report.verdicts
    );
}

#[test]
fn nothing_is_reached_on_busy_processors_or_idle_drives() {
    let mut told = Told { machine: 0.9, ..Told::default() };
    let report = go(&options(), &mut told);
    assert_eq!(outcomes(&report), [Outcome::NotComparable; 7]);
    assert!(report.verdicts[1].why()[0].ends_with("here: 90 %"), "{:?}", report.verdicts[1]);
    let mut told = Told { busy_from: 1000, ..Told::default() };
    let report = go(&options(), &mut told);
    // At a low rate drives are idle, and may be.
    assert_eq!(report.verdicts[0].outcome, Outcome::Reached);
    assert!(report.verdicts[1..].iter().all(|one| one.outcome == Outcome::NotComparable));
}

#[test]
fn the_dilation_is_doubled_until_drives_are_busy_and_processors_are_not() {
    let options = PooledOptions { calibrate: true, ..options() };
    let mut told = Told { busy_from: 80, remote_idle_from: 160, ..Told::default() };
    let report = go(&options, &mut told);
    let tried: Vec<(u32, Deployment)> =
        report.figures.tries.iter().map(|one| (one.dilation, one.arm)).collect();
    let expected = [
        (40, Deployment::Local),
        (80, Deployment::Local),
        (80, Deployment::Remote),
        (160, Deployment::Local),
        (160, Deployment::Remote),
    ];
    assert_eq!((tried, report.figures.dilation), (expected.to_vec(), 160));
    assert!(told.started[5..].iter().all(|&(_, dilation)| dilation == 160));
    assert!(outcomes(&report).iter().all(|one| *one == Outcome::Reached));
    // Without a fit, the nearest try counts.
    let mut told = Told { machine: 1.0, busy_from: 80, ..Told::default() };
    let report = go(&options, &mut told);
    assert_eq!(report.figures.tries.len(), calibrate::TRIES as usize);
    assert!(report.figures.dilation >= 80);
    assert!(report.verdicts.iter().all(|one| one.outcome == Outcome::NotComparable));
}

#[test]
fn lost_writes_are_missed_and_a_load_that_ended_early_proves_nothing() {
    let options = PooledOptions { compare: false, survive: true, ..options() };
    let cases = [
        (
            Survival { acknowledged: 300, at_kill: 100, at_drive: 200, ..Survival::default() },
            Outcome::Reached,
        ),
        (
            Survival {
                acknowledged: 300,
                at_kill: 100,
                at_drive: 200,
                missing: 1,
                ..Survival::default()
            },
            Outcome::Missed,
        ),
        (
            Survival {
                acknowledged: 300,
                at_kill: 100,
                at_drive: 200,
                wrong: 1,
                ..Survival::default()
            },
            Outcome::Missed,
        ),
        (
            Survival { acknowledged: 200, at_kill: 100, at_drive: 200, ..Survival::default() },
            Outcome::NotComparable,
        ),
    ];
    for (survival, expected) in cases {
        let mut told = Told { survival, ..Told::default() };
        assert_eq!(outcomes(&go(&options, &mut told)), [expected]);
        assert!(told.started.is_empty());
    }
}

#[test]
fn a_machine_that_lacks_something_is_told_so() {
    let mut told =
        Told { missing: vec!["java is missing: install it".to_owned()], ..Told::default() };
    let report = go(&options(), &mut told);
    assert!(told.loaded.is_empty() && report.verdicts.is_empty());
    let text = report.page().text();
    assert!(text.contains("SKIPPED, ALL OF IT: java is missing: install it"), "{text}");
}

#[test]
fn the_report_has_every_figure_as_text_json_and_page() {
    let quick = PooledOptions { quick: true, controls: false, rounds: 1, ..options() };
    let mut report = go(&quick, &mut Told::default());
    report.command = "esker lab pooled <quick>".to_owned();
    let text = report.page().text();
    for part in
        ["quick: too short", "local again", "6500", "28.9 ms", "controls beside A/A", "7.00 MiB"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let back: PooledFigures = serde_json::from_value(report.json()).unwrap();
    assert_eq!(back, report.figures);
    let page = report.page().html();
    assert!(page.contains("esker lab pooled &lt;quick&gt;") && page.contains("local again"));
}

#[test]
fn drives_of_the_machine_take_the_place_of_models() {
    let drives = vec!["/dev/a".to_owned(), "/dev/b".to_owned()];
    let own = OwnDrives { drives, buffer: Some("/dev/c".to_owned()) };
    let options = PooledOptions { drives: 2, own: Some(own), dilation: 1, ..options() };
    let mut told = Told { is_silent: true, ..Told::default() };
    let report = go(&options, &mut told);
    let text = report.page().text();
    for part in ["/dev/a, /dev/b", "its write buffer is /dev/c", "unknown"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(!text.contains("micron-9300") && !text.contains("slower than real"), "{text}");
    // One buffer device is for one pool.
    assert!(
        told.started.iter().all(|&(arm, dilation)| arm != Deployment::PoolHere && dilation == 1)
    );
    assert_eq!(outcomes(&report), [Outcome::Reached; 7]);
}

#[test]
fn options_without_sense_are_refused() {
    let own = Some(OwnDrives { drives: Vec::new(), buffer: None });
    for (options, part) in [
        (PooledOptions { nodes: 0, ..options() }, "--nodes"),
        (PooledOptions { drives: 3, ..options() }, "multiple of the 2 nodes"),
        (PooledOptions { rates: vec![1], ..options() }, "--rates"),
        (PooledOptions { rates: vec![2000, 1000], ..options() }, "--rates"),
        (PooledOptions { records: 10, ..options() }, "--records"),
        (PooledOptions { records: u64::MAX, ..options() }, "--records"),
        (PooledOptions { memory_bytes: u64::MAX, ..options() }, "--memory"),
        (PooledOptions { seconds: 0, ..options() }, "--for"),
        (PooledOptions { compressible: 1.5, ..options() }, "--compressible"),
        (PooledOptions { memory_bytes: 1, ..options() }, "--memory"),
        (PooledOptions { drives: 2, survive: true, ..options() }, "--survive"),
        (PooledOptions { own, ..options() }, "--dilation"),
    ] {
        let why = run(&options, &mut Told::default(), |_| ControlFlow::Continue(()))
            .unwrap_err()
            .to_string();
        assert!(why.contains(part), "{why}");
    }
    let ended = run(&options(), &mut Told::default(), |_| ControlFlow::Break(()));
    assert!(matches!(ended, Err(LabError::Interrupted)));
}

#[test]
fn ended_study_reports_the_loads_that_ran() {
    let loads = databases(&options().arms()).len();
    for (more, measured) in [(0, 0), (2, 2)] {
        let ended = run(&options(), &mut Told::default(), |progress| {
            let goes_on = progress.done < loads + more;
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let report = ended.unwrap();
        assert_eq!(
            (report.figures.arms.len(), report.figures.loads.len()),
            (loads, measured),
            "{report:?}"
        );
        assert!(report.verdicts.is_empty(), "{report:?}");
        assert!(!report.page().text().is_empty() && !report.page().html().is_empty());
    }
}
