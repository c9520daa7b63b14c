//! A kvset: an immutable sorted set of keys of one KVS, with references to their values.
//!
//! Its keys lie in pages on a medium; its filter and the first key of each page are in DRAM, and
//! so are its pages while the budget lasts. With its pages in DRAM, a search does no I/O.

pub(crate) mod ahead;
pub(crate) mod builder;
mod check;
pub(crate) mod cursor;
mod export;
pub(crate) mod extents;

use std::cmp::Ordering as Order;
use std::sync::Arc;

use esker_base::codec::Encoder;
use esker_base::units::to_usize;

use crate::media::class::Allocation;
use crate::omf::kvset::KvsetMeta;
use crate::omf::manifest::KvsetEdit;
use crate::omf::page::{Entry, INLINE_MAX, PAGE_SIZE, Page, Stored};
use crate::tree::filter::Filter;
use crate::tree::kvset::extents::KeyExtents;
use crate::tree::page_cache::{PageCache, PageTable, SharedPage};
use crate::tree::pinned::{ALLOCATION, Pinned};
use crate::types::error::{KvError, Result};
use crate::types::expiry::{Expiries, Expiry};
use crate::types::key::head;
use crate::types::key_list::KeyList;
use crate::types::limits::KEY_MAX;
use crate::types::spans::{Span, Spans};
use crate::values::ahead::FIRST_WINDOW;
use crate::values::block::ValueBlock;
use ahead::PagesAhead;

/// A kvset in use. Dropping the last reference frees its extents.
pub(crate) struct Kvset {
    pub(crate) edit: KvsetEdit,
    /// The block table, with the bytes of records this kvset refers to in each.
    pub(crate) blocks: Vec<(Arc<ValueBlock>, u64)>,
    keys: KeyExtents,
    filter: Filter,
    index: PageIndex,
    /// Prefixes and ranges that it hides in older kvsets: its own entries are all newer.
    pub(crate) deleted: Spans,
    expiries: Expiries,
    pages: Arc<PageTable>,
    /// The damage of its meta. None of its pages is used then: which keys it hides is unknown, so older kvsets
    /// cannot be trusted for a key that it lacks.
    damage: Option<Box<KvError>>,
}

/// Bytes of an entry of a page besides its key, roughly.
const ENTRY_BYTES: u64 = 16;
/// So many keys say how many of a kvset are hidden, to a few percent.
const SAMPLES: usize = 512;
/// Up to this many pages are looked at key by key.
const FEW_PAGES: usize = 16;

/// Result of a search: a value, inline or stored, or a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Tombstone,
    Inline([u8; INLINE_MAX], usize, Expiry),
    Stored(Stored),
}

impl Found {
    pub(crate) fn expiry(&self) -> Expiry {
        match self {
            Found::Tombstone => Expiry::NEVER,
            Found::Inline(_, _, expiry) => *expiry,
            Found::Stored(stored) => stored.expiry,
        }
    }
}

impl From<Entry<'_>> for Found {
    fn from(entry: Entry<'_>) -> Found {
        match entry {
            Entry::Tombstone => Found::Tombstone,
            Entry::Stored(stored) => Found::Stored(stored),
            Entry::Inline(value, expiry) => {
                let mut bytes = [0; INLINE_MAX];
                bytes[..value.len()].copy_from_slice(value);
                Found::Inline(bytes, value.len(), expiry)
            }
        }
    }
}

/// The first key of each page, then the last key of the kvset.
///
/// A search looks at `heads` until they are equal: numbers side by side instead of keys here and there.
pub(crate) struct PageIndex {
    keys: KeyList,
    /// Length of the prefix that all keys share, in bytes.
    prefix_size: usize,
    /// The eight bytes behind that, of the first key of each page, in an order that is that of the keys.
    heads: Vec<u64>,
}

impl PageIndex {
    pub(crate) fn decode(index: &[u8]) -> PageIndex {
        let mut index =
            PageIndex { keys: KeyList::decode(index), prefix_size: 0, heads: Vec::new() };
        let pages = index.pages();
        let (first, last) = (index.key(0), index.key(pages));
        index.prefix_size = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        index.heads = (0..pages).map(|n| head(&index.key(n)[index.prefix_size..])).collect();
        index
    }

    pub(crate) fn key(&self, n: usize) -> &[u8] {
        self.keys.get(n)
    }

