//! Pooled drives beside local ones, under Cassandra and YCSB: nodes on stripes of their own drives, and nodes on
//! volumes of one pool over NVMe/TCP, with as many drives. In real time, on modelled drives.
//!
//! | module | content |
//! | --- | --- |
//! | [`arm`] | the two sides and the controls |
//! | [`bench`](mod@bench) | the seam to a machine that runs the programs |
//! | [`ycsb`] | the figures that YCSB prints |
//! | [`figures`] | medians of repetitions |
//! | [`calibrate`] | how much slower than real the drives are to be |
//! | [`verdicts`] | goals, and the source's figures |
//! | [`report`] | [`PooledReport`], as text and JSON |
//! | `html` | the same as a page |
//!
//! The source is Micron's trial of Lightbits' LightOS with Cassandra (2020). It compares four servers with two local
//! drives each with the same servers on one storage server of eight such drives.
//!
//! Invariants
//! 1. No goal is reached in a run whose drives were idle or whose processors were not.
//! 2. Arms run in turn, in the other direction in each second round.

pub mod arm;
pub mod bench;
pub mod calibrate;
pub mod figures;
mod html;
pub mod report;
#[cfg(test)]
mod tests;
pub mod verdicts;
pub mod ycsb;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use esker_base::units::human_bytes;

pub use crate::steps::Progress;

use crate::LabError;
use crate::steps::Steps;
use arm::Arm;
use bench::{Bench, DriveBytes, LoadSample, LoadStep};
use figures::LoadResult;
use report::{ArmResult, PooledReport};

/// The most nodes: they are told apart by their addresses on the loopback.
const MOST_NODES: u32 = 16;
/// The most records, and the most memory of a node.
const MOST_RECORDS: u64 = 1_000_000_000_000;
const MOST_MEMORY: u64 = 1 << 50;
/// The fewest drives of a pool that bears the loss of one.
const LEAST_TO_SURVIVE: u32 = 3;

/// Drives of a machine, in place of models. Their content is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnDrives {
    /// The specifications of all drives.
    pub drives: Vec<String>,
    /// The specification of the pool's write buffer; none where it lies on the drives.
    pub buffer: Option<String>,
}

/// The runs of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledOptions {
    /// Nodes of Cassandra.
    pub nodes: u32,
    /// Drives of all nodes together.
    pub drives: u32,
    /// The drives, if they are no models.
    pub own: Option<OwnDrives>,
    /// Rows of all nodes together, of about 1,000 bytes each.
    pub records: u64,
    /// Operations a second of all nodes together, in ascending order. The unlimited rate comes after them.
    pub rates: Vec<u64>,
    /// Seconds of each measurement.
    pub seconds: u32,
    /// Seconds before it.
    pub warm_up_s: u32,
    /// Repetitions.
    pub rounds: u32,
    /// Client threads of each node.
    pub threads: u32,
    /// How many times slower than real the drives are; with `calibrate`, in the first try.
    pub dilation: u32,
    /// Whether the dilation is raised until drives are busy.
    pub calibrate: bool,
    /// The share of each value that a compressor can remove.
    pub compressible: f64,
    /// The memory of each node, in bytes.
    pub memory_bytes: u64,
    /// The heap of each node, in bytes.
    pub heap_bytes: u64,
    /// Whether the controls beside A/A are run.
    pub controls: bool,
    /// Whether the comparison is run.
    pub compare: bool,
    /// Whether a node is killed and a drive failed.
    pub survive: bool,
    /// Whether it is a short run, which the report says.
    pub quick: bool,
    /// The seed of all random choices.
    pub seed: u64,
}

impl PooledOptions {
    /// Whether they make a study.
    ///
    /// # Errors
    /// The wrong option, and its range.
    pub fn check(&self) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::Invalid(why));
        if !(1..=MOST_NODES).contains(&self.nodes) {
            return refuse(format!("--nodes: from 1 to {MOST_NODES} run on one machine"));
        }
        if self.drives < self.nodes || !self.drives.is_multiple_of(self.nodes) {
            return refuse(format!(
                "give a multiple of the {} nodes as drives, so that each has as many",
                self.nodes
            ));
        }
        if self.own.is_some() && (self.calibrate || self.dilation != 1) {
            return refuse("--dilation is for models: a drive has its own speed".to_owned());
        }
        if self.survive && self.drives < LEAST_TO_SURVIVE {
            return refuse(format!(
                "--survive: a pool that bears the loss of a drive has at least {LEAST_TO_SURVIVE} --drives"
            ));
        }
        if self.rates.iter().any(|&rate| rate < u64::from(self.nodes))
            || !self.rates.is_sorted_by(|a, b| a < b)
        {
            return refuse(
                "--rates: give operations a second in ascending order, at least one for each node"
                    .to_owned(),
            );
        }
        if self.records < 1000 * u64::from(self.nodes) {
            return refuse("--records: give at least 1,000 for each node".to_owned());
        }
        if self.records > MOST_RECORDS {
            return refuse(format!("--records: give at most {MOST_RECORDS}"));
        }
        if self.seconds == 0 || self.rounds == 0 || self.threads == 0 || self.dilation == 0 {
            return refuse("--for, --rounds, --threads and --dilation are at least 1".to_owned());
        }
        if !(0.0..=0.95).contains(&self.compressible) {
            return refuse("--compressible: give a share from 0 to 0.95".to_owned());
        }
        if self.memory_bytes <= self.heap_bytes {
            return refuse(
                "--memory: a node takes more than its --heap; give it 400 MiB beside".to_owned(),
            );
        }
        if self.memory_bytes > MOST_MEMORY {
            return refuse(format!("--memory: no node has more than {}", human_bytes(MOST_MEMORY)));
        }
        Ok(())
    }

    /// The arms that are run.
    #[must_use]
    pub fn arms(&self) -> Vec<Arm> {
        match (self.compare, self.controls) {
            (false, _) => Vec::new(),
            (true, true) => {
                // Pools of the nodes' own cannot share a buffer device.
                let shares = self.own.as_ref().is_some_and(|own| own.buffer.is_some());
                let is_run = |arm: &Arm| !(shares && *arm == Arm::PoolHere);
                Arm::ALL.into_iter().filter(is_run).collect()
            }
            (true, false) => vec![Arm::Local, Arm::LocalAgain, Arm::Remote],
        }
    }

    /// The loads of the ladder, the unlimited one last.
    #[must_use]
    pub fn ladder(&self) -> Vec<Option<u64>> {
        self.rates.iter().copied().map(Some).chain([None]).collect()
    }
}

