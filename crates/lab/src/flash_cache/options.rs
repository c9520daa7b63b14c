//! Options of the study.

use std::path::PathBuf;

use crate::LabError;

/// Options of the study.
#[derive(Clone, Debug)]
pub struct FlashCacheOptions {
    /// Traces, or folders of traces.
    pub traces: Vec<PathBuf>,
    /// Transactions of the synthetic load; 0 leaves it out.
    pub transactions: u64,
    /// Bytes of its table.
    pub data_bytes: u64,
    /// Sizes of the cache, in percent of a workload's footprint.
    pub sizes_percent: Vec<u32>,
    /// The most requests of a trace that are replayed.
    pub most_requests: usize,
    /// Threads, at least 1.
    pub threads: usize,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Default for FlashCacheOptions {
    fn default() -> FlashCacheOptions {
        FlashCacheOptions {
            traces: Vec::new(),
            transactions: 300_000,
            data_bytes: 8 << 30,
            sizes_percent: vec![5, 10, 20, 40],
            most_requests: 20_000_000,
            threads: 1,
            seed: 1,
        }
    }
}

impl FlashCacheOptions {
    /// Whether they make a study.
    ///
    /// # Errors
    /// `Invalid` for an option that makes no sense; the message names its range.
    pub fn check(&self) -> Result<(), LabError> {
        if self.sizes_percent.iter().any(|size| !(1..=100).contains(size)) {
            return Err(LabError::Invalid("a cache has 1 to 100 percent of the workload".into()));
        }
        Ok(())
    }
}
