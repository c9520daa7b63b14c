//! The reader of a compaction: its inputs merged, a window of entries at a time, and the records that move gathered
//! from the record cache or from where they lie.
//!
//! The records of the next window are read while those of the last one are written ([`InputReader::read_on`]): a step
//! neither lets the drive that it reads nor the one that it writes wait. The spill that comes next begins like that, too.

use std::collections::VecDeque;
use std::ops::{Bound, Range};
use std::sync::Arc;

use esker_base::units::{round_down, round_up, to_usize};
use esker_device::Tag;

use crate::compaction::miss_rate::MissRate;
use crate::compaction::plan::Rewrite;
use crate::compaction::window::{READS, Window, WindowEntry, WindowKind, Windows};
use crate::media::in_flight::InFlight;
use crate::omf::frame::{Change, Record, record_size};
use crate::omf::page::Stored;
use crate::tree::item::Item;
use crate::tree::kvset::Kvset;
use crate::tree::kvset::cursor::KvsetCursor;
use crate::tree::source::{Merge, Source, merge_kvsets};
use crate::types::error::Result;
use crate::types::expiry::WallClock;
use crate::types::ids::{KvsId, LeafId, RecordAddress, Seqno};
use crate::values::block::ValueBlock;
use crate::values::cache::RecordCache;
use crate::values::cache::record::{RecordKey, Sought};

/// The DRAM of an inline value.
const INLINE_DRAM: usize = 32;

/// Two records this close are read with one device read: reading the bytes between them costs less
/// than another command.
pub(crate) const GAP: u64 = 32 << 10;

/// The share that a step has of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceShare {
    /// How many commands may be under way on each.
    pub(crate) commands: usize,
    /// Whether reads are short: reads of others meanwhile wait for them.
    pub(crate) is_short: bool,
}

/// A short read, in bytes.
const SHORT: u64 = 128 << 10;

/// Records that are asked for together in the record cache.
const LOOKED_UP: usize = 32;

/// Parts of a KVDB that readers gather records with.
#[derive(Clone, Copy)]
pub(crate) struct GatherContext<'e> {
    pub(crate) cache: &'e RecordCache,
    pub(crate) miss_rate: &'e MissRate,
    pub(crate) wall_clock: &'e WallClock,
    /// The size of a read, in bytes; [`READS`] are in flight at a time.
    pub(crate) read_size: usize,
}

/// Reader of merged inputs, a window at a time.
pub(crate) struct InputReader {
    kvs: KvsId,
    inputs: Vec<Arc<Kvset>>,
    rewrite: Rewrite,
    merge: Merge<KvsetCursor>,
    /// The bytes of a window.
    limit: u64,
    /// Whether a window is gathered while the last one is written.
    overlaps: bool,
    gathering: Option<Gathering>,
    /// Reads under way, by class.
    reads: Vec<InFlight>,
}

impl InputReader {
    /// Merges `inputs`, newest first, and begins to gather the first window.
    pub(crate) fn begin(
        context: GatherContext<'_>,
        kvs: KvsId,
        inputs: &[Arc<Kvset>],
        rewrite: &Rewrite,
        windows: &mut Windows,
    ) -> Result<InputReader> {
        let mut merge = merge_kvsets(inputs);
        merge.seek(Bound::Unbounded)?;
        let (limit, overlaps) = InputReader::windows_for(context, inputs, windows);
        let (inputs, rewrite, reads) = (inputs.to_vec(), rewrite.clone(), Vec::new());
        let mut reader =
            InputReader { kvs, inputs, rewrite, merge, limit, overlaps, gathering: None, reads };
        reader.begin_window(context, windows)?;
        Ok(reader)
    }

    /// The bytes of each window of `inputs`, and whether two of them overlap. Each is a pass over the data that its
    /// records lie among. A little more than a window is not worth another one; and where much is to be read, one
    /// window that takes all memory is worth more than two that overlap.
    fn windows_for(
        context: GatherContext<'_>,
        inputs: &[Arc<Kvset>],
        windows: &Windows,
    ) -> (u64, bool) {
        let all = gathered_bytes(inputs);
        let (of_two, alone) = Windows::most(windows.bytes);
        match () {
            () if all <= of_two => (of_two, true),
            () if context.miss_rate.is_much() => (alone, false),
            () => (windows.bytes / 2, true),
        }
    }

