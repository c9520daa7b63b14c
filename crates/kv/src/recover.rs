//! Opening a KVDB, and checking one that nobody has open.
//!
//! [`devices`] are the ones a KVDB stands on, [`structures`] opens those that the manifest names, [`round`] takes
//! in the log and [`kept`] what a killed process had not flushed, [`open`] makes an engine of both, [`check`] verifies all of it and writes nothing.
//!
//! Sees `maintain` (it ingests the replayed records) and the rooms below it.

pub(crate) mod check;
pub(crate) mod devices;
pub(crate) mod kept;
pub(crate) mod open;
pub(crate) mod round;
pub(crate) mod structures;
