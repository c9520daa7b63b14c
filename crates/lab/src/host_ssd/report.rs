//! The figures of the study, and the rows of their tables.

use std::iter::repeat;

use esker_base::units::human_bytes;
use esker_report::{Assumption, Verdict};
use serde::{Deserialize, Serialize};

pub use super::account::{Sensitivity, StepResult, ThreadsResult};
pub use super::latency::{DepthResult, Latency};

use super::account::{AROUND, ESKER, FIRST, PAGER};
use super::devices::{self, DeviceResult};
use super::drive;
use super::installed::Installed;
use super::latency::{WITHIN, grid};
use super::options::HostSsdOptions;
use super::paging::{Costs, DATA_TO_MEMORY};
use crate::LabError;

/// Part that is left out without a folder to measure in.
const NOT_INSTALLED: &str =
    "what is installed here: name a folder on the drive to measure with --real";
/// The source's factors: lookups and scans.
const PUBLISHED: (f64, f64) = (1.4, 3.0);
/// Esker's goals: lookups and scans.
const AIM: (f64, f64) = (1.6, 3.5);
/// The depth at which the host's window is judged, and the bounds of its 99th and 99.9th percentiles, as multiples of
/// the median.
const JUDGED_DEPTH: u32 = 32;
const JUDGED: (f64, f64) = (1.2, 1.3);

/// All figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSsdFigures {
    /// The points of the cumulative distributions, in microseconds.
    pub grid_us: Vec<u32>,
    /// Latencies by depth.
    pub depths: Vec<DepthResult>,
    /// The most reads at a time of which 80 % take no longer than 150 µs on the conventional drive.
    pub depth_within: Option<u32>,
    /// From the one drive and paging to the other.
    pub account: Vec<StepResult>,
    /// Factors where single figures are others.
    pub sensitivity: Vec<Sensitivity>,
    /// Devices that the user named.
    #[serde(default)]
    pub devices: Vec<DeviceResult>,
    /// The pager on this machine's drives, in real time, if that was asked for.
    pub installed: Option<Installed>,
    /// Descriptions of the drives, with the sources and assumptions of their figures.
    pub drives: Vec<DriveFacts>,
    /// Further assumptions that all figures depend on.
    pub assumptions: Vec<Assumption>,
    /// Parts that were left out, and why.
    pub skipped: Vec<String>,
}

/// A drive, where its figures are from, and the assumptions about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveFacts {
    /// Name of the drive.
    pub title: String,
    /// Where the figures are from; inputs are marked.
    pub sources: Vec<String>,
    /// The assumptions.
    pub assumptions: Vec<String>,
}

fn assumptions(options: &HostSsdOptions) -> Vec<Assumption> {
    let assumption = |name: &str, value: String| Assumption::new(name, value);
    let Costs { kernel_fault_ns, switches_ns, pager_fault_ns, map_ns, lookup_ns, scan_ns } =
        options.costs;
    #[allow(clippy::cast_precision_loss)]
    let us = |ns: u64| format!("{:.1} µs", ns as f64 / 1000.0);
    vec![
        assumption(
            "drives",
            format!(
                "{}, filled once in order, at rest; scaled down with all dies and rates kept",
                human_bytes(options.drive_bytes)
            ),
        ),
        assumption(
            "reads timed at each depth",
            format!("{}, by themselves: NAND pages are not read whole", options.reads),
        ),
        assumption(
            "table",
            format!(
                "{}, {DATA_TO_MEMORY} times the memory for its pages; its index is in memory that is \
                 never paged; no multiple of what lies on all dies in a row, so that threads that scan \
                 start on different dies",
                human_bytes(options.data_bytes)
            ),
        ),
        assumption("lookups", format!("{} of uniformly chosen records, a page each", options.lookups)),
        assumption("processors", "one for each thread".to_owned()),
        assumption("a fault of the kernel", us(kernel_fault_ns)),
        assumption(
            "two context switches, where a thread waits",
            format!(
                "{}, beside the interrupt, which is the drive's; sensitivity below",
                us(switches_ns)
            ),
        ),
        assumption(
            "a fault that the thread serves itself",
            format!("{}: measured from memory, without eviction", us(pager_fault_ns)),
        ),
        assumption("mapping a further page of a run", us(map_ns)),
        assumption("a search in the index, the rows of a page", {
            format!("{}, {}", us(lookup_ns), us(scan_ns))
        }),
        assumption(
            "reading ahead",
            "from the third fault in a row; 8 pages, doubled each time up to 384, in reads of 64; at \
             most 1,536 coming in all; up to 16 streams are followed, of more none"
                .to_owned(),
        ),
        assumption("eviction", "in the order of arrival, at no cost to the threads".to_owned()),
        assumption("seed", options.seed.to_string()),
    ]
}

