//! The data of commands that are passed through: what they transfer, and what came back.

use esker_base::AlignedBuf;
use esker_device::fdp::controller::Transfer;

use crate::conn::Payload;

/// What a command transfers, as the connection takes it.
pub(crate) fn payload(data: Transfer<'_>) -> Payload {
    match data {
        Transfer::None => Payload::None,
        Transfer::Out(bytes) => Payload::Out(AlignedBuf::padded(bytes, 1)),
        Transfer::In(size) => Payload::In(AlignedBuf::zeroed(size)),
    }
}

/// What came back of it.
pub(crate) fn received(payload: Payload) -> AlignedBuf {
    payload.into_buf().unwrap_or_else(|| AlignedBuf::zeroed(0))
}
