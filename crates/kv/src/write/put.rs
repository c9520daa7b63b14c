//! The write path: admission, room in memtable and log, the append that makes a record visible, and the wait for
//! durability where one is asked for.

use std::ops::RangeBounds;
use std::time::Duration;

use esker_base::Nanos;

use crate::engine::shared::Engine;
use crate::log::open::LONG_WAIT;
use crate::log::tail::LogTail;
use crate::maintain::steps;
use crate::media::space::Purpose;
use crate::omf::frame::{Change, Record};
use crate::sync::MutexGuard;
use crate::tree::view::View;
use crate::types::error::{KvError, Result};
use crate::types::expiry::Expiry;
use crate::types::ids::{KvsId, RecordAddress, Seqno};
use crate::types::limits::{BOUND_MAX, KEY_MAX, VALUE_MAX};
use crate::types::options::Maintenance;
use crate::types::policy::KvsOptions;
use crate::types::spans::{Span, SpanBuf, is_span};

/// Refuses a record that exceeds the limits.
pub(crate) fn check_record(record: &Record<'_>) -> Result<()> {
    if let Change::DeleteRange(upper) = record.change {
        return check_span(Span { lower: record.key, upper });
    }
    if record.key.len() > KEY_MAX {
        return Err(KvError::KeyLength(record.key.len()));
    }
    if record.change == Change::DeletePrefix && record.key.is_empty() {
        return Err(KvError::EmptyPrefix);
    }
    match record.change.value() {
        Some(value) if value.len() > VALUE_MAX => Err(KvError::ValueLength(value.len())),
        _ => Ok(()),
    }
}

/// Refuses a range that no record can say.
pub(crate) fn check_span(span: Span<'_>) -> Result<()> {
    let Span { lower, upper } = span;
    let size = lower.len().max(upper.map_or(0, <[u8]>::len));
    if size > BOUND_MAX {
        return Err(KvError::KeyLength(size));
    }
    if is_span(lower, upper) {
        return Ok(());
    }
    let (lower, upper) = (lower.escape_ascii(), upper.unwrap_or_default().escape_ascii());
    Err(KvError::Options(format!("the range from '{lower}' to '{upper}' ends before it begins")))
}

/// The keys of a range of the caller's; `None` when it holds none. One that ends before it begins is refused.
pub(crate) fn span_of<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Result<Option<SpanBuf>> {
    let span = SpanBuf::of_range(range);
    if span.upper.as_ref() == Some(&span.lower) {
        return Ok(None);
    }
    check_span(span.as_span()).map(|()| Some(span))
}

/// A record and, before it, the expiry of its put.
pub(crate) fn with_expiry<'r>(
    record: Record<'r>,
    expiry: Expiry,
) -> impl Iterator<Item = Record<'r>> {
    let expires = !expiry.is_never() && record.change.value().is_some();
    let stamp = Record { kvs: record.kvs, key: &[][..], change: Change::Expire(expiry) };
    expires.then_some(stamp).into_iter().chain([record])
}

/// Bytes that both take in the log.
pub(crate) fn size_with_expiry(record: Record<'_>, expiry: Expiry) -> usize {
    with_expiry(record, expiry).map(|record| record.size()).sum()
}

/// A writer's wait for space.
#[derive(Default)]
struct Wait {
    /// How many steps had been done when it looked for room.
    steps: u64,
    /// Whether it has made kvsets of the memtables.
    has_ingested: bool,
    /// When it began.
    began: Option<Nanos>,
}

