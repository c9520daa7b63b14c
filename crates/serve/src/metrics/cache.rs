//! The caches of a stack.

use std::sync::Arc;

use esker_cache::Stats;
use esker_device::Device as _;
use esker_stack::Stack;

use super::{Collector, Families};

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// The collector.
pub(crate) struct Caches(pub(crate) Arc<Stack>);

/// A figure of a cache.
type Figure = fn(&Stats) -> u64;
/// A name, its meaning, the label by which its figures differ, and these.
type Split = (&'static str, &'static str, &'static str, &'static [(&'static str, Figure)]);

const COUNTS: [(&str, &str, Figure); 8] = [
    ("esker_cache_filled_bytes_total", "Bytes let in after a miss", |one| one.fills * BLOCK),
    (
        "esker_cache_fills_dropped_bytes_total",
        "Bytes that were to be let in and were not: written meanwhile, or without room",
        |one| one.fills_dropped * BLOCK,
    ),
    ("esker_cache_read_ahead_bytes_total", "Bytes read from the origin ahead of the host", |one| {
        one.read_ahead * BLOCK
    }),
    ("esker_cache_written_back_bytes_total", "Bytes written back", |one| one.cleaned * BLOCK),
    (
        "esker_cache_write_back_commands_total",
        "Commands that wrote back: neighbours go together",
        |one| one.clean_writes,
    ),
    ("esker_cache_host_read_bytes_total", "Bytes that the host read", |one| one.host_read_bytes),
    ("esker_cache_host_written_bytes_total", "Bytes that the host wrote", |one| {
        one.host_written_bytes
    }),
    (
        "esker_cache_flash_metadata_bytes_total",
        "Of the bytes written to the flash device, those that are metadata",
        |one| one.flash_metadata_bytes,
    ),
];

const SPLIT: [Split; 6] = [
    (
        "esker_cache_hits_total",
        "Blocks that were found, by operation",
        "operation",
        &[("read", |one| one.read_hits), ("write", |one| one.write_hits)],
    ),
    (
        "esker_cache_misses_total",
        "Blocks that were not found, by operation",
        "operation",
        &[("read", |one| one.read_misses), ("write", |one| one.write_misses)],
    ),
    (
        "esker_cache_bypassed_bytes_total",
        "Bytes that went past the cache, by operation: streams, parts of blocks, beyond the budget",
        "operation",
        &[("read", |one| one.bypassed_reads * BLOCK), ("write", |one| one.bypassed_writes * BLOCK)],
    ),
    (
        "esker_cache_read_bytes_total",
        "Bytes read from the device of this role",
        "role",
        &[("flash", |one| one.flash_read_bytes), ("origin", |one| one.origin_read_bytes)],
    ),
    (
        "esker_cache_written_bytes_total",
        "Bytes written to the device of this role",
        "role",
        &[("flash", |one| one.flash_written_bytes), ("origin", |one| one.origin_written_bytes)],
    ),
    (
        "esker_cache_errors_total",
        "Commands to the device of this role that failed",
        "role",
        &[("flash", |one| one.flash_errors), ("origin", |one| one.origin_errors)],
    ),
];

const LEVELS: [(&str, &str, Figure); 6] = [
    ("esker_cache_capacity_bytes", "Size of all slots of the cache", |one| one.capacity_bytes),
    ("esker_cache_dirty_bytes", "Bytes that the origin does not have yet", |one| {
        one.dirty_blocks * BLOCK
    }),
    ("esker_cache_memory_bytes", "Memory of the sets that are in use", |one| one.memory_bytes),
    ("esker_cache_sets", "Sets", |one| u64::from(one.sets)),
    ("esker_cache_flash_lost", "Whether the flash device has failed for good", |one| {
        u64::from(one.is_flash_lost)
    }),
    (
        "esker_cache_over_budget",
        "Whether more was written than the budget allows, so that nothing is let in",
        |one| u64::from(one.is_over_budget),
    ),
];

impl Collector for Caches {
    fn collect(&self, families: &mut Families) {
        let caches = self.0.caches();
        let all: Vec<(String, Stats)> =
            caches.iter().map(|cache| (cache.name().to_owned(), cache.figures())).collect();
        drop(caches);
        for (name, help, figure) in COUNTS {
            let values = all.iter().map(|(cache, stats)| ([cache.clone()], figure(stats)));
            families.counters((name, help, ["cache"]), values);
        }
        for (name, help, label, figures) in SPLIT {
            let values = all.iter().flat_map(|(cache, stats)| {
                figures
                    .iter()
                    .map(|(part, figure)| ([cache.clone(), (*part).to_owned()], figure(stats)))
            });
            families.counters((name, help, ["cache", label]), values);
        }
        for (name, help, figure) in LEVELS {
            let values = all.iter().map(|(cache, stats)| ([cache.clone()], figure(stats)));
            families.gauges((name, help, ["cache"]), values);
        }
        let modes =
            all.iter().map(|(cache, stats)| ([cache.clone(), stats.mode.to_string()], 1u64));
        let help = "Always 1; the label says where writes go";
        families.gauges(("esker_cache_mode_info", help, ["cache", "mode"]), modes);
    }
}
