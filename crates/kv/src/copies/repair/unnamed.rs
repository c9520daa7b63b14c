//! Structures that no manifest names any more, in the order in which they were most likely written.
//!
//! Ids are given out in the order of time, and the log has seqnos. A version of a key that aging wrote has
//! lost its seqno, but its record is a copy, but for its compression: where the log still holds the
//! same record, the seqno is known again. Where it does not, a log segment that was begun after the version
//! was written is newer. For the rest the log is believed, because space that is free again mostly reads as
//! zeroes, and the key is counted as uncertain. A deleted prefix or range of the log stands for each key it covers; a
//! version that may be newer, because the prefix is in an older segment, comes back and is uncertain.
//! A value that was older than the manifest's sound part already, and is in use by younger structures, is found by
//! its key page: key, offset and size.
//! A kvset that may have been named late, after others with higher ids, may as well be left over from an
//! interrupted step. It speaks for keys of which nothing else is known, and so do values that only it refers to.
//! Prefixes and ranges in kvsets are passed over, because only the manifest knew in which leaf they hide anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_base::Lba;
use esker_base::checksum::crc32c;
use esker_base::units::to_usize;

use super::log::{self, Framed, LogFrames};
use super::salvage::Salvage;
use super::scan::{self, Scanned};
use crate::manifest::survey::Survey;
use crate::media::class::Media;
use crate::omf::frame::{Change, FrameHeader, FrameKind, Record};
use crate::omf::page::{Entry, PAGE_SIZE, Page};
use crate::tree::memtable::ranges::DeletedRanges;
use crate::types::error::Result;
use crate::types::expiry::Expiry;
use crate::types::ids::{BlockId, KvsId, KvsetId, Seqno};
use crate::types::spans::SpanBuf;
use crate::values::block::ValueBlock;

/// Salvages the structures that the survey's state does not name. Returns the last seqno of the log.
pub(super) fn salvage(
    salvage: &mut Salvage<'_>,
    survey: &Survey,
    found: &Scanned,
) -> Result<Seqno> {
    let state = survey.state.as_ref();
    let known = state.map_or(0, |state| state.last_id);
    let ingested = state.map_or(Seqno::ZERO, |state| state.ingested);
    let log_first = state.map_or(BlockId(0), |state| state.log_first);
    let (mut frames, mut older) = (LogFrames::default(), Vec::new());
    let mut written = Vec::new();
    for (block, kind, headers) in found.blocks() {
        match kind {
            FrameKind::Log if block.id >= log_first => {
                // An earlier block at this place may have had the same id.
                let log = headers.into_iter().filter(|header| header.kind == FrameKind::Log);
                let log: Vec<FrameHeader> = log.collect();
                frames.0.extend(log.iter().map(|header| (block.clone(), *header)));
                // Records that are in kvsets are not replayed: lost kvsets may refer to them as to any older value.
                let old = log.into_iter().filter(|header| header.first_seqno <= ingested);
                older.push((block, old.collect()));
            }
            FrameKind::Aged if block.id.0 > known => {
                written.push((block.id.0, WrittenPart::Values(block, headers)));
            }
            _ => older.push((block, headers)),
        }
    }
    for &(kvset, index, (number, lba)) in &found.pages {
        if survey.may_be_later(kvset.0) {
            written
                .push((kvset.0, WrittenPart::Keys(index, found.media[number].clone(), Lba(lba))));
        }
    }
    written.sort_by_key(|(id, written)| (*id, written.index()));
    match state {
        // All are the KVDB's own: those of a copy, which follow those of its source, too.
        Some(_) => frames.settle(),
        None => frames.settle_each_origin(),
    }
    let references = References::of(&written, found, known > 0);
    for (block, headers) in &older {
        references.fill_in(salvage, block, headers)?;
    }
    let late = written.partition_point(|(id, _)| *id <= known);
    for (id, written) in written.drain(..late) {
        if let WrittenPart::Keys(index, media, at) = written {
            keys(salvage, found, (KvsetId(id), index), &media, at, fill_in)?;
        }
    }
    let log = LogVersions::of(salvage, &frames, ingested)?;
    let mut order = Order { log, references, after_log: false };
    order.all(salvage, &written, found)?;
    // Only the lost part of the manifest knew which later records were ingested.
    let last = frames.replay(salvage, ingested, false)?;
    if order.log.deletes_many() {
        order.after_log = true;
        order.all(salvage, &written, found)?;
    }
    Ok(last)
}

