//! 2Q, the full version (Johnson and Shasha, VLDB 1994): a short queue for blocks seen once, an LRU
//! list for those that came back after they had left the queue, ghosts in between.

use super::ghosts::Ghosts;
use super::list::{Lists, Node};
use super::{Access, Policy, Slots, share};

const IN: usize = 0;
const MAIN: usize = 1;

/// 2Q with a queue of a quarter of the slots and ghosts for a half.
#[derive(Debug)]
pub struct TwoQ<N> {
    lists: Lists<N, 2>,
    ghosts: Ghosts<1>,
    in_limit: u32,
}

impl<N: Node> TwoQ<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        TwoQ {
            lists: Lists::new(capacity),
            ghosts: Ghosts::new(share(capacity, 50)),
            in_limit: share(capacity, 25),
        }
    }
}

impl<N: Node> Policy for TwoQ<N> {
    fn capacity(&self) -> u32 {
        self.lists.capacity()
    }
    fn len(&self) -> u32 {
        self.lists.len(IN) + self.lists.len(MAIN)
    }
    #[inline]
    fn hit(&mut self, slot: u32, _: u64, _: Access) {
        if self.lists.list_of(slot) == MAIN {
            self.lists.move_front(MAIN, slot);
        }
    }
    #[inline]
    fn insert(&mut self, slot: u32, key: u64, _: Access) {
        let list = if self.ghosts.take(key).is_some() { MAIN } else { IN };
        self.lists.push_front(list, slot);
    }
    #[inline]
    fn evict(&mut self, _: u64, slots: &dyn Slots) -> Option<u32> {
        let first =
            if self.lists.len(IN) > self.in_limit || self.lists.is_empty(MAIN) { IN } else { MAIN };
        let slot = self.lists.candidate(first, slots);
        let slot = slot.or_else(|| self.lists.candidate(1 - first, slots))?;
        if self.lists.list_of(slot) == IN && self.ghosts.find(slots.key(slot)).is_none() {
            self.ghosts.remember(0, slots.key(slot));
        }
        self.lists.unlink(slot);
        Some(slot)
    }
    fn remove(&mut self, slot: u32) {
        self.lists.unlink(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let first = if self.lists.len(IN) > self.in_limit { IN } else { MAIN };
        self.lists.from_tail(first).chain(self.lists.from_tail(1 - first)).all(visit);
    }
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.lists.heap_bytes() + self.ghosts.heap_bytes()
    }
}
