//! Copies of a whole KVDB: backups of one that is open, and the data that repair salvages of a damaged one.
//!
//! Sees every room.

pub(crate) mod backup;
pub(crate) mod repair;
