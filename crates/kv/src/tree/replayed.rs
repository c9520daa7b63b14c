//! The yield of a replay: the newest version of each key, sorted. It is as good as a memtable that is frozen,
//! and made in less time than that or a kvset. A value that is to stay in the log is read from there.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::prefetch;

use crate::log::frame::LogFrame;
use crate::omf::frame::{Change, FrameHeader, Record};
use crate::omf::page::{INLINE_MAX, Stored};
use crate::tree::item::Item;
use crate::tree::memtable::Memtable;
use crate::tree::memtable::ranges::RANGE_DRAM;
use crate::tree::young::{Newest, Young, YoungValue};
use crate::types::error::Result;
use crate::types::expiry::Expiry;
use crate::types::format::FormatVersion;
use crate::types::ids::{KvsId, RecordAddress, Seqno};
use crate::types::key::head;
use crate::types::spans::{Span, SpanBuf, Spans};
use crate::values::block::ValueBlock;

/// How many records ahead of need a key is asked for: in the order of keys, each is somewhere else.
const AHEAD: usize = 16;

/// So many records of a KVS are sorted while others are read.
const RUN: usize = 32 << 10;

/// Records of the log.
pub(crate) struct Replayed {
    /// Whether ingest may write values elsewhere.
    needs_values: bool,
    /// Where the records lie, and the DRAM held besides.
    segments: Vec<Arc<ValueBlock>>,
    /// Puts and deletes of each KVS; once they are sorted, the newest of each key.
    kvss: BTreeMap<KvsId, Versions>,
    kept: Kept,
    /// Deleted prefixes and ranges, and no keys.
    deleted: Memtable,
    last_seqno: Seqno,
    /// As [`Replayed::bytes_of`] its frames.
    bytes: u64,
}

/// Versions of the keys of a KVS.
struct Versions {
    /// Prefix that all the keys share.
    common: Vec<u8>,
    versions: Vec<ReplayedVersion>,
    /// Where each run ends that is sorted, the longest first.
    runs: Vec<usize>,
    /// The length of `common` when the heads of the runs were taken.
    common_in_runs: usize,
}

/// A version of a key.
#[derive(Clone, Copy)]
struct ReplayedVersion {
    /// The key's first bytes behind the shared prefix.
    head: u64,
    seqno: Seqno,
    expiry: Expiry,
    /// An index of the segments.
    segment: u32,
    /// Where its record begins there.
    offset: u32,
    key: KeptPlace,
    key_size: u16,
    value: ReplayedValue,
    value_size: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplayedValue {
    Deleted,
    /// Behind the key.
    Kept,
    InLog,
}

impl Replayed {
    pub(crate) fn new(needs_values: bool) -> Replayed {
        Replayed {
            needs_values,
            segments: Vec::new(),
            kvss: BTreeMap::new(),
            kept: Kept::default(),
            deleted: Memtable::new(64 << 10),
            last_seqno: Seqno::ZERO,
            bytes: 0,
        }
    }

    /// How much it has, in bytes: as [`Replayed::bytes_of`] its frames.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How much a frame is, in bytes: at least its DRAM, and at least its part of the log.
    pub(crate) fn bytes_of(header: &FrameHeader) -> u64 {
        // To merge runs takes half as much again.
        let version = size_of::<ReplayedVersion>() as u64 * 3 / 2;
        // A frame of version 2 may hold nothing but ranges.
        let range = if header.version == FormatVersion::V1 { 0 } else { RANGE_DRAM };
        u64::from(header.payload_size) + u64::from(header.records) * (version + range)
    }

    /// The segment of the first frame, of which there is one.
    pub(crate) fn first_segment(&self) -> &Arc<ValueBlock> {
        self.segments.first().expect("a frame was taken")
    }

    /// The segment of the last frame.
    pub(crate) fn last_segment(&self) -> &Arc<ValueBlock> {
        self.segments.last().expect("a frame was taken")
    }

