//! Structures that a manifest names: kvsets with their values, and the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::units::to_usize;

use super::gaps::{Gaps, PageGaps, below};
use super::log::{self, LogFrames};
use super::salvage::Salvage;
use super::scan::Scanned;
use crate::copies::repair::report::{ClassesLeft, KeyRange};
use crate::manifest::state::State;
use crate::media::class::Allocation;
use crate::omf::frame::Change;
use crate::omf::kvset::KvsetMeta;
use crate::omf::manifest::KvsetEdit;
use crate::omf::page::{Entry, PAGE_SIZE, Page, Stored};
use crate::tree::kvset::extents::KeyExtents;
use crate::types::error::{KvError, Result};
use crate::types::extent::Extent;
use crate::types::ids::{BlockId, LeafId, Seqno};
use crate::types::spans::{Span, Spans};
use crate::types::stream::Stream;
use crate::values::ahead::{ReadAhead, Way};
use crate::values::block::{ValueBlock, Values, Wanted};
use crate::values::cache::record::RecordKey;

type OpenBlocks = BTreeMap<BlockId, Arc<ValueBlock>>;

/// Salvages the structures that `state` names: leaves, root, log, each from its oldest structure on. Where pages of
/// keys are lost, the values of a kvset are known by the records in its blocks. Returns the last seqno of the log.
pub(super) fn salvage(
    salvage: &mut Salvage<'_>,
    state: &State,
    classes: &ClassesLeft,
    found: &Scanned,
) -> Result<Seqno> {
    let mut blocks = OpenBlocks::new();
    for (&id, known) in &state.blocks {
        let stream = if known.log { Stream::Log } else { Stream::OldValues };
        if let Some(allocation) = place(salvage, classes, stream, known.extent) {
            let (bytes, plain_bytes) = (known.bytes, known.plain_bytes);
            blocks.insert(id, Arc::new(ValueBlock { id, allocation, bytes, plain_bytes }));
        }
    }
    for edit in kvsets(salvage, state) {
        let bounds = bounds(state, edit);
        let ranges = match keys_of(classes, edit) {
            Some(keys) => Walk::new(edit, keys, bounds, &blocks).run(salvage)?,
            None => {
                edit.extents.iter().for_each(|&extent| {
                    place(salvage, classes, Stream::of_keys(edit.leaf), extent);
                });
                let before = bounds.1.map(<[u8]>::to_vec);
                vec![KeyRange { after: below(bounds.0), before }]
            }
        };
        fill_in(salvage, edit, &blocks, &ranges, found)?;
        for range in ranges {
            salvage.lose_range(edit.kvs, range)?;
        }
    }
    let before = salvage.count_findings();
    let mut log = LogFrames::default();
    for (&id, known) in &state.blocks {
        if known.log && id >= state.log_first {
            match blocks.get(&id) {
                Some(segment) => log.search(segment, salvage),
                None => salvage.finding(format!("log segment {id} is on a class that is missing")),
            }
        }
    }
    log.settle();
    let last = log.replay(salvage, state.ingested, true)?;
    if salvage.count_findings() > before {
        salvage.lose_track();
    }
    Ok(last)
}

/// The ranges of keys in which pages of keys are lost.
pub(super) fn gaps(salvage: &Salvage<'_>, state: &State, classes: &ClassesLeft) -> Gaps {
    let mut gaps = Gaps::default();
    for edit in kvsets(salvage, state) {
        let (bounds, blocks) = (bounds(state, edit), OpenBlocks::new());
        let mut lost = PageGaps::new(bounds);
        match keys_of(classes, edit) {
            None => lost.lost(),
            Some(keys) => {
                let walk = Walk::new(edit, keys, bounds, &blocks);
                for index in 0..edit.pages {
                    match walk.page(index) {
                        Ok(page) => lost.sound(&page),
                        Err(_) => lost.lost(),
                    }
                }
            }
        }
        gaps.add_ranges(edit.kvs, lost.end());
    }
    gaps
}

