//! Where a KVDB lives: a directory with the manifest, and a device for each class: a file, a block
//! device, or one that the caller opened and knows by a name of its own. Or it has no directory, and devices alone.
//!
//! The manifest has a text for each class. It is an absolute path, or that of a file in the directory:
//! the name that it has for the class, or the part that follows `./`. Anything else is a caller's name.

mod destroy;
mod names;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_base::{ErrorKind, files};
use esker_device::file::{Create, FileDevice, FileOptions};
use esker_device::{Device, DeviceError};

use self::names::{check_name, file_name, has_class, is_path, known_as, place_inside, resolved};
use crate::api::creation::{self, Creation, check_blank};
use crate::manifest::state::State;
use crate::manifest::writer::{MANIFEST_BYTES, Manifest};
use crate::recover::devices::{Devices, Remains};
use crate::recover::open::new_uuid;
use crate::recover::size::check_length;
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::options::Options;

/// The place of a class.
#[derive(Clone)]
#[non_exhaustive]
pub enum Medium {
    /// A file in the KVDB's own directory.
    InDir,
    /// A raw block device, a directory (the class becomes a file in it), or a file that does not exist yet.
    Path(PathBuf),
    /// A device that the caller opened.
    Device {
        /// How the caller will find it again ([`Location::device_names`]); no path, where the KVDB has a directory.
        name: String,
        /// The device.
        device: Arc<dyn Device>,
    },
}

impl Medium {
    /// A device under its own name.
    #[must_use]
    pub fn device(device: Arc<dyn Device>) -> Medium {
        Medium::Device { name: device.name().to_owned(), device }
    }
}

impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Medium::InDir => f.write_str("InDir"),
            Medium::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Medium::Device { name, .. } => f.debug_tuple("Device").field(name).finish(),
        }
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Medium::InDir => f.write_str("a file in its directory"),
            Medium::Path(path) => write!(f, "'{}'", path.display()),
            Medium::Device { name, .. } => write!(f, "the device '{name}'"),
        }
    }
}

/// The place of a KVDB: a directory, or devices of the caller's; and that of its classes.
///
/// A new KVDB in a directory has a capacity class in a file there, and no staging class, unless something else is said.
/// One that is there knows itself where its classes are: only devices that are no files have to be named again.
/// All else that is said has to agree with it.
///
/// ```
/// # use esker_kv::{Kvdb, KvError, Location, Medium};
/// # fn main() -> Result<(), KvError> {
/// # let scratch = tempfile::tempdir().unwrap();
/// # let dir = scratch.path().join("db");
/// let location = Location::dir(&dir).staging(Medium::InDir);
/// Kvdb::builder(location).create()?.close()?;
/// let db = Kvdb::builder(&dir).open()?; // it knows of its staging class
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Location {
    home: Home,
    staging: Option<Medium>,
    capacity: Option<Medium>,
}

/// The place of the manifest.
#[derive(Clone)]
enum Home {
    Dir(PathBuf),
    Device(Arc<dyn Device>),
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Home::Dir(dir) => dir.fmt(f),
            Home::Device(device) => device.name().fmt(f),
        }
    }
}

impl<P: AsRef<Path>> From<P> for Location {
    fn from(dir: P) -> Location {
        Location::dir(dir)
    }
}

impl From<&Location> for Location {
    fn from(location: &Location) -> Location {
        location.clone()
    }
}

impl Location {
    /// A directory, which has the manifest. It is made with a new KVDB.
    #[must_use]
    pub fn dir(dir: impl AsRef<Path>) -> Location {
        let home = Home::Dir(dir.as_ref().to_owned());
        Location { home, staging: None, capacity: None }
    }

    /// Devices of any kind, for the manifest (a few MiB) and for the capacity class. Whoever opens the KVDB brings all of
    /// them. [`Builder::create`](crate::Builder::create) asks that of the manifest alone whether it holds something: the
    /// others are overwritten.
    #[must_use]
    pub fn devices(manifest: Arc<dyn Device>, capacity: Arc<dyn Device>) -> Location {
        let capacity = Some(Medium::device(capacity));
        Location { home: Home::Device(manifest), staging: None, capacity }
    }

    /// The place of the staging class, which fast media are for.
    #[must_use]
    pub fn staging(self, medium: Medium) -> Location {
        Location { staging: Some(medium), ..self }
    }

    /// The place of the capacity class.
    #[must_use]
    pub fn capacity(self, medium: Medium) -> Location {
        Location { capacity: Some(medium), ..self }
    }

