//! `esker lab flash-cache`: opens the devices on which workloads are replayed, if any are named.

use esker_base::Clock;
use esker_device::Create;
use esker_lab::flash_cache::real::{Real, RealDevice, RealOptions};
use esker_lab::flash_cache::{FlashCache, FlashCacheOptions};
use esker_stack::{Spec, Stack, Time};

use super::drives;
use super::experiment::Experiment;
use crate::args::FlashCacheArgs;
use crate::failure::{Failure, Result};
use crate::host;
use crate::pool::link::{self, stack};

/// Runs the study.
pub(crate) fn run(args: &FlashCacheArgs) -> Result {
    drives::agreed(args.erase || args.disk.is_none())?;
    let experiment = Experiment::start::<FlashCache>(&args.every)?;
    let options = FlashCacheOptions {
        traces: args.traces.clone(),
        transactions: if args.no_load { 0 } else { args.transactions },
        data_bytes: args.data,
        sizes_percent: args.sizes.clone(),
        most_requests: args.requests,
        threads: args.threads.unwrap_or_else(host::cores),
        seed: args.every.seed,
    };
    let stack = stack();
    let named = args.disk.as_ref().zip(args.flash.as_ref());
    let real = named.map(|(disk, flash)| devices(args, &stack, disk, flash)).transpose();
    let report = experiment.run::<FlashCache>(&options, &mut real?);
    let report = report.map_err(|error| experiment.failed(error))?;
    experiment.finish(report)
}

/// Opens both devices, which have to be there.
fn devices(args: &FlashCacheArgs, stack: &Stack, disk: &Spec, flash: &Spec) -> Result<Real> {
    if disk == flash && disk.is_lasting() {
        return Err(Failure::usage(format!(
            "{disk}: a device cannot be the cache of itself; name two"
        )));
    }
    let clock = clock(stack, disk, flash)?;
    let mut remarks = Vec::new();
    let mut open = |spec: &Spec| -> Result<RealDevice> {
        let opened = stack.open(spec, Create::Never)?;
        for remark in opened.remarks() {
            let remark = format!("{spec}: {remark}");
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        Ok(RealDevice { name: spec.to_string(), device: opened.device })
    };
    let (slow, fast) = (open(disk)?, open(flash)?);
    let options = RealOptions {
        percent: args.real_size,
        requests: usize::try_from(args.real_requests).unwrap_or(usize::MAX),
        depth: args.real_depth,
    };
    Ok(Real { options, disk: slow, flash: fast, clock, remarks })
}

/// The time of both devices, which `stack` has.
fn clock(stack: &Stack, disk: &Spec, flash: &Spec) -> Result<Clock> {
    // A model that takes no time goes with any time. A device that is no model takes real time.
    let of = |spec: &Spec| match spec.time() {
        Some(Time::None) => None,
        time => Some(time.unwrap_or(Time::Real)),
    };
    match (of(disk), of(flash)) {
        (Some(one), Some(other)) if one != other => Err(Failure::usage(format!(
            "{disk} lives in time={one}, and {flash} in time={other}: give both the same; devices that are no models \
             have time=real"
        ))),
        (None, _) => Ok(link::clock(stack, flash)),
        _ => Ok(link::clock(stack, disk)),
    }
}
