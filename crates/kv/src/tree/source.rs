//! Sorted sources of entries, from which cursors and compactions read, and how they merge.

use std::ops::Bound;
use std::sync::Arc;

use crate::omf::page::Entry;
use crate::tree::item::Item;
use crate::tree::kvset::cursor::KvsetCursor;
use crate::tree::memtable::list::Written;
use crate::tree::memtable::{Mark, Memtable};
use crate::tree::replayed::Replayed;
use crate::tree::view::Tree;
use crate::types::error::Result;
use crate::types::expiry::Expiry;
use crate::types::ids::{KvsId, Seqno};
use crate::types::key_bounds::KeyBounds;
use crate::types::spans::{Span, SpanBuf};

/// Something that can be walked in key order, both ways.
pub(crate) trait Source {
    /// The key it is on; `None` when it is nowhere.
    fn key(&self) -> Option<&[u8]>;
    /// The value or tombstone of that key. Called only when the source is somewhere.
    fn item(&self) -> Item<'_>;
    /// Goes to the first key within `from` onwards.
    fn seek(&mut self, from: Bound<&[u8]>) -> Result<()>;
    /// Goes to the last key within `from` backwards.
    fn seek_back(&mut self, from: Bound<&[u8]>) -> Result<()>;
    /// Goes to the next key. Called only when it is somewhere, and went forward before.
    fn next(&mut self) -> Result<()>;
    /// Goes to the previous key. Called only when it is somewhere, and went back before.
    fn prev(&mut self) -> Result<()>;

    /// Says that `seek(from)` comes soon, with nothing but [`Source::approach`] before it: whoever seeks in
    /// several sources says so to all of them first, so that all their reads come at once.
    fn aim(&mut self, _from: Bound<&[u8]>) {}
    /// Called once the reads of [`Source::aim`] may have come.
    fn approach(&mut self) {}

    /// Whether it hides prefixes or ranges in older sources; the oldest has nothing to hide.
    fn hides(&self) -> bool {
        false
    }

    /// Keys around `key`, and it among them, that it hides in older sources.
    fn cover(&self, _key: &[u8]) -> Option<SpanBuf> {
        None
    }

    /// Leaves the keys of `span`, if it is on one of them.
    fn leave(&mut self, span: &SpanBuf, forward: bool) -> Result<()> {
        if self.key().is_none_or(|key| !span.as_span().holds(key)) {
            Ok(())
        } else if forward {
            self.seek(span.behind())
        } else {
            self.seek_back(Bound::Excluded(&span.lower))
        }
    }
}

impl Source for KvsetCursor {
    fn key(&self) -> Option<&[u8]> {
        self.key()
    }

    fn item(&self) -> Item<'_> {
        match self.entry() {
            Entry::Tombstone => Item::Tombstone,
            Entry::Inline(value, expiry) => Item::Value(value, expiry),
            Entry::Stored(stored) => Item::Stored(self.kvset().block(&stored), stored),
        }
    }

    fn aim(&mut self, from: Bound<&[u8]>) {
        self.aim(from);
    }

    fn approach(&mut self) {
        self.approach();
    }

    fn seek(&mut self, from: Bound<&[u8]>) -> Result<()> {
        self.seek(from)
    }

    fn seek_back(&mut self, from: Bound<&[u8]>) -> Result<()> {
        self.seek_back(from)
    }

    fn next(&mut self) -> Result<()> {
        self.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.prev()
    }

    fn hides(&self) -> bool {
        !self.kvset().deleted.is_empty()
    }

    fn cover(&self, key: &[u8]) -> Option<SpanBuf> {
        self.kvset().deleted.cover(key).map(Span::to_buf)
    }
}

/// One KVS in a memtable, as of a seqno. It copies the entry it is on, so that it needs no borrow
/// of the table.
pub(crate) struct MemtableSource {
    table: Arc<Memtable>,
    kvs: KvsId,
    seqno: Seqno,
    at: At,
    /// That entry, where the source came to it by a step or a seek forward.
    mark: Mark,
    key: Vec<u8>,
    value: Vec<u8>,
    /// The key it was on before.
    last: Vec<u8>,
    /// Of the keys that it has come over since it looked again and does not see: the seqno as of which all are deleted,
    /// or `Seqno::MAX` where one is put.
    newer: Seqno,
}

/// Kind of the entry that a [`MemtableSource`] is on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Nothing,
    Delete,
    Put(Expiry),
}

