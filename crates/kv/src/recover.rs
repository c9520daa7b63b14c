//! Opening a KVDB, and checking one that nobody has open.
//!
//! [`devices`] are what a KVDB stands on, [`structures`] opens what the manifest names, [`round`] takes in the log,
//! [`open`] makes an engine of both, [`check`] verifies all of it and writes nothing.
//!
//! Sees `maintain` (it ingests what replay yields) and what lies below it.

pub(crate) mod check;
pub(crate) mod devices;
pub(crate) mod open;
pub(crate) mod round;
pub(crate) mod structures;
