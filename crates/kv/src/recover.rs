//! Opening a KVDB: from the manifest to trees, and from the log to what they lack.
//!
//! Replay takes frames in the order of their seqnos and stops at the first gap, so what it yields
//! is a prefix of what was written, across all KVSs. What it yields is sorted and shown; maintenance ingests
//! it. The log goes on in a fresh segment: a frame behind the gap is never looked at again.
//!
//! Invariants
//! 1. The whole log is verified before anything is written.
//! 2. Records are taken in rounds as large as two memtables, and a few frames on top of it: one round, if the
//!    budget is what it was. All but the last round are ingested at once, in order; the manifest knows how far
//!    that came. Values that stay in the log are not kept in DRAM.

mod replayed;
mod segment;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;

use esker_base::units::to_usize;
use esker_base::{Lba, LbaCount};
use esker_device::Device;

pub(crate) use self::replayed::Replayed;
use self::segment::SegmentReader;
use crate::engine::{Engine, Parts};
use crate::error::{KvError, Result};
use crate::ids::Ids;
use crate::ingest::{Ingested, leave_log};
use crate::kvset::Kvset;
use crate::log::{LogTail, new_segment};
use crate::manifest::{Manifest, State};
use crate::media::{Allocation, Classes, Extent, Media, Purpose};
use crate::memtable::Memtable;
use crate::omf::Malformed;
use crate::omf::frame::{FrameHeader, FrameKind, HEADER_SIZE, Record};
use crate::omf::manifest::Edit;
use crate::options::Options;
use crate::page_cache::PageCache;
use crate::placement::Stream;
use crate::sync::{JoinHandle, mpsc, thread};
use crate::value::ValueBlock;
use crate::view::{Frozen, Leaf, Table, Tree, View};
use crate::{MediaClass, Tuning, VALUE_MAX};

/// The devices of a KVDB.
#[derive(Clone)]
pub struct Devices {
    /// Holds the manifest: a few MiB.
    pub manifest: Arc<dyn Device>,
    /// The capacity class.
    pub capacity: Arc<dyn Device>,
    /// The staging class, if the KVDB has one.
    pub staging: Option<Arc<dyn Device>>,
}

impl Devices {
    /// The classes and the names of their devices.
    pub(crate) fn names(&self) -> Vec<(MediaClass, String)> {
        let named = |class, device: &Arc<dyn Device>| (class, device.name().to_owned());
        let staging = self.staging.iter().map(|device| named(MediaClass::Staging, device));
        staging.chain([named(MediaClass::Capacity, &self.capacity)]).collect()
    }

    /// The class devices, opened as classes.
    pub(crate) fn classes(&self, options: &Options) -> Classes {
        let media = |class: MediaClass, device: &Arc<dyn Device>| {
            Arc::new(Media::new(class, device.clone(), &options.tuning()))
        };
        Classes::new(
            media(MediaClass::Capacity, &self.capacity),
            self.staging.as_ref().map(|device| media(MediaClass::Staging, device)),
        )
    }
}

/// What the manifest names, opened.
pub(crate) struct Opened {
    pub(crate) trees: Vec<Tree>,
    pub(crate) blocks: BTreeMap<u64, Arc<ValueBlock>>,
}

/// Checks that the classes are those of the KVDB. `damaged` says whether to go on without a header.
pub(crate) fn check_classes(
    state: &State,
    classes: &Classes,
    mut damaged: impl FnMut(KvError) -> Result<()>,
) -> Result<()> {
    for &class in state.classes.keys() {
        match classes.get(class) {
            Some(media) => media.check_header(state.uuid).or_else(&mut damaged)?,
            None => {
                return Err(KvError::Options(format!(
                    "the KVDB has a {class} class; open it with its device"
                )));
            }
        }
    }
    if !state.classes.contains_key(&MediaClass::Staging) && classes.staging().is_some() {
        return Err(KvError::Options(
            "the KVDB has no staging class: open it without one, then add it".into(),
        ));
    }
    Ok(())
}

