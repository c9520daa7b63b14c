//! An allocator over reserved ranges, whose own data lies elsewhere: to free or to look for room
//! touches no page of the memory that it hands out.
//!
//! Small sizes come from slabs of one size class; large ones are ranges of their own.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::BTreeMap;

use esker_base::sync::{Mutex, let_go};

use crate::types::PAGE;

/// Bytes of a slab.
const SLAB: usize = 64 << 10;
/// The largest size that comes from slabs.
const LARGEST: usize = SLAB / 4;
/// The smallest size class.
const SMALLEST: usize = 16;
const WORDS: usize = SLAB / SMALLEST / 64;

/// Source of a heap's address ranges.
pub(crate) trait Ground {
    /// Reserves a range of whole pages, aligned to pages.
    fn reserve(&self, size: usize) -> Option<usize>;
    /// Ends a reservation; the content is dropped.
    fn release(&self, addr: usize, size: usize);
}

struct Slab {
    /// Bytes of an object.
    size: usize,
    free: usize,
    used: [u64; WORDS],
}

/// The allocator.
#[derive(Default)]
pub(crate) struct Heap {
    slabs: BTreeMap<usize, Slab>,
    /// Slabs with room, by size class.
    roomy: BTreeMap<usize, Vec<usize>>,
    /// Ranges of their own.
    large: BTreeMap<usize, usize>,
}

/// Four classes for each power of two.
fn class_of(size: usize) -> usize {
    let size = size.max(SMALLEST);
    let step = (size.next_power_of_two() / 8).max(SMALLEST);
    size.next_multiple_of(step)
}

/// The fast part: an allocator, and the bytes left for it.
pub(crate) struct Fast {
    pub(crate) heap: Heap,
    pub(crate) left: Cell<usize>,
}

/// The allocators of an arena.
pub(crate) struct Heaps {
    pub(crate) slow: Mutex<Heap>,
    pub(crate) fast: Mutex<Fast>,
}

impl Heaps {
    /// Both empty; the fast one may take so many bytes.
    pub(crate) fn new(fast_bytes: usize) -> Heaps {
        let fast = Fast { heap: Heap::default(), left: Cell::new(fast_bytes) };
        Heaps { slow: Mutex::default(), fast: Mutex::new(fast) }
    }

    /// Holds both, so that a fork finds them whole and free.
    pub(crate) fn hold(&self) {
        std::mem::forget((self.slow.lock(), self.fast.lock()));
    }

    /// Lets go of both.
    ///
    /// # Safety
    /// This thread, or that of the parent which forked, has called [`Heaps::hold`].
    pub(crate) unsafe fn let_go(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            let_go(&self.slow);
            let_go(&self.fast);
        }
    }
}

impl Heap {
    /// Memory of `size` bytes, aligned to `align`, a power of two of at most a page.
    pub(crate) fn allocate(
        &mut self,
        ground: &dyn Ground,
        size: usize,
        align: usize,
    ) -> Option<usize> {
        if align > PAGE {
            return None;
        }
        let size = size.max(1).checked_next_multiple_of(align)?;
        if size > LARGEST {
            let size = size.checked_next_multiple_of(PAGE)?;
            let addr = ground.reserve(size)?;
            self.large.insert(addr, size);
            return Some(addr);
        }
        // A class that is a multiple of the alignment keeps it, as slabs are aligned.
        let mut class = class_of(size);
        if !class.is_multiple_of(align) {
            class = size.next_power_of_two();
        }
        let with_room = self.roomy.entry(class).or_default();
        let base = match with_room.last() {
            Some(&base) => base,
            None => {
                let base = ground.reserve(SLAB)?;
                let slab = Slab { size: class, free: SLAB / class, used: [0; WORDS] };
                self.slabs.insert(base, slab);
                with_room.push(base);
                base
            }
        };
        let slab = self.slabs.get_mut(&base).expect("a slab with room is a slab");
        let index = slab.take();
        if slab.free == 0 {
            with_room.pop();
        }
        Some(base + index * class)
    }

