//! The write path: admission, write stalls, the log and the memtable ([`put`]), and the throttle of writers
//! ([`throttle`]).
//!
//! Sees `maintain`, because a writer without room runs its steps, and the rooms below it.

pub(crate) mod put;
pub(crate) mod throttle;