impl MemtableSource {
    pub(crate) fn new(table: Arc<Memtable>, kvs: KvsId, seqno: Seqno) -> MemtableSource {
        let (key, value, last) = (Vec::new(), Vec::new(), Vec::new());
        let (at, mark, newer) = (At::Nothing, Mark::default(), Seqno::ZERO);
        MemtableSource { table, kvs, seqno, at, mark, key, value, last, newer }
    }

    fn go(&mut self, from: Bound<&[u8]>, forward: bool) {
        let MemtableSource { table, mark, key, value, newer, .. } = self;
        let copy = |found: &[u8], written: Written<'_>| {
            key.clear();
            key.extend_from_slice(found);
            value.clear();
            value.extend_from_slice(written.value.unwrap_or_default());
            if written.value.is_some() { At::Put(written.expiry) } else { At::Delete }
        };
        let found = if forward {
            table.next_of(mark, self.kvs, from, (self.seqno, newer), copy)
        } else {
            *mark = Mark::default();
            table.prev(self.kvs, from, (self.seqno, newer), copy)
        };
        self.at = found.unwrap_or(At::Nothing);
    }

    fn step(&mut self, forward: bool) {
        let mut last = std::mem::take(&mut self.last);
        std::mem::swap(&mut last, &mut self.key);
        self.go(Bound::Excluded(&last), forward);
        self.last = last;
    }
}

impl Source for MemtableSource {
    fn key(&self) -> Option<&[u8]> {
        (self.at != At::Nothing).then_some(&self.key[..])
    }

    fn item(&self) -> Item<'_> {
        match self.at {
            At::Put(expiry) => Item::Value(&self.value, expiry),
            At::Delete | At::Nothing => Item::Tombstone,
        }
    }

    fn seek(&mut self, from: Bound<&[u8]>) -> Result<()> {
        self.mark = Mark::default();
        self.go(from, true);
        Ok(())
    }

    fn seek_back(&mut self, from: Bound<&[u8]>) -> Result<()> {
        self.go(from, false);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.step(true);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.step(false);
        Ok(())
    }

    fn hides(&self) -> bool {
        self.table.hides()
    }

    fn cover(&self, key: &[u8]) -> Option<SpanBuf> {
        self.table.span(self.kvs, key, self.seqno)
    }
}

/// One KVS in a replayed table. Everybody sees all of it.
pub(crate) struct ReplayedSource {
    table: Arc<Replayed>,
    kvs: KvsId,
    /// The number of the key it is on.
    at: Option<usize>,
}

impl ReplayedSource {
    pub(crate) fn new(table: Arc<Replayed>, kvs: KvsId) -> ReplayedSource {
        ReplayedSource { table, kvs, at: None }
    }

    fn go_to(&mut self, at: Option<usize>) {
        self.at = at.filter(|&at| at < self.table.count(self.kvs));
    }
}

impl Source for ReplayedSource {
    fn key(&self) -> Option<&[u8]> {
        self.at.map(|at| self.table.key(self.kvs, at))
    }

    fn item(&self) -> Item<'_> {
        self.at.map_or(Item::Tombstone, |at| self.table.item(self.kvs, at))
    }

    fn seek(&mut self, from: Bound<&[u8]>) -> Result<()> {
        let at = match from {
            Bound::Included(key) => self.table.count_below(self.kvs, key),
            Bound::Excluded(key) => self.table.count_through(self.kvs, key),
            Bound::Unbounded => 0,
        };
        self.go_to(Some(at));
        Ok(())
    }

    fn seek_back(&mut self, from: Bound<&[u8]>) -> Result<()> {
        let behind = match from {
            Bound::Included(key) => self.table.count_through(self.kvs, key),
            Bound::Excluded(key) => self.table.count_below(self.kvs, key),
            Bound::Unbounded => self.table.count(self.kvs),
        };
        self.go_to(behind.checked_sub(1));
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.go_to(self.at.map(|at| at + 1));
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.go_to(self.at.and_then(|at| at.checked_sub(1)));
        Ok(())
    }

    fn hides(&self) -> bool {
        self.table.hides()
    }

    fn cover(&self, key: &[u8]) -> Option<SpanBuf> {
        self.table.span(self.kvs, key)
    }
}

/// Sources merged: of equal keys, the one in the earliest source hides the others, and so does a
/// prefix or range in an earlier source.
///
/// Keys that follow each other in one source cost one comparison each, with the second source, however
/// many sources there are.
pub(crate) struct Merge<S> {
    sources: Vec<S>,
    at: Option<usize>,
    /// The best of the other sources, and whether it is on the same key as the one at `at`.
    second: Option<usize>,
    tied: bool,
    forward: bool,
    /// Whether a source hides prefixes or ranges.
    hides: bool,
    /// Whether the sources know of the seek that comes.
    aimed: bool,
}

