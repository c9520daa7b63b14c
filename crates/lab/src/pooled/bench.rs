//! The seam between the plan and a machine: requests to it, and measurements that it returns.

use serde::{Deserialize, Serialize};

use super::deployment::Deployment;
use crate::LabError;

/// A load on the nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadStep {
    /// Operations a second on all nodes together; `None`: as many as the clients get done.
    pub rate: Option<u64>,
    /// Seconds before the measurement.
    pub warm_up_s: u32,
    /// Seconds of the measurement.
    pub seconds: u32,
}

/// Latencies of one kind of operation, from the moment at which it was to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Operations.
    pub count: u64,
    /// The mean, in microseconds.
    pub mean_us: f64,
    /// The 99.9th percentile, in microseconds.
    pub p999_us: f64,
}

/// Traffic on the nodes' block devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockTraffic {
    /// Reads of all nodes.
    pub reads: u64,
    /// Writes of all nodes.
    pub writes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// The share of the time in which a device had requests under way, the mean of all nodes.
    pub busy: f64,
    /// Requests under way on average, the mean of all nodes.
    pub queue: f64,
}

/// Processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// Of all nodes of Cassandra, in seconds.
    pub nodes_s: f64,
    /// Of all clients, in seconds.
    pub clients_s: f64,
    /// Of all processes of the storage, initiators included, in seconds.
    pub storage_s: f64,
    /// The share of the machine's processors that anything used, work of others included.
    pub machine: f64,
}

/// One run of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSample {
    /// Operations a second that were reached on all nodes together.
    pub ops_per_s: f64,
    /// Reads.
    pub reads: Latencies,
    /// Updates.
    pub updates: Latencies,
    /// Operations that failed.
    pub failed: u64,
    /// The nodes' block devices.
    pub traffic: BlockTraffic,
    /// Processor time in the measured seconds.
    pub cpu: CpuTime,
}

/// Bytes in the drives of an arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveBytes {
    /// Valid data on all drives.
    pub taken: u64,
    /// Written to the drives so far.
    pub host_written: u64,
    /// Written to their media so far.
    pub media_written: u64,
}

/// The databases of an arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadedBytes {
    /// Seconds that the load took, on drives without delays; none where the databases were there already.
    pub seconds: Option<f64>,
    /// Bytes of the nodes' files.
    pub files: u64,
    /// Bytes in the drives, where they tell.
    pub drives: Option<DriveBytes>,
}

/// Losing a node and a drive under load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Survival {
    /// Writes that were acknowledged, and stand in the client's log.
    pub acknowledged: u64,
    /// Writes that failed, so that nothing was promised.
    pub refused: u64,
    /// Acknowledged writes that are not there.
    pub missing: u64,
    /// Acknowledged writes with other content.
    pub wrong: u64,
    /// Acknowledged by the moment at which the node was killed, and at which the drive failed.
    pub at_kill: u64,
    /// See `at_kill`.
    pub at_drive: u64,
    /// The pool's state after the drive failed, and at the end.
    pub state_after_drive: String,
    /// See `state_after_drive`.
    pub state_at_end: String,
    /// Seconds of load.
    pub seconds: f64,
}

/// Runs things on a machine.
pub trait Bench {
    /// Looks for all that is needed, and builds the client. Returns the missing parts, each with its cure.
    ///
    /// # Errors
    /// A build that failed.
    fn missing(&mut self) -> Result<Vec<String>, LabError>;

    /// Makes the databases of an arm.
    ///
    /// # Errors
    /// A program that failed; the message has its name and its output.
    fn load(&mut self, arm: Deployment) -> Result<LoadedBytes, LabError>;

    /// Starts the nodes of an arm on drives so many times slower than the real ones.
    ///
    /// # Errors
    /// As [`Bench::load`].
    fn start(&mut self, arm: Deployment, dilation: u32) -> Result<(), LabError>;

    /// Runs a load on the nodes that were started.
    ///
    /// # Errors
    /// As [`Bench::load`].
    fn step(&mut self, step: &LoadStep) -> Result<LoadSample, LabError>;

    /// Ends the nodes that were started; bytes in the drives, where they tell.
    ///
    /// # Errors
    /// As [`Bench::load`].
    fn stop(&mut self) -> Result<Option<DriveBytes>, LabError>;

    /// Kills a node and fails a drive of a pool with one parity under load, with three copies of each row.
    ///
    /// # Errors
    /// As [`Bench::load`].
    fn survive(&mut self) -> Result<Survival, LabError>;
}
