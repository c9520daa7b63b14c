//! Where a KVDB lives: a directory with the manifest, and a device for each class: a file, a block
//! device, or one that the caller opened and knows by a name of its own.
//!
//! The manifest has a text for each class. It is an absolute path, or that of a file in the directory:
//! the name that it has for the class, or the part that follows `./`. Anything else is a caller's name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_base::{ErrorKind, files};
use esker_device::file::{Create, FileDevice, FileOptions};
use esker_device::{Device, DeviceError, Occupant, occupant};

use crate::manifest::state::State;
use crate::manifest::writer::{MANIFEST_BYTES, Manifest};
use crate::recover::devices::{Devices, Remains};
use crate::recover::size::check_length;
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};

/// Where the classes of a new KVDB are to live. A path is a raw block device, a directory (the
/// class becomes a file in it) or a file that does not exist yet. `None` is a file in the KVDB's
/// own directory.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Whether there is a staging class, and where.
    pub staging: Option<Option<PathBuf>>,
    /// Where the capacity class is.
    pub capacity: Option<PathBuf>,
}

impl Layout {
    /// A capacity class only, as a file in the KVDB's directory.
    #[must_use]
    pub fn capacity_only() -> Layout {
        Layout::default()
    }

    /// Both classes as files in the KVDB's directory.
    #[must_use]
    pub fn with_staging() -> Layout {
        Layout { staging: Some(None), capacity: None }
    }

    /// The classes and the paths that the manifest will know them by: relative to the directory
    /// when they are in it, so that it may be moved. Devices that are `given` stand in for those that
    /// the layout names.
    pub(crate) fn classes(
        &self,
        dir: &Path,
        given: &BTreeMap<MediaClass, NamedDevice>,
    ) -> Result<Vec<(MediaClass, String)>> {
        let known_as = |class, path| -> Result<_> { Ok((class, known_as(dir, class, path)?)) };
        let mut classes = vec![known_as(MediaClass::Capacity, &self.capacity)?];
        if let Some(staging) = &self.staging {
            classes.push(known_as(MediaClass::Staging, staging)?);
        }
        for (class, named) in given {
            named.check()?;
            classes.retain(|(known, _)| known != class);
            classes.push((*class, named.name.clone()));
        }
        Ok(classes)
    }
}

/// A device that the caller opened for a class of a new KVDB.
#[derive(Clone)]
pub struct NamedDevice {
    /// How the caller will find it again ([`crate::api::kvdb::Kvdb::device_names`]); no path.
    pub name: String,
    /// The device.
    pub device: Arc<dyn Device>,
}

impl NamedDevice {
    /// Refuses names that would be taken for paths.
    pub(crate) fn check(&self) -> Result<()> {
        if is_path(&self.name) || self.name.is_empty() {
            let why = format!("'{}' is a path: a device is named otherwise", self.name);
            return Err(KvError::Options(why));
        }
        let (size, most) = (self.name.len(), NAME_MAX);
        if size > most {
            let why = format!("a device's name has {size} bytes, and may have {most}");
            return Err(KvError::Options(why));
        }
        Ok(())
    }
}

/// The longest name of a device, in bytes: as long as a path.
const NAME_MAX: usize = 4096;

/// Whether the manifest means a path.
fn is_path(known_as: &str) -> bool {
    let is_below = known_as.starts_with("./") || is_file_name(Path::new(known_as));
    known_as.starts_with('/') || is_below
}

/// Whether it is the file of a class in the KVDB's own directory.
fn is_file_name(path: &Path) -> bool {
    MediaClass::ALL.iter().any(|class| path == Path::new(&file_name(*class)))
}

/// The file of a class in the KVDB's own directory.
fn file_name(class: MediaClass) -> String {
    format!("{class}.esker")
}

