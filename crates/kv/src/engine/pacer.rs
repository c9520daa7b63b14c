//! The pacer of writers: they are slowed down smoothly, and early enough that a write stall is rare.
//!
//! Each of three queues has a length from which on writers are slowed, by more the longer it grows: bytes that the roots
//! hold beyond those that memory and staging bear; the memtable that fills while the one before is being ingested;
//! bytes of the log that are not durable yet. Writers get a multiple of the rate at which a queue has really been
//! draining: four times as much where it begins to be long, nine tenths where it is full. All writers of a KVDB together
//! get the rate that the slowest queue sets.

use std::sync::Arc;
use std::time::Duration;

use esker_base::Clock;

use crate::engine::counters::Counter;
use crate::engine::rate::{IngestRate, RateEstimator};
use crate::log::open::Log;
use crate::media::classes::Classes;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tree::current::CurrentView;
use crate::tree::view::View;
use crate::types::options::{Maintenance, Options, Tuning};

/// Pacer of a KVDB's writers.
pub(crate) struct Pacer {
    clock: Clock,
    tuning: Tuning,
    classes: Arc<Classes>,
    /// How many bytes of the log may not be durable; 0 where each write waits until it is.
    durability_limit: u64,
    is_manual: bool,
    /// When the next byte may be written, in nanoseconds.
    next_ns: AtomicU64,
    ingests: IngestRate,
    /// How fast spills empty the roots.
    spill_rate: RateEstimator,
    /// How fast the log is written.
    log_rate: RateEstimator,
    /// By how much the media hold more than the goal for space, in percent of the live bytes.
    over_goal: AtomicU64,
    /// Writers that wait for space.
    without_space: AtomicU64,
    /// How long writers were slowed down, in nanoseconds, for each queue.
    paced_ns: [Counter; 3],
}

/// A queue for which writers are slowed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacedBy {
    /// The roots hold much.
    Spills,
    /// A memtable is being ingested.
    Ingest,
    /// Much of the log is not durable.
    Log,
}

/// So much over the goal for space, in percent of the live bytes, staging bears nothing.
const OVER_GOAL: u64 = 50;

/// The time for 1,000 bytes of a queue whose rate is not known yet: 200 MB/s.
const UNKNOWN_NS: u64 = 5_000;

/// Shorter delays are left until they add up to this.
pub(crate) const SLEEP_LEAST_NS: u64 = 500_000;

/// No write is delayed by more.
pub(crate) const SLEEP_MOST_NS: u64 = 20_000_000;

/// The time for 1,000 bytes while a queue is `length` long that is long from `from` on and full at `full`, and drains
/// 1,000 bytes in `drain_ns`; 0 when it is not long.
fn delay_ns(length: u64, from: u64, full: u64, drain_ns: u64) -> u64 {
    if length <= from {
        return 0;
    }
    let over = (length - from).saturating_mul(1000) / full.saturating_sub(from).max(1);
    let share = 250 + over.min(3000) * 861 / 1000;
    drain_ns.saturating_mul(share) / 1000
}

impl Pacer {
    pub(crate) fn new(options: &Options, classes: Arc<Classes>) -> Pacer {
        let waits = options.durability.ms == 0;
        Pacer {
            clock: options.clock.clone(),
            tuning: options.tuning(),
            classes,
            durability_limit: if waits { 0 } else { options.durability_limit() },
            is_manual: options.maintenance == Maintenance::Manual,
            next_ns: AtomicU64::new(0),
            ingests: IngestRate::default(),
            spill_rate: RateEstimator::default(),
            log_rate: RateEstimator::default(),
            over_goal: AtomicU64::new(0),
            without_space: AtomicU64::new(0),
            paced_ns: Default::default(),
        }
    }

    // ---- ingests -----------------------------------------------------------------------------

    /// Notes that an ingest begins.
    pub(crate) fn ingest_begins(&self) {
        self.ingests.begins(self.clock.now());
    }

    /// Learns from an ingest of `bytes` how long they take.
    pub(crate) fn ingest_ends(&self, bytes: u64) {
        self.ingests.ends(self.clock.now(), bytes);
    }

    /// Whether writers take long to fill a memtable now, or write nothing.
    pub(crate) fn is_quiet(&self) -> bool {
        self.ingests.is_quiet(self.clock.now())
    }

    /// Size to which a memtable may grow while the one before is being ingested, in bytes.
    pub(crate) fn memtable_most(&self) -> u64 {
        self.tuning.memtable_bytes + self.tuning.memtable_bytes / 4
    }

    // ---- flushes of the log ------------------------------------------------------------------

    /// Notes that a large flush begins: how long a small one takes says nothing of how fast the log is.
    pub(crate) fn flush_begins(&self) {
        self.log_rate.begins(self.clock.now());
    }

    /// Learns from a flush of `bytes` how fast the log is.
    pub(crate) fn flush_ends(&self, bytes: u64) {
        self.log_rate.drained(self.clock.now(), bytes);
        self.log_rate.rests();
    }

    // ---- spills, and the backlog in the roots ------------------------------------------------

    /// Bytes in the roots at which the fullest one spills. Each write asks.
    pub(crate) fn spill_bytes(&self) -> u64 {
        self.tuning.spill_bytes_on(self.classes.log_capacity_bytes())
    }

