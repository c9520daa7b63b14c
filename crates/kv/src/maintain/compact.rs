//! Compaction: merges kvsets into new ones, and rewrites values where that is worth the bytes.
//!
//! One routine serves all kinds. A spill (aging) and the sorting of a leaf rewrite every value in key
//! order, a key compaction and a split rewrite none, a collection those in blocks that are mostly
//! garbage.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;

use esker_base::AlignedBuf;
use esker_base::units::{round_down, round_up, to_usize};
use esker_device::Op;

use crate::engine::shared::Engine;
use crate::engine::window::{READS, Scratch, Window, WindowEntry, WindowKind};
use crate::maintain::giving_way::GivingWay;
use crate::media::class::Media;
use crate::media::space::Purpose;
use crate::media::writes::Writes;
use crate::omf::frame::{Change, Record, StoredRecord, record_size};
use crate::omf::packed::Codec;
use crate::omf::page::Stored;
use crate::tree::item::Item;
use crate::tree::kvset::Kvset;
use crate::tree::kvset::builder::{KvsetBuilder, NewEntry};
use crate::tree::source::{Source, merge_kvsets};
use crate::types::compression::Compression;
use crate::types::error::Result;
use crate::types::limits::VALUE_MAX;
use crate::types::policy::Policy;
use crate::types::prefixes::Prefixes;
use crate::types::stream::Stream;
use crate::values::block::ValueBlock;
use crate::values::cache::record::{RecordAddress, RecordKey, Sought};
use crate::values::compression::Packer;
use crate::values::writer::BlockWriter;

/// A node that gets a kvset.
pub(crate) struct Target {
    /// 0 is the root.
    pub(crate) leaf: u64,
    /// The first key that belongs to it; the targets' bounds ascend.
    pub(crate) lower: Arc<[u8]>,
    /// Whether nothing older lies below, so that tombstones have done their work.
    pub(crate) bottom: bool,
}

/// Which values are written anew.
pub(crate) enum Rewrite {
    None,
    All,
    /// Those in these blocks.
    In(BTreeSet<u64>),
}

impl Rewrite {
    /// What a merge of a whole leaf rewrites.
    pub(crate) fn of(blocks: BTreeSet<u64>) -> Rewrite {
        if blocks.is_empty() { Rewrite::None } else { Rewrite::In(blocks) }
    }
}

/// What is to be done.
pub(crate) struct Compaction {
    pub(crate) kvs: u32,
    pub(crate) policy: Policy,
    /// What is done with values that are written anew.
    pub(crate) compression: Compression,
    /// Newest first.
    pub(crate) inputs: Vec<Arc<Kvset>>,
    /// Without any, nothing is left of the inputs.
    pub(crate) targets: Vec<Target>,
    /// A leaf that ends with this: its keys are in the only target's range then.
    pub(crate) gone: Option<u64>,
    pub(crate) rewrite: Rewrite,
    /// Whether somebody asked for it, and may call it off.
    pub(crate) asked: bool,
}

/// What came of it; written, not yet flushed.
#[derive(Default)]
pub(crate) struct Compacted {
    pub(crate) kvsets: Vec<Arc<Kvset>>,
    pub(crate) blocks: Vec<Arc<ValueBlock>>,
    /// Cached records and where they are now: hash, old block and offset, new block and offset.
    pub(crate) moved: Vec<(u64, u64, u32, u64, u32)>,
    /// Whether deletes were dropped: nothing older is left for them to hide.
    pub(crate) forgets: bool,
}

impl Compacted {
    pub(crate) fn written_bytes(&self) -> u64 {
        let keys: u64 = self.kvsets.iter().map(|kvset| kvset.key_bytes()).sum();
        keys + self.blocks.iter().map(|block| block.bytes).sum::<u64>()
    }
}

/// What an inline value takes of DRAM.
const INLINE_DRAM: usize = 32;

/// Two records this close are read with one device read: reading what is between them costs less
/// than another command.
pub(crate) const GAP: u64 = 32 << 10;

/// Records that are asked for together in the record cache.
const LOOKED_UP: usize = 32;

/// Bytes of records that are written between two looks at whether somebody reads.
const PIECE_BYTES: usize = 1 << 20;

