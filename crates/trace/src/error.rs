//! Errors of traces.

use std::fmt;
use std::io;
use std::path::Path;

use esker_base::ErrorKind;
use esker_base::units::human_bytes;
use thiserror::Error;

use crate::format::Format;

/// A place in a file that is read from its beginning, decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line, the first one is 1.
    Line(u64),
    /// A byte, the first one is 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// Why a trace could not be read, written or recorded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A file could not be opened, read or written.
    #[error("{path}: {doing} failed: {source}")]
    File {
        /// The file.
        path: String,
        /// The operation that failed.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The content is not as its format asks.
    #[error("{path}, {place}: {what} (read as {format}; if it is another format, name that one)")]
    Malformed {
        /// The file.
        path: String,
        /// Where in it.
        place: Place,
        /// The problem.
        what: String,
        /// The name of the format it was read as.
        format: &'static str,
    },
    /// The content looks like no format, or like more than one.
    #[error(
        "{path}: no known format of a trace ({}): {what}; name the format if you know it",
        Format::list()
    )]
    Undetected {
        /// The file.
        path: String,
        /// The findings.
        what: String,
    },
    /// A chunk of a trace in the compact format is damaged.
    #[error("{path}, byte {offset}: {what}; restore the file from a copy")]
    Damaged {
        /// The file.
        path: String,
        /// The chunk's first byte.
        offset: u64,
        /// The problem.
        what: String,
    },
    /// A file is there where a new one is to be made.
    #[error("{path}: there is a file already; append to it or replace it, or name another one")]
    Exists {
        /// The file.
        path: String,
    },
    /// The options make no sense; the message says which do.
    #[error("{0}")]
    Invalid(String),
    /// Something that is needed is not there.
    #[error("{0}")]
    NotFound(String),
    /// This machine or this build cannot do it.
    #[error("{0}")]
    Unsupported(String),
    /// Someone else uses it.
    #[error("{0}")]
    Conflict(String),
    /// The state that exact figures need does not fit in memory.
    #[error(
        "exact figures of this trace need more than the memory that is left: {} for the {blocks} blocks so far; take a \
         sample of the blocks (--sample, --sampled), or a part of the trace",
        human_bytes(*bytes)
    )]
    Memory {
        /// The different blocks so far.
        blocks: u64,
        /// Bytes that they would take with those to come next.
        bytes: u64,
    },
}

impl TraceError {
    /// The remedy for callers.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            TraceError::File { source, .. } => match source.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
                _ => ErrorKind::from(source),
            },
            TraceError::Malformed { .. }
            | TraceError::Undetected { .. }
            | TraceError::Damaged { .. } => ErrorKind::Corrupt,
            TraceError::Exists { .. } => ErrorKind::Exists,
            TraceError::Invalid(_) => ErrorKind::Invalid,
            TraceError::NotFound(_) => ErrorKind::NotFound,
            TraceError::Unsupported(_) => ErrorKind::Unsupported,
            TraceError::Conflict(_) => ErrorKind::Conflict,
            TraceError::Memory { .. } => ErrorKind::NoSpace,
        }
    }

    /// A file is at `path` already.
    #[must_use]
    pub fn exists(path: &Path) -> TraceError {
        TraceError::Exists { path: path.display().to_string() }
    }

    pub(crate) fn file(path: &Path, doing: &'static str, source: io::Error) -> TraceError {
        TraceError::File { path: path.display().to_string(), doing, source }
    }
}

/// The result of working with traces.
pub type Result<T, E = TraceError> = std::result::Result<T, E>;