    /// The soft and the hard limit of the backlog, in bytes: writers are slowed from the first one on, and the second one
    /// is too much. They are some more than roots spill at; and where there is staging, half and three quarters of its
    /// room, or less while the media hold more garbage than the goal for space allows.
    fn backlog_limits(&self) -> (u64, u64) {
        let spill_bytes = self.spill_bytes();
        let left = OVER_GOAL.saturating_sub(self.over_goal.load(Ordering::Relaxed));
        let room = self.classes.staging_room() / OVER_GOAL * left;
        ((2 * spill_bytes).max(room / 2), (3 * spill_bytes).max(room / 4 * 3))
    }

    /// Notes by how much the media exceed the goal for space, in percent.
    pub(crate) fn set_over_goal(&self, percent: u64) {
        self.over_goal.store(percent, Ordering::Relaxed);
    }

    /// Whether staging bears more than the roots hold, so that spills are in no hurry.
    pub(crate) fn bears_backlog(&self, view: &CurrentView) -> bool {
        self.classes.staging_room() > 0 && view.load().root_bytes() < self.backlog_limits().0
    }

    /// Whether writers wait for the log, and staging can hold the data that does not spill meanwhile.
    pub(crate) fn absorbs_burst(&self, log: &Log, view: &CurrentView) -> bool {
        log.is_much(log.unflushed_bytes()) && self.bears_backlog(view)
    }

    /// Whether spills have work from now on: else time that passes says nothing of how fast they are.
    pub(crate) fn note_backlog(&self, view: &CurrentView) {
        if view.load().root_bytes() < self.spill_bytes() {
            self.spill_rate.rests();
        } else {
            self.spill_rate.begins(self.clock.now());
        }
    }

    /// Notes that a spill has written `bytes` more.
    pub(crate) fn spill_wrote(&self, bytes: u64) {
        self.spill_rate.wrote(self.clock.now(), bytes);
    }

    /// Learns from a spill that emptied the roots by `drained` bytes and wrote `written` ones.
    pub(crate) fn spill_ends(&self, drained: u64, written: u64) {
        self.spill_rate.learn(drained, written);
    }

    // ---- writers -----------------------------------------------------------------------------

    /// Does the work of maintenance for a writer that waits for space: no step pauses meanwhile.
    pub(crate) fn for_space<T>(&self, work: impl FnOnce() -> T) -> T {
        self.without_space.fetch_add(1, Ordering::Relaxed);
        let done = work();
        self.without_space.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Whether a writer waits for space.
    pub(crate) fn is_awaited(&self) -> bool {
        self.without_space.load(Ordering::Relaxed) > 0
    }

    /// How long writers were slowed down for a queue, in nanoseconds.
    pub(crate) fn paced_ns(&self, by: PacedBy) -> u64 {
        self.paced_ns[by as usize].get()
    }

    /// How many nanoseconds each 1,000 bytes are to take now, and for which queue; `None` when nothing is behind.
    fn slowest_ns(&self, view: &View, unflushed: u64) -> Option<(u64, PacedBy)> {
        let (from, full) = self.backlog_limits();
        let spill_ns = self.spill_rate.ns().unwrap_or(UNKNOWN_NS);
        let spills = delay_ns(view.root_bytes(), from, full, spill_ns);
        let limit = self.durability_limit;
        // Beyond the limit, the writer has waited for the flush itself.
        let waits = unflushed > limit;
        let log_ns = self.log_rate.ns().unwrap_or(UNKNOWN_NS);
        let log = if waits { 0 } else { delay_ns(unflushed, limit / 4, limit / 2, log_ns) };
        let all = [
            (spills, PacedBy::Spills),
            (log, PacedBy::Log),
            (self.ingest_delay_ns(view), PacedBy::Ingest),
        ];
        all.into_iter().max_by_key(|(ns, _)| *ns).filter(|(ns, _)| *ns > 0)
    }

    fn ingest_delay_ns(&self, view: &View) -> u64 {
        let most = self.tuning.memtable_bytes;
        match view.frozen.last() {
            Some(frozen) if view.active.bytes() > most / 2 => {
                let ns = self.ingests.ns(self.clock.now(), frozen.table.bytes());
                // At the end of the memtable, writers are slower than ingest.
                delay_ns(view.active.bytes(), most / 2, most, ns * 1000 / 1024)
            }
            _ => 0,
        }
    }

    /// Slows a writer down that has written `size` bytes, when something is behind.
    pub(crate) fn throttle(&self, view: &CurrentView, size: usize, unflushed: u64) {
        if self.is_manual {
            return;
        }
        let Some((each, queue)) = self.slowest_ns(&view.load(), unflushed) else {
            return;
        };
        let now = self.clock.now().0;
        let span = (size as u64).saturating_mul(each) / 1000;
        // A writer that comes late owes nothing for the time that nobody used, nor more than two delays.
        let after = |next: u64| (next.max(now) + span).min(now + 2 * SLEEP_MOST_NS);
        let owed = self
            .next_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(after(next)))
            .map_or(0, |before| after(before) - now);
        if owed >= SLEEP_LEAST_NS {
            let sleep = owed.min(SLEEP_MOST_NS);
            self.clock.sleep(Duration::from_nanos(sleep));
            self.paced_ns[queue as usize].add(sleep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_goes_from_four_times_the_drain_to_less_than_it() {
        assert_eq!(delay_ns(50, 50, 100, 1000), 0);
        assert_eq!(delay_ns(40, 50, 100, 1000), 0);
        assert_eq!(delay_ns(51, 50, 100, 1000), 267);
        assert_eq!(delay_ns(100, 50, 100, 1000), 1111);
        assert!(
            delay_ns(u64::MAX / 1000, 50, 100, 1000) > 2500,
            "a queue that is too long becomes shorter"
        );
        assert_eq!(delay_ns(u64::MAX, 50, 50, u64::MAX), u64::MAX / 1000);
    }
}
