//! Refused requests.

use esker_base::ErrorKind;
use esker_nvmf::NvmfError;
use esker_stack::StackError;
use esker_volume::VolumeError;
use serde_json::Value;

/// Why a request was refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Refusal {
        Refusal { kind, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(ErrorKind::Invalid, message)
    }
}

impl From<VolumeError> for Refusal {
    fn from(error: VolumeError) -> Refusal {
        Refusal::new(error.kind(), error.to_string())
    }
}

impl From<StackError> for Refusal {
    fn from(error: StackError) -> Refusal {
        Refusal::new(error.kind(), error.to_string())
    }
}

impl From<NvmfError> for Refusal {
    fn from(error: NvmfError) -> Refusal {
        Refusal::new(error.kind(), error.to_string())
    }
}

/// The answer to a request.
pub(crate) type Answer = Result<Value, Refusal>;