    /// Adds a frame, in the order of their seqnos. [`Replayed::sort`] is to be called behind the last one.
    pub(crate) fn take(&mut self, frame: &LogFrame) -> Result<()> {
        if self.segments.last().is_none_or(|last| last.id != frame.segment.id) {
            self.segments.push(frame.segment.clone());
        }
        let mut expiry = Expiry::NEVER;
        frame.each_record(|record, seqno, offset| {
            let stated = std::mem::replace(&mut expiry, Expiry::NEVER);
            match record.change {
                Change::Expire(stated) => expiry = stated,
                Change::DeletePrefix => {
                    self.deleted.delete_prefix(record.kvs, record.key, seqno);
                }
                Change::DeleteRange(upper) => {
                    let span = Span { lower: record.key, upper };
                    self.deleted.delete_range(record.kvs, span, seqno);
                }
                Change::Put(_) | Change::Delete => self.add(record, seqno, offset, stated),
            }
        })?;
        self.last_seqno = frame.header.last_seqno();
        self.bytes += Replayed::bytes_of(&frame.header);
        Ok(())
    }

    fn add(&mut self, record: &Record<'_>, seqno: Seqno, offset: u32, stated: Expiry) {
        let Record { kvs, key, change } = *record;
        let (value, expiry, bytes) = match change.value() {
            None => (ReplayedValue::Deleted, Expiry::NEVER, &[][..]),
            Some(bytes) if self.needs_values || bytes.len() <= INLINE_MAX => {
                (ReplayedValue::Kept, stated, bytes)
            }
            Some(bytes) => (ReplayedValue::InLog, stated, bytes),
        };
        let of_kvs = self.kvss.entry(kvs).or_insert_with(|| Versions::with(key));
        of_kvs.begin_with(key);
        of_kvs.versions.push(ReplayedVersion {
            head: 0,
            seqno,
            expiry,
            segment: u32::try_from(self.segments.len() - 1).expect("fewer than 2^32 segments"),
            offset,
            key: self.kept.add(key, if value == ReplayedValue::Kept { bytes } else { &[] }),
            key_size: u16::try_from(key.len()).expect("KEY_MAX fits 16 bits"),
            value,
            value_size: u32::try_from(bytes.len()).expect("VALUE_MAX fits 32 bits"),
        });
        if of_kvs.versions.len() - of_kvs.sorted() == RUN {
            of_kvs.sort_run(&self.kept);
        }
    }

    /// Puts the records in the order of KVSs and keys, and forgets those that newer ones hide.
    pub(crate) fn sort(&mut self) {
        let Replayed { kvss, kept, deleted, .. } = self;
        for (&kvs, of_kvs) in kvss {
            of_kvs.sort_run(kept);
            of_kvs.merge(0, kept);
            let versions = &mut of_kvs.versions;
            versions.dedup_by(|older, newer| {
                older.head == newer.head && kept.key(older) == kept.key(newer)
            });
            if deleted.hides() {
                versions.retain(|version| {
                    let cover = deleted.cover(kvs, kept.key(version), Seqno::MAX);
                    cover.is_none_or(|cover| cover < version.seqno)
                });
            }
        }
    }

    /// Keeps these segments as well, as long as it is there.
    pub(crate) fn hold(&mut self, segments: &[Arc<ValueBlock>]) {
        self.segments.extend_from_slice(segments);
    }

    /// How many keys of a KVS there are.
    pub(crate) fn count(&self, kvs: KvsId) -> usize {
        self.kvss.get(&kvs).map_or(0, |of_kvs| of_kvs.versions.len())
    }

    /// How many of them come before `key`.
    pub(crate) fn count_below(&self, kvs: KvsId, key: &[u8]) -> usize {
        let of_kvs = self.kvss.get(&kvs);
        of_kvs.map_or(0, |of_kvs| of_kvs.count(key, &self.kept, Ordering::is_lt))
    }

    /// How many of them come before `key`, or are it.
    pub(crate) fn count_through(&self, kvs: KvsId, key: &[u8]) -> usize {
        let of_kvs = self.kvss.get(&kvs);
        of_kvs.map_or(0, |of_kvs| of_kvs.count(key, &self.kept, Ordering::is_le))
    }

    /// One of the keys of a KVS.
    pub(crate) fn key(&self, kvs: KvsId, at: usize) -> &[u8] {
        self.kept.key(&self.kvss[&kvs].versions[at])
    }

