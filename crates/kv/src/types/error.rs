//! The engine's errors: the event, its object, and the remedy.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_base::{ErrorKind, Lba};
use esker_device::{DeviceError, OpKind, SystemError};
use thiserror::Error;

use crate::types::class::MediaClass;
use crate::types::format::FormatVersion;
use crate::types::limits::{KEY_MAX, KVS_NAME_MAX, VALUE_MAX};

/// The result of an engine call.
pub type Result<T, E = KvError> = std::result::Result<T, E>;

/// The cure for damage.
pub(crate) const SALVAGE_ADVICE: &str =
    "; restore it from a copy, or salvage what is sound with `esker kv repair`";

/// Codes of errors that a program can switch on. Their numbers stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum ErrorCode {
    /// A device or file system failed; [`source`](std::error::Error::source) has the system's error number.
    Io = 1,
    /// The KVDB, KVS, file or device named is not there.
    NotFound = 2,
    /// It is there already.
    Exists = 3,
    /// A key, a value, a batch, a name, an option or a location cannot be.
    Invalid = 4,
    /// This build, device or file system cannot do it.
    Unsupported = 5,
    /// A class or its file system is full: [`KvError::class`].
    NoSpace = 6,
    /// A medium returned other data than was written: [`KvError::damage`].
    Damaged = 7,
    /// The KVDB, or these keys of it, take no writes.
    ReadOnly = 8,
    /// Someone else wrote a key of the transaction since it began: begin it again, which may succeed at once.
    TransactionConflict = 9,
    /// The transaction was open for too long: begin it again.
    TransactionExpired = 10,
    /// The KVDB is open, and work or readers of this same process have to end first: try again then.
    Busy = 11,
    /// Another process, or another opening in this one, has the KVDB or a device of it: nothing was opened.
    InUse = 12,
    /// The work was called off.
    Cancelled = 13,
    /// The KVDB is closed, the KVS dropped, or this is a forked child.
    Closed = 14,
    /// An earlier failure stopped writes: open the KVDB again.
    Stopped = 15,
    /// A thread of the engine panicked.
    Panicked = 16,
    /// The KVDB is there, and the file or block device of one of its classes is not: [`KvError::class`]. A new KVDB is
    /// no remedy.
    ClassMissing = 17,
}

