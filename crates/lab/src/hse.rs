//! Worth of a fast staging drive in front of cheap flash to the engine: Micron's study of HSE, scaled down.
//!
//! Two arms have the same records, memory, threads and capacity drives; one of them has a staging drive, too. A third
//! is RocksDB with a file system on these drives, where it is asked for. Drives
//! and engine run on one clock that is slower than real time, so that two processors stand for many: every rate and
//! latency is in the time of that clock, as if the drives were as fast as published.
//!
//! | module | content |
//! | --- | --- |
//! | [`machine`] | [`Machine`]: opens the drives of an arm, and knows the processors |
//! | [`phase`] | the load or a workload on an arm, and the traffic of its drives meanwhile |
//! | `arm` | all phases of an arm of the engine, on new drives |
//! | `peer` | the same of RocksDB, which runs in real time |
//! | `round` | all rounds, and a run of any arm |
//! | `calibrate` | how much slower the clock has to be |
//! | `published` | the figures of the source |
//! | `verdict` | its figures and the goals beside these |
//! | `beside` | the engine's figures over RocksDB's |
//! | [`report`], `table`, `html` | [`HseReport`], as text, JSON and a page |
//!
//! Imports run downward: `html` and `table`, `report`, `verdict` and `beside`, `calibrate`, `round`, `peer`, `arm`,
//! `phase`, `machine`.

mod arm;
mod beside;
mod calibrate;
mod html;
pub mod machine;
mod peer;
pub mod phase;
mod published;
pub mod report;
mod round;
mod table;
mod verdict;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use esker_base::units::human_bytes;

use crate::LabError;
pub use crate::steps::Progress;
pub use machine::{Arm, Drive, Machine, Opened, Peer, PeerSetup, Processors, Rates};
pub use report::HseReport;

/// How many times the memory the data is: 2 TB and 256 GB in the source.
const DATA_TO_MEMORY: u64 = 8;
/// How many times the staging drive the data is, at least.
const DATA_TO_STAGING: u64 = 4;
/// How many times the data the capacity drives hold together.
const CAPACITY_TO_DATA: u64 = 8;
/// Bytes of a value, as in the source.
const VALUE_BYTES: u32 = 1000;
/// The most records, and operations of a workload: a petabyte.
const MOST_RECORDS: u64 = 1_000_000_000_000;
/// The fewest records of which an eighth is memory for an engine, and a quarter a staging class.
const LEAST_RECORDS: u64 = 320_000;
/// The least memory of an engine.
const LEAST_MEMORY: u64 = 16 << 20;
/// The slowest clock.
const MOST_DILATION: u32 = 1000;

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

/// Is told how far it is, and may end it.
pub(crate) type Follow<'a> = dyn FnMut(&Progress<'_>) -> ControlFlow<()> + 'a;

/// Runs it.
///
/// # Errors
/// When the options make no sense, a drive or the engine refuses, or `follow` ends it before a phase is through; after
/// that the report has what was measured, and no verdicts.
pub fn run(
    options: &HseOptions,
    machine: &mut dyn Machine,
    mut follow: impl FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<HseReport, LabError> {
    options.check()?;
    let calibration = match options.dilation {
        _ if machine.is_real() => calibrate::Calibration::given(1),
        Some(factor) => calibrate::Calibration::given(factor),
        None => calibrate::calibrate(options, machine, &mut follow)?,
    };
    let (arms, skipped) = round::all(options, calibration.dilation, machine, &mut follow)?;
    let phases = arms.iter().map(|arm| arm.phases.len()).sum::<usize>();
    let failed = skipped.len();
    let mut report = HseReport::new(options, machine.is_real(), calibration, arms);
    report.skipped = skipped;
    let each = arm::workloads(options).len() + 1;
    if phases + failed * each < options.rounds as usize * options.arms().len() * each {
        report.leave_unjudged();
    }
    Ok(report)
}