    /// Whether a reader of `inputs` leaves memory for another window.
    pub(crate) fn may_overlap(
        context: GatherContext<'_>,
        inputs: &[Arc<Kvset>],
        windows: &Windows,
    ) -> bool {
        InputReader::windows_for(context, inputs, windows).1
    }

    /// Whether it is the reader of a compaction of these inputs.
    pub(crate) fn is_of(&self, kvs: KvsId, inputs: &[Arc<Kvset>]) -> bool {
        self.kvs == kvs
            && self.inputs.len() == inputs.len()
            && self.inputs.iter().zip(inputs).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Its KVS and its inputs, newest first.
    pub(crate) fn inputs(&self) -> (KvsId, &[Arc<Kvset>]) {
        (self.kvs, &self.inputs)
    }

    /// Whether no window comes any more, and there is memory for one of another reader.
    pub(crate) fn is_at_end(&self) -> bool {
        self.overlaps && self.gathering.is_none()
    }

    /// The next window, with its records. The one after it is begun. `share` says, between two reads, how many may
    /// be under way.
    pub(crate) fn next_window(
        &mut self,
        context: GatherContext<'_>,
        windows: &mut Windows,
        share: &mut dyn FnMut() -> DeviceShare,
    ) -> Result<Option<Window>> {
        if self.gathering.is_none() {
            self.begin_window(context, windows)?;
        }
        let Some(mut gathering) = self.gathering.take() else {
            return Ok(None);
        };
        gathering.finish(context, &mut self.reads, share)?;
        if self.overlaps {
            self.begin_window(context, windows)?;
        }
        Ok(Some(gathering.window))
    }

    fn begin_window(&mut self, context: GatherContext<'_>, windows: &mut Windows) -> Result<()> {
        if self.merge.key().is_some() {
            let mut window = if self.overlaps { windows.take() } else { windows.take_alone() };
            self.fill(&mut window, context.wall_clock.now_ms())?;
            let gathering = Gathering::begin(context, self.kvs, window);
            // Values of leaves are old: that the cache lacks them says nothing of spills.
            if self.inputs.iter().any(|kvset| kvset.edit.leaf == LeafId::ROOT) {
                context.miss_rate.note(gathering.window.cached.len(), gathering.missing.len());
            }
            self.gathering = Some(gathering);
        }
        Ok(())
    }

    /// Reads on for the next window, without waiting for it.
    pub(crate) fn read_on(&mut self, context: GatherContext<'_>, share: DeviceShare) -> Result<()> {
        match &mut self.gathering {
            Some(gathering) => gathering.read_on(context, &mut self.reads, share, false),
            None => Ok(()),
        }
    }

    /// Merges entries until the limit of bytes of keys and records have come together. Expired entries become
    /// deletes.
    fn fill(&mut self, window: &mut Window, now_ms: u64) -> Result<()> {
        let (merge, limit) = (&mut self.merge, self.limit);
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
                    if self.rewrite.moves(block.id) {
                        let at = records;
                        records += record_size(key.len(), to_usize(value_size.into()));
                        WindowKind::Move { block: block.clone(), offset, value_size, expiry, at }
                    } else {
                        let address = RecordAddress { block: block.id, offset };
                        WindowKind::Keep { address, value_size, expiry }
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
        window.make_room(records, limit);
        Ok(())
    }
}

/// The bytes of windows that the entries of kvsets take with their records.
pub(crate) fn gathered_bytes(kvsets: &[Arc<Kvset>]) -> u64 {
    let beside = (size_of::<WindowEntry>() + record_size(0, 0)) as u64;
    kvsets.iter().map(|kvset| kvset.bytes() + kvset.edit.entries * beside).sum()
}

/// A window whose records are on their way.
struct Gathering {
    kvs: KvsId,
    window: Window,
    /// The records to be read, in the order in which they lie.
    missing: Vec<Moving>,
    runs: Vec<MissingRun>,
    /// Reads that are not under way yet.
    to_come: VecDeque<GatherRead>,
    under_way: Vec<(Tag, GatherRead)>,
}

/// A record that moves: where it is, and where its copy goes.
#[derive(Clone)]
struct Moving {
    /// The index of its entry in the window.
    entry: usize,
    offset: u32,
    size: usize,
    at: usize,
    key: Range<usize>,
}

impl Moving {
    /// Makes the record anew of its key and value; false when it is not stored like that: compressed, it is
    /// smaller.
    fn encode(&self, kvs: KvsId, key: &[u8], value: &[u8], records: &mut [u8]) -> bool {
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

/// Missing records of a block that lie close to each other.
struct MissingRun {
    records: Range<usize>,
    /// Reads of it that have not come back.
    left: usize,
}

/// One device read: a run, or a part of one whose only record exceeds a command.
struct GatherRead {
    run: usize,
    /// The bytes of the block that it covers, whole LBAs.
    bytes: Range<u64>,
}

fn block_of(entries: &[WindowEntry], entry: usize) -> &Arc<ValueBlock> {
    match &entries[entry].kind {
        WindowKind::Move { block, .. } => block,
        _ => unreachable!("what moves has a block"),
    }
}

impl Gathering {
    /// Copies the records that move from the record cache, which has most records written lately. The others are to
    /// be read in the order in which they lie on the medium, near ones together.
    fn begin(context: GatherContext<'_>, kvs: KvsId, mut window: Window) -> Gathering {
        let Window { keys, entries, records, cached } = &mut window;
        cached.clear();
        let (mut wanted, mut key_start): (Vec<Moving>, usize) = (Vec::new(), 0);
        for (n, entry) in entries.iter().enumerate() {
            let key = key_start..entry.key_end;
            key_start = entry.key_end;
            if let WindowKind::Move { offset, value_size, at, .. } = &entry.kind {
                let size = record_size(key.len(), to_usize((*value_size).into()));
                wanted.push(Moving { entry: n, offset: *offset, size, at: *at, key });
            }
        }
        let mut missing = Vec::new();
        for some in wanted.chunks(LOOKED_UP) {
            let records = records.as_mut().expect("records move");
            let key = |w: &Moving| &keys[w.key.clone()];
            let sought: Vec<Sought> = some
                .iter()
                .map(|w| {
                    let block = block_of(entries, w.entry).id;
                    let address = RecordAddress { block, offset: w.offset };
                    Sought { hash: RecordKey::new(kvs, key(w)).hash(), address, age: Seqno::ZERO }
                })
                .collect();
            let mut copied = [None; LOOKED_UP];
            context.cache.peek_many(&sought, |n, value| {
                copied[n] = Some(some[n].encode(kvs, key(&some[n]), value, records));
            });
            cached.extend(sought.iter().zip(copied).map(|(it, copied)| copied.map(|_| it.hash)));
            let not_copied = some.iter().zip(copied).filter(|(_, copied)| *copied != Some(true));
            missing.extend(not_copied.map(|(w, _)| w.clone()));
        }
        missing.sort_unstable_by_key(|w| (block_of(&window.entries, w.entry).id, w.offset));
        let read_size = context.read_size;
        let (mut runs, mut to_come) = (Vec::new(), VecDeque::new());
        for records in runs_of(&window, &missing, read_size) {
            let pieces = pieces(&window, &missing[records.clone()], read_size);
            let before = to_come.len();
            to_come.extend(pieces.map(|bytes| GatherRead { run: runs.len(), bytes }));
            runs.push(MissingRun { records, left: to_come.len() - before });
        }
        Gathering { kvs, window, missing, runs, to_come, under_way: Vec::new() }
    }

    /// Reads the missing records to the end.
    fn finish(
        &mut self,
        context: GatherContext<'_>,
        reads: &mut Vec<InFlight>,
        share: &mut dyn FnMut() -> DeviceShare,
    ) -> Result<()> {
        while !self.to_come.is_empty() || !self.under_way.is_empty() {
            self.read_on(context, reads, share(), true)?;
        }
        Ok(())
    }

    /// Takes the reads that have come, after waiting for some if the caller `waits`, and asks for more.
    fn read_on(
        &mut self,
        context: GatherContext<'_>,
        reads: &mut Vec<InFlight>,
        share: DeviceShare,
        waits: bool,
    ) -> Result<()> {
        let spare = (READS * context.read_size) as u64;
        self.ask(reads, share, spare)?;
        let mut waits = waits;
        for (tag, read) in std::mem::take(&mut self.under_way) {
            let in_flight = InFlight::of(reads, self.block(&read).media(), spare)?;
            let here = match std::mem::take(&mut waits) {
                true => Some(in_flight.wait_for(tag)?),
                false => in_flight.try_for(tag)?,
            };
            match here {
                Some(buf) => {
                    self.arrived(&read, &buf)?;
                    in_flight.give_back(buf);
                }
                None => self.under_way.push((tag, read)),
            }
        }
        self.ask(reads, share, spare)
    }

    /// Begins as many reads as may be under way.
    fn ask(&mut self, reads: &mut Vec<InFlight>, share: DeviceShare, spare: u64) -> Result<()> {
        while self.under_way.len() < share.commands
            && let Some(mut read) = self.to_come.pop_front()
        {
            if share.is_short && read.bytes.end - read.bytes.start > 2 * SHORT {
                let rest = read.bytes.start + SHORT..read.bytes.end;
                read.bytes.end = rest.start;
                self.runs[read.run].left += 1;
                self.to_come.push_front(GatherRead { run: read.run, bytes: rest });
            }
            let block = self.block(&read);
            let count = to_usize(read.bytes.end - read.bytes.start);
            let (lba, ..) = block.allocation.span(read.bytes.start, count);
            let media = block.media();
            media.count_read(block.stream(), 1, count);
            let tag = InFlight::of(reads, media, spare)?.start(lba, count)?;
            self.under_way.push((tag, read));
        }
        Ok(())
    }

    fn block(&self, read: &GatherRead) -> &Arc<ValueBlock> {
        block_of(&self.window.entries, self.missing[self.runs[read.run].records.start].entry)
    }

    /// Copies a read's part of its run's records to where they go, and verifies them when the run is complete.
    fn arrived(&mut self, read: &GatherRead, buf: &[u8]) -> Result<()> {
        let GatherRead { run, bytes } = read;
        let run = &mut self.runs[*run];
        let of_run = &self.missing[run.records.clone()];
        let records = self.window.records.as_mut().expect("records move");
        for w in of_run {
            let begin = u64::from(w.offset);
            let (from, to) = (begin.max(bytes.start), w.end().min(bytes.end));
            if from < to {
                let size = to_usize(to - from);
                let (source, target) = (from - bytes.start, w.at + to_usize(from - begin));
                let source = &buf[to_usize(source)..][..size];
                records[target..target + size].copy_from_slice(source);
            }
        }
        run.left -= 1;
        if run.left == 0 {
            let window = &self.window;
            let records = window.records.as_ref().expect("records move");
            for w in of_run {
                let record = &records[w.at..w.at + w.size];
                let block = block_of(&window.entries, w.entry);
                block.verify(record, self.kvs, &window.keys[w.key.clone()], w.offset)?;
            }
        }
        Ok(())
    }
}

/// Cuts sorted records into runs that one device read serves, if it takes a record of that size.
fn runs_of(window: &Window, missing: &[Moving], read_size: usize) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut start = 0;
    for next in 1..=missing.len() {
        let ends = next == missing.len() || {
            let (first, last, new) = (&missing[start], &missing[next - 1], &missing[next]);
            let limit = u64::from(first.offset) + (read_size as u64).saturating_sub(2 * 4096);
            block_of(&window.entries, new.entry).id != block_of(&window.entries, first.entry).id
                || u64::from(new.offset) > last.end() + GAP
                || new.end() > limit
        };
        if ends {
            runs.push(start..next);
            start = next;
        }
    }
    runs
}

/// Cuts a run into device reads of up to `read_size` bytes: the bytes of the block that each covers.
fn pieces(
    window: &Window,
    run: &[Moving],
    read_size: usize,
) -> impl Iterator<Item = Range<u64>> + use<> {
    let media = block_of(&window.entries, run[0].entry).media();
    let lba_size = u64::from(media.lba_size);
    let step = read_size.min(media.transfer.largest()) as u64;
    let step = round_down(step, lba_size).max(lba_size);
    let start = round_down(run[0].offset.into(), lba_size);
    let end = round_up(run[run.len() - 1].end(), lba_size);
    (start..end).step_by(to_usize(step)).map(move |from| from..end.min(from + step))
}
