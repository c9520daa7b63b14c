//! `esker lab hse`: opens the drives of the study, and tells of its processors.

mod rocksdb;

use std::sync::Arc;

use esker_base::Clock;
use esker_bench::Sample;
use esker_device::{Create, Device, MemoryDevice};
use esker_kv::MediaClass;
use esker_lab::LabError;
use esker_lab::hse::{
    Arm, ArmDrive, Hse, HseOptions, Machine, Opened, Peer, PeerSetup, Processors, Rates,
};
use esker_stack::{Opened as OpenedDevice, Spec, Stack, Time};

use self::rocksdb::Rocksdb;
use super::drives;
use super::experiment::{Experiment, failed};
use crate::args::HseArgs;
use crate::failure::Result;
use crate::host;
use crate::stderr::tell;

/// Drives of the source.
const CAPACITY: &str = "micron-5210";
const STAGING: &str = "micron-9300";
const CAPACITY_DRIVES: u64 = 4;
/// For the manifest, where it has no part of a drive.
const MANIFEST_BYTES: u64 = 64 << 20;
/// With --quick, the share of the operations that is run.
const QUICK: u64 = 4;

/// Runs the study.
pub(crate) fn run(args: &HseArgs) -> Result {
    let experiment = Experiment::start::<Hse>(&args.every)?;
    let operations = args.operations.unwrap_or(args.records);
    let mut options = HseOptions {
        records: args.records,
        operations: if args.quick { operations / QUICK } else { operations },
        threads: args.threads,
        rounds: args.rounds.unwrap_or(if args.quick { 1 } else { 3 }),
        dilation: args.dilation,
        has_scans: !args.no_scans,
        has_rocksdb: false,
        seed: args.every.seed,
    };
    drives::agreed(args.erase || args.capacity.is_empty())?;
    options.check().map_err(failed)?;
    let (mut rocksdb, mut skipped) = (None, Vec::new());
    if let Some(program) = &args.rocksdb {
        skipped = rocksdb::missing(program);
        if skipped.is_empty() {
            rocksdb = Some(Rocksdb::new(args, program).map_err(failed)?);
            options.has_rocksdb = true;
        }
    }
    for why in &mut skipped {
        why.insert_str(0, "RocksDB: ");
        tell!("esker: SKIPPED {why}");
    }
    let mut drives = Drives { args, options: options.clone(), rocksdb };
    let ran = experiment.run::<Hse>(&options, &mut drives);
    let has_failed = ran.as_ref().map_or(true, |report| !report.figures.skipped.is_empty());
    let ended = drives.rocksdb.take().map_or(Ok(()), |rocksdb| rocksdb.end(has_failed));
    let mut report = ran.map_err(|error| experiment.failed(error))?;
    ended?;
    report.figures.skipped.extend(skipped);
    experiment.finish(report)
}

/// The drives of this machine, or models.
struct Drives<'a> {
    args: &'a HseArgs,
    options: HseOptions,
    rocksdb: Option<Rocksdb>,
}

impl Drives<'_> {
    /// The specifications of an arm's drives: capacity first.
    fn specs(&self, arm: Arm) -> Vec<(MediaClass, Spec)> {
        let (capacity, staging) = if self.is_real() {
            (self.args.capacity.clone(), self.args.staging.clone())
        } else {
            let bytes = self.options.capacity_bytes(CAPACITY_DRIVES);
            let model = |number: u64| {
                // The second namespace of the first drive holds the manifest.
                model(CAPACITY, 2 * bytes, &format!("&drive=capacity-{number}&namespaces=2"))
            };
            let staging = model_of_staging(self.options.staging_bytes());
            ((1..=CAPACITY_DRIVES).map(model).collect(), Some(staging))
        };
        let staging = staging.filter(|_| arm == Arm::Staged);
        let capacity = capacity.into_iter().map(|spec| (MediaClass::Capacity, spec));
        capacity.chain(staging.map(|spec| (MediaClass::Staging, spec))).collect()
    }

    fn manifest(&self, stack: &Stack, time: Time) -> Result<Arc<dyn Device>, LabError> {
        if self.is_real() {
            let lba = 4096;
            return Ok(Arc::new(MemoryDevice::new("the manifest, in memory", MANIFEST_BYTES, lba)));
        }
        let spec: Spec = "ssd:?drive=capacity-1&nsid=2".parse().expect("a specification");
        Ok(open(stack, &spec.with_time(time))?.device)
    }
}

impl Machine for Drives<'_> {
    fn open(&mut self, arm: Arm, dilation: u32) -> Result<Opened, LabError> {
        let (time, clock) = match dilation {
            1 => (Time::Real, Clock::real()),
            factor => (Time::Dilated(factor), Clock::dilated(factor)),
        };
        // Drives in memory live as long as this: each arm has new ones.
        let stack = Stack::new();
        let mut remarks = Vec::new();
        let mut drives = Vec::new();
        for (class, spec) in self.specs(arm) {
            let opened = open(&stack, &spec.clone().with_time(time))?;
            for remark in opened.remarks() {
                if !remarks.contains(&remark) {
                    remarks.push(remark);
                }
            }
            let OpenedDevice { device, model } = opened;
            if self.is_real() {
                esker_lab::erase(&spec.to_string(), &*device)?;
            }
            let rates = model.as_ref().and_then(|one| one.profile.as_ref()).and_then(Rates::of);
            let ssd = model.and_then(|model| model.ssd);
            drives.push(ArmDrive { class, name: spec.to_string(), device, model: ssd, rates });
        }
        Ok(Opened { clock, manifest: self.manifest(&stack, time)?, drives, remarks })
    }

    fn start_peer(&mut self, setup: &PeerSetup<'_>) -> Result<Box<dyn Peer>, LabError> {
        let rocksdb = self.rocksdb.as_mut();
        rocksdb.ok_or_else(|| LabError::Invalid("RocksDB is not there".to_owned()))?.start(setup)
    }

    fn is_real(&self) -> bool {
        !self.args.capacity.is_empty()
    }

    fn processors(&self) -> Option<Processors> {
        let (busy_ns, all_ns) = host::processors_ns()?;
        Some(Processors { busy_ns, all_ns })
    }

    fn samples(&self) -> fn() -> Vec<Sample> {
        host::samples
    }
}

fn model(profile: &str, bytes: u64, more: &str) -> Spec {
    let text = format!("ssd:{profile}?capacity={bytes}{more}");
    text.parse().expect("a specification")
}

/// A quarter of a drive: the source's was as good as empty, too.
fn model_of_staging(bytes: u64) -> Spec {
    model(STAGING, 4 * bytes, "&drive=staging&namespaces=4")
}

fn open(stack: &Stack, spec: &Spec) -> Result<OpenedDevice, LabError> {
    stack.open(spec, Create::Never).map_err(|error| LabError::Invalid(format!("{spec}: {error}")))
}
