//! Maintenance: which step is due, and doing it. Ingest, merge, spill, split, join, collect, sort.
//!
//! [`due`] chooses, in a [`situation`], [`plan`] says what a step reads and writes, [`compact`] merges, [`steps`] runs and installs,
//! [`ingest`] empties memtables, [`manual`] does what a caller asked for, [`threads`] are the two lanes and the log's.
//!
//! Sees `engine` and what lies below it; it knows no writer and no reader.

pub(crate) mod beside;
pub(crate) mod compact;
pub(crate) mod due;
pub(crate) mod giving_way;
pub(crate) mod ingest;
pub(crate) mod manual;
pub(crate) mod plan;
pub(crate) mod situation;
pub(crate) mod steps;
pub(crate) mod threads;
