//! Options of the study, and its proportions.

use esker_base::units::human_bytes;

use super::machine::Arm;
use crate::LabError;

/// How many times the memory the data is: 2 TB and 256 GB in the source.
pub(super) const DATA_TO_MEMORY: u64 = 8;
/// How many times the staging drive the data is, at least.
pub(super) const DATA_TO_STAGING: u64 = 4;
/// How many times the data the capacity drives hold together.
pub(super) const CAPACITY_TO_DATA: u64 = 8;
/// Bytes of a value, as in the source.
pub(super) const VALUE_BYTES: u32 = 1000;
/// The most records, and operations of a workload: a petabyte.
pub(super) const MOST_RECORDS: u64 = 1_000_000_000_000;
/// The fewest records of which an eighth is memory for an engine, and a quarter a staging class.
pub(super) const LEAST_RECORDS: u64 = 320_000;
/// The least memory of an engine.
pub(super) const LEAST_MEMORY: u64 = 16 << 20;
/// The slowest clock.
pub(super) const MOST_DILATION: u32 = 1000;

/// Options of the study.
#[derive(Clone, Debug)]
pub struct HseOptions {
    /// Records of 1,000 bytes.
    pub records: u64,
    /// Operations of each workload.
    pub operations: u64,
    /// Clients.
    pub threads: usize,
    /// Runs of each arm.
    pub rounds: u32,
    /// How many times slower than real time the clock is; calibrated where nothing is said.
    pub dilation: Option<u32>,
    /// Whether short scans are run, too, which the source left out.
    pub has_scans: bool,
    /// Whether RocksDB is run on the capacity drives, too.
    pub has_rocksdb: bool,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Default for HseOptions {
    fn default() -> HseOptions {
        HseOptions {
            records: 2_000_000,
            operations: 2_000_000,
            threads: 96,
            rounds: 3,
            dilation: None,
            has_scans: true,
            has_rocksdb: false,
            seed: 1,
        }
    }
}

impl HseOptions {
    /// The arms that are run, in the order of the first round.
    #[must_use]
    pub fn arms(&self) -> &'static [Arm] {
        if self.has_rocksdb { &Arm::ALL } else { &Arm::ESKER }
    }

    /// Bytes of all values.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.records.saturating_mul(u64::from(VALUE_BYTES))
    }

    /// The memory of the engine.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        (self.data_bytes() / DATA_TO_MEMORY).max(LEAST_MEMORY)
    }

    /// The size of the staging class.
    #[must_use]
    pub fn staging_bytes(&self) -> u64 {
        self.data_bytes() / DATA_TO_STAGING
    }

    /// The size of each of so many capacity drives.
    #[must_use]
    pub fn capacity_bytes(&self, drives: u64) -> u64 {
        self.data_bytes().saturating_mul(CAPACITY_TO_DATA) / drives.max(1)
    }

    /// Whether they make a study.
    ///
    /// # Errors
    /// `Invalid` for an option that makes no sense; the message says how to correct it.
    pub fn check(&self) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::Invalid(why));
        if self.records < LEAST_RECORDS {
            return refuse(format!(
                "{} records leave an engine less than {} of memory: give at least {LEAST_RECORDS}",
                self.records,
                human_bytes(LEAST_RECORDS * u64::from(VALUE_BYTES) / DATA_TO_MEMORY)
            ));
        }
        if self.records > MOST_RECORDS || self.operations > MOST_RECORDS {
            return refuse(format!("give at most {MOST_RECORDS} records and operations"));
        }
        if self.operations < 1000 || self.threads == 0 || self.rounds == 0 {
            return refuse("give at least 1,000 operations, one thread and one round".to_owned());
        }
        if self.dilation.is_some_and(|factor| !(1..=MOST_DILATION).contains(&factor)) {
            return refuse(format!("a clock is 1 to {MOST_DILATION} times slower"));
        }
        Ok(())
    }
}
