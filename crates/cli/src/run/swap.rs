//! Where pages go: a device that is there, or a file without a name.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use esker_base::units::human_bytes;
use esker_device::{Create, Device, FileDevice, FileOptions};
use esker_stack::{Spec, Stack};

use crate::failure::{Failure, Result};

/// Where files without a name lie: on a disk, unlike /tmp on many systems.
const PLACE: &str = "/var/tmp";

/// The least that a file without a name holds, and a page, in bytes.
const LEAST: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Opens the device of `--swap`. Gives remarks too, for the user.
pub(super) fn open(stack: &Stack, text: &str) -> Result<(Arc<dyn Device>, Vec<String>)> {
    if let Some(size) = text.strip_prefix("temp:") {
        return temporary(size);
    }
    let spec = text.parse::<Spec>()?;
    let device = stack.open(&spec, Create::Never)?.device;
    let mut remarks = device.remarks();
    for path in spec.paths() {
        let file = File::open(path).ok();
        remarks.extend(file.and_then(|file| shortage(&file, path)));
    }
    Ok((device, remarks))
}

/// That the file system has no room for all of a file with holes.
fn shortage(file: &File, path: &Path) -> Option<String> {
    let known = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let missing = known.len().saturating_sub(known.blocks() * 512);
    let place = rustix::fs::fstatvfs(file).ok()?;
    let free = place.f_bavail.saturating_mul(place.f_frsize);
    (missing > free).then(|| {
        format!(
            "{}: {} of it are not written yet, and its file system has room for {}. When that is full, pages stay in \
             memory beyond the budget, or the program waits: free some space, or use a smaller file",
            path.display(),
            human_bytes(missing),
            human_bytes(free)
        )
    })
}

fn temporary(size: &str) -> Result<(Arc<dyn Device>, Vec<String>)> {
    let wrong = |why| Failure::usage(format!("--swap temp:{size}: {why}"));
    let bytes = esker_base::units::parse_bytes(size).map_err(wrong)?;
    if bytes < LEAST || !bytes.is_multiple_of(PAGE) {
        return Err(wrong("give whole pages of 4 KiB, and 1 MiB or more".to_owned()));
    }
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
    let device = device.map_err(|error| Failure::new(error.kind(), error))?;
    let mut remarks = device.remarks();
    remarks.extend(shortage(&file, Path::new(PLACE)));
    Ok((Arc::new(device), remarks))
}