/// How long a writer waits for space while maintenance makes some: others may take all of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes records, all or none: appends them to the log and makes them visible. `size` is the
/// sum of their sizes; each was checked. Records that only delete may use the space that is
/// kept for making space. `check` is asked last, when nobody else can write any more before
/// this. Returns the seqno of the last record.
pub(crate) fn write<'r>(
    engine: &Engine,
    size: usize,
    purpose: Purpose,
    records: impl Iterator<Item = Record<'r>>,
    check: impl FnOnce(&LogTail) -> Result<()>,
) -> Result<Seqno> {
    engine.life.check_owner()?;
    let mut log = lock_writer(engine);
    engine.life.check_running()?;
    let max = log.batch_max();
    if size > max {
        return Err(KvError::BatchSize { got: size, max });
    }
    let in_memtable = room_in_memtable(engine, log);
    let room = in_memtable.and_then(|log| room_in_log(engine, log, size, purpose));
    let deletes = purpose == Purpose::Delete;
    log = room.map_err(|error| if deletes { error.of_deletes() } else { error })?;
    check(&log)?;
    let now = engine.options.clock.now();
    if log.pending_since().is_none() {
        engine.log.wake_flusher();
    }
    let view = engine.view.load();
    view.active.refer_to(log.segment());
    let block = log.segment().id;
    let is_watched = engine.dead_ranges.is_watched();
    let mut user_bytes = 0;
    let mut expiry = Expiry::NEVER;
    for record in records {
        let (seqno, offset) = log.append(&record, now);
        user_bytes += record.key.len() + record.change.value().map_or(0, <[u8]>::len);
        expiry = view.active.apply(&record, expiry, seqno, RecordAddress { block, offset });
        // After the memtable, where walks look again, and before anybody sees it.
        if is_watched && record.change.value().is_some() {
            engine.dead_ranges.put(record.kvs, record.key);
        }
    }
    let unkept = log.keep();
    let (seqno, unflushed) = engine.log.show_all(&log);
    engine.log.unlock_writer(log);
    // A waiter with a view keeps all that it refers to.
    drop(view);
    engine.counters.user_bytes.add(user_bytes as u64);
    if unkept > engine.log.durable() {
        engine.flush_through(unkept)?;
    }
    await_durability(engine, seqno, unflushed)?;
    engine.pacer.throttle(&engine.view, size, unflushed);
    Ok(seqno)
}

/// Takes the writer's lock, and counts how long that takes.
fn lock_writer(engine: &Engine) -> MutexGuard<'_, LogTail> {
    engine.log.try_tail().unwrap_or_else(|| {
        let waited = engine.options.clock.now();
        let log = engine.log.tail_in_turn();
        if engine.options.clock.now().since(waited) >= LONG_WAIT {
            engine.counters.writer_waits.add(1);
            engine.counters.stalled_since(waited, &engine.options.clock);
        }
        log
    })
}

/// Refuses puts to a KVS whose policy allows no place for them: one of its classes is full, or
/// was when something went elsewhere that is to go there first, and must not be left.
pub(crate) fn admit(engine: &Engine, kvs: KvsId) -> Result<()> {
    let refused = |wait: &mut Wait| -> Result<Option<KvError>> {
        let view = engine.view.load();
        let Some(tree) = view.tree(kvs) else {
            return Ok(None);
        };
        for class in tree.options.policy.strict() {
            let Some(media) = engine.classes.taking(class) else {
                continue;
            };
            // Looking for room may discard.
            engine.life.check_running()?;
            wait.steps = engine.counters.steps.get();
            if tree.has_strays(class) || !media.has_room()? {
                // To ingest frees nothing but some of the log.
                wait.has_ingested |= !view.has_log_on(class);
                return Ok(Some(KvError::ClassFull { class, kvs: tree.name.to_string() }));
            }
        }
        Ok(None)
    };
    let mut wait = Wait::default();
    while let Some(full) = refused(&mut wait)? {
        drop(await_space(engine, engine.log.tail(), full, &mut wait)?);
    }
    Ok(())
}

/// Waits as far as the durability window says.
fn await_durability(engine: &Engine, seqno: Seqno, unflushed: u64) -> Result<()> {
    let limit = engine.options.durability_limit();
    if engine.options.durability.ms == 0 || unflushed > limit {
        let waited = engine.options.clock.now();
        engine.flush_through(seqno)?;
        if engine.options.durability.ms > 0 && limit > 0 {
            engine.counters.durability_waits.add(1);
            engine.counters.stalled_since(waited, &engine.options.clock);
        }
        return Ok(());
    }
    match engine.options.maintenance {
        Maintenance::Threads if engine.log.is_much(unflushed) => {
            engine.log.wake_flusher();
        }
        Maintenance::Manual => engine.flush_when_due()?,
        Maintenance::Threads => {}
    }
    Ok(())
}

/// Freezes the active memtable when it is full, as soon as the one before is ingested. Until then
/// it may grow a little, while writers are slowed down.
fn room_in_memtable<'e>(
    engine: &'e Engine,
    mut log: MutexGuard<'e, LogTail>,
) -> Result<MutexGuard<'e, LogTail>> {
    let mut wait = Wait::default();
    while engine.view.load().active.bytes() >= engine.tuning.memtable_bytes {
        if engine.view.load().frozen.is_empty() {
            engine.view.rotate(&mut log, engine.tuning.memtable_bytes);
            engine.scheduler.notify();
            break;
        }
        let manual = engine.options.maintenance == Maintenance::Manual;
        let has_space = engine.scheduler.ingest_lacks().is_none();
        if !manual && has_space && engine.view.load().active.bytes() < engine.pacer.memtable_most()
        {
            engine.scheduler.notify();
            break;
        }
        let waited = engine.options.clock.now();
        wait.steps = engine.counters.steps.get();
        engine.counters.memtable_waits.add(1);
        match engine.options.maintenance {
            Maintenance::Threads => {
                engine.scheduler.notify();
                engine.log.wait_for_room(&mut log);
            }
            Maintenance::Manual => {
                MutexGuard::unlocked(&mut log, || catch_up(engine))?;
            }
        }
        engine.counters.stalled_since(waited, &engine.options.clock);
        engine.life.check_running()?;
        let full = engine.scheduler.ingest_lacks();
        if let Some(full) = full {
            log = await_space(engine, log, full, &mut wait)?;
        }
    }
    Ok(log)
}

