//! Value blocks: records on a medium, and the knowledge of them in DRAM.
//!
//! A record is read by its address ([`block`]), ahead of need by walks ([`ahead`]), or found in the record cache
//! ([`cache`]). New records go to frames ([`frame`]) of new blocks ([`writer`]), compressed where that pays
//! ([`compression`]).
//!
//! Sees `media` and the rooms below it.

pub(crate) mod ahead;
pub(crate) mod block;
pub(crate) mod budget;
pub(crate) mod cache;
pub(crate) mod compression;
pub(crate) mod frame;
pub(crate) mod writer;
