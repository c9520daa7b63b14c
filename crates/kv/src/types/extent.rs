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
