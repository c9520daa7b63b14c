//! The figures of the study.

use esker_base::units::human_bytes;
use esker_report::Assumption;
use serde::Serialize;

pub use super::arm::ArmRun;
pub use super::beside::Beside;
pub use super::calibrate::Calibration;

use super::arm;
use super::beside::beside;
use super::machine::Arm;
use super::options::{DATA_TO_MEMORY, DATA_TO_STAGING, HseOptions};
use super::phase::{Decider, Phase};
use super::verdict::{Pair, rate, tail};
use crate::Spread;

/// All figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HseFigures {
    /// Each workload in each arm, by medians.
    pub rows: Vec<Row>,
    /// The engine over RocksDB, where that was run.
    pub beside: Vec<Beside>,
    /// Parts that were asked for and not run, each with its cause or cure.
    pub skipped: Vec<String>,
    /// How the clock was chosen.
    pub calibration: Calibration,
    /// All runs.
    pub runs: Vec<ArmRun>,
    /// Assumptions that all figures depend on.
    pub assumptions: Vec<Assumption>,
}

/// A workload in an arm over all rounds. Times are of the arm's clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub workload: String,
    /// The arm.
    pub arm: Arm,
    /// Operations a second.
    pub ops_per_s: Option<Spread>,
    /// The 99.9th percentile of reads, in microseconds.
    pub read_p999_us: Option<Spread>,
    /// How busy the processors were.
    pub processors: Option<Spread>,
    /// How busy the busiest class was.
    pub busiest_class: Option<Spread>,
    /// The largest share of its published rates that a drive was used at.
    pub of_rates: Option<Spread>,
    /// The decider of each round.
    pub deciders: Vec<Decider>,
}

impl HseFigures {
    pub(super) fn new(
        options: &HseOptions,
        is_real: bool,
        calibration: Calibration,
        runs: Vec<ArmRun>,
        skipped: Vec<String>,
    ) -> HseFigures {
        let pairs = Pair::all(&runs);
        let arms = Arm::ALL.into_iter().filter(|arm| runs.iter().any(|run| run.arm == *arm));
        let rows = pairs.iter().flat_map(|pair| arms.clone().map(|arm| row(pair, arm))).collect();
        HseFigures {
            rows,
            beside: beside(&pairs),
            skipped,
            assumptions: assumptions(options, is_real, &calibration),
            calibration,
            runs,
        }
    }
}

fn row(pair: &Pair<'_>, arm: Arm) -> Row {
    let busiest = |phase: &Phase| phase.busy.iter().map(|one| one.share).reduce(f64::max);
    Row {
        workload: pair.workload().to_owned(),
        arm,
        ops_per_s: pair.spread(arm, rate),
        read_p999_us: pair.spread(arm, tail),
        processors: pair.spread(arm, |phase| phase.processors),
        busiest_class: pair.spread(arm, busiest),
        of_rates: pair.spread(arm, Phase::of_rates),
        deciders: pair.phases(arm).iter().map(|phase| phase.decider).collect(),
    }
}

fn assumptions(options: &HseOptions, is_real: bool, calibration: &Calibration) -> Vec<Assumption> {
    let assumption = |name: &str, value: String| Assumption::new(name, value);
    let tries: Vec<String> = calibration
        .tries
        .iter()
        .map(|(factor, busy)| format!("{factor} ({:.0} %)", 100.0 * busy))
        .collect();
    let chosen = match tries.is_empty() {
        true => "given".to_owned(),
        false => format!("tried, with how busy processors were at most: {}", tries.join(", ")),
    };
    let mut all = vec![
        assumption(
            "records",
            format!("{} of 1,000 bytes (2 billion in the source), keys in no order", options.records),
        ),
        assumption(
            "operations",
            format!("{} of each workload (2 billion in the source)", options.operations),
        ),
        assumption("clients", format!("{} (96 in the source)", options.threads)),
        assumption(
            "memory of the engine",
            format!(
                "{}, 1/{DATA_TO_MEMORY} of the data (256 GB for 2 TB)",
                human_bytes(options.memory_bytes())
            ),
        ),
        assumption(
            "staging class",
            format!(
                "{}, 1/{DATA_TO_STAGING} of the data (7.68 TB for 2 TB): it cannot hold what it is given",
                human_bytes(options.staging_bytes())
            ),
        ),
        assumption(
            "capacity class",
            format!("striped, {} at a time to each drive", human_bytes(arm::CHUNK)),
        ),
        assumption(
            "between phases",
            "maintenance is waited for, so that each begins alike; bytes count up to its end, time does not"
                .to_owned(),
        ),
        assumption("rounds", format!("{} of each arm, in turn; medians", options.rounds)),
        assumption("seed", options.seed.to_string()),
    ];
    if options.has_rocksdb {
        all.push(assumption(
            "RocksDB",
            "the same records, clients, memory and striped capacity drives, attached through FUSE and a loop device, \
             with a file system; a process in real time: its spans are divided by the clock's factor, its rates \
             multiplied"
                .to_owned(),
        ));
    }
    if is_real {
        all.push(assumption("drives", "real ones, in real time".to_owned()));
    } else {
        all.push(assumption(
            "clock",
            format!(
                "{} times slower than real time for drives and engine, {chosen}; all figures are in its time",
                calibration.dilation
            ),
        ));
    }
    all.push(assumption(
        "what a drive can carry",
        "its published sequential writes, and after them the longer of its published sequential reads and random \
         reads"
            .to_owned(),
    ));
    all
}
