//! Maintenance: which step is due, and doing it. Ingest, merge, spill, split, join, collect, sort.
//!
//! All of it is functions over an engine. For a step that is due, [`steps`] asks the [`picker`] which one that is, and the
//! [`planner`] for its inputs and targets, adds small ones as a [`group`], and claims their nodes. The [`executor`] has
//! [`compact`] run it, while the [`limiter`] leaves readers most of the device, and replaces its inputs by its outputs as
//! [`install`] says. Picker and planner know nothing of the executor. [`ingest`] empties memtables, [`manual`] does a
//! caller's requests, [`replay`] moves the log's beginning on, [`scrub`] erases what is left. [`threads`] are the two lanes
//! and the log's.
//!
//! Sees `engine` and the rooms below it; it knows no writer and no reader.

pub(crate) mod compact;
pub(crate) mod executor;
pub(crate) mod group;
pub(crate) mod ingest;
pub(crate) mod install;
pub(crate) mod limiter;
pub(crate) mod manual;
pub(crate) mod picker;
pub(crate) mod planner;
pub(crate) mod replay;
pub(crate) mod scrub;
pub(crate) mod steps;
pub(crate) mod threads;
