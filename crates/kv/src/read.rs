//! The read path: point reads ([`get`]) and walks ([`cursor`]).
//!
//! Sees `engine` and what lies below it.

pub(crate) mod cursor;
pub(crate) mod get;
mod passage;
