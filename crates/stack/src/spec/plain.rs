//! Plain devices: files, memory, nothing.

use std::path::PathBuf;
use std::time::Duration;

use esker_base::{LbaCount, files};
use esker_device::{Create, FileDevice, FileOptions, MemoryDevice, NullDevice, Preference};

use super::syntax::{Key, Keys, Parts, lba_size, name_of, number, one_of, show_size, size};
use super::{bytes_of, path_of};
use crate::StackError;

const PREFERENCES: [(&str, Preference); 3] = [
    ("prefer", Preference::Prefer),
    ("require", Preference::Require),
    ("never", Preference::Never),
];
const PREFERENCE: &str = "prefer|require|never";
const LBA: Key = ("lba", "512|1024|2048|4096");
/// Bytes per LBA where nothing is said.
const LBA_SIZE: u32 = 4096;

/// A file or a raw block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSpec {
    /// Where it is.
    pub path: PathBuf,
    /// The size in bytes of a file, or up to which it may grow; see [`FileOptions::capacity_bytes`] and
    /// [`FileOptions::fixed`].
    pub capacity: Option<u64>,
    /// Bytes per LBA; see [`FileOptions::lba_size`].
    pub lba: Option<u32>,
    /// Whether to go around the page cache.
    pub direct: Option<Preference>,
    /// Whether to use `io_uring`.
    pub uring: Option<Preference>,
    /// How long waits for short reads look before they sleep, in microseconds; see
    /// [`FileOptions::spin`].
    pub spin: Option<u32>,
}

impl FileSpec {
    const KEYS: [Key; 5] = [
        ("capacity", "SIZE"),
        LBA,
        ("direct", PREFERENCE),
        ("uring", PREFERENCE),
        ("spin", "MICROSECONDS"),
    ];
    /// The longest that waits may look.
    const SPIN_MAX: u32 = 10_000;

    /// The file at a path, with defaults.
    pub(super) fn at(path: PathBuf) -> Result<FileSpec, String> {
        match path.as_os_str().is_empty() {
            true => Err("a device is missing; name a path".to_owned()),
            false => Ok(FileSpec { path, ..FileSpec::default() }),
        }
    }

    pub(super) fn of(parts: &Parts) -> Result<FileSpec, String> {
        let mut keys = Keys::of("file:", parts, &FileSpec::KEYS)?;
        Ok(FileSpec {
            path: path_of(parts.bytes()?.to_vec())?,
            capacity: keys.take("capacity", size)?,
            lba: keys.take("lba", lba_size)?,
            direct: keys.take("direct", one_of(&PREFERENCES))?,
            uring: keys.take("uring", one_of(&PREFERENCES))?,
            spin: keys.take("spin", number(0, FileSpec::SPIN_MAX))?,
        })
    }

    pub(super) fn parts(&self) -> Parts {
        let mut parts = Parts::new(bytes_of(&self.path));
        parts.push("capacity", self.capacity.map(show_size));
        parts.push("lba", self.lba.map(|lba| lba.to_string()));
        parts.push("direct", self.direct.map(|direct| name_of(&PREFERENCES, &direct)));
        parts.push("uring", self.uring.map(|uring| name_of(&PREFERENCES, &uring)));
        parts.push("spin", self.spin.map(|us| us.to_string()));
        parts
    }

    pub(crate) fn open(&self, create: Create, access: Access) -> Result<FileDevice, StackError> {
        let is_missing = !self.path.exists() && !files::is_missing_device(&self.path);
        // A class of a KVDB that is gone is not to be made by anybody.
        if is_missing && create == Create::Never && !access.growing {
            return Err(StackError::NoFile { path: self.path.clone(), bytes: self.capacity });
        }
        if is_missing && self.capacity.is_none() && !access.growing {
            return Err(StackError::NoSize { path: self.path.clone() });
        }
        let defaults = FileOptions::default();
        let options = FileOptions {
            create,
            capacity_bytes: self.capacity,
            fixed: !access.growing,
            lba_size: self.lba,
            direct: self.direct.unwrap_or_default(),
            io_uring: self.uring.unwrap_or_default(),
            read_only: access.read_only,
            spin: self.spin.map_or(defaults.spin, |us| Duration::from_micros(us.into())),
        };
        Ok(FileDevice::open(&self.path, &options)?)
    }
}

/// How files are opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    /// To read only.
    pub(crate) read_only: bool,
    /// So that writes beyond its end make a file grow.
    pub(crate) growing: bool,
}

/// Memory: sparse, gone at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySpec {
    /// How many bytes.
    pub size: u64,
    /// Bytes per LBA; 4,096 where nothing is said.
    pub lba: Option<u32>,
}

impl MemorySpec {
    pub(super) fn of(parts: &Parts) -> Result<MemorySpec, String> {
        let (size, lba) = sized("mem:", parts)?;
        Ok(MemorySpec { size, lba })
    }

    pub(super) fn parts(&self) -> Parts {
        sized_parts(self.size, self.lba)
    }

    pub(crate) fn open(&self, name: &str) -> MemoryDevice {
        MemoryDevice::new(name, self.size, self.lba.unwrap_or(LBA_SIZE))
    }
}

/// A device that stores nothing: reads leave the buffer as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NullSpec {
    /// How many bytes it pretends to have.
    pub size: u64,
    /// Bytes per LBA; 4,096 where nothing is said.
    pub lba: Option<u32>,
}

impl NullSpec {
    pub(super) fn of(parts: &Parts) -> Result<NullSpec, String> {
        let (size, lba) = sized("null:", parts)?;
        Ok(NullSpec { size, lba })
    }

    pub(super) fn parts(&self) -> Parts {
        sized_parts(self.size, self.lba)
    }

    pub(crate) fn open(&self) -> NullDevice {
        let lba = self.lba.unwrap_or(LBA_SIZE);
        NullDevice::new(LbaCount(self.size / u64::from(lba)), lba)
    }
}

fn sized(scheme: &str, parts: &Parts) -> Result<(u64, Option<u32>), String> {
    let mut keys = Keys::of(scheme, parts, &[LBA])?;
    let bytes = match parts.text()? {
        "" => return Err(format!("a size is missing; write for example {scheme}1GiB")),
        text => size(text)?,
    };
    let lba = keys.take("lba", lba_size)?;
    let unit = u64::from(lba.unwrap_or(LBA_SIZE));
    match bytes.is_multiple_of(unit) {
        true => Ok((bytes, lba)),
        false => Err(format!("{bytes} bytes are no multiple of an LBA of {unit}")),
    }
}

fn sized_parts(bytes: u64, lba: Option<u32>) -> Parts {
    let mut parts = Parts::new(show_size(bytes));
    parts.push("lba", lba.map(|lba| lba.to_string()));
    parts
}
