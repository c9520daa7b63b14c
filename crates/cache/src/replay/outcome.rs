//! Outcome of a simulated cache: counts, and the ratios that are read from them.

/// Reads and writes apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Of reads.
    pub reads: u64,
    /// Of writes.
    pub writes: u64,
}

impl Split {
    /// Both together.
    #[must_use]
    pub fn total(self) -> u64 {
        self.reads + self.writes
    }
}

/// Traffic of a disk or a flash device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Commands.
    pub operations: Split,
    /// Blocks.
    pub blocks: Split,
}

/// Outcome of a trace in a simulated cache.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Blocks that were referenced.
    pub references: Split,
    /// Those of them that were cached.
    pub hits: Split,
    /// Requests.
    pub requests: Split,
    /// Requests of which every block was cached.
    pub request_hits: Split,
    /// Traffic of the disk: misses, blocks written back or through, and, at the end, all that was
    /// dirty still.
    pub disk: Traffic,
    /// Blocks written to the flash: writes and fills.
    pub flash_blocks_written: u64,
    /// Blocks that were read or written without being cached.
    pub bypassed: u64,
    /// Blocks read from the disk before they were asked for.
    pub read_ahead: u64,
    /// Blocks that made room for others.
    pub evictions: u64,
    /// The share of all references that went to the busier half of the sets.
    pub busier_half_of_references: f64,
    /// The share of the disk's operations that the busier half of the sets caused.
    pub busier_half_of_operations: f64,
}

impl Outcome {
    /// Referenced blocks that were not cached, of all that were referenced.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        1.0 - ratio(self.hits.total(), self.references.total())
    }

    /// Requests that were hits, of all requests.
    #[must_use]
    pub fn hit_ratio_by_request(&self) -> f64 {
        ratio(self.request_hits.total(), self.requests.total())
    }

    /// Blocks (so bytes) that were hits, of all that were referenced.
    #[must_use]
    pub fn hit_ratio_by_block(&self) -> f64 {
        ratio(self.hits.total(), self.references.total())
    }

    /// Reads and writes of the disk saved, of those that there would be without a cache. May be negative; `None` where
    /// there would be none.
    #[must_use]
    pub fn operations_saved(&self) -> (Option<f64>, Option<f64>) {
        let (disk, all) = (self.disk.operations, self.requests);
        let saved = |disk, all| (all > 0).then(|| 1.0 - ratio(disk, all));
        (saved(disk.reads, all.reads), saved(disk.writes, all.writes))
    }

    /// How often a flash of `slots` blocks was written in full.
    #[must_use]
    pub fn drive_writes(&self, slots: u64) -> f64 {
        ratio(self.flash_blocks_written, slots)
    }
}

/// `part` of `whole`; 0 of nothing.
#[allow(clippy::cast_precision_loss)] // ratios are read to four digits
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The share of the sum that the larger half of `counts` has; of an odd number of counts the
/// middle one counts half.
pub(crate) fn busier_half(counts: &[u64]) -> f64 {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let half = sorted.len() / 2;
    let mut twice: u64 = 2 * sorted[..half].iter().sum::<u64>();
    if sorted.len() % 2 == 1 {
        twice += sorted[half];
    }
    ratio(twice, 2 * sorted.iter().sum::<u64>())
}
