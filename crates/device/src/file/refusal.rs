//! Why a file cannot be opened.

use std::io;

use esker_base::ErrorKind;

/// Remedy for callers, and a sentence.
pub(super) type Refusal = (ErrorKind, String);

pub(super) fn os_refusal(error: &io::Error) -> Refusal {
    (ErrorKind::from(error), error.to_string())
}
