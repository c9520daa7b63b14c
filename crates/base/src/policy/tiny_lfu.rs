//! W-TinyLFU (Einziger, Friedman and Manes, 2017): a small LRU window, a segmented LRU behind
//! it, and a contest by frequency for the place between them.

use super::list::{Lists, Node};
use super::sketch::Sketch;
use super::{Access, Policy, Slots, share};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// W-TinyLFU with a window of one hundredth, and four fifths of the rest protected.
#[derive(Debug)]
pub struct WTinyLfu<N> {
    lists: Lists<N, 3>,
    sketch: Sketch,
    window_limit: u32,
    protected_limit: u32,
}

impl<N: Node> WTinyLfu<N> {
    /// An empty one over `capacity` slots.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than `N` can link.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        let window_limit = share(capacity, 1).max(1);
        WTinyLfu {
            lists: Lists::new(capacity),
            sketch: Sketch::new(capacity),
            window_limit,
            protected_limit: share(capacity.saturating_sub(window_limit), 80),
        }
    }
}

impl<N: Node> Policy for WTinyLfu<N> {
    fn capacity(&self) -> u32 {
        self.lists.capacity()
    }
    fn len(&self) -> u32 {
        (0..3).map(|list| self.lists.len(list)).sum()
    }
    #[inline]
    fn hit(&mut self, slot: u32, key: u64, _: Access) {
        self.sketch.add(key);
        match self.lists.list_of(slot) {
            WINDOW => self.lists.move_front(WINDOW, slot),
            _ => {
                self.lists.move_front(PROTECTED, slot);
                if self.lists.len(PROTECTED) > self.protected_limit
                    && let Some(oldest) = self.lists.tail(PROTECTED)
                {
                    self.lists.move_front(PROBATION, oldest);
                }
            }
        }
    }
    #[inline]
    fn insert(&mut self, slot: u32, key: u64, _: Access) {
        self.sketch.add(key);
        self.lists.push_front(WINDOW, slot);
        if self.len() < self.capacity() {
            // Until the cache is full nothing has to win its place.
            while self.lists.len(WINDOW) > self.window_limit
                && let Some(oldest) = self.lists.tail(WINDOW)
            {
                self.lists.move_front(PROBATION, oldest);
            }
        }
    }
    fn evict(&mut self, _: u64, slots: &dyn Slots) -> Option<u32> {
        let main = self.lists.candidate(PROBATION, slots);
        let main = main.or_else(|| self.lists.candidate(PROTECTED, slots));
        let window = self.lists.candidate(WINDOW, slots);
        let slot = match (window, main) {
            (Some(window), Some(main)) if self.lists.len(WINDOW) >= self.window_limit => {
                let count = |slot: u32| self.sketch.count(slots.key(slot));
                if count(window) > count(main) {
                    self.lists.move_front(PROBATION, window);
                    main
                } else {
                    window
                }
            }
            (_, Some(main)) => main,
            (Some(window), None) => window,
            (None, None) => return None,
        };
        self.lists.unlink(slot);
        Some(slot)
    }
    fn remove(&mut self, slot: u32) {
        self.lists.unlink(slot);
    }
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let lists = [WINDOW, PROBATION, PROTECTED];
        lists.into_iter().flat_map(|list| self.lists.from_tail(list)).all(visit);
    }
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.lists.heap_bytes() + self.sketch.heap_bytes()
    }
}
