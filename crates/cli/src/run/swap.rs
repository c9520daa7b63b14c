//! Where pages go: a device that is there, or a file without a name.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use esker_device::{Create, Device, FileDevice, FileOptions};
use esker_stack::{Spec, Stack};

use crate::failure::{Failure, Result};

/// Where files without a name lie: on a disk, unlike /tmp on many systems.
const PLACE: &str = "/var/tmp";

/// Opens the device of `--swap`.
pub(super) fn open(stack: &Stack, text: &str) -> Result<Arc<dyn Device>> {
    if let Some(size) = text.strip_prefix("temp:") {
        return temporary(size);
    }
    let spec = text.parse::<Spec>()?;
    Ok(stack.open(&spec, Create::Never)?.device)
}

fn temporary(size: &str) -> Result<Arc<dyn Device>> {
    let wrong = |why| Failure::usage(format!("--swap temp:{size}: {why}"));
    let bytes = esker_base::units::parse_bytes(size).map_err(wrong)?;
    let failed = |error: std::io::Error| {
        Failure::file(Path::new(PLACE), &error, "name another device with --swap")
    };
    // Gone with the last process that has it open, however that ends.
    let file: File = tempfile::tempfile_in(PLACE).map_err(failed)?;
    file.set_len(bytes).map_err(failed)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let options = FileOptions {
        create: Create::Never,
        capacity_bytes: Some(bytes),
        fixed: true,
        ..FileOptions::default()
    };
    let device = FileDevice::open(path, &options);
    Ok(Arc::new(device.map_err(|error| Failure::new(error.kind(), error))?))
}
