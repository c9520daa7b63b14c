//! Compaction: merges kvsets into new ones, and rewrites values where that is worth the bytes.
//!
//! One routine serves all kinds. A spill (aging) and the sorting of a leaf rewrite every value in key
//! order, a key compaction and a split rewrite none, a collection those in blocks that are mostly
//! garbage.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::units::to_usize;

use crate::engine::intake::{Intake, Rewrite, Scratch, gathered_bytes};
use crate::engine::shared::Engine;
use crate::engine::window::{Window, WindowKind, Windows};
use crate::engine::workers::Worker;
use crate::maintain::giving_way::GivingWay;
use crate::media::space::Purpose;
use crate::media::writes::Writes;
use crate::omf::frame::{StoredRecord, record_size};
use crate::omf::packed::Codec;
use crate::sync::MutexGuard;
use crate::tree::kvset::Kvset;
use crate::tree::kvset::builder::{KvsetBuilder, NewEntry};
use crate::types::compression::Compression;
use crate::types::error::Result;
use crate::types::ids::{BlockId, KvsId, KvsetId, LeafId, RecordAddress, Seqno};
use crate::types::policy::Policy;
use crate::types::prefixes::Prefixes;
use crate::types::stream::Stream;
use crate::values::block::ValueBlock;
use crate::values::compression::Packer;
use crate::values::writer::BlockWriter;

/// A node that gets a kvset.
pub(crate) struct Target {
    pub(crate) leaf: LeafId,
    /// The first key that belongs to it; the targets' bounds ascend.
    pub(crate) lower: Arc<[u8]>,
    /// Whether nothing older lies below, so that tombstones have done their work.
    pub(crate) bottom: bool,
}

/// Task of a compaction.
pub(crate) struct Compaction {
    pub(crate) kvs: KvsId,
    pub(crate) policy: Policy,
    /// Compression of values that are written anew.
    pub(crate) compression: Compression,
    /// Newest first.
    pub(crate) inputs: Vec<Arc<Kvset>>,
    /// Without any, nothing is left of the inputs.
    pub(crate) targets: Vec<Target>,
    /// A leaf that ends with this: its keys are in the only target's range then.
    pub(crate) gone: Option<LeafId>,
    pub(crate) rewrite: Rewrite,
    /// Whether somebody asked for it, and may call it off.
    pub(crate) asked: bool,
}

/// Result of a compaction; written, not yet flushed.
#[derive(Default)]
pub(crate) struct Compacted {
    pub(crate) kvsets: Vec<Arc<Kvset>>,
    pub(crate) blocks: Vec<Arc<ValueBlock>>,
    /// The cached records that have another address.
    pub(crate) moved: Vec<MovedRecord>,
    /// Whether deletes were dropped: nothing older is left for them to hide.
    pub(crate) forgets: bool,
}

/// A cached record that was written anew.
pub(crate) struct MovedRecord {
    /// The hash that the record cache knows it by.
    pub(crate) hash: u64,
    pub(crate) from: RecordAddress,
    pub(crate) to: RecordAddress,
}

impl Compacted {
    pub(crate) fn written_bytes(&self) -> u64 {
        let keys: u64 = self.kvsets.iter().map(|kvset| kvset.key_bytes()).sum();
        keys + self.blocks.iter().map(|block| block.bytes).sum::<u64>()
    }
}

/// Bytes of records that are written between two looks at whether somebody reads.
const PIECE_BYTES: usize = 1 << 20;

impl Compaction {
    pub(crate) fn run(
        &self,
        engine: &Engine,
        worker: Worker,
        writes: &Writes,
    ) -> Result<Compacted> {
        if self.targets.is_empty() {
            return Ok(Compacted { forgets: true, ..Compacted::default() });
        }
        let spilled = if self.is_spill() { gathered_bytes(&self.inputs) } else { 0 };
        let (mut scratch, mut intake) = self.begin(engine, worker, spilled)?;
        let Scratch { windows, packer, packed, ahead } = &mut *scratch;
        packer.begin(self.compression);
        let mut output = Output::new(self, (engine, writes), (packer, packed));
        // A sort can wait: scans have borne the waste so far and can bear it a little longer. Other steps pause
        // only while staging can hold the data that does not spill: else a spill is in the way for four times as
        // long, and reads wait no less for it (docs/compare.md).
        let mut way = GivingWay::new(engine, self.sorts() && !self.asked);
        let mut written = 0;
        while let Some(window) = intake.next_window(engine, windows, &mut || way.share())? {
            engine.check_wanted(self.asked)?;
            // While the last window is written, the first one of the next spill is gathered.
            if intake.is_at_end() {
                *ahead = self.next_spill(engine, windows)?;
            }
            let behind = if intake.is_at_end() { ahead.as_mut() } else { Some(&mut intake) };
            output.emit((engine, &window), &mut way, behind)?;
            if self.is_spill() {
                let bytes = window.bytes() as u64;
                written += bytes;
                engine.pace.spills.wrote(engine.options.clock.now(), bytes);
            }
            engine.balance_memory();
            windows.give_back(window);
        }
        if written > 0 {
            let drained = self.inputs.iter().map(|kvset| kvset.bytes()).sum();
            engine.pace.spills.learn(drained, written);
        }
        let done = output.finish()?;
        engine.end_spill(worker, &mut scratch);
        Ok(done)
    }

