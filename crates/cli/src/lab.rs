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

use esker_lab::LabError;
use esker_lab::compare::Comparison;
use esker_lab::fdp::{self, network};
use esker_lab::host_ssd::installed::InstalledOptions;
use esker_lab::host_ssd::{self, HostSsdOptions};

use crate::args::{CompareArgs, FdpArgs, HostSsdArgs, LabCommand, MemoryArgs, PooledArgs};
use crate::failure::{Failure, Result};
use crate::host;
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
    let experiment = Experiment::start("fdp", &args.every)?;
    let options = args.options()?;
    let mut follow = |progress: &fdp::Progress<'_>| {
        experiment.share(progress.share, (progress.done, progress.runs), progress.run)
    };
    if args.over_network {
        let mut report =
            network::run(&options, &mut follow).map_err(|error| experiment.failed(error))?;
        report.environment = experiment.environment();
        report.command = host::command_line();
        experiment.finish(&report.table(), &report.json(), None)?;
        return report.check().map_err(failed);
    }
    let report = match &args.device {
        None => fdp::run(&options, &mut follow),
        Some(spec) => {
            drives::agreed(args.erase)?;
            fdp::on_device::run(&drives::named(spec)?, &options, &mut follow)
        }
    };
    let mut report = report.map_err(|error| experiment.failed(error))?;
    report.environment = experiment.environment();
    report.command = host::command_line();
    experiment.finish(&report.table(), &report.json(), Some(&report.page()))
}

fn host_managed(args: &HostSsdArgs) -> Result {
    let experiment = Experiment::start("host-ssd", &args.every)?;
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
    let follow = |progress: &host_ssd::Progress<'_>| {
        experiment.step(progress.done, progress.count, progress.run)
    };
    let real = InstalledOptions {
        data_bytes: args.real_data / PAGES_OF_TABLE * PAGES_OF_TABLE,
        lookups: args.real_lookups,
        rounds: args.rounds,
        seed: args.every.seed,
    };
    let named = devices::open(&args.device)?;
    host_ssd::devices::check(&options, &named).map_err(failed)?;
    let machine = installed::Machine::new(args, real.clone())?;
    // First: a device that fails is said before models run for long.
    let found = host_ssd::devices::measure(&options, &named, follow);
    let found = found.map_err(|error| experiment.failed(error))?;
    drop(named);
    let report = host_ssd::run_beside(&options, !found.is_empty(), follow);
    let mut report = report.map_err(|error| experiment.failed(error))?;
    report.add_devices(&options, found);
    if let Some(mut machine) = machine {
        let found = host_ssd::installed::run(&real, &mut machine, follow);
        machine.bounds.end()?;
        match found {
            Err(LabError::Interrupted) => {}
            found => report.add_installed(found.map_err(failed)?),
        }
    }
    report.environment = experiment.environment();
    report.command = host::command_line();
    experiment.finish(&report.table(), &report.json(), Some(&report.page()))
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
    Experiment::writing(outputs)?.finish(&found.table(), &found.json(), Some(&found.page()))
}

fn pooled(args: &PooledArgs) -> Result {
    let experiment = Experiment::start("pooled", &args.every)?;
    let options = args.options();
    let follow = |progress: &esker_lab::pooled::Progress<'_>| {
        experiment.step(progress.done, progress.count, progress.run)
    };
    options.check().map_err(failed)?;
    let mut machine = pooled::Machine::new(args, options.clone())?;
    let ran = esker_lab::pooled::run(&options, &mut machine, follow);
    experiment.clear();
    let ended = machine.end(ran.is_err());
    let mut report = ran.map_err(|error| experiment.failed(error))?;
    ended?;
    report.environment = experiment.environment();
    report.command = host::command_line();
    experiment.finish(&report.table(), &report.json(), Some(&report.page()))
}

fn paged(args: &MemoryArgs) -> Result {
    let experiment = Experiment::start("memory", &args.every)?;
    let options = args.options();
    let follow = |progress: &esker_lab::memory::Progress<'_>| {
        experiment.step(progress.done, progress.count, progress.run)
    };
    options.check().map_err(failed)?;
    let mut machine = memory::Machine::new(args)?;
    let ran = esker_lab::memory::run(&options, &mut machine, follow);
    experiment.clear();
    let ended = machine.end();
    let mut report = ran.map_err(|error| experiment.failed(error))?;
    ended?;
    report.environment = experiment.environment();
    report.command = host::command_line();
    experiment.finish(&report.table(), &report.json(), Some(&report.page()))
}
