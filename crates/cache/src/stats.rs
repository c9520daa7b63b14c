//! Statistics of a cache.

use serde::Serialize;

use crate::options::Mode;

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
