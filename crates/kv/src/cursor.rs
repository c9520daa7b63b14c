//! Cursors: ordered walks over a consistent snapshot of a KVS, both ways.

use std::ops::Bound;
use std::sync::Arc;

use crate::ahead::ReadAhead;
use crate::engine::Engine;
use crate::error::Result;
use crate::kvset::cursor::KvsetCursor;
use crate::source::{AnySource, Item, LeavesSource, MemtableSource, Merge, Source};

/// A walk over one KVS as it was when the cursor was made.
///
/// A cursor stands between two keys. [`Cursor::next`] steps over the key behind that point and
/// returns it, [`Cursor::prev`] the key before it; after `next`, `prev` returns the same key.
///
/// While it lives, a cursor keeps what it may read from being freed, in DRAM and on the media.
pub struct Cursor {
    engine: Arc<Engine>,
    kvs: u32,
    merge: Merge<AnySource>,
    /// Whether the merge is on the key behind the point where the cursor stands, or before it; it
    /// is nowhere when there is no such key.
    forward: bool,
    ahead: ReadAhead,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Cursor {
    pub(crate) fn new(engine: &Arc<Engine>, kvs: u32) -> Cursor {
        let (view, seqno) = engine.snapshot();
        let memtables = view
            .memtables()
            .map(|table| AnySource::Memtable(MemtableSource::new(table.clone(), kvs, seqno)));
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
            ahead: ReadAhead::default(),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Goes to the point just before `key`, whether it exists or not.
    ///
    /// # Errors
    /// When keys cannot be read.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.forward = true;
        self.merge.seek(Bound::Included(key))
    }

    /// Goes to the point before the first key.
    ///
    /// # Errors
    /// When keys cannot be read.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.forward = true;
        self.merge.seek(Bound::Unbounded)
    }

    /// Goes to the point behind the last key.
    ///
    /// # Errors
    /// When keys cannot be read.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.forward = false;
        self.merge.seek_back(Bound::Unbounded)
    }

    /// Steps forward over the next key and returns it with its value; `None` at the end.
    ///
    /// # Errors
    /// When keys or the value cannot be read.
    #[allow(clippy::should_implement_trait)] // lends its buffers, which an Iterator cannot
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if !self.forward {
            match self.merge.key() {
                Some(_) => self.merge.next()?,
                None => self.merge.seek(Bound::Unbounded)?,
            }
            self.forward = true;
        }
        self.step()
    }

    /// Steps backward over the previous key and returns it with its value; `None` at the start.
    ///
    /// # Errors
    /// When keys or the value cannot be read.
    pub fn prev(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.forward {
            match self.merge.key() {
                Some(_) => self.merge.prev()?,
                None => self.merge.seek_back(Bound::Unbounded)?,
            }
            self.forward = false;
        }
        self.step()
    }

    /// Takes the key that the merge is on, unless it is deleted, and moves on.
    fn step(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.engine.counters.cursor_steps.add(1);
        loop {
            let Some(key) = self.merge.key() else {
                return Ok(None);
            };
            self.key.clear();
            self.key.extend_from_slice(key);
            let found = match self.merge.item() {
                Item::Tombstone => false,
                Item::Value(value) => {
                    self.value.clear();
                    self.value.extend_from_slice(value);
                    true
                }
                Item::Stored(block, stored) => {
                    let values = &self.engine.values;
                    let at = (self.kvs, &self.key[..], &stored);
                    self.ahead.read(values, block, at, self.forward, &mut self.value)?;
                    true
                }
            };
            if self.forward {
                self.merge.next()?
            } else {
                self.merge.prev()?
            }
            if found {
                return Ok(Some((&self.key, &self.value)));
            }
        }
    }
}
