//! The LSM tree of each KVS in DRAM: memtables, kvsets with their filters and pages, sources that merge, the view
//! that readers hold, and which one is [`current`].
//!
//! Nothing that is published changes, but for memtables and caches.
//!
//! Sees `log` (its tail, and frames that are replayed), `values` and the rooms below them.

pub(crate) mod current;
pub(crate) mod dead_ranges;
pub(crate) mod filter;
pub(crate) mod item;
pub(crate) mod kvset;
pub(crate) mod memtable;
pub(crate) mod page_cache;
pub(crate) mod pinned;
pub(crate) mod replayed;
pub(crate) mod source;
pub(crate) mod view;
pub(crate) mod young;
