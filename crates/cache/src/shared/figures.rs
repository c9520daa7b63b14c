//! Figures of an open cache.

use super::Shared;
use crate::admit::Budget;
use crate::counts::Totals;
use crate::omf::BLOCK;
use crate::stats::Stats;

/// Beyond this many turnovers a day a cache holds nothing long enough to be read again.
const FAST_TURNOVERS: f64 = 10.0;
/// The shortest time after which a rate says something, in seconds.
const LEAST_SECONDS: f64 = 600.0;

#[allow(clippy::cast_precision_loss)] // a figure for people
fn turnovers(budget: &Budget, written: u64, capacity: u64) -> f64 {
    let days = budget.seconds().max(1.0) / 86_400.0;
    written as f64 / capacity.max(1) as f64 / days
}

impl Shared {
    pub(crate) fn totals(&self) -> Totals {
        self.counted.total(&self.own)
    }

    pub(crate) fn stats(&self) -> Stats {
        let total = self.totals();
        let metadata = self.metadata_bytes();
        let capacity_bytes = self.slots() * BLOCK;
        let flash_written_bytes = total.flash_written_bytes + metadata;
        Stats {
            mode: self.mode(),
            slots: self.slots(),
            capacity_bytes,
            sets: self.layout.sets,
            dirty_blocks: self.dirty_blocks(),
            read_hits: total.read_hits,
            read_misses: total.read_misses,
            write_hits: total.write_hits,
            write_misses: total.write_misses,
            bypassed_reads: total.bypassed_reads,
            bypassed_writes: total.bypassed_writes,
            fills: total.fills,
            read_ahead: total.read_ahead,
            fills_dropped: total.fills_dropped,
            cleaned: total.cleaned,
            clean_writes: total.clean_writes,
            host_read_bytes: total.read_bytes,
            host_written_bytes: total.written_bytes,
            flash_written_bytes,
            flash_metadata_bytes: metadata,
            flash_read_bytes: total.flash_read_bytes,
            origin_read_bytes: total.origin_read_bytes,
            origin_written_bytes: total.origin_written_bytes,
            flash_errors: total.flash_errors,
            origin_errors: total.origin_errors,
            is_flash_lost: self.is_lost(),
            budget_bytes_per_day: self.budget.bytes_per_day(),
            is_over_budget: !self.admits(),
            turnovers_per_day: turnovers(&self.budget, flash_written_bytes, capacity_bytes),
            memory_bytes: esker_base::units::to_u64(self.memory_bytes()),
        }
    }

    /// Warnings for the user about the way the cache runs.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Err(error) = self.check_running() {
            warnings.push(error.to_string());
        }
        if self.is_lost() && self.store.lock().is_attached().is_ok() {
            warnings.push(format!(
                "{}: the flash device has failed; reads and writes go to the origin",
                self.name
            ));
        }
        if self.has_missed_writes() {
            warnings.push(format!(
                "{}: the origin was written while the flash device could not be told; make the \
                 cache anew before that device is used again",
                self.name
            ));
        }
        let written = self.totals().flash_written_bytes;
        let times = turnovers(&self.budget, written, self.slots() * BLOCK);
        if self.budget.seconds() >= LEAST_SECONDS && times > FAST_TURNOVERS {
            warnings.push(format!(
                "{}: turns over {times:.0} times a day; what is cached goes before it is used \
                 again, and wears the flash: use a larger cache, or a limit of writes per day",
                self.name
            ));
        }
        warnings
    }
}
