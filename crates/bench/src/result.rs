//! Measurements, to and from JSON. Field names carry their units; `docs/bench.md` describes
//! them all.

use std::collections::BTreeMap;

use esker_base::units::to_nanos;

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::operation::OperationKind;
use crate::options::RunOptions;
use crate::store::Unit;
use crate::workload::{Dataset, Workload};

/// The version of the JSON form.
pub const FORMAT: &str = "esker-bench/1";

/// A sequence of runs and where they took place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: String,
    /// The headline.
    pub title: String,
    /// The command line that made it; empty when unknown.
    pub command: String,
    /// Facts that the caller knows about the place: commit, kernel, cpu, device, load average.
    pub environment: BTreeMap<String, String>,
    /// The records.
    pub dataset: Dataset,
    /// The runs, in the order they took place.
    pub runs: Vec<RunResult>,
}

impl Report {
    /// A report without runs.
    #[must_use]
    pub fn new(title: impl Into<String>, dataset: Dataset) -> Report {
        Report {
            format: FORMAT.to_owned(),
            title: title.into(),
            command: String::new(),
            environment: BTreeMap::new(),
            dataset,
            runs: Vec::new(),
        }
    }

    /// The report as JSON, indented.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every field has a JSON form")
    }

    /// Reads the text that [`Report::json`] wrote.
    ///
    /// # Errors
    /// [`BenchError::Invalid`] when `json` is not such a report.
    pub fn from_json(json: &str) -> Result<Report, BenchError> {
        let report: Report = serde_json::from_str(json).map_err(|error| {
            BenchError::invalid(format!(
                "this is not a benchmark report: {error}; give a file written by a benchmark run"
            ))
        })?;
        if report.format != FORMAT {
            return Err(BenchError::invalid(format!(
                "the report has format '{}'; this version reads '{FORMAT}'",
                report.format
            )));
        }
        Ok(report)
    }
}

/// One workload, run once. Warm-up is not part of any figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The workload.
    pub workload: Workload,
    /// How it was run.
    pub settings: Settings,
    /// When it began, in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: u64,
    /// From the end of the warm-up to the end of the last operation.
    pub elapsed_ns: u64,
    /// Operations that succeeded.
    pub operations: u64,
    /// Operations that succeeded, per second of `elapsed_ns`.
    pub ops_per_s: f64,
    /// Operations that the store answered with an error.
    pub errors: u64,
    /// Reads, and reads of read-modify-writes, that found nothing, and scans without a record.
    pub not_found: u64,
    /// Operations that returned something else than was written; verified runs only.
    pub wrong_values: u64,
    /// Operations that a fixed rate had scheduled before the end and that never started.
    pub unstarted_operations: u64,
    /// Whether the caller ended the run early.
    pub interrupted: bool,
    /// Bytes of keys and values that were written.
    pub user_bytes_written: u64,
    /// Bytes of keys and values that were read, scans included.
    pub user_bytes_read: u64,
    /// How long the sync after the run took; not part of `elapsed_ns`.
    pub sync_ns: u64,
    /// Records before the run.
    pub records_before: u64,
    /// Records after the run.
    pub records_after: u64,
    /// Each kind of operation in the workload.
    pub by_operation: Vec<OperationResult>,
    /// The run over time.
    pub intervals: Vec<Interval>,
    /// The store's own figures over time.
    pub series: Vec<Series>,
}

/// How a workload was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Client threads.
    pub threads: usize,
    /// The limit of measured operations.
    pub operations: Option<u64>,
    /// The limit of measured time.
    pub time_limit_ns: Option<u64>,
    /// The fixed rate of all threads together; none for as fast as possible.
    pub target_ops_per_s: Option<f64>,
    /// How long the run went on before figures were taken.
    pub warm_up_ns: u64,
    /// Whether values were verified.
    pub verify: bool,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Settings {
    /// The settings that options ask for.
    pub(crate) fn of(options: &RunOptions) -> Settings {
        Settings {
            threads: options.threads,
            operations: options.operations,
            time_limit_ns: options.time_limit.map(to_nanos),
            target_ops_per_s: options.target_ops_per_s,
            warm_up_ns: to_nanos(options.warm_up),
            verify: options.verify,
            seed: options.seed,
        }
    }
}

/// One kind of operation in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationResult {
    /// Which.
    pub operation: OperationKind,
    /// Those that succeeded.
    pub operations: u64,
    /// Those that the store answered with an error; they are in no histogram.
    pub errors: u64,
    /// Those that found nothing.
    pub not_found: u64,
    /// Those that returned something else than was written.
    pub wrong_values: u64,
    /// Records that scans returned.
    pub rows: u64,
    /// From the start of the call to its end; none when none succeeded.
    pub latency: Option<Latency>,
    /// From the moment the fixed rate had the call start to its end; none without a fixed rate.
    pub intended_latency: Option<Latency>,
}

/// A latency distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many operations.
    pub count: u64,
    /// The arithmetic mean.
    pub mean_ns: f64,
    /// The fastest.
    pub min_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 95th percentile.
    pub p95_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// The slowest.
    pub max_ns: u64,
    /// The distribution: ten points per factor of ten of `one_in`.
    pub by_percentile: Vec<Quantile>,
}

/// A point of a latency distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    /// The share of operations that took no longer, in percent.
    pub percentile: f64,
    /// One operation in so many took longer: `1 / (1 - percentile / 100)`.
    pub one_in: f64,
    /// The latency.
    pub latency_ns: u64,
}

/// A part of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its begin, since the end of the warm-up.
    pub start_ns: u64,
    /// Its end, since the end of the warm-up.
    pub end_ns: u64,
    /// Operations that ended in it with success.
    pub operations: u64,
    /// Their rate.
    pub ops_per_s: f64,
    /// Operations that ended in it with an error.
    pub errors: u64,
    /// The median of their latencies, from the intended start under a fixed rate; none when there
    /// were no operations.
    #[serde(default)]
    pub p50_ns: Option<u64>,
    /// The 99th percentile, likewise.
    pub p99_ns: Option<u64>,
    /// The 99.9th percentile, likewise.
    #[serde(default)]
    pub p999_ns: Option<u64>,
    /// The slowest, likewise.
    pub max_ns: Option<u64>,
}

/// A figure of the store over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// The unit of the values.
    pub unit: Unit,
    /// Whether it only grows; its increase during the run is then the last value less the first.
    pub counter: bool,
    /// The values, oldest first: one at the start, one for each interval, one after the sync.
    pub points: Vec<Point>,
}

impl Series {
    /// How much a counter grew during the run; none for a level.
    #[must_use]
    pub fn increase(&self) -> Option<f64> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        self.counter.then_some(last.value - first.value)
    }

    /// Whether it counts the time for which writers were stalled: nanoseconds, by a name that ends with `stalled`.
    #[must_use]
    pub fn is_stall(&self) -> bool {
        self.counter && self.unit == Unit::Nanoseconds && self.name.ends_with("stalled")
    }
}

/// A figure at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// When, since the end of the warm-up.
    pub at_ns: u64,
    /// The figure.
    pub value: f64,
}
