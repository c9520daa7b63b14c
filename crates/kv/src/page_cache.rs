//! Which key pages are in DRAM: all of them while they fit, else the recently used ones.
//!
//! Pages come in when a kvset is built, when a search misses, and after opening one batch after the
//! other; they leave by second chance (Corbató's CLOCK) when they exceed the limit. Filters and page
//! indexes never leave.
//!
//! Invariants
//! 1. `resident` is the size of all pages in all slots, and of those held.
//! 2. Every page that came in is in the queue once, until it leaves or its kvset is gone.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::omf::page::{PAGE_SIZE, Page};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock};

/// A page in DRAM, shared with whoever reads it.
pub(crate) type SharedPage = Page<Arc<[u8]>>;

/// The DRAM of one page with its slot and queue entry, in bytes.
const PAGE_DRAM: u64 = PAGE_SIZE as u64 + 32;

/// All key pages of a KVDB.
pub(crate) struct PageCache {
    limit: AtomicU64,
    resident: AtomicU64,
    misses: AtomicU64,
    queue: Mutex<VecDeque<(Weak<PageTable>, u32)>>,
}

/// The pages of one kvset.
pub(crate) struct PageTable {
    cache: Arc<PageCache>,
    slots: Box<[Slot]>,
    /// Those before this one have been in DRAM, or there was no room for them when they were written.
    offered: AtomicU32,
}

#[derive(Default)]
struct Slot {
    page: RwLock<Option<SharedPage>>,
    used: AtomicBool,
}

impl PageCache {
    pub(crate) fn new(limit: u64) -> PageCache {
        PageCache {
            limit: AtomicU64::new(limit),
            resident: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            queue: Mutex::new(VecDeque::new()),
        }
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.resident.load(Ordering::Relaxed)
    }

    pub(crate) fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
        self.evict();
    }

    /// Whether `pages` more pages fit without another one leaving.
    pub(crate) fn has_room(&self, pages: u64) -> bool {
        self.resident_bytes() + pages * PAGE_DRAM <= self.limit.load(Ordering::Relaxed)
    }

    /// For counting pages that are in DRAM, but in no slot yet, until it is dropped.
    pub(crate) fn hold(self: &Arc<Self>) -> Held {
        Held { cache: self.clone(), bytes: 0 }
    }

    /// Queues a page. While nothing is evicted, pages of kvsets that are gone stay in the queue:
    /// they go when they are more than those that are resident.
    fn enqueue(&self, table: Weak<PageTable>, index: u32) {
        let mut queue = self.queue.lock();
        if queue.len() as u64 > 2 * self.resident_bytes() / PAGE_DRAM + 1024 {
            queue.retain(|(table, _)| table.strong_count() > 0);
        }
        queue.push_back((table, index));
    }

    fn evict(&self) {
        while self.resident_bytes() > self.limit.load(Ordering::Relaxed) {
            let mut queue = self.queue.lock();
            let Some((table, index)) = queue.pop_front() else {
                return;
            };
            let Some(owner) = table.upgrade() else {
                continue;
            };
            let slot = &owner.slots[index as usize];
            if slot.used.swap(false, Ordering::Relaxed) {
                queue.push_back((table, index));
                continue;
            }
            drop(queue);
            if slot.page.write().take().is_some() {
                self.resident.fetch_sub(PAGE_DRAM, Ordering::Relaxed);
            }
        }
    }
}

/// Pages of a kvset under construction.
pub(crate) struct Held {
    cache: Arc<PageCache>,
    bytes: u64,
}

impl Held {
    pub(crate) fn add_page(&mut self) {
        self.bytes += PAGE_DRAM;
        self.cache.resident.fetch_add(PAGE_DRAM, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.cache.resident.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl PageTable {
    /// The table of a kvset whose first `offered` pages need not be read ahead of need.
    pub(crate) fn new(cache: &Arc<PageCache>, pages: u32, offered: u32) -> Arc<PageTable> {
        let slots = (0..pages).map(|_| Slot::default()).collect();
        Arc::new(PageTable { cache: cache.clone(), slots, offered: AtomicU32::new(offered) })
    }

    /// The next pages to be read ahead of need, up to `count`, if there are any and they fit. Called by
    /// one thread at a time.
    pub(crate) fn preload(&self, count: u32) -> Option<Range<u32>> {
        let start = self.offered.load(Ordering::Relaxed);
        let pages = u32::try_from(self.len()).expect("page counts have 32 bits");
        let count = count.min(pages - start);
        if count == 0 || !self.cache.has_room(count.into()) {
            return None;
        }
        self.offered.store(start + count, Ordering::Relaxed);
        Some(start..start + count)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The page, if it is in DRAM.
    pub(crate) fn get(&self, index: u32) -> Option<SharedPage> {
        self.with(index, SharedPage::clone)
    }

    /// What `read` makes of the page, if it is in DRAM. The page stays there meanwhile.
    pub(crate) fn with<R>(&self, index: u32, read: impl FnOnce(&SharedPage) -> R) -> Option<R> {
        let slot = &self.slots[index as usize];
        let page = slot.page.read();
        let page = page.as_ref()?;
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        Some(read(page))
    }

    /// Puts a page in its slot, counting a miss when a search needed it.
    pub(crate) fn admit(self: &Arc<Self>, index: u32, page: &SharedPage, missed: bool) {
        if missed {
            self.cache.misses.fetch_add(1, Ordering::Relaxed);
        }
        let previous = self.slots[index as usize].page.write().replace(page.clone());
        if previous.is_none() {
            self.cache.resident.fetch_add(PAGE_DRAM, Ordering::Relaxed);
            self.cache.enqueue(Arc::downgrade(self), index);
            self.cache.evict();
        }
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        let resident = self
            .slots
            .iter_mut()
            .map(|slot| usize::from(slot.page.get_mut().is_some()))
            .sum::<usize>();
        self.cache.resident.fetch_sub(resident as u64 * PAGE_DRAM, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::omf::page::{Entry, PageBuilder};

    fn page(kvset: u64, index: u32) -> SharedPage {
        let mut builder = PageBuilder::default();
        assert!(builder.add(b"key", Entry::Tombstone));
        let mut bytes = vec![0; PAGE_SIZE];
        builder.finish(kvset, index, &mut bytes);
        Page::verify(Arc::from(bytes), kvset, index).unwrap()
    }

    #[test]
    fn pages_beyond_the_limit_leave_and_used_ones_stay() {
        let cache = Arc::new(PageCache::new(4 * PAGE_DRAM));
        let table = PageTable::new(&cache, 10, 10);
        for index in 0..4 {
            table.admit(index, &page(1, index), false);
        }
        assert!(table.get(1).is_some());
        table.admit(4, &page(1, 4), true);
        table.admit(5, &page(1, 5), true);
        assert_eq!(cache.resident_bytes(), 4 * PAGE_DRAM);
        let resident: Vec<u32> = (0..10).filter(|&i| table.get(i).is_some()).collect();
        assert_eq!(resident, [1, 3, 4, 5]);
        assert_eq!(cache.misses(), 2);
        drop(table);
        assert_eq!(cache.resident_bytes(), 0);
    }
}
