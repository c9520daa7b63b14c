//! Structures that a manifest names: kvsets with their values, and the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::units::to_usize;

use super::log::LogFrames;
use super::salvage::Salvage;
use crate::copies::repair::report::{ClassesLeft, KeyRange};
use crate::manifest::state::State;
use crate::media::class::Allocation;
use crate::omf::kvset::KvsetMeta;
use crate::omf::manifest::KvsetEdit;
use crate::omf::page::{Entry, PAGE_SIZE, Page, Stored};
use crate::tree::kvset::extents::KeyExtents;
use crate::types::error::{KvError, Result};
use crate::types::extent::Extent;
use crate::types::ids::{BlockId, LeafId, Seqno};
use crate::types::prefixes::Prefixes;
use crate::types::stream::Stream;
use crate::values::ahead::{ReadAhead, Way};
use crate::values::block::{ValueBlock, Values, Wanted};
use crate::values::cache::record::RecordKey;

type OpenBlocks = BTreeMap<BlockId, Arc<ValueBlock>>;

/// Salvages the structures that `state` names: leaves, root, log, each from its oldest structure on.
pub(super) fn salvage(
    salvage: &mut Salvage<'_>,
    state: &State,
    classes: &ClassesLeft,
) -> Result<()> {
    let mut blocks = OpenBlocks::new();
    for (&id, known) in &state.blocks {
        let stream = if known.log { Stream::Log } else { Stream::OldValues };
        if let Some(allocation) = place(salvage, classes, stream, known.extent) {
            let (bytes, plain_bytes) = (known.bytes, known.plain_bytes);
            blocks.insert(id, Arc::new(ValueBlock { id, allocation, bytes, plain_bytes }));
        }
    }
    // A KVS that was dropped behind the sound part has left its kvsets to whoever needs their space.
    let kvsets = state.kvsets.values().filter(|kvset| !salvage.is_dropped(kvset.kvs));
    let mut kvsets: Vec<&KvsetEdit> = kvsets.collect();
    kvsets.sort_by_key(|kvset| (kvset.leaf == LeafId::ROOT, kvset.age));
    for edit in kvsets {
        let stream = Stream::of_keys(edit.leaf);
        let extents = edit.extents.iter();
        let extents = extents.map(|&extent| place(salvage, classes, stream, extent)).collect();
        match extents {
            Some(extents) => {
                let bounds = bounds(state, edit);
                Walk::new(edit, KeyExtents { extents }, bounds, &blocks).run(salvage)?;
            }
            None => salvage.lose_range(edit.kvs, KeyRange { after: None, before: None })?,
        }
    }
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
    log.replay(salvage, state.ingested, true)
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
    media.map(|media| Allocation { media, extent, stream })
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

    fn run(mut self, salvage: &mut Salvage<'_>) -> Result<()> {
        let kvs = self.edit.kvs;
        let (lower, upper) = self.bounds;
        match self.prefixes() {
            // They hide older keys, here and nowhere else, and none of the kvset's own keys.
            Ok(prefixes) => {
                for prefix in prefixes.iter() {
                    salvage.delete_prefix(kvs, prefix, lower, upper)?;
                }
            }
            // Filter and index follow from the pages; which prefixes were deleted does not.
            Err(error) => {
                salvage.finding(error.to_string());
                salvage.lose_prefixes(kvs, lower, upper)?;
            }
        }
        let mut last: Option<Vec<u8>> = None;
        let mut gap = false;
        let mut key = Vec::new();
        for index in 0..self.edit.pages {
            // An invalid page is read twice: it may have been damaged on its way.
            let page = match self.page(index).or_else(|_| self.page(index)) {
                Ok(page) => page,
                Err(error) => {
                    salvage.finding(error.to_string());
                    gap = true;
                    continue;
                }
            };
            for slot in 0..page.count() {
                page.key_to(slot, &mut key);
                if std::mem::take(&mut gap) {
                    let before = Some(key.clone());
                    salvage.lose_range(kvs, KeyRange { after: last.take(), before })?;
                }
                self.entry(salvage, &key, &page.entry(slot).1)?;
            }
            last = Some(key.clone());
        }
        if gap {
            salvage.lose_range(kvs, KeyRange { after: last, before: None })?;
        }
        Ok(())
    }

    fn prefixes(&self) -> Result<Prefixes> {
        // Invalid prefixes are read twice, as pages are.
        self.try_prefixes().or_else(|_| self.try_prefixes())
    }

    fn try_prefixes(&self) -> Result<Prefixes> {
        let meta_at = u64::from(self.edit.pages) * PAGE_SIZE as u64;
        let bytes = self.keys.read(meta_at, to_usize(self.edit.meta_size.into()))?;
        let meta = KvsetMeta::decode(&bytes, self.edit.id);
        meta.map(|meta| Prefixes::decode(meta.prefixes))
            .map_err(|bad| self.keys.corrupt("kvset meta", meta_at, bad.0))
    }

    fn page(&self, index: u32) -> Result<Page<Vec<u8>>> {
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
