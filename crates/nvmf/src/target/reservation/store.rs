//! The file of reservations that persist. Opened when a target starts; written whole, beside the old
//! one, synced and put in its place whenever something in it changes.
//!
//! Invariants
//! 1. `records` is on the medium: a change that could not be written is not in it.
//! 2. No other store has the file: each holds the lock of `PATH.lock` while it lives. The file itself
//!    cannot carry the lock, since every change puts another in its place.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use esker_base::{ErrorKind, files};
use parking_lot::Mutex;

use super::omf::{self, Key, Record};
use crate::error::NvmfError;

/// The reservations that persist, of all namespaces.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    records: Mutex<BTreeMap<Key, Record>>,
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
        let records = match fs::read(path) {
            Ok(bytes) => omf::decode(&bytes).map_err(|damage| {
                let (path, why) = (path.to_owned(), damage.to_string());
                NvmfError::Reservations { path, why }
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                return Err(NvmfError::os(format!("reading the reservations {shown}"), &error));
            }
        };
        // A failure to write is better known now.
        write(path, &records)
            .map_err(|error| NvmfError::os(format!("writing the reservations {shown}"), &error))?;
        Ok(Store { path: path.to_owned(), records: Mutex::new(records), _lock: lock })
    }

    pub(super) fn get(&self, key: &Key) -> Option<Record> {
        self.records.lock().get(key).cloned()
    }

    /// Changes the record of a namespace; durable when it returns.
    pub(super) fn put(&self, key: &Key, record: Option<Record>) -> io::Result<()> {
        let mut records = self.records.lock();
        if records.get(key) == record.as_ref() {
            return Ok(());
        }
        let mut next = records.clone();
        match record {
            Some(record) => next.insert(key.clone(), record),
            None => next.remove(key),
        };
        write(&self.path, &next)?;
        *records = next;
        Ok(())
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

fn write(path: &Path, records: &BTreeMap<Key, Record>) -> io::Result<()> {
    let new = beside(path, ".new");
    let mut file = files::create(&new)?;
    file.write_all(&omf::encode(records))?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
