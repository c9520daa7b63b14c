//! The stores on a device that the caller names: all runs, and their report.
//!
//! Invariants
//! 1. Nothing is erased before everything that can be refused has been.
//! 2. Runs follow one another, and each begins on a device all of which was discarded.

use super::jobs::{self, Job, Work};
pub use super::named::NamedDevice;
use super::options::FdpOptions;
use super::own::OwnStores;
use super::plan;
use super::report::{Chapter, FdpFigures, Run};
use crate::LabError;
use crate::study::Follow;

/// Runs stores on a device: those of `options`, or the four of the published experiment. Where they name no handles,
/// runs are those of 0, 1 and 2 for which the device has enough. Of the other options fill, records and seed matter.
///
/// # Errors
/// When options are out of range, the device is too small, has too few handles, cannot be discarded or does not tell
/// what it writes to its media; all of these before anything is erased. Then the device's, or when `follow` ends it.
pub(super) fn run(
    on: &NamedDevice,
    options: &FdpOptions,
    follow: &mut Follow<'_>,
) -> Result<FdpFigures, LabError> {
    on.check_device()?;
    let mut own = options.own.clone().unwrap_or_else(OwnStores::without_handles);
    let left_out = on.choose_handles(&mut own)?;
    let options = FdpOptions { drive_bytes: on.bytes(), own: Some(own.clone()), ..options.clone() };
    options.check_stores()?;
    let planned = plan::on_device(&options, &own);
    let first = planned.runs.first().map(|planned| &planned.configuration);
    first.map_or(Ok(()), |of| on.check_stores(of))?;
    let jobs: Vec<Job<'_>> = planned
        .runs
        .iter()
        .map(|planned| Job {
            name: planned.name.clone(),
            work: Work::OnDevice(on, &planned.configuration),
        })
        .collect();
    let mut outcomes = jobs::run(&jobs, 1, follow)?.into_iter();
    let runs = planned.runs.iter().zip(&mut outcomes).filter_map(|(planned, outcome)| {
        Some(Run {
            name: planned.name.clone(),
            assumptions: on.assumptions(&planned.configuration),
            measured: outcome?.measured(),
            published: planned.published.clone(),
        })
    });
    let runs = runs.collect();
    let notes = planned.notes.iter().map(|&note| note.to_owned());
    let notes = notes.chain(left_out).chain(on.remarks.iter().cloned()).collect();
    Ok(FdpFigures {
        stores: own.stores.len(),
        device: Some(on.name.clone()),
        chapters: vec![Chapter { name: planned.name.to_owned(), notes, runs, derived: Vec::new() }],
        worth: None,
    })
}
