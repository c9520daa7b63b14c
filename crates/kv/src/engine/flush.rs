//! Flushing the log, and opening its segments.
//!
//! Writers, maintenance and callers of `sync` share flushes: one leads, and those that wait for it find their records
//! durable.

use std::sync::Arc;

use esker_base::units::to_usize;

use crate::engine::shared::Engine;
use crate::log::open::Leader;
use crate::log::tail::new_segment;
use crate::media::space::Purpose;
use crate::types::error::Result;
use crate::types::ids::Seqno;
use crate::types::options::{Maintenance, WriteOptions};
use crate::values::block::ValueBlock;

impl Engine {
    /// Makes every record up to `seqno` durable, together with records that others have appended since.
    pub(crate) fn flush_through(&self, seqno: Seqno) -> Result<()> {
        self.flush_as(self.log.lead(), seqno)
    }

    /// Does so where the options of a write want it.
    pub(crate) fn make_durable(&self, seqno: Seqno, options: &WriteOptions) -> Result<()> {
        if options.durable { self.flush_through(seqno) } else { Ok(()) }
    }

    /// Makes every record durable that can be seen.
    pub(crate) fn sync(&self) -> Result<()> {
        self.life.check_running()?;
        self.flush_through(self.log.visible())
    }

    /// The same as [`Engine::flush_through`], by the thread that leads.
    pub(crate) fn flush_as(&self, leader: Leader<'_>, seqno: Seqno) -> Result<()> {
        let Some(mut flush) = self.log.begin_flush(&leader, seqno)? else { return Ok(()) };
        if self.log.is_much(flush.bytes()) {
            self.pacer.flush_begins();
        }
        let flushed =
            self.stop_at_any(self.caught("a flush of the log", || flush.write_and_flush()));
        self.pacer.flush_ends(flush.bytes());
        if flushed.is_ok() {
            self.counters.log_flushes.add(1);
        }
        let goes_on = || self.life.stopped().is_none();
        if self.log.end_flush(leader, &flush, flushed, goes_on)? {
            match self.options.maintenance {
                // That may wait for discards and for the manifest, and writes acknowledged meanwhile for a flush.
                Maintenance::Threads => self.log.wake_opener(),
                Maintenance::Manual => {
                    self.log.open_ahead(&mut self.log.tail(), || self.open_next_segment());
                }
            }
        }
        Ok(())
    }

    /// Flushes the log when its oldest pending record has waited for half of the window.
    pub(crate) fn flush_when_due(&self) -> Result<()> {
        self.log.due().map_or(Ok(()), |seqno| self.flush_through(seqno))
    }

    /// Opens a segment ahead of need.
    pub(crate) fn open_next_segment(&self) -> Result<Arc<ValueBlock>> {
        self.open_segment(Purpose::User, to_usize(self.tuning.frame_bytes))
    }

    pub(crate) fn open_segment(&self, purpose: Purpose, size: usize) -> Result<Arc<ValueBlock>> {
        if purpose == Purpose::User {
            self.reserve.keep(&self.view, self.tuning.block_bytes)?;
        }
        let (segment, edit) = new_segment(&self.classes, &self.ids, &self.tuning, purpose, size)?;
        self.commit(vec![edit])?;
        Ok(segment)
    }
}
