//! The engine under YCSB: by real clients on a slower clock, or by one client in turn with maintenance in virtual
//! time.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker_base::units::to_u64;
use esker_bench::{BoxError, Progress, RunOptions, RunResult, Runner, Session, Store, Workload};
use esker_device::{Device, MemoryDevice};
use esker_kv::{Kvdb, Location, Maintenance, Medium, Options, Policy, Stats};

use crate::LabError;
use crate::hse::phase::Decider;
use crate::plan::build::{Built, Maker};
use crate::plan::inputs::{EngineLoad, Inputs};
use crate::plan::measured::{ClockKind, DeviceUse, KindLatency, MeasuredCase};
use crate::plan::run::steady;
use crate::plan::surroundings::Surroundings;
use crate::store::KvStore;

/// For the manifest, which has no part of a drive.
const MANIFEST_BYTES: u64 = 64 << 20;
/// Bytes that a client writes before it is maintenance's turn.
const TURN_BYTES: u64 = 64 << 10;
/// The part of the memory that acknowledged writes may take before they are durable, as at the prompt.
const DURABILITY_SHARE: u64 = 4;
/// The KVS that holds the records.
const KVS: &str = "ycsb";

/// A moment of a run.
struct Moment {
    stats: Stats,
    devices: Vec<DeviceUse>,
}

pub(super) fn run(
    inputs: &Inputs,
    load: &EngineLoad,
    surroundings: &Surroundings<'_>,
    follow: &mut dyn FnMut(&str) -> bool,
) -> Result<MeasuredCase, LabError> {
    let mut maker = Maker::new(load.dilation);
    let built: Vec<Built> = inputs
        .devices
        .iter()
        .map(|node| maker.build(node, true))
        .collect::<Result<_, LabError>>()?;
    let mut classes = built.iter().map(|one| one.device.clone());
    let capacity = classes.next().ok_or_else(|| LabError::Invalid("no device".to_owned()))?;
    let manifest = Arc::new(MemoryDevice::new("manifest", MANIFEST_BYTES, 4096));
    let mut location = Location::devices(manifest.clone(), capacity);
    if let Some(staging) = classes.next() {
        location = location.staging(Medium::device(staging));
    }
    let options = Options::default().with(|set| {
        set.memory_bytes = load.memory_bytes;
        set.durability.bytes = set.durability.bytes.min(load.memory_bytes / DURABILITY_SHARE);
        set.clock = maker.clock.clone();
        set.maintenance = match load.dilation {
            None => Maintenance::Manual,
            Some(_) => Maintenance::Threads,
        };
    });
    let db = Kvdb::builder(location).options(options).create()?;
    let kvs = db.create_kvs(KVS, Policy::default())?;
    let store = KvStore { db, kvs, process: Vec::new };
    let store = Engine { store, is_in_turn: load.dilation.is_none() };
    let db = &store.store.db;
    let classes_written = || built.iter().map(|one| one.device.stats().written_bytes).sum::<u64>();
    let moment =
        || Moment { stats: db.stats(), devices: built.iter().flat_map(Built::uses).collect() };
    let mut runner = Runner::new(&store, maker.clock.clone(), load.dataset)?;
    let options = RunOptions {
        threads: load.clients,
        operations: Some(load.operations),
        seed: inputs.seed,
        ..RunOptions::default()
    };
    let mut progress = |now: &Progress<'_>| match follow(&format!(
        "{} {:.0} %",
        now.workload,
        now.fraction * 100.0
    )) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    phase(&mut runner, None, &options, &mut progress)?;
    db.settle()?;
    let (before, written) = (moment(), manifest.stats().written_bytes);
    let classes = classes_written();
    let busy = (surroundings.processors)();
    let run = phase(&mut runner, Some(&load.workload), &options, &mut progress)?;
    let ended = moment();
    let processors =
        busy.zip((surroundings.processors)()).map(|(then, now)| now.share_since(&then));
    db.settle()?;
    let settled = moment();
    let settled_uses = settled.devices.clone();
    let manifest_bytes = manifest.stats().written_bytes - written;
    let mut measured = measured(&run, load, [&before, &ended, &settled], processors);
    measured.manifest_written_bytes = manifest_bytes;
    measured.classes_written_bytes = classes_written() - classes;
    measured.usable_bytes = built.first().map_or(0, Built::capacity_bytes);
    measured.dram.extend(built.iter().flat_map(Built::dram));
    let written = settled_uses.iter().filter(|one| one.is_flash).map(|one| one.written_bytes);
    let bytes = built.iter().flat_map(Built::flash_bytes);
    measured.unsteady = steady::of_engine(bytes.zip(written));
    store.store.db.close()?;
    Ok(measured)
}

