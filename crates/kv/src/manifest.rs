//! The manifest: which structures of a KVDB are live. Each change is one durable record.
//!
//! [`state`] is what all records add up to, [`medium`] where they lie, [`writer`] appends them, [`survey`] reads what is
//! left of a damaged one.
//!
//! Sees `media` (its lease and its transfers) and what lies below it.

pub(crate) mod medium;
pub(crate) mod state;
pub(crate) mod survey;
pub(crate) mod writer;
