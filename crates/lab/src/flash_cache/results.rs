//! The figures of the study: of each workload, size of the cache and version.

use esker_base::units::human_bytes;
use esker_cache::replay::{Outcome, Trace};
use serde::{Deserialize, Serialize};

use super::disk::{BLOCK_BYTES, Times, figure};

/// Results of all versions with a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadResult {
    /// Its name.
    pub name: String,
    /// Requests that read or write.
    pub requests: u64,
    /// The share of them that read.
    pub read_share: f64,
    /// Blocks of 4 KiB that they refer to.
    pub references: u64,
    /// Bytes of different blocks.
    pub footprint_bytes: u64,
    /// Seconds of the disk without a cache.
    pub uncached_s: f64,
    /// One for each size of the cache.
    pub sizes: Vec<SizeResult>,
}

/// Results of all versions with a size of the cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeResult {
    /// Of the footprint.
    pub percent: u32,
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// One for each version.
    pub versions: Vec<VersionResult>,
    /// Hits of the version of 2013, by where new blocks are inserted.
    pub by_percentile: Vec<InsertionPoint>,
}

/// Results of a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VersionResult {
    /// Its name.
    pub name: String,
    /// Blocks that were hits, of all.
    pub hit_ratio: f64,
    /// The share of the disk's commands that the busier half of the sets caused.
    pub busier_half: f64,
    /// The share of all accesses that went to the busier half of the sets.
    pub busier_half_of_accesses: f64,
    /// The disk's commands.
    pub disk_reads: u64,
    /// See `disk_reads`.
    pub disk_writes: u64,
    /// Blocks that the disk reads less than under the first version: a share, below 0 for more.
    pub read_blocks_saved: f64,
    /// The same of commands that read.
    pub reads_saved: f64,
    /// The same of blocks written.
    pub written_blocks_saved: f64,
    /// The same of commands that write.
    pub writes_saved: f64,
    /// Blocks written to the flash.
    pub flash_blocks: u64,
    /// The same as a share of the writes of an LRU cache that lets everything in.
    pub flash_share: f64,
    /// Seconds of the disk.
    pub disk_s: f64,
}

/// A hit ratio for a place of insertion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InsertionPoint {
    /// From the head: 1 inserts as LRU does, 100 at the end that is evicted.
    pub percentile: u8,
    /// Blocks that were hits, of all.
    pub hit_ratio: f64,
}

impl VersionResult {
    pub(crate) fn new(
        name: &str,
        outcome: &Outcome,
        (first, admits_all): (&Outcome, &Outcome),
        times: &Times,
    ) -> VersionResult {
        let (disk, before) = (outcome.disk, first.disk);
        let saved = |now: u64, before: u64| match before {
            0 => 0.0,
            _ => 1.0 - figure(now) / figure(before),
        };
        VersionResult {
            name: name.to_owned(),
            hit_ratio: outcome.hit_ratio_by_block(),
            busier_half: outcome.busier_half_of_operations,
            busier_half_of_accesses: outcome.busier_half_of_references,
            disk_reads: disk.operations.reads,
            disk_writes: disk.operations.writes,
            reads_saved: saved(disk.operations.reads, before.operations.reads),
            read_blocks_saved: saved(disk.blocks.reads, before.blocks.reads),
            writes_saved: saved(disk.operations.writes, before.operations.writes),
            written_blocks_saved: saved(disk.blocks.writes, before.blocks.writes),
            flash_blocks: outcome.flash_blocks_written,
            flash_share: figure(outcome.flash_blocks_written)
                / figure(admits_all.flash_blocks_written.max(1)),
            disk_s: times.seconds(
                (disk.operations.reads, disk.operations.writes),
                (disk.blocks.reads, disk.blocks.writes),
            ),
        }
    }
}

impl WorkloadResult {
    pub(crate) fn new(
        name: &str,
        trace: &Trace,
        any: &Outcome,
        times: &Times,
        sizes: Vec<SizeResult>,
    ) -> WorkloadResult {
        let (requests, references) = (any.requests, any.references);
        WorkloadResult {
            name: name.to_owned(),
            requests: requests.total(),
            read_share: figure(requests.reads) / figure(requests.total().max(1)),
            references: references.total(),
            footprint_bytes: trace.footprint() * BLOCK_BYTES,
            uncached_s: times
                .seconds((requests.reads, requests.writes), (references.reads, references.writes)),
            sizes,
        }
    }

    /// A workload in a line.
    pub(crate) fn line(&self) -> String {
        format!(
            "{} requests, {:.0} % reads, {} blocks of 4 KiB, {} different; {:.0} s of the disk \
             without a cache",
            self.requests,
            self.read_share * 100.0,
            self.references,
            human_bytes(self.footprint_bytes),
            self.uncached_s
        )
    }
}

/// The head of the table of a size.
pub(crate) const COLUMNS: [&str; 11] = [
    "version",
    "hits",
    "busier half",
    "of accesses",
    "disk reads",
    "fewer",
    "disk writes",
    "fewer",
    "blocks written",
    "flash written",
    "disk time",
];

impl SizeResult {
    /// Returns the results of a version.
    pub(super) fn version(&self, name: &str) -> Option<&VersionResult> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The rows of its table, in the order of [`COLUMNS`].
    pub(crate) fn rows(&self) -> Vec<[String; 11]> {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let row = |one: &VersionResult| {
            [
                one.name.clone(),
                percent(one.hit_ratio),
                percent(one.busier_half),
                percent(one.busier_half_of_accesses),
                one.disk_reads.to_string(),
                percent(one.reads_saved),
                one.disk_writes.to_string(),
                percent(one.writes_saved),
                format!("{:+.1} %", 0.0 - one.written_blocks_saved * 100.0),
                percent(one.flash_share),
                format!("{:.0} s", one.disk_s),
            ]
        };
        self.versions.iter().map(row).collect()
    }
}
