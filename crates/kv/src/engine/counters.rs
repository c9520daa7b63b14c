//! Counters: the engine's work since it was opened. Whoever does it counts; `api/stats.rs` shows it.

use std::sync::atomic::{AtomicU64, Ordering};

use esker_base::units::to_nanos;
use esker_base::{Clock, Nanos};

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The engine's counters since it was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) puts: Counter,
    pub(crate) gets: Counter,
    pub(crate) deletes: Counter,
    pub(crate) prefix_deletes: Counter,
    pub(crate) range_deletes: Counter,
    pub(crate) batches: Counter,
    pub(crate) cursor_steps: Counter,
    pub(crate) passed_keys: Counter,
    pub(crate) syncs: Counter,
    pub(crate) user_bytes: Counter,
    pub(crate) log_flushes: Counter,
    pub(crate) writer_waits: Counter,
    pub(crate) memtable_waits: Counter,
    pub(crate) segment_waits: Counter,
    pub(crate) durability_waits: Counter,
    pub(crate) stalled_ns: Counter,
    pub(crate) longest_stall_ns: AtomicU64,
    /// Of both lanes.
    pub(crate) steps: Counter,
    pub(crate) ingests: Counter,
    pub(crate) spills: Counter,
    pub(crate) compactions: Counter,
    pub(crate) collections: Counter,
    pub(crate) expirations: Counter,
    pub(crate) splits: Counter,
    pub(crate) joins: Counter,
    pub(crate) sorts: Counter,
    pub(crate) young_blocks: Counter,
    /// Steps of the helper.
    pub(crate) helped: Counter,
    /// Bytes that steps have written, each counted when it was through.
    pub(crate) step_bytes: Counter,
}

impl Counters {
    /// Values that were asked for, one by one or by walking.
    pub(crate) fn reads(&self) -> u64 {
        self.gets.get() + self.cursor_steps.get()
    }

    pub(crate) fn stalled_since(&self, since: Nanos, clock: &Clock) {
        let ns = to_nanos(clock.now().since(since));
        self.stalled_ns.add(ns);
        self.longest_stall_ns.fetch_max(ns, Ordering::Relaxed);
    }
}