/// Claims the space of everything the manifest names, and opens its kvsets. `damaged` says whether to go
/// on without a block that cannot be there, or a kvset that cannot be opened.
pub(crate) fn open_structures(
    state: &State,
    classes: &Classes,
    pages: &Arc<PageCache>,
    mut damaged: impl FnMut(KvError) -> Result<()>,
) -> Result<Opened> {
    let claim = |stream: Stream, extent: Extent| {
        let media = classes.get(extent.class).ok_or_else(|| {
            KvError::Options(format!("the KVDB has data on a {} class", extent.class))
        })?;
        media.claim(stream, extent)
    };
    let in_root = state.kvsets.values().filter(|kvset| kvset.leaf == 0);
    let young: BTreeSet<u64> =
        in_root.flat_map(|kvset| kvset.blocks.iter().map(|(id, _)| *id)).collect();
    let mut blocks = BTreeMap::new();
    for (&id, block) in &state.blocks {
        let stream = if block.log || young.contains(&id) { Stream::Log } else { Stream::OldValues };
        let allocation = match claim(stream, block.extent) {
            Ok(allocation) => allocation,
            Err(error) => {
                damaged(error)?;
                continue;
            }
        };
        let (bytes, plain_bytes) = (block.bytes, block.plain_bytes);
        let room = allocation.bytes();
        if bytes > room || plain_bytes > bytes.saturating_mul(VALUE_MAX as u64) {
            let detail = format!(
                "block {id} of {room} bytes is said to hold {bytes}, {plain_bytes} before compression"
            );
            damaged(allocation.media.corrupt("manifest", block.extent.lba, detail))?;
            continue;
        }
        blocks.insert(id, Arc::new(ValueBlock { id, allocation, bytes, plain_bytes }));
    }
    let mut trees: BTreeMap<u32, Tree> = BTreeMap::new();
    for (&kvs, (name, options)) in &state.kvss {
        let mut leaves: Vec<Leaf> = state
            .leaves
            .iter()
            .filter(|(_, (owner, _))| *owner == kvs)
            .map(|(&id, (_, lower))| Leaf::new(id, lower[..].into()))
            .collect();
        leaves.sort_by(|a, b| a.lower.cmp(&b.lower));
        if leaves.first().is_none_or(|leaf| !leaf.lower.is_empty()) {
            let device = classes.capacity.device().name().to_owned();
            let detail = format!("the KVS '{name}' has no first leaf");
            return Err(KvError::Corrupt { what: "manifest", device, lba: Lba(0), detail });
        }
        let (name, options) = (name.as_str().into(), *options);
        trees.insert(kvs, Tree::with_leaves(kvs, name, options, leaves));
    }
    for edit in state.kvsets.values() {
        let extents = edit.extents.iter().map(|&extent| claim(Stream::of_keys(edit.leaf), extent));
        let own = edit.blocks.iter().map(|(id, _)| blocks.get(id).cloned());
        // What was said of a block is said of what needs it.
        let Some(own) = own.collect::<Option<Vec<Arc<ValueBlock>>>>() else { continue };
        for (block, (id, live)) in own.iter().zip(&edit.blocks) {
            if *live > block.allocation.bytes() {
                let detail = format!("kvset {} is said to use {live} bytes of block {id}", edit.id);
                return Err(block.media().corrupt("manifest", block.extent().lba, detail));
            }
        }
        let extents: Result<_> = extents.collect();
        match extents.and_then(|extents| Kvset::open(edit.clone(), extents, own, pages)) {
            Ok(kvset) => {
                trees.get_mut(&edit.kvs).expect("the manifest checks references").add(kvset);
            }
            Err(error) => damaged(error)?,
        }
    }
    Ok(Opened { trees: trees.into_values().collect(), blocks })
}

/// A frame of the log whose checksum holds.
struct LogFrame {
    segment: Arc<ValueBlock>,
    header: FrameHeader,
    /// Its records.
    payload: Vec<u8>,
}

