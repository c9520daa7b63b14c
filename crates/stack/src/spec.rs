//! Specifications as values, and the same as text.
//!
//! | module | content |
//! | --- | --- |
//! | `syntax` | `scheme:body?key=value&…`, whatever the scheme |
//! | `plain` | files, memory, nothing |
//! | `ssd` | models of solid-state drives |
//! | `disk` | models of disks |
//! | `cache` | a flash device in front of an origin |
//! | `stripe` | several devices as one |
//! | `volume` | volumes of a pool |
//! | `traced` | devices that record their requests |
//! | `remote` | namespaces of remote targets |
//!
//! Invariant: the text of a specification reads back as an equal one, however it was made, as long as
//! each of its values could be read from text.

mod cache;
mod disk;
mod plain;
mod remote;
mod ssd;
mod stripe;
mod syntax;
mod traced;
mod volume;

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::StackError;
use crate::time::Time;
use syntax::{Parts, split_scheme};

pub use cache::CacheSpec;
pub use disk::DiskSpec;
pub(crate) use plain::Access;
pub use plain::{FileSpec, MemorySpec, NullSpec};
pub use remote::{RemoteSpec, parse_uuid, show_uuid};
pub use ssd::{FtlSide, SsdSpec};
pub(crate) use ssd::{differs, show_placement};
pub use stripe::StripeSpec;
pub use traced::{IfExists, TracedSpec};
pub use volume::VolumeSpec;

/// A device, in one line.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// `PATH`, `file:PATH`: a file or a raw block device.
    File(FileSpec),
    /// `mem:SIZE`: memory.
    Memory(MemorySpec),
    /// `null:SIZE`: stores nothing.
    Null(NullSpec),
    /// `ssd:PROFILE`: a model of a solid-state drive.
    Ssd(Box<SsdSpec>),
    /// `disk:PROFILE`: a model of a disk.
    Disk(DiskSpec),
    /// `nvme-tcp://HOST:PORT/NQN`: a namespace of a remote target.
    Remote(Box<RemoteSpec>),
    /// `traced:(SPEC)?to=FILE`: a device that records its requests.
    Traced(Box<TracedSpec>),
    /// `cache:(SPEC)?flash=(SPEC)`: a flash device in front of an origin.
    Cache(Box<CacheSpec>),
    /// `stripe:(SPEC)(SPEC)…`: several devices as one.
    Stripe(StripeSpec),
    /// `volume:POOL/NAME`, `volume:POOL/NAME?drives=(SPEC)(SPEC)…`: a volume of a pool.
    Volume(Box<VolumeSpec>),
}

/// The schemes, with their meanings.
const SCHEMES: &str = "file:PATH, mem:SIZE, null:SIZE, ssd:PROFILE, disk:PROFILE, \
    nvme-tcp://HOST:PORT/NQN, traced:(SPEC)?to=FILE, \
    cache:(SPEC)?flash=(SPEC), stripe:(SPEC)(SPEC)…, volume:POOL/NAME, volume:POOL/NAME?drives=(SPEC)(SPEC)…, or a path";

impl Spec {
    /// Whether a text begins with a scheme; anything else is the path of a file or a raw block
    /// device.
    #[must_use]
    pub fn has_scheme(text: &str) -> bool {
        split_scheme(text).is_some()
    }

