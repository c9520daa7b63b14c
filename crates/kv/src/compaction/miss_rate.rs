//! The miss rate of the record cache where compactions ask it: so much of a spill has to be read from the log.

use crate::sync::atomic::{AtomicU64, Ordering};

/// When the record cache lacks more of a thousand records, it has lost much.
const MUCH: u64 = 60;
/// When it lacks more of a thousand, it has lost most: what it holds of them is worth less than the memory for it.
const MOST: u64 = 400;

/// Miss rate of the record cache: of a thousand records to be gathered lately, how many it lacked.
#[derive(Default)]
pub(crate) struct MissRate(AtomicU64);

impl MissRate {
    /// Notes that of so many records so many were missing.
    pub(crate) fn note(&self, wanted: usize, missing: usize) {
        if let Some(now) = (missing as u64 * 1000).checked_div(wanted as u64) {
            let before = self.0.load(Ordering::Relaxed);
            self.0.store((before + now) / 2, Ordering::Relaxed);
        }
    }

    /// Whether it was so much that passes over the log are to be few.
    pub(crate) fn is_much(&self) -> bool {
        self.0.load(Ordering::Relaxed) > MUCH
    }

    /// Whether it was so much that windows have more of the memory than the cache would use as well.
    pub(crate) fn is_most(&self) -> bool {
        self.0.load(Ordering::Relaxed) > MOST
    }
}
