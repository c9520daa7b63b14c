//! What a cache can tell of itself.

use serde::Serialize;

use crate::admit::Budget;
use crate::counts::Totals;
use crate::omf::BLOCK;
use crate::options::Mode;
use crate::shared::Shared;

/// Figures since the cache was opened; blocks are of 4 KiB.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stats {
    /// Where writes go.
    pub mode: Mode,
    /// Slots for blocks.
    pub slots: u64,
    /// Bytes of all slots.
    pub capacity_bytes: u64,
    /// Sets, and how many of them were used since the cache was opened.
    pub sets: u32,
    /// Blocks that the origin does not have yet.
    pub dirty_blocks: u64,
    /// Blocks read and found.
    pub read_hits: u64,
    /// Blocks read and not found.
    pub read_misses: u64,
    /// Blocks written and found.
    pub write_hits: u64,
    /// Blocks written and not found.
    pub write_misses: u64,
    /// Blocks that were read past the cache: parts of streams.
    pub bypassed_reads: u64,
    /// Blocks that were written past the cache: streams, parts of blocks, beyond the budget, or as
    /// the mode wants.
    pub bypassed_writes: u64,
    /// Blocks filled in after a miss.
    pub fills: u64,
    /// Blocks read from the origin ahead of the host.
    pub read_ahead: u64,
    /// Blocks that were to be filled in and were not: written meanwhile, or without room.
    pub fills_dropped: u64,
    /// Blocks written back.
    pub cleaned: u64,
    /// Commands that wrote them: neighbours go together.
    pub clean_writes: u64,
    /// Bytes read and written by the host.
    pub host_read_bytes: u64,
    /// See `host_read_bytes`.
    pub host_written_bytes: u64,
    /// Bytes written to the flash device, data and metadata.
    pub flash_written_bytes: u64,
    /// Of them, metadata.
    pub flash_metadata_bytes: u64,
    /// Bytes read from the flash device.
    pub flash_read_bytes: u64,
    /// Bytes read from the origin.
    pub origin_read_bytes: u64,
    /// Bytes written to the origin.
    pub origin_written_bytes: u64,
    /// Commands to the flash device that failed.
    pub flash_errors: u64,
    /// Commands to the origin that failed.
    pub origin_errors: u64,
    /// Whether the flash device has failed for good.
    pub is_flash_lost: bool,
    /// Bytes that may be written to the flash device in a day, if there is a limit.
    pub budget_bytes_per_day: Option<u64>,
    /// Whether more was written than the budget allows, so that nothing new is let in.
    pub is_over_budget: bool,
    /// How many times its capacity is written to the cache in a day, at the rate so far.
    pub turnovers_per_day: f64,
    /// Bytes of memory for all sets that are in use.
    pub memory_bytes: u64,
}

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

    /// What the user should know of the way the cache runs.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
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