impl LogFrame {
    /// Hands each record to `each`, with its seqno and where it begins in the segment.
    fn each_record(&self, mut each: impl FnMut(&Record<'_>, u64, u32)) -> Result<()> {
        let LogFrame { segment, header, payload } = self;
        let records_at = header.offset + HEADER_SIZE as u64;
        let mut at = 0;
        for seqno in (header.first_seqno..).take(to_usize(header.records.into())) {
            let record = match header.kind {
                FrameKind::Log => Record::decode(&payload[at..]),
                FrameKind::Aged => Err(Malformed("an aged frame in the log".into())),
            };
            // The frame's checksum holds, so a bad record was written by a bug: say so, do not skip it.
            let record = record.map_err(|bad| {
                let (lba, ..) = segment.allocation.span(header.offset, 1);
                segment.media().corrupt("log record", lba, bad.0)
            })?;
            let offset = u32::try_from(records_at + at as u64);
            each(&record, seqno, offset.expect("segments are below 4 GiB"));
            at += record.size();
        }
        Ok(())
    }
}

/// The log, as far as the manifest lets replay look.
#[derive(Clone)]
struct Log {
    /// The segments, in the order of the log.
    segments: Vec<Arc<ValueBlock>>,
    /// The last seqno that is in a kvset.
    ingested: u64,
}

impl Log {
    fn of(state: &State, blocks: &BTreeMap<u64, Arc<ValueBlock>>) -> Log {
        let blocks = blocks.range(state.log_first..).map(|(_, block)| block);
        let segments = blocks.filter(|block| block.is_log()).cloned().collect();
        Log { segments, ingested: state.ingested }
    }

