//! Cursors: ordered walks over a consistent snapshot of a KVS, both ways.

use std::ops::Bound;
use std::sync::Arc;

use crate::ahead::ReadAhead;
use crate::engine::Engine;
use crate::error::{KvError, Result};
use crate::kvset::cursor::KvsetCursor;
use crate::source::{AnySource, Item, LeavesSource, MemtableSource, Merge, Source};
use crate::view::View;

/// A walk over one KVS as it was when the cursor was made.
///
/// A cursor stands between two keys. [`Cursor::next`] steps over the key behind that point and
/// returns it, [`Cursor::prev`] the key before it; after `next`, `prev` returns the same key. It walks
/// over all keys, or [within a prefix](Cursor::within), with values or [without](Cursor::keys_only).
///
/// While it lives, a cursor keeps what it may read from being freed, in DRAM and on the media.
pub struct Cursor {
    engine: Arc<Engine>,
    kvs: u32,
    merge: Merge<AnySource>,
    /// Whether the merge is on the key behind the point where the cursor stands, or before it; it
    /// is nowhere when there is no such key.
    forward: bool,
    /// Only keys that begin so.
    prefix: Vec<u8>,
    keys_only: bool,
    ahead: ReadAhead,
    key: Vec<u8>,
    value: Vec<u8>,
    /// An error leaves the cursor nowhere; it is repeated until the next seek.
    failed: Option<KvError>,
}

impl Cursor {
    /// A cursor over what `view` holds up to `seqno`, under what is in `own`: the writes of a
    /// transaction.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        view: &View,
        seqno: u64,
        kvs: u32,
        own: Option<MemtableSource>,
    ) -> Cursor {
        let memtables =
            view.memtables().map(|table| MemtableSource::new(table.clone(), kvs, seqno));
        let memtables = own.into_iter().chain(memtables).map(AnySource::Memtable);
        let mut sources: Vec<AnySource> = memtables.collect();
        if let Some(tree) = view.tree(kvs) {
            let root = tree.root.iter().cloned().map(KvsetCursor::new);
            sources.extend(root.map(AnySource::Kvset));
            sources.push(AnySource::Leaves(LeavesSource::new(tree.clone())));
        }
        Cursor {
            engine: engine.clone(),
            kvs,
            merge: Merge::new(sources),
            forward: false,
            prefix: Vec::new(),
            keys_only: false,
            ahead: ReadAhead::default(),
            key: Vec::new(),
            value: Vec::new(),
            failed: None,
        }
    }

    /// The same cursor over the keys that begin with `prefix` alone, before the first of them. It reads
    /// nothing beyond them.
    ///
    /// # Errors
    /// When keys cannot be read.
    pub fn within(mut self, prefix: &[u8]) -> Result<Cursor> {
        self.prefix = prefix.to_vec();
        self.seek_to_first()?;
        Ok(self)
    }

    /// The same cursor without values: they come out empty, and are not read.
    #[must_use]
    pub fn keys_only(mut self) -> Cursor {
        self.keys_only = true;
        self
    }

    /// Goes to the point just before `key`, whether it exists or not. Within a prefix it stays there: a
    /// key before or behind all that begin so stands for the first or the last point.
    ///
    /// # Errors
    /// When keys cannot be read.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if !key.starts_with(&self.prefix) {
            return if key < &self.prefix[..] { self.seek_to_first() } else { self.seek_to_last() };
        }
        self.forward = true;
        let result = self.merge.seek(Bound::Included(key));
        self.note(result)
    }

    /// Goes to the point before the first key.
    ///
    /// # Errors
    /// When keys cannot be read.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.forward = true;
        let result = self.merge_to_first();
        self.note(result)
    }

    /// Goes to the point behind the last key.
    ///
    /// # Errors
    /// When keys cannot be read.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.forward = false;
        let result = self.merge_to_last();
        self.note(result)
    }

    /// Steps forward over the next key and returns it with its value; `None` at the end.
    ///
    /// # Errors
    /// When keys or the value cannot be read.
    #[allow(clippy::should_implement_trait)] // lends its buffers, which an Iterator cannot
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.go(true)
    }

    /// Steps backward over the previous key and returns it with its value; `None` at the start.
    ///
    /// # Errors
    /// When keys or the value cannot be read.
    pub fn prev(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.go(false)
    }

    fn merge_to_first(&mut self) -> Result<()> {
        match &self.prefix[..] {
            [] => self.merge.seek(Bound::Unbounded),
            prefix => self.merge.seek(Bound::Included(prefix)),
        }
    }

    fn merge_to_last(&mut self) -> Result<()> {
        match after(&self.prefix) {
            Some(end) => self.merge.seek_back(Bound::Excluded(&end)),
            None => self.merge.seek_back(Bound::Unbounded),
        }
    }

    fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        self.failed = result.as_ref().err().cloned();
        result
    }

    fn go(&mut self, forward: bool) -> Result<Option<(&[u8], &[u8])>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.engine.counters.cursor_steps.add(1);
        let result = self.step(forward);
        let found = self.note(result)?;
        Ok(found.then_some((&self.key, &self.value)))
    }

    /// Takes the next key in this direction that is not deleted, and moves on.
    fn step(&mut self, forward: bool) -> Result<bool> {
        if self.forward != forward {
            match (self.merge.key().is_some(), forward) {
                (true, true) => self.merge.next()?,
                (true, false) => self.merge.prev()?,
                (false, true) => self.merge_to_first()?,
                (false, false) => self.merge_to_last()?,
            }
            self.forward = forward;
        }
        loop {
            // A key beyond the prefix is not stepped over: the way back begins at it.
            let Some(key) = self.merge.key().filter(|key| key.starts_with(&self.prefix)) else {
                return Ok(false);
            };
            self.key.clear();
            self.key.extend_from_slice(key);
            let found = match self.merge.item() {
                Item::Tombstone => false,
                Item::Value(_) | Item::Stored(..) if self.keys_only => true,
                Item::Value(value) => {
                    self.value.clear();
                    self.value.extend_from_slice(value);
                    true
                }
                Item::Stored(block, stored) => {
                    let values = &self.engine.values;
                    let at = (self.kvs, &self.key[..], &stored);
                    self.ahead.read(values, block, at, forward, &mut self.value)?;
                    true
                }
            };
            if forward {
                self.merge.next()?
            } else {
                self.merge.prev()?
            }
            if found {
                return Ok(true);
            }
        }
    }
}

/// The first key behind all that begin with `prefix`; `None` when there is none.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::after;

    #[test]
    fn the_key_behind_a_prefix_is_the_smallest_there_is() {
        assert_eq!(after(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after(b"\xff"), None);
        assert_eq!(after(b""), None);
    }
}
