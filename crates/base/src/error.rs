//! Kinds of error, by the remedy for callers. NVMe status codes, exit codes and the exceptions of the
//! bindings are tables over this one enumeration.

use std::fmt;

/// The kinds of error, by the remedy for callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Try the same call again later.
    Retry,
    /// Free or add space, then try again.
    NoSpace,
    /// The call's arguments are wrong: correct them.
    Invalid,
    /// The thing named does not exist.
    NotFound,
    /// The thing named exists already.
    Exists,
    /// This device, format or build cannot do it.
    Unsupported,
    /// A medium returned other data than was written: restore from a copy.
    Corrupt,
    /// Someone else holds or changed it.
    Conflict,
    /// It was closed, or has stopped accepting this kind of call.
    Closed,
    /// The device failed.
    Io,
}

impl ErrorKind {
    /// The process exit code for this kind (BSD `sysexits.h` where one fits).
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            ErrorKind::Invalid => 64,
            ErrorKind::Corrupt => 65,
            ErrorKind::NotFound => 66,
            ErrorKind::Unsupported => 69,
            ErrorKind::Exists | ErrorKind::NoSpace => 73,
            ErrorKind::Io => 74,
            ErrorKind::Retry | ErrorKind::Closed => 75,
            ErrorKind::Conflict => 77,
        }
    }
}

impl From<&std::io::Error> for ErrorKind {
    fn from(error: &std::io::Error) -> ErrorKind {
        use std::io::ErrorKind as Io;
        match error.kind() {
            // A way with a file or a circle in it leads to nothing.
            Io::NotFound | Io::NotADirectory => ErrorKind::NotFound,
            _ if error.raw_os_error() == Some(libc::ELOOP) => ErrorKind::NotFound,
            Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => ErrorKind::NoSpace,
            Io::AlreadyExists => ErrorKind::Exists,
            Io::InvalidInput | Io::InvalidFilename | Io::IsADirectory => ErrorKind::Invalid,
            Io::Unsupported => ErrorKind::Unsupported,
            Io::Interrupted | Io::WouldBlock => ErrorKind::Retry,
            Io::ResourceBusy => ErrorKind::Conflict,
            _ => ErrorKind::Io,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Retry => "retry",
            ErrorKind::NoSpace => "no space",
            ErrorKind::Invalid => "invalid",
            ErrorKind::NotFound => "not found",
            ErrorKind::Exists => "exists",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Closed => "closed",
            ErrorKind::Io => "io",
        })
    }
}
