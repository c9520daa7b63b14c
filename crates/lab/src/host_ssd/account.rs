//! From the conventional drive with the kernel's paging to the host-managed one with the pager, step by step. Each step
//! shows the worth of a part to lookups and to scans.

use serde::{Deserialize, Serialize};

use super::drive::{Bed, Side, parameters};
use super::options::HostSsdOptions;
use super::paging::{Ahead, Costs, Machine, Outcome, Paging, Setting, Work};
use crate::LabError;
use crate::steps::Steps;

/// A drive and its paging.
struct Step {
    name: &'static str,
    what: &'static str,
    side: Side,
    has_pages: bool,
    paging: Paging,
    /// Whether it lies on the way; otherwise it stands beside it, for comparison.
    is_on_the_way: bool,
}

/// The step with which all are compared, and the one that is Esker.
pub(super) const FIRST: usize = 0;
pub(super) const ESKER: usize = 5;
/// The kernel that reads 128 KiB around each fault: the fairest that every machine has.
pub(super) const AROUND: usize = 7;
/// Esker's pager on the conventional drive.
pub(super) const PAGER: usize = 8;

const WINDOW: Side = Side::HostWindow { in_flight: 0 };

fn steps() -> [Step; 9] {
    let kernel = |ahead| Paging { is_kernel: true, ahead };
    let polled = |ahead| Paging { is_kernel: false, ahead };
    let way = |name, what, side, has_pages, paging| Step {
        name,
        what,
        side,
        has_pages,
        paging,
        is_on_the_way: true,
    };
    let beside = |name, what, side, paging| Step {
        is_on_the_way: false,
        ..way(name, what, side, true, paging)
    };
    [
        way(
            "conventional",
            "the conventional drive; the kernel pages, one read of 4 KiB a fault, as in the source",
            Side::Drive,
            true,
            kernel(Ahead::Nothing),
        ),
        way(
            "polled",
            "the same drive; the thread that faults polls, so that it keeps its processor",
            Side::Drive,
            true,
            polled(Ahead::Nothing),
        ),
        way(
            "FTL in the host",
            "the host-managed drive, reads sent as they come: no firmware, no interrupt, a wider link",
            Side::HostInOrder,
            false,
            polled(Ahead::Nothing),
        ),
        way(
            "window",
            "reads held back while their dies are busy",
            WINDOW,
            false,
            polled(Ahead::Nothing),
        ),
        way(
            "whole pages",
            "NAND pages of 16 KiB read whole where neighbours are wanted, and kept",
            WINDOW,
            true,
            polled(Ahead::Nothing),
        ),
        way(
            "Esker",
            "the pager reads ahead of streams, from many dies at once",
            WINDOW,
            true,
            polled(Ahead::Streams),
        ),
        beside(
            "kernel, 8 pages",
            "the conventional drive; the kernel reads clusters of 8 pages (swap, page-cluster 3)",
            Side::Drive,
            kernel(Ahead::Cluster(8)),
        ),
        beside(
            "kernel, 32 pages",
            "the conventional drive; the kernel reads 128 KiB around each fault",
            Side::Drive,
            kernel(Ahead::Cluster(32)),
        ),
        beside(
            "pager",
            "the conventional drive with Esker's pager",
            Side::Drive,
            polled(Ahead::Streams),
        ),
    ]
}

/// Results of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// Its name.
    pub name: String,
    /// Its description, with the part that is new.
    pub what: String,
    /// Whether each part of it is in the next one, too; otherwise it stands beside the others.
    pub is_on_the_way: bool,
    /// One for each number of threads.
    pub by_threads: Vec<ThreadsResult>,
}

/// Results of a step with so many threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadsResult {
    /// How many.
    pub threads: u32,
    /// Lookups at random.
    pub lookups: Outcome,
    /// A scan.
    pub scan: Outcome,
    /// How many times faster than the first step lookups and scans are.
    pub lookup_factor: f64,
    /// See `lookup_factor`.
    pub scan_factor: f64,
}

/// Factors where a figure is another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// The figure, and its other value.
    pub name: String,
    /// How many times faster than the conventional drive, with one thread.
    pub lookup_factor: f64,
    /// The same of a scan.
    pub scan_factor: f64,
}

/// How often it tells how far it is.
pub(super) fn runs(options: &HostSsdOptions) -> usize {
    steps().len() * options.threads.len() + variants().len()
}

/// Threads that are under way with as much as each may read ahead.
const DEPTH: usize = 8192;

