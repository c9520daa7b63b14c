//! Runs one set of inputs on new devices.

mod device;
mod engine;
mod steady;

use super::inputs::{Inputs, Load};
use super::measured::MeasuredCase;
use super::surroundings::Surroundings;
use crate::LabError;

/// Runs it. `follow` is told each step, and ends the run with `false`.
///
/// # Errors
/// A device's, the engine's, or when `follow` ends it.
pub(super) fn run(
    inputs: &Inputs,
    surroundings: &Surroundings<'_>,
    follow: &mut dyn FnMut(&str) -> bool,
) -> Result<MeasuredCase, LabError> {
    match &inputs.load {
        Load::Engine(load) => engine::run(inputs, load, surroundings, follow),
        _ => device::run(inputs, follow),
    }
}
