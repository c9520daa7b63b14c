//! Errors: the operation that failed, its subject, and the remedy.

use std::path::{Path, PathBuf};

use esker_base::ErrorKind;
use esker_device::DeviceError;
use rustix::io::Errno;
use thiserror::Error;

/// Why a device could not be attached or detached.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The operating system refused.
    #[error("{}: {what} failed: {errno}; {advice}", path.display())]
    Os {
        /// The operation that failed.
        what: &'static str,
        /// The path that it was for.
        path: PathBuf,
        /// The system's answer.
        errno: Errno,
        /// The remedy.
        advice: &'static str,
    },
    /// This machine or user cannot mount.
    #[error("{}: {why}", path.display())]
    Unsupported {
        /// Where it was to be mounted, or the device node.
        path: PathBuf,
        /// The thing that is missing, and the remedy.
        why: String,
    },
    /// The mount point is no directory, or something is there already.
    #[error("{}: {why}", path.display())]
    Invalid {
        /// The mount point.
        path: PathBuf,
        /// The problem, and the right form.
        why: String,
    },
    /// Nothing of Esker's is attached there.
    #[error("{}: no device is attached here; `findmnt -t fuse.esker` lists those that are", .0.display())]
    NotAttached(PathBuf),
    /// Somebody uses it.
    #[error("{}: {why}", path.display())]
    Busy {
        /// The mount point or the loop device.
        path: PathBuf,
        /// The holder, and the remedy.
        why: String,
    },
    /// A thread that served it has panicked, which is a defect.
    #[error(
        "{}: a thread that served it panicked: {message}; what it had not answered has failed, and \
         it is detached; report it",
        mount_point.display()
    )]
    Panicked {
        /// Where it was mounted.
        mount_point: PathBuf,
        /// The message of the thread's panic.
        message: String,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl AttachError {
    pub(crate) fn os(
        what: &'static str,
        path: impl AsRef<Path>,
        errno: Errno,
        advice: &'static str,
    ) -> AttachError {
        AttachError::Os { what, path: path.as_ref().to_owned(), errno, advice }
    }

    /// The remedy for callers.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            AttachError::Os { errno, .. } => ErrorKind::from(&std::io::Error::from(*errno)),
            AttachError::Unsupported { .. } => ErrorKind::Unsupported,
            AttachError::Invalid { .. } => ErrorKind::Invalid,
            AttachError::NotAttached(_) => ErrorKind::NotFound,
            AttachError::Busy { .. } => ErrorKind::Conflict,
            AttachError::Panicked { .. } => ErrorKind::Io,
            AttachError::Device(error) => error.kind(),
        }
    }
}