impl Compaction {
    pub(crate) fn run(&self, engine: &Engine, writes: &Writes) -> Result<Compacted> {
        if self.targets.is_empty() {
            return Ok(Compacted { forgets: true, ..Compacted::default() });
        }
        let mut scratch = engine.scratch();
        let Scratch { window, buffers, packer, packed } = &mut *scratch;
        packer.begin(self.compression);
        let mut output = Output::new(self, (engine, writes), (packer, packed));
        let mut merge = merge_kvsets(&self.inputs);
        merge.seek(Bound::Unbounded)?;
        let now_ms = engine.wall_clock.now_ms();
        // What scans have wasted so far can be wasted a little longer. Nothing else pauses: a spill that does
        // is in the way for four times as long, and reads wait no less for it (docs/compare.md).
        let mut way = GivingWay::new(engine, self.sorts() && !self.asked);
        let mut rewrite = || -> Result<()> {
            while merge.key().is_some() {
                engine.check_wanted(self.asked)?;
                self.fill(window, &mut merge, engine.tuning.gather_bytes, now_ms)?;
                self.gather(engine, window, buffers, &mut way)?;
                output.emit(window, &mut way)?;
                engine.balance_memory();
            }
            Ok(())
        };
        let rewritten = rewrite();
        // It holds on to the inputs' blocks.
        window.clear();
        rewritten?;
        output.finish()
    }

    /// The age of what comes of it.
    pub(crate) fn age(&self) -> u64 {
        self.inputs.iter().map(|kvset| kvset.edit.age).max().unwrap_or(0)
    }

    /// The ids of what it takes the place of.
    pub(crate) fn removed(&self) -> impl Iterator<Item = u64> + '_ {
        self.inputs.iter().map(|kvset| kvset.edit.id)
    }

    /// Whether it puts all values of a leaf in key order.
    pub(crate) fn sorts(&self) -> bool {
        let of_leaf = self.inputs.iter().all(|kvset| kvset.edit.leaf != 0);
        of_leaf && matches!(self.rewrite, Rewrite::All)
    }

    fn moves(&self, block: u64) -> bool {
        match &self.rewrite {
            Rewrite::None => false,
            Rewrite::All => true,
            Rewrite::In(blocks) => blocks.contains(&block),
        }
    }

    /// Merges entries until `limit` bytes of keys and records have come together. What has expired
    /// is deleted.
    fn fill(
        &self,
        window: &mut Window,
        merge: &mut impl Source,
        limit: u64,
        now_ms: u64,
    ) -> Result<()> {
        window.clear();
        let (mut records, mut inline) = (0, 0);
        while let Some(key) = merge.key() {
            let item = merge.item();
            let kind = match item {
                Item::Tombstone => WindowKind::Tombstone,
                // It must go on hiding older versions.
                _ if item.expiry().has_passed(now_ms) => WindowKind::Tombstone,
                Item::Value(value, expiry) => {
                    inline += INLINE_DRAM;
                    WindowKind::Inline(value.to_vec(), expiry)
                }
                Item::Stored(block, stored) => {
                    let Stored { offset, value_size, expiry, .. } = stored;
                    if self.moves(block.id) {
                        let at = records;
                        records += record_size(key.len(), to_usize(value_size.into()));
                        WindowKind::Move { block: block.clone(), offset, value_size, expiry, at }
                    } else {
                        WindowKind::Keep { block: block.id, offset, value_size, expiry }
                    }
                }
            };
            window.keys.extend_from_slice(key);
            window.entries.push(WindowEntry { key_end: window.keys.len(), kind });
            merge.next()?;
            let entries = window.entries.len() * size_of::<WindowEntry>();
            if (window.keys.len() + entries + inline + records) as u64 >= limit {
                break;
            }
        }
        window.let_go(records, limit);
        // One buffer for all windows: the limit, and the record that exceeds it.
        let fits = window.records.as_ref().is_some_and(|buf| buf.len() >= records);
        if records > 0 && !fits {
            window.records = Some(AlignedBuf::zeroed(records.max(to_usize(limit) + VALUE_MAX)));
        }
        Ok(())
    }

    /// Copies the records that move from the record cache, which has most of what was written lately; reads
    /// and verifies the others. They are asked for in the order in which they lie on the medium, near ones
    /// together.
    fn gather(
        &self,
        engine: &Engine,
        window: &mut Window,
        buffers: &mut Vec<AlignedBuf>,
        way: &mut GivingWay<'_>,
    ) -> Result<()> {
        let Window { keys, entries, records, cached } = window;
        cached.clear();
        let Some(records) = records else {
            return Ok(()); // no record has moved yet
        };
        let mut wanted: Vec<Moving<'_>> = Vec::new();
        let mut key_start = 0;
        for entry in entries.iter() {
            let key = key_start..entry.key_end;
            key_start = entry.key_end;
            if let WindowKind::Move { block, offset, value_size, at, .. } = &entry.kind {
                let size = record_size(key.len(), to_usize((*value_size).into()));
                wanted.push(Moving { block, offset: *offset, size, at: *at, key });
            }
        }
        let mut missing = Vec::new();
        for some in wanted.chunks(LOOKED_UP) {
            let key = |w: &Moving<'_>| &keys[w.key.clone()];
            let sought = some.iter().map(|w| w.sought(RecordKey::new(self.kvs, key(w)).hash()));
            let sought: Vec<Sought> = sought.collect();
            let mut copied = [None; LOOKED_UP];
            engine.values.cache.peek_many(&sought, |n, value| {
                copied[n] = Some(some[n].encode(self.kvs, key(&some[n]), value, records));
            });
            cached.extend(sought.iter().zip(copied).map(|(it, copied)| copied.map(|_| it.hash)));
            let not_copied = some.iter().zip(copied).filter(|(_, copied)| *copied != Some(true));
            missing.extend(not_copied.map(|(w, _)| w.clone()));
        }
        missing.sort_unstable_by_key(|w| (w.block.id, w.offset));
        let read_size = engine.gather_read_size();
        let runs = runs(&missing, read_size);
        let pieces: Vec<GatherRead<'_>> =
            runs.iter().flat_map(|run| pieces(run, read_size)).collect();
        let mut pieces = &pieces[..];
        while !pieces.is_empty() {
            let at_a_time = if way.has_readers() { 1 } else { READS };
            let batch;
            (batch, pieces) = pieces.split_at(at_a_time.min(pieces.len()));
            for group in batch.chunk_by(|a, b| a.media().class == b.media().class) {
                read_pieces(group, records, buffers, read_size)?;
            }
            let complete = batch.iter().filter(|piece| piece.ends_run).flat_map(|piece| piece.run);
            for w in complete {
                let record = &records[w.at..w.at + w.size];
                w.block.verify(record, self.kvs, &keys[w.key.clone()], w.offset)?;
            }
            way.pause();
        }
        Ok(())
    }
}

