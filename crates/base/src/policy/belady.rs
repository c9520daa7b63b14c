//! The optimum (Belady, 1966): the block whose next use is farthest goes. It needs to be told
//! the future ([`Policy::foresee`]), so it is for simulations.

use std::collections::BinaryHeap;

use super::{Access, Policy, Slots};

/// The next use of a slot that is not held.
const FREE: u64 = u64::MAX - 1;

/// Belady's optimum.
#[derive(Debug)]
pub struct Belady {
    next: Box<[u64]>,
    /// Next uses and slots; an entry counts while the slot still has that next use.
    heap: BinaryHeap<(u64, u32)>,
    foreseen: u64,
    held: u32,
}

impl Belady {
    /// An empty one over `capacity` slots.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        let next = vec![FREE; capacity as usize].into_boxed_slice();
        Belady { next, heap: BinaryHeap::new(), foreseen: u64::MAX, held: 0 }
    }

    fn put(&mut self, slot: u32) {
        self.next[slot as usize] = self.foreseen;
        if self.heap.len() > 4 * self.next.len() + 64 {
            let next = &self.next;
            let mut entries = std::mem::take(&mut self.heap).into_vec();
            entries.retain(|&(when, slot)| next[slot as usize] == when);
            entries.sort_unstable();
            entries.dedup();
            self.heap = entries.into();
        }
        self.heap.push((self.foreseen, slot));
    }
}

impl Policy for Belady {
    fn capacity(&self) -> u32 {
        u32::try_from(self.next.len()).unwrap_or(u32::MAX)
    }
    fn len(&self) -> u32 {
        self.held
    }
    fn hit(&mut self, slot: u32, _: u64, _: Access) {
        self.put(slot);
    }
    fn insert(&mut self, slot: u32, _: u64, _: Access) {
        self.held += 1;
        self.put(slot);
    }
    fn evict(&mut self, _: u64, slots: &dyn Slots) -> Option<u32> {
        let mut refused = Vec::new();
        let mut found = None;
        while let Some((when, slot)) = self.heap.pop() {
            if self.next[slot as usize] != when {
                continue;
            }
            if !slots.may_go(slot) {
                refused.push((when, slot));
            } else {
                self.remove(slot);
                found = Some(slot);
                break;
            }
        }
        self.heap.extend(refused);
        found
    }
    fn remove(&mut self, slot: u32) {
        if self.next[slot as usize] != FREE {
            self.next[slot as usize] = FREE;
            self.held -= 1;
        }
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let mut order: Vec<u32> = (0..self.capacity()).collect();
        order.retain(|&slot| self.next[slot as usize] != FREE);
        order.sort_by_key(|&slot| std::cmp::Reverse(self.next[slot as usize]));
        order.into_iter().all(visit);
    }
    fn foresee(&mut self, next: u64) {
        self.foreseen = next;
    }
    fn memory_bytes(&self) -> usize {
        let heap = self.heap.capacity() * size_of::<(u64, u32)>();
        size_of::<Self>() + size_of_val(&*self.next) + heap
    }
}
