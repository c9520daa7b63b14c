//! RocksDB on the capacity drives, with a file system over them: its phases, in the time of the drives' clock.
//!
//! The drives are as many times slower than published as in the other arms, and the program beside them runs in real
//! time. So every span of it is that many times shorter in the drives' time, and every rate that many times higher.

use esker_base::Clock;
use esker_bench::result::Latency;
use esker_bench::{RunResult, Workload};
use esker_kv::MediaClass;

use super::arm::{self, ArmRun, Plan};
use super::machine::{Arm, ArmDrive, Machine, Peer, PeerSetup};
use super::phase::{ClassBusy, Course, Moment, Phase, StreamBytes};
use crate::LabError;

/// The stream of all that a file system reads and writes.
const STREAM: &str = "file system";

/// The arm while it runs.
struct Running<'a> {
    peer: Box<dyn Peer>,
    drives: &'a [ArmDrive],
    /// The drives' clock.
    clock: &'a Clock,
    dilation: u32,
    machine: &'a dyn Machine,
}

/// Loads new drives, and runs the workloads that are given.
pub(super) fn run(
    plan: &Plan<'_>,
    machine: &mut dyn Machine,
    workloads: &[Workload],
    follow: &mut arm::Told<'_>,
) -> Result<ArmRun, LabError> {
    let options = plan.options;
    let opened = machine.open(Arm::Rocksdb, plan.dilation)?;
    let device = arm::stripe(&opened)?;
    let seed = options.seed.wrapping_add(u64::from(plan.round));
    let peer = machine.start_peer(&PeerSetup { device, options, seed })?;
    let mut remarks = vec![peer.description()];
    remarks.extend(opened.remarks);
    let (drives, clock) = (&opened.drives[..], &opened.clock);
    let mut running = Running { peer, drives, clock, dilation: plan.dilation, machine };
    let mut phases = Vec::new();
    for workload in [&[Workload::load()], workloads].concat() {
        if follow(&workload.name, phases.len()).is_break() {
            return Err(LabError::Interrupted);
        }
        phases.push(running.phase(&workload, arm::operations(options, &workload))?);
    }
    running.peer.close()?;
    Ok(ArmRun { arm: Arm::Rocksdb, round: plan.round, phases, remarks })
}

impl Running<'_> {
    /// A moment, and for how long the block device had requests under way by then.
    fn moment(&self) -> (Option<u64>, Moment) {
        (self.peer.busy_ns(), Moment::of(self.drives, self.machine))
    }

    fn phase(&mut self, workload: &Workload, operations: u64) -> Result<Phase, LabError> {
        let before = self.moment();
        let run = match workload.name == Workload::load().name {
            true => self.peer.load()?,
            false => self.peer.run(workload, operations)?,
        };
        let ended = self.moment();
        let began = self.clock.now();
        self.peer.settle()?;
        let settle_s = self.clock.now().since(began).as_secs_f64();
        Ok(self.result(run, settle_s, [before, ended, self.moment()]))
    }

    #[allow(clippy::cast_precision_loss)] // spans and counts for people
    fn result(&self, run: RunResult, settle_s: f64, moments: [(Option<u64>, Moment); 3]) -> Phase {
        let [(before, first), (ended, second), (_, third)] = &moments;
        let real_ns = (run.elapsed_ns + run.sync_ns) as f64;
        let busy = ended.zip(*before).map(|(now, then)| {
            let share = now.saturating_sub(then) as f64 / real_ns.max(1.0);
            // The kernel's clock of busy devices is coarser than ours.
            ClassBusy { class: MediaClass::Capacity, share: share.min(1.0) }
        });
        let course = Course {
            run: on_slower_clock(run, self.dilation),
            drives: self.drives,
            moments: [first, second, third],
            elapsed_s: real_ns / 1e9 / f64::from(self.dilation),
            settle_s,
            busy: busy.into_iter().collect(),
        };
        let phase = course.phase();
        let streams = vec![StreamBytes {
            class: MediaClass::Capacity,
            stream: STREAM.to_owned(),
            written_bytes: phase.drives.iter().map(|one| one.written_bytes).sum(),
            read_bytes: phase.drives.iter().map(|one| one.read_bytes).sum(),
        }];
        Phase { streams, ..phase }
    }
}

/// A run in real time, as a clock that is so many times slower has it.
pub(super) fn on_slower_clock(mut run: RunResult, dilation: u32) -> RunResult {
    let slower = f64::from(dilation);
    let divide = |ns: &mut u64| *ns /= u64::from(dilation);
    let latency = |one: &mut Latency| {
        one.mean_ns /= slower;
        let quantiles = one.by_percentile.iter_mut().map(|point| &mut point.latency_ns);
        let figures = [&mut one.min_ns, &mut one.p50_ns, &mut one.p95_ns, &mut one.p99_ns];
        let ends = [&mut one.p999_ns, &mut one.max_ns];
        figures.into_iter().chain(ends).chain(quantiles).for_each(divide);
    };
    run.ops_per_s *= slower;
    [&mut run.elapsed_ns, &mut run.sync_ns].into_iter().for_each(divide);
    for one in &mut run.by_operation {
        one.latency.iter_mut().chain(&mut one.intended_latency).for_each(latency);
    }
    for one in &mut run.intervals {
        one.ops_per_s *= slower;
        [&mut one.start_ns, &mut one.end_ns].into_iter().for_each(divide);
        let spans = [&mut one.p50_ns, &mut one.p99_ns, &mut one.p999_ns, &mut one.max_ns];
        spans.into_iter().flatten().for_each(divide);
    }
    for series in &mut run.series {
        series.points.iter_mut().for_each(|point| divide(&mut point.at_ns));
    }
    run
}