/// The load, or a workload.
fn phase(
    runner: &mut Runner<'_>,
    workload: Option<&Workload>,
    options: &RunOptions,
    progress: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<RunResult, LabError> {
    let run = match workload {
        None => runner.load(options, progress)?,
        Some(workload) => runner.run(workload, options, progress)?,
    };
    match run.interrupted {
        true => Err(LabError::Interrupted),
        false => Ok(run),
    }
}

#[allow(clippy::cast_precision_loss)] // counts become rates
fn measured(
    run: &RunResult,
    load: &EngineLoad,
    moments: [&Moment; 3],
    processors: Option<f64>,
) -> MeasuredCase {
    let [before, ended, settled] = moments;
    let elapsed_s = ((run.elapsed_ns + run.sync_ns) as f64 / 1e9).max(1e-9);
    let clock = load.dilation.map_or(ClockKind::InTurn, ClockKind::Dilated);
    let latencies: Vec<KindLatency> = run
        .by_operation
        .iter()
        // One client in turn waits mostly for maintenance.
        .filter(|one| clock != ClockKind::InTurn || one.operation.name() == "read")
        .filter_map(|one| Some(KindLatency::of(one.operation.name(), one.latency.as_ref()?)))
        .collect();
    let live: u64 = settled.stats.classes.iter().map(|one| one.live_bytes).sum();
    let used: u64 = settled.stats.classes.iter().map(|one| one.used_bytes).sum();
    let data = run.records_after * load.dataset.values.bytes();
    let user_bytes = run.user_bytes_written + run.user_bytes_read;
    MeasuredCase {
        clock,
        elapsed_s,
        operations: run.operations,
        ops_per_s: run.operations as f64 / elapsed_s,
        bytes_per_s: user_bytes as f64 / elapsed_s,
        latencies,
        user_written_bytes: settled.stats.user_bytes - before.stats.user_bytes,
        devices: DeviceUse::since(settled.devices.clone(), &before.devices),
        classes_written_bytes: 0,
        manifest_written_bytes: 0,
        dram: vec![("engine".to_owned(), load.memory_bytes)],
        usable_bytes: 0,
        space_amplification: used.max(live) as f64 / data.max(1) as f64,
        hit_ratio: None,
        decider: (clock != ClockKind::InTurn)
            .then(|| Decider::of(processors, busiest(&before.stats, &ended.stats))),
        processors: processors.filter(|_| clock != ClockKind::InTurn),
        unsteady: None,
        written_bytes_per_s: run.user_bytes_written as f64 / elapsed_s,
        remarks: Vec::new(),
    }
}

/// How busy the busiest class was, as a share.
#[allow(clippy::cast_precision_loss)] // a share of a span
fn busiest(before: &Stats, after: &Stats) -> f64 {
    let span = (after.open_ns - before.open_ns).max(1) as f64;
    let classes = after.classes.iter().zip(&before.classes);
    classes.map(|(now, then)| (now.busy_ns - then.busy_ns) as f64 / span).fold(0.0, f64::max)
}

/// The engine; in virtual time under one client, whose writes make maintenance's turn come.
struct Engine {
    store: KvStore,
    is_in_turn: bool,
}

struct Turn<'a> {
    inner: Box<dyn Session + 'a>,
    db: &'a Kvdb,
    written: u64,
}

impl Store for Engine {
    fn session(&self) -> Result<Box<dyn Session + '_>, BoxError> {
        let inner = self.store.session()?;
        match self.is_in_turn {
            false => Ok(inner),
            true => Ok(Box::new(Turn { inner, db: &self.store.db, written: 0 })),
        }
    }

    fn sync(&self) -> Result<(), BoxError> {
        self.store.sync()
    }
}

impl Session for Turn<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BoxError> {
        self.inner.read(key, value)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), BoxError> {
        self.inner.insert(key, value)?;
        self.written += to_u64(key.len() + value.len());
        if self.written >= TURN_BYTES {
            self.written = 0;
            self.db.settle()?;
        }
        Ok(())
    }

    fn scan(
        &mut self,
        start: &[u8],
        count: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, BoxError> {
        self.inner.scan(start, count, visit)
    }
}
