//! `esker lab host-ssd --device`: opens the named devices, to read only.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use esker_device::Create;
use esker_lab::device_load::Target;
use esker_lab::host_ssd::devices::ReadDevice;
use esker_stack::Spec;

use crate::failure::{Failure, Result};
use crate::pool::link::{clock, stack};

/// Bytes of a block that a file's metadata counts (stat(2)).
const BLOCK: u64 = 512;

/// Opens devices. None is made, and a file or a block device is opened to read only.
///
/// # Errors
/// A device that is not there or cannot be opened; one that would be written by being read.
pub(super) fn open(specs: &[Spec]) -> Result<Vec<ReadDevice>> {
    specs.iter().try_for_each(refuse_written)?;
    let stack = stack().read_only(true);
    let open = |spec: &Spec| {
        let opened = stack.open(spec, Create::Never)?;
        let remarks = opened.remarks();
        let model = opened.model.and_then(|model| model.ssd);
        Ok(ReadDevice {
            name: spec.to_string(),
            target: Target { device: opened.device, clock: clock(&stack, spec), model },
            stored_bytes: stored_bytes(spec),
            remarks,
        })
    };
    specs.iter().map(open).collect()
}

/// Refuses a device that is written by being opened or read.
fn refuse_written(spec: &Spec) -> Result {
    let refuse = |why: &str| Err(Failure::usage(format!("{spec}: {why}")));
    match spec {
        Spec::Cache(cache) if cache.flash.is_lasting() => refuse(
            "reading a cache writes to its flash device; name the origin or the flash device instead",
        ),
        Spec::Cache(cache) => refuse_written(&cache.origin),
        Spec::Volume(volume) if !volume.drives.is_empty() => refuse(
            "a pool that is opened here writes to its drives; let `esker pool serve` open it, and leave out drives=",
        ),
        Spec::Traced(traced) => refuse_written(&traced.inner),
        Spec::Stripe(stripe) => stripe.drives.iter().try_for_each(refuse_written),
        Spec::File(_) | Spec::Memory(_) | Spec::Null(_) | Spec::Ssd(_) | Spec::Disk(_) => Ok(()),
        Spec::Volume(_) | Spec::Remote(_) => Ok(()),
    }
}

/// Bytes that files store, without their holes; none where a device is not made of files alone.
fn stored_bytes(spec: &Spec) -> Option<u64> {
    match spec {
        Spec::File(file) => stored_in(&file.path),
        Spec::Traced(traced) => stored_bytes(&traced.inner),
        Spec::Stripe(stripe) => stripe.drives.iter().map(stored_bytes).sum(),
        _ => None,
    }
}

fn stored_in(path: &Path) -> Option<u64> {
    let metadata = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some(metadata.blocks().saturating_mul(BLOCK))
}