/// Bytes that a source takes to hold short keys.
const SHORT_KEYS: usize = 32;

impl Merge<AnySource> {
    /// Looks on media for no other keys from now on than those within `bounds`.
    pub(crate) fn stay_within(&mut self, bounds: &Arc<KeyBounds>) {
        for source in &mut self.sources {
            match source {
                AnySource::Kvset(kvset) => kvset.stay_within(bounds),
                AnySource::Leaves(leaves) => leaves.bounds = Some(bounds.clone()),
                AnySource::Memtable(_) | AnySource::Replayed(_) => {}
            }
        }
    }

    /// The kvsets among the sources, as far as the walk is in them.
    fn kvsets(&mut self) -> impl Iterator<Item = &mut KvsetCursor> {
        self.sources.iter_mut().flat_map(|source| match source {
            AnySource::Kvset(kvset) => std::slice::from_mut(kvset),
            AnySource::Leaves(leaves) => &mut leaves.merge.sources[..],
            AnySource::Memtable(_) | AnySource::Replayed(_) => &mut [],
        })
    }

    /// DRAM of the sources themselves, and of key pages that only they have, in bytes. Keys are counted as if they were
    /// short.
    pub(crate) fn dram_bytes(&mut self) -> u64 {
        let leaves = self.sources.iter().map(|source| match source {
            AnySource::Leaves(leaves) => leaves.merge.sources.capacity() * size_of::<KvsetCursor>(),
            _ => 0,
        });
        let own = self.sources.capacity() * size_of::<AnySource>();
        let sources = own + self.sources.len() * SHORT_KEYS + leaves.sum::<usize>();
        sources as u64 + self.kvsets().map(|kvset| kvset.own_page_bytes()).sum::<u64>()
    }

    /// Lets go of key pages that were read ahead of need if they take more than `most` bytes. Returns the bytes left.
    pub(crate) fn keep_ahead(&mut self, most: u64) -> u64 {
        let bytes = self.kvsets().map(|kvset| kvset.ahead_bytes()).sum();
        if bytes <= most {
            return bytes;
        }
        self.kvsets().for_each(KvsetCursor::forget_ahead);
        0
    }

    /// The memtable that is the newest source.
    pub(crate) fn youngest(&self) -> Option<&Arc<Memtable>> {
        match self.sources.first() {
            Some(AnySource::Memtable(source)) => Some(&source.table),
            _ => None,
        }
    }

    /// Whether a memtable has the key that it is on.
    pub(crate) fn is_young(&self) -> bool {
        self.at.is_some_and(|at| matches!(self.sources[at], AnySource::Memtable(_)))
    }

    /// Looks again in the youngest memtable from `from` on, which is where it was sought last or behind that, in the current
    /// direction. It comes to the same key; keys put meanwhile count as newer.
    pub(crate) fn look_again(&mut self, from: Bound<&[u8]>) {
        if let Some(AnySource::Memtable(source)) = self.sources.first_mut() {
            source.newer = Seqno::ZERO;
            source.mark = Mark::default();
            source.go(from, self.forward);
        }
    }

    /// The seqno as of which all keys are deleted that it has come over since and does not see, zero if there are
    /// none; `Seqno::MAX` where one of them is put.
    pub(crate) fn newer(&self) -> Seqno {
        match self.sources.first() {
            Some(AnySource::Memtable(source)) => source.newer,
            _ => Seqno::ZERO,
        }
    }

    /// Passes over all keys up to `to`, or down to it, but for those of the first `own` sources.
    pub(crate) fn pass_to(&mut self, to: &[u8], own: usize) -> Result<()> {
        let forward = self.forward;
        for source in &mut self.sources[own..] {
            match source.key() {
                Some(key) if forward && key < to => source.seek(Bound::Included(to))?,
                Some(key) if !forward && key >= to => source.seek_back(Bound::Excluded(to))?,
                _ => {}
            }
        }
        self.pick();
        self.skip_hidden()
    }
}

impl<S: Source> Merge<S> {
    /// Newest source first.
    pub(crate) fn new(sources: Vec<S>) -> Merge<S> {
        let hides = sources.iter().any(Source::hides);
        let (at, second) = (None, None);
        Merge { sources, at, second, tied: false, forward: true, hides, aimed: false }
    }

