//! The file of reservations that persist. Opened when a target starts; written whole, beside the old
//! one, synced and put in its place whenever something in it changes.
//!
//! Invariants
//! 1. `content` is on the medium: a change that could not be written is not in it.
//! 2. No other store has the file: each holds the lock of `PATH.lock` while it lives. The file itself
//!    cannot carry the lock, since every change puts another in its place.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use esker_base::sync::Mutex;
use esker_base::{ErrorKind, files};

use super::omf::{self, FileContent, Key, Owner, Record};
use crate::error::NvmfError;

/// The largest file that is read, in bytes.
const CONTENT_MAX: u64 = 64 << 20;

/// The reservations that persist, of all devices.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    content: Mutex<FileContent>,
    _lock: File,
}

impl Store {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// When the file is damaged or another target has it, or it cannot be read or written.
    pub(crate) fn open(path: &Path) -> Result<Store, NvmfError> {
        let shown = path.display();
        let lock = lock(path)?;
        let content = match files::read(path, CONTENT_MAX) {
            Ok(bytes) => omf::decode(&bytes).map_err(|damage| {
                let (path, why) = (path.to_owned(), damage.to_string());
                NvmfError::Reservations { path, why }
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileContent::default(),
            Err(error) => {
                return Err(NvmfError::os(format!("reading the reservations {shown}"), &error));
            }
        };
        // A failure to write is better known now.
        write(path, &content)
            .map_err(|error| NvmfError::os(format!("writing the reservations {shown}"), &error))?;
        Ok(Store { path: path.to_owned(), content: Mutex::new(content), _lock: lock })
    }

    /// The record of a device. It gets that of its number, if a file of version 1 has left one.
    pub(super) fn claim(
        &self,
        nqn: &str,
        nsid: u32,
        uuid: [u8; 16],
    ) -> Result<Option<Record>, NvmfError> {
        let key = |owner| (nqn.to_owned(), owner);
        let (own, old) = (key(Owner::Device(uuid)), key(Owner::Number(nsid)));
        let mut content = self.content.lock();
        if let Some(record) = content.records.get(&own) {
            return Ok(Some(record.clone()));
        }
        let Some(record) = content.records.get(&old).cloned() else { return Ok(None) };
        let change = |next: &mut FileContent| {
            next.records.remove(&old);
            next.records.insert(own, record.clone());
        };
        self.change(&mut content, change).map_err(|error| self.refused(&error))?;
        Ok(Some(record))
    }

    /// How many devices without an identity a number had before its latest one.
    pub(crate) fn devices_before(&self, nqn: &str, nsid: u32) -> u64 {
        let content = self.content.lock();
        content.devices_before.get(&(nqn.to_owned(), nsid)).copied().unwrap_or(0)
    }

    /// Takes note of that; durable when it returns.
    pub(crate) fn count_devices(&self, nqn: &str, nsid: u32, before: u64) -> Result<(), NvmfError> {
        let mut content = self.content.lock();
        let number = (nqn.to_owned(), nsid);
        let change = |next: &mut FileContent| {
            next.devices_before.insert(number, before);
        };
        self.change(&mut content, change).map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &io::Error) -> NvmfError {
        NvmfError::os(format!("writing the reservations {}", self.path.display()), error)
    }

    fn change(
        &self,
        content: &mut FileContent,
        change: impl FnOnce(&mut FileContent),
    ) -> io::Result<()> {
        let mut next = content.clone();
        change(&mut next);
        write(&self.path, &next)?;
        *content = next;
        Ok(())
    }

    /// Changes the record of a device; durable when it returns.
    pub(super) fn put(&self, key: &Key, record: Option<Record>) -> io::Result<()> {
        let mut content = self.content.lock();
        if content.records.get(key) == record.as_ref() {
            return Ok(());
        }
        self.change(&mut content, |next| {
            match record {
                Some(record) => next.records.insert(key.clone(), record),
                None => next.records.remove(key),
            };
        })
    }
}

/// Takes the lock that keeps other targets off the file.
fn lock(path: &Path) -> Result<File, NvmfError> {
    let beside = beside(path, ".lock");
    let failure = |error| NvmfError::os(format!("locking {}", beside.display()), &error);
    let file = files::open_or_create(&beside).map_err(failure)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(NvmfError::Os {
            what: format!("the reservations {}", path.display()),
            kind: ErrorKind::Conflict,
            message: "another target uses them; give each a file of its own, or stop the other"
                .to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(failure(error)),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(suffix);
    beside.into()
}

fn write(path: &Path, content: &FileContent) -> io::Result<()> {
    let new = beside(path, ".new");
    let mut file = files::create(&new)?;
    file.write_all(&omf::encode(content))?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
