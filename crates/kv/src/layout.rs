//! Where a KVDB lives: a directory with the manifest, and a file or block device for each class.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_base::{ErrorKind, Lba};
use esker_device::file::{Create, FileDevice, FileOptions};
use esker_device::{Device, DeviceError, Port};

use crate::MediaClass;
use crate::error::{KvError, Result};
use crate::manifest::{MANIFEST_BYTES, Manifest};
use crate::recover::Devices;

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
    /// when they are in it, so that it may be moved.
    pub(crate) fn classes(&self) -> Result<Vec<(MediaClass, String)>> {
        let mut classes =
            vec![(MediaClass::Capacity, known_as(MediaClass::Capacity, &self.capacity)?)];
        if let Some(staging) = &self.staging {
            classes.push((MediaClass::Staging, known_as(MediaClass::Staging, staging)?));
        }
        Ok(classes)
    }
}

/// The path by which the manifest knows a class.
pub(crate) fn known_as(class: MediaClass, path: &Option<PathBuf>) -> Result<String> {
    let Some(path) = path else {
        return Ok(format!("{class}.esker"));
    };
    let mut absolute = std::path::absolute(path).map_err(|error| file_error(path, &error))?;
    if absolute.is_dir() {
        absolute.push(format!("{class}.esker"));
    }
    absolute.into_os_string().into_string().map_err(|path| {
        KvError::Options(format!("{}: a class's path must be UTF-8", path.display()))
    })
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

/// Opens the device of a class that is to be made: a file that does not exist yet, or a block
/// device that holds nothing.
pub(crate) fn make_class(dir: &Path, path: &str) -> Result<Arc<dyn Device>> {
    let path = dir.join(path);
    let device = open_file(&path, Create::IfMissing, None)?;
    if !device.is_new() && device.len_bytes()? > 0 {
        let size = device.geometry().lba_size as usize;
        let first = Port::open(&device, 1)?.read(Lba(0), esker_base::AlignedBuf::zeroed(size))?;
        if first.iter().any(|&byte| byte != 0) {
            let why = "it holds data already; choose another path, or wipe it first if you can \
                       spare what is there";
            return Err(KvError::Exists { path, why: why.into() });
        }
    }
    Ok(Arc::new(device))
}

/// Makes the directory and the devices of a new KVDB.
pub(crate) fn make(dir: &Path, classes: &[(MediaClass, String)]) -> Result<Devices> {
    std::fs::create_dir_all(dir).map_err(|error| file_error(dir, &error))?;
    let manifest = dir.join(MANIFEST);
    if manifest.exists() && has_manifest(&manifest)? {
        let why = "there is a KVDB here already; open it, or choose another directory";
        return Err(KvError::Exists { path: dir.to_owned(), why: why.into() });
    }
    let find = |wanted: MediaClass| {
        let found = classes.iter().find(|(class, _)| *class == wanted);
        found.map(|(_, path)| make_class(dir, path)).transpose()
    };
    Ok(Devices {
        capacity: find(MediaClass::Capacity)?.expect("every layout has a capacity class"),
        staging: find(MediaClass::Staging)?,
        manifest: Arc::new(open_file(&manifest, Create::IfMissing, Some(MANIFEST_BYTES))?),
    })
}

fn has_manifest(path: &Path) -> Result<bool> {
    let device: Arc<dyn Device> = Arc::new(open_file(path, Create::Never, Some(MANIFEST_BYTES))?);
    Ok(Manifest::read(&device)?.is_some())
}

/// Opens the devices of the KVDB in `dir`.
pub(crate) fn open(dir: &Path) -> Result<Devices> {
    let not_here = |why: &str| KvError::NotAKvdb { path: dir.to_owned(), why: why.into() };
    let path = dir.join(MANIFEST);
    if !path.exists() {
        return Err(not_here("it has no file 'manifest.esker'; create one with `esker kv create`"));
    }
    let manifest: Arc<dyn Device> =
        Arc::new(open_file(&path, Create::Never, Some(MANIFEST_BYTES))?);
    let Some(state) = Manifest::read(&manifest)? else {
        return Err(not_here(
            "its manifest was never finished: creating it was interrupted; \
                             remove the directory and create it again",
        ));
    };
    let find = |class: MediaClass| -> Result<Option<Arc<dyn Device>>> {
        let Some(path) = state.classes.get(&class) else {
            return Ok(None);
        };
        Ok(Some(Arc::new(open_file(&dir.join(path), Create::Never, None)?)))
    };
    let capacity =
        find(MediaClass::Capacity)?.ok_or_else(|| not_here("it has no capacity class"))?;
    Ok(Devices { manifest, capacity, staging: find(MediaClass::Staging)? })
}
