//! Segments: packing bytes into them, writing them with their parities and seals, reading them with reconstruction.
//! Sees `types`, `omf`, `parity`, `drive`; of `space` the rows only.

pub(crate) mod builder;
pub(crate) mod fetch;
pub(crate) mod reader;
pub(crate) mod writer;

pub(crate) use builder::Builder;
pub(crate) use fetch::{Broken, Sum};
pub(crate) use reader::{Want, read_many, read_verified};
pub(crate) use writer::Writer;
