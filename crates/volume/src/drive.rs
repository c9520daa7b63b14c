//! The member drives: where things lie on each, and commands to many of them at once. Sees `types` and `omf`.

pub(crate) mod again;
pub(crate) mod answers;
pub(crate) mod fleet;
pub(crate) mod io;
pub(crate) mod lanes;
pub(crate) mod latency;
pub(crate) mod layout;
pub(crate) mod transfers;

pub(crate) use answers::Spare;
pub use answers::Unanswering;
pub(crate) use fleet::{Drive, Fleet};
pub(crate) use io::{Io, IoPool, Read, Write};
pub(crate) use lanes::{Arrival, Lanes, Ticket};
pub(crate) use layout::Layout;
pub(crate) use transfers::Transfers;
