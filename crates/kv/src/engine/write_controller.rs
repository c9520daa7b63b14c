//! The write controller's state: the rates at which ingest, spills and log drain, and when the next byte may be written.
//! `write/throttle.rs` slows writers by it.

use std::time::Duration;

use esker_base::Nanos;

use crate::engine::rate::RateEstimator;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Controller of a KVDB's writes.
#[derive(Default)]
pub(crate) struct WriteController {
    /// When the next byte may be written, in nanoseconds.
    pub(crate) next_ns: AtomicU64,
    /// How long ingests take lately: nanoseconds for 1,024 bytes of a memtable.
    ingest_ns: AtomicU64,
    /// When the ingest under way began, in nanoseconds; 0 when none is.
    began_ns: AtomicU64,
    /// When the last one ended, in nanoseconds.
    ended_ns: AtomicU64,
    /// How fast spills empty the roots.
    pub(crate) spill_rate: RateEstimator,
    /// How fast the log is written.
    pub(crate) log_rate: RateEstimator,
    /// By how much the media hold more than the goal for space, in percent of the live bytes.
    pub(crate) over_goal: AtomicU64,
    /// Writers that wait for space.
    pub(crate) without_space: AtomicU64,
}

impl WriteController {
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
    pub(crate) fn ingest_ns(&self, now: Nanos, bytes: u64) -> u64 {
        let lately = self.ingest_ns.load(Ordering::Relaxed);
        lately.max(self.under_way_ns(now, bytes)).max(INGEST_NS)
    }
}

/// An ingest is never believed to be quicker than this, in nanoseconds for 1,024 bytes: 200 MB/s.
const INGEST_NS: u64 = 5_000;
/// Writers are quiet when nothing was ingested for so long.
const QUIET: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ingest_tells_how_long_they_take_and_others_change_that_slowly() {
        let controller = WriteController::default();
        let lately = || controller.ingest_ns.load(Ordering::Relaxed);
        let ingest = |ms: u64| {
            controller.ingest_begins(Nanos(7));
            controller.ingest_ends(Nanos(7 + ms * 1_000_000), 10 << 20);
        };
        ingest(400);
        assert_eq!(lately(), 39_062);
        ingest(800);
        assert_eq!(lately(), 48_827);
    }

    #[test]
    fn an_ingest_that_takes_longer_than_others_did_slows_writers_before_it_ends() {
        let controller = WriteController::default();
        assert_eq!(controller.ingest_ns(Nanos(1 << 40), 10 << 20), INGEST_NS);
        controller.ingest_begins(Nanos(7));
        assert_eq!(controller.ingest_ns(Nanos(8), 10 << 20), INGEST_NS);
        assert_eq!(controller.ingest_ns(Nanos(400_000_007), 10 << 20), 39_062);
    }
}