/// Something that maintenance wrote.
enum WrittenPart {
    Values(Arc<ValueBlock>, Vec<FrameHeader>),
    /// A page: its index in its kvset, and where.
    Keys(u32, Arc<Media>, Lba),
}

impl WrittenPart {
    fn index(&self) -> u32 {
        match self {
            WrittenPart::Values(..) => 0,
            WrittenPart::Keys(index, ..) => *index,
        }
    }
}

/// A key page that was found, if it can be read and is whole.
fn read_page(media: &Media, at: Lba, kvset: KvsetId, index: u32) -> Option<Page<Vec<u8>>> {
    let bytes = scan::read(media, at, PAGE_SIZE as u64).ok()?;
    Page::verify(bytes[..PAGE_SIZE].to_vec(), kvset, index).ok()
}

/// Hands out the records that a page holds itself: short values, and deletes. Where a longer value is, only the
/// manifest knew; its record says by itself whose it is.
fn keys<'a>(
    salvage: &mut Salvage<'a>,
    found: &Scanned,
    (kvset, index): (KvsetId, u32),
    media: &Media,
    at: Lba,
    mut each: impl FnMut(&mut Salvage<'a>, &Record<'_>, Expiry) -> Result<()>,
) -> Result<()> {
    let Some(page) = read_page(media, at, kvset, index) else { return Ok(()) };
    let mut key = Vec::new();
    for slot in 0..page.count() {
        page.key_to(slot, &mut key);
        let (change, expiry) = match page.entry(slot).1 {
            Entry::Stored(_) => continue,
            Entry::Tombstone => (Change::Delete, Expiry::NEVER),
            Entry::Inline(value, expiry) => (Change::Put(value), expiry),
        };
        let Some(&kvs) = found.owners.get(&kvset) else {
            let why = "its KVS is not known: its meta is lost";
            salvage.finding(format!("kvset {kvset}: {why}"));
            return Ok(());
        };
        each(salvage, &Record { kvs, key: &key, change }, expiry)?;
    }
    Ok(())
}

/// Puts a value where nothing else is known of the key.
fn fill_in(salvage: &mut Salvage<'_>, record: &Record<'_>, expiry: Expiry) -> Result<()> {
    let is_put = record.change.value().is_some();
    if !is_put || salvage.so_far(record.kvs, record.key)?.is_some() {
        return Ok(());
    }
    salvage.doubt(record.kvs, record.key)?;
    salvage.apply(record, expiry)
}