/// Runs it.
///
/// # Errors
/// When the options make no sense, a program fails, or `follow` ends it.
pub fn run(
    options: &PooledOptions,
    bench: &mut dyn Bench,
    mut follow: impl FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<PooledReport, LabError> {
    options.check()?;
    let mut report = PooledReport::new(options);
    let missing = bench.missing()?;
    if !missing.is_empty() {
        report.skip_all(&missing);
        return Ok(report);
    }
    let arms = options.arms();
    let turns = arms.len() * options.rounds as usize * options.ladder().len();
    let count = databases(&arms).len() + turns + usize::from(options.survive);
    let mut steps = Steps::new(&mut follow, count);
    let ended = all(options, bench, &mut steps, &mut report);
    steps.part(ended)?;
    if !steps.is_interrupted() {
        report.judge(options);
    } else if report.arms.is_empty() && report.survival.is_none() {
        return Err(LabError::Interrupted);
    }
    Ok(report)
}

fn all(
    options: &PooledOptions,
    bench: &mut dyn Bench,
    steps: &mut Steps<'_>,
    report: &mut PooledReport,
) -> Result<(), LabError> {
    if options.compare {
        compare(options, bench, steps, report)?;
    }
    if options.survive {
        steps.step("a node is killed, and a drive fails")?;
        report.survival = Some(steps.ended(bench.survive())?);
    }
    Ok(())
}

/// The arms that have databases of their own.
fn databases(arms: &[Arm]) -> Vec<Arm> {
    arms.iter().copied().filter(|arm| arm.data() == *arm).collect()
}

fn compare(
    options: &PooledOptions,
    bench: &mut dyn Bench,
    steps: &mut Steps<'_>,
    report: &mut PooledReport,
) -> Result<(), LabError> {
    for arm in databases(&options.arms()) {
        steps.step(&format!("{}, load", arm.name()))?;
        let loaded = steps.ended(bench.load(arm))?;
        report.arms.push(ArmResult::new(arm, loaded));
    }
    report.dilation = options.dilation;
    if options.calibrate {
        report.tries = calibrate::calibrate(options, bench, steps)?;
        report.dilation = calibrate::chosen(&report.tries).unwrap_or(options.dilation);
    }
    let mut samples = Samples::new();
    let ended = rounds(options, bench, steps, report, &mut samples);
    // As far as it has come.
    for (index, &rate) in options.ladder().iter().enumerate() {
        let of_arm =
            |arm| LoadResult::of(arm, rate, samples.remove(&(arm, index)).unwrap_or_default());
        report.loads.extend(options.arms().into_iter().filter_map(of_arm));
    }
    ended
}

/// Samples by arm and step of the ladder; one of each round.
type Samples = BTreeMap<(Arm, usize), Vec<LoadSample>>;

fn rounds(
    options: &PooledOptions,
    bench: &mut dyn Bench,
    steps: &mut Steps<'_>,
    report: &mut PooledReport,
    samples: &mut Samples,
) -> Result<(), LabError> {
    for round in 0..options.rounds {
        let mut order = options.arms();
        if round % 2 == 1 {
            order.reverse();
        }
        for arm in order {
            let bytes = turn(options, bench, steps, (arm, round, report.dilation), samples)?;
            if let Some(result) = report.arms.iter_mut().find(|one| one.arm == arm.data()) {
                result.at_end = bytes;
            }
        }
    }
    Ok(())
}

/// Runs the ladder on an arm once.
fn turn(
    options: &PooledOptions,
    bench: &mut dyn Bench,
    steps: &mut Steps<'_>,
    (arm, round, dilation): (Arm, u32, u32),
    samples: &mut Samples,
) -> Result<Option<DriveBytes>, LabError> {
    for (index, rate) in options.ladder().into_iter().enumerate() {
        let load =
            rate.map_or("unlimited".to_owned(), |rate| format!("{rate} operations a second"));
        steps.step(&format!("{}, round {}, {load}", arm.name(), round + 1))?;
        if index == 0 {
            steps.ended(bench.start(arm, dilation))?;
        }
        let step = LoadStep { rate, warm_up_s: options.warm_up_s, seconds: options.seconds };
        let sample = steps.ended(bench.step(&step))?;
        samples.entry((arm, index)).or_default().push(sample);
    }
    steps.ended(bench.stop())
}
