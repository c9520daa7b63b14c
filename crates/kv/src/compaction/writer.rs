//! The writer of a compaction: merged entries become the kvsets of its targets, and values that move go to new blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_base::units::to_usize;

use crate::compaction::plan::{Compacted, Compaction, MovedRecord, Rewrite};
use crate::compaction::window::{Window, WindowKind};
use crate::media::space::Purpose;
use crate::omf::frame::{StoredRecord, record_size};
use crate::omf::packed::Codec;
use crate::tree::kvset::builder::{BuilderContext, KvsetBuilder, NewEntry};
use crate::types::error::Result;
use crate::types::ids::{BlockId, Ids, LeafId, RecordAddress, Seqno};
use crate::types::spans::Spans;
use crate::types::stream::Stream;
use crate::values::block::ValueBlock;
use crate::values::compression::Packer;
use crate::values::writer::BlockWriter;

/// Bytes of records that are written as one piece.
const PIECE_BYTES: usize = 1 << 20;

/// Writer of merged entries to the targets' kvsets.
pub(crate) struct OutputWriter<'a> {
    compaction: &'a Compaction,
    context: BuilderContext<'a>,
    ids: &'a Ids,
    target: usize,
    builder: Option<KvsetBuilder<'a>>,
    values: BlockWriter<'a>,
    packer: &'a mut Packer,
    packed: &'a mut Vec<u8>,
    /// The inputs' blocks, by id.
    old_blocks: BTreeMap<BlockId, Arc<ValueBlock>>,
    age: Seqno,
    /// Prefixes and ranges in which the inputs hide older keys.
    deleted: Spans,
    done: Compacted,
}

impl<'a> OutputWriter<'a> {
    pub(crate) fn new(
        compaction: &'a Compaction,
        context: BuilderContext<'a>,
        ids: &'a Ids,
        (packer, packed): (&'a mut Packer, &'a mut Vec<u8>),
    ) -> OutputWriter<'a> {
        let inputs = &compaction.inputs;
        let blocks = || inputs.iter().flat_map(|kvset| &kvset.blocks);
        let place = compaction.policy.old_values;
        // Collecting frees more than it takes; aging must leave the reserve alone.
        let purpose = match compaction.rewrite {
            Rewrite::In(_) => Purpose::Maintenance,
            Rewrite::All | Rewrite::None => Purpose::User,
        };
        let moved = blocks().filter(|(block, _)| compaction.rewrite.moves(block.id));
        let moved_bytes = moved.map(|(_, bytes)| bytes).sum();
        OutputWriter {
            compaction,
            context,
            ids,
            target: 0,
            builder: None,
            values: BlockWriter::new(
                context.classes,
                (place, Stream::OldValues),
                purpose,
                (context.tuning, moved_bytes),
                context.writes,
            ),
            packer,
            packed,
            old_blocks: blocks().map(|(block, _)| (block.id, block.clone())).collect(),
            age: compaction.age(),
            deleted: Spans::union(inputs.iter().flat_map(|kvset| kvset.deleted.iter())),
            done: Compacted::default(),
        }
    }

    /// Writes a window. `between` is called before it, and after each piece of its records: so its caller can pause, and
    /// read on for the next window.
    pub(crate) fn write(
        &mut self,
        window: &Window,
        between: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        between()?;
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
                        between()?;
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
        Ok((self.values.push(record, self.ids)?, value_size))
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
        let (context, ids, compaction) = (self.context, self.ids, self.compaction);
        let leaf = compaction.targets[self.target].leaf;
        let age = self.age;
        self.builder.get_or_insert_with(|| {
            let policy = &compaction.policy;
            let place = if leaf == LeafId::ROOT { policy.young_keys } else { policy.old_keys };
            KvsetBuilder::new(context, ids.next(), compaction.kvs, leaf, age, place)
        })
    }

    /// Prefixes and ranges that the current target's kvset hides.
    fn hides(&mut self) -> Spans {
        let targets = &self.compaction.targets;
        let (target, next) = (&targets[self.target], targets.get(self.target + 1));
        if self.deleted.is_empty() {
            return Spans::default();
        }
        if target.bottom {
            self.done.forgets = true;
            return Spans::default();
        }
        self.deleted.within(&target.lower, next.map(|next| &*next.lower))
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

    pub(crate) fn finish(mut self) -> Result<Compacted> {
        self.finish_target()?;
        // Targets behind the last key may have something to hide.
        while self.target + 1 < self.compaction.targets.len() {
            self.target += 1;
            self.finish_target()?;
        }
        Ok(self.done)
    }
}
