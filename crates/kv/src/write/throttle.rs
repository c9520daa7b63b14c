//! The throttle of writers: they are slowed down smoothly, and early enough that a write stall is rare.
//!
//! Each of three queues has a length from which on writers are slowed, by more the longer it grows: bytes that the roots
//! hold beyond those that memory and staging bear; the memtable that fills while the one before is being ingested;
//! bytes of the log that are not durable yet. Writers get a multiple of the rate at which a queue has really been
//! draining: four times as much where it begins to be long, nine tenths where it is full. All writers of a KVDB together
//! get the rate that the slowest queue sets.

use std::time::Duration;

use crate::engine::counters::PacedBy;
use crate::engine::shared::Engine;
use crate::sync::atomic::Ordering;
use crate::tree::view::View;
use crate::types::options::Maintenance;

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

impl Engine {
    /// Size to which a memtable may grow while the one before is being ingested, in bytes.
    pub(crate) fn memtable_most(&self) -> u64 {
        self.tuning.memtable_bytes + self.tuning.memtable_bytes / 4
    }

    /// How many nanoseconds each 1,000 bytes are to take now, and for which reason; `None` when nothing is behind.
    fn slowest_ns(&self, unflushed: u64) -> Option<(u64, PacedBy)> {
        let view = self.view.load();
        let (from, full) = self.backlog_limits();
        let spill_ns = self.write_controller.spill_rate.ns().unwrap_or(UNKNOWN_NS);
        let spills = delay_ns(view.root_bytes(), from, full, spill_ns);
        let limit = self.options.durability_limit();
        // Beyond the limit, the writer has waited for the flush itself.
        let waits = self.options.durability.ms == 0 || unflushed > limit;
        let log_ns = self.write_controller.log_rate.ns().unwrap_or(UNKNOWN_NS);
        let log = if waits { 0 } else { delay_ns(unflushed, limit / 4, limit / 2, log_ns) };
        let all = [
            (spills, PacedBy::Spills),
            (log, PacedBy::Log),
            (self.ingest_delay_ns(&view), PacedBy::Ingest),
        ];
        all.into_iter().max_by_key(|(ns, _)| *ns).filter(|(ns, _)| *ns > 0)
    }

    fn ingest_delay_ns(&self, view: &View) -> u64 {
        let most = self.tuning.memtable_bytes;
        match view.frozen.last() {
            Some(frozen) if view.active.bytes() > most / 2 => {
                let now = self.options.clock.now();
                let ingest =
                    self.write_controller.ingest_ns(now, frozen.table.bytes()) * 1000 / 1024;
                // At the end of the memtable, writers are slower than ingest.
                delay_ns(view.active.bytes(), most / 2, most, ingest)
            }
            _ => 0,
        }
    }

    /// Slows a writer down that has written `size` bytes, when something is behind.
    pub(crate) fn throttle(&self, size: usize, unflushed: u64) {
        if self.options.maintenance == Maintenance::Manual {
            return;
        }
        let Some((each, cause)) = self.slowest_ns(unflushed) else {
            return;
        };
        let now = self.options.clock.now().0;
        let next = &self.write_controller.next_ns;
        let span = (size as u64).saturating_mul(each) / 1000;
        // A writer that comes late owes nothing for the time that nobody used, nor more than two delays.
        let after = |next: u64| (next.max(now) + span).min(now + 2 * SLEEP_MOST_NS);
        let owed = next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(after(next)))
            .map_or(0, |before| after(before) - now);
        if owed >= SLEEP_LEAST_NS {
            let sleep = owed.min(SLEEP_MOST_NS);
            self.options.clock.sleep(Duration::from_nanos(sleep));
            self.counters.paced(cause).add(sleep);
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