    /// Goes on to the next key that no prefix or range of a newer source hides. Hidden keys are passed over as a whole: most
    /// of them are never looked at.
    fn skip_hidden(&mut self) -> Result<()> {
        while self.hides
            && let Some((newer, span)) = self.hidden()
        {
            for older in &mut self.sources[newer + 1..] {
                older.leave(&span, self.forward)?;
                let is_out = older.key().is_none_or(|key| !span.as_span().holds(key));
                assert!(is_out, "a source has left the keys that a newer one hides");
            }
            self.pick();
        }
        Ok(())
    }

    /// The source that hides the current key, and the keys around that it hides with it.
    fn hidden(&self) -> Option<(usize, SpanBuf)> {
        let at = self.at?;
        let key = self.sources[at].key()?;
        let mut newer = self.sources[..at].iter().enumerate();
        newer.find_map(|(n, source)| Some((n, source.cover(key)?)))
    }

    /// Whether a walk in the current direction comes to `a` before `b`.
    fn before(&self, a: &[u8], b: &[u8]) -> bool {
        if self.forward { a < b } else { a > b }
    }

    fn pick(&mut self) {
        let mut best: Option<(usize, &[u8])> = None;
        let mut second: Option<(usize, &[u8])> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(key) = source.key() else { continue };
            if best.is_none_or(|(_, best)| self.before(key, best)) {
                second = best.replace((index, key));
            } else if second.is_none_or(|(_, second)| self.before(key, second)) {
                second = Some((index, key));
            }
        }
        let tied = second.is_some_and(|(_, second)| best.is_some_and(|(_, best)| best == second));
        (self.at, self.second) = (best.map(|(index, _)| index), second.map(|(index, _)| index));
        self.tied = tied;
    }

    /// Whether the source at `at`, which alone has moved, still comes before the others.
    fn leads(&self, at: usize) -> bool {
        let Some(key) = self.sources[at].key() else { return false };
        self.second
            .and_then(|at| self.sources[at].key())
            .is_none_or(|other| self.before(key, other))
    }

    /// Moves every source that is on the current key one on, in the current direction.
    fn advance(&mut self) -> Result<()> {
        let at = self.at.expect("advance is called on a key");
        let step = |source: &mut S| if self.forward { source.next() } else { source.prev() };
        if self.tied {
            let (before, rest) = self.sources.split_at_mut(at);
            let (current, after) = rest.split_first_mut().expect("at is an index");
            let others = before.iter_mut().chain(after);
            others.filter(|source| source.key() == current.key()).try_for_each(step)?;
        }
        step(&mut self.sources[at])?;
        if self.tied || !self.leads(at) {
            self.pick();
        }
        self.skip_hidden()
    }
}

impl<S: Source> Source for Merge<S> {
    fn key(&self) -> Option<&[u8]> {
        self.at.and_then(|at| self.sources[at].key())
    }

    fn item(&self) -> Item<'_> {
        self.sources[self.at.expect("on a key")].item()
    }

    fn aim(&mut self, from: Bound<&[u8]>) {
        self.sources.iter_mut().for_each(|source| source.aim(from));
        self.aimed = true;
    }

    fn approach(&mut self) {
        self.sources.iter_mut().for_each(Source::approach);
    }

    fn seek(&mut self, from: Bound<&[u8]>) -> Result<()> {
        if !self.aimed {
            self.aim(from);
            self.approach();
        }
        self.aimed = false;
        self.sources.iter_mut().try_for_each(|source| source.seek(from))?;
        self.forward = true;
        self.pick();
        self.skip_hidden()
    }

    fn seek_back(&mut self, from: Bound<&[u8]>) -> Result<()> {
        self.sources.iter_mut().try_for_each(|source| source.seek_back(from))?;
        self.forward = false;
        self.pick();
        self.skip_hidden()
    }

    fn next(&mut self) -> Result<()> {
        debug_assert!(self.forward, "next() follows a seek forward");
        self.advance()
    }

    fn prev(&mut self) -> Result<()> {
        debug_assert!(!self.forward, "prev() follows a seek back");
        self.advance()
    }
}

/// A cursor over the kvsets of one node, newest first.
pub(crate) fn merge_kvsets(kvsets: &[Arc<crate::tree::kvset::Kvset>]) -> Merge<KvsetCursor> {
    Merge::new(kvsets.iter().cloned().map(KvsetCursor::new).collect())
}

