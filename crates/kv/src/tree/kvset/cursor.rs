//! Walks the entries of a kvset, both ways.

use std::ops::Bound;
use std::sync::Arc;

use esker_base::units::to_usize;

use super::Kvset;
use super::ahead::PagesAhead;
use crate::omf::page::Entry;
use crate::tree::page_cache::SharedPage;
use crate::types::error::Result;
use crate::types::key_bounds::KeyBounds;

/// A position in a kvset: on an entry, or nowhere.
pub(crate) struct KvsetCursor {
    kvset: Arc<Kvset>,
    /// It turns to no page for keys beyond.
    bounds: Option<Arc<KeyBounds>>,
    page: Option<SharedPage>,
    page_index: u32,
    slot: usize,
    /// Where the entry goes on behind the key.
    tail: usize,
    key: Vec<u8>,
    /// Bytes that `key` has of the prefix that all keys of the page share.
    prefix_size: usize,
    /// The page that holds the key that was aimed at.
    aimed: Option<u32>,
    /// The page that was not in DRAM last.
    missed: Option<u32>,
    /// There when pages in a row were not.
    ahead: Option<Box<PagesAhead>>,
}

/// Pages that are in DRAM do not end a row of others that are not, if they are no more than these.
const NEAR: u32 = 8;

impl KvsetCursor {
    /// A cursor that is nowhere yet.
    pub(crate) fn new(kvset: Arc<Kvset>) -> KvsetCursor {
        KvsetCursor {
            kvset,
            bounds: None,
            page: None,
            page_index: 0,
            slot: 0,
            tail: 0,
            key: Vec::new(),
            prefix_size: 0,
            aimed: None,
            missed: None,
            ahead: None,
        }
    }

    /// From now on it has to find no keys but those within `bounds`, and is sought among them.
    pub(crate) fn stay_within(&mut self, bounds: &Arc<KeyBounds>) {
        self.bounds = Some(bounds.clone());
    }

    pub(crate) fn kvset(&self) -> &Arc<Kvset> {
        &self.kvset
    }

    /// The bytes of the page that it is in, if nobody else has that.
    pub(crate) fn own_page_bytes(&self) -> u64 {
        let own = self.page.as_ref().filter(|page| !page.is_shared());
        own.map_or(0, SharedPage::dram_bytes)
    }

    /// The bytes that it has read ahead of need.
    pub(crate) fn ahead_bytes(&self) -> u64 {
        self.ahead.as_ref().map_or(0, |ahead| ahead.bytes())
    }

    /// Lets go of that.
    pub(crate) fn forget_ahead(&mut self) {
        self.ahead = None;
    }