/// A record that moves: where it is, and where its copy goes.
#[derive(Clone)]
struct Moving<'a> {
    block: &'a Arc<ValueBlock>,
    offset: u32,
    size: usize,
    at: usize,
    key: Range<usize>,
}

impl Moving<'_> {
    fn sought(&self, hash: u64) -> Sought {
        let address = RecordAddress { block: self.block.id, offset: self.offset };
        Sought { hash, address, age: 0 }
    }

    /// Makes the record anew of its key and value; false when it is not stored like that: compressed, it is
    /// smaller.
    fn encode(&self, kvs: u32, key: &[u8], value: &[u8], records: &mut [u8]) -> bool {
        let record = Record { kvs, key, change: Change::Put(value) };
        let is_plain = record.size() == self.size;
        if is_plain {
            record.encode_to(&mut records[self.at..self.at + self.size]);
        }
        is_plain
    }

    fn end(&self) -> u64 {
        u64::from(self.offset) + self.size as u64
    }
}

/// Cuts sorted records into runs that one device read serves, if it takes a record of that size.
fn runs<'w, 'a>(wanted: &'w [Moving<'a>], read_size: usize) -> Vec<&'w [Moving<'a>]> {
    let mut runs = Vec::new();
    let mut start = 0;
    for next in 1..=wanted.len() {
        let ends = next == wanted.len() || {
            let (first, last, new) = (&wanted[start], &wanted[next - 1], &wanted[next]);
            let limit = u64::from(first.offset) + (read_size as u64).saturating_sub(2 * 4096);
            new.block.id != first.block.id
                || u64::from(new.offset) > last.end() + GAP
                || new.end() > limit
        };
        if ends {
            runs.push(&wanted[start..next]);
            start = next;
        }
    }
    runs
}

/// One device read: a run, or a part of one whose only record exceeds a command.
struct GatherRead<'w> {
    run: &'w [Moving<'w>],
    /// The bytes of the block that it covers, whole LBAs.
    bytes: Range<u64>,
    /// Whether the run's records are complete with it.
    ends_run: bool,
}

impl GatherRead<'_> {
    fn media(&self) -> &Arc<Media> {
        self.run[0].block.media()
    }

    /// Copies what `buf` holds of the run's records to where they go.
    fn copy(&self, buf: &[u8], records: &mut [u8]) {
        for w in self.run {
            let begin = u64::from(w.offset);
            let (from, to) = (begin.max(self.bytes.start), w.end().min(self.bytes.end));
            if from < to {
                let size = to_usize(to - from);
                let (source, target) = (from - self.bytes.start, w.at + to_usize(from - begin));
                let source = &buf[to_usize(source)..][..size];
                records[target..target + size].copy_from_slice(source);
            }
        }
    }
}

