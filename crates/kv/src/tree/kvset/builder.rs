//! Writes a kvset: sorted entries in, pages and meta out.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::codec::Encoder;
use esker_base::units::{round_up, to_usize};
use esker_base::{AlignedBuf, Lba};

use super::{Kvset, Meta, PageIndex};
use crate::media::classes::Classes;
use crate::media::space::Purpose;
use crate::media::writes::Writes;
use crate::omf::frame::record_size;
use crate::omf::kvset::KvsetMeta;
use crate::omf::manifest::KvsetEdit;
use crate::omf::page::{Entry, PAGE_SIZE, PageBuilder, Stored};
use crate::tree::filter::FilterBuilder;
use crate::tree::kvset::extents::KeyExtents;
use crate::tree::page_cache::{HeldPages, PageCache, PageTable, SharedPage};
use crate::types::error::Result;
use crate::types::expiry::{Expiries, Expiry};
use crate::types::format::FormatVersion;
use crate::types::ids::{BlockId, KvsId, KvsetId, LeafId, RecordAddress, Seqno};
use crate::types::key::key_hash;
use crate::types::options::Tuning;
use crate::types::policy::Place;
use crate::types::spans::Spans;
use crate::types::stream::Stream;
use crate::values::block::ValueBlock;

/// Filter bits per key: about one search in a hundred passes the filter in vain.
const FILTER_BITS: usize = 10;

/// Pages are written in pieces of this size.
const WRITE_BYTES: usize = 256 << 10;

/// Value of a key of a new kvset, or its tombstone: like [`Entry`], with the block by its id.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewEntry<'a> {
    Tombstone,
    Inline(&'a [u8], Expiry),
    Stored { address: RecordAddress, value_size: u32, expiry: Expiry },
}

/// Parts of a KVDB that kvsets are built with.
#[derive(Clone, Copy)]
pub(crate) struct BuilderContext<'a> {
    pub(crate) classes: &'a Classes,
    pub(crate) cache: &'a Arc<PageCache>,
    pub(crate) tuning: &'a Tuning,
    pub(crate) writes: &'a Writes,
}

/// A kvset under construction. Dropped unfinished, it frees its space.
pub(crate) struct KvsetBuilder<'a> {
    context: BuilderContext<'a>,
    place: Place,
    edit: KvsetEdit,
    keys: KeyExtents,
    page: PageBuilder,
    /// Pages on their way to the medium: so many bytes of it.
    buf: AlignedBuf,
    filled: usize,
    /// Bytes written to the last extent.
    extent_used: u64,
    resident: Vec<SharedPage>,
    held: HeldPages,
    index: Encoder,
    last_key: Vec<u8>,
    deleted: Spans,
    /// As its keys need it.
    version: FormatVersion,
    expiries: Expiries,
    hashes: Vec<u64>,
    block_numbers: BTreeMap<BlockId, u32>,
}

