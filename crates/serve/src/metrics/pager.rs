//! A pager.

use std::sync::Arc;

use esker_pager::{PAGE, Pager, Stats};

use super::{Collector, Families};

/// The collector of a pager.
pub struct Paging {
    /// The pager.
    pub pager: Arc<Pager>,
    /// The memory that paged data may take.
    pub budget_bytes: u64,
}

/// A figure of a pager.
type Figure = fn(&Stats) -> u64;

fn bytes(pages: u64) -> u64 {
    pages * PAGE as u64
}

const COUNTS: [(&str, &str, Figure); 17] = [
    ("esker_pager_faults_total", "Faults by missing pages", |one| one.faults),
    ("esker_pager_zero_faults_total", "Faults by pages that never had content", |one| {
        one.zero_faults
    }),
    (
        "esker_pager_staged_faults_total",
        "Faults by pages that were just evicted or read ahead",
        |one| one.staged_hits,
    ),
    (
        "esker_pager_restored_faults_total",
        "Faults by pages of which memory had a compressed copy",
        |one| one.restored_pages,
    ),
    (
        "esker_pager_read_faults_total",
        "Faults by pages that were read from the device for it",
        |one| one.read_faults,
    ),
    ("esker_pager_write_faults_total", "First writes to clean pages", |one| one.write_faults),
    ("esker_pager_read_ahead_bytes_total", "Read ahead of need", |one| bytes(one.ahead_pages)),
    (
        "esker_pager_restored_ahead_bytes_total",
        "Brought back ahead of need from compressed copies",
        |one| bytes(one.ahead_restored),
    ),
    ("esker_pager_read_ahead_used_bytes_total", "Brought ahead in streams that went on", |one| {
        bytes(one.ahead_used)
    }),
    ("esker_pager_read_ahead_wasted_bytes_total", "Brought ahead in streams that ended", |one| {
        bytes(one.ahead_wasted)
    }),
    ("esker_pager_evicted_bytes_total", "Taken out of memory", |one| bytes(one.evicted_pages)),
    ("esker_pager_written_bytes_total", "Written to the device", |one| bytes(one.written_pages)),
    (
        "esker_pager_zero_bytes_total",
        "Evicted without a write, because they were all zeroes",
        |one| bytes(one.zero_pages),
    ),
    ("esker_pager_compressed_bytes_total", "Pages of which a compressed copy was made", |one| {
        bytes(one.compressed_pages)
    }),
    ("esker_pager_failed_writes_total", "Writes that failed and were tried again", |one| {
        one.failed_writes
    }),
    ("esker_pager_lost_bytes_total", "Lost to failed reads", |one| bytes(one.poisoned_pages)),
    (
        "esker_pager_vanished_bytes_total",
        "Dropped by the program without the pager being told",
        |one| bytes(one.vanished_pages),
    ),
];

const LEVELS: [(&str, &str, Figure); 6] = [
    ("esker_pager_resident_bytes", "In memory, those inherited by a fork counted twice", |one| {
        bytes(one.resident_pages)
    }),
    ("esker_pager_paged_bytes", "On the device or on the way to it", |one| bytes(one.paged_pages)),
    ("esker_pager_outside_bytes", "Anonymous memory of programs that is not paged", |one| {
        one.outside_bytes
    }),
    ("esker_pager_copies_bytes", "Memory of compressed copies", |one| one.compressed_bytes),
    ("esker_pager_reserved_bytes", "Reserved by programs", |one| one.reserved_bytes),
    ("esker_pager_spaces", "Processes, or snapshots of them", |one| one.spaces),
];

impl Collector for Paging {
    fn collect(&self, families: &mut Families) {
        let stats = self.pager.stats();
        for (name, help, figure) in COUNTS {
            families.counter(name, help, figure(&stats));
        }
        for (name, help, figure) in LEVELS {
            families.gauge(name, help, figure(&stats));
        }
        let help = "Memory that the program's paged data may take";
        families.gauge("esker_pager_budget_bytes", help, self.budget_bytes);
    }
}