/// Names a key of a KVS.
fn hash(kvs: KvsId, key: &[u8]) -> u64 {
    crate::types::key::key_hash(key) ^ u64::from(kvs.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Identity of a record that was moved: a checksum of its key and of its change to the key.
fn fingerprint(record: &Record<'_>) -> u32 {
    let mut plain = vec![0; record.size()];
    record.encode_to(&mut plain);
    crc32c(&plain[4..])
}

/// The versions that the log holds, by key and seqno, and the prefixes and ranges that it deletes.
#[derive(Default)]
struct LogVersions {
    keys: Vec<LogVersion>,
    /// The last seqno that deletes a prefix, and its segment; by KVS and prefix.
    prefixes: BTreeMap<(KvsId, Vec<u8>), (Seqno, BlockId)>,
    /// The sizes of those prefixes, in bytes.
    prefix_sizes: BTreeSet<usize>,
    ranges: DeletedRanges,
    /// The segment of each range.
    range_segments: BTreeMap<Seqno, BlockId>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LogVersion {
    hash: u64,
    seqno: Seqno,
    segment: BlockId,
    fingerprint: u32,
}

impl LogVersions {
    fn of(salvage: &Salvage<'_>, frames: &LogFrames, ingested: Seqno) -> Result<LogVersions> {
        let (mut versions, mut ranges) = (LogVersions::default(), Vec::new());
        for (segment, header) in &frames.0 {
            // Damage is reported when the log is replayed.
            log::records(segment, header, &log::payload(segment, header), |one| {
                let Record { kvs, key, .. } = one.record;
                let is_wanted = one.record.span().is_some() || salvage.wants(kvs, key);
                if is_wanted && one.seqno > ingested {
                    versions.note(&one.record, (one.seqno, segment.id), &mut ranges);
                }
                Ok(())
            })?;
        }
        versions.keys.sort_unstable();
        // Frames of several origins do not ascend.
        ranges.sort_by_key(|(seqno, ..)| *seqno);
        ranges
            .iter()
            .for_each(|(seqno, kvs, span)| versions.ranges.add(*kvs, span.as_span(), *seqno));
        Ok(versions)
    }

    fn note(
        &mut self,
        record: &Record<'_>,
        (seqno, segment): (Seqno, BlockId),
        ranges: &mut Vec<(Seqno, KvsId, SpanBuf)>,
    ) {
        if let Change::DeleteRange(_) = record.change {
            let last = self.range_segments.entry(seqno).or_default();
            *last = segment.max(*last);
            ranges.extend(record.span().map(|span| (seqno, record.kvs, span)));
        } else if record.change == Change::DeletePrefix {
            let last = self.prefixes.entry((record.kvs, record.key.to_vec())).or_default();
            *last = (seqno, segment).max(*last);
            self.prefix_sizes.insert(record.key.len());
        } else {
            let hash = hash(record.kvs, record.key);
            let fingerprint = fingerprint(record);
            self.keys.push(LogVersion { hash, seqno, segment, fingerprint });
        }
    }

    fn deletes_many(&self) -> bool {
        !self.prefixes.is_empty() || !self.range_segments.is_empty()
    }

    /// The last seqno that deletes the key among others, and its segment.
    fn covered_by(&self, kvs: KvsId, key: &[u8]) -> Option<(Seqno, BlockId)> {
        let prefixes = self.prefix_sizes.iter().filter_map(|size| key.get(..*size));
        let prefixes = prefixes.filter_map(|prefix| self.prefixes.get(&(kvs, prefix.to_vec())));
        let range = self.ranges.newest(kvs, key, Seqno::MAX);
        let range = range.map(|seqno| (seqno, self.range_segments[&seqno]));
        prefixes.max().copied().max(range)
    }

    /// Those of one key, oldest first.
    fn of_key(&self, hash: u64) -> &[LogVersion] {
        let start = self.keys.partition_point(|version| version.hash < hash);
        let end = self.keys.partition_point(|version| version.hash <= hash);
        &self.keys[start..end]
    }
}

/// Values elsewhere that pages refer to: by the hash of a key, the offset of its record and the size of its value
/// on the medium, the moment when it expires.
#[derive(Default)]
struct References {
    values: BTreeMap<(u64, u64, usize), Expiry>,
    /// The KVSs that have values which expire.
    expiring: BTreeSet<KvsId>,
}

impl References {
    /// Those to values that expire, or `all`.
    fn of(written: &[(u64, WrittenPart)], found: &Scanned, all: bool) -> References {
        let mut references = References::default();
        for (id, written) in written {
            let WrittenPart::Keys(index, media, at) = written else { continue };
            let kvset = KvsetId(*id);
            let Some(&kvs) = found.owners.get(&kvset) else { continue };
            let Some(page) = read_page(media, *at, kvset, *index) else { continue };
            let mut key = Vec::new();
            for slot in 0..page.count() {
                let Entry::Stored(stored) = page.entry(slot).1 else { continue };
                if all || !stored.expiry.is_never() {
                    page.key_to(slot, &mut key);
                    let size = to_usize(stored.value_size.into());
                    let at = (hash(kvs, &key), u64::from(stored.offset), size);
                    references.values.insert(at, stored.expiry);
                }
                if !stored.expiry.is_never() {
                    references.expiring.insert(kvs);
                }
            }
        }
        references
    }

    fn expiry_of(&self, framed: &Framed<'_>) -> Option<Expiry> {
        let at = (hash(framed.record.kvs, framed.record.key), framed.offset, framed.stored_size);
        self.values.get(&at).copied()
    }

    /// Puts the records that lost structures refer to in a block that is older than the state, where nothing else is
    /// known of the key.
    fn fill_in(
        &self,
        salvage: &mut Salvage<'_>,
        block: &ValueBlock,
        headers: &[FrameHeader],
    ) -> Result<()> {
        for header in headers {
            log::records(block, header, &log::payload(block, header), |one| {
                let expiry = self.expiry_of(one);
                expiry.map_or(Ok(()), |expiry| fill_in(salvage, &one.record, expiry))
            })?;
        }
        Ok(())
    }
}

/// Decides which versions stay, by the log's records.
struct Order {
    log: LogVersions,
    references: References,
    /// Whether it is about the versions that may be newer than a deleted prefix, and only about them.
    after_log: bool,
}

impl Order {
    fn all(
        &self,
        salvage: &mut Salvage<'_>,
        written: &[(u64, WrittenPart)],
        found: &Scanned,
    ) -> Result<()> {
        for (id, written) in written {
            match written {
                WrittenPart::Values(block, headers) => self.values(salvage, block, headers)?,
                WrittenPart::Keys(index, media, at) => {
                    keys(
                        salvage,
                        found,
                        (KvsetId(*id), *index),
                        media,
                        *at,
                        |salvage, record, expiry| self.version(salvage, *id, record, expiry),
                    )?;
                }
            }
        }
        Ok(())
    }

    fn values(
        &self,
        salvage: &mut Salvage<'_>,
        block: &ValueBlock,
        headers: &[FrameHeader],
    ) -> Result<()> {
        for header in headers {
            let damage = log::records(block, header, &log::payload(block, header), |one| {
                let expiry = self.references.expiry_of(one);
                let is_known =
                    expiry.is_some() || !self.references.expiring.contains(&one.record.kvs);
                if !is_known {
                    salvage.doubt(one.record.kvs, one.record.key)?;
                }
                self.version(salvage, block.id.0, &one.record, expiry.unwrap_or(Expiry::NEVER))
            })?;
            damage.into_iter().for_each(|damage| salvage.finding(damage));
        }
        Ok(())
    }

    /// A version that maintenance wrote into the structure `id`.
    fn version(
        &self,
        salvage: &mut Salvage<'_>,
        id: u64,
        record: &Record<'_>,
        expiry: Expiry,
    ) -> Result<()> {
        let &Record { kvs, key, change } = record;
        if !salvage.wants(kvs, key) {
            return Ok(());
        }
        let in_log = self.log.of_key(hash(kvs, key));
        let last = in_log.last().map(|version| (version.seqno, version.segment));
        let covered_by = self.log.covered_by(kvs, key);
        // The log has this version as well, or its last version was written after this: it decides.
        let decides = last.max(covered_by).is_some_and(|(_, segment)| segment.0 > id) || {
            let fingerprint = fingerprint(record);
            in_log.iter().any(|version| version.fingerprint == fingerprint)
        };
        let may_be_newer = !decides && covered_by > last;
        if decides || may_be_newer != self.after_log {
            return Ok(());
        }
        if may_be_newer {
            salvage.doubt(kvs, key)?;
        } else if last.is_some() {
            return salvage.doubt(kvs, key);
        }
        if salvage.so_far(kvs, key)?.is_some_and(|old| Some(&old[..]) != change.value()) {
            salvage.doubt(kvs, key)?;
        }
        salvage.apply(record, expiry)
    }
}