    pub(crate) fn pages(&self) -> usize {
        self.keys.len() - 1
    }

    /// The page that holds `key` if any does: the last one whose first key is not above it.
    pub(crate) fn page_of(&self, key: &[u8]) -> Option<u32> {
        let common = key.len().min(self.prefix_size);
        let above = match key[..common].cmp(&self.key(0)[..self.prefix_size]) {
            Order::Less => 0,
            Order::Greater => self.pages(),
            Order::Equal => {
                let wanted = head(&key[self.prefix_size..]);
                let first = self.heads.partition_point(|head| *head < wanted);
                let count = self.heads[first..].partition_point(|head| *head == wanted);
                self.keys.partition_point(first..first + count, |first| first <= key)
            }
        };
        above.checked_sub(1).map(|page| u32::try_from(page).expect("page counts have 32 bits"))
    }

    /// How many pages begin below `key`.
    fn pages_below(&self, key: &[u8]) -> usize {
        self.keys.partition_point(0..self.pages(), |first| first < key)
    }

    /// How many pages hold nothing but keys of `span`.
    fn pages_within(&self, span: Span<'_>) -> usize {
        let start = self.pages_below(span.lower);
        let end = span.upper.map_or(self.pages(), |end| self.pages_below(end));
        // The last page that begins there may end elsewhere.
        let whole = end == self.pages() && span.holds(self.key(end));
        if whole { end - start } else { end.saturating_sub(start + 1) }
    }

    fn dram_bytes(&self) -> u64 {
        self.keys.dram_bytes() + size_of_val(&self.heads[..]) as u64
    }
}

/// The meta of a kvset, as it is in DRAM.
struct Meta {
    filter: Filter,
    index: PageIndex,
    deleted: Spans,
    expiries: Expiries,
}

impl Meta {
    fn read(keys: &KeyExtents, edit: &KvsetEdit) -> Result<Meta> {
        let at = u64::from(edit.pages) * PAGE_SIZE as u64;
        let corrupt = |what, detail| keys.corrupt(what, at, detail);
        let bytes = keys.read(at, to_usize(edit.meta_size.into()))?;
        let meta = KvsetMeta::decode(&bytes, edit.id)
            .map_err(|malformed| corrupt("kvset meta", malformed.0))?;
        if (meta.kvs, meta.pages) != (edit.kvs, edit.pages) {
            let detail = format!("{} pages of KVS {} found", meta.pages, meta.kvs);
            return Err(corrupt("kvset meta", detail));
        }
        let filter = Filter::from_bytes(meta.filter).map_err(|why| corrupt("filter", why))?;
        let deleted = Spans::decode(meta.version, meta.hides);
        let index = PageIndex::decode(meta.index);
        Ok(Meta { filter, index, deleted, expiries: meta.expiries })
    }

    /// A meta by which each key may be in the first page.
    fn of_all_keys() -> Meta {
        let mut index = Encoder::default();
        index.bytes16(&[]).bytes16(&[u8::MAX; KEY_MAX]);
        Meta {
            filter: Filter::of_all_keys(),
            index: PageIndex::decode(&index.0),
            deleted: Spans::default(),
            expiries: Expiries::NONE,
        }
    }
}

impl Kvset {
    /// Opens a kvset that the manifest names. Reads its meta alone: pages come when they are searched, or
    /// by [`Kvset::preload`]. One whose meta is damaged opens, too, and every read of it fails.
    pub(crate) fn open(
        mut edit: KvsetEdit,
        extents: Vec<Allocation>,
        blocks: Vec<Arc<ValueBlock>>,
        cache: &Arc<PageCache>,
    ) -> Result<Arc<Kvset>> {
        let keys = KeyExtents { extents };
        // It may have been damaged on its way.
        let read = Meta::read(&keys, &edit).or_else(|_| Meta::read(&keys, &edit));
        let (meta, damage) = match read {
            Err(damage) if damage.is_damage() => (Meta::of_all_keys(), Some(damage)),
            meta => (meta?, None),
        };
        if damage.is_some() {
            // A read goes to a page, and fails there. How many there are is not to be trusted.
            edit.pages = 1;
        }
        let pages = PageTable::new(cache, edit.pages, 0);
        let kvset = Kvset::assemble(edit, blocks, keys, meta, pages);
        Ok(Arc::new(Kvset { damage: damage.map(Box::new), ..kvset }))
    }

