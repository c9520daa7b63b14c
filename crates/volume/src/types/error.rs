//! Errors of the pool: the problem, its object, and the remedy.

use esker_base::ErrorKind;
use esker_device::{DeviceError, Occupant};
use thiserror::Error;

use crate::types::id::{Block, DriveIndex, DriveUuid, PoolUuid};

/// Why the pool could not serve a request.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The arguments are wrong; the message says the right form.
    #[error("{0}")]
    Invalid(String),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device is someone's.
    #[error(
        "{device}: it holds {} already, at byte {}; choose another device, or say that its content may be lost",
        found.what, found.offset
    )]
    Occupied {
        /// The device.
        device: String,
        /// The owner that was found there.
        found: Occupant,
    },
    /// The device belongs to a pool already.
    #[error(
        "{device}: it belongs to pool '{name}' ({pool}); remove it there first, or say that its content may be lost"
    )]
    Member {
        /// The device.
        device: String,
        /// The pool's name.
        name: String,
        /// The pool.
        pool: PoolUuid,
    },
    /// No label of a pool is on the device.
    #[error("{device}: no label of a pool is on it ({why}); name the pool's own drives")]
    NoLabel {
        /// The device.
        device: String,
        /// The thing that is there instead.
        why: String,
    },
    /// The device belongs to another pool than the others.
    #[error(
        "{device}: it belongs to pool '{other}', the devices before it to pool '{name}'; open one pool at a time"
    )]
    Foreign {
        /// The device.
        device: String,
        /// The pool of this device.
        other: String,
        /// The pool of the others.
        name: String,
    },
    /// Two devices say that they are the same drive.
    #[error("{first} and {second} are both drive {drive}: one is a copy; take one of them away")]
    Duplicate {
        /// One of them.
        first: String,
        /// The other.
        second: String,
        /// The drive that both say they are.
        drive: DriveUuid,
    },
    /// Fewer drives are there than are needed.
    #[error("pool '{pool}': {present} of {voters} drives are there; {why}. Missing: {missing}")]
    NoQuorum {
        /// The pool's name.
        pool: String,
        /// How many are there and current.
        present: usize,
        /// How many there should be.
        voters: usize,
        /// The rule that is not met, and the remedy.
        why: String,
        /// Which are not there.
        missing: String,
    },
    /// Drives are missing that were not missing before.
    #[error(
        "pool '{pool}': missing: {missing}; name all of its devices, or open with `degraded` (--degraded): what a missing drive has is \
         computed from parities until it returns"
    )]
    DrivesMissing {
        /// The pool's name.
        pool: String,
        /// Which, and why those are not used that were named.
        missing: String,
    },
    /// No device with the write buffer is there.
    #[error(
        "pool '{pool}': no device with the write buffer is there, and it holds acknowledged writes up to {what}; bring back {missing}, \
         or open with `lose_buffer` (--lose-buffer) to go back to the last checkpoint"
    )]
    BufferLost {
        /// The pool's name.
        pool: String,
        /// The records that are lost without it.
        what: String,
        /// Which devices had it.
        missing: String,
    },
    /// Records of the write buffer that were acknowledged are on none of its copies any more.
    #[error(
        "pool '{pool}': acknowledged writes at the end of the write buffer are lost on every copy: {why}; bring back a copy that has \
         them, restore from a backup, or open with `lose_buffer` (--lose-buffer) to go on without them"
    )]
    BufferDamaged {
        /// The pool's name.
        pool: String,
        /// Which frames, and how it shows.
        why: String,
    },
    /// A structure on a medium is damaged beyond repair by parity.
    #[error("pool '{pool}': {what} is damaged on every copy ({why}); restore from a backup")]
    Damaged {
        /// The pool's name.
        pool: String,
        /// Which structure.
        what: String,
        /// How it shows.
        why: String,
    },
    /// The content of a block is lost: more chunks are bad than there are parities.
    #[error(
        "volume '{volume}': {block} cannot be read: {why}; restore it from a snapshot or a backup"
    )]
    Lost {
        /// The volume's name.
        volume: String,
        /// Which block.
        block: Block,
        /// The act that was tried.
        why: String,
    },
    /// There is no room.
    #[error("pool '{pool}' is full: {what}; delete volumes or snapshots, discard, or add a drive")]
    NoSpace {
        /// The pool's name.
        pool: String,
        /// The thing that did not fit.
        what: String,
    },
    /// A drive cannot be taken out: what is stored does not fit the others.
    #[error(
        "pool '{pool}': {drive} cannot be taken out: volumes hold {stored} bytes as they are stored, and the drives that would be left \
         have room for {room}, with parities, the spare and what is kept for cleaning counted off; {cure}"
    )]
    NoRoomElsewhere {
        /// The pool's name.
        pool: String,
        /// The drive.
        drive: DriveIndex,
        /// Bytes of blocks, as they are stored.
        stored: u64,
        /// Bytes of blocks that the other drives can hold.
        room: u64,
        /// The size of the drive to add, and how much to delete.
        cure: String,
    },
    /// The thing named exists already.
    #[error("{what} '{name}' exists already; choose another name")]
    Exists {
        /// A volume or a snapshot.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The thing named does not exist.
    #[error("there is no {what} '{name}' in this pool{}", cure(what, hint))]
    NotFound {
        /// A volume, a snapshot or a drive.
        what: &'static str,
        /// Its name.
        name: String,
        /// A hint, after a colon; where it is empty, the message says which command lists what there is.
        hint: &'static str,
    },
    /// Something stands in the way.
    #[error("{0}")]
    Conflict(String),
    /// The pool has stopped accepting writes.
    #[error("pool '{pool}' accepts no writes: {why}; reopen it when that is mended")]
    Stopped {
        /// The pool's name.
        pool: String,
        /// Why.
        why: String,
    },
    /// A thread panicked in the middle of a change of the pool's state.
    #[error(
        "pool '{pool}' is stopped: {why}; open or serve it anew, by which nothing is lost that was acknowledged, and report the panic"
    )]
    Failed {
        /// The pool's name.
        pool: String,
        /// The panic.
        why: String,
    },
    /// The pool was closed.
    #[error("pool '{0}' is closed")]
    Closed(String),
    /// The operating system has no thread to give.
    #[error("a thread could not be started: {0}")]
    Thread(String),
}

