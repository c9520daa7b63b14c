//! Compaction: merges kvsets into new ones, and rewrites values where that is worth the bytes.
//!
//! One routine serves all kinds. A spill rewrites every value in key order (aging), a key
//! compaction and a split rewrite none, a collection those in blocks that are mostly garbage.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use esker_base::AlignedBuf;
use esker_base::units::to_usize;
use esker_device::Op;

use crate::engine::Engine;
use crate::error::Result;
use crate::kvset::Kvset;
use crate::kvset::builder::{KvsetBuilder, NewEntry};
use crate::media::Purpose;
use crate::omf::frame::record_size;
use crate::source::{Item, Source, merge_kvsets};
use crate::value::{BlockWriter, ValueBlock, address};
use crate::{MediaClass, Policy, VALUE_MAX};

/// A node that gets a kvset.
pub(crate) struct Target {
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

/// What is to be done.
pub(crate) struct Compaction {
    pub(crate) kvs: u32,
    pub(crate) policy: Policy,
    /// Newest first.
    pub(crate) inputs: Vec<Arc<Kvset>>,
    pub(crate) targets: Vec<Target>,
    pub(crate) rewrite: Rewrite,
}

/// What came of it; written, not yet flushed.
#[derive(Default)]
pub(crate) struct Compacted {
    pub(crate) kvsets: Vec<Arc<Kvset>>,
    pub(crate) blocks: Vec<Arc<ValueBlock>>,
    /// Cached records and where they are now: old block and offset, new block and offset.
    pub(crate) moved: Vec<(u64, u32, u64, u32)>,
}

/// Entries that are merged at a time.
#[derive(Default)]
struct Window {
    keys: Vec<u8>,
    entries: Vec<WindowEntry>,
    /// Records to be written anew, in key order, once gathered.
    records: Option<AlignedBuf>,
}

impl Window {
    fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }
}

struct WindowEntry {
    key_end: usize,
    kind: WindowKind,
}

enum WindowKind {
    Tombstone,
    Inline(Vec<u8>),
    Keep {
        block: u64,
        offset: u32,
        value_size: u32,
    },
    /// The value is rewritten: its old place, and where the record begins in `records`.
    Move {
        block: Arc<ValueBlock>,
        offset: u32,
        value_size: u32,
        at: usize,
    },
}

/// Reads in flight while values are gathered.
pub(crate) const READS: usize = 4;
/// Two records this close are read with one device read: reading what is between them costs less
/// than another command.
const GAP: u64 = 32 << 10;

/// Memory that compactions use one after the other.
#[derive(Default)]
pub(crate) struct Scratch {
    window: Window,
    buffers: Vec<AlignedBuf>,
}

impl Compaction {
    pub(crate) fn run(&self, engine: &Engine) -> Result<Compacted> {
        let mut scratch = engine.scratch.lock();
        let Scratch { window, buffers } = &mut *scratch;
        let mut output = Output::new(self, engine);
        let mut merge = merge_kvsets(&self.inputs);
        merge.seek(Bound::Unbounded)?;
        while merge.key().is_some() {
            self.fill(window, &mut merge, engine.tuning.gather_bytes)?;
            self.gather(engine, window, buffers)?;
            output.emit(window)?;
            engine.balance_memory();
        }
        window.clear();
        output.finish()
    }

    fn moves(&self, block: u64) -> bool {
        match &self.rewrite {
            Rewrite::None => false,
            Rewrite::All => true,
            Rewrite::In(blocks) => blocks.contains(&block),
        }
    }

