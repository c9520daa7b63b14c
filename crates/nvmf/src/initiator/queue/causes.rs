//! Why commands fail that wait for a connection which nobody makes.

use std::net::SocketAddr;

use crate::error::NvmfError;

pub(super) fn nobody_waits() -> NvmfError {
    NvmfError::Config("the queue pair was dropped".to_owned())
}

pub(super) fn nobody_answers() -> NvmfError {
    NvmfError::Config("the thread that connects has ended".to_owned())
}

pub(super) fn no_progress(peer: SocketAddr) -> NvmfError {
    let what = "a command has made no progress over any connection".to_owned();
    NvmfError::Lost { peer, what }
}