    /// The value or tombstone of a version.
    pub(crate) fn item(&self, kvs: KvsId, at: usize) -> Item<'_> {
        self.item_of(&self.kvss[&kvs].versions[at])
    }

    /// The value or tombstone of `key`; a tombstone, too, where it was deleted among others.
    pub(crate) fn get(&self, kvs: KvsId, key: &[u8]) -> Option<Item<'_>> {
        let of_kvs = self.kvss.get(&kvs);
        let found = of_kvs.and_then(|of_kvs| {
            let at = of_kvs.count(key, &self.kept, Ordering::is_lt);
            of_kvs.versions.get(at).filter(|version| self.kept.key(version) == key)
        });
        let cover = || self.deleted.cover(kvs, key, Seqno::MAX);
        let covered = || cover().map(|_| Item::Tombstone);
        found.map(|version| self.item_of(version)).or_else(covered)
    }

    /// Whether any prefix or range was deleted.
    pub(crate) fn hides(&self) -> bool {
        self.deleted.hides()
    }

    /// Keys around `key`, and it among them, of which older versions are deleted.
    pub(crate) fn span(&self, kvs: KvsId, key: &[u8]) -> Option<SpanBuf> {
        self.deleted.span(kvs, key, Seqno::MAX)
    }

    fn item_of(&self, version: &ReplayedVersion) -> Item<'_> {
        let &ReplayedVersion { offset, value_size, expiry, .. } = version;
        match version.value {
            ReplayedValue::Deleted => Item::Tombstone,
            ReplayedValue::Kept => Item::Value(self.kept.value(version), expiry),
            ReplayedValue::InLog => {
                let segment = &self.segments[version.segment as usize];
                // It is in no kvset, which would have numbers for blocks.
                Item::Stored(segment, Stored { block: 0, offset, value_size, expiry })
            }
        }
    }

    fn newest(&self, version: &ReplayedVersion) -> Newest<'_> {
        let value_size = version.value_size;
        Newest {
            value: match version.value {
                ReplayedValue::Deleted => YoungValue::Deleted,
                ReplayedValue::Kept => YoungValue::Here(self.kept.value(version)),
                ReplayedValue::InLog => YoungValue::InLog { value_size },
            },
            expiry: version.expiry,
            address: RecordAddress {
                block: self.segments[version.segment as usize].id,
                offset: version.offset,
            },
        }
    }
}

impl Versions {
    /// None yet; the first key is this one.
    fn with(key: &[u8]) -> Versions {
        let (common, versions, runs) = (key.to_vec(), Vec::new(), Vec::new());
        Versions { common, versions, runs, common_in_runs: 0 }
    }

    /// Notes the beginning of a key.
    fn begin_with(&mut self, key: &[u8]) {
        if !key.starts_with(&self.common) {
            let same = self.common.iter().zip(key).take_while(|(a, b)| a == b).count();
            self.common.truncate(same);
        }
    }

    /// How many are sorted.
    fn sorted(&self) -> usize {
        self.runs.last().copied().unwrap_or(0)
    }

    /// Sorts the versions added since it was called last, and merges runs of the same length.
    fn sort_run(&mut self, kept: &Kept) {
        let (from, end) = (self.sorted(), self.versions.len());
        // With other heads, versions in order stay so.
        let heads_from = if self.common_in_runs == self.common.len() { from } else { 0 };
        self.common_in_runs = self.common.len();
        for version in &mut self.versions[heads_from..] {
            version.head = head(&kept.key(version)[self.common.len()..]);
        }
        self.sort_from(from, kept);
        while let Some(middle) = self.runs.pop() {
            let before = self.sorted();
            if middle - before > end - middle {
                self.runs.push(middle);
                break;
            }
            self.merge(before, kept);
        }
        self.runs.push(end);
    }

