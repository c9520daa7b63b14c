//! Copies of a whole KVDB: backups of one that is open, and what repair salvages of a damaged one.
//!
//! Sees every room.

pub(crate) mod backup;
pub(crate) mod repair;
