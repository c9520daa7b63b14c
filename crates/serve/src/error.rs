//! Errors: the problem, its object, and the remedy.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use esker_base::ErrorKind;
use esker_nvmf::NvmfError;
use esker_stack::StackError;
use esker_volume::VolumeError;
use thiserror::Error;

/// The result of what a process that serves does.
pub type Result<T = (), E = ServeError> = std::result::Result<T, E>;

/// Why something is not served, or a request was refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An option, a configuration or a request cannot be met.
    #[error("{why}")]
    Refused {
        /// The remedy for callers.
        kind: ErrorKind,
        /// The problem, its object, and the remedy.
        why: String,
    },
    /// An address cannot be had.
    #[error("{address}: {cause}; choose another address with {flag}")]
    Address {
        /// Which.
        address: SocketAddr,
        /// The system's refusal.
        cause: io::Error,
        /// The option that named it.
        flag: &'static str,
    },
    /// The file system refused something.
    #[error("{}: {cause}; {advice}", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// The refusal.
        cause: io::Error,
        /// The remedy.
        advice: String,
    },
    /// A device could not be opened.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The pool refused.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The target refused, or a key cannot be used.
    #[error(transparent)]
    Nvmf(#[from] NvmfError),
}

impl ServeError {
    pub(crate) fn new(kind: ErrorKind, why: impl Into<String>) -> ServeError {
        ServeError::Refused { kind, why: why.into() }
    }

    pub(crate) fn invalid(why: impl Into<String>) -> ServeError {
        ServeError::new(ErrorKind::Invalid, why)
    }

    pub(crate) fn file(path: &Path, cause: io::Error, advice: &str) -> ServeError {
        ServeError::File { path: path.to_owned(), cause, advice: advice.to_owned() }
    }

    /// Returns the remedy for callers.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            ServeError::Refused { kind, .. } => *kind,
            ServeError::Address { .. } => ErrorKind::Conflict,
            ServeError::File { cause, .. } => ErrorKind::from(cause),
            ServeError::Stack(error) => error.kind(),
            ServeError::Volume(error) => error.kind(),
            ServeError::Nvmf(error) => error.kind(),
        }
    }
}
