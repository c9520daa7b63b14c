//! Namespaces: the pages of the drive and the handles that each has.

use crate::FlashError;
use crate::ftl::LogicalPage;

/// Consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) first: LogicalPage,
    pub(crate) count: u32,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceRecord {
    /// Its number, from 1.
    pub(crate) id: u32,
    /// Which of the namespaces that had this number since the drive was opened; not kept.
    pub(crate) birth: u64,
    pub(crate) pages: Extent,
    /// The handles of its placement ids, in their order.
    pub(crate) handles: Vec<u16>,
    /// Whether it named its handles itself.
    pub(crate) is_host_specified: bool,
}

/// The gaps between namespaces, in order.
pub(super) fn gaps(taken: &[NamespaceRecord], in_all: u32) -> impl Iterator<Item = Extent> {
    let mut extents: Vec<Extent> = taken.iter().map(|namespace| namespace.pages).collect();
    extents.sort_unstable_by_key(|extent| extent.first);
    let mut first = LogicalPage(0);
    extents.into_iter().chain([Extent { first: LogicalPage(in_all), count: 0 }]).map(
        move |extent| {
            let gap = Extent { first, count: extent.first - first };
            first = extent.first + extent.count;
            gap
        },
    )
}

/// Finds room for `count` pages among those that no namespace has: the first gap that is large
/// enough.
pub(super) fn find_room(
    taken: &[NamespaceRecord],
    count: u32,
    in_all: u32,
) -> Result<Extent, FlashError> {
    if let Some(gap) = gaps(taken, in_all).find(|gap| gap.count >= count) {
        return Ok(Extent { count, ..gap });
    }
    let largest = gaps(taken, in_all).map(|gap| gap.count).max().unwrap_or(0);
    let why = format!(
        "there is no room for a namespace of {count} pages: the largest gap has {largest}; delete \
         a namespace or make a smaller one"
    );
    Err(FlashError::NoSpace(why))
}