    /// The memory for it, and its intake. The first window tells whether the record cache has lost the values of a spill:
    /// then it begins again, with memory for all of them.
    fn begin<'e>(
        &self,
        engine: &'e Engine,
        worker: Worker,
        spilled: u64,
    ) -> Result<(MutexGuard<'e, Scratch>, Intake)> {
        loop {
            let mut scratch = engine.scratch(worker, spilled);
            let Scratch { windows, ahead, .. } = &mut *scratch;
            if let Some(begun) = ahead.take().filter(|it| it.is_of(self.kvs, &self.inputs)) {
                return Ok((scratch, begun));
            }
            let bytes = engine.spill_windows();
            let intake = Intake::begin(engine, self.kvs, &self.inputs, &self.rewrite, windows)?;
            if spilled == 0 || engine.spill_windows() <= bytes {
                return Ok((scratch, intake));
            }
        }
    }

    /// Whether it empties a root.
    fn is_spill(&self) -> bool {
        let of_root = self.inputs.iter().any(|kvset| kvset.edit.leaf == LeafId::ROOT);
        of_root && self.targets[0].leaf != LeafId::ROOT
    }

    /// The intake of the spill after this one, as far as that can be told now.
    fn next_spill(&self, engine: &Engine, windows: &mut Windows) -> Result<Option<Intake>> {
        if !self.is_spill() {
            return Ok(None);
        }
        let inputs = engine.spilled_after(self.kvs, &self.inputs);
        if inputs.is_empty() || !Intake::may_overlap(engine, &inputs, windows) {
            return Ok(None);
        }
        Intake::begin(engine, self.kvs, &inputs, &Rewrite::All, windows).map(Some)
    }

    /// The age of its output.
    pub(crate) fn age(&self) -> Seqno {
        self.inputs.iter().map(|kvset| kvset.edit.age).max().unwrap_or_default()
    }

    /// The ids of the kvsets that it replaces.
    pub(crate) fn removed(&self) -> impl Iterator<Item = KvsetId> + '_ {
        self.inputs.iter().map(|kvset| kvset.edit.id)
    }

    /// Whether it puts all values of a leaf in key order.
    pub(crate) fn sorts(&self) -> bool {
        let of_leaf = self.inputs.iter().all(|kvset| kvset.edit.leaf != LeafId::ROOT);
        of_leaf && matches!(self.rewrite, Rewrite::All)
    }
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
    old_blocks: BTreeMap<BlockId, Arc<ValueBlock>>,
    age: Seqno,
    /// Prefixes under which the inputs hide older keys.
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
        let moved = blocks().filter(|(block, _)| compaction.rewrite.moves(block.id));
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

    /// Writes a window. The intake of the next one goes on meanwhile.
    fn emit(
        &mut self,
        (engine, window): (&Engine, &Window),
        way: &mut GivingWay<'_>,
        mut behind: Option<&mut Intake>,
    ) -> Result<()> {
        let writes = self.writes;
        let mut go_on = |way: &mut GivingWay<'_>| {
            let share = way.share();
            writes.set_at_a_time(share.commands);
            behind.as_mut().map_or(Ok(()), |intake| intake.go_on(engine, share))
        };
        go_on(way)?;
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
                &WindowKind::Keep { address, value_size, expiry } => {
                    NewEntry::Stored { address, value_size, expiry }
                }
                WindowKind::Move { block, offset, value_size, expiry, at } => {
                    let size = record_size(key.len(), to_usize((*value_size).into()));
                    let records = window.records.as_ref().expect("gathered");
                    let (address, value_size) = self.push(&records[*at..*at + size])?;
                    written += size;
                    if written > PIECE_BYTES {
                        written = 0;
                        go_on(way)?;
                    }
                    if let Some(hash) = *cached.next().expect("one for each that moves") {
                        let from = RecordAddress { block: block.id, offset: *offset };
                        self.done.moved.push(MovedRecord { hash, from, to: address });
                    }
                    NewEntry::Stored { address, value_size, expiry: *expiry }
                }
            };
            self.builder().add(key, entry)?;
        }
        Ok(())
    }

    /// Writes a record, its value compressed if that pays. Returns its address, and the size
    /// of the value as it is stored.
    fn push(&mut self, record: &[u8]) -> Result<(RecordAddress, u32)> {
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
            let place = if leaf == LeafId::ROOT { policy.young_keys } else { policy.old_keys };
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

    /// Prefixes that the current target's kvset hides.
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
            let find = |id: BlockId| {
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
