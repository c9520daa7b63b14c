//! Files that a command has made are removed again when it fails: a half-made drive or pool is of no use, and in the way.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_base::Clock;
use esker_stack::Spec;

use crate::failure::Result;

/// How long the kernel may take to let go of a file that this process had open.
const PATIENCE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(10);

/// Makes what these specifications say. When that fails, files are removed that were not there before.
pub(crate) fn or_nothing<'a, T>(
    specs: impl IntoIterator<Item = &'a Spec>,
    make: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let paths = specs.into_iter().flat_map(Spec::paths);
    let absent = paths.filter(|path| fs::symlink_metadata(path).is_err());
    let absent: Vec<PathBuf> = absent.map(Path::to_owned).collect();
    // Files that it has open are closed when it returns.
    let made = make();
    if made.is_err() {
        absent.iter().for_each(|path| remove(path));
    }
    made
}

/// Removes a file, unless another process has it: then that one has made it, or uses it.
fn remove(path: &Path) {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
        return;
    }
    let Ok(file) = File::open(path) else { return };
    let clock = Clock::real();
    let end = clock.now() + PATIENCE;
    while file.try_lock().is_err() {
        if clock.now() > end {
            return;
        }
        clock.sleep(STEP);
    }
    // A file that cannot be removed stays: the failure that was is the one to tell.
    let _ = fs::remove_file(path);
}