    fn assemble(
        edit: KvsetEdit,
        blocks: Vec<Arc<ValueBlock>>,
        keys: KeyExtents,
        meta: Meta,
        pages: Arc<PageTable>,
    ) -> Kvset {
        let live = edit.blocks.iter().map(|(_, live)| *live);
        let blocks = blocks.into_iter().zip(live).collect();
        let Meta { filter, index, deleted, expiries } = meta;
        Kvset { edit, blocks, keys, filter, index, deleted, expiries, pages, damage: None }
    }

    /// The damage of its meta, if it has any.
    pub(crate) fn damage(&self) -> Option<&KvError> {
        self.damage.as_deref()
    }

    /// Reads the next pages that were not offered to DRAM yet, while all of them fit; false when there is
    /// nothing to do. Each page is read ahead of need once at most.
    pub(crate) fn preload(&self) -> Result<bool> {
        const BATCH: u32 = 256;
        let Some(pages) = self.pages.preload(BATCH) else {
            return Ok(false);
        };
        let count = pages.end - pages.start;
        for (page, index) in self.read_pages(pages.start, count)?.iter().zip(pages) {
            self.pages.admit(index, page, false);
        }
        Ok(true)
    }

    /// Reads and verifies `count` pages from the medium.
    fn read_pages(&self, first: u32, count: u32) -> Result<Vec<SharedPage>> {
        let start = u64::from(first) * PAGE_SIZE as u64;
        let bytes = self.keys.read(start, count as usize * PAGE_SIZE)?;
        let pages = bytes.chunks_exact(PAGE_SIZE).zip(first..);
        pages.map(|(raw, index)| self.verify_page(raw, index)).collect()
    }

    fn verify_page(&self, raw: &[u8], index: u32) -> Result<SharedPage> {
        if let Some(damage) = &self.damage {
            return Err(KvError::clone(damage));
        }
        let corrupt = |detail: String| {
            self.keys.corrupt("key page", u64::from(index) * PAGE_SIZE as u64, detail)
        };
        let page =
            Page::verify(raw, self.edit.id, index).map_err(|malformed| corrupt(malformed.0))?;
        self.check_blocks(&page).map_err(corrupt)?;
        Ok(SharedPage::new(&page))
    }

    /// Every entry refers to a place in a block of the table.
    fn check_blocks(&self, page: &Page<&[u8]>) -> Result<(), String> {
        for slot in 0..page.count() {
            let (suffix, Entry::Stored(stored)) = page.entry(slot) else { continue };
            let Some((block, _)) = self.blocks.get(stored.block as usize) else {
                return Err(format!("block number {} of {}", stored.block, self.blocks.len()));
            };
            block.check_place(page.prefix().len() + suffix.len(), &stored)?;
        }
        Ok(())
    }

    /// A page, from DRAM or with one device read.
    pub(crate) fn page(&self, index: u32) -> Result<SharedPage> {
        if let Some(page) = self.pages.get(index) {
            return Ok(page);
        }
        let page = self.read_pages(index, 1)?.remove(0);
        self.pages.admit(index, &page, true);
        Ok(page)
    }

    /// A page that a walk comes to after the one next to it, with the bytes that `ahead` has read already. It stays
    /// in DRAM where there is room: walks are no reason for others to leave.
    fn page_in_row(&self, index: u32, ahead: &mut PagesAhead, forward: bool) -> Result<SharedPage> {
        let offset = u64::from(index) * PAGE_SIZE as u64;
        let raw = ahead.read(&self.keys, offset, forward);
        let Ok(page) = raw.and_then(|raw| self.verify_page(raw, index)) else {
            // The read-ahead may be the part that failed.
            *ahead = PagesAhead::default();
            return self.page(index);
        };
        self.pages.offer(index, &page);
        Ok(page)
    }

    /// The value or tombstone of `key`, whose hash is `hash`, as far as this kvset knows.
    pub(crate) fn get(&self, key: &[u8], hash: u64) -> Result<Option<Found>> {
        let found = self.search(key, hash)?;
        if found.is_none() && !self.deleted.is_empty() && self.deleted.cover(key).is_some() {
            return Ok(Some(Found::Tombstone));
        }
        Ok(found)
    }