    /// Merges entries until `limit` bytes of keys and records have come together.
    fn fill(&self, window: &mut Window, merge: &mut impl Source, limit: u64) -> Result<()> {
        window.clear();
        let mut records = 0;
        while let Some(key) = merge.key() {
            let kind = match merge.item() {
                Item::Tombstone => WindowKind::Tombstone,
                Item::Value(value) => WindowKind::Inline(value.to_vec()),
                Item::Stored(block, stored) => {
                    let (offset, value_size) = (stored.offset, stored.value_size);
                    if self.moves(block.id) {
                        let at = records;
                        records += record_size(key.len(), to_usize(value_size.into()));
                        WindowKind::Move { block: block.clone(), offset, value_size, at }
                    } else {
                        WindowKind::Keep { block: block.id, offset, value_size }
                    }
                }
            };
            window.keys.extend_from_slice(key);
            window.entries.push(WindowEntry { key_end: window.keys.len(), kind });
            merge.next()?;
            let entries = window.entries.len() * size_of::<WindowEntry>();
            if (window.keys.len() + entries + records) as u64 >= limit {
                break;
            }
        }
        // One buffer for all windows: the limit, and the record that exceeds it.
        let fits = window.records.as_ref().is_some_and(|buf| buf.capacity() >= records);
        if records > 0 && !fits {
            window.records = Some(AlignedBuf::zeroed(records.max(to_usize(limit) + VALUE_MAX)));
        }
        Ok(())
    }

    /// Reads and verifies the records that move. They are asked for in the order in which they lie
    /// on the medium, near ones together.
    fn gather(
        &self,
        engine: &Engine,
        window: &mut Window,
        buffers: &mut Vec<AlignedBuf>,
    ) -> Result<()> {
        let mut wanted: Vec<Wanted<'_>> = Vec::new();
        let mut key_start = 0;
        for entry in &window.entries {
            let key = key_start..entry.key_end;
            key_start = entry.key_end;
            if let WindowKind::Move { block, offset, value_size, at } = &entry.kind {
                let size = record_size(key.len(), to_usize((*value_size).into()));
                wanted.push(Wanted { block, offset: *offset, size, at: *at, key });
            }
        }
        wanted.sort_unstable_by_key(|w| (w.block.id, w.offset));
        let read_size = engine.gather_read_size();
        let runs = runs(&wanted, read_size);
        for batch in runs.chunks(READS) {
            for group in batch.chunk_by(|a, b| a[0].block.media().class == b[0].block.media().class)
            {
                let records = window.records.as_mut().expect("made for records that move");
                read_runs(self.kvs, group, &window.keys, records, buffers, read_size)?;
            }
        }
        Ok(())
    }
}

/// A record that moves: where it is, and where its copy goes.
struct Wanted<'a> {
    block: &'a Arc<ValueBlock>,
    offset: u32,
    size: usize,
    at: usize,
    key: std::ops::Range<usize>,
}

impl Wanted<'_> {
    fn end(&self) -> u64 {
        u64::from(self.offset) + self.size as u64
    }
}

