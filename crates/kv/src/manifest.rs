//! The manifest: which structures of a KVDB are live. Each change is one durable record.
//!
//! [`state`] is the sum of all records, [`medium`] where they lie, [`writer`] appends them, [`survey`] reads the
//! remains of a damaged one.
//!
//! Sees `media` (its lease and its transfers) and the rooms below it.

pub(crate) mod medium;
pub(crate) mod state;
pub(crate) mod survey;
pub(crate) mod writer;
