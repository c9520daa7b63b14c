//! The on-media format: every byte that a pool writes besides the blocks themselves. Described with drawings in
//! `docs/format/volume.md`. Sees `types` only.
//!
//! Invariants
//! 1. Integers are little-endian. What is reserved is zero.
//! 2. Every structure stands in an envelope: magic, version, kind, length, CRC-32C, the pool, its own address.
//! 3. A decoder takes any bytes. A count is checked against the bytes that are there before anything is allocated
//!    for it.

pub(crate) mod envelope;
pub(crate) mod frame;
pub(crate) mod label;
pub(crate) mod leaf;
pub(crate) mod mark;
pub(crate) mod root;
pub(crate) mod seal;
pub(crate) mod summary;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use envelope::FormatError;
