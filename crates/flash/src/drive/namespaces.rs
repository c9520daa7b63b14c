//! Namespaces: who has which pages of the drive, and which handles.

use crate::FlashError;

/// Consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceRecord {
    /// Its number, from 1.
    pub(crate) id: u32,
    pub(crate) pages: Extent,
    /// The handles of its placement ids, in their order.
    pub(crate) handles: Vec<u16>,
    /// Whether it named its handles itself.
    pub(crate) is_host_specified: bool,
}

/// Finds room for `count` pages among those that no namespace has: the first gap that is large
/// enough.
pub(super) fn find_room(
    taken: &[NamespaceRecord],
    count: u32,
    in_all: u32,
) -> Result<Extent, FlashError> {
    let mut extents: Vec<Extent> = taken.iter().map(|namespace| namespace.pages).collect();
    extents.sort_unstable_by_key(|extent| extent.first);
    let (mut first, mut largest) = (0, 0);
    for extent in extents.into_iter().chain([Extent { first: in_all, count: 0 }]) {
        let gap = extent.first - first;
        if gap >= count {
            return Ok(Extent { first, count });
        }
        largest = largest.max(gap);
        first = extent.first + extent.count;
    }
    let why = format!(
        "there is no room for a namespace of {count} pages: the largest gap has {largest}; delete \
         a namespace or make a smaller one"
    );
    Err(FlashError::NoSpace(why))
}