/// Cuts a run into device reads of up to `read_size` bytes.
fn pieces<'w>(run: &'w [Moving<'w>], read_size: usize) -> impl Iterator<Item = GatherRead<'w>> {
    let media = run[0].block.media();
    let lba_size = u64::from(media.lba_size);
    let step = read_size.min(media.transfer.largest()) as u64;
    let step = round_down(step, lba_size).max(lba_size);
    let start = round_down(run[0].offset.into(), lba_size);
    let end = round_up(run[run.len() - 1].end(), lba_size);
    (start..end).step_by(to_usize(step)).map(move |from| {
        let to = end.min(from + step);
        GatherRead { run, bytes: from..to, ends_run: to == end }
    })
}

/// Reads pieces of one class at once and copies their records out.
fn read_pieces(
    pieces: &[GatherRead<'_>],
    records: &mut [u8],
    buffers: &mut Vec<AlignedBuf>,
    read_size: usize,
) -> Result<()> {
    let media = pieces[0].media();
    let read = |piece: &GatherRead<'_>| {
        let (block, size) = (piece.run[0].block, to_usize(piece.bytes.end - piece.bytes.start));
        let (lba, ..) = block.allocation.span(piece.bytes.start, size);
        let pooled = buffers.iter().position(|buf| buf.capacity() >= size);
        let mut buf = match pooled {
            Some(fits) => buffers.swap_remove(fits),
            None => AlignedBuf::zeroed(size.max(read_size)),
        };
        buf.set_len(size);
        media.count_read(block.stream(), 1, size);
        Op::Read { lba, buf }
    };
    let reads: Vec<Op> = pieces.iter().map(read).collect();
    let mut failed = Ok(());
    media.ports.port()?.run_all(reads, |n, result| match result {
        Ok(buf) => {
            let buf = buf.expect("a read carries a buffer");
            pieces[n].copy(&buf, records);
            buffers.push(buf);
        }
        Err(error) => failed = Err(error.into()),
    })?;
    failed
}

/// Writes merged entries to the targets' kvsets.
struct Output<'a> {
    compaction: &'a Compaction,
    engine: &'a Engine,
    writes: &'a Writes,
    target: usize,
    builder: Option<KvsetBuilder<'a>>,
    values: BlockWriter<'a>,
    packer: &'a mut Packer,
    packed: &'a mut Vec<u8>,
    /// The inputs' blocks, by id.
    old_blocks: BTreeMap<u64, Arc<ValueBlock>>,
    age: u64,
    /// What the inputs hide in what is older.
    prefixes: Prefixes,
    done: Compacted,
}

