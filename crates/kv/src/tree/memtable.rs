//! The youngest data: an ordered map in DRAM from (KVS, key, seqno) to the change written, another
//! one of prefixes that were deleted, and the ranges that were.
//!
//! Invariants
//! 1. Entries are never changed or removed; a newer version of a key is another entry. A deleted
//!    prefix or range hides the versions with lower seqnos.
//! 2. Every entry's record is in the durability log, at `Written::address`.
//! 3. A frozen memtable gets no more entries.

pub(crate) mod list;
pub(crate) mod ranges;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use esker_base::Slab;
use esker_base::units::{to_u64, to_usize};

use self::list::{ChunkSource, List, ListEntry, Position};
use crate::omf::frame::{Change, Record};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::tree::filter::LiveFilter;
use crate::tree::memtable::list::Written;
use crate::tree::memtable::ranges::DeletedRanges;
use crate::tree::young::{Newest, Young, YoungValue};
use crate::types::expiry::Expiry;
use crate::types::ids::{AtomicSeqno, BlockId, KvsId, RecordAddress, Seqno};
use crate::types::key::key_hash;
use crate::types::spans::{Span, SpanBuf, Spans};
use crate::values::block::ValueBlock;

/// An ordered map of the youngest writes of all KVSs.
pub(crate) struct Memtable {
    map: List,
    /// Of the keys in `map`, whatever their KVS: most searches end here, without a walk through it.
    filter: LiveFilter,
    /// Prefixes in the place of keys.
    prefixes: List,
    /// There from the first deleted range on.
    ranges: OnceLock<DeletedRanges>,
    /// Whether there are any of both. Each search asks.
    hides: AtomicBool,
    last_seqno: AtomicSeqno,
    /// Keys of memtables, deleted or expired, that walks have passed over while it was the youngest.
    passed: AtomicU64,
    /// The log segments that hold the entries' records.
    blocks: Mutex<Vec<Arc<ValueBlock>>>,
}

/// The filter has this part of a memtable's size: 35 bits a key for records of 1,100 bytes, 5 for the
/// smallest.
const FILTER_PART: usize = 256;
/// Keys and values go to chunks of this size, which a memtable's successor uses again: to map as much anew and to
/// touch it costs a writer as much as to fill it.
const CHUNK_BYTES: usize = 256 << 10;

impl Memtable {
    /// An empty memtable that is to hold about `size` bytes.
    pub(crate) fn new(size: u64) -> Memtable {
        let size = to_usize(size);
        if size / 4 < CHUNK_BYTES {
            return Memtable::of(size, ChunkSource::System(size / 4));
        }
        let slab = Slab::new(CHUNK_BYTES);
        slab.keep(size);
        Memtable::of(size, ChunkSource::Slab(slab))
    }

    /// An empty one that is to hold about `size` bytes, with memory that earlier memtables no longer need.
    pub(crate) fn successor(&self, size: u64) -> Memtable {
        Memtable::of(to_usize(size), self.map.source().clone())
    }

    fn of(size: usize, source: ChunkSource) -> Memtable {
        Memtable {
            map: List::new(size, source.clone()),
            filter: LiveFilter::new(size / FILTER_PART),
            prefixes: List::new(size, source),
            ranges: OnceLock::new(),
            hides: AtomicBool::new(false),
            last_seqno: AtomicSeqno::new(Seqno::ZERO),
            passed: AtomicU64::new(0),
            blocks: Mutex::new(Vec::new()),
        }
    }

    /// Adds the change of a record of the log, which is at `address`.
    /// Called in seqno order; `expiry` is the last call's result for this frame or batch.
    pub(crate) fn apply(
        &self,
        record: &Record<'_>,
        expiry: Expiry,
        seqno: Seqno,
        address: RecordAddress,
    ) -> Expiry {
        match record.change {
            Change::Expire(expiry) => return expiry,
            Change::DeletePrefix => self.delete_prefix(record.kvs, record.key, seqno),
            Change::DeleteRange(upper) => {
                self.delete_range(record.kvs, Span { lower: record.key, upper }, seqno);
            }
            Change::Put(_) | Change::Delete => {
                let written = Written { value: record.change.value(), expiry, address };
                self.insert(record.kvs, record.key, seqno, written);
            }
        }
        Expiry::NEVER
    }

