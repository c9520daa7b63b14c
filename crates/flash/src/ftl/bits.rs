//! One bit per media page: whether it holds the latest content of a logical page. Cleaning finds
//! the pages to copy here, and need not ask the map about dead ones.

use std::ops::Range;

use super::ids::MediaPage;
use super::prefetch::prefetch;

/// A set of media pages.
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn new(pages: usize) -> Bits {
        Bits(vec![0; pages.div_ceil(64)])
    }

    #[inline]
    pub(super) fn has(&self, page: MediaPage) -> bool {
        self.0[page.index() / 64] & 1 << (page.0 % 64) != 0
    }

    #[inline]
    pub(super) fn remove(&mut self, page: MediaPage) {
        self.0[page.index() / 64] &= !(1 << (page.0 % 64));
    }

    /// Says that `page` will be asked about soon.
    #[inline]
    pub(super) fn prefetch(&self, page: MediaPage) {
        prefetch(&self.0, page.index() / 64);
    }

    pub(super) fn set(&mut self, pages: Range<MediaPage>) {
        words(pages, |index, mask| self.0[index] |= mask);
    }

    pub(super) fn clear(&mut self, pages: Range<MediaPage>) {
        words(pages, |index, mask| self.0[index] &= !mask);
    }

    /// The first page of the set from `from` on and before `end`.
    #[inline]
    pub(super) fn next(&self, from: MediaPage, end: MediaPage) -> Option<MediaPage> {
        let (mut at, end) = (from.0, end.0);
        while at < end {
            let rest = self.0[(at / 64) as usize] >> (at % 64);
            if rest != 0 {
                let found = at + rest.trailing_zeros();
                return (found < end).then_some(MediaPage(found));
            }
            at = (at | 63) + 1;
        }
        None
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        8 * self.0.len()
    }
}

/// The words that a range of pages touches, each with the bits of the range.
fn words(pages: Range<MediaPage>, mut each: impl FnMut(usize, u64)) {
    let (mut at, end) = (pages.start.0, pages.end.0);
    while at < end {
        let until = ((at | 63) + 1).min(end);
        let count = until - at;
        let ones = u64::MAX >> (64 - count);
        each((at / 64) as usize, ones << (at % 64));
        at = until;
    }
}
