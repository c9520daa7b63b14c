//! Errors: a stable number on which a program can switch, and a message for a person.

#![allow(unsafe_code)]

use std::error::Error as _;
use std::ffi::{CString, c_char};

use esker_kv::{ErrorCode, KvError, SystemError};

/// No error: what `esker_error_code` says of NULL.
pub const ESKER_OK: i32 = 0;
/// A device or file system failed; `esker_error_system` has the system's error number.
pub const ESKER_IO: i32 = 1;
/// The KVDB, KVS, file or device named is not there.
pub const ESKER_NOT_FOUND: i32 = 2;
/// It is there already.
pub const ESKER_EXISTS: i32 = 3;
/// An argument, a key, a value, a batch, a name, an option or a place cannot be.
pub const ESKER_INVALID: i32 = 4;
/// This build, device or file system cannot do it.
pub const ESKER_UNSUPPORTED: i32 = 5;
/// A class or its file system is full.
pub const ESKER_NO_SPACE: i32 = 6;
/// A medium returned other data than was written.
pub const ESKER_DAMAGED: i32 = 7;
/// The KVDB, or these keys of it, take no writes.
pub const ESKER_READ_ONLY: i32 = 8;
/// Someone else wrote a key of the transaction since it began: begin it again, which may succeed at once.
pub const ESKER_TRANSACTION_CONFLICT: i32 = 9;
/// The transaction was open for too long: begin it again.
pub const ESKER_TRANSACTION_EXPIRED: i32 = 10;
/// Work or readers of this process, or another thread with this handle, have to end first: try again then.
pub const ESKER_BUSY: i32 = 11;
/// Another process, or another opening in this one, has the KVDB or a device of it: nothing was opened.
pub const ESKER_IN_USE: i32 = 12;
/// The work was called off.
pub const ESKER_CANCELLED: i32 = 13;
/// The KVDB is closed, the KVS dropped, the transaction ended, or this is a forked child.
pub const ESKER_CLOSED: i32 = 14;
/// An earlier failure stopped writes: open the KVDB again.
pub const ESKER_STOPPED: i32 = 15;
/// A thread of the engine panicked, or this call did.
pub const ESKER_PANICKED: i32 = 16;
/// The KVDB is there, and the file or block device of one of its classes is not. A new KVDB is no remedy.
pub const ESKER_CLASS_MISSING: i32 = 17;

// The engine's codes have the same numbers.
const _: () = {
    assert!(ErrorCode::Io as i32 == ESKER_IO);
    assert!(ErrorCode::NotFound as i32 == ESKER_NOT_FOUND);
    assert!(ErrorCode::Exists as i32 == ESKER_EXISTS);
    assert!(ErrorCode::Invalid as i32 == ESKER_INVALID);
    assert!(ErrorCode::Unsupported as i32 == ESKER_UNSUPPORTED);
    assert!(ErrorCode::NoSpace as i32 == ESKER_NO_SPACE);
    assert!(ErrorCode::Damaged as i32 == ESKER_DAMAGED);
    assert!(ErrorCode::ReadOnly as i32 == ESKER_READ_ONLY);
    assert!(ErrorCode::TransactionConflict as i32 == ESKER_TRANSACTION_CONFLICT);
    assert!(ErrorCode::TransactionExpired as i32 == ESKER_TRANSACTION_EXPIRED);
    assert!(ErrorCode::Busy as i32 == ESKER_BUSY);
    assert!(ErrorCode::InUse as i32 == ESKER_IN_USE);
    assert!(ErrorCode::Cancelled as i32 == ESKER_CANCELLED);
    assert!(ErrorCode::Closed as i32 == ESKER_CLOSED);
    assert!(ErrorCode::Stopped as i32 == ESKER_STOPPED);
    assert!(ErrorCode::Panicked as i32 == ESKER_PANICKED);
    assert!(ErrorCode::ClassMissing as i32 == ESKER_CLASS_MISSING);
};

/// The result of a call: NULL when it succeeded. Else the caller owns it, and frees it with `esker_error_free`.
pub struct Error {
    code: i32,
    system: i32,
    message: CString,
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(code: i32, message: &str) -> Error {
        // Messages may quote names, and C ends a text at its first zero.
        let text = message.replace('\0', "\u{fffd}");
        Error { code, system: 0, message: CString::new(text).unwrap_or_default() }
    }

    pub(crate) fn invalid(message: &str) -> Error {
        Error::new(ESKER_INVALID, message)
    }

    pub(crate) fn again(&self) -> Error {
        Error { code: self.code, system: self.system, message: self.message.clone() }
    }
}

impl From<KvError> for Error {
    #[cold]
    fn from(error: KvError) -> Error {
        let mut made = Error::new(error.code() as i32, &error.to_string());
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(system) = cause.downcast_ref::<SystemError>() {
                made.system = system.0;
            }
            source = cause.source();
        }
        made
    }
}

/// The number of an error, one of `ESKER_…`; `ESKER_OK` for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_error_code(error: *const Error) -> i32 {
    // SAFETY: null, or an error that the caller owns.
    unsafe { error.as_ref() }.map_or(ESKER_OK, |error| error.code)
}

/// The message of an error, which says what happened, to which file or key, and what to do. It belongs to the error.
/// "no error" for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_error_message(error: *const Error) -> *const c_char {
    // SAFETY: null, or an error that the caller owns.
    unsafe { error.as_ref() }.map_or(c"no error".as_ptr(), |error| error.message.as_ptr())
}

/// The system's error number (`errno`) behind an error; 0 where there is none, and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_error_system(error: *const Error) -> i32 {
    // SAFETY: null, or an error that the caller owns.
    unsafe { error.as_ref() }.map_or(0, |error| error.system)
}

/// Frees an error. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_error_free(error: *mut Error) {
    if !error.is_null() {
        // SAFETY: made by `border`, and the caller gives it up.
        drop(unsafe { Box::from_raw(error) });
    }
}
