//! First in first out, least recently used, and LRU with insertion at a percentile.
//!
//! `MidPoint` is the scheme of Flashcache's second version (Mituzas and others, 2013): a *warm*
//! part at the evicted end and a *hot* one before it; new blocks enter at the head of the warm
//! part, and a block that is seen again there moves to the head of the hot one, which pushes its
//! oldest back into the warm part.

use super::list::{Lists, Node};
use super::{Access, Policy, Slots};

/// First in, first out.
#[derive(Debug)]
pub struct Fifo<N>(Lists<N, 1>);

/// The least recently used goes.
#[derive(Debug)]
pub struct Lru<N>(Lists<N, 1>);

impl<N: Node> Fifo<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Fifo(Lists::new(capacity))
    }
}

impl<N: Node> Lru<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Lru(Lists::new(capacity))
    }
}

macro_rules! one_list {
    ($name:ident, |$lists:ident, $slot:ident| $hit:expr) => {
        impl<N: Node> Policy for $name<N> {
            fn capacity(&self) -> u32 {
                self.0.capacity()
            }
            fn len(&self) -> u32 {
                self.0.len(0)
            }
            #[inline]
            fn hit(&mut self, $slot: u32, _: u64, _: Access) {
                let $lists = &mut self.0;
                $hit
            }
            #[inline]
            fn insert(&mut self, slot: u32, _: u64, _: Access) {
                self.0.push_front(0, slot);
            }
            #[inline]
            fn evict(&mut self, _: u64, slots: &dyn Slots) -> Option<u32> {
                let slot = self.0.candidate(0, slots)?;
                self.0.unlink(slot);
                Some(slot)
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
    };
}

one_list!(Fifo, |_lists, _slot| ());
one_list!(Lru, |lists, slot| lists.move_front(0, slot));

const WARM: usize = 0;
const HOT: usize = 1;

/// LRU that inserts at a percentile of the order.
#[derive(Debug)]
pub struct MidPoint<N> {
    lists: Lists<N, 2>,
    hot_limit: u32,
}

impl<N: Node> MidPoint<N> {
    /// An empty one over `capacity` slots; the hot part has `percent` of them.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32, percent: u8) -> Self {
        let hot = u64::from(capacity) * u64::from(percent.min(99)) / 100;
        let hot_limit = u32::try_from(hot).unwrap_or(u32::MAX);
        MidPoint { lists: Lists::new(capacity), hot_limit }
    }
}

impl<N: Node> Policy for MidPoint<N> {
    fn capacity(&self) -> u32 {
        self.lists.capacity()
    }
    fn len(&self) -> u32 {
        self.lists.len(WARM) + self.lists.len(HOT)
    }
    #[inline]
    fn hit(&mut self, slot: u32, _: u64, _: Access) {
        self.lists.move_front(HOT, slot);
        if self.lists.len(HOT) > self.hot_limit
            && let Some(oldest) = self.lists.tail(HOT)
        {
            self.lists.move_front(WARM, oldest);
        }
    }
    #[inline]
    fn insert(&mut self, slot: u32, _: u64, _: Access) {
        self.lists.push_front(WARM, slot);
    }
    #[inline]
    fn evict(&mut self, _: u64, slots: &dyn Slots) -> Option<u32> {
        let warm = self.lists.candidate(WARM, slots);
        let slot = warm.or_else(|| self.lists.candidate(HOT, slots))?;
        self.lists.unlink(slot);
        Some(slot)
    }
    fn remove(&mut self, slot: u32) {
        self.lists.unlink(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        self.lists.from_tail(WARM).chain(self.lists.from_tail(HOT)).all(visit);
    }
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.lists.heap_bytes()
    }
}
