//! The engine's errors as those of JavaScript. `code` is the name that `abstract-level` or `classic-level` has for it;
//! where they have none, that of `esker.h`.

use esker_kv::{ErrorCode, KvError};

/// An error of JavaScript with a code.
pub(crate) type JsError = napi::Error<String>;

/// The code of an error.
fn code(error: &KvError) -> &'static str {
    match error {
        KvError::KeyLength(_) => return "LEVEL_INVALID_KEY",
        KvError::ValueLength(_) => return "LEVEL_INVALID_VALUE",
        _ => {}
    }
    match error.code() {
        ErrorCode::Io => "LEVEL_IO_ERROR",
        ErrorCode::NotFound => "ESKER_NOT_FOUND",
        ErrorCode::Exists => "ESKER_EXISTS",
        ErrorCode::Invalid => "ESKER_INVALID",
        ErrorCode::Unsupported => "ESKER_UNSUPPORTED",
        ErrorCode::NoSpace => "ESKER_NO_SPACE",
        ErrorCode::Damaged => "LEVEL_CORRUPTION",
        ErrorCode::ReadOnly => "ESKER_READ_ONLY",
        ErrorCode::Busy => "ESKER_BUSY",
        ErrorCode::InUse => "LEVEL_LOCKED",
        ErrorCode::Cancelled => "LEVEL_ABORTED",
        ErrorCode::Closed => "LEVEL_DATABASE_NOT_OPEN",
        ErrorCode::Stopped => "ESKER_STOPPED",
        ErrorCode::ClassMissing => "ESKER_CLASS_MISSING",
        _ => "ESKER_PANICKED",
    }
}

/// The error of JavaScript for one of the engine.
pub(crate) fn of(error: &KvError) -> JsError {
    napi::Error::new(code(error).to_owned(), error.to_string())
}

/// The error of a panic.
pub(crate) fn panicked() -> JsError {
    let why =
        "a call panicked: close the database and open it again, and report this as a bug of Esker";
    napi::Error::new("ESKER_PANICKED".to_owned(), why)
}
