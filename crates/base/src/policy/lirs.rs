//! LIRS (Jiang and Zhang, SIGMETRICS 2002): blocks that came back soon stay, however long ago that was
//! by now; everything else passes through a queue of a hundredth of the slots.
//!
//! The stack has blocks that are cached and ghosts in one order of recency. Its entries are the
//! slots, and behind them the ghosts.
//!
//! Invariants:
//! 1. The bottom of the stack is a block of low inter-reference recency (*near*), or the stack is
//!    empty.
//! 2. A held slot is near and on the stack, or on the queue and perhaps on the stack too.
//! 3. Every ghost is on the stack.

use super::ghosts::Ghosts;
use super::list::{Large, Lists, Node};
use super::{Access, Policy, Slots, share};

const NEAR: u8 = 1;

/// LIRS with a queue of one hundredth of the slots and ghosts for twice the slots.
#[derive(Debug)]
pub struct Lirs<N> {
    stack: Lists<Large, 1>,
    queue: Lists<N, 1>,
    ghosts: Ghosts<1>,
    near: u32,
    near_limit: u32,
}

impl<N: Node> Lirs<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self::within(capacity, Large::LIMIT)
    }

    /// The same, with a stack of at most `limit` entries.
    pub(super) fn within(capacity: u32, limit: u32) -> Self {
        let ghosts = capacity.saturating_mul(2).min(limit.saturating_sub(capacity));
        Lirs {
            stack: Lists::new(capacity + ghosts),
            queue: Lists::new(capacity),
            ghosts: Ghosts::new(ghosts),
            near: 0,
            near_limit: capacity - share(capacity, 1).max(1).min(capacity - 1),
        }
    }

    fn is_near(&self, slot: u32) -> bool {
        self.stack.bits(slot) & NEAR != 0
    }

    fn on_stack(&self, entry: u32) -> bool {
        self.stack.list_of(entry) == 0
    }

    /// Takes everything off the bottom of the stack that is not near.
    fn prune(&mut self) {
        let capacity = self.capacity();
        while let Some(entry) = self.stack.tail(0) {
            if entry < capacity && self.is_near(entry) {
                return;
            }
            self.stack.unlink(entry);
            if entry >= capacity {
                self.ghosts.forget(entry - capacity);
            }
        }
    }

    /// `slot`, off the queue, becomes near at the top; the one at the bottom takes its place.
    fn promote(&mut self, slot: u32) {
        self.queue.unlink(slot);
        self.stack.move_front(0, slot);
        self.stack.set_bits(slot, NEAR);
        self.near += 1;
        if self.near > self.near_limit {
            self.prune();
            if let Some(bottom) = self.stack.tail(0) {
                self.stack.unlink(bottom);
                self.stack.set_bits(bottom, 0);
                self.near -= 1;
                self.queue.push_front(0, bottom);
            }
        }
        self.prune();
    }
}

impl<N: Node> Policy for Lirs<N> {
    fn capacity(&self) -> u32 {
        self.queue.capacity()
    }
    fn len(&self) -> u32 {
        self.near + self.queue.len(0)
    }
    #[inline]
    fn hit(&mut self, slot: u32, _: u64, _: Access) {
        if self.is_near(slot) {
            let was_bottom = self.stack.tail(0) == Some(slot);
            self.stack.move_front(0, slot);
            if was_bottom {
                self.prune();
            }
        } else if self.on_stack(slot) {
            self.promote(slot);
        } else {
            self.stack.push_front(0, slot);
            self.queue.move_front(0, slot);
            self.prune();
        }
    }
    fn insert(&mut self, slot: u32, key: u64, _: Access) {
        self.stack.set_bits(slot, 0);
        if let Some(ghost) = self.ghosts.find(key) {
            self.stack.unlink(self.capacity() + ghost);
            self.ghosts.forget(ghost);
            self.promote(slot);
        } else if self.near < self.near_limit {
            self.promote(slot);
        } else {
            self.stack.push_front(0, slot);
            self.queue.push_front(0, slot);
        }
    }
    fn evict(&mut self, _: u64, slots: &dyn Slots) -> Option<u32> {
        if let Some(slot) = self.queue.candidate(0, slots) {
            self.queue.unlink(slot);
            let (key, capacity) = (slots.key(slot), self.capacity());
            let room = self.stack.capacity() - capacity;
            if room > 0 && self.on_stack(slot) && self.ghosts.find(key).is_none() {
                if self.ghosts.len(0) == room
                    && let Some(oldest) = self.ghosts.oldest(0)
                {
                    self.stack.unlink(capacity + oldest);
                    self.ghosts.forget(oldest);
                }
                let ghost = self.ghosts.remember(0, key);
                self.stack.replace(slot, capacity + ghost);
            } else {
                self.stack.unlink(slot);
            }
            return Some(slot);
        }
        let capacity = self.capacity();
        let mut entries = self.stack.from_tail(0);
        let slot =
            entries.find(|&entry| entry < capacity && self.is_near(entry) && slots.may_go(entry));
        drop(entries);
        let slot = slot?;
        self.remove(slot);
        Some(slot)
    }
    fn remove(&mut self, slot: u32) {
        if self.is_near(slot) {
            self.stack.set_bits(slot, 0);
            self.near -= 1;
        }
        self.queue.unlink(slot);
        self.stack.unlink(slot);
        self.prune();
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let capacity = self.capacity();
        let stack = self.stack.from_tail(0);
        let near = stack.filter(|&entry| entry < capacity && self.is_near(entry));
        self.queue.from_tail(0).chain(near).all(visit);
    }
    fn memory_bytes(&self) -> usize {
        let lists = self.stack.heap_bytes() + self.queue.heap_bytes();
        size_of::<Self>() + lists + self.ghosts.heap_bytes()
    }
}
