//! How much slower than real the drives are to be, so that a comparison measures drives and not processors.

use serde::{Deserialize, Serialize};

use super::arm::Arm;
use super::bench::{Bench, LoadStep};
use super::{PooledOptions, Steps};
use crate::LabError;

/// Drives are to be busy at least this share of the time, at the unlimited rate.
pub const BUSY: f64 = 0.7;
/// Processors are to be busy at most this share of the time.
pub const PROCESSORS: f64 = 0.7;
/// The most tries, each with drives twice as slow as the one before.
pub const TRIES: u32 = 6;
/// Seconds of a try, at most.
const SECONDS: u32 = 20;

/// A try.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DilationTry {
    /// How many times slower than real the drives were.
    pub dilation: u32,
    /// The share of the time in which drives were busy.
    pub busy: f64,
    /// The share of the processors that were busy.
    pub machine: f64,
    /// Operations a second.
    pub ops_per_s: f64,
}

impl DilationTry {
    /// Whether a comparison at it is one of drives.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        is_fit(self.busy, self.machine)
    }
}

/// Whether drives were busy and processors were not.
pub(super) fn is_fit(busy: f64, machine: f64) -> bool {
    busy >= BUSY && machine <= PROCESSORS
}

/// Raises the dilation on local drives until it fits, or tries are used up. Without a fit, [`chosen`] takes the
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
    for _ in 0..TRIES {
        steps.step(&format!("calibration, drives {dilation} times slower"))?;
        bench.start(Arm::Local, dilation)?;
        let sample = bench.step(&step)?;
        bench.stop()?;
        let found = DilationTry {
            dilation,
            busy: sample.traffic.busy,
            machine: sample.cpu.machine,
            ops_per_s: sample.ops_per_s,
        };
        tries.push(found);
        if found.is_fit() {
            break;
        }
        dilation = dilation.saturating_mul(2);
    }
    Ok(tries)
}

/// The dilation of the try that comes nearest to both bounds; `None` without a try.
pub(super) fn chosen(tries: &[DilationTry]) -> Option<u32> {
    let margin = |one: &DilationTry| {
        (one.busy / BUSY).min(PROCESSORS / one.machine.max(f64::EPSILON)).min(1.0)
    };
    let best = tries.iter().max_by(|a, b| margin(a).total_cmp(&margin(b)));
    best.map(|one| one.dilation)
}
