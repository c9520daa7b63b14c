//! Extents: runs of LBAs on the device of a media class.

use esker_base::{Lba, LbaCount};

use crate::types::class::MediaClass;

/// A run of LBAs on the device of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) class: MediaClass,
    pub(crate) lba: Lba,
    pub(crate) count: LbaCount,
}

impl Extent {
    /// Whether both have LBAs of the same device in common.
    pub(crate) fn overlaps(&self, other: &Extent) -> bool {
        let ends_behind = |a: &Extent, b: &Extent| a.lba + a.count > b.lba;
        self.class == other.class && ends_behind(self, other) && ends_behind(other, self)
    }
}
