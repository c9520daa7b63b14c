//! Messages about a device that is not there: which one, and the command that makes it.

use std::path::Path;

use esker_base::files;
use esker_cache::CacheError;

use crate::spec::{CacheSpec, DiskSpec, FileSpec, SsdSpec};
use crate::{Spec, StackError};

/// A size for an example.
const EXAMPLE: u64 = 8 << 30;

/// Refuses a cache of which a file or a block device is not there, before any is opened.
///
/// # Errors
/// `NotFound`, with the missing device and the remedy.
pub(crate) fn check(spec: &CacheSpec) -> Result<(), StackError> {
    let (origin, flash) = (gone(&spec.origin), gone(&spec.flash));
    let why = match (origin, flash) {
        (None, None) => return Ok(()),
        (Some(origin), None) => format!(
            "the origin {origin} is not there, and the cache is nothing without it; check the path, or bring the \
             origin back"
        ),
        (None, Some(flash)) => format!(
            "the flash device {flash} is not there, and it may hold the only copy of what was written; check the \
             path, or bring it back. If it is lost for good, make a new cache with {}; or use the origin alone: {} says what \
             is lost",
            create(spec),
            drop_dirty(spec)
        ),
        (Some(origin), Some(flash)) => format!(
            "neither the origin {origin} nor the flash device {flash} is there; check the paths, or make a new cache \
             with {}",
            create(spec)
        ),
    };
    Err(StackError::Incomplete { spec: Spec::Cache(Box::new(spec.clone())).to_string(), why })
}

/// There is no cache on a flash device that is there.
pub(crate) fn no_cache(spec: &CacheSpec, error: &CacheError) -> StackError {
    let CacheError::NoCache { device, found } = error else {
        return StackError::cache(Spec::Cache(Box::new(spec.clone())), error);
    };
    let why = format!(
        "{device}: there is no cache on it{}; check the path. If it held one in write-back mode and was wiped or replaced, \
         what was not written back is lost: writes of the last 30 s, or of a longer dirty-age, and of longer if the \
         origin was slow. The origin has the rest: check the file system on it, and use it alone with `esker attach {} \
         DIRECTORY`, or make a new cache with {}",
        found.map_or_else(String::new, |found| format!(", but {}", found.what)),
        quoted(&spec.origin),
        create(spec)
    );
    StackError::Incomplete { spec: Spec::Cache(Box::new(spec.clone())).to_string(), why }
}

/// The command that gives up what the origin does not have.
fn drop_dirty(spec: &CacheSpec) -> String {
    format!("`esker cache detach {} {} --dirty drop`", quoted(&spec.origin), quoted(&spec.flash))
}

/// The command that makes the image of a drive.
pub(crate) fn create_drive(spec: &SsdSpec, path: &Path) -> String {
    let drive = SsdSpec { image: None, time: None, nsid: None, drive: None, ..spec.clone() };
    let capacity = if spec.capacity.is_some() { "" } else { " --capacity 8GiB" };
    let drive = drive.profile.as_ref().map_or("micron-7450".to_owned(), |_| quoted(&drive));
    format!("esker ssd create {drive} {}{capacity}", quoted(path.display()))
}

/// The command that makes the image of a disk.
pub(crate) fn create_disk(spec: &DiskSpec, path: &Path) -> String {
    let disk = DiskSpec { image: None, time: None, ..spec.clone() };
    format!("esker ssd create {} {}", quoted(disk), quoted(path.display()))
}

/// The first file or block device that is not there.
fn gone(spec: &Spec) -> Option<String> {
    let gone = spec.paths().into_iter().find(|path| !path.exists())?;
    let device = if files::is_missing_device(gone) { " (no such device)" } else { "" };
    Some(format!("{}{device}", gone.display()))
}

/// The command that makes a cache; it makes files, too, whose size is said.
fn create(spec: &CacheSpec) -> String {
    let part = |spec: &Spec| match spec {
        Spec::File(file) if !file.path.exists() && !files::is_missing_device(&file.path) => {
            let capacity = file.capacity.or(Some(EXAMPLE));
            quoted(Spec::File(FileSpec { capacity, ..file.clone() }))
        }
        other => quoted(other),
    };
    format!("`esker cache create {} {}`", part(&spec.origin), part(&spec.flash))
}

/// A word of a shell.
fn quoted(word: impl ToString) -> String {
    format!("'{}'", word.to_string().replace('\'', "'\\''"))
}