/// The kvsets that `state` names, from the oldest of the leaves to the newest of the root.
fn kvsets<'s>(salvage: &Salvage<'_>, state: &'s State) -> Vec<&'s KvsetEdit> {
    // A KVS that was dropped behind the sound part has left its kvsets to whoever needs their space.
    let kvsets = state.kvsets.values().filter(|kvset| !salvage.is_dropped(kvset.kvs));
    let mut kvsets: Vec<&KvsetEdit> = kvsets.collect();
    kvsets.sort_by_key(|kvset| (kvset.leaf == LeafId::ROOT, kvset.age));
    kvsets
}

/// Where the keys of a kvset lie; `None` when a class of it is missing.
fn keys_of(classes: &ClassesLeft, edit: &KvsetEdit) -> Option<KeyExtents> {
    let stream = Stream::of_keys(edit.leaf);
    let allocation = |extent: &Extent| {
        let media = classes.get(&extent.class)?.clone();
        Some(Allocation::new(&media, *extent, stream))
    };
    edit.extents.iter().map(allocation).collect::<Option<_>>().map(|extents| KeyExtents { extents })
}

/// Puts the records in the blocks of a kvset whose keys are in `ranges`, where its pages are lost: the last one in the
/// blocks of each key. Which of them it referred to, and when they expire, only the pages said.
fn fill_in(
    salvage: &mut Salvage<'_>,
    edit: &KvsetEdit,
    blocks: &OpenBlocks,
    ranges: &[KeyRange],
    found: &Scanned,
) -> Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let mut lost = Gaps::default();
    lost.add_ranges(edit.kvs, ranges.to_vec());
    let mut own: Vec<BlockId> = edit.blocks.iter().map(|(id, _)| *id).collect();
    own.sort_unstable();
    for block in own.iter().filter_map(|id| blocks.get(id)) {
        for header in found.frames_of(block) {
            log::records(block, header, &log::payload(block, header), |one| {
                let record = &one.record;
                let is_one = matches!(record.change, Change::Put(_) | Change::Delete);
                if !is_one || !lost.hold(record.kvs, record.key) {
                    return Ok(());
                }
                salvage.doubt(record.kvs, record.key)?;
                salvage.apply(record, one.expiry)
            })?;
        }
    }
    Ok(())
}

/// The keys from the first bound to below the second.
type Bounds<'a> = (&'a [u8], Option<&'a [u8]>);

/// Those of the node that a kvset belongs to.
fn bounds<'a>(state: &'a State, edit: &KvsetEdit) -> Bounds<'a> {
    let Some((_, lower)) = state.leaves.get(&edit.leaf) else { return (&[], None) };
    let siblings = state.leaves.values().filter(|(kvs, _)| *kvs == edit.kvs);
    let above = siblings.map(|(_, other)| &other[..]).filter(|other| *other > &lower[..]);
    (lower, above.min())
}

/// Where something lies; `None` when its class is missing.
fn place(
    salvage: &mut Salvage<'_>,
    classes: &ClassesLeft,
    stream: Stream,
    extent: Extent,
) -> Option<Allocation> {
    let media = classes.get(&extent.class).cloned();
    if media.is_none() {
        salvage.finding(format!("the {} class is missing, and what lay on it", extent.class));
    }
    media.map(|media| Allocation::new(&media, extent, stream))
}

/// A walk over the pages of a kvset.
struct Walk<'a> {
    edit: &'a KvsetEdit,
    keys: KeyExtents,
    bounds: Bounds<'a>,
    blocks: &'a OpenBlocks,
    values: Values,
    ahead: ReadAhead,
}

