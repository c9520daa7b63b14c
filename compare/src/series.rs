//! Names of the series that every phase has of its process, beside the engine's own.

pub(crate) const CPU: &str = "CPU time";
pub(crate) const READ: &str = "read from the device";
pub(crate) const WRITTEN: &str = "written to the device";
pub(crate) const SYNCS: &str = "syncs";
/// Of Esker only, as the next two.
pub(crate) const GETS: &str = "gets";
pub(crate) const VALUES_READ: &str = "values read from a device";
pub(crate) const RECORD_ROOM: &str = "memory for records";
