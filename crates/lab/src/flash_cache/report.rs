//! The figures of the study.

use serde::{Deserialize, Serialize};

use super::disk::Times;
use super::real::RealReport;
use super::results::WorkloadResult;

/// All figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlashCacheFigures {
    /// The versions that are compared: name and description.
    pub versions: Vec<(String, String)>,
    /// Results of all versions with each workload.
    pub workloads: Vec<WorkloadResult>,
    /// How long the modelled disk takes.
    pub times: Times,
    /// The measurements on devices, if any were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<RealReport>,
    /// Notes for readers.
    pub notes: Vec<String>,
}

impl FlashCacheFigures {
    pub(crate) fn new(
        versions: Vec<(String, String)>,
        workloads: Vec<WorkloadResult>,
        times: Times,
        real: Option<RealReport>,
        notes: Vec<String>,
    ) -> FlashCacheFigures {
        let mut all = vec![
            "Flashcache in 2013 (\"Flashcache at Facebook: From 2010 to 2013 and beyond\", Domas \
             Mituzas, 2013) reports for its databases: half of the cache caused 80 % of the disk's \
             operations, then 50 %; about 40 % fewer disk reads; about 75 % fewer disk writes."
                .to_owned(),
            "What is counted here is a simulation of the cache's policies and sets, without \
             concurrency; what is dirty at the end is written back."
                .to_owned(),
            "The optimum is one of hits, and evicts without regard to what lies together: of the disk's \
             commands it may need more than others."
                .to_owned(),
            "Disk time is a sum: each command takes the mean time of a random one on the model, each \
             further block the time in which it passes under the head."
                .to_owned(),
        ];
        all.extend(notes);
        FlashCacheFigures { versions, workloads, times, real, notes: all }
    }
}
