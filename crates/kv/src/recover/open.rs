//! Opening a KVDB: from the manifest to trees, and from the log to the records that they lack.
//!
//! Replay takes frames in the order of their seqnos and stops at the first gap, so it yields a prefix of the
//! records written, across all KVSs. These are sorted and shown; maintenance ingests them. The log goes on in a
//! fresh segment: a frame behind the gap is never looked at again.
//!
//! Invariants
//! 1. The whole log is verified before anything is written.
//! 2. Records are taken in rounds as large as two memtables, and a few frames on top of it: one round, if the
//!    budget is as it was. All but the last round are ingested at once, in order; the manifest knows how far
//!    that came. Values that stay in the log are not kept in DRAM.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use esker_base::units::to_nanos;
use esker_base::{Lba, LbaCount};
use esker_device::Device;

use crate::engine::shared::{Engine, Parts};
use crate::log::kept::LeftFrames;
use crate::log::replay::FoundLog;
use crate::log::tail::{LogTail, new_segment};
use crate::maintain::ingest;
use crate::maintain::ingest::Ingested;
use crate::maintain::ingest::placement::leave_log;
use crate::manifest::state::State;
use crate::manifest::writer::Manifest;
use crate::media::class::Allocation;
use crate::media::classes::Classes;
use crate::media::space::Purpose;
use crate::omf::manifest::Edit;
use crate::recover::devices::Devices;
use crate::recover::kept;
use crate::recover::round::Round;
use crate::recover::size::check_capacity;
use crate::recover::structures::{check_classes, open_structures};
use crate::tree::memtable::Memtable;
use crate::tree::page_cache::PageCache;
use crate::tree::replayed::Replayed;
use crate::tree::view::{Frozen, Table, Tree, View};
use crate::types::class::MediaClass;
use crate::types::error::{KvError, Result};
use crate::types::extent::Extent;
use crate::types::format::FormatVersion;
use crate::types::ids::{BlockId, Ids, Seqno};
use crate::types::options::{Options, Tuning};
use crate::types::stream::Stream;
use crate::values::block::ValueBlock;

/// Opens the KVDB on `devices`, whose directory is `dir` if it has one; `None` when there is none. Returns what a killed
/// process has left as well, for [`Engine::take_up`].
pub(crate) fn open(
    devices: &Devices,
    dir: Option<&Path>,
    options: Options,
) -> Result<Option<(Arc<Engine>, Option<LeftFrames>)>> {
    let options = devices.fitting(options);
    let Some(found) = Manifest::find(devices.manifest.clone())? else {
        return Ok(None);
    };
    let state = found.state.clone();
    options.check_kvss(state.kvss.len())?;
    state.kvss.values().try_for_each(|(name, of_kvs)| of_kvs.compression.check(name))?;
    let tuning = options.tuning();
    let classes = devices.classes(&options);
    check_classes(&state, &classes, Err)?;
    for media in classes.all() {
        check_capacity(&state, media.class, &**media.device())?;
    }
    let pages = Arc::new(PageCache::new(options.memory_bytes / 2));
    let opened = open_structures(&state, &classes, &pages, Err)?;
    let log = FoundLog::of(&state, &opened.blocks);
    let left = match dir {
        Some(dir) => kept::left(dir, &state, &opened.blocks)?,
        None => None,
    };
    if options.read_only {
        classes.keep_all();
        classes.all().iter().try_for_each(|media| media.read_reserve())?;
        let mut round = Round::new(options.memory_bytes / 2, false);
        let last_seqno = round.read(&log, true, &options.observer)?;
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
        show_replayed(&engine, round.parts, &next);
        engine.fence_unreadable();
        left.iter().try_for_each(|left| kept::show_left(&engine, left))?;
        return Ok(Some((Arc::new(engine), None)));
    }
    let mut policies = state.kvss.values().map(|(_, options)| &options.policy);
    let needs_values = policies.any(|policy| leave_log(policy, &classes));
    let mut round = Round::new(2 * tuning.memtable_bytes, needs_values);
    // To the end, whether there is room or not.
    let last_seqno = round.read(&log, true, &options.observer)?;
    // All is sound as far as it was read: from here on the KVDB is written to.
    if let Some(left) = &left {
        left.are_written_anew()?;
    }
    // Behind all claims: free space is free.
    classes.all().iter().try_for_each(|media| media.adopt_reserve())?;
    let trim = || classes.all().iter().try_for_each(|media| media.trim());
    if classes.all().iter().any(|media| media.holds_too_much()) {
        trim()?;
    }
    let manifest = found.begin(trim)?;
    // The replayed records and the kvsets hold the blocks that they need; the rest is free once the log begins
    // behind it.
    let ids = Ids::reopen(state.last_id);
    let (next, edit) = match new_segment(&classes, &ids, &tuning, Purpose::User, 0) {
        // A full KVDB opens all the same, with as small a segment as there is.
        Err(error) if error.lacks_space() => {
            let smallest = Tuning { block_bytes: tuning.allocation_bytes, ..tuning };
            let opening = || new_segment(&classes, &ids, &smallest, Purpose::Opening, 0);
            match opening() {
                Err(error) if error.lacks_space() => trim().and_then(|()| opening())?,
                segment => segment?,
            }
        }
        segment => segment?,
    };
    manifest.commit(vec![edit])?;
    let tail = LogTail::new(tuning, next.clone(), last_seqno);
    let view = view_of(&tuning, opened.trees);
    let engine = Engine::new(options, Parts { classes, manifest, ids, log: tail, view, pages });
    engine.fence_unreadable();
    take_over(&engine, &log, &opened.blocks, round, (last_seqno, &next))?;
    engine.reserve.keep(&engine.view, 0)?;
    Ok(Some((Arc::new(engine), left)))
}

