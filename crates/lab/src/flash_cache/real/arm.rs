//! One replay of a workload: warmed by the first half of its requests, measured over the second.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use esker_base::units::to_nanos;

use esker_cache::replay::{self, Config, Mode as SimulatedMode};
use esker_cache::{
    Background, Cache, CreateOptions, Geometry, Info, Mode, OpenOptions, Placement, Stats,
    WriteBack,
};
use esker_device::{DeviceStats, Port};
use esker_trace::Request;

use super::devices::{Planned, Real};
use super::report::{DeviceWork, KindTimes, RealArm};
use crate::LabError;
use crate::device_load::{self, Job, LoadReport, Size, Source, Target, Timing};
use crate::flash_cache::disk::{BLOCK_BYTES, figure};

/// Nobody ends a replay: it has a bound.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Figures of the arm with the cache.
pub(super) struct Cached {
    pub(super) arm: RealArm,
    /// Bytes of the cache's slots.
    pub(super) cache_bytes: u64,
    /// Blocks that the measured requests refer to.
    pub(super) blocks: u64,
    /// Of them, the share that the cache counted as hits.
    pub(super) hit_ratio: f64,
    /// The same as the simulator counts it.
    pub(super) simulated_hit_ratio: f64,
    /// Missed blocks that were not filled in.
    pub(super) fills_dropped: u64,
    /// Bytes that the disk did not have yet when the measured requests were done.
    pub(super) left_dirty_bytes: u64,
    /// How long writing them back took.
    pub(super) written_back_ns: u64,
}

/// The disk alone.
pub(super) fn alone(real: &Real, planned: &Planned, seed: u64) -> Result<RealArm, LabError> {
    let disk = &real.disk.device;
    let target = Target { device: disk.clone(), clock: real.clock.clone(), model: None };
    send(real, &planned.load.warming, &target, seed)?;
    let before = disk.stats();
    let report = send(real, &planned.load.measured, &target, seed)?;
    let arm = RealArm::new("disk alone", &report, work(&before, &disk.stats()), None);
    // The other arm does not wait for what this one left in the disk's write cache.
    Port::open(&**disk, 1)?.flush()?;
    Ok(arm)
}

/// The disk behind a new cache on the flash device.
pub(super) fn cached(real: &Real, planned: &Planned, seed: u64) -> Result<Cached, LabError> {
    let (disk, flash) = (&real.disk.device, &real.flash.device);
    let create = CreateOptions {
        mode: Mode::WriteBack,
        flash_bytes: Some(planned.flash_bytes),
        set_bytes: planned.set_bytes,
        id: seed,
        overwrite: true,
        ..CreateOptions::default()
    };
    crate::erase::erase(&real.flash.name, &**flash)?;
    Cache::create(&**disk, flash, &create)?;
    let info = Cache::inspect(flash)?;
    let open = OpenOptions {
        background: Background::Thread,
        clock: real.clock.clone(),
        ..OpenOptions::default()
    };
    let config = simulated(&info, &open, seed);
    let cache = Arc::new(Cache::open(disk.clone(), flash.clone(), open)?);
    let target = Target { device: cache.clone(), clock: real.clock.clone(), model: None };
    send(real, &planned.load.warming, &target, seed)?;
    let before = (disk.stats(), flash.stats(), cache.figures());
    let report = send(real, &planned.load.measured, &target, seed)?;
    let figures = cache.figures();
    let flash_work = work(&before.1, &flash.stats());
    let arm =
        RealArm::new("with the cache", &report, work(&before.0, &disk.stats()), Some(flash_work));
    let began = real.clock.now();
    cache.detach()?;
    let written_back_ns = to_nanos(real.clock.now().since(began));
    let warming = references(&planned.load.warming);
    let outcome = replay::run_from(&planned.trace, &config, warming)?;
    let (hits, blocks) = hits(&before.2, &figures);
    Ok(Cached {
        arm,
        cache_bytes: info.capacity_bytes,
        blocks,
        hit_ratio: figure(hits) / figure(blocks.max(1)),
        simulated_hit_ratio: outcome.hit_ratio_by_block(),
        fills_dropped: figures.fills_dropped - before.2.fills_dropped,
        left_dirty_bytes: figures.dirty_blocks * BLOCK_BYTES,
        written_back_ns,
    })
}

/// Sends requests in their order, as soon as there is room for them.
fn send(
    real: &Real,
    requests: &[Request],
    target: &Target,
    seed: u64,
) -> Result<LoadReport, LabError> {
    let job = Job {
        sizes: vec![Size { bytes: BLOCK_BYTES, weight: 1 }],
        depth: real.options.depth,
        time_limit: None,
        seed,
        ..Job::default()
    };
    device_load::run(&job, Source::Trace(requests.to_vec(), Timing::Order), target, &NEVER)
}

/// The simulator's cache of the same size, sets and rules.
fn simulated(info: &Info, open: &OpenOptions, seed: u64) -> Config {
    let narrow = |bytes: u64| u32::try_from(bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
    Config {
        policy: open.policy,
        geometry: Geometry {
            slots: info.capacity_bytes / BLOCK_BYTES,
            set_slots: narrow(info.set_bytes),
            run_blocks: narrow(info.run_bytes),
            placement: Placement::Hashed,
            // The simulator takes that of the trace.
            origin_blocks: info.origin_bytes / BLOCK_BYTES,
            seed,
        },
        mode: SimulatedMode::WriteBack,
        write_back: WriteBack {
            dirty_permille: u32::from(open.dirty_percent) * 10,
            ..WriteBack::default()
        },
        dirty_age: open.dirty_age,
        admission: open.admission,
        sequential_bytes: open.sequential_bytes,
        read_ahead_bytes: open.read_ahead_bytes,
    }
}

/// References to blocks that requests are.
fn references(requests: &[Request]) -> usize {
    let blocks = requests.iter().filter(|one| one.op.is_data()).map(|one| one.length / BLOCK_BYTES);
    usize::try_from(blocks.sum::<u64>()).unwrap_or(usize::MAX)
}

/// Blocks that were hits between two moments, and all that were looked up.
fn hits(before: &Stats, after: &Stats) -> (u64, u64) {
    let hits = |one: &Stats| one.read_hits + one.write_hits;
    let all = |one: &Stats| hits(one) + one.read_misses + one.write_misses;
    (hits(after) - hits(before), all(after) - all(before))
}

fn work(before: &DeviceStats, after: &DeviceStats) -> DeviceWork {
    DeviceWork {
        reads: after.reads - before.reads,
        writes: after.writes - before.writes,
        flushes: after.flushes - before.flushes,
        read_bytes: after.read_bytes - before.read_bytes,
        written_bytes: after.written_bytes - before.written_bytes,
    }
}

impl RealArm {
    fn new(
        name: &str,
        report: &LoadReport,
        disk: DeviceWork,
        flash: Option<DeviceWork>,
    ) -> RealArm {
        let requests: u64 = report.kinds.iter().map(|one| one.requests).sum();
        let kinds = report.kinds.iter().filter_map(|one| {
            let latency = one.latency.as_ref()?;
            Some(KindTimes {
                kind: one.kind.clone(),
                requests: one.requests,
                mean_ns: latency.mean_ns,
                p99_ns: latency.p99_ns,
                p999_ns: latency.p999_ns,
            })
        });
        RealArm {
            arm: name.to_owned(),
            elapsed_ns: report.elapsed_ns,
            requests_per_s: figure(requests) / (figure(report.elapsed_ns.max(1)) / 1e9),
            kinds: kinds.collect(),
            disk,
            flash,
        }
    }
}
