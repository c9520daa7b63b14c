//! The youngest data: an ordered map in DRAM from (KVS, key, seqno) to what was written, and another
//! one of prefixes that were deleted.
//!
//! Invariants
//! 1. Entries are never changed or removed; a newer version of a key is another entry. A deleted
//!    prefix hides the versions with lower seqnos.
//! 2. Every entry's record is in the durability log, at `Written::block` and `offset`.
//! 3. A frozen memtable gets no more entries.

use std::borrow::Borrow;
use std::cmp::Ordering as Order;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::Entry;
use esker_base::units::to_usize;
use esker_base::{AppendBuf, AppendSlice};

use crate::expiry::Expiry;
use crate::filter::LiveFilter;
use crate::ingest::{Newest, Young, YoungValue};
use crate::kvset::{head, key_hash};
use crate::omf::frame::{Change, Record};
use crate::prefixes::Prefixes;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::value::ValueBlock;

/// What was written for a key, and where its record is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written<'a> {
    /// `None` is a delete.
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) expiry: Expiry,
    pub(crate) block: u64,
    pub(crate) offset: u32,
}

/// A position in the map: ascending by KVS and key, newest version first.
struct Position {
    kvs: u32,
    seqno: u64,
    /// The key's first bytes: they are here, and the key is somewhere else.
    head: u64,
    /// Key, value and, if there is one, expiry, one after the other.
    bytes: AppendSlice,
    key_size: usize,
}

/// The rest of [`Written`], as the map keeps it.
struct Place {
    kind: Kind,
    block: u64,
    offset: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Delete,
    Put,
    /// A put with its expiry behind the value.
    Expiring,
}

/// The bytes of an expiry.
const EXPIRY_SIZE: usize = 8;

impl Position {
    fn key(&self) -> &[u8] {
        &self.bytes[..self.key_size]
    }
}

fn written<'e>(entry: &'e Entry<'_, Position, Place>) -> Written<'e> {
    let (at, place) = (entry.key(), entry.value());
    let rest = &at.bytes[at.key_size..];
    let (value, expiry) = match place.kind {
        Kind::Delete => (None, Expiry::NEVER),
        Kind::Put => (Some(rest), Expiry::NEVER),
        Kind::Expiring => {
            let (value, expiry) = rest.split_at(rest.len() - EXPIRY_SIZE);
            let expiry = u64::from_le_bytes(expiry.try_into().expect("8 bytes"));
            (Some(value), Expiry(expiry))
        }
    };
    Written { value, expiry, block: place.block, offset: place.offset }
}

/// What a [`Position`] is compared by, so that searching does not allocate.
trait At {
    /// KVS and head: what most comparisons end with.
    fn begin(&self) -> (u32, u64);
    fn key(&self) -> &[u8];
    fn seqno(&self) -> u64;
}

impl At for Position {
    fn begin(&self) -> (u32, u64) {
        (self.kvs, self.head)
    }

    fn key(&self) -> &[u8] {
        self.key()
    }

    fn seqno(&self) -> u64 {
        self.seqno
    }
}

/// A position that is looked for.
struct Sought<'a> {
    begin: (u32, u64),
    key: &'a [u8],
    seqno: u64,
}

impl<'a> Sought<'a> {
    fn new(kvs: u32, key: &'a [u8], seqno: u64) -> Sought<'a> {
        Sought { begin: (kvs, head(key)), key, seqno }
    }
}

impl At for Sought<'_> {
    fn begin(&self) -> (u32, u64) {
        self.begin
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    fn seqno(&self) -> u64 {
        self.seqno
    }
}

impl<'a> Borrow<dyn At + 'a> for Position {
    fn borrow(&self) -> &(dyn At + 'a) {
        self
    }
}

impl Ord for dyn At + '_ {
    fn cmp(&self, other: &Self) -> Order {
        let begin = self.begin().cmp(&other.begin());
        begin
            .then_with(|| self.key().cmp(other.key()))
            .then_with(|| other.seqno().cmp(&self.seqno()))
    }
}

impl PartialOrd for dyn At + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn At + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for dyn At + '_ {}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Order {
        (self as &dyn At).cmp(other as &dyn At)
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Position {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for Position {}

/// The deleted prefixes that cover a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    /// That of the newest one.
    pub(crate) seqno: u64,
    /// The bytes of the shortest one.
    pub(crate) size: usize,
}