fn outcome(
    options: &HostSsdOptions,
    step: &Step,
    threads: u32,
    work: Work,
    variant: &Variant,
) -> Result<Outcome, LabError> {
    let mut parameters = parameters(step.side, options.drive_bytes, step.has_pages)?;
    if let Some(read_ns) = variant.read_ns {
        parameters.timing.read_ns = read_ns;
    }
    if let Some(firmware_ns) = variant.firmware_ns.filter(|_| step.side == Side::Drive) {
        parameters.timing.read_firmware_ns = firmware_ns;
    }
    let mut bed = Bed::new(&parameters, options.data_bytes, DEPTH)?;
    let &HostSsdOptions { data_bytes, seed, costs, .. } = options;
    let setting = Setting { data_bytes, threads: threads as usize, seed };
    let switches_ns = variant.switches_ns.unwrap_or(costs.switches_ns);
    let costs = Costs { switches_ns, ..costs };
    Machine::new(&mut bed, &setting, step.paging, costs, work).run()
}

/// Measures every step with every number of threads, or those until it is interrupted.
pub(super) fn measure(
    options: &HostSsdOptions,
    follow: &mut Steps<'_>,
) -> Result<Vec<StepResult>, LabError> {
    let mut results: Vec<StepResult> = Vec::new();
    for step in &steps() {
        let mut by_threads = Vec::new();
        for (index, &threads) in options.threads.iter().enumerate() {
            if follow.step(&format!("{}, {threads} threads", step.name)).is_err() {
                break;
            }
            let same = Variant::default();
            let lookups = outcome(options, step, threads, Work::Lookups(options.lookups), &same)?;
            let scan = outcome(options, step, threads, Work::Scan, &same)?;
            let first = results.first().map_or((&lookups, &scan), |first| {
                let first: &ThreadsResult = &first.by_threads[index];
                (&first.lookups, &first.scan)
            });
            let (lookup_factor, scan_factor) = (factor(first.0, &lookups), factor(first.1, &scan));
            by_threads.push(ThreadsResult { threads, lookups, scan, lookup_factor, scan_factor });
        }
        if by_threads.is_empty() {
            break;
        }
        let (name, what) = (step.name.to_owned(), step.what.to_owned());
        results.push(StepResult { name, what, is_on_the_way: step.is_on_the_way, by_threads });
    }
    Ok(results)
}

fn factor(before: &Outcome, now: &Outcome) -> f64 {
    before.operation_ns / now.operation_ns
}

/// Variant of the model in which one figure is another.
#[derive(Clone, Copy, Default)]
struct Variant {
    name: &'static str,
    read_ns: Option<u64>,
    firmware_ns: Option<u64>,
    switches_ns: Option<u64>,
}

fn variants() -> [Variant; 6] {
    let variant = |name| Variant { name, ..Variant::default() };
    [
        Variant { read_ns: Some(48_000), ..variant("tR 48 µs (lower pages of Micron L95B)") },
        Variant { read_ns: Some(75_000), ..variant("tR 75 µs (MQSim's MLC)") },
        Variant {
            firmware_ns: Some(10_300),
            ..variant("firmware 10 µs, so that a read takes 92 µs (Micron 9200, data sheet)")
        },
        Variant {
            firmware_ns: Some(33_300),
            ..variant("firmware 33 µs, so that a read takes 115 µs (Intel P3700, data sheet)")
        },
        Variant { switches_ns: Some(0), ..variant("context switches cost nothing") },
        Variant {
            switches_ns: Some(21_700),
            ..variant("context switches 21.7 µs (a virtual machine, docs/device.md)")
        },
    ]
}

/// The factors of Esker, with one thread, where single figures are others.
pub(super) fn sensitivity(
    options: &HostSsdOptions,
    follow: &mut Steps<'_>,
) -> Result<Vec<Sensitivity>, LabError> {
    let steps = steps();
    let (first, esker) = (&steps[FIRST], &steps[ESKER]);
    let lookups = Work::Lookups((options.lookups / 4).max(1000));
    let mut all = Vec::new();
    for variant in &variants() {
        if follow.step(variant.name).is_err() {
            break;
        }
        let of = |work| -> Result<f64, LabError> {
            let before = outcome(options, first, 1, work, variant)?;
            Ok(factor(&before, &outcome(options, esker, 1, work, variant)?))
        };
        all.push(Sensitivity {
            name: variant.name.to_owned(),
            lookup_factor: of(lookups)?,
            scan_factor: of(Work::Scan)?,
        });
    }
    Ok(all)
}
