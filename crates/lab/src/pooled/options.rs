//! Options of the study.

use esker_base::units::human_bytes;

use super::deployment::Deployment;
use crate::LabError;

/// The most nodes: they are told apart by their addresses on the loopback.
pub(super) const MOST_NODES: u32 = 16;
/// The most records, and the most memory of a node.
pub(super) const MOST_RECORDS: u64 = 1_000_000_000_000;
pub(super) const MOST_MEMORY: u64 = 1 << 50;
/// The fewest drives of a pool that bears the loss of one.
pub(super) const LEAST_TO_SURVIVE: u32 = 3;

/// Drives of a machine, in place of models. Their content is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnDrives {
    /// The specifications of all drives.
    pub drives: Vec<String>,
    /// The specification of the pool's write buffer; none where it lies on the drives.
    pub buffer: Option<String>,
}

/// The runs of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledOptions {
    /// Nodes of Cassandra.
    pub nodes: u32,
    /// Drives of all nodes together.
    pub drives: u32,
    /// The drives, if they are no models.
    pub own: Option<OwnDrives>,
    /// Rows of all nodes together, of about 1,000 bytes each.
    pub records: u64,
    /// Operations a second of all nodes together, in ascending order. The unlimited rate comes after them.
    pub rates: Vec<u64>,
    /// Seconds of each measurement.
    pub seconds: u32,
    /// Seconds before it.
    pub warm_up_s: u32,
    /// Repetitions.
    pub rounds: u32,
    /// Client threads of each node.
    pub threads: u32,
    /// How many times slower than real the drives are; with `calibrate`, in the first try.
    pub dilation: u32,
    /// Whether the dilation is raised until drives are busy.
    pub calibrate: bool,
    /// The share of each value that a compressor can remove.
    pub compressible: f64,
    /// The memory of each node, in bytes.
    pub memory_bytes: u64,
    /// The heap of each node, in bytes.
    pub heap_bytes: u64,
    /// Whether the controls beside A/A are run.
    pub controls: bool,
    /// Whether the comparison is run.
    pub compare: bool,
    /// Whether a node is killed and a drive failed.
    pub survive: bool,
    /// Whether it is a short run, which the report says.
    pub quick: bool,
    /// The seed of all random choices.
    pub seed: u64,
}

impl PooledOptions {
    /// Whether they make a study.
    ///
    /// # Errors
    /// The wrong option, and its range.
    pub fn check(&self) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::Invalid(why));
        if !(1..=MOST_NODES).contains(&self.nodes) {
            return refuse(format!("--nodes: from 1 to {MOST_NODES} run on one machine"));
        }
        if self.drives < self.nodes || !self.drives.is_multiple_of(self.nodes) {
            return refuse(format!(
                "give a multiple of the {} nodes as drives, so that each has as many",
                self.nodes
            ));
        }
        if self.own.is_some() && (self.calibrate || self.dilation != 1) {
            return refuse("--dilation is for models: a drive has its own speed".to_owned());
        }
        if self.survive && self.drives < LEAST_TO_SURVIVE {
            return refuse(format!(
                "--survive: a pool that bears the loss of a drive has at least {LEAST_TO_SURVIVE} --drives"
            ));
        }
        if self.rates.iter().any(|&rate| rate < u64::from(self.nodes))
            || !self.rates.is_sorted_by(|a, b| a < b)
        {
            return refuse(
                "--rates: give operations a second in ascending order, at least one for each node"
                    .to_owned(),
            );
        }
        if self.records < 1000 * u64::from(self.nodes) {
            return refuse("--records: give at least 1,000 for each node".to_owned());
        }
        if self.records > MOST_RECORDS {
            return refuse(format!("--records: give at most {MOST_RECORDS}"));
        }
        if self.seconds == 0 || self.rounds == 0 || self.threads == 0 || self.dilation == 0 {
            return refuse("--for, --rounds, --threads and --dilation are at least 1".to_owned());
        }
        if !(0.0..=0.95).contains(&self.compressible) {
            return refuse("--compressible: give a share from 0 to 0.95".to_owned());
        }
        if self.memory_bytes <= self.heap_bytes {
            return refuse(
                "--memory: a node takes more than its --heap; give it 400 MiB beside".to_owned(),
            );
        }
        if self.memory_bytes > MOST_MEMORY {
            return refuse(format!("--memory: no node has more than {}", human_bytes(MOST_MEMORY)));
        }
        Ok(())
    }

    /// The arms that are run.
    #[must_use]
    pub fn arms(&self) -> Vec<Deployment> {
        match (self.compare, self.controls) {
            (false, _) => Vec::new(),
            (true, true) => {
                // Pools of the nodes' own cannot share a buffer device.
                let shares = self.own.as_ref().is_some_and(|own| own.buffer.is_some());
                let is_run = |arm: &Deployment| !(shares && *arm == Deployment::PoolHere);
                Deployment::ALL.into_iter().filter(is_run).collect()
            }
            (true, false) => vec![Deployment::Local, Deployment::LocalAgain, Deployment::Remote],
        }
    }

    /// The loads of the ladder, the unlimited one last.
    #[must_use]
    pub fn ladder(&self) -> Vec<Option<u64>> {
        self.rates.iter().copied().map(Some).chain([None]).collect()
    }
}
