//! An error that ends the program, as a sentence that says what to do.

use std::io;
use std::path::Path;

use thiserror::Error;

/// Why the program ends.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct Failure(String);

/// What most of the program returns.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(why: impl Into<String>) -> Failure {
        Failure(why.into())
    }

    /// A file or directory with which something went wrong.
    pub(crate) fn at(path: &Path, what: &str, cause: &io::Error) -> Failure {
        Failure(format!("cannot {what} {}: {cause}", path.display()))
    }
}