    /// Frees a block from [`Heap::allocate`]. False when there is no such block.
    pub(crate) fn free(&mut self, ground: &dyn Ground, addr: usize) -> bool {
        if let Some(size) = self.large.remove(&addr) {
            ground.release(addr, size);
            return true;
        }
        let Some((&base, slab)) = self.slabs.range_mut(..=addr).next_back() else { return false };
        if addr - base >= SLAB || !slab.give_back(addr - base) {
            return false;
        }
        let (class, is_empty) = (slab.size, slab.free == SLAB / slab.size);
        let with_room = self.roomy.entry(class).or_default();
        if slab.free == 1 {
            with_room.push(base);
        }
        // One empty slab of a class is kept for the next object.
        if is_empty && with_room.len() > 1 {
            with_room.retain(|&other| other != base);
            self.slabs.remove(&base);
            ground.release(base, SLAB);
        }
        true
    }

    /// How many bytes can be used at an address that was allocated.
    pub(crate) fn usable(&self, addr: usize) -> Option<usize> {
        if let Some(&size) = self.large.get(&addr) {
            return Some(size);
        }
        let (&base, slab) = self.slabs.range(..=addr).next_back()?;
        (addr - base < SLAB).then_some(slab.size)
    }
}

impl Slab {
    fn take(&mut self) -> usize {
        let count = SLAB / self.size;
        let index = (0..count).find(|&n| self.used[n / 64] & 1 << (n % 64) == 0);
        let index = index.expect("a slab with room");
        self.used[index / 64] |= 1 << (index % 64);
        self.free -= 1;
        index
    }

    fn give_back(&mut self, offset: usize) -> bool {
        let index = offset / self.size;
        let bit = 1 << (index % 64);
        let is_used = offset.is_multiple_of(self.size)
            && index < SLAB / self.size
            && self.used[index / 64] & bit != 0;
        if is_used {
            self.used[index / 64] &= !bit;
            self.free += 1;
        }
        is_used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::Rng;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;

    #[derive(Default)]
    struct Address {
        next: Cell<usize>,
        live: RefCell<BTreeMap<usize, usize>>,
    }

    impl Ground for Address {
        fn reserve(&self, size: usize) -> Option<usize> {
            let addr = self.next.get() + PAGE;
            self.next.set(addr + size);
            self.live.borrow_mut().insert(addr, size);
            Some(addr)
        }
        fn release(&self, addr: usize, size: usize) {
            assert_eq!(self.live.borrow_mut().remove(&addr), Some(size));
        }
    }

    #[test]
    fn objects_never_overlap_and_all_comes_back() {
        let (ground, mut heap, mut rng) = (Address::default(), Heap::default(), Rng::new(3));
        let mut live: Vec<(usize, usize)> = Vec::new();
        for _ in 0..20_000 {
            if rng.chance(1, 2) || live.is_empty() {
                let most = 1 << rng.below(18);
                let size = 1 + usize::try_from(rng.below(most)).unwrap();
                let align = 1usize << rng.below(13);
                let addr = heap.allocate(&ground, size, align).unwrap();
                assert!(addr.is_multiple_of(align) && heap.usable(addr).unwrap() >= size);
                live.push((addr, size));
            } else {
                let at = usize::try_from(rng.below(live.len() as u64)).unwrap();
                let (addr, _) = live.swap_remove(at);
                assert!(heap.free(&ground, addr) && !heap.free(&ground, addr));
            }
        }
        let mut sorted = live.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
        live.iter().for_each(|(addr, _)| assert!(heap.free(&ground, *addr)));
        let classes: BTreeSet<usize> = heap.slabs.values().map(|slab| slab.size).collect();
        assert_eq!(heap.slabs.len(), classes.len());
        assert!(heap.large.is_empty());
    }
}
