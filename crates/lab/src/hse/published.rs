//! Figures of the source: Micron's article on HSE, four 5210 drives against the same and one 9300.
//!
//! 2 billion records of 1,000 bytes, 256 GB of memory, 96 clients, 2 billion operations of each workload.

use super::machine::Arm;

/// How many times as fast as without staging a workload is.
pub(super) const THROUGHPUT: [(&str, f64); 3] = [("load", 4.0), ("A", 2.3), ("F", 2.1)];
/// Workloads of which the source says that they gain modestly.
pub(super) const MODEST: [&str; 2] = ["B", "D"];
/// Workloads whose 99.9th percentile of reads falls to a half or a third.
pub(super) const TAIL: [&str; 4] = ["A", "B", "D", "F"];
/// The most that this percentile falls to, as a share of that without staging.
pub(super) const TAIL_SHARE: f64 = 0.5;
/// Bytes that the load wrote, in gigabytes: to capacity and to staging.
pub(super) const LOAD_GB: [(Arm, f64, Option<f64>); 2] =
    [(Arm::Capacity, 7260.0, None), (Arm::Staged, 2978.0, Some(4158.0))];
/// Bytes of its records, in gigabytes.
pub(super) const DATA_GB: f64 = 2000.0;
/// The most that the bytes to capacity of a workload fall to, as a share of those without staging.
pub(super) const WRITTEN_SHARE: f64 = 0.5;
/// Bytes to capacity for each byte of the user's, in a load with staging, at most.
pub(super) const CAPACITY_PER_BYTE: f64 = 1.51;
/// The least share of the drives' rates that a load reaches where its ratio is smaller than the source's.
pub(super) const OF_RATES: f64 = 0.8;