/// An ordered map of the youngest writes of all KVSs.
pub(crate) struct Memtable {
    map: SkipMap<Position, Place>,
    /// Of the keys in `map`, whatever their KVS: most searches end here, without a walk through it.
    filter: LiveFilter,
    /// Prefixes in the place of keys.
    prefixes: SkipMap<Position, ()>,
    /// Keys and values: the last one is appended to.
    chunk: Mutex<Arc<AppendBuf>>,
    chunk_bytes: usize,
    bytes: AtomicU64,
    last_seqno: AtomicU64,
    /// The log segments that hold the entries' records.
    blocks: Mutex<Vec<Arc<ValueBlock>>>,
}

/// DRAM per entry besides key and value: the skip list's node and the allocator's rounding.
const ENTRY_BYTES: u64 = 128;
/// The filter has this part of a memtable's size: 35 bits a key for records of 1,100 bytes, 5 for the
/// smallest.
const FILTER_PART: u64 = 256;
/// Keys and values go to chunks of this size: each is a mapping of its own, so that a memtable's
/// memory goes back as a whole.
const CHUNK_BYTES: u64 = 256 << 10;

impl Memtable {
    /// An empty memtable that is to hold about `size` bytes.
    pub(crate) fn new(size: u64) -> Memtable {
        let filter = LiveFilter::new(to_usize(size / FILTER_PART));
        Memtable {
            map: SkipMap::new(),
            bytes: AtomicU64::new(filter.bytes() as u64),
            filter,
            prefixes: SkipMap::new(),
            chunk: Mutex::new(Arc::new(AppendBuf::new(0))),
            chunk_bytes: to_usize((size / 4).min(CHUNK_BYTES)),
            last_seqno: AtomicU64::new(0),
            blocks: Mutex::new(Vec::new()),
        }
    }

    /// Adds what a record of the log does, which is at `offset` of the block with the id `block`.
    /// Called in seqno order; `expiry` is what the last call returned for this frame or batch.
    pub(crate) fn apply(
        &self,
        record: &Record<'_>,
        expiry: Expiry,
        seqno: u64,
        block: u64,
        offset: u32,
    ) -> Expiry {
        match record.change {
            Change::Expire(expiry) => return expiry,
            Change::DeletePrefix => self.delete_prefix(record.kvs, record.key, seqno),
            Change::Put(_) | Change::Delete => {
                let written = Written { value: record.change.value(), expiry, block, offset };
                self.insert(record.kvs, record.key, seqno, written);
            }
        }
        Expiry::NEVER
    }

    /// Adds a version of a key. Called in seqno order.
    pub(crate) fn insert(&self, kvs: u32, key: &[u8], seqno: u64, written: Written<'_>) {
        let expiry = written.expiry.0.to_le_bytes();
        let (kind, expiry) = match written.value {
            None => (Kind::Delete, &[][..]),
            Some(_) if written.expiry.is_never() => (Kind::Put, &[][..]),
            Some(_) => (Kind::Expiring, &expiry[..]),
        };
        let bytes = self.append(&[key, written.value.unwrap_or_default(), expiry]);
        let position = Position { kvs, seqno, head: head(key), bytes, key_size: key.len() };
        let place = Place { kind, block: written.block, offset: written.offset };
        // Before the map: who finds the key there may find it here.
        self.filter.add(key_hash(key));
        self.map.insert(position, place);
        self.bytes.fetch_add(ENTRY_BYTES, Ordering::Relaxed);
        self.last_seqno.store(seqno, Ordering::Release);
    }

    /// Hides all older versions of keys that begin with `prefix`. Called in seqno order.
    pub(crate) fn delete_prefix(&self, kvs: u32, prefix: &[u8], seqno: u64) {
        let bytes = self.append(&[prefix]);
        let position = Position { kvs, seqno, head: head(prefix), bytes, key_size: prefix.len() };
        self.prefixes.insert(position, ());
        self.bytes.fetch_add(ENTRY_BYTES, Ordering::Relaxed);
        self.last_seqno.store(seqno, Ordering::Release);
    }

