//! The flash cache of 2013: the gains of its improvements, of Esker's cache, and of the optimum.
//!
//! | module | content |
//! | --- | --- |
//! | `options` | [`FlashCacheOptions`] |
//! | `workload` | traces and a synthetic database's load, as the simulator takes them |
//! | `disk` | how long the modelled disk takes |
//! | `verdict` | the source's figures beside the results |
//! | [`results`] | the figures of each workload, size and version |
//! | [`real`] | the same workloads on devices: on a disk alone, and behind the cache |
//! | [`report`] | [`FlashCacheFigures`] |
//! | `html` | the same as a document |
//!
//! Each version is a geometry, a policy and a rule of writing back of the cache itself
//! (`esker_cache::replay`). Nothing of the simulator is particular to this experiment.

mod disk;
mod html;
mod options;
pub mod real;
pub mod report;
pub mod results;
#[cfg(test)]
mod tests;
mod verdict;
mod workload;

use std::time::Duration;

use esker_base::policy::{Kind, MID_POINT};
use esker_cache::replay::{self, Config, Mode};
use esker_cache::{Admission, Geometry, OpenOptions, Placement, WriteBack};
use esker_report::{Page, Verdict};

use crate::LabError;
use crate::steps::Steps;
use crate::study::{About, Follow, Study};
pub use options::FlashCacheOptions;
use real::{Planned, Real, RealReport};
pub use report::FlashCacheFigures;
use results::{InsertionPoint, SizeResult, VersionResult, WorkloadResult};
use workload::WorkloadSource;
pub use workload::traces_of;

/// A version of the cache.
struct Version {
    name: &'static str,
    what: &'static str,
    policy: Kind,
    set_slots: u32,
    run_blocks: u32,
    placement: Placement,
    write_back: WriteBack,
    dirty_age: Option<Duration>,
    admission: Admission,
    sequential_bytes: u64,
    read_ahead_bytes: u64,
}

/// The version whose writes to the flash the others are compared with.
const ADMITS_ALL: usize = 3;

/// The first version kept this share of every set clean, and wrote back dirty blocks above it.
const FIRST_DIRTY_PERMILLE: u32 = 200;
/// Longer streams bypass the version that reads ahead, as they bypass the device by default.
const BYPASS: u64 = 1 << 20;
/// How far it reads ahead, at most.
const READ_AHEAD: u64 = 512 << 10;
/// A set of the first version: 2 MiB of neighbouring blocks.
const FIRST_SET: u32 = 512;

/// The versions that are compared; the first one is the base of the comparison.
fn versions() -> [Version; 9] {
    let first = WriteBack {
        cold_permille: 0,
        dirty_permille: FIRST_DIRTY_PERMILLE,
        bridge_blocks: 0,
        extent_blocks: FIRST_SET,
    };
    let usual = |name, what, policy| Version {
        name,
        what,
        policy,
        set_slots: Geometry::SET_SLOTS,
        run_blocks: Geometry::RUN_BLOCKS,
        placement: Placement::Hashed,
        write_back: WriteBack::default(),
        dirty_age: None,
        admission: Admission::All,
        sequential_bytes: 0,
        read_ahead_bytes: 0,
    };
    let dirty_age = OpenOptions::default().dirty_age;
    let esker = |name, what, policy, admission| Version {
        admission,
        dirty_age,
        ..usual(name, what, policy)
    };
    let old = |name, what, policy| Version {
        name,
        what,
        policy,
        set_slots: FIRST_SET,
        run_blocks: FIRST_SET,
        placement: Placement::Linear,
        write_back: first,
        dirty_age: None,
        admission: Admission::All,
        sequential_bytes: 0,
        read_ahead_bytes: 0,
    };
    [
        old(verdict::FIRST, "sets of 2 MiB in turn, FIFO, 20 % of a set may be dirty", Kind::Fifo),
        old("first, LRU", "the same with LRU", Kind::Lru),
        usual(
            verdict::OF_2013,
            "hashed sets of 16 MiB, insertion at percentile 75, dirty and clean in one order",
            Kind::MidPoint(MID_POINT),
        ),
        usual(
            "LRU",
            "the same with LRU: its writes to the flash are what 'written' is a share of",
            Kind::Lru,
        ),
        esker(
            verdict::ESKER,
            "the same sets with Esker's defaults: policy, admission, and nothing is dirty for longer than 30 s",
            Kind::default(),
            Admission::default(),
        ),
        usual(
            "Esker, unaged",
            "the same, and a block may be dirty for as long as it stays warm (dirty-age=off)",
            Kind::default(),
        ),
        esker(
            "Esker, sparing",
            "the same, and only what was missed before is let in (admit=again)",
            Kind::default(),
            Admission::Again,
        ),
        Version {
            sequential_bytes: BYPASS,
            read_ahead_bytes: READ_AHEAD,
            dirty_age,
            ..usual(
                "Esker, ahead",
                "as Esker, but streams are read ahead by up to 512 KiB, and bypass the cache from 1 MiB on",
                Kind::default(),
            )
        },
        Version {
            set_slots: u32::MAX,
            ..usual("optimum", "one set, and the future known (Belady)", Kind::Belady)
        },
    ]
}

