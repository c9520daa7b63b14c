//! The state that handles and threads of an open KVDB share, and the moves that every room above makes with it: publish a
//! view, flush the log, open a segment, divide the memory budget.
//!
//! [`shared`] is the state, with its locks in order. Of jobs, manual compactions, the write controller and open
//! transactions only the state lies here; the rooms above decide and act. [`reserve`] says how much a class that is a file
//! keeps for the time when its file system is full; [`readers`] counts cursors and snapshots, and what only they keep;
//! [`remarks`] tells them to the program.
//!
//! Sees `compaction`, `tree`, `log`, `manifest` and the rooms below them.

pub(crate) mod backoff;
pub(crate) mod budget;
pub(crate) mod claims;
pub(crate) mod counters;
pub(crate) mod ending;
pub(crate) mod fences;
pub(crate) mod flush;
pub(crate) mod job;
pub(crate) mod life;
pub(crate) mod manual;
pub(crate) mod pacer;
pub(crate) mod rate;
pub(crate) mod readers;
pub(crate) mod remarks;
pub(crate) mod reserve;
pub(crate) mod scheduler;
pub(crate) mod shared;
pub(crate) mod transactions;
pub(crate) mod workers;
