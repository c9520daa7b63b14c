//! Errors: which specification, and the remedy.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use esker_base::ErrorKind;
use esker_cache::CacheError;
use esker_device::DeviceError;
use esker_flash::FlashError;
use esker_nvmf::NvmfError;
use esker_trace::TraceError;
use esker_volume::VolumeError;
use thiserror::Error;

/// Why a specification could not be read or opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StackError {
    /// The text is no specification; `why` says the right form.
    #[error("'{text}': {why}")]
    Syntax {
        /// The text.
        text: String,
        /// The problem, and the remedy.
        why: String,
    },
    /// It is a specification, but one that cannot be met.
    #[error("{spec}: {why}")]
    Invalid {
        /// The specification.
        spec: String,
        /// The problem, and the remedy.
        why: String,
    },
    /// It says something else than the drive that is there.
    #[error("{spec}: the drive that is there {why}; say what it has, or name another")]
    Contradiction {
        /// The specification.
        spec: String,
        /// The drive's value, and the value asked for.
        why: String,
    },
    /// There must be an image, and there is none.
    #[error("{}: there is no image here; check the path, or create it with `{create}`", path.display())]
    NotFound {
        /// Where.
        path: PathBuf,
        /// The command that creates it.
        create: String,
    },
    /// There must be a file, and there is none.
    #[error("{}: there is no such file; check the path, or create it with `truncate -s {} '{}'`",
        path.display(), bytes.map_or_else(|| "8G".to_owned(), |bytes| bytes.to_string()), path.display())]
    NoFile {
        /// Where.
        path: PathBuf,
        /// How large it is said to be.
        bytes: Option<u64>,
    },
    /// Devices of a cache are not there.
    #[error("{spec}: {why}")]
    Incomplete {
        /// The specification.
        spec: String,
        /// The missing part, and the remedy.
        why: String,
    },
    /// There must not be an image, and there is something.
    #[error("{}: there is something already; choose another path, or remove it", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// A model refused, or found its image damaged.
    #[error("{spec}: {cause}")]
    Flash {
        /// The specification.
        spec: String,
        /// Why.
        cause: FlashError,
    },
    /// A remote namespace could not be reached or used.
    #[error("{spec}: {cause}")]
    Remote {
        /// The specification.
        spec: String,
        /// Why.
        cause: NvmfError,
    },
    /// The file of a trace could not be made.
    #[error("{spec}: {cause}")]
    Trace {
        /// The specification.
        spec: String,
        /// Why.
        cause: String,
        /// The remedy for callers.
        kind: ErrorKind,
    },
    /// A cache could not be made or opened.
    #[error("{spec}: {cause}")]
    Cache {
        /// The specification.
        spec: String,
        /// Why.
        cause: String,
        /// The remedy for callers.
        kind: ErrorKind,
    },
    /// A pool could not be opened, or has no such volume.
    #[error("{spec}: {cause}")]
    Volume {
        /// The specification.
        spec: String,
        /// Why.
        cause: String,
        /// The remedy for callers.
        kind: ErrorKind,
    },
    /// A file that is to be made says nowhere how large it is to be.
    #[error("{}: there is no such file; name a file that exists, or its size: 'file:{}?capacity=8GiB'",
        path.display(), path.display())]
    NoSize {
        /// Where.
        path: PathBuf,
    },
    /// A device failed to open.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl StackError {
    pub(crate) fn invalid(spec: impl Display, why: String) -> StackError {
        StackError::Invalid { spec: spec.to_string(), why }
    }

    pub(crate) fn contradiction(spec: impl Display, why: String) -> StackError {
        StackError::Contradiction { spec: spec.to_string(), why }
    }

    pub(crate) fn flash(spec: impl Display, cause: FlashError) -> StackError {
        StackError::Flash { spec: spec.to_string(), cause }
    }

    pub(crate) fn remote(spec: impl Display, cause: NvmfError) -> StackError {
        StackError::Remote { spec: spec.to_string(), cause }
    }

    /// The failure of a specification whose trace goes `to` a file, which it names once.
    pub(crate) fn trace(spec: impl Display, to: &Path, cause: &TraceError) -> StackError {
        let keys = match cause {
            TraceError::Exists { .. } => " (if-exists=append, if-exists=replace)",
            _ => "",
        };
        let whole = format!("{cause}{keys}");
        let cause_text = whole.strip_prefix(&format!("{}: ", to.display())).unwrap_or(&whole);
        let cause_text = cause_text.to_owned();
        StackError::Trace { spec: spec.to_string(), cause: cause_text, kind: cause.kind() }
    }

    pub(crate) fn cache(spec: impl Display, cause: &CacheError) -> StackError {
        StackError::Cache { spec: spec.to_string(), cause: cause.to_string(), kind: cause.kind() }
    }

    pub(crate) fn volume(spec: impl Display, cause: &VolumeError) -> StackError {
        StackError::Volume { spec: spec.to_string(), cause: cause.to_string(), kind: cause.kind() }
    }

    /// Returns the remedy for callers.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            StackError::Syntax { .. }
            | StackError::Invalid { .. }
            | StackError::Contradiction { .. } => ErrorKind::Invalid,
            StackError::NotFound { .. }
            | StackError::NoFile { .. }
            | StackError::NoSize { .. }
            | StackError::Incomplete { .. } => ErrorKind::NotFound,
            StackError::Exists { .. } => ErrorKind::Exists,
            StackError::Flash { cause, .. } => cause.kind(),
            StackError::Remote { cause, .. } => cause.kind(),
            StackError::Trace { kind, .. }
            | StackError::Cache { kind, .. }
            | StackError::Volume { kind, .. } => *kind,
            StackError::Device(error) => error.kind(),
        }
    }
}