impl<'a> Output<'a> {
    fn new(
        compaction: &'a Compaction,
        (engine, writes): (&'a Engine, &'a Writes),
        (packer, packed): (&'a mut Packer, &'a mut Vec<u8>),
    ) -> Output<'a> {
        let inputs = &compaction.inputs;
        let blocks = || inputs.iter().flat_map(|kvset| &kvset.blocks);
        let tuning = &engine.tuning;
        let place = compaction.policy.old_values;
        // Collecting frees more than it takes; aging must leave the reserve alone.
        let purpose = match compaction.rewrite {
            Rewrite::In(_) => Purpose::Maintenance,
            Rewrite::All | Rewrite::None => Purpose::User,
        };
        let moved = blocks().filter(|(block, _)| compaction.moves(block.id));
        let moved_bytes = moved.map(|(_, bytes)| bytes).sum();
        Output {
            compaction,
            engine,
            writes,
            target: 0,
            builder: None,
            values: BlockWriter::new(
                &engine.classes,
                (place, Stream::OldValues),
                purpose,
                (tuning, moved_bytes),
                writes,
            ),
            packer,
            packed,
            old_blocks: blocks().map(|(block, _)| (block.id, block.clone())).collect(),
            age: compaction.age(),
            prefixes: Prefixes::union(inputs.iter().map(|kvset| &kvset.prefixes)),
            done: Compacted::default(),
        }
    }

    fn emit(&mut self, window: &Window, way: &mut GivingWay<'_>) -> Result<()> {
        let (mut key_start, mut written) = (0, 0);
        let mut cached = window.cached.iter();
        for entry in &window.entries {
            let key = &window.keys[key_start..entry.key_end];
            key_start = entry.key_end;
            self.go_to_target_of(key)?;
            let entry = match &entry.kind {
                WindowKind::Tombstone if self.compaction.targets[self.target].bottom => {
                    self.done.forgets = true;
                    continue;
                }
                WindowKind::Tombstone => NewEntry::Tombstone,
                WindowKind::Inline(value, expiry) => NewEntry::Inline(value, *expiry),
                &WindowKind::Keep { block, offset, value_size, expiry } => {
                    NewEntry::Stored { block, offset, value_size, expiry }
                }
                WindowKind::Move { block, offset, value_size, expiry, at } => {
                    let size = record_size(key.len(), to_usize((*value_size).into()));
                    let records = window.records.as_ref().expect("gathered");
                    let (place, value_size) = self.push(&records[*at..*at + size])?;
                    written += size;
                    if written > PIECE_BYTES {
                        written = 0;
                        way.pause();
                    }
                    if let Some(hash) = *cached.next().expect("one for each that moves") {
                        self.done.moved.push((hash, block.id, *offset, place.0, place.1));
                    }
                    NewEntry::Stored {
                        block: place.0,
                        offset: place.1,
                        value_size,
                        expiry: *expiry,
                    }
                }
            };
            self.builder().add(key, entry)?;
        }
        Ok(())
    }

    /// Writes a record, its value compressed if that pays. Returns its block and offset, and the size
    /// of the value as it is stored.
    fn push(&mut self, record: &[u8]) -> Result<((u64, u32), u32)> {
        let value = StoredRecord::value_of(record);
        let packed = match value.codec {
            Codec::None => self.packer.pack(value.bytes),
            Codec::Lz4 | Codec::Zstd => None,
        };
        let stored = packed.unwrap_or(value);
        let value_size = u32::try_from(stored.bytes.len()).expect("at most VALUE_MAX");
        let record = if packed.is_some() {
            StoredRecord::repack(record, stored, self.packed);
            &self.packed[..]
        } else {
            record
        };
        Ok((self.values.push(record, &self.engine.ids)?, value_size))
    }

    fn go_to_target_of(&mut self, key: &[u8]) -> Result<()> {
        let targets = &self.compaction.targets;
        while targets.get(self.target + 1).is_some_and(|next| *next.lower <= *key) {
            self.finish_target()?;
            self.target += 1;
        }
        Ok(())
    }

    fn builder(&mut self) -> &mut KvsetBuilder<'a> {
        let (engine, writes, compaction) = (self.engine, self.writes, self.compaction);
        let leaf = compaction.targets[self.target].leaf;
        let age = self.age;
        self.builder.get_or_insert_with(|| {
            let policy = &compaction.policy;
            let place = if leaf == 0 { policy.young_keys } else { policy.old_keys };
            KvsetBuilder::new(
                engine.shop(writes),
                engine.ids.next(),
                compaction.kvs,
                leaf,
                age,
                place,
            )
        })
    }

    /// What the current target's kvset hides.
    fn hides(&mut self) -> Prefixes {
        let targets = &self.compaction.targets;
        let (target, next) = (&targets[self.target], targets.get(self.target + 1));
        if self.prefixes.is_empty() {
            return Prefixes::default();
        }
        if target.bottom {
            self.done.forgets = true;
            return Prefixes::default();
        }
        self.prefixes.within(&target.lower, next.map(|next| &*next.lower))
    }

    /// Ends the kvset of the current target, and the block of its values: blocks are not shared
    /// between leaves, so that a leaf's garbage can be collected without its neighbour.
    fn finish_target(&mut self) -> Result<()> {
        let hides = self.hides();
        if !hides.is_empty() {
            self.builder().hide(hides);
        }
        let fresh = self.values.finish()?;
        if let Some(builder) = self.builder.take() {
            let find = |id: u64| {
                let fresh = fresh.iter().find(|block| block.id == id);
                fresh.or_else(|| self.old_blocks.get(&id)).expect("a block of ours").clone()
            };
            self.done.kvsets.push(builder.finish(find)?);
        }
        self.done.blocks.extend(fresh);
        Ok(())
    }

    fn finish(mut self) -> Result<Compacted> {
        self.finish_target()?;
        // Targets behind the last key may have something to hide.
        while self.target + 1 < self.compaction.targets.len() {
            self.target += 1;
            self.finish_target()?;
        }
        Ok(self.done)
    }
}

#[cfg(test)]
mod tests;
