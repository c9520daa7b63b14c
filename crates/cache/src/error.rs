//! Errors of the cache.

use esker_base::ErrorKind;
use thiserror::Error;

/// Why the cache could not do what it was asked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The parameters are wrong; the message says what is right.
    #[error("{0}")]
    Invalid(String),
    /// The operating system has no thread to give.
    #[error("a thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

impl CacheError {
    /// What a caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            CacheError::Invalid(_) => ErrorKind::Invalid,
            CacheError::Thread(error) => ErrorKind::from(error),
        }
    }
}