    /// Hands the frames whose records are in no kvset yet to `take`, one after the other, until that has
    /// enough. Returns the last seqno.
    ///
    /// What a crash has torn is passed over: it was not durable. What was durable and cannot be read
    /// is damage: a frame behind the gap says so, because each states how far the log was durable when
    /// it was written; or because it holds what comes next.
    fn replay(&self, mut take: impl FnMut(LogFrame) -> Result<ControlFlow<()>>) -> Result<u64> {
        let mut last = self.ingested;
        let mut ends = Vec::new();
        let mut readers = self.segments.iter().map(SegmentReader::new);
        let mut next = readers.next().transpose()?;
        while let Some(mut reader) = next {
            // It begins to read meanwhile.
            next = readers.next().transpose()?;
            let segment = reader.segment();
            while let Some((header, payload)) = reader.next_frame()? {
                if header.first_seqno > last + 1 {
                    break;
                }
                if header.first_seqno == last + 1 {
                    last = header.last_seqno();
                    let frame = LogFrame { segment: segment.clone(), header, payload };
                    if take(frame)?.is_break() {
                        return Ok(last);
                    }
                }
            }
            ends.push((segment, reader.offset(), reader.held_behind(last)?));
        }
        for (segment, offset, held) in ends {
            if held > last {
                let (lba, ..) = segment.allocation.span(offset, 1);
                let detail = format!("it held record {held}, and ends at {last}");
                return Err(segment.media().corrupt("log", lba, detail));
            }
        }
        Ok(last)
    }
}

/// Reads the log's records that are in no kvset yet, and that is all. Returns the last seqno.
pub(crate) fn verify_log(state: &State, blocks: &BTreeMap<u64, Arc<ValueBlock>>) -> Result<u64> {
    Log::of(state, blocks).replay(|frame| {
        frame.each_record(|_, _, _| ())?;
        Ok(CONTINUE)
    })
}

/// The frame at `offset` of a block, if there is a valid one. What is not valid is read twice: it
/// may have been damaged on its way.
pub(crate) fn read_frame(
    block: &ValueBlock,
    offset: u64,
) -> Result<Option<(FrameHeader, Vec<u8>)>> {
    Ok(match read_frame_once(block, offset)? {
        None => read_frame_once(block, offset)?,
        valid => valid,
    })
}

fn read_frame_once(block: &ValueBlock, offset: u64) -> Result<Option<(FrameHeader, Vec<u8>)>> {
    let allocation = &block.allocation;
    if offset + HEADER_SIZE as u64 > allocation.bytes() {
        return Ok(None);
    }
    let (buf, skip) = allocation.read_at(offset, HEADER_SIZE)?;
    let Ok(header) = FrameHeader::decode(&buf[skip..]) else {
        let Some(found) = FrameHeader::other_version(&buf[skip..]) else { return Ok(None) };
        let (lba, ..) = allocation.span(offset, 1);
        let device = block.media().device().name().to_owned();
        return Err(KvError::Version { what: "log", device, lba, found });
    };
    if !is_at(&header, block, offset) {
        return Ok(None);
    }
    let size = HEADER_SIZE + to_usize(header.payload_size.into());
    let (buf, skip) = allocation.read_at(offset, size)?;
    let payload = &buf[skip + HEADER_SIZE..skip + size];
    Ok(header.check_payload(payload).is_ok().then(|| (header, payload.to_vec())))
}

/// Whether a frame says that it is at `offset` of a block, which has room for it.
fn is_at(header: &FrameHeader, block: &ValueBlock, offset: u64) -> bool {
    let end = offset + HEADER_SIZE as u64 + u64::from(header.payload_size);
    (header.block, header.offset) == (block.id, offset) && end <= block.allocation.bytes()
}

/// Opens the KVDB on `devices`; `None` when there is none.
pub(crate) fn open(devices: &Devices, options: Options) -> Result<Option<Arc<Engine>>> {
    let Some(found) = Manifest::find(devices.manifest.clone())? else {
        return Ok(None);
    };
    let state = found.state.clone();
    options.check_kvss(state.kvss.len())?;
    let tuning = options.tuning();
    let classes = devices.classes(&options);
    check_classes(&state, &classes, Err)?;
    let pages = Arc::new(PageCache::new(options.memory_bytes / 2));
    let opened = open_structures(&state, &classes, &pages, Err)?;
    let log = Log::of(&state, &opened.blocks);
    if options.read_only {
        classes.keep_all();
        let mut round = Round::new(options.memory_bytes / 2, false);
        let last_seqno = round.read(&log, true)?;
        if !round.is_last {
            let limit = round.limit;
            return Err(KvError::Options(format!(
                "the log holds more than {limit} bytes that are in no kvset yet, and who only reads sorts all \
                 of them in memory: open the KVDB with a larger budget, or once to write, and close it"
            )));
        }
        let tail = unwritten_log(tuning, &state, &classes, last_seqno);
        let (view, manifest) = (view_of(&tuning, opened.trees), found.read_only());
        let (ids, next) = (Ids::after(state.last_id), tail.segment().clone());
        let engine = Engine::new(options, Parts { classes, manifest, ids, log: tail, view, pages });
        engine.show_replayed(round.parts, &next);
        return Ok(Some(Arc::new(engine)));
    }
    let mut policies = state.kvss.values().map(|(_, options)| &options.policy);
    let needs_values = policies.any(|policy| leave_log(policy, &classes));
    let mut round = Round::new(2 * tuning.memtable_bytes, needs_values);
    // To the end, whether there is room or not.
    let last_seqno = round.read(&log, true)?;
    // All is sound as far as it was read: from here on the KVDB is written to.
    let manifest = found.begin()?;
    // What was replayed and the kvsets hold what they need of the blocks; the rest is free once the log
    // begins behind it.
    let ids = Ids::reopen(state.last_id);
    let (next, edit) = match new_segment(&classes, &ids, &tuning, Purpose::User, 0) {
        // A full KVDB opens all the same, with as small a segment as there is.
        Err(error) if error.lacks_space() => {
            let smallest = Tuning { block_bytes: tuning.allocation_bytes, ..tuning };
            new_segment(&classes, &ids, &smallest, Purpose::Opening, 0)?
        }
        segment => segment?,
    };
    manifest.commit(vec![edit])?;
    let tail = LogTail::new(tuning, next.clone(), last_seqno);
    let view = view_of(&tuning, opened.trees);
    let engine = Engine::new(options, Parts { classes, manifest, ids, log: tail, view, pages });
    engine.take_over(&log, &opened.blocks, round, (last_seqno, &next))?;
    Ok(Some(Arc::new(engine)))
}

/// Refuses a log that was read to `wanted` and ends at `last` now that it is read again. It lies before
/// `next`, in which it was to go on.
fn check_again(last: u64, wanted: u64, next: &ValueBlock) -> Result<()> {
    if last == wanted {
        return Ok(());
    }
    let detail = format!("it held record {wanted}, and ends at {last} when it is read again");
    Err(next.media().corrupt("log", next.extent().lba, detail))
}

/// What a thread has come to.
fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

fn no_thread(error: io::Error) -> KvError {
    KvError::Options(format!("a thread to replay the log could not be started: {error}"))
}

/// Frames that were read and not taken yet.
const FRAMES: usize = 4;
/// What was replayed from more segments is ingested at once: opened again and again, and killed before
/// maintenance has come to it, a KVDB would have a segment more each time.
const LEFT_SEGMENTS: usize = 8;

const CONTINUE: ControlFlow<()> = ControlFlow::Continue(());
const BREAK: ControlFlow<()> = ControlFlow::Break(());

/// What is ingested at a time when a KVDB is opened.
struct Round {
    needs_values: bool,
    /// The records, the oldest first, in parts of about a quarter of what it may be, of which kvsets are made.
    parts: Vec<Replayed>,
    /// Bytes that it may be: at least what it has of DRAM, and at least what it stands for of the log.
    limit: u64,
    /// Whether it has all that is left of the log.
    is_last: bool,
}

impl Round {
    fn new(limit: u64, needs_values: bool) -> Round {
        Round { needs_values, parts: Vec::new(), limit, is_last: true }
    }

