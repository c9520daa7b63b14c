//! How a workload is run.

use std::time::Duration;

/// Treatment of an operation that fails or returns a wrong value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// End the run with the error.
    #[default]
    Stop,
    /// Count it and go on.
    Count,
}

/// How to run a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOptions {
    /// Client threads.
    pub threads: usize,
    /// How many operations to measure, over all threads. A run needs this, a time limit, or both.
    pub operations: Option<u64>,
    /// How long to measure.
    pub time_limit: Option<Duration>,
    /// The rate of all threads together; none for as fast as possible.
    pub target_ops_per_s: Option<f64>,
    /// How long to run before measuring.
    pub warm_up: Duration,
    /// The length of an interval of the series, at least 10 ms.
    pub interval: Duration,
    /// Whether to verify the values read.
    pub verify: bool,
    /// Treatment of errors.
    pub on_error: OnError,
    /// The seed of all random choices. Runs of one [`Runner`](crate::driver::Runner) differ even with one seed.
    pub seed: u64,
}

impl Default for RunOptions {
    /// One thread, as fast as possible, an interval of a second, no limit, no verification.
    fn default() -> RunOptions {
        RunOptions {
            threads: 1,
            operations: None,
            time_limit: None,
            target_ops_per_s: None,
            warm_up: Duration::ZERO,
            interval: Duration::from_secs(1),
            verify: false,
            on_error: OnError::Stop,
            seed: 42,
        }
    }
}