    /// The names of the devices that the KVDB here was created with, of those that are neither files nor block devices:
    /// whoever opens it has to bring them. None for one that has no directory.
    ///
    /// # Errors
    /// As [`Builder::open`](crate::Builder::open).
    pub fn device_names(&self) -> Result<BTreeMap<MediaClass, String>> {
        let Home::Dir(dir) = &self.home else { return Ok(BTreeMap::new()) };
        let (_, state) = open_manifest(dir, true)?;
        Ok(state.classes.into_iter().filter(|(_, known_as)| !is_path(known_as)).collect())
    }

    /// Opens, to read only, the remains of a KVDB that nobody has open to write, for
    /// [`Builder::repair`](crate::Builder::repair). A class whose place is lost with the manifest is looked for where
    /// this location says, or in a file in the directory.
    ///
    /// # Errors
    /// `NotFound` when nothing of a KVDB is there, `Conflict` when someone has it open to write, or a device's error.
    pub fn remains(&self) -> Result<Remains> {
        match &self.home {
            Home::Dir(dir) => remains(dir, self),
            Home::Device(manifest) => {
                let given = |(class, medium): (_, &Medium)| match medium {
                    Medium::Device { device, .. } => Ok((class, (device.clone(), u64::MAX))),
                    _ => Err(without_directory(class)),
                };
                let classes = self.media().map(given).collect::<Result<_>>()?;
                Ok(Remains { manifest: Some(manifest.clone()), classes, directory: None })
            }
        }
    }

    pub(crate) fn directory(&self) -> Option<&Path> {
        match &self.home {
            Home::Dir(dir) => Some(dir),
            Home::Device(_) => None,
        }
    }

    /// The classes of which something is said.
    fn media(&self) -> impl Iterator<Item = (MediaClass, &Medium)> {
        let all = [(MediaClass::Capacity, &self.capacity), (MediaClass::Staging, &self.staging)];
        all.into_iter().filter_map(|(class, medium)| Some((class, medium.as_ref()?)))
    }

    fn medium(&self, class: MediaClass) -> Option<&Medium> {
        self.media().find(|(of, _)| *of == class).map(|(_, medium)| medium)
    }

    /// The classes of a new KVDB, and how its manifest is to know them.
    pub(crate) fn new_classes(&self) -> Result<Vec<(MediaClass, String)>> {
        let capacity = self.capacity.as_ref().unwrap_or(&Medium::InDir);
        let staging = self.staging.iter().map(|medium| (MediaClass::Staging, medium));
        let classes = [(MediaClass::Capacity, capacity)].into_iter().chain(staging);
        classes
            .map(|(class, medium)| Ok((class, medium.known_as(self.directory(), class)?)))
            .collect()
    }

    /// Makes the directory and the devices of a new KVDB.
    pub(crate) fn make(&self) -> Result<Made> {
        let classes = self.new_classes()?;
        let Home::Dir(dir) = &self.home else {
            let devices = self.opened()?;
            check_without_kvdb(&devices)?;
            return Ok(Made { devices, classes, creation: None, new: NewFiles::default() });
        };
        let is_new = !dir.exists();
        check_is_dir(dir)?;
        files::create_dir_all(dir).map_err(|error| KvError::of_file(dir, &error))?;
        let mut new = NewFiles::default();
        new.dir = is_new.then(|| dir.clone());
        let path = dir.join(MANIFEST);
        let taken = || {
            let why = "there is a KVDB here already; open it, or choose another directory";
            KvError::Exists { path: dir.to_owned(), why: why.into() }
        };
        if path.exists() && has_manifest(&path)? {
            return Err(taken());
        }
        let manifest: Arc<dyn Device> = Arc::new(new.open(&path, Some(MANIFEST_BYTES))?);
        // It is this process's now: nobody else makes a KVDB here any more.
        if Manifest::read(&manifest)?.is_some() {
            return Err(taken());
        }
        let creation = Creation::begin(dir)?;
        if !creation.is_left {
            new.creating = Some(creation.path.clone());
        }
        let mut find = |wanted: MediaClass| -> Result<Option<Arc<dyn Device>>> {
            let Some((_, known_as)) = classes.iter().find(|(class, _)| *class == wanted) else {
                return Ok(None);
            };
            if let Some(Medium::Device { device, .. }) = self.medium(wanted) {
                creation.check_free(&**device, Path::new(known_as))?;
                return Ok(Some(device.clone()));
            }
            let path = dir.join(known_as);
            let device = new.open(&path, None)?;
            if !device.is_new() && device.len_bytes()? > 0 {
                creation.check_free(&device, &path)?;
            }
            Ok(Some(Arc::new(device)))
        };
        let capacity = find(MediaClass::Capacity)?.expect("every KVDB has a capacity class");
        let staging = find(MediaClass::Staging)?;
        let devices = Devices { manifest, capacity, staging };
        Ok(Made { devices, classes, creation: Some(creation), new })
    }

