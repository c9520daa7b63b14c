//! How the manifest of a KVDB in a directory knows the places of its classes.

use std::path::{Path, PathBuf};

use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};

/// Refuses names of devices that would be taken for paths.
pub(super) fn check_name(name: &str) -> Result<()> {
    if is_path(name) || name.is_empty() {
        let why = format!("'{name}' is a path: a device is named otherwise");
        return Err(KvError::Options(why));
    }
    let (size, most) = (name.len(), NAME_MAX);
    if size > most {
        let why = format!("a device's name has {size} bytes, and may have {most}");
        return Err(KvError::Options(why));
    }
    Ok(())
}

/// The longest name of a device, in bytes: as long as a path.
const NAME_MAX: usize = 4096;

/// Whether the manifest means a path.
pub(super) fn is_path(known_as: &str) -> bool {
    let is_below = known_as.starts_with("./") || is_file_name(Path::new(known_as));
    known_as.starts_with('/') || is_below
}

/// Whether it is the file of a class in the KVDB's own directory.
fn is_file_name(path: &Path) -> bool {
    MediaClass::ALL.iter().any(|class| path == Path::new(&file_name(*class)))
}

/// The file of a class in the KVDB's own directory.
pub(super) fn file_name(class: MediaClass) -> String {
    format!("{class}.esker")
}

/// Whether a file of a class lies in the KVDB's own directory.
pub(super) fn has_class(dir: &Path) -> bool {
    MediaClass::ALL.iter().any(|class| dir.join(file_name(*class)).exists())
}

/// The path by which the manifest of the KVDB in `dir` knows a class.
pub(super) fn known_as(dir: &Path, class: MediaClass, path: &Path) -> Result<String> {
    if path.as_os_str().is_empty() {
        return Err(KvError::Options(format!(
            "the path of the {class} class is empty: name a file, a directory or a block device"
        )));
    }
    let mut absolute = std::path::absolute(path).map_err(|error| KvError::of_file(path, &error))?;
    if absolute.is_dir() || resolved(&absolute) == resolved(dir) {
        absolute.push(file_name(class));
    }
    let known_as = match place_inside(dir, &absolute) {
        Some(inside) if is_file_name(&inside) => inside,
        Some(inside) => Path::new(".").join(inside),
        None => absolute,
    };
    known_as.into_os_string().into_string().map_err(|path| {
        KvError::Options(format!("{}: a class's path must be UTF-8", path.display()))
    })
}

/// Where a file lies in the KVDB's own directory, or below it; `None` when it lies elsewhere.
pub(super) fn place_inside(dir: &Path, file: &Path) -> Option<PathBuf> {
    let parent = resolved(file.parent()?)?;
    Some(parent.strip_prefix(resolved(dir)?).ok()?.join(file.file_name()?))
}

/// A path without links, as far as it is there.
pub(super) fn resolved(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let rest = || Some(resolved(path.parent()?)?.join(path.file_name()?));
    path.canonicalize().ok().or_else(rest)
}