    /// Whether written data outlives the process.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Spec::File(_) | Spec::Remote(_) => true,
            Spec::Memory(_) | Spec::Null(_) => false,
            Spec::Ssd(ssd) => ssd.image.is_some(),
            Spec::Disk(disk) => disk.image.is_some(),
            Spec::Traced(traced) => traced.inner.is_lasting(),
            Spec::Cache(cache) => cache.origin.is_lasting() && cache.flash.is_lasting(),
            Spec::Stripe(stripe) => stripe.drives.iter().all(Spec::is_lasting),
            Spec::Volume(volume) => volume.devices().all(Spec::is_lasting),
        }
    }

    /// The files or block devices in which content lies.
    #[must_use]
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            Spec::File(file) => vec![&file.path],
            Spec::Ssd(ssd) => ssd.image.as_deref().into_iter().collect(),
            Spec::Disk(disk) => disk.image.as_deref().into_iter().collect(),
            Spec::Traced(traced) => traced.inner.paths(),
            Spec::Cache(cache) => [cache.origin.paths(), cache.flash.paths()].concat(),
            Spec::Stripe(stripe) => stripe.drives.iter().flat_map(Spec::paths).collect(),
            Spec::Volume(volume) => volume.devices().flat_map(Spec::paths).collect(),
            Spec::Memory(_) | Spec::Null(_) | Spec::Remote(_) => Vec::new(),
        }
    }

    /// Whether it is a cache, recorded or not.
    #[must_use]
    pub fn is_cache(&self) -> bool {
        match self {
            Spec::Traced(traced) => traced.inner.is_cache(),
            other => matches!(other, Spec::Cache(_)),
        }
    }

    /// How time passes, if it is a model.
    #[must_use]
    pub fn time(&self) -> Option<Time> {
        match self {
            Spec::Ssd(ssd) => Some(ssd.time.unwrap_or_default()),
            Spec::Disk(disk) => Some(disk.time.unwrap_or_default()),
            Spec::Traced(traced) => traced.inner.time(),
            Spec::Cache(cache) => cache.origin.time().or_else(|| cache.flash.time()),
            Spec::Stripe(stripe) => stripe.drives.iter().find_map(Spec::time),
            Spec::Volume(volume) => volume.devices().find_map(Spec::time),
            Spec::File(_) | Spec::Memory(_) | Spec::Null(_) | Spec::Remote(_) => None,
        }
    }

    /// The same with another time, if it is a model.
    #[must_use]
    pub fn with_time(mut self, time: Time) -> Spec {
        match &mut self {
            Spec::Ssd(ssd) => ssd.time = Some(time),
            Spec::Disk(disk) => disk.time = Some(time),
            Spec::Traced(traced) => traced.inner = traced.inner.clone().with_time(time),
            Spec::Cache(cache) => {
                cache.origin = cache.origin.clone().with_time(time);
                cache.flash = cache.flash.clone().with_time(time);
            }
            Spec::Stripe(stripe) => {
                stripe.drives.iter_mut().for_each(|one| *one = one.clone().with_time(time));
            }
            Spec::Volume(volume) => {
                volume.devices_mut().for_each(|one| *one = one.clone().with_time(time));
            }
            Spec::File(_) | Spec::Memory(_) | Spec::Null(_) | Spec::Remote(_) => {}
        }
        self
    }

    /// The specification that finds the same device again from any directory: with an absolute path,
    /// and without the keys that only matter when a drive is made.
    ///
    /// # Errors
    /// When the current directory cannot be found out.
    pub fn for_reopening(&self) -> Result<Spec, StackError> {
        let mut spec = self.clone();
        let invalid = |why| StackError::Invalid { spec: self.to_string(), why };
        let path = match &mut spec {
            Spec::File(file) => Some(&mut file.path),
            Spec::Ssd(ssd) => {
                ssd.forget_making();
                ssd.image.as_mut()
            }
            Spec::Disk(disk) => disk.image.as_mut(),
            Spec::Remote(remote) => {
                remote.make_absolute().map_err(invalid)?;
                None
            }
            // It is found again without being recorded again.
            Spec::Traced(traced) => return traced.inner.for_reopening(),
            Spec::Cache(cache) => {
                cache.origin = cache.origin.for_reopening()?;
                cache.flash = cache.flash.for_reopening()?;
                None
            }
            Spec::Stripe(stripe) => {
                for drive in &mut stripe.drives {
                    *drive = drive.for_reopening()?;
                }
                None
            }
            Spec::Volume(volume) => {
                for device in volume.devices_mut() {
                    *device = device.for_reopening()?;
                }
                volume.socket.as_mut()
            }
            Spec::Memory(_) | Spec::Null(_) => None,
        };
        if let Some(path) = path {
            *path = absolute(path).map_err(invalid)?;
        }
        Ok(spec)
    }
}

impl FromStr for Spec {
    type Err = StackError;

    fn from_str(text: &str) -> Result<Spec, StackError> {
        parse(text).map_err(|why| StackError::Syntax { text: text.to_owned(), why })
    }
}

fn parse(text: &str) -> Result<Spec, String> {
    let Some((scheme, rest)) = split_scheme(text) else {
        return FileSpec::at(text.into()).map(Spec::File);
    };
    let parts = Parts::parse(rest)?;
    match scheme {
        "file" => FileSpec::of(&parts).map(Spec::File),
        "mem" => MemorySpec::of(&parts).map(Spec::Memory),
        "null" => NullSpec::of(&parts).map(Spec::Null),
        "ssd" => SsdSpec::of(&parts).map(|ssd| Spec::Ssd(Box::new(ssd))),
        "disk" => DiskSpec::of(&parts).map(Spec::Disk),
        "nvme-tcp" => RemoteSpec::of(&parts).map(|remote| Spec::Remote(Box::new(remote))),
        "cache" => CacheSpec::of(&parts).map(|cache| Spec::Cache(Box::new(cache))),
        "stripe" => StripeSpec::of(&parts).map(Spec::Stripe),
        "volume" => VolumeSpec::of(&parts).map(|volume| Spec::Volume(Box::new(volume))),
        "traced" => TracedSpec::of(&parts).map(|traced| Spec::Traced(Box::new(traced))),
        _ => Err(format!(
            "there are no devices '{scheme}:'; write {SCHEMES} (./{text} if it is one)"
        )),
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::File(file) => write!(f, "file:{}", file.parts()),
            Spec::Memory(memory) => write!(f, "mem:{}", memory.parts()),
            Spec::Null(null) => write!(f, "null:{}", null.parts()),
            Spec::Ssd(ssd) => ssd.fmt(f),
            Spec::Disk(disk) => disk.fmt(f),
            Spec::Remote(remote) => remote.fmt(f),
            Spec::Traced(traced) => write!(f, "traced:{}", traced.parts()),
            Spec::Cache(cache) => write!(f, "cache:{}", cache.parts()),
            Spec::Stripe(stripe) => write!(f, "stripe:{}", stripe.parts()),
            Spec::Volume(volume) => write!(f, "volume:{}", volume.parts()),
        }
    }
}

/// The path that these bytes are.
fn path_of(bytes: Vec<u8>) -> Result<PathBuf, String> {
    match bytes.is_empty() {
        true => Err("a path is missing".to_owned()),
        false => Ok(OsString::from_vec(bytes).into()),
    }
}

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
