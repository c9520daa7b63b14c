//! Memory outside a program's region that is paged too, where the program has mapped it: which page lies at which address.
//!
//! Invariants
//! 1. Areas do not overlap, neither their addresses nor their pages.
//! 2. Pages with numbers in a row may lie at addresses that are not: [`Areas::row`] tells how many do.

use std::collections::BTreeMap;

use crate::ranges::Ranges;
use crate::types::{PAGE, Page, page_of};

/// The areas of a space.
#[derive(Clone)]
pub(crate) struct Areas {
    /// By their first address: the first page, and how many.
    by_addr: BTreeMap<usize, (Page, Page)>,
    /// By their first page: the first address.
    by_page: BTreeMap<Page, usize>,
    numbers: Ranges,
}

impl Areas {
    /// No area. Their pages get numbers from `first` to `end`.
    pub(crate) fn new(first: Page, end: Page) -> Areas {
        let numbers = Ranges::new(first, end);
        Areas { by_addr: BTreeMap::new(), by_page: BTreeMap::new(), numbers }
    }

    /// How many pages they have.
    pub(crate) fn count(&self) -> usize {
        self.numbers.count()
    }

    /// The page at an address.
    pub(crate) fn page(&self, addr: usize) -> Option<Page> {
        let (&start, &(first, count)) = self.by_addr.range(..=addr).next_back()?;
        let index = (addr - start) / PAGE;
        (index < count as usize).then(|| first + page_of(index))
    }

    /// The address of a page.
    pub(crate) fn addr(&self, page: Page) -> Option<usize> {
        let (first, addr, count) = self.of(page)?;
        (page - first < count).then(|| addr + (page - first) as usize * PAGE)
    }

    /// How many pages from this one on lie in a row, `most` at most.
    pub(crate) fn row(&self, page: Page, most: usize) -> usize {
        let known = self.of(page).map_or(0, |(first, _, count)| count.saturating_sub(page - first));
        // Of an area that is no more each page is by itself.
        most.min((known as usize).max(1))
    }

    fn of(&self, page: Page) -> Option<(Page, usize, Page)> {
        let (&first, &addr) = self.by_page.range(..=page).next_back()?;
        Some((first, addr, self.by_addr.get(&addr)?.1))
    }

    /// The parts of areas within a range of addresses: the address, the first page and how many.
    pub(crate) fn within(&self, addr: usize, size: usize) -> Vec<(usize, Page, Page)> {
        let end = addr.saturating_add(size);
        let before = self.by_addr.range(..addr).next_back();
        let all = before.into_iter().chain(self.by_addr.range(addr..end));
        let part = |(&start, &(first, count)): (&usize, &(Page, Page))| {
            let from = start.max(addr);
            let to = end.min(start + count as usize * PAGE);
            (from < to).then(|| {
                let skipped = page_of((from - start) / PAGE);
                (from, first + skipped, page_of((to - from).div_ceil(PAGE)))
            })
        };
        all.filter_map(part).collect()
    }

    /// The parts of a range of addresses that belong to no area.
    pub(crate) fn gaps(&self, addr: usize, size: usize) -> Vec<(usize, usize)> {
        let end = addr.saturating_add(size);
        let mut gaps = Vec::new();
        let mut at = addr;
        for (start, _, count) in self.within(addr, size) {
            if start > at {
                gaps.push((at, start - at));
            }
            at = start + count as usize * PAGE;
        }
        if at < end {
            gaps.push((at, end - at));
        }
        gaps
    }

    /// Adds an area, or lengthens the one that ends there. Gives its first page; none if there are no numbers left. No part of it
    /// may be in an area.
    pub(crate) fn add(&mut self, addr: usize, count: Page) -> Option<Page> {
        let before = self.by_addr.range_mut(..addr).next_back();
        if let Some((start, (first, known))) = before
            && start + *known as usize * PAGE == addr
            && self.numbers.reserve_at(*first + *known, count)
        {
            let page = *first + *known;
            *known += count;
            return Some(page);
        }
        let first = self.numbers.reserve_aligned(count, 1)?;
        self.insert(addr, first, count);
        Some(first)
    }

    fn insert(&mut self, addr: usize, first: Page, count: Page) {
        self.by_addr.insert(addr, (first, count));
        self.by_page.insert(first, addr);
    }

    /// Takes a range of addresses out of the areas, with its pages' numbers.
    pub(crate) fn remove(&mut self, addr: usize, size: usize) {
        for (_, first, count) in self.cut(addr, size) {
            self.numbers.release(first, count);
        }
    }

    /// Pages have moved, and keep their numbers.
    pub(crate) fn relocate(&mut self, from: usize, to: usize, size: usize) {
        for (addr, first, count) in self.cut(from, size) {
            self.insert(addr - from + to, first, count);
        }
    }

    /// Takes parts out of the maps, and gives them.
    fn cut(&mut self, addr: usize, size: usize) -> Vec<(usize, Page, Page)> {
        let parts = self.within(addr, size);
        for &(from, first, count) in &parts {
            let (start, (area, _)) = self
                .by_addr
                .range(..=from)
                .next_back()
                .map(|(a, b)| (*a, *b))
                .expect("found above");
            let (_, known) = self.by_addr.remove(&start).expect("found above");
            self.by_page.remove(&area);
            let head = first - area;
            let tail = known - head - count;
            if head > 0 {
                self.insert(start, area, head);
            }
            if tail > 0 {
                self.insert(from + count as usize * PAGE, first + count, tail);
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use esker_base::rng::Rng;
    use esker_base::units::to_usize;

    use super::*;

    /// Random additions, removals and moves, against a map of every page.
    #[test]
    fn areas_are_what_a_plain_map_says() {
        const PAGES: usize = 64;
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut areas = Areas::new(1000, 1000 + page_of(4 * PAGES));
            let mut plain: BTreeMap<usize, Page> = BTreeMap::new();
            for _ in 0..60 {
                let at = to_usize(rng.below(PAGES as u64));
                let count = 1 + to_usize(rng.below((PAGES - at) as u64));
                let (addr, size) = (at * PAGE, count * PAGE);
                match rng.below(3) {
                    0 => {
                        for (gap, size) in areas.gaps(addr, size) {
                            let first = areas.add(gap, page_of(size / PAGE)).expect("numbers");
                            for n in 0..size / PAGE {
                                plain.insert(gap / PAGE + n, first + page_of(n));
                            }
                        }
                    }
                    1 => {
                        areas.remove(addr, size);
                        plain.retain(|page, _| !(at..at + count).contains(page));
                    }
                    _ => {
                        let to = 2 * PAGES + at;
                        areas.relocate(addr, to * PAGE, size);
                        for n in 0..count {
                            if let Some(page) = plain.remove(&(at + n)) {
                                plain.insert(to + n, page);
                            }
                        }
                        areas.remove(to * PAGE, size);
                        plain.retain(|page, _| !(to..to + count).contains(page));
                    }
                }
                assert_eq!(areas.count(), plain.len());
                for index in 0..4 * PAGES {
                    let page = plain.get(&index).copied();
                    assert_eq!(areas.page(index * PAGE + 7), page, "seed {seed}, page {index}");
                    if let Some(page) = page {
                        assert_eq!(areas.addr(page), Some(index * PAGE));
                        let row = page_of(areas.row(page, PAGES));
                        for n in 0..row {
                            assert_eq!(areas.addr(page + n), Some((index + n as usize) * PAGE));
                        }
                    }
                }
            }
        }
    }
}
