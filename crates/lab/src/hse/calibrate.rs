//! How much slower than real time the clock has to be, so that drives decide and not the processors.
//!
//! A small study runs on a clock that becomes slower until no workload of any arm keeps the processors busier than
//! [`ENOUGH`]. Nothing but the processors is looked at: no figure of the study can be tuned by it.

use esker_bench::Workload;
use serde::Serialize;

use super::arm::Plan;
use super::machine::Machine;
use super::options::{self, HseOptions};
use super::round;
use crate::LabError;
use crate::steps::Progress;
use crate::study::Follow;

/// The first try.
const FIRST: u32 = 8;
/// How busy the processors may be: below the share that makes a run incomparable, because a whole run is less even.
const ENOUGH: f64 = 0.6;
/// Tries at most.
const TRIES: usize = 5;
/// The small study's share of the records and operations.
const SMALL: u64 = 4;

/// How the clock was chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Calibration {
    /// How many times slower than real time it is.
    pub dilation: u32,
    /// The tries: the factor, and how busy the processors were in the phase that kept them busiest.
    pub tries: Vec<(u32, f64)>,
}

impl Calibration {
    /// A factor that was given.
    pub(super) fn given(dilation: u32) -> Calibration {
        Calibration { dilation, tries: Vec::new() }
    }
}

/// Tries factors from [`FIRST`] on. Where RocksDB fails, the other arms tell the factor.
pub(super) fn calibrate(
    study: &HseOptions,
    machine: &mut (dyn Machine + '_),
    follow: &mut Follow<'_>,
) -> Result<Calibration, LabError> {
    let small = HseOptions {
        records: (study.records / SMALL).max(options::LEAST_RECORDS),
        operations: (study.operations / SMALL).max(1000),
        ..study.clone()
    };
    let mut arms = study.arms().to_vec();
    let mut found = Calibration::given(FIRST);
    for number in 0..TRIES {
        let mut busiest: f64 = 0.0;
        for arm in arms.clone() {
            let plan = Plan { options: &small, arm, round: 0, dilation: found.dilation };
            let factor = found.dilation;
            let mut tell = |text: &str, _: usize| {
                let run = format!("calibration, {factor} times slower, {arm}: {text}");
                follow(&Progress { run: &run, done: number, count: TRIES, share: None })
            };
            let workloads = [Workload::a(), Workload::c()];
            let run = match round::run(&plan, machine, &workloads, &mut tell) {
                Err(error) if round::goes_on(arm, &error) => {
                    arms.retain(|one| *one != arm);
                    continue;
                }
                run => run?,
            };
            if run.phases.len() <= workloads.len() {
                return Err(LabError::Interrupted);
            }
            // So small a load fits into the drives' write buffers: the processors decide it on any clock.
            let shares = run.phases.iter().skip(1).filter_map(|phase| phase.processors);
            busiest = shares.fold(busiest, f64::max);
        }
        found.tries.push((found.dilation, busiest));
        if busiest <= ENOUGH {
            break;
        }
        found.dilation = slower(found.dilation, busiest);
    }
    Ok(found)
}

/// Returns the next factor: the processors' work takes as long, within more time.
fn slower(dilation: u32, busiest: f64) -> u32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a small factor
    let next = (f64::from(dilation) * (busiest / ENOUGH).clamp(1.25, 3.0)).ceil() as u32;
    next.min(options::MOST_DILATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busier_processors_need_a_slower_clock() {
        assert_eq!(slower(8, 0.62), 10);
        assert_eq!(slower(8, 0.9), 12);
        assert_eq!(slower(900, 1.0), 1000);
    }
}
