//! Errors of the cache.

use esker_base::ErrorKind;
use esker_base::units::human_bytes;
use esker_device::{DeviceError, Occupant};
use thiserror::Error;

use crate::omf::FormatError;
use crate::pairing::{Pairing, advice};

/// Reasons why the cache could not do its work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The parameters are wrong; the message says which are right.
    #[error("{0}")]
    Invalid(String),
    /// A cache that is kept cannot have this size; one that is made anew can.
    #[error("the cache on {device} {why}; make it anew")]
    NotInPlace {
        /// The flash device.
        device: String,
        /// The obstacle.
        why: String,
    },
    /// The operating system has no thread to give.
    #[error("a thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The flash device holds no cache.
    #[error(
        "{device}: there is no cache on it{}; make one with `esker cache create`",
        found.map_or_else(String::new, |found| format!(", but {}", found.what))
    )]
    NoCache {
        /// The flash device.
        device: String,
        /// The content found there, if it is known.
        found: Option<Occupant>,
    },
    /// The flash device holds a cache already.
    #[error("{device}: there is a cache on it; detach it first, or say that it may be lost")]
    Exists {
        /// The flash device.
        device: String,
    },
    /// The flash device is someone's.
    #[error(
        "{device}: it holds {} already, at byte {}; choose another one, or, if what is there may be \
         lost, make the cache with `esker cache create --overwrite`", found.what, found.offset
    )]
    Occupied {
        /// The flash device.
        device: String,
        /// The content found there.
        found: Occupant,
    },
    /// Another owner has overwritten the beginning of the flash device of a cache.
    #[error(
        "{device}: the beginning of its cache is overwritten: byte {} belongs to {}; its slots may be overwritten as well, \
         and nothing tells which. Nothing was changed. Restore the flash device or the origin from a copy; or check \
         the origin, which has all that was written back, and use it alone (its own specification in place of `cache:`), or \
         with a new cache (`esker cache create --overwrite`, which destroys that owner's data)", found.offset, found.what
    )]
    Overwritten {
        /// The flash device.
        device: String,
        /// The owner found there.
        found: Occupant,
    },
    /// The cache was detached: its origin may have changed since.
    #[error("{device}: the cache on it was detached from its origin; make a new one")]
    Detached {
        /// The flash device.
        device: String,
    },
    /// The origin is another one than that of the cache, or was written without it.
    #[error("{pair}; {}", advice(pair))]
    WrongOrigin {
        /// The comparison that shows it.
        pair: Box<Pairing>,
    },
    /// Others go on to write blocks that must be written back.
    #[error("{device}: the cache on it is in use: blocks are being written; stop using it first")]
    InUse {
        /// The flash device.
        device: String,
    },
    /// The device returned other data than was written.
    #[error(
        "{device}: {what} at offset {offset} is damaged: {why}; what was not written back to the \
         origin yet cannot be told any more: restore it from a copy; or check the origin, which has the rest, and use \
         it alone (its own specification in place of `cache:`) after `esker cache detach ORIGIN FLASH --dirty drop`, or with \
         a new cache (`esker cache create --overwrite`)"
    )]
    Corrupt {
        /// The flash device.
        device: String,
        /// Which structure.
        what: &'static str,
        /// Where it lies, in bytes.
        offset: u64,
        /// The problem.
        why: FormatError,
    },
    /// A thread that worked on the cache has panicked, which is a defect of the cache or of a device.
    #[error(
        "{device}: the cache on it has stopped: {why}, which is a defect; what was flushed is safe. Close the cache and \
         open it again; report it"
    )]
    Stopped {
        /// The flash device.
        device: String,
        /// The thread, and the message of its panic.
        why: String,
    },
    /// The cache could not be closed.
    #[error(
        "the cache on {device} was not closed: {why}; {} were not written back: they are on that device alone, as far \
         as they were flushed. Keep both devices as they are, and open the cache again", human_bytes(*dirty_bytes)
    )]
    NotClosed {
        /// The flash device.
        device: String,
        /// Bytes that the origin does not have.
        dirty_bytes: u64,
        /// The reason.
        why: Box<CacheError>,
    },
    /// The flash device failed in a way that leaves its metadata undefined.
    #[error("{device}: the flash device has failed; nothing is cached until it is opened again")]
    FlashLost {
        /// The flash device.
        device: String,
    },
}

impl CacheError {
    /// A structure on the flash device is damaged.
    pub(crate) fn corrupt(
        device: &str,
        what: &'static str,
        offset: u64,
        why: &FormatError,
    ) -> CacheError {
        CacheError::Corrupt { device: device.to_owned(), what, offset, why: why.clone() }
    }

    /// The remedy for callers.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            CacheError::Invalid(_) | CacheError::NotInPlace { .. } => ErrorKind::Invalid,
            CacheError::Thread(error) => ErrorKind::from(error),
            CacheError::Device(error) => error.kind(),
            CacheError::NoCache { .. } => ErrorKind::NotFound,
            CacheError::Exists { .. } | CacheError::Occupied { .. } => ErrorKind::Exists,
            CacheError::Detached { .. } => ErrorKind::Closed,
            CacheError::WrongOrigin { .. } => ErrorKind::Conflict,
            CacheError::InUse { .. } => ErrorKind::Retry,
            CacheError::Corrupt { .. } | CacheError::Overwritten { .. } => ErrorKind::Corrupt,
            CacheError::FlashLost { .. } | CacheError::Stopped { .. } => ErrorKind::Io,
            CacheError::NotClosed { why, .. } => why.kind(),
        }
    }
}