    /// Adds a version of a key. Called in seqno order.
    pub(crate) fn insert(&self, kvs: KvsId, key: &[u8], seqno: Seqno, written: Written<'_>) {
        // Before the map: a reader that finds the key there may find it here.
        self.filter.add(key_hash(key));
        self.map.insert(&Position { kvs, key, seqno }, written);
        self.last_seqno.store(seqno);
    }

    /// Hides all older versions of keys that begin with `prefix`. Called in seqno order.
    pub(crate) fn delete_prefix(&self, kvs: KvsId, prefix: &[u8], seqno: Seqno) {
        self.prefixes.insert(&Position { kvs, key: prefix, seqno }, Written::NOWHERE);
        self.hides.store(true, Ordering::Relaxed);
        self.last_seqno.store(seqno);
    }

    /// Hides all older versions of the keys of `span`. Called in seqno order.
    pub(crate) fn delete_range(&self, kvs: KvsId, span: Span<'_>, seqno: Seqno) {
        self.ranges.get_or_init(DeletedRanges::default).add(kvs, span, seqno);
        self.hides.store(true, Ordering::Relaxed);
        self.last_seqno.store(seqno);
    }

    /// Notes that a walk has passed over so many keys, deleted or expired, of this memtable or older ones.
    pub(crate) fn note_passed(&self, keys: u64) {
        self.passed.fetch_add(keys, Ordering::Relaxed);
    }

    /// How many of these there were.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Notes that entries to come have their records in `block`.
    pub(crate) fn refer_to(&self, block: &Arc<ValueBlock>) {
        let mut blocks = self.blocks.lock();
        if blocks.last().is_none_or(|last| last.id != block.id) {
            blocks.push(block.clone());
        }
    }

    /// Lets go of blocks in which none of its entries has its record.
    pub(crate) fn forget_blocks_before(&self, id: BlockId) {
        self.blocks.lock().retain(|block| block.id >= id);
    }

    pub(crate) fn blocks(&self) -> Vec<Arc<ValueBlock>> {
        self.blocks.lock().clone()
    }

