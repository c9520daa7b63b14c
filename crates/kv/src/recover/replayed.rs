//! What replay yields to be ingested at once: records sorted, not in a memtable, because nobody reads
//! them there. Of a value that is to stay in the log there is only the size.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::prefetch;

use super::LogFrame;
use crate::error::Result;
use crate::expiry::Expiry;
use crate::ingest::{Newest, Young, YoungValue};
use crate::kvset::head;
use crate::memtable::Memtable;
use crate::omf::frame::{Change, FrameHeader, Record};
use crate::omf::page::INLINE_MAX;
use crate::prefixes::Prefixes;
use crate::value::ValueBlock;

/// How many records ahead of need a key is asked for: in the order of keys, each is somewhere else.
const AHEAD: usize = 16;

/// So many records of a KVS are sorted while others are read.
const RUN: usize = 32 << 10;

/// Records of the log.
pub(super) struct Replayed {
    /// Whether ingest may write values elsewhere.
    needs_values: bool,
    /// Where the records lie.
    segments: Vec<Arc<ValueBlock>>,
    /// Puts and deletes of each KVS.
    kvss: BTreeMap<u32, Versions>,
    kept: Kept,
    /// Deleted prefixes, and no keys.
    prefixes: Memtable,
    last_seqno: u64,
    /// As [`Replayed::bytes_of`] its frames.
    bytes: u64,
}

/// Versions of the keys of a KVS.
struct Versions {
    /// What all the keys begin with.
    common: Vec<u8>,
    versions: Vec<Version>,
    /// Where each run ends that is sorted, the longest first.
    runs: Vec<usize>,
    /// The length of `common` when the heads of the runs were taken.
    common_in_runs: usize,
}

/// A version of a key.
#[derive(Clone, Copy)]
struct Version {
    /// The key's first bytes behind what all begin with.
    head: u64,
    seqno: u64,
    expiry: Expiry,
    /// An index of the segments.
    segment: u32,
    /// Where its record begins there.
    offset: u32,
    key: Place,
    key_size: u16,
    value: Value,
    value_size: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Deleted,
    /// Behind the key.
    Kept,
    InLog,
}

impl Replayed {
    pub(super) fn new(needs_values: bool) -> Replayed {
        Replayed {
            needs_values,
            segments: Vec::new(),
            kvss: BTreeMap::new(),
            kept: Kept::default(),
            prefixes: Memtable::new(64 << 10),
            last_seqno: 0,
            bytes: 0,
        }
    }

    /// How much it has, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether to make kvsets of it takes longer than to start a thread.
    pub(super) fn is_long(&self) -> bool {
        self.kvss.values().map(|of_kvs| of_kvs.versions.len()).sum::<usize>() > RUN
    }

    /// How much a frame is, in bytes: at least what it takes of DRAM, and at least what it is of the log.
    pub(super) fn bytes_of(header: &FrameHeader) -> u64 {
        // To merge runs takes half as much again.
        let version = size_of::<Version>() as u64 * 3 / 2;
        u64::from(header.payload_size) + u64::from(header.records) * version
    }

    /// The segment of the last frame, of which there is one.
    pub(super) fn last_segment(&self) -> &Arc<ValueBlock> {
        self.segments.last().expect("a frame was taken")
    }

    /// Adds a frame, in the order of their seqnos. [`Replayed::sort`] is to be called behind the last one.
    pub(super) fn take(&mut self, frame: &LogFrame) -> Result<()> {
        if self.segments.last().is_none_or(|last| last.id != frame.segment.id) {
            self.segments.push(frame.segment.clone());
        }
        let mut expiry = Expiry::NEVER;
        frame.each_record(|record, seqno, offset| {
            let stated = std::mem::replace(&mut expiry, Expiry::NEVER);
            match record.change {
                Change::Expire(stated) => expiry = stated,
                Change::DeletePrefix => {
                    self.prefixes.delete_prefix(record.kvs, record.key, seqno);
                }
                Change::Put(_) | Change::Delete => self.add(record, seqno, offset, stated),
            }
        })?;
        self.last_seqno = frame.header.last_seqno();
        self.bytes += Replayed::bytes_of(&frame.header);
        Ok(())
    }

    fn add(&mut self, record: &Record<'_>, seqno: u64, offset: u32, stated: Expiry) {
        let Record { kvs, key, change } = *record;
        let (value, expiry, bytes) = match change.value() {
            None => (Value::Deleted, Expiry::NEVER, &[][..]),
            Some(bytes) if self.needs_values || bytes.len() <= INLINE_MAX => {
                (Value::Kept, stated, bytes)
            }
            Some(bytes) => (Value::InLog, stated, bytes),
        };
        let of_kvs = self.kvss.entry(kvs).or_insert_with(|| Versions::with(key));
        of_kvs.begin_with(key);
        of_kvs.versions.push(Version {
            head: 0,
            seqno,
            expiry,
            segment: u32::try_from(self.segments.len() - 1).expect("fewer than 2^32 segments"),
            offset,
            key: self.kept.add(key, if value == Value::Kept { bytes } else { &[] }),
            key_size: u16::try_from(key.len()).expect("KEY_MAX fits 16 bits"),
            value,
            value_size: u32::try_from(bytes.len()).expect("VALUE_MAX fits 32 bits"),
        });
        if of_kvs.versions.len() - of_kvs.sorted() == RUN {
            of_kvs.sort_run(&self.kept);
        }
    }

