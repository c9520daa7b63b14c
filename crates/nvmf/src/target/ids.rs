//! The ids of connections, of their commands, and of the commands of devices.

use esker_base::units::to_usize;
use esker_device::Tag;

use crate::conn::Slot;

/// Where a connection is: which worker, and which of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) worker: usize,
    pub(crate) connection: usize,
}

/// Which connection, among all that there ever were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Visitor(pub(super) u64);

/// An Abort command, among all that a controller has had: its slot may be another command's when the answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AbortId(pub(crate) u64);

/// Whose a command of a device is, in its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index of the connection.
    pub(crate) connection: usize,
    pub(crate) slot: Slot,
    /// Which of several pieces, where that matters.
    pub(crate) piece: u8,
}

impl Place {
    pub(crate) fn tag(self) -> Tag {
        let connection = u64::try_from(self.connection).expect("64 bits");
        Tag(u64::from(self.piece) << 56 | connection << 16 | u64::from(self.slot.0))
    }

    pub(super) fn of(tag: Tag) -> Place {
        let [a, b, .., piece] = tag.0.to_le_bytes();
        let connection = to_usize(tag.0 << 8 >> 24);
        Place { connection, slot: Slot(u16::from_le_bytes([a, b])), piece }
    }
}