impl HostSsdFigures {
    pub(super) fn new(
        options: &HostSsdOptions,
        depths: Vec<DepthResult>,
        depth_within: Option<u32>,
        account: Vec<StepResult>,
        sensitivity: Vec<Sensitivity>,
    ) -> Result<HostSsdFigures, LabError> {
        let (host, conventional) = drive::profile()?;
        let facts = |profile: &esker_flash::Profile| DriveFacts {
            title: profile.title.to_owned(),
            sources: profile.sources.iter().map(|&one| one.to_owned()).collect(),
            assumptions: profile.assumptions.iter().map(|&one| one.to_owned()).collect(),
        };
        Ok(HostSsdFigures {
            grid_us: grid(),
            depths,
            depth_within,
            account,
            sensitivity,
            drives: vec![facts(&conventional), facts(&host)],
            assumptions: assumptions(options),
            devices: Vec::new(),
            installed: None,
            skipped: vec![NOT_INSTALLED.to_owned()],
        })
    }

    /// Adds the results of named devices, each beside the modelled conventional drive.
    pub(super) fn add_devices(&mut self, options: &HostSsdOptions, mut found: Vec<DeviceResult>) {
        found.iter_mut().for_each(|one| one.compare(&self.depths));
        let rows = devices::assumptions(options, &found).into_iter();
        self.assumptions.extend(rows.map(|(name, value)| Assumption::new(name, value)));
        self.devices = found;
    }

    /// Adds the results of this machine.
    pub(super) fn add_installed(&mut self, installed: Installed) {
        self.skipped.retain(|one| one != NOT_INSTALLED);
        self.skipped.extend(installed.skipped.iter().cloned());
        self.installed = Some(installed);
    }
}

/// The figures of the models beside those of the source.
pub(super) fn verdicts(figures: &HostSsdFigures) -> Vec<Verdict> {
    let mut verdicts = of_latency(&figures.depths, figures.depth_within);
    verdicts.extend(of_paging(&figures.account));
    verdicts
}

fn of_latency(depths: &[DepthResult], within: Option<u32>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if let Some(at) = depths.iter().find(|one| one.depth == JUDGED_DEPTH) {
        for (what, seen) in
            [("submitted", &at.issue), ("at the dies, 64 more in the window", &at.bounded_issue)]
        {
            let of_median = (seen.p99_us / seen.p50_us, seen.p999_us / seen.p50_us);
            let name = format!("from issue, {JUDGED_DEPTH} {what}: p99 and p99.9 of the median");
            let measured = format!("{:.2} and {:.2}", of_median.0, of_median.1);
            let is_reached = of_median.0 <= JUDGED.0 && of_median.1 <= JUDGED.1;
            let wanted = format!("at most {} and {}", JUDGED.0, JUDGED.1);
            verdicts.push(Verdict::new(name, measured).wanted(wanted, is_reached));
        }
    }
    // Not longer than in order, at any quantile, at any depth; a thousandth is one read of few.
    let is_no_longer = |window: &Latency, order: &Latency| {
        let pairs = [
            (window.p50_us, order.p50_us),
            (window.p80_us, order.p80_us),
            (window.p99_us, order.p99_us),
            (window.p999_us, order.p999_us),
        ];
        pairs.iter().all(|(now, before)| *now <= before * 1.001)
    };
    let longer: Vec<String> = depths
        .iter()
        .filter(|one| !is_no_longer(&one.submission, &one.in_order))
        .map(|one| one.depth.to_string())
        .collect();
    let measured = match longer.is_empty() {
        true => "equal or less".to_owned(),
        false => format!("more at depth {}", longer.join(", ")),
    };
    let name = "from submission, at every depth: p50, p80, p99 and p99.9";
    let wanted = "at most those of first come, first served";
    verdicts.push(Verdict::new(name, measured).wanted(wanted, longer.is_empty()));
    let (share, us) = WITHIN;
    let measured = match within {
        Some(depth) => format!("{us:.0} µs up to {depth} at a time"),
        None => format!("more than {us:.0} µs for {:.0} %, at any depth", share * 100.0),
    };
    let name = "conventional drive: 80 % of 4 KiB reads at random";
    let verdict = Verdict::new(name, measured)
        .published(format!("within {us:.0} µs (Fujitsu; the depth is not published)"))
        .wanted(format!("within {us:.0} µs, at some depth"), within.is_some());
    verdicts.push(verdict);
    verdicts
}

/// Lookups or scans of the account.
struct Paged {
    name: &'static str,
    published: f64,
    aim: f64,
    of: fn(&ThreadsResult) -> f64,
}

const PAGED: [Paged; 2] = [
    Paged {
        name: "lookups through an index",
        published: PUBLISHED.0,
        aim: AIM.0,
        of: |one| one.lookup_factor,
    },
    Paged { name: "scans", published: PUBLISHED.1, aim: AIM.1, of: |one| one.scan_factor },
];

/// How many times faster Esker is than another step, for each number of threads.
pub(super) fn over(
    account: &[StepResult],
    other: usize,
    of: fn(&ThreadsResult) -> f64,
) -> Vec<(u32, f64)> {
    let (Some(esker), Some(other)) = (account.get(ESKER), account.get(other)) else {
        return Vec::new();
    };
    let pairs = esker.by_threads.iter().zip(&other.by_threads);
    pairs.map(|(ours, theirs)| (ours.threads, of(ours) / of(theirs))).collect()
}