/// An error of the engine: [`KvError::code`] is what a program switches on.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum KvError {
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A medium returned other bytes than were written.
    #[error("{device}: {what} at LBA {} is damaged: {detail}{}", lba.0, SALVAGE_ADVICE)]
    Corrupt {
        /// The structure.
        what: &'static str,
        /// The device it was read from.
        device: String,
        /// Where it begins.
        lba: Lba,
        /// The expected content and the content found.
        detail: String,
    },
    /// A file or device of a class has fewer bytes than the data on it.
    #[error(
        "{device}: the {class} class is cut short: it has {found} bytes, and data lies in the first {needed}; bring \
         back the file or device in that size, or restore it from a copy, or salvage what is left with \
         `esker kv repair`"
    )]
    CutShort {
        /// The class.
        class: MediaClass,
        /// Its device.
        device: String,
        /// The size of the device in bytes.
        found: u64,
        /// The bytes that it needs at least.
        needed: u64,
    },
    /// A medium was written by a release with another format.
    #[error(
        "{device}: the {what} at LBA {} has format version {found}; this build reads versions 1 to {}: \
         use the release that wrote it, or a newer one",
        lba.0,
        FormatVersion::NEWEST.number()
    )]
    Version {
        /// The structure.
        what: &'static str,
        /// The device it was read from.
        device: String,
        /// Where it begins.
        lba: Lba,
        /// Its version.
        found: u16,
    },
    /// A media class is full.
    #[error("the {class} class has no room for {needed} bytes{}", remedy(at))]
    NoSpace {
        /// The class that was asked last.
        class: MediaClass,
        /// How many bytes were needed in one piece.
        needed: u64,
        /// The file system and the directory, in words, where the class is a file.
        at: Option<Arc<str>>,
    },
    /// A file system has no room for the manifest.
    #[error("no room for {needed} bytes of the manifest in {at}: free space on that file system")]
    ManifestFull {
        /// How many bytes were needed in one piece.
        needed: u64,
        /// The file system and the directory, in words.
        at: Arc<str>,
    },
    /// A media class is full that a policy does not allow to leave.
    #[error(
        "the {class} class is full, and the policy of the KVS '{kvs}' allows no other one: delete \
         data, give it a larger device, or change the policy"
    )]
    ClassFull {
        /// The class.
        class: MediaClass,
        /// The KVS.
        kvs: String,
    },
    /// A media class is full, and a delete finds no room in the log.
    #[error(
        "the {class} class has no room for {needed} bytes of the log{}, not even for deletes: give it a larger device, \
         drop a KVS, which needs no room, or end the snapshots, transactions and cursors that keep what was deleted",
        within(at)
    )]
    NoSpaceToDelete {
        /// The class that was asked last.
        class: MediaClass,
        /// How many bytes were needed in one piece.
        needed: u64,
        /// The file system and the directory, in words, where the class is a file.
        at: Option<Arc<str>>,
    },
    /// A key has a length the engine does not take.
    #[error("a key, or a bound of a range, has up to {KEY_MAX} bytes; this one has {0}")]
    KeyLength(usize),
    /// A prefix that all keys have, where some are to be deleted.
    #[error("every key begins with the empty prefix: to delete all keys, use `clear`")]
    EmptyPrefix,
    /// A value is too long.
    #[error("a value has at most {VALUE_MAX} bytes; this one has {0}")]
    ValueLength(usize),
    /// A batch is too large to be atomic.
    #[error(
        "a batch has at most {max} bytes of records; this one has {got}: split it, or open the KVDB with a memory \
         budget of 16 times its size (64 MiB at most, with a budget of 1 GiB)"
    )]
    BatchSize {
        /// The size of this one in bytes.
        got: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// There is no KVS of this name.
    #[error("there is no KVS '{0}' in this KVDB; create it first")]
    UnknownKvs(String),
    /// There is a KVS of this name already.
    #[error("the KVDB has a KVS '{0}' already")]
    KvsExists(String),
    /// A KVS name the engine does not take.
    #[error("'{0}' is no name for a KVS: use 1 to {KVS_NAME_MAX} letters, digits, '-', '_' or '.'")]
    KvsName(String),
    /// The KVDB has a staging class already.
    #[error("the KVDB has a staging class already: {0}")]
    StagingExists(String),
    /// The KVDB has no staging class.
    #[error("the KVDB has no staging class; there is nothing to remove")]
    NoStaging,
    /// The other class has no room for the data of this one.
    #[error(
        "what is on the {class} class needs {needed} bytes on the other one, which has room for \
         {room}: delete data, or compact first"
    )]
    NoRoomWithout {
        /// The class that was to be removed.
        class: MediaClass,
        /// How many bytes are needed.
        needed: u64,
        /// How many there are.
        room: u64,
    },
    /// A compaction, or the removal of a class, is under way.
    #[error(
        "the KVDB is being compacted, or a class removed: wait until that has ended, or cancel it"
    )]
    Busy,
    /// Deleted data cannot be erased, because readers that were begun before still read it: how much, and which.
    #[error("{0}, and cannot be erased: end them, and scrub again")]
    Pinned(String),
    /// A device that was taken away is asked for again, and somebody still reads its data.
    #[error(
        "{0}: snapshots, transactions or cursors that were begun before it was removed still read from it: \
         end them first"
    )]
    StillRead(String),
    /// The operation was called off.
    #[error("it was cancelled; what was done until then stays")]
    Cancelled,
    /// A directory that should hold a KVDB does not.
    #[error("{}: there is no KVDB here: {why}", path.display())]
    NotAKvdb {
        /// The directory.
        path: PathBuf,
        /// The missing or wrong part.
        why: String,
    },
    /// The file or block device of a class is not there.
    #[error(
        "{}: the {class} class of the KVDB is missing: bring its file or device back, restore the KVDB from a copy, or \
         salvage the rest with `esker kv repair --old-{class} none`",
        path.display()
    )]
    ClassMissing {
        /// The class.
        class: MediaClass,
        /// Where it was.
        path: PathBuf,
    },
    /// A file or device of the KVDB may be read, and not be written.
    #[error("{0}. To read alone, open the KVDB with `open_read_only`")]
    Unwritable(DeviceError),
    /// A place that should be free is not.
    #[error("{}: {why}", path.display())]
    Exists {
        /// The file, device or directory.
        path: PathBuf,
        /// The obstacle, and the remedy.
        why: String,
    },
    /// An option has a value that cannot work.
    #[error("{0}")]
    Options(String),
    /// The file system refused something that is not device I/O.
    #[error("{}: {message}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The remedy for callers.
        kind: ErrorKind,
        /// The system's words.
        message: String,
        /// The system's error number, if it has one.
        #[source]
        system: Option<SystemError>,
    },
    /// Writes are refused since an earlier failure; reads still work.
    #[error(
        "the KVDB takes no more writes since this happened: {cause}. Reads still work; mend the cause and open it again"
    )]
    Stopped {
        /// The failure that stopped it.
        cause: Arc<KvError>,
    },
    /// Writes to these keys are refused since damage was found there; all other keys and KVSs go on.
    #[error(
        "the KVS '{kvs}', {keys}: read-only since this was found: {cause}. Reads of what is sound and writes to all \
         other keys and KVSs still work"
    )]
    Fenced {
        /// The KVS.
        kvs: String,
        /// Which of its keys, in words.
        keys: String,
        /// The damage.
        cause: Arc<KvError>,
    },
    /// A KVS uses Zstandard, and this build has none.
    #[error(
        "the KVS '{0}' compresses values with Zstandard, and this build of esker-kv is without its feature `zstd`: \
         build it with that"
    )]
    WithoutZstd(String),
    /// The KVDB was opened to be read.
    #[error("the KVDB was opened to be read only: open it without `read_only` to write")]
    ReadOnly,
    /// Someone else has written a key that a transaction wanted to write, since it began.
    #[error(
        "the key '{}' of the KVS '{kvs}' was written since the transaction began: begin it again",
        key.escape_ascii()
    )]
    TransactionConflict {
        /// The KVS.
        kvs: String,
        /// The key.
        key: Vec<u8>,
    },
    /// A transaction was open for too long.
    #[error("the transaction has ended: {0}; begin it again")]
    TransactionExpired(String),
    /// The KVDB was closed.
    #[error("the KVDB is closed: open it again, and take handles of that")]
    Closed,
    /// The KVDB was opened by a process of which this one is a forked child.
    #[error(
        "the process that opened the KVDB was forked, and this is the child: fork first and open the KVDB in the \
         child instead, or in a program that the child starts"
    )]
    Forked,
    /// The process exits; what was acknowledged before is made durable.
    #[error("the process exits")]
    Exiting,
    /// A thread of the KVDB panicked, or work of a caller's thread.
    #[error(
        "{task} panicked: {message}. The KVDB takes no more calls: drop it and open it again, and report this as a \
         bug of Esker or of the device"
    )]
    Panicked {
        /// The thread or the work.
        task: String,
        /// The message of the panic.
        message: String,
    },
    /// A snapshot or transaction is asked for a KVS that was not there yet when it began.
    #[error(
        "the KVS '{0}' was created after this snapshot or transaction began: begin another one to read it"
    )]
    CreatedLater(String),
    /// A KVS was dropped while in use.
    #[error("the KVS '{0}' was dropped: create it again, or open another one")]
    Dropped(String),
}

