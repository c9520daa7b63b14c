//! Discards all of a device, so that an experiment begins on an empty one.

use esker_base::Lba;
use esker_base::units::human_bytes;
use esker_device::{Device, Port};

use crate::LabError;

/// Discards all of a device that an earlier run may have filled. Errors call it `name`.
///
/// # Errors
/// When the device has no queue pair to give, or refuses.
pub fn erase(name: &str, device: &dyn Device) -> Result<(), LabError> {
    let geometry = device.geometry();
    let all = human_bytes(geometry.capacity.bytes(geometry.lba_size));
    let mut port = Port::open(device, 1)?;
    port.discard(Lba(0), geometry.capacity).map_err(|error| {
        LabError::Invalid(format!("{name}: its {all} could not be discarded: {error}"))
    })
}