/// Cuts sorted records into runs that one device read serves.
fn runs<'w, 'a>(wanted: &'w [Wanted<'a>], read_size: usize) -> Vec<&'w [Wanted<'a>]> {
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

/// Reads runs of one class at once and copies their records out.
fn read_runs(
    kvs: u32,
    runs: &[&[Wanted<'_>]],
    keys: &[u8],
    records: &mut [u8],
    buffers: &mut Vec<AlignedBuf>,
    read_size: usize,
) -> Result<()> {
    let media = runs[0][0].block.media();
    let mut skips = Vec::with_capacity(runs.len());
    let mut bytes = 0;
    let ops: Vec<Op> = runs
        .iter()
        .map(|run| {
            let (first, last) = (&run[0], &run[run.len() - 1]);
            let size = to_usize(last.end() - u64::from(first.offset));
            let (lba, skip, span) = media.span(first.block.extent(), first.offset.into(), size);
            skips.push(skip);
            bytes += span;
            let pooled = buffers.iter().position(|buf| buf.capacity() >= span);
            let mut buf = match pooled {
                Some(fits) => buffers.swap_remove(fits),
                None => AlignedBuf::zeroed(span.max(read_size)),
            };
            buf.set_len(span);
            Op::Read { lba, buf }
        })
        .collect();
    let mut failed = Ok(());
    media.ports.port()?.run_all(ops, |n, result| {
        let copied = result.map_err(Into::into).and_then(|buf| {
            let buf = buf.expect("a read carries a buffer");
            let base = u64::from(runs[n][0].offset);
            for w in runs[n] {
                let start = skips[n] + to_usize(u64::from(w.offset) - base);
                let record = &buf[start..start + w.size];
                w.block.verify(record, kvs, &keys[w.key.clone()], w.offset)?;
                records[w.at..w.at + w.size].copy_from_slice(record);
            }
            buffers.push(buf);
            Ok(())
        });
        if copied.is_err() {
            failed = copied;
        }
    })?;
    media.count_read(runs[0][0].block.stream, runs.len() as u64, bytes);
    failed
}

/// Writes merged entries to the targets' kvsets.
struct Output<'a> {
    compaction: &'a Compaction,
    engine: &'a Engine,
    target: usize,
    builder: Option<KvsetBuilder<'a>>,
    values: BlockWriter<'a>,
    /// The inputs' blocks, by id.
    old_blocks: BTreeMap<u64, Arc<ValueBlock>>,
    age: u64,
    done: Compacted,
}

impl<'a> Output<'a> {
    fn new(compaction: &'a Compaction, engine: &'a Engine) -> Output<'a> {
        let inputs = &compaction.inputs;
        let blocks = inputs.iter().flat_map(|kvset| &kvset.blocks);
        let tuning = &engine.tuning;
        let class = compaction.policy.old_values;
        // Collecting frees more than it takes; aging must leave the reserve alone.
        let purpose = match compaction.rewrite {
            Rewrite::In(_) => Purpose::Maintenance,
            Rewrite::All | Rewrite::None => Purpose::User,
        };
        // A key compaction writes no values: it needs no room for a frame.
        let frame =
            if matches!(compaction.rewrite, Rewrite::None) { 0 } else { tuning.frame_bytes };
        Output {
            compaction,
            engine,
            target: 0,
            builder: None,
            values: BlockWriter::new(&engine.classes, class, purpose, tuning.block_bytes, frame),
            old_blocks: blocks.map(|(block, _)| (block.id, block.clone())).collect(),
            age: inputs.iter().map(|kvset| kvset.edit.age).max().unwrap_or(0),
            done: Compacted::default(),
        }
    }

    fn emit(&mut self, window: &Window) -> Result<()> {
        let mut key_start = 0;
        for entry in &window.entries {
            let key = &window.keys[key_start..entry.key_end];
            key_start = entry.key_end;
            self.go_to_target_of(key)?;
            let entry = match &entry.kind {
                WindowKind::Tombstone if self.compaction.targets[self.target].bottom => continue,
                WindowKind::Tombstone => NewEntry::Tombstone,
                WindowKind::Inline(value) => NewEntry::Inline(value),
                &WindowKind::Keep { block, offset, value_size } => {
                    NewEntry::Stored { block, offset, value_size }
                }
                WindowKind::Move { block, offset, value_size, at } => {
                    let size = record_size(key.len(), to_usize((*value_size).into()));
                    let records = window.records.as_ref().expect("gathered");
                    let record = &records[*at..*at + size];
                    let (new_block, new_offset) = self.values.push(record, &self.engine.ids)?;
                    if self.engine.values.cache.contains(address(block.id, *offset)) {
                        self.done.moved.push((block.id, *offset, new_block, new_offset));
                    }
                    NewEntry::Stored {
                        block: new_block,
                        offset: new_offset,
                        value_size: *value_size,
                    }
                }
            };
            self.builder().add(key, entry)?;
        }
        Ok(())
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
        let (engine, compaction) = (self.engine, self.compaction);
        let leaf = compaction.targets[self.target].leaf;
        let age = self.age;
        self.builder.get_or_insert_with(|| {
            let class: MediaClass =
                if leaf == 0 { compaction.policy.young_keys } else { compaction.policy.old_keys };
            KvsetBuilder::new(engine.shop(), engine.ids.next(), compaction.kvs, leaf, age, class)
        })
    }

    /// Ends the kvset of the current target, and the block of its values: blocks are not shared
    /// between leaves, so that a leaf's garbage can be collected without its neighbour.
    fn finish_target(&mut self) -> Result<()> {
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
        Ok(self.done)
    }
}