    /// Whether a KVDB may be made here: nothing of one is there, or what a killed process left that was making it.
    pub(crate) fn is_free(&self) -> Result<bool> {
        let Home::Dir(dir) = &self.home else {
            let devices = self.opened()?;
            if Manifest::read(&devices.manifest)?.is_some() {
                return Ok(false);
            }
            for device in [Some(&devices.capacity), devices.staging.as_ref()].into_iter().flatten()
            {
                check_blank(&**device, Path::new(device.name()))?;
            }
            return Ok(true);
        };
        check_is_dir(dir)?;
        let manifest = dir.join(MANIFEST);
        if manifest.exists() {
            return Ok(creation::is_left(dir) && !has_manifest(&manifest)?);
        }
        Ok(creation::is_left(dir) || !has_class(dir))
    }

    /// Opens the device of a class of the KVDB in `dir`, or finds it among the caller's. Of a file or block device its
    /// length in bytes comes with it.
    fn class_device(
        &self,
        dir: &Path,
        class: MediaClass,
        known_as: &str,
        read_only: bool,
    ) -> Result<(Arc<dyn Device>, Option<u64>)> {
        if !is_path(known_as) {
            return match self.medium(class) {
                Some(Medium::Device { device, .. }) => Ok((device.clone(), None)),
                _ => Err(not_given(dir, class, known_as)),
            };
        }
        let (device, bytes) = open_class(dir, class, known_as, read_only)?;
        Ok((device, Some(bytes)))
    }

    /// The devices that the caller brought, where there is no directory.
    fn opened(&self) -> Result<Devices> {
        let Remains { manifest, classes, .. } = self.remains()?;
        let of =
            |class| classes.get(&class).map(|(device, _): &(Arc<dyn Device>, _)| device.clone());
        Ok(Devices {
            manifest: manifest.expect("it has one"),
            capacity: of(MediaClass::Capacity).expect("it has one"),
            staging: of(MediaClass::Staging),
        })
    }

    /// Opens the devices of the KVDB that is here.
    pub(crate) fn open(&self, read_only: bool) -> Result<Devices> {
        let Home::Dir(dir) = &self.home else { return self.opened() };
        let (manifest, state) = open_manifest(dir, read_only)?;
        for (class, medium) in self.media() {
            check_agrees(dir, &state, class, medium)?;
        }
        let find = |class: MediaClass| -> Result<Option<Arc<dyn Device>>> {
            let Some(known_as) = state.classes.get(&class) else { return Ok(None) };
            let (device, bytes) = self.class_device(dir, class, known_as, read_only)?;
            if let Some(bytes) = bytes {
                check_length(&state, class, &*device, bytes)?;
            }
            Ok(Some(device))
        };
        let capacity = find(MediaClass::Capacity)?.ok_or_else(|| KvError::NotAKvdb {
            path: dir.to_owned(),
            why: "it has no capacity class".into(),
        })?;
        Ok(Devices { manifest, capacity, staging: find(MediaClass::Staging)? })
    }
}

/// Refuses a location that says of a class what its KVDB does not.
fn check_agrees(dir: &Path, state: &State, class: MediaClass, medium: &Medium) -> Result<()> {
    let refused = |is: String| {
        let dir = dir.display();
        KvError::Options(format!(
            "{dir}: the location says that its {class} class is {medium}, and {is}"
        ))
    };
    let Some(known_as) = state.classes.get(&class) else {
        return Err(refused(
            "it has none: leave it out of the location, and give it one with `Kvdb::add_staging`"
                .into(),
        ));
    };
    let at = |known_as: &str| resolved(&dir.join(known_as));
    let agrees = match medium {
        Medium::Device { name, .. } => name == known_as,
        _ => is_path(known_as) && at(&medium.known_as(Some(dir), class)?) == at(known_as),
    };
    if agrees {
        Ok(())
    } else {
        Err(refused(format!(
            "it is '{known_as}': leave it out of the location, or open another KVDB"
        )))
    }
}

fn without_directory(class: MediaClass) -> KvError {
    KvError::Options(format!(
        "the KVDB has no directory: give its {class} class a device (`Medium::Device`)"
    ))
}