/// All leaves of a tree, one after the other.
pub(crate) struct LeavesSource {
    tree: Arc<Tree>,
    leaf: usize,
    merge: Merge<KvsetCursor>,
    /// It goes on to no leaf for keys beyond.
    bounds: Option<Arc<KeyBounds>>,
}

impl LeavesSource {
    pub(crate) fn new(tree: Arc<Tree>) -> LeavesSource {
        LeavesSource { tree, leaf: 0, merge: Merge::new(Vec::new()), bounds: None }
    }

    fn enter(&mut self, leaf: usize) {
        self.leaf = leaf;
        self.merge = merge_kvsets(&self.tree.leaves[leaf].kvsets);
        if let Some(bounds) = &self.bounds {
            self.merge.sources.iter_mut().for_each(|kvset| kvset.stay_within(bounds));
        }
    }

    /// While this leaf has nothing more, goes to the first key of the next one.
    fn settle(&mut self) -> Result<()> {
        while self.merge.key().is_none()
            && let Some(next) = self.tree.leaves.get(self.leaf + 1)
            && self.bounds.as_ref().is_none_or(|bounds| !bounds.is_behind(&next.lower))
        {
            self.enter(self.leaf + 1);
            self.merge.seek(Bound::Unbounded)?;
        }
        Ok(())
    }

    fn settle_back(&mut self) -> Result<()> {
        while self.merge.key().is_none()
            && self.leaf > 0
            && self
                .bounds
                .as_ref()
                .is_none_or(|bounds| bounds.reach_below(&self.tree.leaves[self.leaf].lower))
        {
            self.enter(self.leaf - 1);
            self.merge.seek_back(Bound::Unbounded)?;
        }
        Ok(())
    }

    fn leaf_at(&self, from: Bound<&[u8]>, unbounded: usize) -> usize {
        match from {
            Bound::Included(key) | Bound::Excluded(key) => self.tree.leaf_of(key),
            Bound::Unbounded => unbounded,
        }
    }
}

impl Source for LeavesSource {
    fn key(&self) -> Option<&[u8]> {
        self.merge.key()
    }

    fn item(&self) -> Item<'_> {
        self.merge.item()
    }

    fn aim(&mut self, from: Bound<&[u8]>) {
        self.enter(self.leaf_at(from, 0));
        self.merge.aim(from);
    }

    fn approach(&mut self) {
        self.merge.approach();
    }

    fn seek(&mut self, from: Bound<&[u8]>) -> Result<()> {
        if !self.merge.aimed {
            self.enter(self.leaf_at(from, 0));
        }
        self.merge.seek(from)?;
        self.settle()
    }

    fn seek_back(&mut self, from: Bound<&[u8]>) -> Result<()> {
        self.enter(self.leaf_at(from, self.tree.leaves.len() - 1));
        self.merge.seek_back(from)?;
        self.settle_back()
    }

    fn next(&mut self) -> Result<()> {
        self.merge.next()?;
        self.settle()
    }

    fn prev(&mut self) -> Result<()> {
        self.merge.prev()?;
        self.settle_back()
    }
}

/// Any of the sources a cursor merges.
pub(crate) enum AnySource {
    Memtable(MemtableSource),
    Replayed(ReplayedSource),
    Kvset(KvsetCursor),
    Leaves(LeavesSource),
}

macro_rules! each {
    ($self:ident, $source:ident => $call:expr) => {
        match $self {
            AnySource::Memtable($source) => $call,
            AnySource::Replayed($source) => $call,
            AnySource::Kvset($source) => $call,
            AnySource::Leaves($source) => $call,
        }
    };
}

impl Source for AnySource {
    fn key(&self) -> Option<&[u8]> {
        each!(self, source => source.key())
    }

    fn item(&self) -> Item<'_> {
        each!(self, source => source.item())
    }

    fn aim(&mut self, from: Bound<&[u8]>) {
        each!(self, source => source.aim(from));
    }

    fn approach(&mut self) {
        each!(self, source => source.approach());
    }

    fn seek(&mut self, from: Bound<&[u8]>) -> Result<()> {
        each!(self, source => source.seek(from))
    }

    fn seek_back(&mut self, from: Bound<&[u8]>) -> Result<()> {
        each!(self, source => source.seek_back(from))
    }

    fn next(&mut self) -> Result<()> {
        each!(self, source => source.next())
    }

    fn prev(&mut self) -> Result<()> {
        each!(self, source => source.prev())
    }

    fn hides(&self) -> bool {
        each!(self, source => source.hides())
    }

    fn cover(&self, key: &[u8]) -> Option<SpanBuf> {
        each!(self, source => source.cover(key))
    }
}
