//! Maintenance: which step is due, and doing it. Ingest, merge, spill, split, join, collect, sort.
//!
//! [`picker`] chooses, [`plan`] names a step's inputs and outputs, [`compact`] merges, [`steps`]
//! runs and installs, [`ingest`] empties memtables, [`manual`] does a caller's requests, [`threads`] are the two
//! lanes and the log's.
//!
//! Sees `engine` and the rooms below it; it knows no writer and no reader.

pub(crate) mod beside;
pub(crate) mod compact;
pub(crate) mod giving_way;
pub(crate) mod ingest;
pub(crate) mod manual;
pub(crate) mod picker;
pub(crate) mod plan;
pub(crate) mod steps;
pub(crate) mod threads;
