//! Why commands fail that wait for a connection which nobody makes.

use crate::error::NvmfError;

pub(super) fn nobody_waits() -> NvmfError {
    NvmfError::Config("the queue pair was dropped".to_owned())
}

pub(super) fn nobody_answers() -> NvmfError {
    NvmfError::Config("the thread that connects has ended".to_owned())
}