/// Refuses a log that was read to `wanted` and ends at `last` now that it is read again. It lies before
/// `next`, in which it was to go on.
fn check_again(last: Seqno, wanted: Seqno, next: &ValueBlock) -> Result<()> {
    if last == wanted {
        return Ok(());
    }
    let detail = format!("it held record {wanted}, and ends at {last} when it is read again");
    Err(next.media().corrupt("log", next.extent().lba, detail))
}

/// Records replayed from more segments are ingested at once: opened again and again, and killed before maintenance
/// has come to it, a KVDB would have a segment more each time.
const LEFT_SEGMENTS: usize = 8;

/// Takes over the log's records up to `last_seqno`, of which `round` is the beginning; it goes on in
/// `next`. Maintenance makes kvsets of them later, unless they are too many for that.
fn take_over(
    engine: &Engine,
    log: &FoundLog,
    blocks: &BTreeMap<BlockId, Arc<ValueBlock>>,
    mut round: Round,
    (last_seqno, next): (Seqno, &Arc<ValueBlock>),
) -> Result<()> {
    while !round.is_last {
        let Round { needs_values, parts, mut limit, .. } = round;
        let goes_on = parts.last().expect("a round that is full").last_segment().clone();
        show_replayed(engine, parts, &goes_on);
        if !ingest_replayed(engine)? {
            // All of it has to be in DRAM, then. Writers will hear of it.
            engine.view.publish(|view| view.frozen.clear());
            limit = u64::MAX;
        }
        round = Round::new(limit, needs_values);
        let rest = FoundLog::of(&engine.manifest.state(), blocks);
        let last = round.read(&rest, false, &engine.options.observer)?;
        if round.is_last {
            check_again(last, last_seqno, next)?;
        }
    }
    let Some(newest) = round.parts.last_mut() else {
        return ingest::commit_root(engine, Ingested::default(), last_seqno, next).map(drop);
    };
    // As long as the manifest lets replay begin in them, records or not.
    newest.hold(&log.segments);
    show_replayed(engine, round.parts, next);
    if log.segments.len() <= LEFT_SEGMENTS || !ingest_replayed(engine)? {
        // It counts as durable, and a killed process may not have flushed it.
        engine.classes.flush()?;
    }
    Ok(())
}

/// Shows the replayed records, the oldest part first; once all of it is ingested, replay begins in `next`.
fn show_replayed(engine: &Engine, parts: Vec<Replayed>, next: &Arc<ValueBlock>) {
    let mut frozen = Vec::new();
    let mut log_first = next.clone();
    for part in parts.into_iter().rev() {
        let first = part.first_segment().clone();
        let table = Table::Replayed(Arc::new(part));
        frozen.push(Arc::new(Frozen { table, log_first }));
        log_first = first;
    }
    engine.view.publish(|view| view.frozen = frozen);
    engine.balance_memory();
}

/// Makes kvsets of all that was replayed; false when there is no room for them.
fn ingest_replayed(engine: &Engine) -> Result<bool> {
    loop {
        match ingest::ingest_oldest(engine) {
            Err(error) if error.lacks_space() => return Ok(false),
            Ok(true) => {}
            ended => return ended.map(|_| true),
        }
    }
}

/// View of a KVDB that was just opened, but for its log.
fn view_of(tuning: &Tuning, trees: Vec<Tree>) -> View {
    let active = Arc::new(Memtable::new(tuning.memtable_bytes));
    View::new(active, trees)
}

/// The log of a KVDB that is read only: it ends, in a segment without room.
fn unwritten_log(tuning: Tuning, state: &State, classes: &Classes, last_seqno: Seqno) -> LogTail {
    let media = classes.capacity.clone();
    let extent = Extent { class: media.class, lba: Lba(0), count: LbaCount(0) };
    let allocation = Allocation::new(&media, extent, Stream::Log);
    let id = BlockId(state.last_id + 1);
    let segment = ValueBlock { id, allocation, bytes: 0, plain_bytes: 0 };
    LogTail::new(tuning, Arc::new(segment), last_seqno)
}

/// A uuid for a new KVDB.
pub(crate) fn new_uuid() -> [u8; 16] {
    let seed = to_nanos(esker_base::clock::unix_time());
    let mut uuid = [0; 16];
    esker_base::Rng::new(seed ^ u64::from(std::process::id()).rotate_left(32)).fill(&mut uuid);
    uuid
}

/// Makes a new KVDB on `devices`, whose class devices are known as `paths`.
pub(crate) fn create(
    devices: &Devices,
    paths: &[(MediaClass, String)],
    uuid: [u8; 16],
    options: &Options,
) -> Result<()> {
    let classes =
        paths.iter().map(|(class, path)| Edit::Class { class: *class, path: path.clone() });
    let edits = [Edit::LastId { id: Ids::begin(uuid) }].into_iter().chain(classes);
    let first = (FormatVersion::V1, uuid);
    found(&devices.classes(options), &devices.manifest, first, edits.collect())
}

/// Makes a KVDB of the data on the classes, which is durable: their headers, and the manifest after them.
pub(crate) fn found(
    classes: &Classes,
    manifest: &Arc<dyn Device>,
    (version, uuid): (FormatVersion, [u8; 16]),
    edits: Vec<Edit>,
) -> Result<()> {
    for media in classes.all() {
        media.write_header(uuid)?;
    }
    Manifest::create(manifest.clone(), (version, uuid), edits).map(drop)
}
