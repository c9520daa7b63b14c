//! What replay yields to be ingested at once: records sorted, not in a memtable, because nobody reads
//! them there.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use esker_base::prefetch;

use super::LogFrame;
use crate::error::Result;
use crate::expiry::Expiry;
use crate::ingest::Young;
use crate::kvset::head;
use crate::memtable::{Memtable, Written};
use crate::omf::frame::{Change, RECORD_HEADER_SIZE, Record};
use crate::prefixes::Prefixes;
use crate::value::ValueBlock;

/// How many records ahead of need a key is asked for: in the order of keys, each is somewhere else.
const AHEAD: usize = 16;

/// Records of the log, as they lie in their frames.
pub(super) struct Replayed {
    frames: Vec<Frame>,
    /// Of puts and deletes.
    versions: Vec<Version>,
    /// What the keys of each KVS begin with.
    common: BTreeMap<u32, Vec<u8>>,
    /// Deleted prefixes, and no keys.
    prefixes: Memtable,
    last_seqno: u64,
    bytes: u64,
}

struct Frame {
    segment: Arc<ValueBlock>,
    /// Where its records begin in the segment.
    offset: u64,
    payload: Vec<u8>,
}

/// A version of a key.
#[derive(Clone, Copy)]
struct Version {
    kvs: u32,
    frame: u32,
    /// Where its record begins in the frame's payload.
    at: u32,
    key_size: u16,
    is_delete: bool,
    value_size: u32,
    /// The key's first bytes behind what all of its KVS begin with.
    head: u64,
    seqno: u64,
    expiry: Expiry,
}

impl Version {
    fn key(&self) -> Range<usize> {
        let start = self.at as usize + RECORD_HEADER_SIZE;
        start..start + usize::from(self.key_size)
    }
}

impl Replayed {
    pub(super) fn new() -> Replayed {
        Replayed {
            frames: Vec::new(),
            versions: Vec::new(),
            common: BTreeMap::new(),
            prefixes: Memtable::new(64 << 10),
            last_seqno: 0,
            bytes: 0,
        }
    }

    /// DRAM in use, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes + (self.versions.len() * size_of::<Version>()) as u64
    }

    /// The segment of the last frame.
    pub(super) fn last_segment(&self) -> Option<&Arc<ValueBlock>> {
        self.frames.last().map(|frame| &frame.segment)
    }

    /// Adds a frame, in the order of their seqnos. [`Replayed::sort`] is to be called behind the last one.
    pub(super) fn take(&mut self, frame: LogFrame<'_>) -> Result<()> {
        let number = u32::try_from(self.frames.len()).expect("fewer than 2^32 frames");
        let mut expiry = Expiry::NEVER;
        self.last_seqno = frame.each_record(|record, seqno, at| {
            let stated = std::mem::replace(&mut expiry, Expiry::NEVER);
            match record.change {
                Change::Expire(stated) => expiry = stated,
                Change::DeletePrefix => {
                    self.prefixes.delete_prefix(record.kvs, record.key, seqno);
                }
                Change::Put(_) | Change::Delete => self.add(record, (number, at), seqno, stated),
            }
        })?;
        let (segment, offset) = (frame.segment.clone(), frame.records_at());
        self.bytes += frame.payload.len() as u64;
        self.frames.push(Frame { segment, offset, payload: frame.payload });
        Ok(())
    }

    fn add(&mut self, record: &Record<'_>, (frame, at): (u32, usize), seqno: u64, expiry: Expiry) {
        let Record { kvs, key, change } = *record;
        let common = self.common.entry(kvs).or_insert_with(|| key.to_vec());
        if !key.starts_with(common) {
            let same = common.iter().zip(key).take_while(|(a, b)| a == b).count();
            common.truncate(same);
        }
        let value_size = change.value().map_or(0, <[u8]>::len);
        self.versions.push(Version {
            kvs,
            frame,
            at: u32::try_from(at).expect("frames are below 4 GiB"),
            key_size: u16::try_from(key.len()).expect("KEY_MAX fits 16 bits"),
            is_delete: change == Change::Delete,
            value_size: u32::try_from(value_size).expect("VALUE_MAX fits 32 bits"),
            head: 0,
            seqno,
            expiry: if change == Change::Delete { Expiry::NEVER } else { expiry },
        });
    }

    /// Puts the records in order: KVS, key, the newest version first.
    pub(super) fn sort(&mut self) {
        let Replayed { frames, versions, common, .. } = self;
        let key = |version: &Version| &frames[version.frame as usize].payload[version.key()];
        for version in versions.iter_mut() {
            version.head = head(&key(version)[common[&version.kvs].len()..]);
        }
        versions.sort_unstable_by(|a, b| {
            let begin = (a.kvs, a.head).cmp(&(b.kvs, b.head));
            begin
                .then_with(|| key(a).cmp(key(b)))
                .then_with(|| Reverse(a.seqno).cmp(&Reverse(b.seqno)))
        });
    }

    fn key(&self, version: &Version) -> &[u8] {
        &self.frames[version.frame as usize].payload[version.key()]
    }

    fn written(&self, version: &Version) -> Written<'_> {
        let frame = &self.frames[version.frame as usize];
        let value = &frame.payload[version.key().end..][..version.value_size as usize];
        let offset = frame.offset + u64::from(version.at);
        Written {
            value: (!version.is_delete).then_some(value),
            expiry: version.expiry,
            block: frame.segment.id,
            offset: u32::try_from(offset).expect("segments are below 4 GiB"),
        }
    }
}

impl Young for Replayed {
    fn blocks(&self) -> Vec<Arc<ValueBlock>> {
        let mut blocks: Vec<_> = self.frames.iter().map(|frame| frame.segment.clone()).collect();
        blocks.dedup_by_key(|block| block.id);
        blocks
    }

    fn prefixes(&self) -> BTreeMap<u32, Prefixes> {
        self.prefixes.prefixes()
    }

    fn last_seqno(&self) -> u64 {
        self.last_seqno
    }

    fn holds_many_kvss(&self) -> bool {
        self.common.len() > 1
    }

    fn serves_readers(&self) -> bool {
        false
    }

    fn each_newest<E>(
        &self,
        mut each: impl FnMut(u32, &[u8], Written<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut last: Option<&Version> = None;
        for (n, version) in self.versions.iter().enumerate() {
            if let Some(soon) = self.versions.get(n + AHEAD) {
                prefetch(&self.frames[soon.frame as usize].payload[soon.key().start]);
            }
            let key = self.key(version);
            let same = last.is_some_and(|last| {
                (last.kvs, last.head) == (version.kvs, version.head) && self.key(last) == key
            });
            last = Some(version);
            let hidden = || {
                let cover = self.prefixes.cover(version.kvs, key, u64::MAX);
                cover.is_some_and(|cover| cover.seqno > version.seqno)
            };
            if !same && !hidden() {
                each(version.kvs, key, self.written(version))?;
            }
        }
        Ok(())
    }
}