impl<'a> Walk<'a> {
    fn new(
        edit: &'a KvsetEdit,
        keys: KeyExtents,
        bounds: Bounds<'a>,
        blocks: &'a OpenBlocks,
    ) -> Walk<'a> {
        let values = Values::new(0);
        Walk { edit, keys, bounds, blocks, values, ahead: ReadAhead::default() }
    }

    /// Salvages all that is sound. Returns the ranges of keys in which pages are lost.
    fn run(mut self, salvage: &mut Salvage<'_>) -> Result<Vec<KeyRange>> {
        let kvs = self.edit.kvs;
        let (lower, upper) = self.bounds;
        match self.deleted() {
            // They hide older keys, here and nowhere else, and none of the kvset's own keys.
            Ok(deleted) => {
                for span in deleted.iter() {
                    salvage.delete_span(kvs, span, Span { lower, upper })?;
                }
            }
            // Filter and index follow from the pages; which prefixes and ranges were deleted does not.
            Err(error) => {
                salvage.finding(error.to_string());
                salvage.lose_spans(kvs, lower, upper)?;
            }
        }
        let mut lost = PageGaps::new(self.bounds);
        let mut key = Vec::new();
        for index in 0..self.edit.pages {
            match self.page(index) {
                Ok(page) => {
                    lost.sound(&page);
                    for slot in 0..page.count() {
                        page.key_to(slot, &mut key);
                        self.entry(salvage, &key, &page.entry(slot).1)?;
                    }
                }
                Err(error) => {
                    salvage.finding(error.to_string());
                    lost.lost();
                }
            }
        }
        Ok(lost.end())
    }

    fn deleted(&self) -> Result<Spans> {
        // An invalid meta is read twice, as pages are.
        self.try_deleted().or_else(|_| self.try_deleted())
    }

    fn try_deleted(&self) -> Result<Spans> {
        let meta_at = u64::from(self.edit.pages) * PAGE_SIZE as u64;
        let bytes = self.keys.read(meta_at, to_usize(self.edit.meta_size.into()))?;
        let meta = KvsetMeta::decode(&bytes, self.edit.id);
        meta.map(|meta| Spans::decode(meta.version, meta.hides))
            .map_err(|bad| self.keys.corrupt("kvset meta", meta_at, bad.0))
    }

    fn page(&self, index: u32) -> Result<Page<Vec<u8>>> {
        // An invalid page is read twice: it may have been damaged on its way.
        self.try_page(index).or_else(|_| self.try_page(index))
    }

    fn try_page(&self, index: u32) -> Result<Page<Vec<u8>>> {
        let at = u64::from(index) * PAGE_SIZE as u64;
        let bytes = self.keys.read(at, PAGE_SIZE)?;
        Page::verify(bytes, self.edit.id, index)
            .map_err(|bad| self.keys.corrupt("key page", at, bad.0))
    }

    fn entry(&mut self, salvage: &mut Salvage<'_>, key: &[u8], entry: &Entry<'_>) -> Result<()> {
        let kvs = self.edit.kvs;
        match entry {
            Entry::Tombstone => salvage.delete(kvs, key),
            Entry::Inline(value, expiry) => salvage.put(kvs, key, value, *expiry),
            Entry::Stored(stored) => match self.value(key, stored) {
                Ok(value) => salvage.put(kvs, key, &value, stored.expiry),
                Err(error) => {
                    salvage.finding(error.to_string());
                    salvage.lose(kvs, key)
                }
            },
        }
    }

    fn value(&mut self, key: &[u8], stored: &Stored) -> Result<Vec<u8>> {
        let id = self.edit.blocks.get(stored.block as usize).map(|(id, _)| *id);
        let block = id.and_then(|id| self.blocks.get(&id)).ok_or_else(|| {
            let detail = format!("it refers to block number {}, which is gone", stored.block);
            self.keys.corrupt("kvset", 0, detail)
        })?;
        let beyond = |detail| self.keys.corrupt("kvset", 0, detail);
        block.check_place(key.len(), stored).map_err(beyond)?;
        let (kvs, mut value) = (self.edit.kvs, Vec::new());
        let key = RecordKey::new(kvs, key);
        let one = Wanted { index: 0, block, key, stored: *stored, age: Seqno::ZERO };
        let read = self.ahead.read(&self.values, vec![one], Way::FORWARD, |_, found| {
            value = found.to_vec();
        });
        match read {
            Ok(()) => Ok(value),
            // A read-ahead may fail because of a neighbouring record, or on its way.
            Err(KvError::Device(_) | KvError::Corrupt { .. }) => {
                self.values.read(&one, &mut value)?;
                Ok(value)
            }
            Err(error) => Err(error),
        }
    }
}