/// The hint of a thing that does not exist, or the command that lists what there is.
fn cure(what: &str, hint: &'static str) -> &'static str {
    match what {
        _ if !hint.is_empty() => hint,
        "drive" => ": `esker pool status` shows its drives",
        "snapshot" => ": `esker volume show` shows a volume's snapshots",
        _ => ": `esker volume list` shows its volumes",
    }
}

impl VolumeError {
    /// The class of the error: how a caller can react.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            VolumeError::Invalid(_) => ErrorKind::Invalid,
            VolumeError::Device(error) => error.kind(),
            VolumeError::Occupied { .. }
            | VolumeError::Member { .. }
            | VolumeError::Exists { .. } => ErrorKind::Exists,
            VolumeError::NoLabel { .. } | VolumeError::NotFound { .. } => ErrorKind::NotFound,
            VolumeError::Foreign { .. } | VolumeError::Duplicate { .. } => ErrorKind::Invalid,
            VolumeError::NoQuorum { .. }
            | VolumeError::DrivesMissing { .. }
            | VolumeError::BufferLost { .. } => ErrorKind::NotFound,
            VolumeError::Damaged { .. }
            | VolumeError::BufferDamaged { .. }
            | VolumeError::Lost { .. } => ErrorKind::Corrupt,
            VolumeError::NoSpace { .. } | VolumeError::NoRoomElsewhere { .. } => ErrorKind::NoSpace,
            VolumeError::Conflict(_) => ErrorKind::Conflict,
            VolumeError::Stopped { .. } | VolumeError::Failed { .. } | VolumeError::Closed(_) => {
                ErrorKind::Closed
            }
            VolumeError::Thread(_) => ErrorKind::Retry,
        }
    }
}
