//! Structures that lie on a medium, named or not: frames, key pages, and which KVS a kvset belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_base::progress::Unit;
use esker_base::units::{round_up, to_usize};
use esker_base::{AlignedBuf, Lba, LbaCount};

use super::salvage::Salvage;
use crate::copies::repair::report::ClassesLeft;
use crate::manifest::state::State;
use crate::manifest::survey::Survey;
use crate::media::class::{Allocation, Media};
use crate::omf::frame::{FrameHeader, FrameKind, HEADER_SIZE};
use crate::omf::kvset::KvsetMeta;
use crate::omf::manifest::KvsetEdit;
use crate::omf::page::{PAGE_SIZE, Page};
use crate::recover::devices::Remains;
use crate::types::error::{Result as KvResult, go_on};
use crate::types::extent::Extent;
use crate::types::ids::{BlockId, Ids, KvsId, KvsetId};
use crate::types::stream::Stream;
use crate::values::block::ValueBlock;

/// Bytes read at a time.
pub(super) const PIECE: u64 = 1 << 20;

/// Structures that a scan has found.
pub(crate) struct Scanned {
    pub(super) media: Vec<Arc<Media>>,
    /// The frames of each block, by its id and where it begins.
    blocks: BTreeMap<(BlockId, ScanPlace), Vec<FrameHeader>>,
    /// Key pages: kvset, index, and where.
    pub(super) pages: Vec<(KvsetId, u32, ScanPlace)>,
    /// The KVS of each kvset.
    pub(super) owners: BTreeMap<KvsetId, KvsId>,
    /// The origins of the KVDB's ids and of those it is a copy of, if a manifest says. Another KVDB that was on
    /// the media has others.
    origins: Option<BTreeSet<u64>>,
}

/// A class, as an index of the media that were scanned, and an LBA.
type ScanPlace = (usize, u64);

impl Scanned {
    /// Looks at all that is left of each class of the KVDB that had this state, as far as that is known.
    pub(super) fn of(
        classes: &ClassesLeft,
        remains: &Remains,
        state: Option<&State>,
        salvage: &mut Salvage<'_>,
    ) -> KvResult<Scanned> {
        let media: Vec<Arc<Media>> = classes.values().cloned().collect();
        let (blocks, pages, owners) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let origins = state.map(|state| {
            let blocks = state.blocks.keys().map(|id| id.0);
            let named = blocks
                .chain(state.kvsets.keys().map(|id| id.0))
                .chain(state.leaves.keys().map(|id| id.0));
            let given_out_later = [state.last_id, state.last_id.saturating_add(u32::MAX.into())];
            named.chain(given_out_later).map(Ids::origin_of).collect()
        });
        let mut found = Scanned { media: media.clone(), blocks, pages, owners, origins };
        let bytes = |media: &Media| {
            let capacity = media.device().geometry().capacity.bytes(media.lba_size);
            capacity.min(remains.classes[&media.class].1)
        };
        let total = media.iter().map(|media| bytes(media)).sum();
        salvage.meter.begin("searching", Some(total), Unit::Bytes);
        for (number, media) in media.iter().enumerate() {
            found.scan(number, media, bytes(media), salvage)?;
        }
        if state.is_none() {
            found.keep_own();
        }
        Ok(found)
    }

    /// Lets go of structures that another KVDB has left, where class headers say whose the media are and there are
    /// ids as their KVDB gives them out. Those of a copy do not follow from its uuid.
    fn keep_own(&mut self) {
        let headers = self.media.iter().filter_map(|media| media.header().ok());
        let origins = headers.map(|header| Ids::origin_of(Ids::begin(header.uuid)));
        let mut origins: Vec<u64> = origins.collect();
        origins.dedup();
        let &[origin] = &origins[..] else { return };
        let is_own = |id: u64| Ids::origin_of(id) == origin;
        let mut ids =
            self.blocks.keys().map(|(id, _)| id.0).chain(self.pages.iter().map(|it| it.0.0));
        if ids.any(is_own) {
            self.blocks.retain(|(id, _), _| is_own(id.0));
            self.pages.retain(|(kvset, ..)| is_own(kvset.0));
        }
    }

    /// Returns the proof that the manifest had later records, if there is one. A log segment is in the manifest
    /// before it is written. A kvset is overwritten or discarded only when another record has let go of it, mostly
    /// for a new one.
    pub(super) fn newer_than(&self, survey: &Survey) -> Option<String> {
        let state = survey.state.as_ref()?;
        let end = format!("the manifest ends at structure {}", state.last_id);
        let named = state.blocks.iter().filter(|(_, block)| block.log).map(|(id, _)| *id);
        let last = named.max().unwrap_or_default().max(state.log_first);
        let is_log = |frames: &Vec<FrameHeader>| frames[0].kind == FrameKind::Log;
        let logs = self.blocks.iter().filter(|(_, frames)| is_log(frames)).map(|((id, _), _)| *id);
        if let Some(newest) = logs.filter(|id| *id > last && survey.may_be_later(id.0)).max() {
            return Some(format!("{end}, and there is log segment {newest}"));
        }
        let kvsets = self.pages.iter().map(|(kvset, ..)| *kvset);
        let newest = kvsets.filter(|id| survey.may_be_later(id.0)).max()?;
        let gone = state.kvsets.values().find(|kvset| self.is_gone(kvset))?.id;
        Some(format!("{end} and names kvset {gone}, which is gone, and there is kvset {newest}"))
    }

    /// Whether nothing is left of a kvset, on classes that are there.
    fn is_gone(&self, kvset: &KvsetEdit) -> bool {
        let is_there = |extent: &Extent| self.media.iter().any(|it| it.class == extent.class);
        kvset.extents.iter().all(is_there)
            && !self.owners.contains_key(&kvset.id)
            && self.pages.iter().all(|(id, ..)| *id != kvset.id)
    }