    /// Appends parts of an entry to the last chunk, or to a new one.
    fn append(&self, parts: &[&[u8]]) -> AppendSlice {
        let mut chunk = self.chunk.lock();
        if let Some(slice) = chunk.append(parts) {
            return slice;
        }
        let size = self.chunk_bytes.max(parts.iter().map(|part| part.len()).sum());
        *chunk = Arc::new(AppendBuf::new(size));
        self.bytes.fetch_add(size as u64, Ordering::Relaxed);
        chunk.append(parts).expect("a new chunk has room")
    }

    /// Notes that entries to come have their records in `block`.
    pub(crate) fn refer_to(&self, block: &Arc<ValueBlock>) {
        let mut blocks = self.blocks.lock();
        if blocks.last().is_none_or(|last| last.id != block.id) {
            blocks.push(block.clone());
        }
    }

    /// Lets go of blocks in which none of its entries has its record.
    pub(crate) fn forget_blocks_before(&self, id: u64) {
        self.blocks.lock().retain(|block| block.id >= id);
    }

    pub(crate) fn blocks(&self) -> Vec<Arc<ValueBlock>> {
        self.blocks.lock().clone()
    }

    /// DRAM in use, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty() && self.prefixes.is_empty()
    }

    /// Whether any prefix was deleted.
    pub(crate) fn hides(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// The seqno of the newest entry; 0 when there is none.
    pub(crate) fn last_seqno(&self) -> u64 {
        self.last_seqno.load(Ordering::Acquire)
    }

    /// The prefixes deleted up to `seqno` that cover `key`.
    pub(crate) fn cover(&self, kvs: u32, key: &[u8], seqno: u64) -> Option<Cover> {
        if self.prefixes.is_empty() {
            return None;
        }
        self.search_cover(kvs, key, seqno)
    }

    /// A prefix that covers `key` is not above it, and whatever lies between the two begins with it,
    /// too. So the last one not above the key covers it, or says how much shorter the next is.
    fn search_cover(&self, kvs: u32, key: &[u8], seqno: u64) -> Option<Cover> {
        let mut cover: Option<Cover> = None;
        let mut left = key;
        while !left.is_empty() {
            // No entry has seqno 0, so a bound with it lies behind every version of its prefix.
            let end = Sought::new(kvs, left, 0);
            let entry = self.prefixes.upper_bound(Bound::Included(&end as &dyn At));
            let Some(entry) = entry.filter(|entry| entry.key().kvs == kvs) else { break };
            let prefix = entry.key().key();
            if !left.starts_with(prefix) {
                let common = left.iter().zip(prefix).take_while(|(a, b)| a == b).count();
                left = &left[..common];
                continue;
            }
            let seen = Sought::new(kvs, prefix, seqno);
            let newest = self.prefixes.lower_bound(Bound::Included(&seen as &dyn At));
            let same = |newest: &Entry<'_, Position, ()>| {
                newest.key().kvs == kvs && newest.key().key() == prefix
            };
            if let Some(newest) = newest.filter(same) {
                let seqno = newest.key().seqno.max(cover.map_or(0, |cover| cover.seqno));
                cover = Some(Cover { seqno, size: prefix.len() });
            }
            left = &left[..prefix.len() - 1];
        }
        cover
    }

    /// What an entry is to a reader at `seqno`: deleted, when a prefix of it was deleted later.
    fn seen<'e>(&self, entry: &'e Entry<'_, Position, Place>, seqno: u64) -> Written<'e> {
        let (at, written) = (entry.key(), written(entry));
        match self.cover(at.kvs, at.key(), seqno) {
            Some(cover) if cover.seqno > at.seqno => Written { value: None, ..written },
            _ => written,
        }
    }

    /// The newest version of `key`, whose hash is `hash`, up to `seqno`; hidden ones are deletes.
    pub(crate) fn get<R>(
        &self,
        kvs: u32,
        (key, hash): (&[u8], u64),
        seqno: u64,
        read: impl FnOnce(Written<'_>) -> R,
    ) -> Option<R> {
        match self.version(kvs, (key, hash), seqno) {
            Some(entry) => Some(read(self.seen(&entry, seqno))),
            None => self
                .cover(kvs, key, seqno)
                .map(|_| read(Written { value: None, expiry: Expiry::NEVER, block: 0, offset: 0 })),
        }
    }

    /// The newest entry of `key` up to `seqno`, hidden or not.
    fn version(
        &self,
        kvs: u32,
        (key, hash): (&[u8], u64),
        seqno: u64,
    ) -> Option<Entry<'_, Position, Place>> {
        if !self.filter.may_contain(hash) {
            return None;
        }
        let from = Sought::new(kvs, key, seqno);
        let entry = self.map.lower_bound(Bound::Included(&from as &dyn At))?;
        let at = entry.key();
        (at.kvs == kvs && at.key() == key).then_some(entry)
    }

    /// The value that a commit of this table's content would write for `key`: `None` when it would
    /// write none, `Some(None)` when it would delete the key alone.
    pub(crate) fn own<R>(
        &self,
        kvs: u32,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Option<R> {
        let entry = self.version(kvs, (key, key_hash(key)), u64::MAX)?;
        let cover = self.cover(kvs, key, u64::MAX);
        let hidden = cover.is_some_and(|cover| cover.seqno > entry.key().seqno);
        (!hidden).then(|| read(written(&entry).value))
    }

    /// Whether `key` was changed after `seqno`.
    pub(crate) fn changed(&self, kvs: u32, key: &[u8], seqno: u64) -> bool {
        let newest = self.version(kvs, (key, key_hash(key)), u64::MAX);
        newest.is_some_and(|newest| newest.key().seqno > seqno)
            || self.cover(kvs, key, u64::MAX).is_some_and(|cover| cover.seqno > seqno)
    }

    /// Whether any key that begins with `prefix` was changed after `seqno`.
    pub(crate) fn changed_within(&self, kvs: u32, prefix: &[u8], seqno: u64) -> bool {
        self.cover(kvs, prefix, u64::MAX).is_some_and(|cover| cover.seqno > seqno)
            || newer_within(&self.prefixes, kvs, prefix, seqno)
            || newer_within(&self.map, kvs, prefix, seqno)
    }

    /// The first key of `kvs` in `keys` onwards that has a version up to `seqno`: `read` gets the
    /// key and that version.
    pub(crate) fn next<R>(
        &self,
        kvs: u32,
        keys: Bound<&[u8]>,
        seqno: u64,
        read: impl FnOnce(&[u8], Written<'_>) -> R,
    ) -> Option<R> {
        let start = match keys {
            Bound::Included(key) => Sought::new(kvs, key, seqno),
            Bound::Excluded(key) => Sought::new(kvs, key, 0),
            Bound::Unbounded => Sought::new(kvs, &[], seqno),
        };
        // No entry has seqno 0, so a bound with it lies behind every version of its key.
        let mut entry = self.map.lower_bound(Bound::Included(&start as &dyn At))?;
        loop {
            let at = entry.key();
            if at.kvs != kvs {
                return None;
            }
            if at.seqno <= seqno {
                return Some(read(at.key(), self.seen(&entry, seqno)));
            }
            let older = Sought::new(kvs, at.key(), seqno);
            entry = self.map.lower_bound(Bound::Included(&older as &dyn At))?;
        }
    }

    /// The last key of `kvs` in `keys` backwards that has a version up to `seqno`.
    pub(crate) fn prev<R>(
        &self,
        kvs: u32,
        keys: Bound<&[u8]>,
        seqno: u64,
        read: impl FnOnce(&[u8], Written<'_>) -> R,
    ) -> Option<R> {
        let start = match keys {
            Bound::Included(key) => Sought::new(kvs, key, 0),
            Bound::Excluded(key) => Sought::new(kvs, key, u64::MAX),
            Bound::Unbounded => Sought::new(kvs + 1, &[], u64::MAX),
        };
        let mut entry = self.map.upper_bound(Bound::Excluded(&start as &dyn At))?;
        loop {
            let at = entry.key();
            if at.kvs != kvs {
                return None;
            }
            // `entry` is the oldest version of its key: look for the one that `seqno` sees.
            if at.seqno <= seqno {
                let seen = Sought::new(kvs, at.key(), seqno);
                let entry = self.map.lower_bound(Bound::Included(&seen as &dyn At))?;
                return Some(read(entry.key().key(), self.seen(&entry, seqno)));
            }
            let before = Sought::new(kvs, at.key(), u64::MAX);
            entry = self.map.upper_bound(Bound::Excluded(&before as &dyn At))?;
        }
    }

    /// The deleted prefixes of each KVS.
    pub(crate) fn prefixes(&self) -> BTreeMap<u32, Prefixes> {
        let mut prefixes: BTreeMap<u32, Prefixes> = BTreeMap::new();
        for entry in &self.prefixes {
            prefixes.entry(entry.key().kvs).or_default().push(entry.key().key());
        }
        prefixes
    }

    /// Hands every key's newest version to `each`, in order: KVS, key, what was written. Keys that
    /// are covered by a newer prefix are left out: [`Memtable::prefixes`] says that they are deleted.
    pub(crate) fn each_newest<E>(
        &self,
        mut each: impl FnMut(u32, &[u8], Written<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last = None;
        for entry in &self.map {
            let at = entry.key();
            let same = |last: &Entry<'_, Position, Place>| {
                last.key().kvs == at.kvs && last.key().key() == at.key()
            };
            let hidden = || {
                let cover = self.cover(at.kvs, at.key(), u64::MAX);
                cover.is_some_and(|cover| cover.seqno > at.seqno)
            };
            if !last.as_ref().is_some_and(same) && !hidden() {
                each(at.kvs, at.key(), written(&entry))?;
            }
            last = Some(entry);
        }
        Ok(())
    }
}

impl Young for Memtable {
    fn blocks(&self) -> Vec<Arc<ValueBlock>> {
        self.blocks()
    }

    fn prefixes(&self) -> BTreeMap<u32, Prefixes> {
        self.prefixes()
    }

    fn last_seqno(&self) -> u64 {
        self.last_seqno()
    }

    fn holds_many_kvss(&self) -> bool {
        self.map.front().zip(self.map.back()).is_some_and(|(a, b)| a.key().kvs != b.key().kvs)
    }

    fn serves_readers(&self) -> bool {
        true
    }

    fn each_newest<E>(
        &self,
        mut each: impl FnMut(u32, &[u8], Newest<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.each_newest(|kvs, key, written| {
            let Written { value, expiry, block, offset } = written;
            let value = value.map_or(YoungValue::Deleted, YoungValue::Here);
            each(kvs, key, Newest { value, expiry, block, offset })
        })
    }
}

/// Whether a key in `map` that begins with `prefix` has a version newer than `seqno`.
fn newer_within<V>(map: &SkipMap<Position, V>, kvs: u32, prefix: &[u8], seqno: u64) -> bool {
    let from = Sought::new(kvs, prefix, u64::MAX);
    let range = (Bound::Included(&from as &dyn At), Bound::Unbounded);
    map.range::<dyn At, _>(range)
        .take_while(|entry| entry.key().kvs == kvs && entry.key().key().starts_with(prefix))
        .any(|entry| entry.key().seqno > seqno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(u32, &str, u64, Option<&str>)]) -> Memtable {
        let table = Memtable::new(1 << 20);
        for &(kvs, key, seqno, value) in entries {
            let value = value.map(str::as_bytes);
            let written = Written { value, expiry: Expiry(seqno), block: 1, offset: 0 };
            table.insert(kvs, key.as_bytes(), seqno, written);
        }
        table
    }

    fn keys(table: &Memtable, kvs: u32, seqno: u64, forward: bool) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        loop {
            let at = found.last().map(|key| key.clone().into_bytes());
            let bound = at.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
            let show = |key: &[u8], written: Written<'_>| {
                assert!(written.value.is_some() || key == b"gone");
                String::from_utf8(key.to_vec()).unwrap()
            };
            let next = if forward {
                table.next(kvs, bound, seqno, show)
            } else {
                table.prev(kvs, bound, seqno, show)
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
            t.get(1, (key, key_hash(key)), seqno, |written| {
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
        let mut newest = Vec::new();
        t.each_newest(|_, _, written| {
            newest.push(written.value.unwrap()[0]);
            Ok::<(), ()>(())
        })
        .unwrap();
        assert_eq!(newest, b"9823");
    }
}
