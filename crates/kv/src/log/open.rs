//! The log of an open KVDB: its tail, how far it may be read and is durable, and who waits for it.
//!
//! Locks: `flushing`, then `writer`; `replay_from` is held for no longer than it takes to read or set it.

use std::sync::Arc;
use std::time::Duration;

use esker_base::{AlignedBuf, Clock, Nanos};

use crate::log::tail::{LogFlush, LogTail};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::types::error::{KvError, Result};
use crate::types::ids::{AtomicSeqno, Seqno};
use crate::types::options::Options;
use crate::values::block::ValueBlock;

/// Log of an open KVDB.
pub(crate) struct Log {
    clock: Clock,
    /// How many bytes may not be durable, and for how long.
    limit_bytes: u64,
    window: Duration,
    /// The end of the log. Whoever holds it is the writer.
    writer: Mutex<LogTail>,
    /// How many have waited long for that lock, and still do.
    waiting_long: AtomicU64,
    /// Signalled when writers may go on, and when the log has something to flush.
    room: Condvar,
    pending: Condvar,
    /// Signalled when a segment is to be opened ahead of need.
    opening: Condvar,
    /// The segment in which the manifest lets replay begin: it must stay even when nothing
    /// refers to its records any more.
    replay_from: Mutex<Arc<ValueBlock>>,
    /// Every record up to this seqno may be read.
    visible: AtomicSeqno,
    /// Every record up to this seqno is durable.
    durable: AtomicSeqno,
    /// Held by the thread that flushes. Why that failed: then nobody knows which records are durable, and it is not
    /// tried again.
    flushing: Mutex<Option<Arc<KvError>>>,
    /// Bytes that are not durable.
    unflushed: AtomicU64,
}

/// The lock of the thread that flushes.
pub(crate) type Leader<'l> = MutexGuard<'l, Option<Arc<KvError>>>;

/// Waits of one writer for another are long from this on: shorter ones are the cost of a lock.
pub(crate) const LONG_WAIT: Duration = Duration::from_millis(1);

/// How long a thread with nothing to do sleeps before it looks again.
pub(crate) const IDLE: Duration = Duration::from_millis(200);

/// How long to wait for a segment that is being opened before looking again.
const OPENING: Duration = Duration::from_millis(10);

/// How long a writer waits for room before it looks again.
const ROOM: Duration = Duration::from_millis(100);

impl Log {
    /// One that goes on at `tail`, whose records are visible and durable.
    pub(crate) fn new(tail: LogTail, options: &Options) -> Log {
        let last_seqno = tail.last_seqno();
        Log {
            clock: options.clock.clone(),
            limit_bytes: options.durability_limit(),
            window: Duration::from_millis(options.durability.ms),
            replay_from: Mutex::new(tail.segment().clone()),
            writer: Mutex::new(tail),
            waiting_long: AtomicU64::new(0),
            room: Condvar::new(),
            pending: Condvar::new(),
            opening: Condvar::new(),
            visible: AtomicSeqno::new(last_seqno),
            durable: AtomicSeqno::new(last_seqno),
            flushing: Mutex::default(),
            unflushed: AtomicU64::new(0),
        }
    }

    // ---- how far it is -----------------------------------------------------------------------

    /// Every record up to this seqno may be read.
    pub(crate) fn visible(&self) -> Seqno {
        self.visible.load()
    }

    /// Every record up to this seqno is durable.
    pub(crate) fn durable(&self) -> Seqno {
        self.durable.load()
    }

    /// Lets all records up to `seqno` be read.
    pub(crate) fn show(&self, seqno: Seqno) {
        self.visible.store(seqno);
    }

    /// Lets all records in the log be read, whose lock the caller has. Returns the last one's seqno, and the bytes that
    /// are not durable.
    pub(crate) fn show_all(&self, tail: &LogTail) -> (Seqno, u64) {
        let (seqno, unflushed) = (tail.last_seqno(), tail.unflushed_bytes());
        self.show(seqno);
        self.unflushed.store(unflushed, Ordering::Relaxed);
        (seqno, unflushed)
    }