    fn search(&self, key: &[u8], hash: u64) -> Result<Option<Found>> {
        if !self.filter.may_contain(hash) || key > self.last_key() {
            return Ok(None);
        }
        let Some(index) = self.index.page_of(key) else {
            return Ok(None);
        };
        let search = |page: &SharedPage| {
            let slot = page.find(key, hash)?;
            Some(Found::from(page.entry(slot).1))
        };
        match self.pages.with(index, search) {
            Some(found) => Ok(found),
            None => Ok(search(&self.page(index)?)),
        }
    }

    /// Whether this kvset may have an entry for the key, whose hash is `hash`. No I/O.
    pub(crate) fn may_hold(&self, key: &[u8], hash: u64) -> bool {
        self.filter.may_contain(hash) && key >= self.index.key(0) && key <= self.last_key()
    }

    /// Whether this kvset may hide the key, whose hash is `hash`, in older ones. No I/O.
    pub(crate) fn may_hide(&self, key: &[u8], hash: u64) -> bool {
        self.may_hold(key, hash) || self.deleted.cover(key).is_some()
    }

    /// Hands some keys to `each`, spread evenly: the first keys of pages, or all keys when there are
    /// few pages.
    pub(crate) fn sample(&self, mut each: impl FnMut(&[u8])) -> Result<()> {
        if self.index.pages() > FEW_PAGES {
            let step = self.index.pages().div_ceil(SAMPLES);
            (0..self.index.pages()).step_by(step).for_each(|page| each(self.index.key(page)));
            return Ok(());
        }
        let mut key = Vec::new();
        for index in 0..self.edit.pages {
            let page = self.page(index)?;
            for slot in 0..page.count() {
                page.key_to(slot, &mut key);
                each(&key);
            }
        }
        Ok(())
    }