/// The study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashCache;

impl Study for FlashCache {
    const ABOUT: About = About {
        name: "flash-cache",
        format: "esker-flash-cache/5",
        system: "Facebook's Flashcache",
        purpose: "A flash drive in front of slow disks keeps what is read and written most. Where blocks may lie, and \
                  which one goes, decides how many operations the disks are spared.",
        minutes: (4, 15),
        programs: &[],
        needs_root: false,
    };

    type Options = FlashCacheOptions;
    type Machine<'a> = Option<Real>;
    type Figures = FlashCacheFigures;

    fn check(options: &FlashCacheOptions) -> Result<(), LabError> {
        options.check()
    }

    fn run(
        options: &FlashCacheOptions,
        real: &mut Option<Real>,
        follow: &mut Follow<'_>,
    ) -> Result<FlashCacheFigures, LabError> {
        measure(options, real.as_ref(), follow)
    }

    fn verdicts(figures: &FlashCacheFigures) -> Vec<Verdict> {
        figures.workloads.iter().flat_map(verdict::of_workload).collect()
    }

    fn document(figures: &FlashCacheFigures) -> Page {
        figures.document()
    }
}

/// Steps of a workload on devices.
const ARMS: usize = 2;

fn measure(
    options: &FlashCacheOptions,
    real: Option<&Real>,
    follow: &mut Follow<'_>,
) -> Result<FlashCacheFigures, LabError> {
    real.map_or(Ok(()), Real::check)?;
    let (sources, mut notes) = workload::sources(options)?;
    if sources.is_empty() {
        return Err(LabError::Invalid("there is no workload: name a trace".into()));
    }
    let mut plans = plans(options, real, &sources, &mut notes)?;
    let arms = ARMS * plans.iter().flatten().count();
    let count = sources.len() + arms;
    let mut steps = Steps::new(follow, count);
    let times = disk::measure(options.seed)?;
    let (mut workloads, mut measured) = (Vec::new(), Vec::new());
    for (source, plan) in sources.iter().zip(&mut plans) {
        if steps.step(source.name()).is_err() {
            break;
        }
        match source.load(options) {
            Ok(trace) => workloads.push(replay_all(source.name(), &trace, options, &times)?),
            // A folder may hold anything.
            Err(error) if source.is_found() => {
                notes.push(format!("{} was left out: {error}", source.name()));
            }
            Err(error) => return Err(error),
        }
        if let Some((real, plan)) = real.zip(plan.take()) {
            match real::replay(real, source.name(), &plan, options.seed, &mut steps) {
                Err(LabError::Interrupted) => break,
                result => measured.push(result?),
            }
        }
    }
    if workloads.is_empty() && steps.is_interrupted() {
        return Err(LabError::Interrupted);
    }
    if workloads.is_empty() {
        return Err(LabError::Invalid(format!("no workload could be read: {}", notes.join("; "))));
    }
    let versions = versions().map(|version| (version.name.to_owned(), version.what.to_owned()));
    let real = real.map(|real| RealReport::new(real, measured));
    Ok(FlashCacheFigures::new(versions.to_vec(), workloads, times, real, notes))
}

