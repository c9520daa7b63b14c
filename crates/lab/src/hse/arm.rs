//! All phases of an arm of the engine, on new drives.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use esker_bench::{Dataset, RunOptions, Runner, ValueFormat, Workload};
use esker_device::{Device, Stripe};
use esker_kv::{Kvdb, Location, MediaClass, Medium, Options, Policy};
use serde::Serialize;

use super::machine::{Arm, ArmDrive, Machine, Opened};
use super::options::{HseOptions, VALUE_BYTES};
use super::phase::{Phase, Running};
use crate::LabError;
use crate::store::KvStore;

/// Bytes that go to a drive of the stripe before the next one's turn comes.
pub(super) const CHUNK: u64 = 128 << 10;
/// The KVS that holds the records.
const KVS: &str = "ycsb";
/// Points of a run's course, in so much real time.
const POINTS: u32 = 100;
const MINUTE: Duration = Duration::from_secs(60);
/// The shortest interval that the driver takes.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);
/// Of the operations of other workloads, the share of one that scans.
const SCANS: u64 = 20;

/// One run of an arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmRun {
    /// Which.
    pub arm: Arm,
    /// The round, from 0.
    pub round: u32,
    /// The load, then the workloads.
    pub phases: Vec<Phase>,
    /// Remarks about its drives and how they were opened.
    pub remarks: Vec<String>,
}

/// A run that is to be made.
pub(super) struct Plan<'a> {
    pub(super) options: &'a HseOptions,
    pub(super) arm: Arm,
    pub(super) round: u32,
    pub(super) dilation: u32,
}

/// The workloads, those that insert last.
pub(super) fn workloads(options: &HseOptions) -> Vec<Workload> {
    let mut all = vec![Workload::a(), Workload::b(), Workload::c(), Workload::f(), Workload::d()];
    if options.has_scans {
        all.push(Workload::e());
    }
    all
}

/// Follows a run: gets what goes on and the number of the phase, and may end it.
pub(super) type Told<'a> = dyn FnMut(&str, usize) -> ControlFlow<()> + 'a;

/// A scan reads some fifty records.
pub(super) fn operations(options: &HseOptions, workload: &Workload) -> u64 {
    if workload.scan > 0.0 { options.operations / SCANS } else { options.operations }
}

/// Loads new drives, and runs the workloads that are given; `follow` gets the number of the phase. A run that it ends
/// has the phases until then.
pub(super) fn run(
    plan: &Plan<'_>,
    machine: &mut dyn Machine,
    workloads: &[Workload],
    follow: &mut Told<'_>,
) -> Result<ArmRun, LabError> {
    let options = plan.options;
    let opened = machine.open(plan.arm, plan.dilation)?;
    let store = store(&opened, options.memory_bytes(), machine)?;
    let mut remarks = opened.remarks.clone();
    remarks.extend(store.db.remarks().into_iter().filter(|one| !opened.remarks.contains(one)));
    let dataset = Dataset {
        records: options.records,
        values: ValueFormat::one(VALUE_BYTES),
        ..Dataset::default()
    };
    let mut runner = Runner::new(&store, opened.clock.clone(), dataset)?;
    let (clock, drives) = (&opened.clock, &opened.drives);
    let running = Running { store: &store, drives, clock, machine };
    let mut phases = Vec::new();
    for workload in [&[Workload::load()], workloads].concat() {
        let run_options = RunOptions {
            threads: options.threads,
            operations: Some(operations(options, &workload)),
            // A run on drives that are this slow takes about a minute; its course has a point a second then.
            interval: (MINUTE / POINTS / plan.dilation.max(1)).max(LEAST_INTERVAL),
            seed: options.seed.wrapping_add(u64::from(plan.round)),
            ..RunOptions::default()
        };
        let number = phases.len();
        let mut told = |text: &str| follow(text, number);
        match running.phase(&mut runner, &workload, &run_options, &mut told) {
            Err(LabError::Interrupted) if !phases.is_empty() => break,
            phase => phases.push(phase?),
        }
    }
    store.db.close()?;
    Ok(ArmRun { arm: plan.arm, round: plan.round, phases, remarks })
}

/// The capacity drives, striped.
pub(super) fn stripe(opened: &Opened) -> Result<Arc<dyn Device>, LabError> {
    Ok(Arc::new(Stripe::new("capacity", devices(opened, MediaClass::Capacity), CHUNK)?))
}

fn devices(opened: &Opened, class: MediaClass) -> Vec<Arc<dyn Device>> {
    let drives = opened.drives.iter().filter(|one: &&ArmDrive| one.class == class);
    drives.map(|one| one.device.clone()).collect()
}

/// A new database on an arm's drives.
fn store(opened: &Opened, memory_bytes: u64, machine: &dyn Machine) -> Result<KvStore, LabError> {
    let mut location = Location::devices(opened.manifest.clone(), stripe(opened)?);
    if let Some(staging) = devices(opened, MediaClass::Staging).into_iter().next() {
        location = location.staging(Medium::device(staging));
    }
    let options = Options::default().with(|set| {
        set.memory_bytes = memory_bytes;
        set.clock = opened.clock.clone();
    });
    let db = Kvdb::builder(location).options(options).create()?;
    let kvs = db.create_kvs(KVS, Policy::default())?;
    Ok(KvStore { db, kvs, process: machine.samples() })
}
