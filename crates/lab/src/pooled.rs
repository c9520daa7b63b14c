//! Pooled drives beside local ones, under Cassandra and YCSB: nodes on stripes of their own drives, and nodes on
//! volumes of one pool over NVMe/TCP, with as many drives. In real time, on modelled drives.
//!
//! | module | content |
//! | --- | --- |
//! | [`deployment`] | the two sides and the controls |
//! | `options` | [`PooledOptions`] |
//! | [`bench`](mod@bench) | the seam to a machine that runs the programs |
//! | [`ycsb`] | the figures that YCSB prints |
//! | [`figures`] | medians of repetitions |
//! | [`calibrate`] | how much slower than real the drives are to be |
//! | [`verdicts`] | goals, and the source's figures |
//! | [`report`] | [`PooledFigures`], and its tables |
//! | `html` | the same as a document |
//!
//! The source is Micron's trial of Lightbits' LightOS with Cassandra (2020). It compares four servers with two local
//! drives each with the same servers on one storage server of eight such drives.
//!
//! Invariants
//! 1. No goal is reached in a run whose drives were idle or whose processors were not.
//! 2. Arms run in turn, in the other direction in each second round.

pub mod bench;
pub mod calibrate;
pub mod deployment;
pub mod figures;
mod html;
mod options;
pub mod report;
#[cfg(test)]
mod tests;
pub mod verdicts;
pub mod ycsb;

use std::collections::BTreeMap;

use esker_report::{Page, Verdict};

use crate::LabError;
use crate::steps::Steps;
use crate::study::{About, Follow, Study};
use bench::{Bench, DriveBytes, LoadSample, LoadStep};
use deployment::Deployment;
use figures::LoadResult;
pub use options::{OwnDrives, PooledOptions};
use report::ArmResult;
pub use report::PooledFigures;

/// The study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooled;

impl Study for Pooled {
    const ABOUT: About = About {
        name: "pooled",
        format: "esker-pooled/4",
        system: "Lightbits NVMe/TCP under Cassandra",
        purpose: "Drives in one storage node are pooled, compressed and served over the network: each database gets a \
                  volume of any size, and all drives carry the load of each.",
        minutes: (25, 90),
        programs: &["java", "mvn", "mkfs.ext4"],
        needs_root: true,
    };

    type Options = PooledOptions;
    type Machine<'a> = dyn Bench + 'a;
    type Figures = PooledFigures;

    fn check(options: &PooledOptions) -> Result<(), LabError> {
        options.check()
    }

    fn run(
        options: &PooledOptions,
        bench: &mut (dyn Bench + '_),
        follow: &mut Follow<'_>,
    ) -> Result<PooledFigures, LabError> {
        let mut figures = PooledFigures::new(options);
        let missing = bench.missing()?;
        if !missing.is_empty() {
            figures.skip_all(&missing);
            return Ok(figures);
        }
        let arms = options.arms();
        let turns = arms.len() * options.rounds as usize * options.ladder().len();
        let count = databases(&arms).len() + turns + usize::from(options.survive);
        let mut steps = Steps::new(follow, count);
        let ended = all(options, bench, &mut steps, &mut figures);
        steps.part(ended)?;
        if steps.is_interrupted() && figures.arms.is_empty() && figures.survival.is_none() {
            return Err(LabError::Interrupted);
        }
        figures.assume_drives(options);
        Ok(figures)
    }

    fn verdicts(figures: &PooledFigures) -> Vec<Verdict> {
        let survived = figures.survival.as_ref().map(verdicts::of_survival);
        verdicts::of_loads(&figures.loads).into_iter().chain(survived).collect()
    }

    fn document(figures: &PooledFigures) -> Page {
        figures.document()
    }
}

fn all(
    options: &PooledOptions,
    bench: &mut (dyn Bench + '_),
    steps: &mut Steps<'_>,
    figures: &mut PooledFigures,
) -> Result<(), LabError> {
    if options.compare {
        compare(options, bench, steps, figures)?;
    }
    if options.survive {
        steps.step("a node is killed, and a drive fails")?;
        figures.survival = Some(steps.ended(bench.survive())?);
    }
    Ok(())
}

/// The arms that have databases of their own.
fn databases(arms: &[Deployment]) -> Vec<Deployment> {
    arms.iter().copied().filter(|arm| arm.data() == *arm).collect()
}

fn compare(
    options: &PooledOptions,
    bench: &mut (dyn Bench + '_),
    steps: &mut Steps<'_>,
    figures: &mut PooledFigures,
) -> Result<(), LabError> {
    for arm in databases(&options.arms()) {
        steps.step(&format!("{}, load", arm.name()))?;
        let loaded = steps.ended(bench.load(arm))?;
        figures.arms.push(ArmResult::new(arm, loaded));
    }
    figures.dilation = options.dilation;
    if options.calibrate {
        figures.tries = calibrate::calibrate(options, bench, steps)?;
        figures.dilation = calibrate::chosen(&figures.tries).unwrap_or(options.dilation);
    }
    let mut samples = Samples::new();
    let ended = rounds(options, bench, steps, figures, &mut samples);
    // As far as it has come.
    for (index, &rate) in options.ladder().iter().enumerate() {
        let of_arm =
            |arm| LoadResult::of(arm, rate, samples.remove(&(arm, index)).unwrap_or_default());
        figures.loads.extend(options.arms().into_iter().filter_map(of_arm));
    }
    ended
}

/// Samples by arm and step of the ladder; one of each round.
type Samples = BTreeMap<(Deployment, usize), Vec<LoadSample>>;

fn rounds(
    options: &PooledOptions,
    bench: &mut (dyn Bench + '_),
    steps: &mut Steps<'_>,
    figures: &mut PooledFigures,
    samples: &mut Samples,
) -> Result<(), LabError> {
    for round in 0..options.rounds {
        let mut order = options.arms();
        if round % 2 == 1 {
            order.reverse();
        }
        for arm in order {
            let bytes = turn(options, bench, steps, (arm, round, figures.dilation), samples)?;
            if let Some(result) = figures.arms.iter_mut().find(|one| one.arm == arm.data()) {
                result.at_end = bytes;
            }
        }
    }
    Ok(())
}

/// Runs the ladder on an arm once.
fn turn(
    options: &PooledOptions,
    bench: &mut (dyn Bench + '_),
    steps: &mut Steps<'_>,
    (arm, round, dilation): (Deployment, u32, u32),
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