    /// DRAM in use, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let ranges = self.ranges.get().map_or(0, DeletedRanges::bytes);
        self.map.memory() + self.prefixes.memory() + ranges + self.filter.bytes() as u64
    }

    /// DRAM that its successors will use, in bytes.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.map.source().slab().map_or(0, |slab| to_u64(slab.kept_bytes()))
    }

    /// Gives that DRAM back.
    pub(crate) fn release_kept(&self) {
        if let Some(slab) = self.map.source().slab() {
            slab.release();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty() && !self.hides()
    }

    /// Whether any prefix or range was deleted: a reader that may see one has seen the write which said so.
    pub(crate) fn hides(&self) -> bool {
        self.hides.load(Ordering::Relaxed)
    }

    /// The seqno of the newest entry; 0 when there is none.
    pub(crate) fn last_seqno(&self) -> Seqno {
        self.last_seqno.load()
    }

    /// The seqno of the newest delete of many keys, up to `seqno`, that has `key` among them.
    pub(crate) fn cover(&self, kvs: KvsId, key: &[u8], seqno: Seqno) -> Option<Seqno> {
        if !self.hides() {
            return None;
        }
        let by_prefix = self.prefix_of(kvs, key, seqno).map(|(seqno, _)| seqno);
        let by_range = self.ranges.get().and_then(|ranges| ranges.newest(kvs, key, seqno));
        by_prefix.max(by_range)
    }

    /// Keys around `key` that deletes of many keys, up to `seqno`, have deleted, and it among them: as many as are
    /// found at once.
    pub(crate) fn span(&self, kvs: KvsId, key: &[u8], seqno: Seqno) -> Option<SpanBuf> {
        if !self.hides() {
            return None;
        }
        let prefix = self.prefix_of(kvs, key, seqno);
        let prefix = prefix.map(|(_, size)| SpanBuf::of_prefix(&key[..size]));
        let range = self.ranges.get().and_then(|ranges| ranges.span(kvs, key, seqno));
        match (prefix, range) {
            (Some(mut prefix), Some(range)) => {
                prefix.widen(range.as_span());
                Some(prefix)
            }
            (prefix, range) => prefix.or(range),
        }
    }

    /// Of the prefixes deleted up to `seqno` that cover `key`: the seqno of the newest, and the size of the shortest in
    /// bytes.
    ///
    /// A prefix that covers `key` is not above it, and whatever lies between the two begins with it,
    /// too. So the last one not above the key covers it, or says how much shorter the next is.
    fn prefix_of(&self, kvs: KvsId, key: &[u8], seqno: Seqno) -> Option<(Seqno, usize)> {
        let mut cover: Option<(Seqno, usize)> = None;
        let mut left = key;
        while !left.is_empty() {
            let entry = self.prefixes.last_before(&behind(kvs, left));
            let Some(entry) = entry.filter(|entry| entry.kvs() == kvs) else { break };
            let prefix = entry.key();
            if !left.starts_with(prefix) {
                let common = left.iter().zip(prefix).take_while(|(a, b)| a == b).count();
                left = &left[..common];
                continue;
            }
            let newest = self.prefixes.first_from(&Position { kvs, key: prefix, seqno });
            if let Some(newest) = newest.filter(|newest| newest.is_of(kvs, prefix)) {
                let seqno = newest.seqno().max(cover.map_or(Seqno::ZERO, |(seqno, _)| seqno));
                cover = Some((seqno, prefix.len()));
            }
            left = &left[..prefix.len() - 1];
        }
        cover
    }

    /// Returns the entry as a reader at `seqno` sees it: deleted, when it was deleted later among others.
    fn seen<'e>(&self, entry: &ListEntry<'e>, seqno: Seqno) -> Written<'e> {
        match self.cover(entry.kvs(), entry.key(), seqno) {
            Some(cover) if cover > entry.seqno() => Written { value: None, ..entry.written() },
            _ => entry.written(),
        }
    }

    /// The newest version of `key`, whose hash is `hash`, up to `seqno`; hidden ones are deletes.
    pub(crate) fn get<R>(
        &self,
        kvs: KvsId,
        (key, hash): (&[u8], u64),
        seqno: Seqno,
        read: impl FnOnce(Written<'_>) -> R,
    ) -> Option<R> {
        match self.version(kvs, (key, hash), seqno) {
            Some(entry) => Some(read(self.seen(&entry, seqno))),
            None => self.cover(kvs, key, seqno).map(|_| read(Written::NOWHERE)),
        }
    }

    /// The newest entry of `key` up to `seqno`, hidden or not.
    fn version(
        &self,
        kvs: KvsId,
        (key, hash): (&[u8], u64),
        seqno: Seqno,
    ) -> Option<ListEntry<'_>> {
        if !self.filter.may_contain(hash) {
            return None;
        }
        let entry = self.map.first_from(&Position { kvs, key, seqno });
        entry.filter(|entry| entry.is_of(kvs, key))
    }

    /// The value that a commit of this table's content would write for `key`: `None` when it would
    /// write none, `Some(None)` when it would delete the key alone.
    pub(crate) fn own<R>(
        &self,
        kvs: KvsId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Option<R> {
        let entry = self.version(kvs, (key, key_hash(key)), Seqno::MAX)?;
        let cover = self.cover(kvs, key, Seqno::MAX);
        let hidden = cover.is_some_and(|cover| cover > entry.seqno());
        (!hidden).then(|| read(entry.written().value))
    }

    /// Whether `key` was changed after `seqno`.
    pub(crate) fn changed(&self, kvs: KvsId, key: &[u8], seqno: Seqno) -> bool {
        let newest = self.version(kvs, (key, key_hash(key)), Seqno::MAX);
        newest.is_some_and(|newest| newest.seqno() > seqno)
            || self.cover(kvs, key, Seqno::MAX).is_some_and(|cover| cover > seqno)
    }

    /// Whether any key of `span` was changed after `seqno`.
    pub(crate) fn changed_within(&self, kvs: KvsId, span: Span<'_>, seqno: Seqno) -> bool {
        self.cover(kvs, span.lower, Seqno::MAX).is_some_and(|cover| cover > seqno)
            || newer_within(&self.prefixes, kvs, span, seqno)
            || newer_within(&self.map, kvs, span, seqno)
            || self.ranges.get().is_some_and(|ranges| ranges.changed_within(kvs, span, seqno))
    }

    /// As [`Memtable::next_of`], by a search.
    #[cfg(test)]
    fn next<R>(
        &self,
        kvs: KvsId,
        keys: Bound<&[u8]>,
        (seqno, newer): (Seqno, &mut Seqno),
        read: impl FnOnce(&[u8], Written<'_>) -> R,
    ) -> Option<R> {
        self.next_of(&mut Mark::default(), kvs, keys, (seqno, newer), read)
    }

    /// The first key of `kvs` in `keys` onwards that has a version up to `seqno`: `read` gets the
    /// key and that version. Raises `newer` to [the seqno of newer deletes](newer_than) of the keys on the way.
    ///
    /// From the mark that the call before has left, the next key is a step away, not a search. `keys` begin behind the
    /// key of that mark, unless there is none.
    pub(crate) fn next_of<R>(
        &self,
        mark: &mut Mark,
        kvs: KvsId,
        keys: Bound<&[u8]>,
        (seqno, newer): (Seqno, &mut Seqno),
        read: impl FnOnce(&[u8], Written<'_>) -> R,
    ) -> Option<R> {
        let marked = std::mem::take(mark).0.and_then(|node| self.map.entry(node));
        let start = match keys {
            Bound::Included(key) => Position { kvs, key, seqno: Seqno::MAX },
            Bound::Excluded(key) => behind(kvs, key),
            Bound::Unbounded => Position { kvs, key: &[], seqno: Seqno::MAX },
        };
        let mut entry = match marked.map(behind_versions) {
            Some(Some(entry)) => entry,
            _ => self.map.first_from(&start)?,
        };
        loop {
            if entry.kvs() != kvs {
                return None;
            }
            if entry.seqno() <= seqno {
                mark.0 = Some(entry.node());
                return Some(read(entry.key(), self.seen(&entry, seqno)));
            }
            *newer = newer_than(*newer, &entry);
            entry = self.map.first_from(&Position { kvs, key: entry.key(), seqno })?;
        }
    }

    /// The last key of `kvs` in `keys` backwards that has a version up to `seqno`.
    pub(crate) fn prev<R>(
        &self,
        kvs: KvsId,
        keys: Bound<&[u8]>,
        (seqno, newer): (Seqno, &mut Seqno),
        read: impl FnOnce(&[u8], Written<'_>) -> R,
    ) -> Option<R> {
        let start = match keys {
            Bound::Included(key) => behind(kvs, key),
            Bound::Excluded(key) => Position { kvs, key, seqno: Seqno::MAX },
            Bound::Unbounded => Position { kvs: KvsId(kvs.0 + 1), key: &[], seqno: Seqno::MAX },
        };
        let mut oldest = self.map.last_before(&start)?;
        loop {
            if oldest.kvs() != kvs {
                return None;
            }
            let key = oldest.key();
            let first = Position { kvs, key, seqno: Seqno::MAX };
            let newest = self.map.first_from(&first)?;
            if newest.seqno() <= seqno {
                return Some(read(key, self.seen(&newest, seqno)));
            }
            *newer = newer_than(*newer, &newest);
            if oldest.seqno() <= seqno {
                let seen = self.map.first_from(&Position { kvs, key, seqno })?;
                return Some(read(key, self.seen(&seen, seqno)));
            }
            oldest = self.map.last_before(&first)?;
        }
    }

    /// The deleted prefixes and ranges of each KVS.
    pub(crate) fn deleted(&self) -> BTreeMap<KvsId, Spans> {
        let mut spans: BTreeMap<KvsId, Vec<SpanBuf>> = BTreeMap::new();
        for entry in self.prefixes.iter() {
            spans.entry(entry.kvs()).or_default().push(SpanBuf::of_prefix(entry.key()));
        }
        if let Some(ranges) = self.ranges.get() {
            ranges.each(|kvs, span| spans.entry(kvs).or_default().push(span.to_buf()));
        }
        let union = |spans: Vec<SpanBuf>| Spans::union(spans.iter().map(SpanBuf::as_span));
        spans.into_iter().map(|(kvs, spans)| (kvs, union(spans))).collect()
    }

    /// Hands every key's newest version to `each`, in order: KVS, key, change. Keys that
    /// are deleted among others later are left out: [`Memtable::deleted`] says so.
    pub(crate) fn each_newest<E>(
        &self,
        mut each: impl FnMut(KvsId, &[u8], Written<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last: Option<ListEntry<'_>> = None;
        for entry in self.map.iter() {
            let (kvs, key) = (entry.kvs(), entry.key());
            let hidden = || {
                let cover = self.cover(kvs, key, Seqno::MAX);
                cover.is_some_and(|cover| cover > entry.seqno())
            };
            if !last.is_some_and(|last| last.is_of(kvs, key)) && !hidden() {
                each(kvs, key, entry.written())?;
            }
            last = Some(entry);
        }
        Ok(())
    }
}

/// The greater of a seqno and that as of which the newest version of a key, which a reader does not see, is a delete:
/// none, where it is a put.
fn newer_than(newer: Seqno, newest: &ListEntry<'_>) -> Seqno {
    newer.max(if newest.written().value.is_some() { Seqno::MAX } else { newest.seqno() })
}

/// The entry of a [`Memtable`] that a walk is on, if it is on one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Mark(Option<u32>);

/// The first entry behind this one that is of another key; none where that is not near.
fn behind_versions(entry: ListEntry<'_>) -> Option<ListEntry<'_>> {
    /// Older versions of a key that are stepped over.
    const NEAR: usize = 4;
    let (kvs, key) = (entry.kvs(), entry.key());
    let following = std::iter::successors(entry.next(), ListEntry::next);
    following.take(NEAR).find(|entry| !entry.is_of(kvs, key))
}

/// The place behind every version of a key: no entry has seqno 0.
fn behind(kvs: KvsId, key: &[u8]) -> Position<'_> {
    Position { kvs, key, seqno: Seqno::ZERO }
}

impl Young for Memtable {
    fn blocks(&self) -> Vec<Arc<ValueBlock>> {
        self.blocks()
    }

    fn deleted(&self) -> BTreeMap<KvsId, Spans> {
        self.deleted()
    }

    fn last_seqno(&self) -> Seqno {
        self.last_seqno()
    }

    fn may_be_thin(&self) -> bool {
        self.map.first().zip(self.map.last()).is_some_and(|(a, b)| a.kvs() != b.kvs())
    }

    fn serves_readers(&self) -> bool {
        true
    }

    fn each_newest<E>(
        &self,
        mut each: impl FnMut(KvsId, &[u8], Newest<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.each_newest(|kvs, key, written| {
            let Written { value, expiry, address } = written;
            let value = value.map_or(YoungValue::Deleted, YoungValue::Here);
            each(kvs, key, Newest { value, expiry, address })
        })
    }
}

/// Whether a key in `list` that is in `span` has a version newer than `seqno`.
fn newer_within(list: &List, kvs: KvsId, span: Span<'_>, seqno: Seqno) -> bool {
    let first = list.first_from(&Position { kvs, key: span.lower, seqno: Seqno::MAX });
    std::iter::successors(first, ListEntry::next)
        .take_while(|entry| entry.kvs() == kvs && span.holds(entry.key()))
        .any(|entry| entry.seqno() > seqno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(u32, &str, u64, Option<&str>)]) -> Memtable {
        let table = Memtable::new(1 << 20);
        for &(kvs, key, seqno, value) in entries {
            let value = value.map(str::as_bytes);
            let address = RecordAddress { block: BlockId(1), offset: 0 };
            let written = Written { value, expiry: Expiry(seqno), address };
            table.insert(KvsId(kvs), key.as_bytes(), Seqno(seqno), written);
        }
        table
    }

    fn keys(table: &Memtable, kvs: u32, seqno: u64, forward: bool) -> Vec<String> {
        let (kvs, seqno, mut found): (_, _, Vec<String>) = (KvsId(kvs), Seqno(seqno), Vec::new());
        let mut mark = Mark::default();
        loop {
            let at = found.last().map(|key| key.clone().into_bytes());
            let bound = at.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
            let show = |key: &[u8], written: Written<'_>| {
                assert!(written.value.is_some() || key == b"gone");
                String::from_utf8(key.to_vec()).unwrap()
            };
            let next = if forward {
                let searched = table.next(kvs, bound, (seqno, &mut Seqno::default()), show);
                let newer = &mut Seqno::default();
                let stepped = table.next_of(&mut mark, kvs, bound, (seqno, newer), show);
                assert_eq!(stepped, searched, "from a mark");
                stepped
            } else {
                table.prev(kvs, bound, (seqno, &mut Seqno::default()), show)
            };
            match next {
                Some(key) => found.push(key),
                None => return found,
            }
        }
    }

    #[test]
    fn a_reader_sees_the_newest_version_up_to_its_seqno() {
        let t = table(&[(1, "k", 1, Some("old")), (1, "k", 5, Some("new")), (1, "gone", 6, None)]);
        let get = |key: &str, seqno| {
            let key = key.as_bytes();
            t.get(KvsId(1), (key, key_hash(key)), Seqno(seqno), |written| {
                assert_eq!(written.expiry.is_never(), written.value.is_none());
                written.value.map(|value| String::from_utf8(value.to_vec()).unwrap())
            })
        };
        assert_eq!(get("k", 4), Some(Some("old".into())));
        assert_eq!(get("k", 5), Some(Some("new".into())));
        assert_eq!(get("k", 0), None);
        assert_eq!(get("gone", 9), Some(None));
        assert_eq!(get("absent", 9), None);
    }

    #[test]
    fn walk_steps_over_few_and_many_versions_of_a_key() {
        let versions = |key, count: u64| (1..=count).map(move |n| (1, key, n, Some("v")));
        let all: Vec<_> =
            versions("a", 1).chain(versions("b", 40)).chain(versions("c", 3)).collect();
        let t = table(&all);
        for seqno in [1, 2, 38, 40] {
            assert_eq!(keys(&t, 1, seqno, true), ["a", "b", "c"]);
        }
    }

    #[test]
    fn walks_skip_versions_and_keys_from_the_future_both_ways() {
        let t = table(&[
            (1, "a", 1, Some("1")),
            (1, "a", 9, Some("9")),
            (1, "b", 8, Some("8")),
            (1, "c", 2, Some("2")),
            (2, "other", 3, Some("3")),
        ]);
        assert_eq!(keys(&t, 1, 5, true), ["a", "c"]);
        assert_eq!(keys(&t, 1, 5, false), ["c", "a"]);
        assert_eq!(keys(&t, 1, 9, true), ["a", "b", "c"]);
        assert_eq!(keys(&t, 1, 9, false), ["c", "b", "a"]);
        assert_eq!(keys(&t, 2, 9, false), ["other"]);
        let newer = |from, seqno, forward| {
            let (mut newer, kvs) = (Seqno::ZERO, KvsId(1));
            let _ = if forward {
                t.next(kvs, from, (Seqno(seqno), &mut newer), |_, _| ())
            } else {
                t.prev(kvs, from, (Seqno(seqno), &mut newer), |_, _| ())
            };
            newer
        };
        for forward in [true, false] {
            assert_eq!(
                newer(Bound::Included(b"a"), 5, forward),
                Seqno::MAX,
                "a put of the key itself"
            );
            assert_eq!(newer(Bound::Included(b"b"), 5, forward), Seqno::MAX);
            assert_eq!(newer(Bound::Included(b"c"), 5, forward), Seqno::ZERO);
            assert_eq!(newer(Bound::Included(b"b"), 9, forward), Seqno::ZERO);
        }
        let mut newest = Vec::new();
        t.each_newest(|_, _, written| {
            newest.push(written.value.unwrap()[0]);
            Ok::<(), ()>(())
        })
        .unwrap();
        assert_eq!(newest, b"9823");
    }
}
