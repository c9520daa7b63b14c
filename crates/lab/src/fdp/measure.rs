//! Runs one configuration until its write amplification is steady.

use super::configuration::{Configuration, InitialState};
use super::course::{Course, Measured};
use super::sink::{CountingDrive, Drive};
use crate::LabError;

/// A run tells its watcher of so large a share of it while stores are loaded.
const LOAD_STEP: f64 = 0.01;

/// Watcher of a run: it is told the share that is done, from 0 to 1 by the least that the run
/// takes; false ends it.
pub type OnShare<'a> = &'a mut dyn FnMut(f64) -> bool;

/// Runs a configuration on the drive that it describes.
///
/// # Errors
/// When its figures do not fit each other, a store has no room, or the watcher ends it.
pub fn measure(of: &Configuration, watch: OnShare<'_>) -> Result<Measured, LabError> {
    let mut drive = CountingDrive::new(&of.drive, of.namespaces()?, of.handles_each)?;
    measure_on(&mut drive, of, watch)
}

/// Runs a configuration's stores on another drive, in place of the one that the configuration
/// describes.
///
/// # Errors
/// As [`measure`], and the drive's.
pub fn measure_on(
    drive: &mut dyn Drive,
    of: &Configuration,
    watch: OnShare<'_>,
) -> Result<Measured, LabError> {
    if drive.namespaces() < of.stores.len() {
        return Err(LabError::Invalid(format!(
            "{} stores need as many namespaces; the drive has {}",
            of.stores.len(),
            drive.namespaces()
        )));
    }
    let capacity: u64 = (0..of.stores.len()).map(|index| drive.namespace(index).bytes()).sum();
    let mut writers = of.writers(drive)?;
    if of.initial == InitialState::Mapped {
        map_all(drive, of.stores.len())?;
    }
    let mut course = Course::new(drive.written()?, capacity, of.period());
    let mut heard = 0.0;
    writers.load(drive, &mut |drive| {
        let share = course.share_at(drive.host_bytes());
        if share < heard + LOAD_STEP {
            return Ok(());
        }
        heard = share;
        heed(watch, share)
    })?;
    look(&mut course, drive)?;
    while !course.is_over() {
        heed(watch, course.share())?;
        // Once at least: the drive's count may lag behind the writes that it was given.
        writers.turn(drive)?;
        while !course.is_due(drive.host_bytes()) {
            writers.turn(drive)?;
        }
        look(&mut course, drive)?;
    }
    Ok(course.measured())
}

fn heed(watch: OnShare<'_>, share: f64) -> Result<(), LabError> {
    if watch(share) { Ok(()) } else { Err(LabError::Interrupted) }
}

fn look(course: &mut Course, drive: &dyn Drive) -> Result<(), LabError> {
    let written = drive.written()?;
    course.check(written, drive.host_bytes())?;
    course.look(written);
    Ok(())
}

/// Writes every namespace once, from its first byte to its last.
fn map_all(drive: &mut dyn Drive, namespaces: usize) -> Result<(), LabError> {
    const STEP: u64 = 1 << 20;
    for index in 0..namespaces {
        let namespace = drive.namespace(index);
        let bytes = namespace.bytes();
        let mut at = 0;
        while at < bytes {
            let step = STEP.min(bytes - at);
            namespace.write(at, step, 0)?;
            at += step;
        }
    }
    Ok(())
}
