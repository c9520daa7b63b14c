//! `esker lab`: the experiments.

mod all;
mod bounds;
mod cleaner;
mod devices;
mod drives;
mod experiment;
mod flash_cache;
mod groups;
mod hse;
mod installed;
mod memory;
mod plan;
mod pooled;
mod programs;
mod side;

use std::path::PathBuf;

use esker_lab::compare::Comparison;
use esker_lab::fdp::Fdp;
use esker_lab::fdp::network::OverNetwork;
use esker_lab::host_ssd::installed::{InstalledOptions, WayBench};
use esker_lab::host_ssd::{self, HostMachine, HostSsd, HostSsdOptions};
use esker_lab::memory::Memory;
use esker_lab::pooled::Pooled;

use crate::args::{CompareArgs, FdpArgs, HostSsdArgs, LabCommand, MemoryArgs, PooledArgs};
use crate::failure::{Failure, Result};
use crate::output::Outputs;
use experiment::{Experiment, failed};

/// The table of a study on this machine is a multiple of this.
const PAGES_OF_TABLE: u64 = 1 << 20;

/// Runs an experiment.
pub(crate) fn run(command: &LabCommand) -> Result {
    match command {
        LabCommand::Fdp(args) => placement(args),
        LabCommand::FlashCache(args) => flash_cache::run(args),
        LabCommand::Hse(args) => hse::run(args),
        LabCommand::All(args) => all::run(args),
        LabCommand::HostSsd(args) => host_managed(args),
        LabCommand::Compare(args) => compare(args),
        LabCommand::HostSsdSide(args) => side::run(args),
        LabCommand::Plan(args) => plan::run(args),
        LabCommand::Pooled(args) => pooled(args),
        LabCommand::Memory(args) => paged(args),
    }
}

fn placement(args: &FdpArgs) -> Result {
    let experiment = Experiment::start::<Fdp>(&args.every)?;
    let options = args.options()?;
    if args.over_network {
        let report = experiment.run::<OverNetwork>(&options, &mut ());
        let report = report.map_err(|error| experiment.failed(error))?;
        let figures = report.figures.clone();
        experiment.finish(report)?;
        return figures.check().map_err(failed);
    }
    let mut device = match &args.device {
        None => None,
        Some(spec) => {
            drives::agreed(args.erase)?;
            Some(drives::named(spec)?)
        }
    };
    let report = experiment.run::<Fdp>(&options, &mut device);
    let report = report.map_err(|error| experiment.failed(error))?;
    experiment.finish(report)
}

fn host_managed(args: &HostSsdArgs) -> Result {
    let experiment = Experiment::start::<HostSsd>(&args.every)?;
    let options = HostSsdOptions {
        drive_bytes: args.drive,
        reads: usize::try_from(args.reads).unwrap_or(usize::MAX),
        depths: args.depths.clone(),
        device_reads: args.device_reads,
        data_bytes: args.data,
        lookups: args.lookups,
        threads: args.threads.clone(),
        seed: args.every.seed,
        ..HostSsdOptions::default()
    };
    let real = InstalledOptions {
        data_bytes: args.real_data / PAGES_OF_TABLE * PAGES_OF_TABLE,
        lookups: args.real_lookups,
        rounds: args.rounds,
        seed: args.every.seed,
    };
    let devices = devices::open(&args.device)?;
    host_ssd::devices::check(&options, &devices).map_err(failed)?;
    let mut here = installed::Machine::new(args, real.clone())?;
    let installed = here.as_mut().map(|bench| (real, bench as &mut dyn WayBench));
    let ran = experiment.run::<HostSsd>(&options, &mut HostMachine { devices, installed });
    let ended = here.map_or(Ok(()), |machine| machine.bounds.end());
    let report = ran.map_err(|error| experiment.failed(error))?;
    ended?;
    experiment.finish(report)
}

fn compare(args: &CompareArgs) -> Result {
    let outputs = Outputs::prepare(args.json.as_ref(), args.report.as_ref())?;
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path)
            .map_err(|error| Failure::file(path, &error, "name what --json FILE has written"))
    };
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let found = Comparison::of(&before, &after, args.least)
        .map_err(|error| Failure::new(error.kind(), &error))?;
    let mut figures = found.json();
    figures["format"] = "esker-compare/1".into();
    Experiment::writing(outputs)?.write(&found.page(), &figures)
}

fn pooled(args: &PooledArgs) -> Result {
    let experiment = Experiment::start::<Pooled>(&args.every)?;
    let options = args.options();
    options.check().map_err(failed)?;
    let mut machine = pooled::Machine::new(args, options.clone())?;
    let ran = experiment.run::<Pooled>(&options, &mut machine);
    let ended = machine.end(ran.is_err());
    let report = ran.map_err(|error| experiment.failed(error))?;
    ended?;
    experiment.finish(report)
}

fn paged(args: &MemoryArgs) -> Result {
    let experiment = Experiment::start::<Memory>(&args.every)?;
    let options = args.options();
    options.check().map_err(failed)?;
    let mut machine = memory::Machine::new(args)?;
    let ran = experiment.run::<Memory>(&options, &mut machine);
    let ended = machine.end();
    let report = ran.map_err(|error| experiment.failed(error))?;
    ended?;
    experiment.finish(report)
}
