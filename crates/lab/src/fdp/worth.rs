//! Worth of a lower write amplification: drive life, and usable capacity.
//!
//! *Life* is arithmetic: the media can be written as often as it is rated to be erased, and each
//! byte of the host costs as many of the media as the factor says. *Capacity* is asked of the
//! model: how much spare space gives the same factor without placement, and how little with it.

use esker_base::units::human_bytes;
use serde::{Deserialize, Serialize};

use super::configuration::Configuration;
use super::measure::{OnShare, measure};
use crate::LabError;

/// Assumptions, and the results that follow from them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worth {
    /// Assumptions that the figures rest on.
    pub assumptions: Vec<String>,
    /// The life of a drive under each configuration.
    pub lives: Vec<Life>,
    /// The spare space that placement replaces.
    pub spares: Vec<Spare>,
}

/// How long a drive lasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Life {
    /// The configuration.
    pub name: String,
    /// Its write amplification factor.
    pub write_amplification: f64,
    /// Drive writes a day that it takes for five years.
    pub drive_writes_per_day: f64,
    /// Years it lasts at one drive write a day.
    pub years: f64,
}

/// How much spare space a factor takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spare {
    /// The configuration.
    pub name: String,
    /// The factor that is to be reached, and with which over-provisioning the other configuration
    /// has it.
    pub write_amplification: f64,
    /// See above.
    pub over_provisioning: f64,
    /// The over-provisioning that reaches it here; `None` when none that was tried does.
    pub needed: Option<f64>,
    /// How much more capacity the same media offers to the host with the smaller of the two, as a
    /// share.
    pub regained: Option<f64>,
}

/// A drive's rated life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Endurance {
    /// Bytes that the host can address.
    pub capacity_bytes: u64,
    /// Bytes of media.
    pub media_bytes: u64,
    /// How often all of it can be erased.
    pub erasures: u32,
}

/// Days of a year.
const YEAR: f64 = 365.0;
/// Years for which drives are warranted.
const WARRANTY: f64 = 5.0;

#[allow(clippy::cast_precision_loss)] // figures for people
impl Endurance {
    /// Drive writes in all, with this factor.
    fn drive_writes(&self, write_amplification: f64) -> f64 {
        let media = self.media_bytes as f64 * f64::from(self.erasures);
        media / write_amplification / self.capacity_bytes as f64
    }

    /// A drive's life with this factor.
    #[must_use]
    pub fn life(&self, name: &str, write_amplification: f64) -> Life {
        let writes = self.drive_writes(write_amplification);
        Life {
            name: name.to_owned(),
            write_amplification,
            drive_writes_per_day: writes / (WARRANTY * YEAR),
            years: writes / YEAR,
        }
    }

    /// Returns the assumptions that the figures rest on.
    #[must_use]
    pub fn assumptions(&self, drive: &str) -> Vec<String> {
        vec![format!(
            "Life: {drive}; {} of media for {} of capacity, each erased {} times in its rated \
             life (an assumption; erasures per block are not published); wear is level",
            human_bytes(self.media_bytes),
            human_bytes(self.capacity_bytes),
            self.erasures
        )]
    }
}

// ---- spare space ---------------------------------------------------------------------------------

/// The smallest and the largest over-provisioning that is tried.
const RANGE: (f64, f64) = (0.02, 3.0);
/// How often the range is halved: 1.02 to 4 in steps of 2 %.
const STEPS: u32 = 6;
/// A factor within this share of another one is as good.
const AS_GOOD: f64 = 1.01;

/// How much spare space `searched` needs for the factor that `given` has.
pub(super) struct Search {
    pub(super) name: String,
    pub(super) given: Configuration,
    pub(super) searched: Configuration,
}

impl Search {
    /// Looks for it by halving: the factor falls as spare space grows.
    pub(super) fn run(&self, watch: OnShare<'_>) -> Result<Spare, LabError> {
        let mut done = 0.0;
        let mut factor = |of: &Configuration| {
            let (from, share) = (done, 1.0 / f64::from(STEPS + 2));
            done += share;
            let found = measure(of, &mut |part| watch(from + part * share))?;
            Ok::<f64, LabError>(found.write_amplification)
        };
        let target = factor(&self.given)?;
        let mut reaches = |over_provisioning: f64| {
            let mut of = self.searched.clone();
            of.drive.over_provisioning = over_provisioning;
            Ok::<bool, LabError>(factor(&of)? <= target * AS_GOOD)
        };
        // Halving 1 + x: the capacity that the same media offer is its inverse.
        let (mut low, mut high) = RANGE;
        let needed = if !reaches(high)? {
            None
        } else {
            for _ in 0..STEPS {
                let middle = ((1.0 + low) * (1.0 + high)).sqrt() - 1.0;
                if reaches(middle)? { high = middle } else { low = middle }
            }
            Some(high)
        };
        let given = self.given.drive.over_provisioning;
        let regained = needed.map(|needed| {
            let (small, large) = if needed < given { (needed, given) } else { (given, needed) };
            (1.0 + large) / (1.0 + small) - 1.0
        });
        Ok(Spare {
            name: self.name.clone(),
            write_amplification: target,
            over_provisioning: given,
            needed,
            regained,
        })
    }
}
