//! Which pages of a space are reserved: a map of address ranges.

use std::collections::BTreeMap;

use crate::types::Page;

/// Reservations from this size on, in pages, begin at a multiple of it: allocators ask for
/// alignment to huge pages and trim the rest.
const ALIGNED_FROM: Page = 512;

/// Reserved ranges of pages.
#[derive(Clone)]
pub(crate) struct Ranges {
    reserved: BTreeMap<Page, Page>,
    first: Page,
    end: Page,
    count: usize,
}

impl Ranges {
    /// Nothing is reserved of the pages from `first` to `end`.
    pub(crate) fn new(first: Page, end: Page) -> Ranges {
        Ranges { reserved: BTreeMap::new(), first, end, count: 0 }
    }

    /// How many pages are reserved.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Reserves `count` pages where there is room.
    pub(crate) fn reserve(&mut self, count: Page) -> Option<Page> {
        self.reserve_aligned(count, if count < ALIGNED_FROM { 1 } else { ALIGNED_FROM })
    }

    /// Reserves `count` pages that begin at a multiple of `alignment`.
    pub(crate) fn reserve_aligned(&mut self, count: Page, alignment: Page) -> Option<Page> {
        let align = |at: Page| at.checked_next_multiple_of(alignment);
        let mut at = align(self.first)?;
        for (&start, &end) in &self.reserved {
            if at.checked_add(count)? <= start {
                break;
            }
            at = align(end)?.max(at);
        }
        let end = at.checked_add(count).filter(|&end| end <= self.end)?;
        self.insert(at, end);
        Some(at)
    }

    /// Adds a range of which nothing is reserved, joined with those at its ends.
    fn insert(&mut self, at: Page, end: Page) {
        self.count += (end - at) as usize;
        let before = self.reserved.range(..at).next_back().filter(|(_, other)| **other == at);
        let start = before.map_or(at, |(&start, _)| start);
        let end = self.reserved.remove(&end).unwrap_or(end);
        self.reserved.insert(start, end);
    }

    /// Whether `count` pages from `at` on are reserved, all of them.
    pub(crate) fn contains(&self, at: Page, count: Page) -> bool {
        let mut at = at;
        let Some(goal) = at.checked_add(count) else { return false };
        while at < goal {
            match self.reserved.range(..=at).next_back() {
                Some((_, &end)) if end > at => at = end,
                _ => return false,
            }
        }
        true
    }

    /// Reserves the pages from `at` on if none of them is.
    pub(crate) fn reserve_at(&mut self, at: Page, count: Page) -> bool {
        let Some(goal) = at.checked_add(count).filter(|&goal| goal <= self.end) else {
            return false;
        };
        let before = self.reserved.range(..goal).next_back();
        if before.is_some_and(|(_, &end)| end > at) {
            return false;
        }
        self.insert(at, goal);
        true
    }

    /// Releases those of `count` pages from `at` on that are reserved.
    pub(crate) fn release(&mut self, at: Page, count: Page) {
        let goal = at.saturating_add(count);
        while let Some((&start, &end)) = self.reserved.range(..goal).next_back() {
            if end <= at {
                break;
            }
            self.reserved.remove(&start);
            if start < at {
                self.reserved.insert(start, at);
            }
            if end > goal {
                self.reserved.insert(goal, end);
            }
            self.count -= (end.min(goal) - start.max(at)) as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_reserved_cut_and_reused() {
        let mut ranges = Ranges::new(10, 1010);
        assert_eq!(ranges.reserve(100), Some(10));
        assert_eq!(ranges.reserve(100), Some(110));
        ranges.release(50, 100);
        assert_eq!(ranges.count(), 100);
        assert!(ranges.contains(10, 40) && !ranges.contains(10, 41) && ranges.contains(150, 60));
        assert_eq!(ranges.reserve(100), Some(50));
        assert!(ranges.contains(10, 200));
        assert_eq!(ranges.reserve(801), None);
        assert!(!ranges.reserve_at(209, 1) && ranges.reserve_at(210, 1));
        assert!(!ranges.reserve_at(1000, 11));
    }

    #[test]
    fn large_ranges_are_aligned() {
        let mut ranges = Ranges::new(64, 4096);
        assert_eq!(ranges.reserve(1), Some(64));
        assert_eq!(ranges.reserve(512), Some(512));
        assert_eq!(ranges.reserve(600), Some(1024));
    }
}
