//! The default policy: goes by the rule that does best on a sample of the blocks.
//!
//! Every cache, or set of one, orders its slots by a [`Blend`]. All sets ask one [`Chooser`] for the rule.

use std::sync::Arc;

use super::blend::Blend;
use super::chooser::Chooser;
use super::list::Node;
use super::{Access, Policy, Slots};
use crate::units::{to_u64, to_usize};

/// A cache, or a set of one, that goes by the rule of its chooser.
#[derive(Debug)]
pub struct Adaptive<N> {
    blend: Blend<N>,
    chooser: Arc<Chooser>,
}

impl<N: Node> Adaptive<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32, chooser: Arc<Chooser>) -> Self {
        Adaptive { blend: Blend::new(capacity, chooser.rule()), chooser }
    }

    #[inline]
    fn refer(&mut self, key: u64, access: Access) {
        self.chooser.refer(key, access);
        self.blend.set_rule(self.chooser.rule());
    }
}

impl<N: Node> Policy for Adaptive<N> {
    fn capacity(&self) -> u32 {
        self.blend.capacity()
    }
    fn len(&self) -> u32 {
        self.blend.len()
    }
    #[inline]
    fn hit(&mut self, slot: u32, key: u64, access: Access) {
        self.refer(key, access);
        self.blend.hit(slot, key, access);
    }
    #[inline]
    fn insert(&mut self, slot: u32, key: u64, access: Access) {
        self.refer(key, access);
        self.blend.insert(slot, key, access);
    }
    #[inline]
    fn evict(&mut self, incoming: u64, slots: &dyn Slots) -> Option<u32> {
        self.blend.evict(incoming, slots)
    }
    fn comes_again(&mut self, key: u64) -> bool {
        let is_known = self.blend.comes_again(key);
        // One that is known is let in, and referred to then.
        if !is_known {
            self.refer(key, Access::Read);
        }
        is_known
    }
    fn remove(&mut self, slot: u32) {
        self.blend.remove(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        self.blend.coldest(visit);
    }
    fn memory_bytes(&self) -> usize {
        let sharers = to_u64(Arc::strong_count(&self.chooser)).max(1);
        let shared = to_u64(self.chooser.memory_bytes()).div_ceil(sharers);
        self.blend.memory_bytes() + size_of::<Arc<Chooser>>() + to_usize(shared)
    }
}
