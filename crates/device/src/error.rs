//! Device errors: which device, which operation, which address, and why.

use std::fmt;

use esker_base::{ErrorKind, Lba};
use thiserror::Error;

use crate::op_kind::OpKind;

/// An error of a device. One pointer in size, so that results stay small. Its
/// [`source`](std::error::Error::source) is the [`SystemError`], where there was one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError(Box<Detail>);

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.system.as_ref().map(|system| system as _)
    }
}

/// An error number of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}", std::io::Error::from_raw_os_error(self.0))]
pub struct SystemError(pub i32);

impl SystemError {
    /// The number in `error`, if it has one.
    #[must_use]
    pub fn of(error: &std::io::Error) -> Option<SystemError> {
        error.raw_os_error().map(SystemError)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Detail {
    device: String,
    op: OpKind,
    lba: Lba,
    bytes: u64,
    cause: Cause,
    system: Option<SystemError>,
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Detail { device, op, lba, bytes, cause, system: _ } = self;
        match op {
            OpKind::Open | OpKind::Flush => write!(f, "{device}: {op} failed: {cause}"),
            _ => write!(f, "{device}: {op} of {bytes} bytes at {lba} failed: {cause}"),
        }
    }
}

/// The most commands that a queue pair holds: the limit of one ring of `io_uring`.
pub const MAX_DEPTH: usize = 32_768;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Cause {
    /// The operating system refused.
    #[error("{message}")]
    Os {
        /// The remedy for callers.
        kind: ErrorKind,
        /// The system's words, with the error number.
        message: String,
    },
    /// The command is wrong in itself.
    #[error("{0}")]
    Invalid(String),
    /// Fewer bytes were transferred than asked.
    #[error("only {got} bytes were transferred")]
    Short {
        /// How many.
        got: u64,
    },
    /// The medium failed, or a model of one was told to.
    #[error("{0}")]
    Media(String),
    /// The device was closed or lost.
    #[error("{0}")]
    Gone(String),
}

impl DeviceError {
    /// An error with this cause.
    #[must_use]
    pub fn new(device: &str, op: OpKind, lba: Lba, bytes: u64, cause: Cause) -> DeviceError {
        let (device, system) = (device.to_owned(), None);
        DeviceError(Box::new(Detail { device, op, lba, bytes, cause, system }))
    }

    /// The operating system's error.
    #[must_use]
    pub fn os(device: &str, op: OpKind, lba: Lba, bytes: u64, error: &std::io::Error) -> Self {
        let cause = Cause::Os { kind: ErrorKind::from(error), message: error.to_string() };
        let mut failed = DeviceError::new(device, op, lba, bytes, cause);
        failed.0.system = SystemError::of(error);
        failed
    }

    /// An error of a command that was wrong in itself; `why` names the rule it breaks.
    #[must_use]
    pub fn invalid(device: &str, op: OpKind, lba: Lba, bytes: u64, why: String) -> DeviceError {
        DeviceError::new(device, op, lba, bytes, Cause::Invalid(why))
    }

    /// An error of a device that was opened before a fork, in the child.
    #[must_use]
    pub fn forked(device: &str) -> DeviceError {
        let why = "the process that opened it was forked, and this is the child: open the device here instead";
        DeviceError::new(device, OpKind::Open, Lba(0), 0, Cause::Gone(why.to_owned()))
    }

    /// Checks the depth asked of a queue pair, which is from 1 to [`MAX_DEPTH`].
    ///
    /// # Errors
    /// A depth outside that range.
    pub fn check_depth(device: &str, depth: usize) -> Result<(), DeviceError> {
        if (1..=MAX_DEPTH).contains(&depth) {
            return Ok(());
        }
        let why = format!("a queue pair holds 1 to {MAX_DEPTH} commands, not {depth}");
        Err(DeviceError::invalid(device, OpKind::Open, Lba(0), 0, why))
    }

    /// The remedy for callers.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.0.cause {
            Cause::Os { kind, .. } => *kind,
            Cause::Invalid(_) => ErrorKind::Invalid,
            Cause::Short { .. } | Cause::Media(_) => ErrorKind::Io,
            Cause::Gone(_) => ErrorKind::Closed,
        }
    }

    /// The name of the device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.0.device
    }

    /// The operation that failed.
    #[must_use]
    pub fn op(&self) -> OpKind {
        self.0.op
    }

    /// The first LBA of the command.
    #[must_use]
    pub fn lba(&self) -> Lba {
        self.0.lba
    }

    /// The size of the command in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Why it failed.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }
}
