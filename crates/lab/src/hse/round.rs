//! All rounds, and a run of any arm: of the engine, or of RocksDB.

use esker_bench::Workload;

use super::arm::{self, ArmRun, Plan, Told};
use super::machine::{Arm, Machine};
use super::options::HseOptions;
use super::peer;
use crate::LabError;
use crate::steps::Progress;
use crate::study::Follow;

/// Loads new drives, and runs the workloads that are given; `follow` gets the number of the phase. A run that it ends
/// has the phases until then.
pub(super) fn run(
    plan: &Plan<'_>,
    machine: &mut (dyn Machine + '_),
    workloads: &[Workload],
    follow: &mut Told<'_>,
) -> Result<ArmRun, LabError> {
    match plan.arm {
        Arm::Rocksdb => peer::run(plan, machine, workloads, follow),
        Arm::Capacity | Arm::Staged => arm::run(plan, machine, workloads, follow),
    }
}

/// All rounds, or those until they are interrupted: the runs, and what was skipped because RocksDB failed.
pub(super) fn all(
    options: &HseOptions,
    dilation: u32,
    machine: &mut (dyn Machine + '_),
    follow: &mut Follow<'_>,
) -> Result<(Vec<ArmRun>, Vec<String>), LabError> {
    let (mut runs, mut skipped) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let mut order = options.arms().to_vec();
        if round % 2 == 1 {
            order.reverse();
        }
        for arm in order {
            let plan = Plan { options, arm, round, dilation };
            match measure(&plan, runs.len() + skipped.len(), machine, follow) {
                Ok(run) => {
                    let is_whole = run.phases.len() > arm::workloads(options).len();
                    runs.push(run);
                    if !is_whole {
                        return Ok((runs, skipped));
                    }
                }
                Err(LabError::Interrupted) if !runs.is_empty() => return Ok((runs, skipped)),
                Err(error) if goes_on(arm, &error) => {
                    skipped.push(format!("RocksDB, round {}: {error}", round + 1));
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok((runs, skipped))
}

/// Whether the study goes on after a failure of this arm: one of RocksDB. The engine's own arms take long, and say something
/// without it.
pub(super) fn goes_on(arm: Arm, error: &LabError) -> bool {
    arm == Arm::Rocksdb && matches!(error, LabError::Way { .. })
}

/// A run with all workloads, after so many arms that are through.
fn measure(
    plan: &Plan<'_>,
    done: usize,
    machine: &mut (dyn Machine + '_),
    follow: &mut Follow<'_>,
) -> Result<ArmRun, LabError> {
    let workloads = arm::workloads(plan.options);
    let phases = workloads.len() + 1;
    let (arm, round) = (plan.arm, plan.round + 1);
    let before = done * phases;
    let count = plan.options.rounds as usize * plan.options.arms().len() * phases;
    let mut tell = |text: &str, done: usize| {
        follow(&Progress {
            run: &format!("round {round}, {arm}: {text}"),
            done,
            count,
            share: None,
        })
    };
    run(plan, machine, &workloads, &mut |text, phase| tell(text, before + phase))
}