    /// The key it is on.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.page.as_ref().map(|_| &self.key[..])
    }

    /// The entry it is on.
    ///
    /// # Panics
    /// If it is nowhere.
    pub(crate) fn entry(&self) -> Entry<'_> {
        self.page.as_ref().expect("on an entry").entry_at(self.tail)
    }

    /// Finds out where the seek begins that comes next, and asks for the memory that names the page.
    pub(crate) fn aim(&mut self, from: Bound<&[u8]>) {
        self.aimed = match from {
            Bound::Included(key) | Bound::Excluded(key) if self.kvset.edit.pages > 0 => {
                self.kvset.index.page_of(key)
            }
            _ => None,
        };
        if let Some(index) = self.aimed {
            self.kvset.pages.prefetch(index);
        }
    }

    /// Asks for the memory of that page in which the search begins.
    pub(crate) fn approach(&mut self) {
        if let Some(index) = self.aimed {
            self.kvset.pages.prefetch_page(index);
        }
    }

    /// Goes to the first key within `from` onwards.
    pub(crate) fn seek(&mut self, from: Bound<&[u8]>) -> Result<()> {
        let aimed = self.aimed.take();
        if self.kvset.edit.pages == 0 {
            return Ok(());
        }
        let (Bound::Included(key) | Bound::Excluded(key)) = from else {
            return self.go(0, 0);
        };
        let is_behind = |bounds: &Arc<KeyBounds>| bounds.is_behind(key);
        if key > self.kvset.last_key() || self.bounds.as_ref().is_some_and(is_behind) {
            self.page = None;
            return Ok(());
        }
        let Some(index) = aimed.or_else(|| self.kvset.index.page_of(key)) else {
            return self.go(0, 0);
        };
        let (slot, equal) = self.turn_to(index)?.search(key);
        let skip = usize::from(equal && matches!(from, Bound::Excluded(_)));
        self.go(index, slot + skip)
    }

    /// Goes to the last key within `from` backwards.
    pub(crate) fn seek_back(&mut self, from: Bound<&[u8]>) -> Result<()> {
        if self.kvset.edit.pages == 0 {
            return Ok(());
        }
        let (Bound::Included(key) | Bound::Excluded(key)) = from else {
            let last = self.kvset.edit.pages - 1;
            let slot = self.turn_to(last)?.count() - 1;
            return self.go(last, slot);
        };
        let is_before = self.bounds.as_ref().is_some_and(|bounds| bounds.is_before(key));
        let Some(index) = self.kvset.index.page_of(key).filter(|_| !is_before) else {
            self.page = None;
            return Ok(());
        };
        let (slot, equal) = self.turn_to(index)?.search(key);
        let found = equal && matches!(from, Bound::Included(_));
        if found {
            return self.go(index, slot);
        }
        match slot.checked_sub(1) {
            Some(slot) => self.go(index, slot),
            None => self.go_before(index),
        }
    }

    pub(crate) fn next(&mut self) -> Result<()> {
        self.go(self.page_index, self.slot + 1)
    }

    pub(crate) fn prev(&mut self) -> Result<()> {
        match self.slot.checked_sub(1) {
            Some(slot) => self.go(self.page_index, slot),
            None => self.go_before(self.page_index),
        }
    }

    /// The page, which it takes if it has another one.
    fn turn_to(&mut self, page_index: u32) -> Result<&SharedPage> {
        if self.page.is_none() || self.page_index != page_index {
            self.page = None;
            let resident = self.kvset.pages.get(page_index);
            let page = resident.map_or_else(|| self.read(page_index), Ok)?;
            self.key.clear();
            self.key.extend_from_slice(page.prefix());
            self.prefix_size = self.key.len();
            self.page = Some(page);
            self.page_index = page_index;
        }
        Ok(self.page.as_ref().expect("set above"))
    }

    /// Reads a page.
    fn read(&mut self, page_index: u32) -> Result<SharedPage> {
        match self.missed.replace(page_index) {
            Some(last) if (1..=NEAR).contains(&page_index.abs_diff(last)) => {
                let ahead = self.ahead.get_or_insert_default();
                self.kvset.page_in_row(page_index, ahead, page_index > last)
            }
            _ => {
                self.ahead = None;
                self.kvset.page(page_index)
            }
        }
    }

    /// Goes to a slot of a page; one behind the last is the first of the next page.
    fn go(&mut self, page_index: u32, slot: usize) -> Result<()> {
        self.turn_to(page_index)?;
        self.slot = slot;
        let page = self.page.as_ref().expect("turned to");
        if slot < page.count() {
            let suffix = page.suffix_at(slot);
            self.tail = suffix.end;
            self.key.truncate(self.prefix_size);
            self.key.extend_from_slice(&page.raw()[suffix]);
            return Ok(());
        }
        self.page = None;
        let next = page_index + 1;
        let begins_within = |bounds: &Arc<KeyBounds>| !bounds.is_behind(self.first_key(next));
        if next < self.kvset.edit.pages && self.bounds.as_ref().is_none_or(begins_within) {
            return self.go(next, 0);
        }
        Ok(())
    }

    /// Goes to the last key before a page.
    fn go_before(&mut self, page_index: u32) -> Result<()> {
        let begins_above = |bounds: &Arc<KeyBounds>| bounds.reach_below(self.first_key(page_index));
        match page_index.checked_sub(1) {
            Some(index) if self.bounds.as_ref().is_none_or(begins_above) => {
                let slot = self.turn_to(index)?.count() - 1;
                self.go(index, slot)
            }
            _ => {
                self.page = None;
                Ok(())
            }
        }
    }

    fn first_key(&self, page_index: u32) -> &[u8] {
        self.kvset.index.key(to_usize(page_index.into()))
    }
}
