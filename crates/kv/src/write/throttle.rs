//! The pace of writers: they are slowed down smoothly, and early enough that a write stall is rare.
//!
//! Each of three queues has a length from which on writers are slowed, by more the longer it grows: bytes that the roots
//! hold beyond those that maintenance is given time for; the memtable that fills while the one before is being ingested;
//! bytes of the log that are not durable yet. All writers of a KVDB together get the pace that the slowest queue sets.

use std::time::Duration;

use crate::engine::shared::Engine;
use crate::sync::atomic::Ordering;
use crate::types::options::Maintenance;

/// A byte's time when the roots hold three times the bytes at which they spill: 40 MB/s.
pub(crate) const DEBT_NS: u64 = 25;

/// A byte's time when as much of the log as may be is not durable: 10 MB/s, for a device that takes
/// its time.
pub(crate) const WINDOW_NS: u64 = 100;

/// Shorter delays are left until they add up to this.
pub(crate) const SLEEP_LEAST_NS: u64 = 500_000;

/// No write is delayed by more.
pub(crate) const SLEEP_MOST_NS: u64 = 4_000_000;

/// `length` beyond `from`, as a share of what lies between `from` and `full`, squared, in thousandths.
pub(crate) fn pressure(length: u64, from: u64, full: u64) -> u64 {
    let over = length.saturating_sub(from).saturating_mul(1000) / (full - from).max(1);
    (over.saturating_mul(over) / 1000).min(10_000)
}

impl Engine {
    /// What a memtable may grow to while the one before is being ingested, in bytes.
    pub(crate) fn memtable_most(&self) -> u64 {
        self.tuning.memtable_bytes + self.tuning.memtable_bytes / 4
    }

    /// How many nanoseconds each 1,000 bytes are to take now; 0 when nothing is behind.
    pub(crate) fn pace_ns(&self, unflushed: u64) -> u64 {
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
