//! ARC (Megiddo and Modha, FAST 2003): one list for blocks seen once, one for blocks seen more
//! often, and ghosts of both that shift the border between them.

use super::ghosts::Ghosts;
use super::list::{Lists, Node};
use super::{Access, Policy, Slots};

const ONCE: usize = 0;
const OFTEN: usize = 1;

/// ARC. List `ONCE` is the paper's T1 (ghosts: B1), `OFTEN` its T2 (ghosts: B2).
#[derive(Debug)]
pub struct Arc<N> {
    lists: Lists<N, 2>,
    ghosts: Ghosts<2>,
    /// The paper's p: how many slots the list of blocks seen once should have.
    target: u32,
}

impl<N: Node> Arc<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Arc { lists: Lists::new(capacity), ghosts: Ghosts::new(capacity + 1), target: 0 }
    }
}

impl<N: Node> Policy for Arc<N> {
    fn capacity(&self) -> u32 {
        self.lists.capacity()
    }
    fn len(&self) -> u32 {
        self.lists.len(ONCE) + self.lists.len(OFTEN)
    }
    #[inline]
    fn hit(&mut self, slot: u32, _: u64, _: Access) {
        self.lists.move_front(OFTEN, slot);
    }
    #[inline]
    fn insert(&mut self, slot: u32, key: u64, _: Access) {
        let list = if self.ghosts.take(key).is_some() { OFTEN } else { ONCE };
        self.lists.push_front(list, slot);
    }
    fn evict(&mut self, incoming: u64, slots: &dyn Slots) -> Option<u32> {
        let capacity = self.capacity();
        let (b1, b2) = (self.ghosts.len(ONCE), self.ghosts.len(OFTEN));
        let ghost = self.ghosts.find(incoming).map(|ghost| self.ghosts.list_of(ghost));
        let target = match ghost {
            Some(ONCE) => capacity.min(self.target + (b2 / b1.max(1)).max(1)),
            Some(_) => self.target.saturating_sub((b1 / b2.max(1)).max(1)),
            None => self.target,
        };
        let t1 = self.lists.len(ONCE);
        let from_once = t1 > 0
            && (t1 > target
                || ghost == Some(OFTEN) && t1 == target
                || ghost.is_none() && t1 == capacity);
        let first = if from_once { ONCE } else { OFTEN };
        let slot = self.lists.candidate(first, slots);
        let slot = slot.or_else(|| self.lists.candidate(1 - first, slots))?;
        self.target = target;
        let list = self.lists.list_of(slot);
        self.lists.unlink(slot);
        if ghost.is_none() {
            // The paper's case IV: |T1| + |B1| stays below c, everything below 2c.
            if t1 + b1 >= capacity {
                if b1 == 0 {
                    return Some(slot);
                }
                self.ghosts.oldest(ONCE).into_iter().for_each(|ghost| self.ghosts.forget(ghost));
            } else if b1 + b2 >= capacity {
                self.ghosts.oldest(OFTEN).into_iter().for_each(|ghost| self.ghosts.forget(ghost));
            }
        }
        if self.ghosts.find(slots.key(slot)).is_none() {
            self.ghosts.remember(list, slots.key(slot));
        }
        Some(slot)
    }
    fn remove(&mut self, slot: u32) {
        self.lists.unlink(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let first = if self.lists.len(ONCE) > self.target { ONCE } else { OFTEN };
        self.lists.from_tail(first).chain(self.lists.from_tail(1 - first)).all(visit);
    }
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.lists.heap_bytes() + self.ghosts.heap_bytes()
    }
}