/// The path by which the manifest of the KVDB in `dir` knows a class.
pub(crate) fn known_as(dir: &Path, class: MediaClass, path: &Option<PathBuf>) -> Result<String> {
    let Some(path) = path else {
        return Ok(file_name(class));
    };
    let mut absolute = std::path::absolute(path).map_err(|error| file_error(path, &error))?;
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
fn place_inside(dir: &Path, file: &Path) -> Option<PathBuf> {
    let parent = resolved(file.parent()?)?;
    Some(parent.strip_prefix(resolved(dir)?).ok()?.join(file.file_name()?))
}

/// A path without links, as far as it is there.
fn resolved(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let rest = || Some(resolved(path.parent()?)?.join(path.file_name()?));
    path.canonicalize().ok().or_else(rest)
}

fn file_error(path: &Path, error: &std::io::Error) -> KvError {
    let (path, kind) = (path.to_owned(), ErrorKind::from(error));
    KvError::File { path, kind, message: error.to_string() }
}

const MANIFEST: &str = "manifest.esker";

fn open_file(
    path: &Path,
    create: Create,
    capacity_bytes: Option<u64>,
) -> Result<FileDevice, DeviceError> {
    FileDevice::open(path, &FileOptions { create, capacity_bytes, ..FileOptions::default() })
}

/// Opens the file of a manifest that is there.
fn open_existing(path: &Path, read_only: bool) -> Result<Arc<dyn Device>, DeviceError> {
    let (create, capacity_bytes) = (Create::Never, Some(MANIFEST_BYTES));
    let options = FileOptions { create, capacity_bytes, read_only, ..FileOptions::default() };
    Ok(Arc::new(FileDevice::open(path, &options)?))
}

/// Opens the device of a class that is to be made: a file that does not exist yet, or a block
/// device that holds nothing.
pub(crate) fn make_class(dir: &Path, path: &str) -> Result<Arc<dyn Device>> {
    let path = dir.join(path);
    let device = open_file(&path, Create::IfMissing, None)?;
    if !device.is_new() && device.len_bytes()? > 0 {
        check_blank(&device, &path)?;
    }
    Ok(Arc::new(device))
}

/// Removes the file of a class that has ended, if it is in the KVDB's own directory.
pub(crate) fn remove_own(dir: &Path, known_as: &str) -> Result<()> {
    // By the path: it may be an absolute one.
    let path = dir.join(known_as);
    if !is_path(known_as) || place_inside(dir, &path).is_none() {
        return Ok(());
    }
    std::fs::remove_file(&path).map_err(|error| file_error(&path, &error))
}

/// Refuses a device that is someone's.
pub(crate) fn check_blank(device: &dyn Device, path: &Path) -> Result<()> {
    let Some(Occupant { what, offset }) = occupant(device)? else {
        return Ok(());
    };
    let why = format!(
        "it holds {what} already, at byte {offset}; choose another path, or, if you can spare what is there, \
         remove the file or zero the first 128 KiB of the device (`blkdiscard -z -l 131072`)"
    );
    Err(KvError::Exists { path: path.to_owned(), why })
}

/// Makes the directory and the devices of a new KVDB, but for those that are `given`.
pub(crate) fn make(
    dir: &Path,
    classes: &[(MediaClass, String)],
    given: &BTreeMap<MediaClass, NamedDevice>,
) -> Result<Devices> {
    files::create_dir_all(dir).map_err(|error| file_error(dir, &error))?;
    let manifest = dir.join(MANIFEST);
    if manifest.exists() && has_manifest(&manifest)? {
        let why = "there is a KVDB here already; open it, or choose another directory";
        return Err(KvError::Exists { path: dir.to_owned(), why: why.into() });
    }
    let find = |wanted: MediaClass| -> Result<Option<Arc<dyn Device>>> {
        if let Some(NamedDevice { name, device }) = given.get(&wanted) {
            check_blank(&**device, Path::new(name))?;
            return Ok(Some(device.clone()));
        }
        let found = classes.iter().find(|(class, _)| *class == wanted);
        found.map(|(_, path)| make_class(dir, path)).transpose()
    };
    Ok(Devices {
        capacity: find(MediaClass::Capacity)?.expect("every layout has a capacity class"),
        staging: find(MediaClass::Staging)?,
        manifest: Arc::new(open_file(&manifest, Create::IfMissing, Some(MANIFEST_BYTES))?),
    })
}

/// The files that [`make`] would make: the manifest first.
pub(crate) fn new_files(dir: &Path, classes: &[(MediaClass, String)]) -> Vec<PathBuf> {
    let classes = classes.iter().filter(|(_, path)| is_path(path)).map(|(_, path)| &path[..]);
    let files = [MANIFEST].into_iter().chain(classes).map(|path| dir.join(path));
    files.filter(|path| !path.exists()).collect()
}

/// Refuses devices of a KVDB that is there.
pub(crate) fn check_without_kvdb(devices: &Devices) -> Result<()> {
    if Manifest::read(&devices.manifest)?.is_none() {
        return Ok(());
    }
    let path = devices.manifest.name().into();
    let why = "there is a KVDB here already; open it, or choose other devices".into();
    Err(KvError::Exists { path, why })
}

fn has_manifest(path: &Path) -> Result<bool> {
    Ok(Manifest::read(&open_existing(path, true)?)?.is_some())
}

/// The names of the devices of the KVDB in `dir` that are no files.
pub(crate) fn device_names(dir: &Path) -> Result<BTreeMap<MediaClass, String>> {
    let (_, state) = open_manifest(dir, true)?;
    Ok(state.classes.into_iter().filter(|(_, known_as)| !is_path(known_as)).collect())
}

/// Opens the devices of the KVDB in `dir`, but for those that are `given`.
pub(crate) fn open(
    dir: &Path,
    given: &BTreeMap<MediaClass, Arc<dyn Device>>,
    read_only: bool,
) -> Result<Devices> {
    let (manifest, state) = open_manifest(dir, read_only)?;
    let find = |class: MediaClass| -> Result<Option<Arc<dyn Device>>> {
        let Some(known_as) = state.classes.get(&class) else {
            return Ok(None);
        };
        if !is_path(known_as) {
            let device = given.get(&class).cloned();
            return device.map(Some).ok_or_else(|| not_given(dir, class, known_as));
        }
        let options = FileOptions { create: Create::Never, read_only, ..FileOptions::default() };
        let device = FileDevice::open(dir.join(known_as), &options)?;
        check_length(&state, class, &device, device.len_bytes()?)?;
        Ok(Some(Arc::new(device)))
    };
    let capacity = find(MediaClass::Capacity)?.ok_or_else(|| KvError::NotAKvdb {
        path: dir.to_owned(),
        why: "it has no capacity class".into(),
    })?;
    Ok(Devices { manifest, capacity, staging: find(MediaClass::Staging)? })
}

fn not_given(dir: &Path, class: MediaClass, known_as: &str) -> KvError {
    let dir = dir.display();
    KvError::Options(format!(
        "{dir}: its {class} class is on the device '{known_as}', which is no file: whoever opens the KVDB \
         has to bring it"
    ))
}

/// Opens the devices that remain of the KVDB in `dir`, but for those that are `given`. Where the manifest does not
/// say where a class lies, it may be a file in the directory; where it does, it must be there.
pub(crate) fn remains(
    dir: &Path,
    given: &BTreeMap<MediaClass, Arc<dyn Device>>,
) -> Result<Remains> {
    let manifest = dir.join(MANIFEST);
    let manifest = manifest.exists().then(|| open_existing(&manifest, true)).transpose()?;
    let survey = manifest.clone().map(Manifest::survey).transpose()?.unwrap_or_default();
    let is_whole = survey.damage.is_none() && survey.state.is_some();
    let known = survey.state.map(|state| state.classes).unwrap_or_default();
    let mut classes = BTreeMap::new();
    for class in MediaClass::ALL {
        if let Some(device) = given.get(&class) {
            classes.insert(class, (device.clone(), u64::MAX));
            continue;
        }
        // A class that was removed may have left its file.
        let file = (!is_whole).then(|| file_name(class));
        let Some(known_as) = known.get(&class).or(file.as_ref()) else { continue };
        if !is_path(known_as) {
            return Err(not_given(dir, class, known_as));
        }
        let options =
            FileOptions { create: Create::Never, read_only: true, ..FileOptions::default() };
        let device = match FileDevice::open(dir.join(known_as), &options) {
            Err(error) if error.kind() == ErrorKind::NotFound && !known.contains_key(&class) => {
                continue;
            }
            opened => opened?,
        };
        let bytes = device.len_bytes()?;
        classes.insert(class, (Arc::new(device) as Arc<dyn Device>, bytes));
    }
    if manifest.is_none() && classes.is_empty() {
        let (path, why) = (dir.to_owned(), "nothing of one is left".to_owned());
        return Err(KvError::NotAKvdb { path, why });
    }
    Ok(Remains { manifest, classes, directory: Some(dir.to_owned()) })
}

/// The manifest of the KVDB in `dir`, and its content.
fn open_manifest(dir: &Path, read_only: bool) -> Result<(Arc<dyn Device>, State)> {
    let not_here = |why: &str| KvError::NotAKvdb { path: dir.to_owned(), why: why.into() };
    let path = dir.join(MANIFEST);
    if !path.exists() {
        let has_class = MediaClass::ALL.iter().any(|class| dir.join(file_name(*class)).exists());
        return Err(not_here(if has_class {
            "its file 'manifest.esker' is gone; `esker kv repair` salvages what its classes hold"
        } else {
            "it has no file 'manifest.esker'; create one with `esker kv create`"
        }));
    }
    let manifest = open_existing(&path, read_only)?;
    let state = Manifest::read(&manifest)?.ok_or_else(|| {
        not_here(
            "its manifest holds no whole record. Creating it, or a backup or a repair to it, was \
             interrupted: then remove the directory and begin again. Or it was damaged: `esker kv \
             repair` finds out what its media hold",
        )
    })?;
    Ok((manifest, state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kvdb::Kvdb;
    use crate::recover::open;
    use crate::types::options::Options;
    use crate::types::policy::Policy;

    const CLASS: MediaClass = MediaClass::Staging;

    fn staging_of(dir: &Path) -> String {
        open_manifest(dir, true).unwrap().1.classes[&CLASS].clone()
    }

    fn check(dir: &Path) {
        let db = Kvdb::open(dir, Options::default()).unwrap();
        assert_eq!(db.kvs("k").unwrap().get(b"key").unwrap().unwrap(), b"value");
    }

    #[test]
    fn a_class_in_the_directory_moves_with_it_and_its_file_goes_with_it() {
        for (path, known_as) in [
            ("e", "staging.esker"),
            ("e/staging.esker", "staging.esker"),
            ("e/../link/./staging.esker", "staging.esker"),
            ("e/capacity.esker", "capacity.esker"),
            ("link/fast", "./fast"),
            ("e/below", "./below/staging.esker"),
        ] {
            for is_added in [false, true] {
                let scratch = tempfile::tempdir().unwrap();
                let (dir, moved) = (scratch.path().join("e"), scratch.path().join("moved"));
                let path = scratch.path().join(path);
                if is_added || path != dir {
                    std::fs::create_dir_all(dir.join("below")).unwrap();
                }
                std::os::unix::fs::symlink(&dir, scratch.path().join("link")).unwrap();
                let capacity = Some(scratch.path().join("capacity"));
                let staging = (!is_added).then(|| Some(path.clone()));
                let layout = Layout { staging, capacity };
                let db = Kvdb::create(&dir, &layout, Options::default()).unwrap();
                if is_added {
                    db.add_staging(Some(path.clone())).unwrap();
                }
                db.create_kvs("k", Policy::default()).unwrap().put(b"key", b"value").unwrap();
                db.close().unwrap();
                assert_eq!(staging_of(&dir), known_as);
                assert!(dir.join(known_as).exists());
                std::fs::rename(&dir, &moved).unwrap();
                check(&moved);
                let db = Kvdb::open(&moved, Options::default()).unwrap();
                db.remove_staging().unwrap();
                assert!(!moved.join(known_as).exists(), "{known_as} stayed");
                drop(db);
                check(&moved);
            }
        }
    }

    #[test]
    fn a_class_elsewhere_is_known_by_its_path_and_its_file_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("e");
        let path = scratch.path().join("e-staging");
        let layout = Layout { staging: Some(Some(path.clone())), capacity: None };
        let db = Kvdb::create(&dir, &layout, Options::default()).unwrap();
        db.create_kvs("k", Policy::default()).unwrap().put(b"key", b"value").unwrap();
        db.close().unwrap();
        assert_eq!(Path::new(&staging_of(&dir)), path);
        std::fs::rename(&dir, scratch.path().join("moved")).unwrap();
        let dir = scratch.path().join("moved");
        check(&dir);
        Kvdb::open(&dir, Options::default()).unwrap().remove_staging().unwrap();
        assert!(path.exists());
    }

    /// As manifests of former builds have it.
    #[test]
    fn a_class_in_the_directory_may_be_known_by_an_absolute_path() {
        let scratch = tempfile::tempdir().unwrap();
        let (dir, options) = (scratch.path().join("e"), Options::default());
        let path = dir.join("staging.esker");
        let mut classes = Layout::with_staging().classes(&dir, &BTreeMap::new()).unwrap();
        classes.last_mut().unwrap().1 = path.to_str().unwrap().to_owned();
        let devices = make(&dir, &classes, &BTreeMap::new()).unwrap();
        open::create(&devices, &classes, &options).unwrap();
        drop(devices);
        let db = Kvdb::open(&dir, options.clone()).unwrap();
        db.create_kvs("k", Policy::default()).unwrap().put(b"key", b"value").unwrap();
        db.close().unwrap();
        assert_eq!(Path::new(&staging_of(&dir)), path);
        check(&dir);
        Kvdb::open(&dir, options).unwrap().remove_staging().unwrap();
        assert!(!path.exists());
        check(&dir);
    }
}