    /// Sorts those from `from` on.
    fn sort_from(&mut self, from: usize, kept: &Kept) {
        // By heads and where they are, which takes no branches; and by keys and age where heads are the same.
        let unsorted = &self.versions[from..];
        let heads = unsorted.iter().map(|version| u128::from(version.head) << 64);
        let mut order: Vec<u128> = heads.zip(0..).map(|(head, at)| head | at).collect();
        order.sort_unstable();
        let at = |order: u128| usize::try_from(order & u128::from(u64::MAX)).expect("an index");
        let sorted: Vec<ReplayedVersion> =
            order.into_iter().map(|order| unsorted[at(order)]).collect();
        self.versions[from..].copy_from_slice(&sorted);
        for same in self.versions[from..].chunk_by_mut(|a, b| a.head == b.head) {
            same.sort_unstable_by(|a, b| kept.compare(a, b));
        }
    }

    /// How many keys compare so with `key`, once they are sorted: all before the first that does not.
    fn count(&self, key: &[u8], kept: &Kept, so: impl Fn(Ordering) -> bool) -> usize {
        let Some(rest) = key.strip_prefix(&self.common[..]) else {
            return if so(self.common[..].cmp(key)) { self.versions.len() } else { 0 };
        };
        let head = head(rest);
        self.versions.partition_point(|version| {
            so(version.head.cmp(&head).then_with(|| kept.key(version).cmp(key)))
        })
    }

    /// Makes one run of those from `from` on.
    fn merge(&mut self, from: usize, kept: &Kept) {
        // The stable sort finds runs, and takes a step for each record that it merges.
        self.versions[from..].sort_by(|a, b| kept.compare(a, b));
    }
}

/// Keys, and the values that are needed.
#[derive(Default)]
struct Kept {
    /// Never reallocated.
    chunks: Vec<Vec<u8>>,
}

/// Where a key begins.
#[derive(Clone, Copy)]
struct KeptPlace {
    chunk: u32,
    at: u32,
}

/// Bytes of a chunk, if it is not for one larger record.
const CHUNK: usize = 1 << 20;

impl Kept {
    fn add(&mut self, key: &[u8], value: &[u8]) -> KeptPlace {
        let size = key.len() + value.len();
        if self.chunks.last().is_none_or(|last| last.capacity() - last.len() < size) {
            self.chunks.push(Vec::with_capacity(size.max(CHUNK)));
        }
        let chunk = u32::try_from(self.chunks.len() - 1).expect("fewer than 2^32 chunks");
        let last = self.chunks.last_mut().expect("pushed above");
        let at = u32::try_from(last.len()).expect("chunks are below 4 GiB");
        last.extend_from_slice(key);
        last.extend_from_slice(value);
        KeptPlace { chunk, at }
    }

    fn from(&self, place: KeptPlace) -> &[u8] {
        &self.chunks[place.chunk as usize][place.at as usize..]
    }

    fn prefetch(&self, version: &ReplayedVersion) {
        self.from(version.key).first().into_iter().for_each(prefetch);
    }

    fn compare(&self, a: &ReplayedVersion, b: &ReplayedVersion) -> Ordering {
        let by_key = || self.key(a).cmp(self.key(b));
        let by_age = || b.seqno.cmp(&a.seqno);
        a.head.cmp(&b.head).then_with(by_key).then_with(by_age)
    }

    fn key(&self, version: &ReplayedVersion) -> &[u8] {
        &self.from(version.key)[..usize::from(version.key_size)]
    }

    fn value(&self, version: &ReplayedVersion) -> &[u8] {
        &self.from(version.key)[usize::from(version.key_size)..][..version.value_size as usize]
    }
}

impl Young for Replayed {
    fn blocks(&self) -> Vec<Arc<ValueBlock>> {
        self.segments.clone()
    }

    fn deleted(&self) -> BTreeMap<KvsId, Spans> {
        self.deleted.deleted()
    }

    fn last_seqno(&self) -> Seqno {
        self.last_seqno
    }

    fn may_be_thin(&self) -> bool {
        // That takes values in DRAM: a spill reads more than it needs instead.
        false
    }

    fn serves_readers(&self) -> bool {
        false
    }

    fn each_newest<E>(
        &self,
        mut each: impl FnMut(KvsId, &[u8], Newest<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (&kvs, Versions { versions, .. }) in &self.kvss {
            for (n, version) in versions.iter().enumerate() {
                if let Some(soon) = versions.get(n + AHEAD) {
                    self.kept.prefetch(soon);
                }
                each(kvs, self.kept.key(version), self.newest(version))?;
            }
        }
        Ok(())
    }
}
