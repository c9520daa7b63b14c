//! A media class: one device, the free space on it, and every read and write of it.
//!
//! [`class`] is the class and its extents in use, [`space`] the free space and [`runs`] what it is made of, [`reserve`] the
//! part of it that a full file system cannot take away, [`classes`] both classes of a KVDB, and
//! [`buffers`] has memory for reads.
//! Reads that go on while their caller does something else are in [`in_flight`], small writes that are gathered in
//! [`writes`].
//!
//! Sees `omf` (the header of a class) and the rooms below it.

pub(crate) mod buffers;
pub(crate) mod busy;
pub(crate) mod class;
pub(crate) mod classes;
pub(crate) mod idle;
pub(crate) mod in_flight;
pub(crate) mod lease;
pub(crate) mod reserve;
pub(crate) mod runs;
pub(crate) mod space;
pub(crate) mod transfer;
pub(crate) mod writes;
