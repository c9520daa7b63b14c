//! The write path: admission, write stalls, the log and the memtable ([`put`]).
//!
//! Sees `maintain`, because a writer without room runs its steps, and the rooms below it.

pub(crate) mod put;