/// Where a class lies, in words.
fn within(at: &Option<Arc<str>>) -> String {
    at.as_ref().map_or_else(String::new, |at| format!(" in {at}"))
}

/// Remedies of a class that is full.
fn remedy(at: &Option<Arc<str>>) -> String {
    match at {
        Some(at) => format!(
            " in {at}: delete data, or free space on that file system. What is left in the class's file is the reserve, \
             which pays for deletes and for the maintenance that frees"
        ),
        None => ": delete data, or give it a larger device".to_owned(),
    }
}

/// Goes on, or ends with [`KvError::Cancelled`] as an observer of progress wishes.
pub(crate) fn go_on(flow: ControlFlow<()>) -> Result<()> {
    if flow.is_break() { Err(KvError::Cancelled) } else { Ok(()) }
}

impl KvError {
    /// A refusal of the file system.
    pub(crate) fn of_file(path: &Path, error: &std::io::Error) -> KvError {
        let (path, kind) = (path.to_owned(), ErrorKind::from(error));
        KvError::File { path, kind, message: error.to_string(), system: SystemError::of(error) }
    }

    /// Whether a step failed for lack of space alone, so that it has changed nothing: the engine
    /// found no extent, or the device had no room for a write.
    pub(crate) fn lacks_space(&self) -> bool {
        match self {
            KvError::NoSpace { .. }
            | KvError::NoSpaceToDelete { .. }
            | KvError::ManifestFull { .. }
            | KvError::ClassFull { .. } => true,
            KvError::Device(error) => {
                let takes = [OpKind::Write, OpKind::WriteZeroes, OpKind::Discard];
                error.kind() == ErrorKind::NoSpace && takes.contains(&error.op())
            }
            _ => false,
        }
    }

