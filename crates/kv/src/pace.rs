//! Slowing writers down: smoothly, and early enough that they need not be stopped. And how steps of
//! maintenance give way, so that readers have most of the device.
//!
//! Each of three queues has a length from which on writers are slowed, by more the longer it grows:
//! bytes that the roots hold beyond those that maintenance is given time for; the memtable that
//! fills while the one before is being ingested; bytes of the log that are not durable yet. Together
//! all writers of a KVDB get the pace that the slowest queue sets.

use std::time::Duration;

use esker_base::Nanos;

use crate::engine::Engine;
use crate::options::Maintenance;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The pace of a KVDB's writers.
#[derive(Default)]
pub(crate) struct Pace {
    /// When the next byte may be written, in nanoseconds.
    next_ns: AtomicU64,
    /// How long ingests take lately: nanoseconds for 1,024 bytes of a memtable.
    ingest_ns: AtomicU64,
    /// When the ingest under way began, in nanoseconds; 0 when none is.
    began_ns: AtomicU64,
    /// When the last one ended, in nanoseconds.
    ended_ns: AtomicU64,
    /// Writers that wait for space.
    without_space: AtomicU64,
}

impl Pace {
    /// Notes that an ingest begins.
    pub(crate) fn ingest_begins(&self, now: Nanos) {
        self.began_ns.store(now.0.max(1), Ordering::Relaxed);
    }

    /// Learns from an ingest of `bytes` how long they take.
    pub(crate) fn ingest_ends(&self, now: Nanos, bytes: u64) {
        let ns = self.under_way_ns(now, bytes.max(1 << 20));
        self.began_ns.store(0, Ordering::Relaxed);
        self.ended_ns.store(now.0, Ordering::Relaxed);
        // The first one says more than nothing does.
        let lately = match self.ingest_ns.load(Ordering::Relaxed) {
            0 => ns,
            before => (3 * before + ns) / 4,
        };
        self.ingest_ns.store(lately, Ordering::Relaxed);
    }

    /// Does the work of maintenance for a writer that waits for space: no step pauses meanwhile.
    pub(crate) fn for_space<T>(&self, work: impl FnOnce() -> T) -> T {
        self.without_space.fetch_add(1, Ordering::Relaxed);
        let done = work();
        self.without_space.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Whether writers take long to fill a memtable now, or write nothing.
    pub(crate) fn is_quiet(&self, now: Nanos) -> bool {
        let ended = Nanos(self.ended_ns.load(Ordering::Relaxed));
        self.began_ns.load(Ordering::Relaxed) == 0 && now.since(ended) >= QUIET
    }

    /// How long the ingest of `bytes` that is under way has taken, in nanoseconds for 1,024 of them.
    fn under_way_ns(&self, now: Nanos, bytes: u64) -> u64 {
        match self.began_ns.load(Ordering::Relaxed) {
            0 => 0,
            began => now.0.saturating_sub(began).saturating_mul(1024) / bytes.max(1),
        }
    }

    /// How long an ingest of `bytes` takes: as lately, or longer when it has.
    fn ingest_ns(&self, now: Nanos, bytes: u64) -> u64 {
        let lately = self.ingest_ns.load(Ordering::Relaxed);
        lately.max(self.under_way_ns(now, bytes)).max(INGEST_NS)
    }
}

/// A byte's time when the roots hold three times the bytes at which they spill: 40 MB/s.
const DEBT_NS: u64 = 25;
/// A byte's time when as much of the log as may be is not durable: 10 MB/s, for a device that takes
/// its time.
const WINDOW_NS: u64 = 100;
/// An ingest is never believed to be quicker than this, in nanoseconds for 1,024 bytes: 200 MB/s.
const INGEST_NS: u64 = 5_000;
/// Writers are quiet when nothing was ingested for so long.
const QUIET: Duration = Duration::from_secs(5);
/// Shorter delays are left until they add up to this.
const SLEEP_LEAST_NS: u64 = 500_000;
/// No write is delayed by more.
const SLEEP_MOST_NS: u64 = 4_000_000;

/// `length` beyond `from`, as a share of what lies between `from` and `full`, squared, in thousandths.
fn pressure(length: u64, from: u64, full: u64) -> u64 {
    let over = length.saturating_sub(from).saturating_mul(1000) / (full - from).max(1);
    (over.saturating_mul(over) / 1000).min(10_000)
}

impl Engine {
    /// What a memtable may grow to while the one before is being ingested, in bytes.
    pub(crate) fn memtable_most(&self) -> u64 {
        self.tuning.memtable_bytes + self.tuning.memtable_bytes / 4
    }

    /// How many nanoseconds each 1,000 bytes are to take now; 0 when nothing is behind.
    fn pace_ns(&self, unflushed: u64) -> u64 {
        let view = self.view.load();
        let spill_bytes = self.spill_bytes();
        // As much as it spills is what maintenance is given time for.
        let debt = pressure(view.root_bytes(), 2 * spill_bytes, 3 * spill_bytes) * DEBT_NS;
        let limit = self.options.durability_limit();
        // Beyond the limit, the writer has waited for the flush itself.
        let waits = self.options.durability_ms == 0 || unflushed > limit;
        let window = if waits { 0 } else { pressure(unflushed, limit / 2, limit) * WINDOW_NS };
        let most = self.tuning.memtable_bytes;
        let memtable = match view.frozen.last() {
            Some(frozen) if view.active.bytes() > most / 2 => {
                // At the end of the memtable, writers are four times slower than ingest.
                let now = self.options.clock.now();
                let ingest = self.pace.ingest_ns(now, frozen.table.bytes());
                pressure(view.active.bytes(), most / 2, most) * 4 * ingest / 1024
            }
            _ => 0,
        };
        debt.max(window).max(memtable)
    }