impl Medium {
    /// How the manifest of the KVDB in `dir` knows it.
    pub(crate) fn known_as(&self, dir: Option<&Path>, class: MediaClass) -> Result<String> {
        match (self, dir) {
            (Medium::Device { name, .. }, None) => Ok(name.clone()),
            (Medium::Device { name, .. }, Some(_)) => check_name(name).map(|()| name.clone()),
            (Medium::InDir, Some(_)) => Ok(file_name(class)),
            (Medium::Path(path), Some(dir)) => known_as(dir, class, path),
            (Medium::InDir | Medium::Path(_), None) => Err(without_directory(class)),
        }
    }

    /// Opens or makes the device of a class that a KVDB is to have from now on; one in a directory begins with zeroes.
    pub(crate) fn make(&self, dir: Option<&Path>, class: MediaClass) -> Result<Arc<dyn Device>> {
        let known_as = self.known_as(dir, class)?;
        match (self, dir) {
            (Medium::Device { device, .. }, None) => Ok(device.clone()),
            (Medium::Device { device, .. }, Some(_)) => {
                check_blank(&**device, Path::new(&known_as)).map(|()| device.clone())
            }
            (_, dir) => {
                let path = dir.ok_or_else(|| without_directory(class))?.join(&known_as);
                let device = open_file(&path, Create::IfMissing, None)?;
                if !device.is_new() && device.len_bytes()? > 0 {
                    check_blank(&device, &path)?;
                }
                Ok(Arc::new(device))
            }
        }
    }
}

/// Files that this process has made, which are removed with it unless they are kept.
#[derive(Default)]
pub(crate) struct NewFiles {
    files: Vec<PathBuf>,
    /// The one that says that a creation is under way: it goes last.
    creating: Option<PathBuf>,
    /// The directory that was made for them.
    dir: Option<PathBuf>,
}

impl NewFiles {
    /// Opens a file, and makes it if it is missing.
    fn open(&mut self, path: &Path, capacity_bytes: Option<u64>) -> Result<FileDevice> {
        let device = open_file(path, Create::IfMissing, capacity_bytes)?;
        if device.is_new() {
            self.files.push(path.to_owned());
        }
        Ok(device)
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        // As far as they go: there is another error to report.
        let files = self.files.iter().chain(&self.creating);
        files.for_each(|file| drop(std::fs::remove_file(file)));
        self.dir.iter().for_each(|dir| drop(std::fs::remove_dir(dir)));
    }
}

/// The devices of a KVDB that is to be made. Files that were made for it are gone with this, unless it is kept.
pub(crate) struct Made {
    pub(crate) devices: Devices,
    /// How the manifest is to know the classes.
    pub(crate) classes: Vec<(MediaClass, String)>,
    creation: Option<Creation>,
    new: NewFiles,
}

impl Made {
    /// The uuid of the new KVDB.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.creation.as_ref().map_or_else(new_uuid, |creation| creation.uuid)
    }

    /// The KVDB has been made.
    pub(crate) fn keep(mut self) -> Devices {
        (self.new.files, self.new.creating, self.new.dir) = (Vec::new(), None, None);
        self.creation.iter().for_each(Creation::end);
        self.devices
    }

    /// The KVDB was made, and is to be gone again, as far as that goes: there is another error to report.
    pub(crate) fn undo(self) {
        // The manifest first: without it, the rest is a creation that can be begun anew.
        if Manifest::clear(&self.devices.manifest).is_ok() {
            let classes = self.devices.classes(&Options::default());
            classes.all().iter().for_each(|media| drop(media.clear_header()));
        }
    }
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
fn open_manifest_file(path: &Path, read_only: bool) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(open_existing(path, Some(MANIFEST_BYTES), read_only)?))
}

/// Opens a file or block device that is there.
fn open_existing(path: &Path, capacity_bytes: Option<u64>, read_only: bool) -> Result<FileDevice> {
    let create = Create::Never;
    let options = FileOptions { create, capacity_bytes, read_only, ..FileOptions::default() };
    FileDevice::open(path, &options).map_err(|error| match error.kind() {
        ErrorKind::Io if !read_only && is_unwritable(path) => KvError::Unwritable(error),
        _ => error.into(),
    })
}

/// Whether this process may read a file or block device, and not write it.
fn is_unwritable(path: &Path) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let refused = std::fs::File::options().write(true).open(path).err();
    let kind = refused.map(|error| error.kind());
    matches!(kind, Some(PermissionDenied | ReadOnlyFilesystem)) && std::fs::File::open(path).is_ok()
}