    /// Puts the records in order: KVS, key, the newest version first.
    pub(super) fn sort(&mut self) {
        let Replayed { kvss, kept, .. } = self;
        for of_kvs in kvss.values_mut() {
            of_kvs.sort_run(kept);
            of_kvs.merge(0, kept);
        }
    }

    fn newest(&self, version: &Version) -> Newest<'_> {
        let value_size = version.value_size;
        Newest {
            value: match version.value {
                Value::Deleted => YoungValue::Deleted,
                Value::Kept => YoungValue::Here(self.kept.value(version)),
                Value::InLog => YoungValue::InLog { value_size },
            },
            expiry: version.expiry,
            block: self.segments[version.segment as usize].id,
            offset: version.offset,
        }
    }
}

impl Versions {
    /// None yet; the first key is this one.
    fn with(key: &[u8]) -> Versions {
        let (common, versions, runs) = (key.to_vec(), Vec::new(), Vec::new());
        Versions { common, versions, runs, common_in_runs: 0 }
    }

    /// Notes what a key begins with.
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

    /// Sorts what was added since it was called last, and merges runs of the same length.
    fn sort_run(&mut self, kept: &Kept) {
        let (from, end) = (self.sorted(), self.versions.len());
        // With other heads, what is in order stays so.
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
        let sorted: Vec<Version> = order.into_iter().map(|order| unsorted[at(order)]).collect();
        self.versions[from..].copy_from_slice(&sorted);
        for same in self.versions[from..].chunk_by_mut(|a, b| a.head == b.head) {
            same.sort_unstable_by(|a, b| kept.compare(a, b));
        }
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
struct Place {
    chunk: u32,
    at: u32,
}

/// Bytes of a chunk, if it is not for one larger record.
const CHUNK: usize = 1 << 20;

impl Kept {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Place {
        let size = key.len() + value.len();
        if self.chunks.last().is_none_or(|last| last.capacity() - last.len() < size) {
            self.chunks.push(Vec::with_capacity(size.max(CHUNK)));
        }
        let chunk = u32::try_from(self.chunks.len() - 1).expect("fewer than 2^32 chunks");
        let last = self.chunks.last_mut().expect("pushed above");
        let at = u32::try_from(last.len()).expect("chunks are below 4 GiB");
        last.extend_from_slice(key);
        last.extend_from_slice(value);
        Place { chunk, at }
    }

    fn from(&self, place: Place) -> &[u8] {
        &self.chunks[place.chunk as usize][place.at as usize..]
    }

    fn prefetch(&self, version: &Version) {
        prefetch(&self.from(version.key)[0]);
    }

    fn compare(&self, a: &Version, b: &Version) -> Ordering {
        let by_key = || self.key(a).cmp(self.key(b));
        let by_age = || b.seqno.cmp(&a.seqno);
        a.head.cmp(&b.head).then_with(by_key).then_with(by_age)
    }

    fn key(&self, version: &Version) -> &[u8] {
        &self.from(version.key)[..usize::from(version.key_size)]
    }

    fn value(&self, version: &Version) -> &[u8] {
        &self.from(version.key)[usize::from(version.key_size)..][..version.value_size as usize]
    }
}

impl Young for Replayed {
    fn blocks(&self) -> Vec<Arc<ValueBlock>> {
        self.segments.clone()
    }

    fn prefixes(&self) -> BTreeMap<u32, Prefixes> {
        self.prefixes.prefixes()
    }

    fn last_seqno(&self) -> u64 {
        self.last_seqno
    }

    fn may_be_thin(&self) -> bool {
        // Somebody waits until it is open: a spill reads more than it needs instead.
        false
    }

    fn serves_readers(&self) -> bool {
        false
    }

    fn each_newest<E>(
        &self,
        mut each: impl FnMut(u32, &[u8], Newest<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (&kvs, Versions { versions, .. }) in &self.kvss {
            let mut last: Option<&Version> = None;
            for (n, version) in versions.iter().enumerate() {
                if let Some(soon) = versions.get(n + AHEAD) {
                    self.kept.prefetch(soon);
                }
                let key = self.kept.key(version);
                let is_key =
                    |last: &Version| last.head == version.head && self.kept.key(last) == key;
                let same = last.is_some_and(is_key);
                last = Some(version);
                let hidden = || {
                    let cover = self.prefixes.cover(kvs, key, u64::MAX);
                    cover.is_some_and(|cover| cover.seqno > version.seqno)
                };
                if !same && !hidden() {
                    each(kvs, key, self.newest(version))?;
                }
            }
        }
        Ok(())
    }
}