impl<'a> KvsetBuilder<'a> {
    /// A kvset of `kvs` for the node `leaf`, with its keys at `place`.
    pub(crate) fn new(
        context: BuilderContext<'a>,
        id: KvsetId,
        kvs: KvsId,
        leaf: LeafId,
        age: Seqno,
        place: Place,
    ) -> KvsetBuilder<'a> {
        let held = context.cache.hold();
        KvsetBuilder {
            context,
            place,
            edit: KvsetEdit {
                id,
                kvs,
                leaf,
                age,
                entries: 0,
                tombstones: 0,
                pages: 0,
                meta_size: 0,
                extents: Vec::new(),
                blocks: Vec::new(),
            },
            keys: KeyExtents { extents: Vec::new() },
            page: PageBuilder::default(),
            buf: AlignedBuf::zeroed(WRITE_BYTES),
            filled: 0,
            extent_used: 0,
            resident: Vec::new(),
            held,
            index: Encoder::default(),
            last_key: Vec::new(),
            deleted: Spans::default(),
            version: FormatVersion::V1,
            expiries: Expiries::NONE,
            hashes: Vec::new(),
            block_numbers: BTreeMap::new(),
        }
    }

    /// Adds an entry; keys ascend, if their source is sound.
    pub(crate) fn add(&mut self, key: &[u8], entry: NewEntry<'_>) -> Result<()> {
        if self.edit.entries > 0 && key <= &self.last_key[..] {
            let detail = format!("keys that do not ascend were read for kvset {}", self.edit.id);
            return Err(self.context.classes.capacity.corrupt("kvset", Lba(0), detail));
        }
        let entry = match entry {
            NewEntry::Tombstone => Entry::Tombstone,
            NewEntry::Inline(value, expiry) => Entry::Inline(value, expiry),
            NewEntry::Stored { address, value_size, expiry } => {
                let size = record_size(key.len(), to_usize(value_size.into())) as u64;
                let RecordAddress { block, offset } = address;
                let block = self.block_number(block, size);
                Entry::Stored(Stored { block, offset, value_size, expiry })
            }
        };
        if !self.page.add(key, entry) {
            self.finish_page()?;
            assert!(self.page.add(key, entry), "an empty page takes any entry");
        }
        self.hashes.push(key_hash(key));
        if key.is_empty() {
            self.version = FormatVersion::V2;
        }
        self.edit.entries += 1;
        self.expiries.add(entry.expiry());
        self.edit.tombstones += u64::from(entry == Entry::Tombstone);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Sets the prefixes and ranges that it hides in older kvsets.
    pub(crate) fn hide(&mut self, deleted: Spans) {
        self.deleted = deleted;
    }

    /// The number of a block in the table; counts `live` bytes in it.
    fn block_number(&mut self, id: BlockId, live: u64) -> u32 {
        let blocks = &mut self.edit.blocks;
        let number = *self.block_numbers.entry(id).or_insert_with(|| {
            blocks.push((id, 0));
            u32::try_from(blocks.len() - 1).expect("fewer than 2^32 blocks")
        });
        blocks[number as usize].1 += live;
        number
    }

    fn finish_page(&mut self) -> Result<()> {
        let index = self.edit.pages;
        self.index.bytes16(self.page.first_key());
        let page = self.page.finish(self.edit.id, index);
        self.append(page.raw())?;
        // Pages stay in DRAM while all of them fit: a kvset is resident from its beginning on.
        if self.resident.len() == index as usize && self.context.cache.has_room(1) {
            let hashes = &self.hashes[self.hashes.len() - page.count()..];
            let page = SharedPage::with_hashes(&page, hashes.iter().copied());
            self.held.add(&page);
            self.resident.push(page);
        }
        self.edit.pages += 1;
        Ok(())
    }

    /// Appends bytes to the extents: all but the last are full.
    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            // Bytes gathered at a time go to one extent. The first bytes wait for one: perhaps they are all.
            let wanted = self.context.tuning.key_extent_bytes;
            let room = match self.keys.extents.is_empty() {
                true => to_usize(round_up(wanted, PAGE_SIZE as u64)),
                false => self.extent_room(wanted)?,
            };
            let most = room.min(WRITE_BYTES);
            let (fits, behind) = bytes.split_at(bytes.len().min(most - self.filled));
            self.buf[self.filled..][..fits.len()].copy_from_slice(fits);
            self.filled += fits.len();
            bytes = behind;
            if self.filled == most {
                self.write_buf(wanted)?;
            }
        }
        Ok(())
    }

    /// The bytes that the last extent has room for; of a new one of up to `wanted` bytes when it is full.
    fn extent_room(&mut self, wanted: u64) -> Result<usize> {
        if self.keys.extents.last().is_none_or(|last| self.extent_used == last.bytes()) {
            let BuilderContext { classes, tuning, .. } = self.context;
            let (stream, purpose) = (Stream::of_keys(self.edit.leaf), Purpose::Maintenance);
            let least = tuning.allocation_bytes.min(wanted);
            let extent = classes.allocate_about(self.place, stream, wanted, least, purpose)?;
            self.keys.extents.push(extent);
            self.extent_used = 0;
        }
        let extent = self.keys.extents.last().expect("pushed above");
        Ok(to_usize(extent.bytes() - self.extent_used))
    }

    /// Writes the gathered bytes, to new extents of up to `wanted` bytes where the last one is full.
    fn write_buf(&mut self, wanted: u64) -> Result<()> {
        while self.filled > 0 {
            let room = self.extent_room(wanted)?;
            let behind = self.buf[self.filled.min(room)..self.filled].to_vec();
            self.filled -= behind.len();
            self.write_to_extent()?;
            self.buf[..behind.len()].copy_from_slice(&behind);
            self.filled = behind.len();
        }
        Ok(())
    }

    /// Writes the gathered bytes to the last extent. The buffer goes to the device and comes back.
    fn write_to_extent(&mut self) -> Result<()> {
        let extent = self.keys.extents.last().expect("what was gathered has one");
        let padded = self.filled.next_multiple_of(to_usize(extent.media.lba_size.into()));
        let mut buf = std::mem::replace(&mut self.buf, AlignedBuf::zeroed(0));
        buf[self.filled..padded].fill(0);
        buf.set_len(padded);
        self.buf = self.context.writes.add(extent, self.extent_used, buf)?;
        self.buf.set_len(WRITE_BYTES);
        self.extent_used += padded as u64;
        self.filled = 0;
        Ok(())
    }

    /// The ids of the blocks that the entries refer to.
    pub(crate) fn block_ids(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.edit.blocks.iter().map(|(id, _)| *id)
    }

    /// Writes the rest, not yet flushed. `block` finds each of [`KvsetBuilder::block_ids`].
    pub(crate) fn finish(
        mut self,
        block: impl Fn(BlockId) -> Arc<ValueBlock>,
    ) -> Result<Arc<Kvset>> {
        assert!(self.edit.entries > 0 || !self.deleted.is_empty(), "a kvset says something");
        if !self.page.is_empty() {
            self.finish_page()?;
        }
        self.index.bytes16(&self.last_key);
        let mut filter = FilterBuilder::new(self.hashes.len(), FILTER_BITS);
        self.hashes.iter().for_each(|&hash| filter.add(hash));
        let filter = filter.finish();
        let index = std::mem::take(&mut self.index).0;
        let (version, hides) = self.deleted.encode(self.version);
        let meta = KvsetMeta {
            kvset: self.edit.id,
            kvs: self.edit.kvs,
            pages: self.edit.pages,
            filter: filter.as_bytes(),
            index: &index,
            version,
            hides: &hides,
            expiries: self.expiries,
        };
        let encoded = meta.encode();
        self.edit.meta_size = u32::try_from(encoded.len()).expect("meta below 4 GiB");
        self.append(&encoded)?;
        self.write_buf(self.filled as u64)?;
        self.keys.extents.last_mut().expect("written above").truncate(self.extent_used);
        self.edit.extents = self.keys.extents.iter().map(|a| a.extent).collect();
        let blocks = self.block_ids().map(block).collect();
        let pages = PageTable::new(self.context.cache, self.edit.pages, self.edit.pages);
        drop(self.held);
        for (page, index) in self.resident.iter().zip(0..) {
            pages.admit(index, page, false);
        }
        let (index, deleted) = (PageIndex::decode(&index), std::mem::take(&mut self.deleted));
        let meta = Meta { filter, index, deleted, expiries: self.expiries };
        Ok(Arc::new(Kvset::assemble(self.edit, blocks, self.keys, meta, pages)))
    }
}
