//! A buffer pool: which pages a database has in memory, and which of them are dirty.
//!
//! Pages are given up by second chance. Those that a scan brings in have no chance to lose, so that a
//! scan takes the place of pages that were cold anyway, as InnoDB's midpoint insertion does.
//!
//! Invariants
//! 1. `dirty` holds every page that was changed and not written since, by the place in the log of
//!    its first change, and no other.

use std::collections::{BTreeMap, BTreeSet};

use esker_base::units::{to_u64, to_usize};
use hashbrown::HashMap;

use crate::keys::KeyHasher;

struct Slot {
    page: u64,
    used: bool,
}

/// A page that had to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    pub(super) page: u64,
    /// Its changes are lost unless it is written.
    pub(super) dirty: bool,
}

/// Pages in memory.
pub(super) struct Pool {
    capacity: usize,
    slots: Vec<Slot>,
    by_page: HashMap<u64, u32, KeyHasher>,
    hand: usize,
    dirty: BTreeMap<u64, u64>,
    by_change: BTreeSet<(u64, u64)>,
}

impl Pool {
    pub(super) fn new(pages: u64) -> Pool {
        Pool {
            capacity: to_usize(pages),
            slots: Vec::new(),
            by_page: HashMap::with_hasher(KeyHasher),
            hand: 0,
            dirty: BTreeMap::new(),
            by_change: BTreeSet::new(),
        }
    }

    /// Whether a page is in memory; if so it is used.
    pub(super) fn touch(&mut self, page: u64) -> bool {
        let Some(&slot) = self.by_page.get(&page) else { return false };
        self.slots[to_usize(u64::from(slot))].used = true;
        true
    }

    /// Takes in a page that is not in memory.
    pub(super) fn insert(&mut self, page: u64, by_scan: bool) -> Option<Evicted> {
        if self.slots.len() < self.capacity {
            let slot = u32::try_from(self.slots.len()).expect("checked with the options");
            self.slots.push(Slot { page, used: !by_scan });
            self.by_page.insert(page, slot);
            return None;
        }
        while std::mem::replace(&mut self.slots[self.hand].used, false) {
            self.hand = (self.hand + 1) % self.slots.len();
        }
        let hand = self.hand;
        let old = std::mem::replace(&mut self.slots[hand], Slot { page, used: !by_scan });
        self.by_page.remove(&old.page);
        self.by_page.insert(page, u32::try_from(hand).expect("checked with the options"));
        self.hand = (hand + 1) % self.slots.len();
        let dirty = self.clean(old.page);
        Some(Evicted { page: old.page, dirty })
    }

    /// The change at `change` in the log changes a page in memory.
    pub(super) fn dirty(&mut self, page: u64, change: u64) {
        if let std::collections::btree_map::Entry::Vacant(entry) = self.dirty.entry(page) {
            entry.insert(change);
            self.by_change.insert((change, page));
        }
    }

    /// A page is about to be written. Whether it was dirty.
    fn clean(&mut self, page: u64) -> bool {
        let Some(change) = self.dirty.remove(&page) else { return false };
        self.by_change.remove(&(change, page));
        true
    }

    /// The place in the log of the oldest change that is not in a page on the device.
    pub(super) fn oldest_change(&self) -> Option<u64> {
        self.by_change.first().map(|(change, _)| *change)
    }

    /// Cleans up to `most` pages, those that have been dirty longest first.
    pub(super) fn clean_oldest(&mut self, most: usize, pages: &mut Vec<u64>) {
        for _ in 0..most {
            let Some((_, page)) = self.by_change.pop_first() else { return };
            self.dirty.remove(&page);
            pages.push(page);
        }
    }

    pub(super) fn dirty_pages(&self) -> u64 {
        to_u64(self.dirty.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_pages_have_a_second_chance_and_scanned_ones_none() {
        let mut pool = Pool::new(3);
        for page in [1, 2] {
            assert_eq!(pool.insert(page, false), None);
        }
        assert_eq!(pool.insert(3, true), None);
        assert_eq!(pool.insert(4, false), Some(Evicted { page: 3, dirty: false }));
        assert!(pool.touch(4) && !pool.touch(3));
    }

    #[test]
    fn a_page_is_dirty_from_its_first_change_until_it_is_written() {
        let mut pool = Pool::new(2);
        pool.insert(1, false);
        pool.insert(2, false);
        pool.dirty(2, 10);
        pool.dirty(1, 20);
        pool.dirty(2, 30);
        assert_eq!((pool.oldest_change(), pool.dirty_pages()), (Some(10), 2));
        let mut pages = Vec::new();
        pool.clean_oldest(1, &mut pages);
        assert_eq!((pages, pool.oldest_change()), (vec![2], Some(20)));
        let evicted = [pool.insert(3, false), pool.insert(4, false)];
        assert!(evicted.contains(&Some(Evicted { page: 1, dirty: true })), "{evicted:?}");
        assert_eq!(pool.dirty_pages(), 0);
    }
}
