//! Counters of a cache. Each queue pair counts for itself, so that two threads never write the same
//! cache line; the reader adds up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_base::sync::Mutex;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters of one queue pair, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counts {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
        }

        /// A sum of counters.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Totals {
            $(pub(crate) $name: u64,)*
        }

        impl Totals {
            fn add(&mut self, counts: &Counts) {
                $(self.$name += counts.$name.load(Ordering::Relaxed);)*
            }
        }
    };
}

counts! {
    // Counts of a device.
    reads, writes, flushes, discards, read_bytes, written_bytes, discarded_bytes, errors,
    // Blocks by their fate.
    read_hits, read_misses, write_hits, write_misses, bypassed_reads, bypassed_writes,
    fills, fills_dropped, read_ahead, evictions, cleaned, clean_writes,
    // Bytes to and from the devices.
    flash_written_bytes, flash_read_bytes, origin_written_bytes, origin_read_bytes,
    // Errors of the devices below.
    flash_errors, origin_errors,
}

/// Adds to a counter that only this thread writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

/// Adds to a counter that several threads write.
pub(crate) fn add_shared(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// The counters of all queue pairs, of those that were closed as well.
#[derive(Default)]
pub(crate) struct Counted {
    state: Mutex<(Totals, Vec<Arc<Counts>>)>,
}

impl Counted {
    /// Counters for a new queue pair.
    pub(crate) fn open(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::default());
        self.state.lock().1.push(counts.clone());
        counts
    }

    /// The queue pair is closed: its counts stay.
    pub(crate) fn close(&self, counts: &Arc<Counts>) {
        let mut state = self.state.lock();
        state.1.retain(|other| !Arc::ptr_eq(other, counts));
        state.0.add(counts);
    }

    /// The sum, with `own`.
    pub(crate) fn total(&self, own: &Counts) -> Totals {
        let state = self.state.lock();
        let mut total = state.0;
        state.1.iter().for_each(|counts| total.add(counts));
        total.add(own);
        total
    }
}
