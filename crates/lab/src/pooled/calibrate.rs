//! How much slower than real the drives are to be, so that a comparison measures drives and not processors.

use serde::{Deserialize, Serialize};

use super::bench::{Bench, LoadSample, LoadStep};
use super::deployment::Deployment;
use super::options::PooledOptions;
use crate::LabError;
use crate::steps::Steps;

/// Drives are to be busy at least this share of the time, at the unlimited rate.
pub const BUSY: f64 = 0.7;
/// Processors are to be busy at most this share of the time.
pub const PROCESSORS: f64 = 0.7;
/// The most tries, each with drives twice as slow as the one before.
pub const TRIES: u32 = 6;
/// Seconds of a try, at most.
const SECONDS: u32 = 20;

/// An arm at a dilation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DilationTry {
    /// How many times slower than real the drives were.
    pub dilation: u32,
    /// The arm.
    pub arm: Deployment,
    /// The share of the time in which drives were busy.
    pub busy: f64,
    /// The share of the processors that were busy.
    pub machine: f64,
    /// Operations a second.
    pub ops_per_s: f64,
}

impl DilationTry {
    /// Whether a comparison at it is one of drives, as far as this arm is concerned.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        is_fit(self.busy, self.machine)
    }

    /// How near it is to both bounds: 1 within them.
    fn nearness(&self) -> f64 {
        (self.busy / BUSY).min(PROCESSORS / self.machine.max(f64::EPSILON)).min(1.0)
    }
}

/// Whether drives were busy and processors were not.
pub(super) fn is_fit(busy: f64, machine: f64) -> bool {
    busy >= BUSY && machine <= PROCESSORS
}

/// Raises the dilation until it fits local and remote drives, or tries are used up. Without a fit, [`chosen`] takes the
/// nearest.
pub(super) fn calibrate(
    options: &PooledOptions,
    bench: &mut dyn Bench,
    steps: &mut Steps<'_>,
) -> Result<Vec<DilationTry>, LabError> {
    let mut tries = Vec::new();
    let mut dilation = options.dilation;
    let step = LoadStep {
        rate: None,
        warm_up_s: options.warm_up_s,
        seconds: options.seconds.min(SECONDS),
    };
    'slower: for _ in 0..TRIES {
        // Remote drives take more of the processors: nothing is learned from them where local ones do not fit.
        for arm in [Deployment::Local, Deployment::Remote] {
            steps.step(&format!("calibration, {}, drives {dilation} times slower", arm.name()))?;
            steps.ended(bench.start(arm, dilation))?;
            let sample = steps.ended(bench.step(&step))?;
            let LoadSample { traffic, cpu, ops_per_s, .. } = sample;
            steps.ended(bench.stop())?;
            let (busy, machine) = (traffic.busy, cpu.machine);
            let found = DilationTry { dilation, arm, busy, machine, ops_per_s };
            tries.push(found);
            if !found.is_fit() {
                dilation = dilation.saturating_mul(2);
                continue 'slower;
            }
        }
        break;
    }
    Ok(tries)
}

/// The dilation whose last arm comes nearest to both bounds, the greatest of equal ones; `None` without a try.
pub(super) fn chosen(tries: &[DilationTry]) -> Option<u32> {
    // The last arm at a dilation is one that does not fit, if there is one.
    let last_of_each = tries.chunk_by(|a, b| a.dilation == b.dilation).filter_map(<[_]>::last);
    let best = last_of_each.max_by(|a, b| a.nearness().total_cmp(&b.nearness()));
    best.map(|one| one.dilation)
}
