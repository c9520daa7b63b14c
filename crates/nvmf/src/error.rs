//! Errors of this crate: the event, its subject, and the remedy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use esker_base::ErrorKind;
use esker_base::codec::Truncated;
use esker_device::{Cause, DeviceError};
use thiserror::Error;

use crate::conn::Violation;
use crate::wire::status::Status;

/// An error of a target or an initiator.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NvmfError {
    /// An option is wrong.
    #[error("{0}")]
    Config(String),
    /// The operating system refused something.
    #[error("{what}: {message}")]
    Os {
        /// The operation that failed.
        what: String,
        /// The remedy for callers.
        kind: ErrorKind,
        /// The system's words.
        message: String,
    },
    /// The controller answered a command with an error.
    #[error("{peer}: {command} failed: {status}")]
    Command {
        /// Which controller.
        peer: SocketAddr,
        /// The command.
        command: &'static str,
        /// Its status.
        status: Status,
    },
    /// The controller does not let this host in.
    #[error("{peer}: it does not let host {host} in: {status}; hostnqn=NQN names another host")]
    Refused {
        /// Which controller.
        peer: SocketAddr,
        /// NQN of this host.
        host: String,
        /// Its status.
        status: Status,
    },
    /// The controller broke the protocol.
    #[error("{peer}: {violation}")]
    Protocol {
        /// Which controller.
        peer: SocketAddr,
        /// How.
        violation: Violation,
    },
    /// The controller did not answer in time, or closed the connection.
    #[error("{peer}: {what}")]
    Lost {
        /// Which controller.
        peer: SocketAddr,
        /// The event that was waited for.
        what: String,
    },
    /// The controller sent something that cannot be.
    #[error("{peer}: {what}")]
    Unusable {
        /// Which controller.
        peer: SocketAddr,
        /// The message that was wrong.
        what: String,
    },
    /// One side could not prove its identity.
    #[error("authentication failed: {0}")]
    Authentication(String),
    /// The file of reservations is damaged.
    #[error(
        "{} is not a file of reservations: {why}; restore it from a copy, or remove it: \
         then no host is registered, and no reservation is held",
        .path.display()
    )]
    Reservations {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// A worker of the target has panicked, which is a defect.
    #[error(
        "a worker of the target panicked: {message}; all its connections are closed; report it"
    )]
    Panicked {
        /// The message of the panic.
        message: String,
    },
    /// A device of the target has not ended its commands in time when the target was closed.
    #[error(
        "{device}: it has not ended its commands within {within:?}, so the target ends without them: they may \
         still be executed, and what was not flushed may be lost; see to the device before it is served again"
    )]
    Hung {
        /// Which device.
        device: String,
        /// How long it was waited for.
        within: Duration,
    },
    /// A device of the target failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl NvmfError {
    pub(crate) fn os(what: impl Into<String>, error: &std::io::Error) -> NvmfError {
        let (kind, message) = (ErrorKind::from(error), error.to_string());
        NvmfError::Os { what: what.into(), kind, message }
    }

    /// The remedy for callers.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            NvmfError::Config(_) => ErrorKind::Invalid,
            NvmfError::Os { kind, .. } => *kind,
            NvmfError::Command { status, .. } | NvmfError::Refused { status, .. } => status.kind(),
            NvmfError::Lost { .. } => ErrorKind::Retry,
            NvmfError::Protocol { .. } | NvmfError::Panicked { .. } | NvmfError::Hung { .. } => {
                ErrorKind::Io
            }
            NvmfError::Unusable { .. } => ErrorKind::Unsupported,
            NvmfError::Authentication(_) => ErrorKind::Conflict,
            NvmfError::Reservations { .. } => ErrorKind::Corrupt,
            NvmfError::Device(error) => error.kind(),
        }
    }

    pub(crate) fn truncated(peer: SocketAddr, error: &Truncated) -> NvmfError {
        NvmfError::Unusable { peer, what: error.to_string() }
    }

    /// The cause of a device error.
    pub(crate) fn cause(&self) -> Cause {
        match self {
            NvmfError::Config(text) => Cause::Invalid(text.clone()),
            other => Cause::Os { kind: other.kind(), message: other.to_string() },
        }
    }
}
