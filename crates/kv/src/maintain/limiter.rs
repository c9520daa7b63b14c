//! The limiter of maintenance's I/O, so that readers have most of the device: a step pauses between two pieces of work,
//! and has fewer commands under way.
//!
//! Compaction (`compact.rs`) asks after each piece of about a megabyte.

use std::time::Duration;

use esker_base::Nanos;

use crate::compaction::reader::DeviceShare;
use crate::compaction::window::READS;
use crate::engine::shared::Engine;
use crate::types::options::Maintenance;

/// Limiter of the I/O of a step.
pub(crate) struct IoLimiter<'a> {
    engine: &'a Engine,
    /// Whether the step can wait.
    can_wait: bool,
    /// When the piece of work under way began, and how much had been read by then.
    began: Nanos,
    reads: u64,
    /// Whether somebody has read during the last piece of work. Then the step has one command under way at a
    /// time: a read in between waits for no more than that.
    has_readers: bool,
    /// Whether staging takes the writers' data and spills are in no hurry, see [`Pacer::absorbs_burst`](crate::engine::pacer::Pacer).
    absorbs_burst: bool,
}

/// Shorter pieces of work are taken together.
pub(crate) const PIECE_LEAST: Duration = Duration::from_millis(1);

/// No pause is longer.
pub(crate) const PAUSE_MOST: Duration = Duration::from_millis(100);

impl<'a> IoLimiter<'a> {
    /// For a step that begins now, and that can wait or not.
    pub(crate) fn new(engine: &'a Engine, can_wait: bool) -> IoLimiter<'a> {
        let (began, reads) = (engine.options.clock.now(), engine.counters.reads());
        let (has_readers, absorbs_burst) = (false, false);
        IoLimiter { engine, can_wait, began, reads, has_readers, absorbs_burst }
    }

    /// Between two pieces of work: the share of the devices that the step has. It is one command at a time while others
    /// use them, and reads are short if it is in no hurry.
    pub(crate) fn share(&mut self) -> DeviceShare {
        self.pause();
        let is_limited = self.has_readers || self.absorbs_burst;
        let is_short = is_limited && self.engine.pacer.bears_backlog(&self.engine.view);
        DeviceShare { commands: if is_limited { 1 } else { READS }, is_short }
    }

    /// Between two pieces of work: sees whether somebody reads, and pauses then if that is right.
    pub(crate) fn pause(&mut self) {
        let engine = self.engine;
        let clock = &engine.options.clock;
        let took = clock.now().since(self.began);
        if engine.options.maintenance == Maintenance::Manual || took < PIECE_LEAST {
            return;
        }
        self.has_readers = engine.counters.reads() != self.reads;
        self.absorbs_burst = engine.pacer.absorbs_burst(&engine.log, &engine.view);
        clock.sleep(self.pause_after(took));
        (self.began, self.reads) = (clock.now(), engine.counters.reads());
    }

    /// How long a step waits for others after a piece of work: for readers three times as long as that took, and for
    /// writers that wait for the log as long. It waits not at all when writers are about to be slowed for it or
    /// wait for space, or somebody waits for the step to end; and less for readers when a spill waits for it.
    pub(crate) fn pause_after(&self, took: Duration) -> Duration {
        let engine = self.engine;
        let is_awaited = engine.life.is_closing()
            || engine.scheduler.manual.is_active()
            || engine.pacer.is_awaited();
        if is_awaited {
            return Duration::ZERO;
        }
        let times = match () {
            () if self.has_readers && self.can_wait => {
                pauses(engine.view.load().root_bytes(), engine.pacer.spill_bytes())
            }
            () if self.has_readers && engine.pacer.bears_backlog(&engine.view) => 3,
            () if self.absorbs_burst => 1,
            () => 0,
        };
        (times * took).min(PAUSE_MOST)
    }
}

/// How many times as long as it works a step pauses for readers, while the roots hold so many bytes.
pub(crate) fn pauses(root_bytes: u64, spill_bytes: u64) -> u32 {
    match root_bytes {
        _ if root_bytes < spill_bytes => 3,
        _ if root_bytes < 2 * spill_bytes => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_spills_wait_for_does_not_pause() {
        assert_eq!(
            [0, 3, 4, 7, 8, 100].map(|root_bytes| pauses(root_bytes, 4)),
            [3, 3, 1, 1, 0, 0]
        );
    }

    #[test]
    fn a_step_for_which_a_writer_waits_does_not_pause() {
        let (db, ..) = crate::testing::kvdb();
        let took = Duration::from_millis(2);
        let pause = |can_wait| {
            let limiter = IoLimiter { has_readers: true, ..IoLimiter::new(&db.engine, can_wait) };
            limiter.pause_after(took)
        };
        assert_eq!((pause(true), pause(false)), (3 * took, Duration::ZERO));
        assert_eq!(db.engine.pacer.for_space(|| pause(true)), Duration::ZERO);
        assert_eq!(
            IoLimiter::new(&db.engine, true).pause_after(took),
            Duration::ZERO,
            "nobody reads"
        );
    }
}
