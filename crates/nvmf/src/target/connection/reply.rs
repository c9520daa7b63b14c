//! Answers to commands that are executed at once.

use esker_base::units::to_usize;

use crate::conn::Slot;
use crate::target::controller::LogRead;
use crate::wire::status::Status;

/// The most data that an admin command returns.
const MOST_DATA: usize = 1 << 20;

/// The answer to a command that is executed at once.
pub(crate) enum Reply {
    /// It worked; dwords 0 and 1 of the response.
    Done(u64),
    /// It did not.
    Failed(Status),
    /// Data, and dwords 0 and 1 of the response.
    Data(Vec<u8>, u64),
    /// Data of a log page, and the events that the host has read once it gets them.
    Log(Vec<u8>, Option<LogRead>),
    /// It worked, and first the command in this slot is answered that it aborted.
    Aborted(Slot),
    /// It was answered already, or will be.
    Later,
}

impl Reply {
    /// As many dwords of `bytes` as the host asked for (0's based), padded with zeroes.
    pub(crate) fn dwords(bytes: Vec<u8>, numd: u32) -> Reply {
        dwords(bytes, numd).map_or_else(Reply::Failed, |bytes| Reply::Data(bytes, 0))
    }
}

/// As many dwords of `bytes` as the host asked for (0's based), padded with zeroes.
pub(crate) fn dwords(mut bytes: Vec<u8>, numd: u32) -> Result<Vec<u8>, Status> {
    let size = (to_usize(numd.into()) + 1) * 4;
    if size > MOST_DATA {
        return Err(Status::INVALID_FIELD.final_());
    }
    bytes.resize(size, 0);
    Ok(bytes)
}
