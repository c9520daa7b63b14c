//! An error that ends the program, as a sentence that names the remedy.

use std::io;
use std::path::Path;

use thiserror::Error;

/// Why the program ends.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct Failure(String);

/// Result of most of the program.
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
