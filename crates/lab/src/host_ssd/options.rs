//! Options of the study.

use esker_base::units::{human_bytes, to_u64};

use super::paging::Costs;
use crate::LabError;

/// Options of the study.
#[derive(Clone, Debug)]
pub struct HostSsdOptions {
    /// The size of the modelled drives.
    pub drive_bytes: u64,
    /// Reads that are timed at each depth.
    pub reads: usize,
    /// Depths.
    pub depths: Vec<u32>,
    /// Reads of each named device that are timed at each depth, at most.
    pub device_reads: u64,
    /// Bytes of the paged table.
    pub data_bytes: u64,
    /// Lookups of each run.
    pub lookups: u64,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Times of the processor.
    pub costs: Costs,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Default for HostSsdOptions {
    fn default() -> HostSsdOptions {
        HostSsdOptions {
            drive_bytes: 8 << 30,
            reads: 200_000,
            depths: vec![1, 2, 4, 8, 16, 32, 64, 128, 256],
            device_reads: 200_000,
            // Not a multiple of the bytes that all dies hold in a row, so that threads start on different dies.
            data_bytes: 477 << 20,
            lookups: 100_000,
            threads: vec![1, 4, 16, 64],
            costs: Costs::default(),
            seed: 1,
        }
    }
}

/// The deepest queue, and the most threads, that are studied.
pub(super) const MOST: u32 = 1024;
/// The most reads and lookups that are timed.
pub(super) const MOST_READS: u64 = 1_000_000_000;
/// The least drive that has as many reclaim units as the whole one.
pub(super) const LEAST_DRIVE: u64 = 256 << 20;
/// The least table of which a quarter still is memory for every thread.
pub(super) const LEAST_DATA: u64 = 32 << 20;

impl HostSsdOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// `Invalid` for one that makes no sense; the message says how to correct it.
    pub fn check(&self) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::Invalid(why));
        for (name, list) in [("depths", &self.depths), ("threads", &self.threads)] {
            if list.is_empty() || list.iter().any(|one| !(1..=MOST).contains(one)) {
                return refuse(format!("{name}: give one or more numbers from 1 to {MOST}"));
            }
        }
        if self.drive_bytes < LEAST_DRIVE {
            return refuse(format!("a drive has at least {}", human_bytes(LEAST_DRIVE)));
        }
        if self.data_bytes < LEAST_DATA || self.data_bytes > self.drive_bytes {
            let (least, most) = (human_bytes(LEAST_DATA), human_bytes(self.drive_bytes));
            return refuse(format!("the table has from {least} up to the drive's {most}"));
        }
        if self.reads < 1000 || self.lookups < 1000 || self.device_reads < 1000 {
            return refuse("time at least 1,000 reads and lookups".to_owned());
        }
        if to_u64(self.reads).max(self.lookups).max(self.device_reads) > MOST_READS {
            return refuse(format!("time at most {MOST_READS} reads and lookups"));
        }
        Ok(())
    }
}
