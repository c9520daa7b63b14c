//! DRAM that structures take whatever the memory budget is: filters, page indexes, kvsets, trees.

/// DRAM that is not given back while a kvset is there, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub(crate) filters: u64,
    pub(crate) indexes: u64,
    /// Kvsets, trees and leaves themselves, with the manifest's knowledge of each.
    pub(crate) structures: u64,
}

impl Pinned {
    pub(crate) fn plus(self, other: Pinned) -> Pinned {
        Pinned {
            filters: self.filters + other.filters,
            indexes: self.indexes + other.indexes,
            structures: self.structures + other.structures,
        }
    }
}

/// Overhead of an allocation beside the size asked for, in bytes, roughly.
pub(crate) const ALLOCATION: u64 = 24;