    /// Bytes that are not durable.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.unflushed.load(Ordering::Relaxed)
    }

    /// Whether so many bytes are much of the log that may not be durable.
    pub(crate) fn is_much(&self, bytes: u64) -> bool {
        bytes >= self.limit_bytes / 4
    }

    /// The segment in which replay begins.
    pub(crate) fn replay_from(&self) -> Arc<ValueBlock> {
        self.replay_from.lock().clone()
    }

    /// Keeps the segment in which the manifest lets replay begin from now on.
    pub(crate) fn set_replay_from(&self, segment: Arc<ValueBlock>) {
        *self.replay_from.lock() = segment;
    }

    // ---- its tail ----------------------------------------------------------------------------

    /// Takes the writer's lock.
    pub(crate) fn tail(&self) -> MutexGuard<'_, LogTail> {
        self.writer.lock()
    }

    /// Takes it if nobody has it.
    pub(crate) fn try_tail(&self) -> Option<MutexGuard<'_, LogTail>> {
        self.writer.try_lock()
    }

    /// Takes it, unless that takes longer than `patience`.
    pub(crate) fn tail_within(&self, patience: Duration) -> Option<MutexGuard<'_, LogTail>> {
        self.writer.try_lock_for(patience)
    }

    /// Takes it. After [`LONG_WAIT`] of waiting, the next writer that releases the lock hands it
    /// over (fair unlock): writers without a pause would retake it before the woken waiter has come to run.
    pub(crate) fn tail_in_turn(&self) -> MutexGuard<'_, LogTail> {
        self.tail_within(LONG_WAIT).unwrap_or_else(|| {
            self.waiting_long.fetch_add(1, Ordering::Relaxed);
            let tail = self.writer.lock();
            self.waiting_long.fetch_sub(1, Ordering::Relaxed);
            tail
        })
    }

    /// Lets go of it, for those first who have waited long.
    pub(crate) fn unlock_writer(&self, tail: MutexGuard<'_, LogTail>) {
        if self.is_awaited() {
            MutexGuard::unlock_fair(tail);
        }
    }

    /// Whether somebody has waited long for it.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting_long.load(Ordering::Relaxed) > 0
    }

    // ---- waiting -----------------------------------------------------------------------------

    /// Waits for a while until writers may go on.
    pub(crate) fn wait_for_room(&self, tail: &mut MutexGuard<'_, LogTail>) {
        self.room.wait_for(tail, ROOM);
    }

    /// Has writers go on.
    pub(crate) fn wake_writers(&self) {
        self.room.notify_all();
    }

    /// Has the thread that flushes look again.
    pub(crate) fn wake_flusher(&self) {
        self.pending.notify_one();
    }

    /// Has the thread that opens segments open one.
    pub(crate) fn wake_opener(&self) {
        self.opening.notify_one();
    }

    /// Wakes all who wait.
    pub(crate) fn wake_all(&self) {
        self.pending.notify_all();
        self.opening.notify_all();
        self.room.notify_all();
    }

    /// The writer's lock, while no segment is being opened.
    pub(crate) fn wait_for_segment(
        &self,
        goes_on: impl Fn() -> Result<()>,
    ) -> Result<MutexGuard<'_, LogTail>> {
        let mut tail = self.writer.lock();
        while tail.is_opening() {
            goes_on()?;
            self.room.wait_for(&mut tail, OPENING);
        }
        Ok(tail)
    }

    // ---- flushing ----------------------------------------------------------------------------

    /// Waits for the turn to flush.
    pub(crate) fn lead(&self) -> Leader<'_> {
        self.flushing.lock()
    }

    /// Waits for it, but no longer than `patience`.
    pub(crate) fn lead_within(&self, patience: Duration) -> Option<Leader<'_>> {
        self.flushing.try_lock_for(patience)
    }

    /// Hands the leader the records to write, so that all up to `seqno` are durable; `None` when they are.
    pub(crate) fn begin_flush(
        &self,
        leader: &Leader<'_>,
        seqno: Seqno,
    ) -> Result<Option<LogFlush>> {
        let durable = self.durable.load();
        if durable >= seqno {
            return Ok(None);
        }
        if let Some(cause) = &**leader {
            return Err(KvError::since(cause));
        }
        Ok(Some(self.tail_in_turn().take_unflushed(durable)))
    }

    /// Ends a flush. True: a segment is to be opened ahead of need, by [`Log::open_ahead`]. None is where `goes_on` says
    /// no.
    pub(crate) fn end_flush(
        &self,
        mut leader: Leader<'_>,
        flush: &LogFlush,
        flushed: Result<Vec<AlignedBuf>>,
        goes_on: impl FnOnce() -> bool,
    ) -> Result<bool> {
        *leader = flushed.as_ref().err().cloned().map(Arc::new);
        let buffers = flushed?;
        self.durable.store(flush.through);
        let begins = {
            let mut tail = self.tail_in_turn();
            tail.note_flushed(flush, buffers);
            self.unflushed.store(tail.unflushed_bytes(), Ordering::Relaxed);
            goes_on() && tail.begin_opening()
        };
        drop(leader);
        self.wake_writers();
        Ok(begins)
    }

    /// The last record, when the oldest pending one has waited for half of the window: the other half is for the
    /// device.
    pub(crate) fn due(&self) -> Option<Seqno> {
        let (pending_since, seqno) = {
            let tail = self.writer.lock();
            (tail.pending_since(), tail.last_seqno())
        };
        pending_since.filter(|since| self.clock.now() >= *since + self.window / 2).map(|_| seqno)
    }

    /// Waits until the log is to be flushed: much of it, or half of the window later. Returns the last record; `None`
    /// when that `is_over`.
    pub(crate) fn wait_for_due(&self, is_over: impl Fn() -> bool) -> Option<Seqno> {
        let mut tail = self.writer.lock();
        while !is_over() {
            let many = self.is_much(tail.unflushed_bytes());
            let due: Option<Nanos> = tail.pending_since().map(|since| since + self.window / 2);
            let now = self.clock.now();
            match due {
                Some(due) if many || due <= now => return Some(tail.last_seqno()),
                Some(due) => drop(self.pending.wait_for(&mut tail, due.since(now))),
                None => drop(self.pending.wait_for(&mut tail, IDLE)),
            }
        }
        None
    }

    // ---- opening segments --------------------------------------------------------------------

    /// Opens the segment that the log needs next. A failure here is met again, and reported, by the write that
    /// needs the segment.
    pub(crate) fn open_ahead(
        &self,
        tail: &mut MutexGuard<'_, LogTail>,
        open: impl FnOnce() -> Result<Arc<ValueBlock>>,
    ) {
        let segment = MutexGuard::unlocked(tail, open);
        tail.opened(segment.ok());
        self.wake_writers();
    }

    /// Opens segments ahead of need until that `is_over`.
    pub(crate) fn open_all_ahead(
        &self,
        is_over: impl Fn() -> bool,
        open: impl Fn() -> Result<Arc<ValueBlock>>,
    ) {
        let mut tail = self.writer.lock();
        while !is_over() {
            if tail.is_opening() {
                self.open_ahead(&mut tail, &open);
            } else {
                self.opening.wait_for(&mut tail, IDLE);
            }
        }
    }
}
