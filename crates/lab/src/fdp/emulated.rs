//! A drive in software that stores the data of the stores, made like the one that counts. Both lead to the same
//! factors, to the last digit.
//!
//! Invariant: data placement is always enabled, so that the drive's log tells the bytes that hosts wrote. Stores
//! without placement share one handle.

use std::sync::Arc;

use esker_device::Device;
use esker_device::fdp::Isolation;
use esker_flash::drive::Configuration as Placement;
use esker_flash::{Pace, Parameters, Profile, Ssd};

use super::configuration::Configuration;
use super::sink::DriveModel;
use crate::LabError;

/// A drive whose handles are divided among groups of namespaces.
pub(super) struct EmulatedDrive {
    ssd: Ssd,
    handles_each: u16,
}

impl EmulatedDrive {
    /// A drive of these parameters, with handles for so many groups of namespaces.
    pub(super) fn new(
        parameters: Parameters,
        groups: u16,
        handles_each: u16,
    ) -> Result<EmulatedDrive, LabError> {
        let handles = (groups * handles_each).max(1);
        let isolation = vec![Isolation::Initially; usize::from(handles)];
        let parameters = Parameters {
            // As in `FtlOptions::reserve_units`: one for each handle, one for copies, one erased.
            units: parameters.units + u32::from(handles) + 2,
            configurations: vec![Placement { groups: 1, handles: isolation }],
            wear_spread: None,
            ..parameters
        };
        let ssd = Ssd::new("ssd", &parameters, Pace::untimed())?;
        ssd.enable_placement(Some(0))?;
        Ok(EmulatedDrive { ssd, handles_each })
    }

    /// A new namespace of a group.
    pub(super) fn namespace(&self, group: u16, bytes: u64) -> Result<Arc<dyn Device>, LabError> {
        let own: Vec<u16> = match self.handles_each {
            0 => vec![0],
            each => (group * each..(group + 1) * each).collect(),
        };
        let id = self.ssd.create_namespace(bytes, Some(&own))?;
        Ok(Arc::new(self.ssd.namespace(id)?))
    }
}

/// A drive as a model describes it, and a namespace for each store.
pub(super) fn namespaces(of: &Configuration) -> Result<Vec<Arc<dyn Device>>, LabError> {
    let stores = of.namespaces()?;
    let drive = EmulatedDrive::new(parameters(&of.drive)?, stores, of.handles_each)?;
    let each = of.drive.bytes / u64::from(stores.max(1));
    (0..stores).map(|store| drive.namespace(store, each)).collect()
}

/// The same drive as one namespace, which has all handles.
#[cfg(test)]
pub(super) fn whole(of: &Configuration) -> Result<Arc<dyn Device>, LabError> {
    let handles = u16::try_from(of.stores.len()).unwrap_or(u16::MAX) * of.handles_each;
    EmulatedDrive::new(parameters(&of.drive)?, 1, handles)?.namespace(0, of.drive.bytes)
}

fn parameters(model: &DriveModel) -> Result<Parameters, LabError> {
    let unit_size = model.unit_bytes();
    Ok(Parameters {
        capacity: model.bytes,
        page_size: model.page_bytes,
        nand_page_size: model.page_bytes,
        program_size: model.page_bytes,
        unit_size,
        units: units_in_use(model.bytes, model.over_provisioning, unit_size),
        cleaning: model.cleaning,
        frontier: model.frontier,
        pace: model.pace,
        ..base()?
    })
}

/// A profile for all that a factor does not depend on.
pub(super) fn base() -> Result<Parameters, LabError> {
    let profile = Profile::find("micron-7450")?;
    let why = || LabError::Invalid("the profile is no solid-state drive".into());
    profile.ssd().cloned().ok_or_else(why)
}

/// Units that hold the bytes that the host can address, and the spare space.
pub(super) fn units_in_use(bytes: u64, over_provisioning: f64, unit_size: u64) -> u32 {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    #[allow(clippy::cast_sign_loss)] // some thousands
    let units = (bytes as f64 * (1.0 + over_provisioning) / unit_size as f64).round() as u32;
    units
}
