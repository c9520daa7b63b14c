//! The LSM tree of each KVS in DRAM: memtables, kvsets with their filters and pages, sources that merge, and the view
//! that readers hold.
//!
//! Nothing here changes once it is published, but for memtables and caches.
//!
//! Sees `log` (frames that are replayed), `values` and the rooms below them.

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