    /// Whether a read has found data damaged or unreadable: nothing else is known to be wrong.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            KvError::Corrupt { .. } => true,
            KvError::Device(error) => error.kind() == ErrorKind::Io && error.op() == OpKind::Read,
            _ => false,
        }
    }

    /// `NoSpace` for a write that only deletes: to be told to delete is of no use to it.
    pub(crate) fn of_deletes(self) -> KvError {
        match self {
            KvError::NoSpace { class, needed, at } => {
                KvError::NoSpaceToDelete { class, needed, at }
            }
            other => other,
        }
    }

    /// The answer to writes after a failure that stopped the KVDB. After a panic reads do not work either.
    pub(crate) fn since(cause: &Arc<KvError>) -> KvError {
        match &**cause {
            panicked @ KvError::Panicked { .. } => panicked.clone(),
            _ => KvError::Stopped { cause: cause.clone() },
        }
    }

    /// Returns the code of the error, on which a program can switch.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            KvError::TransactionConflict { .. } => ErrorCode::TransactionConflict,
            KvError::TransactionExpired(_) => ErrorCode::TransactionExpired,
            KvError::Cancelled => ErrorCode::Cancelled,
            KvError::ReadOnly | KvError::Unwritable(_) | KvError::Fenced { .. } => {
                ErrorCode::ReadOnly
            }
            KvError::ClassMissing { .. } => ErrorCode::ClassMissing,
            KvError::Stopped { .. } => ErrorCode::Stopped,
            KvError::Panicked { .. } => ErrorCode::Panicked,
            KvError::Busy | KvError::Pinned(_) | KvError::StillRead(_) => ErrorCode::Busy,
            _ => match self.kind() {
                ErrorKind::NotFound => ErrorCode::NotFound,
                ErrorKind::Exists => ErrorCode::Exists,
                ErrorKind::Invalid => ErrorCode::Invalid,
                ErrorKind::Unsupported => ErrorCode::Unsupported,
                ErrorKind::NoSpace => ErrorCode::NoSpace,
                ErrorKind::Corrupt => ErrorCode::Damaged,
                ErrorKind::Conflict => ErrorCode::InUse,
                ErrorKind::Retry => ErrorCode::Busy,
                ErrorKind::Closed => ErrorCode::Closed,
                _ => ErrorCode::Io,
            },
        }
    }

    /// Whether the same work may succeed if it is begun again at once: a transaction's, after a conflict, or when it was
    /// open for too long.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.code(), ErrorCode::TransactionConflict | ErrorCode::TransactionExpired)
    }

    /// The class without room, of an error with [`ErrorCode::NoSpace`]; the one that is cut short or missing.
    #[must_use]
    pub fn class(&self) -> Option<MediaClass> {
        match self {
            KvError::NoSpace { class, .. }
            | KvError::ClassFull { class, .. }
            | KvError::NoSpaceToDelete { class, .. }
            | KvError::NoRoomWithout { class, .. }
            | KvError::CutShort { class, .. }
            | KvError::ClassMissing { class, .. } => Some(*class),
            _ => None,
        }
    }

    /// The device or file with damage, and where that begins there, of an error with [`ErrorCode::Damaged`]. Where the
    /// place is not known it is the device's beginning.
    #[must_use]
    pub fn damage(&self) -> Option<(&str, Lba)> {
        match self {
            KvError::Corrupt { device, lba, .. } => Some((device, *lba)),
            KvError::CutShort { device, .. } => Some((device, Lba(0))),
            KvError::Device(error) if error.kind() == ErrorKind::Corrupt => {
                Some((error.device(), error.lba()))
            }
            KvError::Stopped { cause } | KvError::Fenced { cause, .. } => cause.damage(),
            _ => None,
        }
    }

    /// Returns the kind of the error: the remedy for callers, coarser than the code. `Conflict` may be `InUse`, `Busy` or
    /// one of a transaction's codes.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            KvError::Device(error) | KvError::Unwritable(error) => error.kind(),
            KvError::Corrupt { .. } | KvError::CutShort { .. } => ErrorKind::Corrupt,
            KvError::Version { .. } | KvError::WithoutZstd(_) => ErrorKind::Unsupported,
            KvError::NoSpace { .. } | KvError::ManifestFull { .. } | KvError::ClassFull { .. } => {
                ErrorKind::NoSpace
            }
            KvError::KeyLength(_)
            | KvError::EmptyPrefix
            | KvError::ValueLength(_)
            | KvError::BatchSize { .. }
            | KvError::KvsName(_)
            | KvError::ReadOnly
            | KvError::Options(_) => ErrorKind::Invalid,
            KvError::UnknownKvs(_)
            | KvError::CreatedLater(_)
            | KvError::NotAKvdb { .. }
            | KvError::ClassMissing { .. }
            | KvError::NoStaging => ErrorKind::NotFound,
            KvError::NoRoomWithout { .. } | KvError::NoSpaceToDelete { .. } => ErrorKind::NoSpace,
            KvError::KvsExists(_) | KvError::StagingExists(_) | KvError::Exists { .. } => {
                ErrorKind::Exists
            }
            KvError::File { kind, .. } => *kind,
            KvError::Stopped { cause } | KvError::Fenced { cause, .. } => cause.kind(),
            KvError::TransactionConflict { .. }
            | KvError::TransactionExpired(_)
            | KvError::Busy
            | KvError::Pinned(_)
            | KvError::StillRead(_)
            | KvError::Cancelled => ErrorKind::Conflict,
            KvError::Closed
            | KvError::Dropped(_)
            | KvError::Forked
            | KvError::Exiting
            | KvError::Panicked { .. } => ErrorKind::Closed,
        }
    }
}
