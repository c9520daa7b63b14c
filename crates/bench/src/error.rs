//! Why a run did not give a result: which operation, on which key, in which thread.

use esker_base::ErrorKind;
use thiserror::Error;

use crate::operation::OperationKind;
use crate::store::BoxError;
use crate::value::Mismatch;

/// An error of the laboratory or of the store under test.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The workload, the data set or the options cannot be run.
    #[error("{0}")]
    Invalid(String),
    /// The operating system had no thread to give.
    #[error("worker {worker} could not be started: {cause}; use fewer threads")]
    Thread {
        /// Which worker, from 0.
        worker: usize,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The store gave no session.
    #[error("the store opened no session for worker {worker}: {cause}")]
    Session {
        /// Which worker, from 0.
        worker: usize,
        /// The store's error.
        cause: BoxError,
    },
    /// An operation failed.
    #[error(
        "{operation} of key '{key}' failed in worker {worker}: {cause}; \
         the run stopped there (errors can be counted instead)"
    )]
    Operation {
        /// The operation.
        operation: OperationKind,
        /// The key, with bytes that are not printable escaped.
        key: String,
        /// Which worker, from 0.
        worker: usize,
        /// The store's error.
        cause: BoxError,
    },
    /// A read or scan returned a value that was never written under its key.
    #[error(
        "{operation} of key '{key}' in worker {worker} returned a wrong value: {cause}; \
         the store lost, mixed up or damaged data, or holds those of another data set"
    )]
    WrongValue {
        /// The operation.
        operation: OperationKind,
        /// The key, with bytes that are not printable escaped.
        key: String,
        /// Which worker, from 0.
        worker: usize,
        /// The difference.
        cause: Mismatch,
    },
    /// A scan returned keys out of order or before its start.
    #[error(
        "scan from key '{start}' in worker {worker} returned key '{key}' out of order; \
         a scan visits ascending keys from its start"
    )]
    ScanOrder {
        /// The start asked for.
        start: String,
        /// The offending key.
        key: String,
        /// Which worker, from 0.
        worker: usize,
    },
    /// The store could not make its writes durable after a run.
    #[error("the sync after workload '{workload}' failed: {cause}")]
    Sync {
        /// The run's workload.
        workload: String,
        /// The store's error.
        cause: BoxError,
    },
    /// The store panicked.
    #[error("worker {worker} panicked: {message}; this is a defect of the store under test")]
    Panicked {
        /// Which worker, from 0.
        worker: usize,
        /// The panic's message.
        message: String,
    },
}

impl BenchError {
    pub(crate) fn invalid(why: impl Into<String>) -> BenchError {
        BenchError::Invalid(why.into())
    }

    /// Returns the remedy for callers. The kind of a store's own error is known to the store only:
    /// see [`BenchError::store_error`].
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            BenchError::Invalid(_) => ErrorKind::Invalid,
            BenchError::Thread { cause, .. } => ErrorKind::from(cause),
            BenchError::WrongValue { .. } | BenchError::ScanOrder { .. } => ErrorKind::Corrupt,
            BenchError::Session { .. }
            | BenchError::Operation { .. }
            | BenchError::Sync { .. }
            | BenchError::Panicked { .. } => ErrorKind::Io,
        }
    }

    /// The store's error inside this one, to be downcast to the store's type.
    #[must_use]
    pub fn store_error(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        match self {
            BenchError::Session { cause, .. }
            | BenchError::Operation { cause, .. }
            | BenchError::Sync { cause, .. } => Some(cause.as_ref()),
            _ => None,
        }
    }
}

/// A key as a message shows it.
pub(crate) fn printable(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}