    /// Bytes of the values it refers to.
    pub(crate) fn value_bytes(&self) -> u64 {
        self.blocks.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of its keys and of the values it refers to.
    pub(crate) fn bytes(&self) -> u64 {
        self.key_bytes() + self.value_bytes()
    }

    /// The same of a few entries, for which even a page is large: their share of a page among others. So much a
    /// spill has to do for them.
    pub(crate) fn weight(&self) -> u64 {
        let keys = match self.edit.pages {
            0 | 1 => self.edit.entries.saturating_mul(self.last_key().len() as u64 + ENTRY_BYTES),
            _ => self.key_bytes(),
        };
        // One that only hides others is to be spilled, too.
        let hides = u64::from(!self.deleted.is_empty());
        let content = keys.saturating_add(self.value_bytes()).max(hides);
        if content < self.key_bytes() { content } else { self.bytes() }
    }

    /// The same for each entry that is no tombstone, roughly.
    pub(crate) fn bytes_per_entry(&self) -> u64 {
        self.bytes() / self.edit.entries.saturating_sub(self.edit.tombstones).max(1)
    }

    /// Whether its values are so far from key order that reading them in that order would read an eighth
    /// more than they are. Walks all keys.
    pub(crate) fn is_scattered(&self) -> Result<bool> {
        let (mut jumps, mut last) = (0, None);
        for index in 0..self.edit.pages {
            let page = self.page(index)?;
            for slot in 0..page.count() {
                if let Entry::Stored(Stored { block, offset, .. }) = page.entry(slot).1 {
                    let follows = last.is_some_and(|(of, at)| of == block && at < offset);
                    jumps += u64::from(!follows);
                    last = Some((block, offset));
                }
            }
        }
        // In order, a walk comes to each block once.
        let jumps = jumps.saturating_sub(self.blocks.len() as u64);
        Ok(jumps * FIRST_WINDOW > self.value_bytes() / 8)
    }

    pub(crate) fn last_key(&self) -> &[u8] {
        self.index.key(self.index.pages())
    }

    /// Keys that divide its pages into so many parts, about as many entries in each; fewer where it has fewer pages.
    pub(crate) fn dividing_keys(&self, parts: u64) -> Vec<&[u8]> {
        let pages = self.index.pages();
        let parts = to_usize(parts).min(pages);
        (1..parts).map(|part| self.index.key(pages * part / parts)).collect()
    }

    /// Whether all of its values have expired.
    pub(crate) fn is_expired(&self, now_ms: u64) -> bool {
        self.edit.entries > 0
            && self.expiries.count + self.edit.tombstones == self.edit.entries
            && self.expiries.count > 0
            && self.expiries.last.has_passed(now_ms)
    }

    /// The share of its entries that has expired, in percent, as far as is known.
    pub(crate) fn expired_percent(&self, now_ms: u64) -> u64 {
        self.expiries.passed_percent(self.edit.entries, now_ms)
    }

    /// The share of its bytes that `deleted` spans hide, in percent, as far as its index knows.
    pub(crate) fn hidden_percent(&self, deleted: &Spans) -> u64 {
        let hidden: usize = deleted.iter().map(|span| self.index.pages_within(span)).sum();
        hidden as u64 * 100 / self.index.pages().max(1) as u64
    }

    pub(crate) fn block(&self, stored: &Stored) -> &Arc<ValueBlock> {
        &self.blocks[stored.block as usize].0
    }

    /// DRAM that stays, in bytes.
    pub(crate) fn pinned(&self) -> Pinned {
        let slots = self.pages.len() as u64 * 40;
        let of_edit = |edit: &KvsetEdit| {
            size_of_val(&edit.extents[..]) as u64 + size_of_val(&edit.blocks[..]) as u64
        };
        let held = size_of_val(&self.blocks[..]) + size_of_val(&self.keys.extents[..]);
        // Its own structure and the manifest's knowledge of it, and the allocations of both.
        let own = (size_of::<Kvset>() + size_of::<KvsetEdit>() + size_of::<PageTable>()) as u64;
        Pinned {
            filters: self.filter.as_bytes().len() as u64,
            indexes: self.index.dram_bytes() + self.deleted.dram_bytes() + slots,
            structures: own + held as u64 + 2 * of_edit(&self.edit) + 14 * ALLOCATION,
        }
    }

    /// Bytes of keys on the medium.
    pub(crate) fn key_bytes(&self) -> u64 {
        self.keys.extents.iter().map(Allocation::bytes).sum()
    }

    /// Whether keys or values of it lie on this class.
    pub(crate) fn is_on(&self, class: crate::types::class::MediaClass) -> bool {
        self.keys_are_on(class) || self.values_are_on(class)
    }

    /// Whether some of its keys lie on this class.
    pub(crate) fn keys_are_on(&self, class: crate::types::class::MediaClass) -> bool {
        self.keys.extents.iter().any(|extent| extent.media.class == class)
    }

    /// Whether some of its values lie on this class.
    pub(crate) fn values_are_on(&self, class: crate::types::class::MediaClass) -> bool {
        self.blocks.iter().any(|(block, _)| block.media().class == class)
    }

    pub(crate) fn key_extents(&self) -> &[Allocation] {
        &self.keys.extents
    }
}

#[cfg(test)]
mod tests {
    use super::PageIndex;
    use esker_base::Rng;

    /// The index of these first keys and last key, encoded.
    fn index(keys: &[Vec<u8>]) -> PageIndex {
        let encode = |key: &Vec<u8>| {
            let size = u16::try_from(key.len()).unwrap();
            [&size.to_le_bytes()[..], key].concat()
        };
        PageIndex::decode(&keys.iter().flat_map(encode).collect::<Vec<u8>>())
    }

    #[test]
    fn the_page_of_a_key_is_the_last_one_that_begins_at_or_below_it() {
        let mut rng = Rng::new(7);
        let mut random_key = |sizes: u64| {
            let size = usize::try_from(rng.below(sizes)).unwrap();
            // Few letters, zeroes among them: equal heads, prefixes of each other, padding.
            let mut letter = || [0, 1, b'a', u8::MAX][usize::try_from(rng.below(4)).unwrap()];
            [&b"user"[..size % 5], &(0..size).map(|_| letter()).collect::<Vec<u8>>()].concat()
        };
        for round in 0..300 {
            let mut keys: Vec<Vec<u8>> = (0..1 + round % 40).map(|_| random_key(12)).collect();
            keys.sort();
            keys.dedup();
            keys.push([keys.last().unwrap(), &b"z"[..]].concat());
            let index = index(&keys);
            for _ in 0..50 {
                let key = random_key(14);
                let firsts = &keys[..keys.len() - 1];
                let expected = firsts.iter().filter(|first| **first <= key).count();
                let found = index.page_of(&key).map_or(0, |page| page as usize + 1);
                assert_eq!(found, expected, "{key:?} among {firsts:?}");
            }
        }
    }
}
