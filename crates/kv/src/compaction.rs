//! Compaction: merges kvsets into new ones, and rewrites values where that is worth the bytes.
//!
//! One data path serves all kinds. A spill (aging) and the sorting of a leaf rewrite every value in key
//! order, a key compaction and a split rewrite none, a collection those in blocks that are mostly
//! garbage.
//!
//! [`plan`] names inputs and targets, [`reader`] merges the inputs and gathers values, a [`window`] at a time, and
//! [`writer`] writes kvsets and blocks. [`scratch`] is the memory for that; [`miss_rate`] tells how much of it pays.
//!
//! Sees `tree` and the rooms below it. It knows no engine: `maintain` chooses compactions, runs and installs them.

pub(crate) mod miss_rate;
pub(crate) mod plan;
pub(crate) mod reader;
pub(crate) mod scratch;
pub(crate) mod window;
pub(crate) mod writer;
