//! Maintenance: which step is due, and doing it. Ingest, merge, spill, split, join, collect, sort.
//!
//! [`scheduler`] takes a step from the choice to the new view: [`picker`] chooses it, [`planner`] names its inputs and
//! targets, [`group`] adds small ones, [`compact`] runs it, while the [`limiter`] leaves readers most of the device,
//! and [`install`] replaces its inputs by its outputs. [`ingest`] empties memtables, [`manual`] does a caller's requests,
//! [`scrub`] erases what they leave,
//! [`threads`] are the two lanes and the log's.
//!
//! Sees `engine` and the rooms below it; it knows no writer and no reader.

pub(crate) mod compact;
pub(crate) mod group;
pub(crate) mod ingest;
pub(crate) mod install;
pub(crate) mod limiter;
pub(crate) mod manual;
pub(crate) mod picker;
pub(crate) mod planner;
pub(crate) mod scheduler;
pub(crate) mod scrub;
pub(crate) mod threads;
