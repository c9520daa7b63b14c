//! The parts of an open KVDB that its handles and threads share, each with its fields and locks to itself.
//!
//! [`shared`] composes them, and has what spans parts; [`flush`] and [`ending`] are its moves with the log. [`life`]
//! says whether calls may go on, [`budget`] divides memory, [`pacer`] slows writers by each [`rate`]. [`scheduler`] has
//! the lanes of maintenance with their [`claims`], [`backoff`] and [`workers`]. [`reserve`] says how much a class that is
//! a file keeps for the time when its file system is full. [`readers`] counts cursors and snapshots, [`transactions`]
//! what is open; [`fences`] keeps damage, and [`remarks`] tells it to the program. The rooms above decide and act.
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
