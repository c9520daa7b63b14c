//! Flushing the log, and opening its segments.
//!
//! Writers, maintenance and callers of `sync` share flushes: one leads, and those that wait for it find their records
//! durable. Locks: `flushing`, then `writer`.

use std::sync::Arc;
use std::time::Duration;

use esker_base::units::to_usize;

use crate::engine::shared::Engine;
use crate::log::tail::{LogTail, new_segment};
use crate::media::space::Purpose;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::types::error::{KvError, Result};
use crate::types::ids::Seqno;
use crate::types::options::Maintenance;
use crate::types::options::WriteOptions;
use crate::values::block::ValueBlock;

impl Engine {
    /// Makes every record up to `seqno` durable, together with records that others have appended since.
    pub(crate) fn flush_through(&self, seqno: Seqno) -> Result<()> {
        self.flush_as(self.flushing.lock(), seqno)
    }

    /// Does so where the options of a write want it.
    pub(crate) fn make_durable(&self, seqno: Seqno, options: &WriteOptions) -> Result<()> {
        if options.durable { self.flush_through(seqno) } else { Ok(()) }
    }

    /// Makes every record durable that can be seen.
    pub(crate) fn sync(&self) -> Result<()> {
        self.check_running()?;
        self.flush_through(self.visible.load())
    }

    /// The same as [`Engine::flush_through`], by the thread that leads.
    pub(crate) fn flush_as(
        &self,
        mut leader: MutexGuard<'_, Option<Arc<KvError>>>,
        seqno: Seqno,
    ) -> Result<()> {
        let durable = self.durable.load();
        if durable >= seqno {
            return Ok(());
        }
        if let Some(cause) = &*leader {
            return Err(KvError::since(cause));
        }
        let mut flush = self.lock_in_turn().take_unflushed(durable);
        // How long a small one takes says nothing of how fast the log is.
        let (clock, is_large) = (&self.options.clock, self.is_much_of_log(flush.bytes()));
        if is_large {
            self.write_controller.log_rate.begins(clock.now());
        }
        let flushed =
            self.stop_at_any(self.caught("a flush of the log", || flush.write_and_flush()));
        self.write_controller.log_rate.drained(clock.now(), flush.bytes());
        self.write_controller.log_rate.rests();
        *leader = flushed.as_ref().err().cloned().map(Arc::new);
        let buffers = flushed?;
        self.durable.store(flush.through);
        self.counters.log_flushes.add(1);
        let begins = {
            let mut writer = self.lock_in_turn();
            writer.note_flushed(&flush, buffers);
            self.write_controller.unflushed.store(writer.unflushed_bytes(), Ordering::Relaxed);
            self.stopped().is_none() && writer.begin_opening()
        };
        drop(leader);
        self.room.notify_all();
        if begins {
            match self.options.maintenance {
                // That may wait for discards and for the manifest, and writes acknowledged meanwhile for a flush.
                Maintenance::Threads => {
                    self.opening.notify_one();
                }
                Maintenance::Manual => self.open_ahead(&mut self.writer.lock()),
            }
        }
        Ok(())
    }

    /// Whether so many bytes are much of the log that may not be durable.
    pub(crate) fn is_much_of_log(&self, bytes: u64) -> bool {
        bytes >= self.options.durability_limit() / 4
    }

    /// Opens the segment that the log needs next. A failure here is met again, and reported, by the write that
    /// needs the segment.
    pub(crate) fn open_ahead(&self, log: &mut MutexGuard<'_, LogTail>) {
        let size = to_usize(self.tuning.frame_bytes);
        let segment = MutexGuard::unlocked(log, || self.open_segment(Purpose::User, size));
        log.opened(segment.ok());
        self.room.notify_all();
    }

    pub(crate) fn open_segment(&self, purpose: Purpose, size: usize) -> Result<Arc<ValueBlock>> {
        if purpose == Purpose::User {
            self.keep_reserve(self.tuning.block_bytes)?;
        }
        let (segment, edit) = new_segment(&self.classes, &self.ids, &self.tuning, purpose, size)?;
        self.commit(vec![edit])?;
        Ok(segment)
    }
}

/// Waits of one writer for another are long from this on: shorter ones are the cost of a lock.
pub(crate) const LONG_WAIT: Duration = Duration::from_millis(1);

impl Engine {
    /// Takes the writer's lock. After [`LONG_WAIT`] of waiting, the next writer that releases the lock hands it
    /// over (fair unlock): writers without a pause would retake it before the woken waiter has come to run.
    pub(crate) fn lock_in_turn(&self) -> MutexGuard<'_, LogTail> {
        self.writer.try_lock_for(LONG_WAIT).unwrap_or_else(|| {
            self.waiting_long.fetch_add(1, Ordering::Relaxed);
            let log = self.writer.lock();
            self.waiting_long.fetch_sub(1, Ordering::Relaxed);
            log
        })
    }

    /// Flushes the log when its oldest pending record has waited for half of the window: the other
    /// half is for the device.
    pub(crate) fn flush_when_due(&self) -> Result<()> {
        let (pending_since, seqno) = {
            let log = self.writer.lock();
            (log.pending_since(), log.last_seqno())
        };
        let half = Duration::from_millis(self.options.durability.ms) / 2;
        match pending_since {
            Some(since) if self.options.clock.now() >= since + half => self.flush_through(seqno),
            _ => Ok(()),
        }
    }
}
