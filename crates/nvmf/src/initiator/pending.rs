//! A command between its submission and its completion.

use esker_base::silence::Given;
use esker_base::{AlignedBuf, Lba};
use esker_device::{OpKind, PlacementId, Tag};

use super::unflushed::Ticket;

/// A command that was taken.
pub(crate) struct Pending {
    pub(crate) tag: Tag,
    pub(crate) kind: OpKind,
    pub(crate) lba: Lba,
    pub(crate) count: u64,
    /// LBAs that are done with, of a command that takes several.
    pub(crate) at: u64,
    /// LBAs of the command that is outstanding.
    pub(crate) piece: u64,
    pub(crate) placement: Option<PlacementId>,
    pub(crate) fua: bool,
    pub(crate) buf: Option<AlignedBuf>,
    pub(crate) attempts: u32,
    /// When it lost its connection, if it has had no answer since that counts.
    pub(crate) stuck: Option<Given>,
    /// Its number among the commands that were sent.
    pub(crate) serial: u64,
    /// The write that it is, while that is in flight.
    pub(crate) ticket: Option<Ticket>,
    /// Of a flush: the last write that it has to cover; once sent, the last that it covers.
    pub(crate) number: u64,
}