    /// Takes frames of a log as long as there is room, and goes on `to_the_end` to verify the others, or not.
    /// Returns the last seqno. A thread reads what this one takes.
    fn read(&mut self, log: &Log, to_the_end: bool) -> Result<u64> {
        let (frames, come) = mpsc::sync_channel(FRAMES);
        let (log, limit) = (log.clone(), self.limit);
        // It decides where the round ends, so that what it reads does not depend on how fast this one is.
        let reader = move || {
            let (mut bytes, mut is_last) = (0, true);
            let read = log.replay(|frame| {
                if is_last && bytes < limit {
                    bytes += Replayed::bytes_of(&frame.header);
                    // Whoever takes none any more has an error to tell.
                    return Ok(frames.send(frame).map_or(BREAK, |()| CONTINUE));
                }
                is_last = false;
                frame.each_record(|_, _, _| ())?;
                Ok(if to_the_end { CONTINUE } else { BREAK })
            });
            read.map(|last| (last, is_last))
        };
        let reader = thread::spawn("esker-replay", reader).map_err(no_thread)?;
        let taken = come.iter().try_for_each(|frame| self.take(&frame));
        drop(come);
        let read = join(reader);
        taken?;
        let last;
        (last, self.is_last) = read?;
        self.parts.last_mut().into_iter().for_each(Replayed::sort);
        Ok(last)
    }

    /// Adds a frame. A part that is full is sorted while others are read.
    fn take(&mut self, frame: &LogFrame) -> Result<()> {
        let last = self.parts.last_mut();
        let full = last.filter(|part| part.bytes() >= self.limit / 4);
        if full.map(Replayed::sort).is_some() || self.parts.is_empty() {
            self.parts.push(Replayed::new(self.needs_values));
        }
        self.parts.last_mut().expect("pushed above").take(frame)
    }
}

impl Engine {
    /// Takes over what the log holds up to `last_seqno`, of which `round` is the beginning; it goes on in
    /// `next`. It is left to maintenance to make kvsets, but for what is too much for that.
    fn take_over(
        &self,
        log: &Log,
        blocks: &BTreeMap<u64, Arc<ValueBlock>>,
        mut round: Round,
        (last_seqno, next): (u64, &Arc<ValueBlock>),
    ) -> Result<()> {
        while !round.is_last {
            let Round { needs_values, parts, mut limit, .. } = round;
            let goes_on = parts.last().expect("a round that is full").last_segment().clone();
            self.show_replayed(parts, &goes_on);
            if !self.ingest_replayed()? {
                // All of it has to be in DRAM, then. Writers will hear of it.
                self.publish(|view| view.frozen.clear());
                limit = u64::MAX;
            }
            round = Round::new(limit, needs_values);
            let last = round.read(&Log::of(&self.manifest.state(), blocks), false)?;
            if round.is_last {
                check_again(last, last_seqno, next)?;
            }
        }
        let Some(newest) = round.parts.last_mut() else {
            return self.commit_root(Ingested::default(), last_seqno, next).map(drop);
        };
        // As long as the manifest lets replay begin in them, records or not.
        newest.hold(&log.segments);
        self.show_replayed(round.parts, next);
        if log.segments.len() <= LEFT_SEGMENTS || !self.ingest_replayed()? {
            // It counts as durable, and who was killed may have written it without a flush.
            self.classes.flush()?;
        }
        Ok(())
    }