    /// Slows a writer down that has written `size` bytes, when something is behind.
    pub(crate) fn pace(&self, size: usize, unflushed: u64) {
        if self.options.maintenance == Maintenance::Manual {
            return;
        }
        let each = self.pace_ns(unflushed);
        if each == 0 {
            return;
        }
        let now = self.options.clock.now().0;
        let next = &self.pace.next_ns;
        let span = (size as u64).saturating_mul(each) / 1000;
        // Whoever comes late owes nothing for the time that nobody used, nor more than one delay.
        let after = |next: u64| (next.max(now) + span).min(now + 2 * SLEEP_MOST_NS);
        let owed = next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(after(next)))
            .map_or(0, |before| after(before) - now);
        if owed >= SLEEP_LEAST_NS {
            let sleep = owed.min(SLEEP_MOST_NS);
            self.options.clock.sleep(Duration::from_nanos(sleep));
            self.counters.paced_ns.add(sleep);
        }
    }
}

/// A step, and how it gives way to readers.
pub(crate) struct GivingWay<'a> {
    engine: &'a Engine,
    /// Whether the step can wait.
    can_wait: bool,
    /// When the piece of work under way began, and how much had been read by then.
    began: Nanos,
    reads: u64,
    has_readers: bool,
}

/// Shorter pieces of work are taken together.
const PIECE_LEAST: Duration = Duration::from_millis(1);
/// No pause is longer.
const PAUSE_MOST: Duration = Duration::from_millis(100);

impl<'a> GivingWay<'a> {
    /// For a step that begins now, and that can wait or not.
    pub(crate) fn new(engine: &'a Engine, can_wait: bool) -> GivingWay<'a> {
        let (began, reads) = (engine.options.clock.now(), engine.counters.reads());
        GivingWay { engine, can_wait, began, reads, has_readers: false }
    }

    /// Whether somebody has read during the last piece of work. Then the step has one command under way at a
    /// time: what is read in between waits for no more than that.
    pub(crate) fn has_readers(&self) -> bool {
        self.has_readers
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
        if self.has_readers {
            clock.sleep(self.pause_after(took));
        }
        (self.began, self.reads) = (clock.now(), engine.counters.reads());
    }

    /// How long a step that can wait waits for readers after a piece of work: three times as long as that
    /// took; less when a spill is due, which waits for this step, and not at all when writers are about to be
    /// slowed for it or wait for space, or somebody waits for the step to end.
    fn pause_after(&self, took: Duration) -> Duration {
        let engine = self.engine;
        let is_awaited = engine.closing.load(Ordering::Acquire)
            || engine.compact_is_active()
            || engine.pace.without_space.load(Ordering::Relaxed) > 0;
        if !self.can_wait || is_awaited {
            return Duration::ZERO;
        }
        let times = pauses(engine.view.load().root_bytes(), engine.spill_bytes());
        (times * took).min(PAUSE_MOST)
    }
}

/// How many times as long as it works a step pauses for readers, while the roots hold so many bytes.
fn pauses(root_bytes: u64, spill_bytes: u64) -> u32 {
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
        let pause = |can_wait| GivingWay::new(&db.engine, can_wait).pause_after(took);
        assert_eq!((pause(true), pause(false)), (3 * took, Duration::ZERO));
        assert_eq!(db.engine.pace.for_space(|| pause(true)), Duration::ZERO);
        assert_eq!(pause(true), 3 * took);
    }

    #[test]
    fn the_first_ingest_tells_how_long_they_take_and_others_change_that_slowly() {
        let pace = Pace::default();
        let lately = || pace.ingest_ns.load(Ordering::Relaxed);
        let ingest = |ms: u64| {
            pace.ingest_begins(Nanos(7));
            pace.ingest_ends(Nanos(7 + ms * 1_000_000), 10 << 20);
        };
        ingest(400);
        assert_eq!(lately(), 39_062);
        ingest(800);
        assert_eq!(lately(), 48_827);
    }

    #[test]
    fn an_ingest_that_takes_longer_than_others_did_slows_writers_before_it_ends() {
        let pace = Pace::default();
        assert_eq!(pace.ingest_ns(Nanos(1 << 40), 10 << 20), INGEST_NS);
        pace.ingest_begins(Nanos(7));
        assert_eq!(pace.ingest_ns(Nanos(8), 10 << 20), INGEST_NS);
        assert_eq!(pace.ingest_ns(Nanos(400_000_007), 10 << 20), 39_062);
    }

    #[test]
    fn pressure_begins_gently_and_has_an_end() {
        assert_eq!(pressure(50, 50, 100), 0);
        assert_eq!(pressure(40, 50, 100), 0);
        assert!(pressure(55, 50, 100) <= 10);
        assert_eq!(pressure(100, 50, 100), 1000);
        assert_eq!(pressure(u64::MAX / 1000, 50, 100), 10_000);
    }
}
