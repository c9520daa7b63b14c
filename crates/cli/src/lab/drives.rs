//! Drives that the user names for an experiment, which erases them.

use esker_device::Create;
use esker_lab::fdp::on_device::NamedDevice;
use esker_stack::{Spec, Stack};

use crate::failure::{Failure, Result};
use crate::host;

/// Of the machine's memory, the part that tables may take: three quarters.
const MEMORY: (u64, u64) = (3, 4);

/// Makes sure that the user agrees to lose what is on the drives.
///
/// # Errors
/// The user does not.
pub(super) fn agreed(erase: bool) -> Result {
    if erase {
        return Ok(());
    }
    let why = "what is on the drives is lost; add --erase to agree";
    Err(Failure::usage(why))
}

/// Opens the one drive of an experiment, which must be there.
///
/// # Errors
/// As [`Stack::open`].
pub(super) fn named(spec: &Spec) -> Result<NamedDevice> {
    let opened = Stack::new().open(spec, Create::Never)?;
    let remarks = opened.remarks();
    let memory_bytes = host::memory_bytes().map_or(u64::MAX, |bytes| bytes / MEMORY.1 * MEMORY.0);
    Ok(NamedDevice { name: spec.to_string(), device: opened.device, remarks, memory_bytes })
}