/// The replays on devices; none of a workload that is not replayed there. Nothing is written before all are known.
fn plans(
    options: &FlashCacheOptions,
    real: Option<&Real>,
    sources: &[WorkloadSource],
    notes: &mut Vec<String>,
) -> Result<Vec<Option<Planned>>, LabError> {
    let Some(real) = real else { return Ok(sources.iter().map(|_| None).collect()) };
    let mut plans = Vec::new();
    for source in sources {
        let why = || {
            format!(
                "{}: a replay on devices needs {} requests; name a longer trace",
                source.name(),
                real::LEAST_REQUESTS
            )
        };
        plans.push(match real.plan(source, options) {
            Ok(Some(plan)) => Some(plan),
            Ok(None) if !source.is_found() => return Err(LabError::Invalid(why())),
            Ok(None) => {
                notes.push(why());
                None
            }
            // The simulation says why a file of a folder is left out.
            Err(LabError::Trace(_) | LabError::Cache(_)) if source.is_found() => None,
            Err(error) => return Err(error),
        });
    }
    Ok(plans)
}

fn replay_all(
    name: &str,
    trace: &replay::Trace,
    options: &FlashCacheOptions,
    times: &disk::Times,
) -> Result<WorkloadResult, LabError> {
    let slots_of = |percent: u32| (trace.footprint() * u64::from(percent) / 100).max(1);
    let versions = versions();
    let config = |version: &Version, slots: u64| Config {
        policy: version.policy,
        geometry: Geometry {
            slots,
            set_slots: version.set_slots,
            run_blocks: version.run_blocks,
            placement: version.placement,
            origin_blocks: trace.origin_blocks(),
            seed: options.seed,
        },
        mode: Mode::WriteBack,
        write_back: version.write_back,
        dirty_age: version.dirty_age,
        admission: version.admission,
        sequential_bytes: version.sequential_bytes,
        read_ahead_bytes: version.read_ahead_bytes,
    };
    let mut configs = Vec::new();
    for &percent in &options.sizes_percent {
        configs.extend(versions.iter().map(|version| config(version, slots_of(percent))));
    }
    // Where new blocks are inserted, for the sets of 2013.
    let middle = &versions[2];
    let tens = (0..=10u8).map(|step| (step * 10).clamp(1, 100));
    let mut swept: Vec<u8> =
        tens.chain([verdict::INSERTION_USED, verdict::INSERTION_FOUND]).collect();
    swept.sort_unstable();
    for &percent in &options.sizes_percent {
        for &percentile in &swept {
            let mut one = config(middle, slots_of(percent));
            one.policy = Kind::MidPoint(percentile);
            configs.push(one);
        }
    }
    let outcomes = replay::run_all(trace, &configs, options.threads)?;
    let (of_versions, of_sweep) = outcomes.split_at(options.sizes_percent.len() * versions.len());
    let mut sizes = Vec::new();
    for (index, &percent) in options.sizes_percent.iter().enumerate() {
        let outcomes = &of_versions[index * versions.len()..][..versions.len()];
        let results = versions.iter().zip(outcomes).map(|(version, outcome)| {
            VersionResult::new(version.name, outcome, (&outcomes[0], &outcomes[ADMITS_ALL]), times)
        });
        let sweep = &of_sweep[index * swept.len()..][..swept.len()];
        let by_percentile = swept.iter().zip(sweep).map(|(&percentile, outcome)| InsertionPoint {
            percentile,
            hit_ratio: outcome.hit_ratio_by_block(),
        });
        sizes.push(SizeResult {
            percent,
            cache_bytes: slots_of(percent) * disk::BLOCK_BYTES,
            versions: results.collect(),
            by_percentile: by_percentile.collect(),
        });
    }
    Ok(WorkloadResult::new(name, trace, &of_versions[0], times, sizes))
}
