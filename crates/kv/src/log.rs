//! The write-ahead log, called the durability log here: records that are new and in no kvset yet.
//!
//! [`open`] is the log of an open KVDB; [`tail`] its end, to which writers append, in memory that [`kept`] has the kernel keep; [`frame`] reads frames
//! back, [`segment`] a whole segment of them, and [`replay`] all that the manifest lets it look at.
//!
//! Sees `manifest`, `values` and the rooms below them.

pub(crate) mod frame;
pub(crate) mod kept;
pub(crate) mod open;
pub(crate) mod replay;
pub(crate) mod segment;
pub(crate) mod tail;