fn room_in_log<'e>(
    engine: &'e Engine,
    mut log: MutexGuard<'e, LogTail>,
    size: usize,
    purpose: Purpose,
) -> Result<MutexGuard<'e, LogTail>> {
    let mut wait = Wait::default();
    while is_only_for_deletes(&log, purpose) {
        wait.steps = engine.counters.steps.get();
        let full = log.segment().media().no_space(size as u64);
        log = await_space(engine, log, full, &mut wait)?;
    }
    while !log.make_room(size) {
        // A segment that is passed over, too small for this batch, stays until the manifest
        // lets go of it.
        engine.view.load().active.refer_to(log.segment());
        let waited = engine.options.clock.now();
        wait.steps = engine.counters.steps.get();
        if log.is_opening() {
            engine.log.wait_for_room(&mut log);
            engine.life.check_running()?;
        } else {
            match engine.open_segment(purpose, size) {
                Ok(segment) => log.set_spare(segment),
                Err(full @ KvError::NoSpace { .. }) => {
                    log = await_space(engine, log, full, &mut wait)?;
                }
                Err(error) => return Err(error),
            }
        }
        engine.counters.segment_waits.add(1);
        engine.counters.stalled_since(waited, &engine.options.clock);
    }
    Ok(log)
}

/// Whether the log goes on in space of the reserve, which is all there is, and the write is no delete.
fn is_only_for_deletes(log: &LogTail, purpose: Purpose) -> bool {
    let allocation = &log.segment().allocation;
    purpose == Purpose::User && allocation.of_reserve && allocation.media.lives_on_reserve()
}

/// Waits for maintenance to make space; `full` is the answer when it has nothing left to do, and has
/// done nothing since room was looked for, or when the writer has waited for too long.
fn await_space<'e>(
    engine: &'e Engine,
    mut log: MutexGuard<'e, LogTail>,
    full: KvError,
    wait: &mut Wait,
) -> Result<MutexGuard<'e, LogTail>> {
    engine.life.check_running()?;
    // Space that another step lacks is not the space lacking here.
    let moved = |result: Result<bool>| match result {
        Err(error) if error.lacks_space() => Ok(false),
        result => result,
    };
    let work = || match moved(steps::step_for_space(engine)) {
        // Once: others may write all the time.
        Ok(false) if !std::mem::replace(&mut wait.has_ingested, true) => {
            moved(steps::ingest_all(engine))
        }
        result => result,
    };
    let now = engine.options.clock.now();
    let patient = now.since(*wait.began.get_or_insert(now)) < PATIENCE;
    let worked = MutexGuard::unlocked(&mut log, || engine.pacer.for_space(work))?;
    engine.life.check_running()?;
    let moves = worked || engine.counters.steps.get() != wait.steps;
    if patient && moves { Ok(log) } else { Err(full) }
}

/// Does the work that the threads would have done meanwhile.
fn catch_up(engine: &Engine) -> Result<()> {
    steps::ingest_or_make_room(engine)?;
    let lags = |view: &View| {
        let spilling = || view.trees.values().filter(|tree| !tree.is_fenced);
        let deepest = spilling().map(|tree| tree.root.len()).max().unwrap_or(0);
        view.root_bytes() > 2 * engine.pacer.spill_bytes()
            || deepest > 2 * engine.tuning.root_kvsets
    };
    while lags(&engine.view.load()) && steps::maintain(engine)? {}
    Ok(())
}

/// The space that a write may use.
pub(crate) fn purpose(deletes_only: bool) -> Purpose {
    if deletes_only { Purpose::Delete } else { Purpose::User }
}

/// The moment when a value put now into a KVS with these options expires.
pub(crate) fn expiry_of_put(engine: &Engine, options: &KvsOptions) -> Expiry {
    match options.ttl_ms {
        None => Expiry::NEVER,
        ttl_ms => Expiry::of_put(engine.wall_clock.now_ms(), ttl_ms),
    }
}

#[cfg(test)]
mod tests;