    /// Looks at the first `end` bytes of a class.
    fn scan(
        &mut self,
        number: usize,
        media: &Media,
        end: u64,
        salvage: &mut Salvage<'_>,
    ) -> KvResult<()> {
        for offset in (0..end).step_by(to_usize(PIECE)) {
            let (lba, size) = (Lba(offset / u64::from(media.lba_size)), PIECE.min(end - offset));
            let piece = read_parts(media, lba, size, |error| salvage.finding(error));
            self.look(number, media, lba, &piece);
            go_on(salvage.meter.add(size))?;
        }
        Ok(())
    }

    /// Whether the KVDB may have given out this id.
    fn is_own(&self, id: u64) -> bool {
        self.origins.as_ref().is_none_or(|origins| origins.contains(&Ids::origin_of(id)))
    }

    fn look(&mut self, number: usize, media: &Media, first: Lba, piece: &[u8]) {
        let lba_size = lba_size(media);
        for (bytes, lba) in piece.chunks(lba_size).zip(first.0..) {
            let Ok(header) = FrameHeader::decode(bytes) else { continue };
            if !self.is_own(header.block.0) {
                continue;
            }
            // A frame states how far it is from the beginning of its block.
            let before = header.offset / lba_size as u64;
            if let Some(start) = lba.checked_sub(before) {
                self.blocks.entry((header.block, (number, start))).or_default().push(header);
            }
        }
        let pages = (first.0..).step_by(PAGE_SIZE / lba_size);
        for (bytes, lba) in piece.chunks_exact(PAGE_SIZE).zip(pages) {
            let place = (number, lba);
            if let Some((kvset, kvs)) = KvsetMeta::owner(bytes) {
                self.owners.insert(kvset, kvs);
            } else if let Some((kvset, index)) = Page::address(bytes)
                && self.is_own(kvset.0)
            {
                self.pages.push((kvset, index, place));
            }
        }
    }

    /// The frames of a block that a manifest names.
    pub(super) fn frames_of(&self, block: &ValueBlock) -> &[FrameHeader] {
        let Extent { class, lba, .. } = *block.extent();
        let number = self.media.iter().position(|media| media.class == class);
        let frames = number.and_then(|number| self.blocks.get(&(block.id, (number, lba.0))));
        frames.map_or(&[], Vec::as_slice)
    }

    /// The newest segment of the KVDB's own log that holds frames.
    pub(super) fn newest_log(&self, state: &State) -> BlockId {
        let own = Ids::origin_of(state.last_id);
        let logs = self.blocks.iter().filter(|(_, frames)| frames[0].kind == FrameKind::Log);
        let own = logs.map(|((id, _), _)| *id).filter(|id| Ids::origin_of(id.0) == own);
        own.max().unwrap_or_default()
    }

    /// The blocks with their frames, which are of one kind.
    pub(super) fn blocks(&self) -> Vec<(Arc<ValueBlock>, FrameKind, Vec<FrameHeader>)> {
        let block =
            |(&(id, (number, start)), frames): (&(BlockId, ScanPlace), &Vec<FrameHeader>)| {
                let media = &self.media[number];
                let end = |frame: &FrameHeader| {
                    frame.offset + HEADER_SIZE as u64 + u64::from(frame.payload_size)
                };
                let bytes = frames.iter().map(end).max().unwrap_or(0);
                let count = LbaCount::holding(bytes, media.lba_size);
                let extent = Extent { class: media.class, lba: Lba(start), count };
                let (kind, stream) = match frames[0].kind {
                    FrameKind::Log => (FrameKind::Log, Stream::Log),
                    FrameKind::Aged => (FrameKind::Aged, Stream::OldValues),
                };
                let allocation = Allocation::new(media, extent, stream);
                (
                    Arc::new(ValueBlock { id, allocation, bytes: 0, plain_bytes: 0 }),
                    kind,
                    frames.clone(),
                )
            };
        self.blocks.iter().map(block).collect()
    }
}

/// Reads `size` bytes of a class from `lba` on. A range that cannot be read at once may be read in part: the rest
/// is zeroes, and `failed` is told.
pub(super) fn read_parts(
    media: &Media,
    lba: Lba,
    size: u64,
    mut failed: impl FnMut(String),
) -> AlignedBuf {
    let error = match read(media, lba, size) {
        Ok(all) => return all,
        Err(error) => error,
    };
    let mut all = AlignedBuf::zeroed(to_usize(round_up(size, media.lba_size.into())));
    let parts = all.chunks_mut(PAGE_SIZE).zip((lba.0..).step_by(PAGE_SIZE / lba_size(media)));
    let (mut lost, mut is_all) = (Vec::new(), true);
    for (part, lba) in parts {
        match read(media, Lba(lba), part.len() as u64) {
            Ok(bytes) => {
                part.copy_from_slice(&bytes);
                is_all = false;
            }
            Err(error) => lost.push(error),
        }
    }
    // A line for each part of a device that is dead would tell nothing.
    if is_all {
        failed(error)
    } else {
        lost.into_iter().for_each(failed)
    }
    all
}

/// Reads `size` bytes of a class from `lba` on.
pub(super) fn read(media: &Media, lba: Lba, size: u64) -> Result<AlignedBuf, String> {
    let buf = AlignedBuf::zeroed(to_usize(round_up(size, media.lba_size.into())));
    let mut port = media.ports.port().map_err(|error| error.to_string())?;
    media.transfer.read(&mut port, lba, buf).map_err(|error| error.to_string())
}

fn lba_size(media: &Media) -> usize {
    to_usize(media.lba_size.into())
}