/// Opens the file or block device of a class of the KVDB in `dir`, and finds its length.
fn open_class(
    dir: &Path,
    class: MediaClass,
    known_as: &str,
    read_only: bool,
) -> Result<(Arc<dyn Device>, u64)> {
    let path = dir.join(known_as);
    let device = open_existing(&path, None, read_only).map_err(|error| match error.kind() {
        ErrorKind::NotFound => KvError::ClassMissing { class, path },
        _ => error,
    })?;
    let bytes = device.len_bytes()?;
    Ok((Arc::new(device), bytes))
}

/// Removes the file of a class that has ended, if it is in the KVDB's own directory.
pub(crate) fn remove_own(dir: &Path, known_as: &str) -> Result<()> {
    // By the path: it may be an absolute one.
    let path = dir.join(known_as);
    if !is_path(known_as) || place_inside(dir, &path).is_none() {
        return Ok(());
    }
    std::fs::remove_file(&path).map_err(|error| KvError::of_file(&path, &error))
}

/// Refuses a place of a KVDB that cannot be a directory.
fn check_is_dir(dir: &Path) -> Result<()> {
    let why = if dir.as_os_str().is_empty() {
        "the location of a KVDB is an empty path: name a directory".to_owned()
    } else if dir.exists() && !dir.is_dir() {
        format!("{} is no directory, and a KVDB lives in one: name a directory", dir.display())
    } else {
        return Ok(());
    };
    Err(KvError::Options(why))
}

/// Refuses devices of a KVDB that is there.
fn check_without_kvdb(devices: &Devices) -> Result<()> {
    if Manifest::read(&devices.manifest)?.is_none() {
        return Ok(());
    }
    let path = devices.manifest.name().into();
    let why = "there is a KVDB here already; open it, or choose other devices".into();
    Err(KvError::Exists { path, why })
}

fn has_manifest(path: &Path) -> Result<bool> {
    Ok(Manifest::read(&open_manifest_file(path, true)?)?.is_some())
}

fn not_given(dir: &Path, class: MediaClass, known_as: &str) -> KvError {
    let dir = dir.display();
    KvError::Options(format!(
        "{dir}: its {class} class is on the device '{known_as}', which is no file: whoever opens the KVDB \
         has to bring it"
    ))
}

/// Opens the devices that remain of the KVDB in `dir`, but for those that the location has. Where the manifest does not
/// say where a class lies, it may be a file in the directory; where it does, it must be there.
fn remains(dir: &Path, location: &Location) -> Result<Remains> {
    check_is_dir(dir)?;
    let manifest = dir.join(MANIFEST);
    let manifest = manifest.exists().then(|| open_manifest_file(&manifest, true)).transpose()?;
    let survey = manifest.clone().map(Manifest::survey).transpose()?.unwrap_or_default();
    let is_whole = survey.damage.is_none() && survey.state.is_some();
    let known = survey.state.map(|state| state.classes).unwrap_or_default();
    let mut classes = BTreeMap::new();
    for class in MediaClass::ALL {
        let medium = location.medium(class);
        if let Some(Medium::Device { device, .. }) = medium {
            classes.insert(class, (device.clone(), u64::MAX));
            continue;
        }
        let said = medium.map(|medium| medium.known_as(Some(dir), class)).transpose()?;
        // A class that was removed may have left its file.
        let file = said.or_else(|| (!is_whole).then(|| file_name(class)));
        let Some(known_as) = known.get(&class).or(file.as_ref()) else { continue };
        if !is_path(known_as) {
            return Err(not_given(dir, class, known_as));
        }
        match open_class(dir, class, known_as, true) {
            Err(KvError::ClassMissing { .. }) if !known.contains_key(&class) => {}
            opened => drop(classes.insert(class, opened?)),
        }
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
    check_is_dir(dir)?;
    let path = dir.join(MANIFEST);
    if !path.exists() {
        return Err(not_here(if has_class(dir) {
            "its file 'manifest.esker' is gone; `esker kv repair` salvages what its classes hold"
        } else {
            "it has no file 'manifest.esker'; create one with `esker kv create`, or `Builder::create` in a program"
        }));
    }
    let manifest = open_manifest_file(&path, read_only)?;
    let state = Manifest::read(&manifest)?.ok_or_else(|| {
        not_here(
            "its manifest holds no whole record. Creating it, or a backup or a repair to it, was \
             interrupted: then do that again. Or it was damaged: `esker kv repair` finds out what its media hold",
        )
    })?;
    Ok((manifest, state))
}

#[cfg(test)]
mod tests;
