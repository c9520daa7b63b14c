//! The data of commands that are passed through, both ways.

use esker_base::AlignedBuf;
use esker_device::fdp::controller::Transfer;

use crate::conn::Payload;

/// Converts the data of a command to the connection's payload.
pub(crate) fn payload(data: Transfer<'_>) -> Payload {
    match data {
        Transfer::None => Payload::None,
        Transfer::Out(bytes) => Payload::Out(AlignedBuf::padded(bytes, 1)),
        Transfer::In(size) => Payload::In(AlignedBuf::zeroed(size)),
    }
}

/// Returns the data that the controller sent for it; empty without any.
pub(crate) fn received(payload: Payload) -> AlignedBuf {
    payload.into_buf().unwrap_or_else(|| AlignedBuf::zeroed(0))
}
