//! The protocol of one TCP connection, without the connection: bytes in, bytes and events out.
//! The owner of the socket reads into the `spaces` of an end and writes the `slices` it gives;
//! fuzzers and tests do the same without a socket.
//!
//! | module | content |
//! | --- | --- |
//! | [`mod@receive`] | [`Receiver`]: cuts the stream into PDUs, data straight into its buffer |
//! | [`mod@send`] | [`Sender`]: small PDUs copied together, data by reference, for vectored writes |
//! | [`controller`] | [`ControllerConnection`]: the end that serves |
//! | [`host`] | [`HostConnection`]: the end that asks |
//!
//! A [`Violation`] ends a connection: the owner writes the output that is left (a termination
//! request is the last of it) and closes.

pub mod controller;
pub mod host;
pub mod receive;
pub mod send;

pub use controller::{ControllerConnection, ControllerEvent, ControllerSettings, Slot};
pub use host::{HostConnection, HostEvent, HostSettings, Payload};
pub use receive::Receiver;
pub use send::Sender;

use esker_base::codec::Truncated;
use thiserror::Error;

use crate::wire::pdu::FatalStatus;

/// The other end broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the peer broke the protocol: {what} ({status:?} at byte {offset} of the PDU)")]
pub struct Violation {
    /// The status in the termination request.
    pub status: FatalStatus,
    /// Where in the PDU it is.
    pub offset: u32,
    /// The fault.
    pub what: &'static str,
}

impl Violation {
    pub(crate) fn field(offset: u32, what: &'static str) -> Violation {
        Violation { status: FatalStatus::InvalidHeaderField, offset, what }
    }

    pub(crate) fn sequence(what: &'static str) -> Violation {
        Violation { status: FatalStatus::Sequence, offset: 0, what }
    }

    pub(crate) fn range(what: &'static str) -> Violation {
        Violation { status: FatalStatus::OutOfRange, offset: 0, what }
    }
}

impl From<Truncated> for Violation {
    fn from(_: Truncated) -> Violation {
        Violation::field(2, "a header that is too short")
    }
}