    /// Shows what was replayed, the oldest part first; once all of it is ingested, replay begins in `next`.
    fn show_replayed(&self, parts: Vec<Replayed>, next: &Arc<ValueBlock>) {
        let mut frozen = Vec::new();
        let mut log_first = next.clone();
        for part in parts.into_iter().rev() {
            let first = part.first_segment().clone();
            let table = Table::Replayed(Arc::new(part));
            frozen.push(Arc::new(Frozen { table, log_first }));
            log_first = first;
        }
        self.publish(|view| view.frozen = frozen);
        self.balance_memory();
    }

    /// Makes kvsets of all that was replayed; false when there is no room for them.
    fn ingest_replayed(&self) -> Result<bool> {
        loop {
            match self.ingest_oldest() {
                Err(error) if error.lacks_space() => return Ok(false),
                Ok(true) => {}
                ended => return ended.map(|_| true),
            }
        }
    }
}

/// What a KVDB shows that was just opened, but for its log.
fn view_of(tuning: &Tuning, trees: Vec<Tree>) -> View {
    let active = Arc::new(Memtable::new(tuning.memtable_bytes));
    View::new(active, trees)
}

/// The log of a KVDB that is read only: it ends, in a segment without room.
fn unwritten_log(tuning: Tuning, state: &State, classes: &Classes, last_seqno: u64) -> LogTail {
    let media = classes.capacity.clone();
    let extent = Extent { class: media.class, lba: Lba(0), count: LbaCount(0) };
    let allocation = Allocation { media, extent, stream: Stream::Log };
    let segment = ValueBlock { id: state.last_id + 1, allocation, bytes: 0, plain_bytes: 0 };
    LogTail::new(tuning, Arc::new(segment), last_seqno)
}

/// A uuid for a new KVDB.
pub(crate) fn new_uuid() -> [u8; 16] {
    let seed = u64::try_from(esker_base::clock::unix_time().as_nanos()).unwrap_or(u64::MAX);
    let mut uuid = [0; 16];
    esker_base::Rng::new(seed ^ u64::from(std::process::id()).rotate_left(32)).fill(&mut uuid);
    uuid
}

/// Makes a new KVDB on `devices`, whose class devices are known as `paths`.
pub(crate) fn create(
    devices: &Devices,
    paths: &[(MediaClass, String)],
    options: &Options,
) -> Result<()> {
    let uuid = new_uuid();
    let classes =
        paths.iter().map(|(class, path)| Edit::Class { class: *class, path: path.clone() });
    let edits = [Edit::LastId { id: Ids::begin(uuid) }].into_iter().chain(classes);
    found(&devices.classes(options), &devices.manifest, uuid, edits.collect())
}

/// Makes a KVDB of what lies on the classes, which is durable: their headers, and the manifest after them.
pub(crate) fn found(
    classes: &Classes,
    manifest: &Arc<dyn Device>,
    uuid: [u8; 16],
    edits: Vec<Edit>,
) -> Result<()> {
    for media in classes.all() {
        media.write_header(uuid)?;
    }
    Manifest::create(manifest.clone(), uuid, edits).map(drop)
}
