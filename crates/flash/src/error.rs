//! Errors of the model.

use esker_base::ErrorKind;
use esker_device::DeviceError;
use thiserror::Error;

/// Why a model could not be made, opened or asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FlashError {
    /// The parameters are wrong; the message says which are right.
    #[error("{0}")]
    Invalid(String),
    /// There is no room for it on the drive.
    #[error("{0}")]
    NoSpace(String),
    /// An image is damaged, or of another kind.
    #[error("{0}")]
    Corrupt(String),
    /// The device under the model failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl FlashError {
    /// The remedy for callers.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            FlashError::Invalid(_) => ErrorKind::Invalid,
            FlashError::NoSpace(_) => ErrorKind::NoSpace,
            FlashError::Corrupt(_) => ErrorKind::Corrupt,
            FlashError::Device(error) => error.kind(),
        }
    }
}
