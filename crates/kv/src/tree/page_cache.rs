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

use esker_base::prefetch;

use crate::omf::page::{PAGE_SIZE, Page};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock};
use crate::types::key::key_hash;

/// A page in DRAM, shared with whoever reads it.
pub(crate) type SharedPage = Page<Tagged>;

/// A page's bytes and, behind them, a tag for each of its keys: a byte of the key's hash.
#[derive(Clone)]
pub(crate) struct Tagged(Arc<[u8]>);

/// The lines of a page that hold the header and the slots of about so many keys as there mostly are.
const SLOT_LINES: usize = 4;
/// How many tags are compared at a time: as one, without a branch for each.
const GROUP: usize = 32;

fn tag(hash: u64) -> u8 {
    hash.to_le_bytes()[0]
}

impl AsRef<[u8]> for Tagged {
    fn as_ref(&self) -> &[u8] {
        self.0.first_chunk::<PAGE_SIZE>().expect("a page is behind it")
    }
}

impl SharedPage {
    /// Shares a page.
    pub(crate) fn new(page: &Page<impl AsRef<[u8]>>) -> SharedPage {
        let mut key = Vec::new();
        SharedPage::with_hashes(
            page,
            (0..page.count()).map(|slot| {
                page.key_to(slot, &mut key);
                key_hash(&key)
            }),
        )
    }

    /// Shares a page whose keys have these hashes.
    pub(crate) fn with_hashes(
        page: &Page<impl AsRef<[u8]>>,
        hashes: impl Iterator<Item = u64>,
    ) -> SharedPage {
        let size = PAGE_SIZE + page.count().next_multiple_of(GROUP);
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
        let (copy, tags) = Arc::make_mut(&mut bytes).split_at_mut(PAGE_SIZE);
        copy.copy_from_slice(page.raw());
        tags.iter_mut().zip(hashes).for_each(|(place, hash)| *place = tag(hash));
        page.kept_in(Tagged(bytes))
    }

    /// The slot of `key`, whose hash is `hash`, if it is there. Tags lie side by side, and entries all over
    /// the page: this looks at hardly any other than the key's own, where [`Page::search`] looks at eight.
    pub(crate) fn find(&self, key: &[u8], hash: u64) -> Option<usize> {
        let tag = tag(hash);
        let (groups, _) = self.keeper().0[PAGE_SIZE..].as_chunks::<GROUP>();
        groups.iter().zip((0..).step_by(GROUP)).find_map(|(group, first)| {
            if !group.iter().fold(false, |any, other| any | (*other == tag)) {
                return None;
            }
            let slots = (first..self.count()).zip(group);
            let mut tagged = slots.filter(|(_, other)| **other == tag).map(|(slot, _)| slot);
            tagged.find(|&slot| key.strip_prefix(self.prefix()) == Some(self.suffix(slot)))
        })
    }

    /// Asks for the memory that a search looks at first: header and slots, and the entries at the eighths of the
    /// page. Memory that it looks at later lies together.
    fn prefetch(&self) {
        const LINE: usize = 64;
        let raw = self.raw();
        raw.iter().step_by(LINE).take(SLOT_LINES).for_each(prefetch);
        raw.iter().step_by(PAGE_SIZE / 8).skip(1).for_each(prefetch);
    }

    /// Whether the cache, or somebody else, has it, too.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.keeper().0) > 1
    }

    /// The DRAM it takes with its slot and queue entry, in bytes.
    pub(crate) fn dram_bytes(&self) -> u64 {
        self.keeper().0.len() as u64 + 32
    }
}

/// The DRAM of a page of about so many keys as there mostly are.
pub(crate) const PAGE_DRAM: u64 = PAGE_SIZE as u64 + 256;

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
    pub(crate) fn hold(self: &Arc<Self>) -> HeldPages {
        HeldPages { cache: self.clone(), bytes: 0 }
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
            if let Some(page) = slot.page.write().take() {
                self.resident.fetch_sub(page.dram_bytes(), Ordering::Relaxed);
            }
        }
    }
}

/// Pages of a kvset under construction.
pub(crate) struct HeldPages {
    cache: Arc<PageCache>,
    bytes: u64,
}

impl HeldPages {
    pub(crate) fn add(&mut self, page: &SharedPage) {
        self.bytes += page.dram_bytes();
        self.cache.resident.fetch_add(page.dram_bytes(), Ordering::Relaxed);
    }
}

impl Drop for HeldPages {
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

    /// Result of `read` on the page, if it is in DRAM. The page stays there meanwhile.
    pub(crate) fn with<R>(&self, index: u32, read: impl FnOnce(&SharedPage) -> R) -> Option<R> {
        let slot = &self.slots[index as usize];
        let page = slot.page.read();
        let page = page.as_ref()?;
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        Some(read(page))
    }

    /// Asks for the memory that names the page.
    pub(crate) fn prefetch(&self, index: u32) {
        prefetch(&self.slots[index as usize]);
    }

    /// Asks for the memory of the page in which a search begins, if the page is in DRAM.
    pub(crate) fn prefetch_page(&self, index: u32) {
        if let Some(page) = &*self.slots[index as usize].page.read() {
            page.prefetch();
        }
    }

    /// Puts a page in its slot, counting a miss when a search needed it.
    pub(crate) fn admit(self: &Arc<Self>, index: u32, page: &SharedPage, missed: bool) {
        if missed {
            self.cache.misses.fetch_add(1, Ordering::Relaxed);
        }
        let previous = self.slots[index as usize].page.write().replace(page.clone());
        if previous.is_none() {
            self.cache.resident.fetch_add(page.dram_bytes(), Ordering::Relaxed);
            self.cache.enqueue(Arc::downgrade(self), index);
            self.cache.evict();
        }
    }

    /// Counts a miss, and puts the page in its slot if no other one has to leave for it.
    pub(crate) fn offer(self: &Arc<Self>, index: u32, page: &SharedPage) {
        if self.cache.has_room(1) {
            self.admit(index, page, true);
        } else {
            self.cache.misses.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        let pages = self.slots.iter_mut().filter_map(|slot| slot.page.get_mut().as_ref());
        let resident: u64 = pages.map(SharedPage::dram_bytes).sum();
        self.cache.resident.fetch_sub(resident, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
