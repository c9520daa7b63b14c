//! S3-FIFO (Yang and others, SOSP 2023): a small queue that filters blocks seen once, a main queue
//! with reinsertion, and ghosts of the blocks that the small one let go.

use super::ghosts::Ghosts;
use super::list::{Lists, Node};
use super::{Access, Policy, Slots, share};

const SMALL: usize = 0;
const MAIN: usize = 1;
/// Hits counted, at most.
const MOST: u8 = 3;
/// Hits in the small queue that take a block to the main one.
const ENOUGH: u8 = 2;

/// S3-FIFO with a small queue of one tenth.
#[derive(Debug)]
pub struct S3Fifo<N> {
    lists: Lists<N, 2>,
    ghosts: Ghosts<1>,
    small_limit: u32,
}

impl<N: Node> S3Fifo<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        S3Fifo {
            lists: Lists::new(capacity),
            ghosts: Ghosts::new(share(capacity, 90)),
            small_limit: share(capacity, 10).max(1),
        }
    }

    /// Lets the queues go round until `list` has a slot to give.
    fn turn(&mut self, list: usize, slots: &dyn Slots) -> Option<u32> {
        for _ in 0..self.lists.len(list) * u32::from(MOST + 1) {
            let slot = self.lists.tail(list)?;
            let hits = self.lists.bits(slot);
            if list == SMALL {
                if hits >= ENOUGH {
                    self.lists.set_bits(slot, 0);
                    self.lists.move_front(MAIN, slot);
                    continue;
                }
            } else if hits > 0 {
                self.lists.set_bits(slot, hits - 1);
                self.lists.move_front(MAIN, slot);
                continue;
            }
            if slots.may_go(slot) {
                return Some(slot);
            }
            self.lists.move_front(list, slot);
        }
        None
    }
}

impl<N: Node> Policy for S3Fifo<N> {
    fn capacity(&self) -> u32 {
        self.lists.capacity()
    }
    fn len(&self) -> u32 {
        self.lists.len(SMALL) + self.lists.len(MAIN)
    }
    #[inline]
    fn hit(&mut self, slot: u32, _: u64, _: Access) {
        let hits = self.lists.bits(slot);
        if hits < MOST {
            self.lists.set_bits(slot, hits + 1);
        }
    }
    #[inline]
    fn insert(&mut self, slot: u32, key: u64, _: Access) {
        self.lists.set_bits(slot, 0);
        let list = if self.ghosts.take(key).is_some() { MAIN } else { SMALL };
        self.lists.push_front(list, slot);
    }
    fn evict(&mut self, _: u64, slots: &dyn Slots) -> Option<u32> {
        let main_limit = self.capacity() - self.small_limit.min(self.capacity());
        let first = if self.lists.len(MAIN) > main_limit || self.lists.is_empty(SMALL) {
            MAIN
        } else {
            SMALL
        };
        let slot = self.turn(first, slots);
        let slot = slot.or_else(|| self.turn(1 - first, slots));
        let slot = slot.or_else(|| self.turn(first, slots))?;
        if self.lists.list_of(slot) == SMALL && self.ghosts.find(slots.key(slot)).is_none() {
            self.ghosts.remember(0, slots.key(slot));
        }
        self.lists.unlink(slot);
        Some(slot)
    }
    fn remove(&mut self, slot: u32) {
        self.lists.unlink(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let once = |&slot: &u32| self.lists.bits(slot) == 0;
        let lists = || self.lists.from_tail(SMALL).chain(self.lists.from_tail(MAIN));
        let mut going = true;
        let mut go = |slot| {
            going = going && visit(slot);
            going
        };
        let _ =
            lists().filter(once).all(&mut go) && lists().filter(|slot| !once(slot)).all(&mut go);
    }
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.lists.heap_bytes() + self.ghosts.heap_bytes()
    }
}
