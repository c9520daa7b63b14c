//! The read path: point reads ([`get`]) and walks ([`cursor`]).
//!
//! Sees `engine` and the rooms below it.

pub(crate) mod cursor;
pub(crate) mod get;
mod passage;
