//! Slowing writers down: smoothly, and early enough that they need not be stopped.
//!
//! Each of three queues has a length from which on writers are slowed, by more the longer it grows:
//! kvsets that the root holds beyond those that maintenance is given time for; the memtable that
//! fills while the one before is being ingested; bytes of the log that are not durable yet. Together
//! all writers of a KVDB get the pace that the slowest queue sets.

use std::time::Duration;

use crate::engine::Engine;
use crate::options::Maintenance;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::view::View;

/// The pace of a KVDB's writers.
#[derive(Default)]
pub(crate) struct Pace {
    /// When the next byte may be written, in nanoseconds.
    next_ns: AtomicU64,
    /// How long ingests take lately: nanoseconds for 1,024 bytes of a memtable.
    ingest_ns: AtomicU64,
}

/// A byte's time when the root holds three times the kvsets at which it spills: 40 MB/s.
const DEBT_NS: u64 = 25;
/// A byte's time when as much of the log as may be is not durable: 10 MB/s, for a device that takes
/// its time.
const WINDOW_NS: u64 = 100;
/// An ingest is never believed to be quicker than this, in nanoseconds for 1,024 bytes: 200 MB/s.
const INGEST_NS: u64 = 5_000;
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
    /// How many kvsets the fullest root holds beyond those that maintenance is given time for.
    pub(crate) fn debt(&self, view: &View) -> usize {
        let deepest = view.trees.values().map(|tree| tree.root.len()).max().unwrap_or(0);
        deepest.saturating_sub(2 * self.tuning.spill_kvsets)
    }

    /// What a memtable may grow to while the one before is being ingested, in bytes.
    pub(crate) fn memtable_most(&self) -> u64 {
        self.tuning.memtable_bytes + self.tuning.memtable_bytes / 4
    }

    /// Notes how long an ingest of `bytes` took.
    pub(crate) fn ingested_in(&self, bytes: u64, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let ns = took.saturating_mul(1024) / bytes.max(1 << 20);
        let before = self.pace.ingest_ns.load(Ordering::Relaxed);
        self.pace.ingest_ns.store((3 * before + ns) / 4, Ordering::Relaxed);
    }

    /// How many nanoseconds each 1,000 bytes are to take now; 0 when nothing is behind.
    fn pace_ns(&self, unflushed: u64) -> u64 {
        let view = self.view.load();
        let scale = self.tuning.spill_kvsets as u64;
        let debt = pressure(self.debt(&view) as u64, 0, scale) * DEBT_NS;
        let limit = self.options.durability_limit();
        // Beyond the limit, the writer has waited for the flush itself.
        let waits = self.options.durability_ms == 0 || unflushed > limit;
        let window = if waits { 0 } else { pressure(unflushed, limit / 2, limit) * WINDOW_NS };
        let most = self.tuning.memtable_bytes;
        let memtable = if view.frozen.is_empty() {
            0
        } else {
            // At the end of the memtable, writers are four times slower than ingest.
            let ingest = self.pace.ingest_ns.load(Ordering::Relaxed).max(INGEST_NS);
            pressure(view.active.bytes(), most / 2, most) * 4 * ingest / 1024
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_begins_gently_and_has_an_end() {
        assert_eq!(pressure(50, 50, 100), 0);
        assert_eq!(pressure(40, 50, 100), 0);
        assert!(pressure(55, 50, 100) <= 10);
        assert_eq!(pressure(100, 50, 100), 1000);
        assert_eq!(pressure(u64::MAX / 1000, 50, 100), 10_000);
    }
}
