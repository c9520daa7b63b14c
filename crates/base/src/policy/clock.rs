//! CLOCK and SIEVE: a queue, a bit for every block, and nothing moves on a hit.
//!
//! CLOCK (Corbató, 1968) as a queue: a block that was referenced goes round once more. SIEVE
//! (Zhang and others, NSDI 2024) leaves it where it is; a hand passes from the oldest to the
//! newest and evicts the first that was not referenced since the hand came by.

use super::list::{Lists, Node};
use super::{Access, Policy, Slots};

/// CLOCK: a second chance for referenced blocks.
#[derive(Debug)]
pub struct SecondChance<N>(Lists<N, 1>);

impl<N: Node> SecondChance<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        SecondChance(Lists::new(capacity))
    }
}

impl<N: Node> Policy for SecondChance<N> {
    fn capacity(&self) -> u32 {
        self.0.capacity()
    }
    fn len(&self) -> u32 {
        self.0.len(0)
    }
    #[inline]
    fn hit(&mut self, slot: u32, _: u64, _: Access) {
        self.0.set_bits(slot, 1);
    }
    #[inline]
    fn insert(&mut self, slot: u32, _: u64, _: Access) {
        self.0.set_bits(slot, 0);
        self.0.push_front(0, slot);
    }
    #[inline]
    fn evict(&mut self, _: u64, slots: &dyn Slots) -> Option<u32> {
        // Twice round clears every bit; a third round meets refusals only.
        for _ in 0..2 * self.len() {
            let slot = self.0.tail(0)?;
            if self.0.bits(slot) == 0 && slots.may_go(slot) {
                self.0.unlink(slot);
                return Some(slot);
            }
            self.0.set_bits(slot, 0);
            self.0.move_front(0, slot);
        }
        None
    }
    fn remove(&mut self, slot: u32) {
        self.0.unlink(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        self.0.from_tail(0).all(visit);
    }
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.0.heap_bytes()
    }
}

/// The first that the hand finds unreferenced goes.
#[derive(Debug)]
pub struct Sieve<N> {
    queue: Lists<N, 1>,
    hand: Option<u32>,
}

impl<N: Node> Sieve<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Sieve { queue: Lists::new(capacity), hand: None }
    }
}

impl<N: Node> Policy for Sieve<N> {
    fn capacity(&self) -> u32 {
        self.queue.capacity()
    }
    fn len(&self) -> u32 {
        self.queue.len(0)
    }
    #[inline]
    fn hit(&mut self, slot: u32, _: u64, _: Access) {
        self.queue.set_bits(slot, 1);
    }
    #[inline]
    fn insert(&mut self, slot: u32, _: u64, _: Access) {
        self.queue.set_bits(slot, 0);
        self.queue.push_front(0, slot);
    }
    #[inline]
    fn evict(&mut self, _: u64, slots: &dyn Slots) -> Option<u32> {
        for _ in 0..2 * self.len() {
            let slot = self.hand.or_else(|| self.queue.tail(0))?;
            self.hand = self.queue.before(slot);
            if self.queue.bits(slot) == 0 && slots.may_go(slot) {
                self.queue.unlink(slot);
                return Some(slot);
            }
            self.queue.set_bits(slot, 0);
        }
        None
    }
    fn remove(&mut self, slot: u32) {
        if self.hand == Some(slot) {
            self.hand = self.queue.before(slot);
        }
        self.queue.unlink(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let mut next = self.hand.or_else(|| self.queue.tail(0));
        for _ in 0..self.len() {
            let Some(slot) = next else { return };
            if self.queue.bits(slot) == 0 && !visit(slot) {
                return;
            }
            next = self.queue.before(slot).or_else(|| self.queue.tail(0));
        }
        self.queue.from_tail(0).filter(|&slot| self.queue.bits(slot) == 1).all(visit);
    }
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.queue.heap_bytes()
    }
}