fn by_threads(factors: &[(u32, f64)]) -> String {
    let each = factors.iter().map(|(threads, factor)| format!("{factor:.2} with {threads}"));
    format!("{} threads", each.collect::<Vec<_>>().join(", "))
}

fn of_paging(account: &[StepResult]) -> Vec<Verdict> {
    let least = |factors: &[(u32, f64)]| {
        factors.iter().map(|(_, factor)| *factor).fold(f64::INFINITY, f64::min)
    };
    let mut verdicts = Vec::new();
    for Paged { name, published, aim, of } in PAGED {
        let [conventional, around, pager] =
            [FIRST, AROUND, PAGER].map(|other| over(account, other, of));
        let Some(&(threads, first)) = conventional.first() else { continue };
        let every = least(&conventional);
        let baseline = format!(
            "a kernel that reads 128 KiB around each fault: {} times that; Esker's pager on the conventional \
             drive: {} times that",
            by_threads(&around),
            by_threads(&pager)
        );
        for (what, bound, figure) in [
            (format!("data four times memory, {threads} threads"), published, first),
            ("with every number of threads".to_owned(), published, every),
            ("the aim".to_owned(), aim, every),
        ] {
            let wanted =
                format!("{bound} times a conventional drive whose kernel reads nothing ahead");
            let verdict = Verdict::new(format!("{name}, {what}"), by_threads(&conventional))
                .published(format!("{published} times (Fujitsu; threads unknown)"))
                .wanted(wanted, figure >= bound)
                .baseline(baseline.clone());
            verdicts.push(verdict);
        }
        let name = format!("{name}, beside a kernel that reads 128 KiB around each fault");
        let is_reached = least(&around) > 1.0;
        let verdict = Verdict::new(name, by_threads(&around))
            .wanted("more than once, with every number of threads", is_reached);
        verdicts.push(verdict);
    }
    verdicts
}

/// The heads of the tables.
pub(super) const LATENCY_COLUMNS: [&str; 5] = [
    "depth",
    "conventional",
    "host, as they come",
    "window, from submission",
    "window, from issue",
];
pub(super) const BOUNDED_COLUMNS: [&str; 4] =
    ["at the dies", "as they come", "window, from submission", "window, from issue"];

impl HostSsdFigures {
    /// The rows of the table of latencies, in the order of [`LATENCY_COLUMNS`].
    pub(super) fn latency_rows(&self) -> Vec<Vec<String>> {
        let row = |one: &DepthResult| {
            let cells = [&one.conventional, &one.in_order, &one.submission, &one.issue];
            std::iter::once(one.depth.to_string()).chain(cells.map(Latency::cell)).collect()
        };
        self.depths.iter().map(row).collect()
    }

    /// The rows of the table with a bound of reads at the dies, in the order of [`BOUNDED_COLUMNS`].
    pub(super) fn bounded_rows(&self) -> Vec<Vec<String>> {
        let row = |one: &DepthResult| {
            let cells = [&one.bounded_in_order, &one.bounded_submission, &one.bounded_issue];
            std::iter::once(one.depth.to_string()).chain(cells.map(Latency::cell)).collect()
        };
        self.depths.iter().map(row).collect()
    }

    /// The head and the rows of the account, a row for each step. For each number of threads it has the time of a
    /// lookup and the rate of a scan, with the factors.
    pub(super) fn account_rows(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let mut head = vec!["step".to_owned()];
        let threads = self.account.first().map_or(&[][..], |first| &first.by_threads[..]);
        head.extend(threads.iter().map(|one| format!("lookup, {} threads", one.threads)));
        head.extend(threads.iter().map(|one| format!("scan, {} threads", one.threads)));
        let row = |step: &StepResult| {
            // A step that was interrupted lacks its last numbers of threads.
            let of_threads = |cell: fn(&ThreadsResult) -> String| {
                let known = step.by_threads.iter().map(cell).map(Some).chain(repeat(None));
                known.take(threads.len()).map(|cell| cell.unwrap_or_else(|| "–".to_owned()))
            };
            let lookups = of_threads(|one| {
                let us = one.lookups.operation_ns / 1000.0;
                format!("{us:.1} µs ({:.2})", one.lookup_factor)
            });
            let scans = of_threads(|one| {
                let threads = f64::from(one.threads);
                let bytes_per_s = 4096.0 * 1e9 * threads / one.scan.operation_ns;
                format!("{:.0} MB/s ({:.2})", bytes_per_s / 1e6, one.scan_factor)
            });
            std::iter::once(step.name.clone()).chain(lookups).chain(scans).collect()
        };
        (head, self.account.iter().map(row).collect())
    }

    /// The rows of the sensitivity: a figure, and both factors.
    pub(super) fn sensitivity_rows(&self) -> Vec<Vec<String>> {
        let row = |one: &Sensitivity| {
            let factors = [one.lookup_factor, one.scan_factor].map(|one| format!("{one:.2}"));
            std::iter::once(one.name.clone()).chain(factors).collect()
        };
        self.sensitivity.iter().map(row).collect()
    }
}
