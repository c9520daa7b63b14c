//! The experiment: its size and parts.

use super::own::OwnStores;
use crate::LabError;
use crate::study::About;

/// Facts of the study.
pub(super) const ABOUT: About = About {
    name: "fdp",
    format: "esker-fdp/2",
    system: "Flexible data placement under Aerospike",
    purpose: "Several stores share one drive. When each says which of its writes belong together, the drive need \
              not copy one store's data to clean up after another.",
    minutes: (6, 60),
    programs: &[],
    needs_root: false,
};

/// Extent of the experiment: its parts, sizes and threads.
#[derive(Clone, Debug, PartialEq)]
pub struct FdpOptions {
    /// The size of the drive on which the stores with records are; others are a part of that. At
    /// least 256 MiB; default 16 GiB, for which counting takes some 200 MiB of memory per thread.
    pub drive_bytes: u64,
    /// Media in use beyond the bytes that the host can address, as a share of them; default 0.145.
    pub over_provisioning: f64,
    /// The share of its namespace that the records of a store take with uniform keys; default 0.58.
    pub fill: f64,
    /// The same with zipfian keys; default 0.32.
    pub zipfian_fill: f64,
    /// Bytes per record; default 1,280.
    pub record_bytes: u64,
    /// Seed for the choice of keys and of the next writer; default 1.
    pub seed: u64,
    /// Threads; default 1.
    pub threads: usize,
    /// Whether to sweep over over-provisioning and fill, too; default no.
    pub full: bool,
    /// Whether to run Esker's engine; default yes.
    pub engine: bool,
    /// Whether to search for the spare space that placement replaces; default yes.
    pub worth: bool,
    /// Stores of one's own, which run in place of all others; default none.
    pub own: Option<OwnStores>,
}

impl Default for FdpOptions {
    fn default() -> FdpOptions {
        FdpOptions {
            drive_bytes: 16 << 30,
            over_provisioning: 0.145,
            fill: 0.58,
            zipfian_fill: 0.32,
            record_bytes: 1280,
            seed: 1,
            threads: 1,
            full: false,
            engine: true,
            worth: true,
            own: None,
        }
    }
}

/// The smallest drive that the experiment can be scaled down to.
const DRIVE_MIN: u64 = 256 << 20;

impl FdpOptions {
    /// Whether they make a study.
    ///
    /// # Errors
    /// `Invalid` for an option out of its range, which the message names.
    pub fn check(&self) -> Result<(), LabError> {
        if self.drive_bytes < DRIVE_MIN {
            let why = "the drive of the experiment has at least 256 MiB";
            return Err(LabError::Invalid(why.to_owned()));
        }
        self.check_stores()
    }

    /// All but the size of the drive, which may be a device's.
    pub(super) fn check_stores(&self) -> Result<(), LabError> {
        let refuse = |why: &str| Err(LabError::Invalid(why.to_owned()));
        if !(0.01..=10.0).contains(&self.over_provisioning) {
            return refuse("over-provisioning is a share from 0.01 to 10: 0.145 is 14.5 %");
        }
        if !(0.05..=0.9).contains(&self.fill) || !(0.05..=0.9).contains(&self.zipfian_fill) {
            return refuse("the fill of a store is a share from 0.05 to 0.9: 0.58 is 58 %");
        }
        if !(64..=32 << 10).contains(&self.record_bytes) {
            return refuse("a record has 64 to 32,768 bytes");
        }
        if self.threads == 0 {
            return refuse("the experiment needs a thread");
        }
        if let Some(own) = &self.own {
            own.check(self.drive_bytes)?;
        }
        Ok(())
    }
}
