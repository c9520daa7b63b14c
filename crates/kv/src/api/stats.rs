//! Statistics: the engine's work and content, as a struct that becomes JSON.

use std::sync::atomic::Ordering;

use serde::Serialize;

use crate::engine::pacer::PacedBy;
use crate::engine::readers::ReaderStats;
use crate::engine::shared::Engine;
use crate::media::class::{Allocation, Media};
use crate::tree::view::Tree;
use crate::types::class::MediaClass;
use crate::types::compression::Compression;
use crate::types::ids::LeafId;
use crate::types::stream::Stream;
use crate::values::block::ValueBlock;

/// A KVDB's figures. Counts are since it was opened, sizes are now; all sizes in bytes.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Operations that callers have asked for.
    pub operations: Operations,
    /// Keys and values that callers have written.
    pub user_bytes: u64,
    /// Bytes written to all devices, the manifest's included.
    pub device_written_bytes: u64,
    /// Device bytes written for each user byte; 0 when nothing was written.
    pub write_amplification: f64,
    /// Bytes written to the manifest.
    pub manifest_written_bytes: u64,
    /// Each media class.
    pub classes: Vec<ClassStats>,
    /// DRAM by purpose.
    pub dram: Dram,
    /// Record cache and key pages.
    pub cache: CacheStats,
    /// Work that maintenance has done.
    pub maintenance: MaintenanceStats,
    /// When and how long writers waited.
    pub stalls: Stalls,
    /// Transactions.
    pub transactions: TransactionStats,
    /// Readers that are open, and what they keep.
    pub readers: ReaderStats,
    /// Each KVS.
    pub kvss: Vec<KvsStats>,
    /// How long it has been open, in nanoseconds.
    pub open_ns: u64,
    /// Why writes are refused, if they are.
    pub stopped: Option<String>,
    /// Damage that maintenance has found since the KVDB was opened, one sentence each: which keys of which KVS are
    /// read-only or not maintained, why, and what to do.
    pub damaged: Vec<String>,
}

/// Counts of calls.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct Operations {
    pub puts: u64,
    pub gets: u64,
    pub deletes: u64,
    pub prefix_deletes: u64,
    /// Deletes of ranges of keys, and of all keys of a KVS.
    pub range_deletes: u64,
    pub batches: u64,
    pub cursor_steps: u64,
    /// Keys, deleted or expired, that cursors passed over one by one.
    pub passed_keys: u64,
    pub syncs: u64,
}

/// One media class.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ClassStats {
    /// Which.
    pub class: MediaClass,
    /// The device's name.
    pub device: String,
    /// Its size, or the size it may grow to; not less than the bytes used.
    pub capacity_bytes: u64,
    /// Allocated, freed but not yet discarded extents included.
    pub used_bytes: u64,
    /// Free, and with blocks of the file system all the same, where the class is a file: for deletes and maintenance
    /// when that file system is full.
    pub reserve_bytes: u64,
    /// Records and keys that are referred to.
    pub live_bytes: u64,
    /// Allocated to values, but no longer referred to.
    pub garbage_bytes: u64,
    /// Allocated, and kept for nothing but cursors, snapshots and transactions that were begun before it became old.
    pub pinned_bytes: u64,
    /// How long a command or more was in flight on the device, in nanoseconds.
    pub busy_ns: u64,
    /// Traffic by stream.
    pub streams: Vec<StreamStats>,
}

impl ClassStats {
    /// Bytes written to this class.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.written_bytes).sum()
    }

    /// Bytes read from this class.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.read_bytes).sum()
    }
}

/// One stream of a class.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct StreamStats {
    pub stream: Stream,
    /// The placement id of its writes, where the device takes one.
    pub placement: Option<u16>,
    pub written_bytes: u64,
    pub read_bytes: u64,
    /// Device reads.
    pub reads: u64,
    /// Bytes on the medium that are referred to.
    pub live_bytes: u64,
}

/// DRAM by purpose.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct Dram {
    pub budget_bytes: u64,
    /// Memtables, those included that were ingested and that somebody still reads.
    pub memtable_bytes: u64,
    pub log_buffer_bytes: u64,
    pub filter_bytes: u64,
    pub index_bytes: u64,
    /// KVSs, leaves and kvsets themselves, with the manifest's knowledge of each, and the ranges of keys that cursors
    /// have found to be deleted.
    pub structure_bytes: u64,
    pub key_page_bytes: u64,
    pub record_cache_bytes: u64,
    /// Size to which the record cache may grow, in bytes.
    pub record_cache_capacity_bytes: u64,
    /// Values that cursors hold for rows to come, not yet asked for, and the buffers they keep for more.
    pub window_bytes: u64,
    /// Rows that cursors have before they are asked for, and key pages that they read ahead.
    pub cursor_bytes: u64,
}

impl Dram {
    /// All of it.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.memtable_bytes
            + self.log_buffer_bytes
            + self.filter_bytes
            + self.index_bytes
            + self.structure_bytes
            + self.key_page_bytes
            + self.record_cache_bytes
            + self.window_bytes
            + self.cursor_bytes
    }
}

/// Caches.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct CacheStats {
    pub record_hits: u64,
    /// Those of `record_hits` that took no search for the key.
    pub record_hits_by_key: u64,
    pub record_misses: u64,
    pub records: u64,
    /// Searches that had to read a key page.
    pub key_page_misses: u64,
}

/// Counts of maintenance steps.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct MaintenanceStats {
    pub log_flushes: u64,
    pub ingests: u64,
    pub spills: u64,
    pub compactions: u64,
    pub collections: u64,
    /// Times that a leaf's kvsets went as a whole because everything in them had expired.
    pub expirations: u64,
    pub splits: u64,
    pub joins: u64,
    /// Times that a leaf's values were put in key order, after scans or by a compaction of all.
    pub sorts: u64,
    /// Those of all these steps that a second worker ran.
    pub helped: u64,
    /// Blocks of values that ingests wrote, because they were not to stay in the log.
    pub young_blocks: u64,
}

/// Waits of writers.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Stalls {
    /// For another writer, a millisecond and more.
    pub writer: u64,
    /// For a memtable to be ingested.
    pub memtable: u64,
    /// For a log segment to be opened.
    pub segment: u64,
    /// For the log to be flushed, because more bytes than [`Durability::bytes`](crate::Durability) were not.
    pub durability: u64,
    /// All of them, in nanoseconds.
    pub total_ns: u64,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
    /// Time writers were slowed down for because the roots held much that was not spilled, in nanoseconds.
    pub paced_by_spills_ns: u64,
    /// The same because a memtable was still being ingested.
    pub paced_by_ingest_ns: u64,
    /// The same because much of the log was not durable.
    pub paced_by_log_ns: u64,
}

impl Stalls {
    /// Time writers were slowed down for, in nanoseconds.
    #[must_use]
    pub fn paced_ns(&self) -> u64 {
        self.paced_by_spills_ns + self.paced_by_ingest_ns + self.paced_by_log_ns
    }
}

/// Transactions.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct TransactionStats {
    /// Begun and not yet ended.
    pub open: usize,
    /// Committed.
    pub committed: u64,
    /// Refused, because someone else had written one of their keys.
    pub conflicts: u64,
    /// Ended because they were open for too long.
    pub expired: u64,
    /// DRAM of memtables kept only to find conflicts, in bytes.
    pub history_bytes: u64,
}

/// One KVS.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct KvsStats {
    pub name: String,
    pub policy: String,
    /// Compression of values that age.
    pub compression: Compression,
    /// Records that kvsets refer to, with their keys, as they are stored.
    pub value_bytes: u64,
    /// Size of these records with no value compressed. Exact for each block of values; of a block that is garbage
    /// in part it takes the same part.
    pub plain_value_bytes: u64,
    /// The time to live of values that are put, in milliseconds.
    pub ttl_ms: Option<u64>,
    pub root_kvsets: usize,
    pub leaves: usize,
    pub leaf_kvsets: usize,
    /// Entries in kvsets, older versions and tombstones included.
    pub entries: u64,
    pub tombstones: u64,
    /// Deleted ranges of keys that kvsets still remember, a prefix being one.
    pub range_tombstones: u64,
    /// Where it lies: an item for each class.
    pub places: Vec<PlaceStats>,
}

/// Space of a KVS on one class, in bytes. Young is data that the root refers to, old is data that the leaves refer
/// to; versions that newer ones hide are counted as long as nobody has merged them.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct PlaceStats {
    pub class: MediaClass,
    pub young_keys_bytes: u64,
    pub young_values_bytes: u64,
    pub old_keys_bytes: u64,
    pub old_values_bytes: u64,
}

impl PlaceStats {
    fn of(tree: &Tree, class: MediaClass) -> PlaceStats {
        let mut sums = [0; 4];
        for kvset in tree.kvsets() {
            let old = 2 * usize::from(kvset.edit.leaf != LeafId::ROOT);
            let keys = kvset.key_extents().iter().filter(|keys| keys.media.class == class);
            let blocks = kvset.blocks.iter().filter(|(block, _)| block.media().class == class);
            sums[old] += keys.map(Allocation::bytes).sum::<u64>();
            sums[old + 1] += blocks.map(|(_, bytes)| bytes).sum::<u64>();
        }
        let [young_keys_bytes, young_values_bytes, old_keys_bytes, old_values_bytes] = sums;
        PlaceStats { class, young_keys_bytes, young_values_bytes, old_keys_bytes, old_values_bytes }
    }
}

/// Blocks, and the bytes of their records that a kvset refers to.
fn values(tree: &Tree) -> impl Iterator<Item = (&ValueBlock, u64)> {
    tree.kvsets().flat_map(|kvset| &kvset.blocks).map(|(block, live)| (&**block, *live))
}

impl KvsStats {
    /// How many bytes of records one stored byte stands for: 1 when nothing is compressed.
    #[must_use]
    pub fn compression_ratio(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)] // a ratio for people
        let ratio = self.plain_value_bytes as f64 / self.value_bytes as f64;
        if self.value_bytes == 0 { 1.0 } else { ratio }
    }
}

impl Stats {
    /// The figures of a KVDB now.
    pub(crate) fn of(engine: &Engine) -> Stats {
        let c = &engine.counters;
        let view = engine.view.load();
        let pinned_by_readers = engine.view.pinned_bytes(&engine.log);
        let classes: Vec<ClassStats> = engine
            .classes
            .all()
            .iter()
            .map(|media| class_stats(engine, media, pinned_by_readers[media.class as usize]))
            .collect();
        let manifest = engine.manifest.written_bytes();
        let user_bytes = c.user_bytes.get();
        let written = manifest + classes.iter().map(ClassStats::written_bytes).sum::<u64>();
        let pinned = view.pinned();
        let cache = engine.values.cache.stats();
        #[allow(clippy::cast_precision_loss)] // a ratio for people
        let amplification = if user_bytes == 0 { 0.0 } else { written as f64 / user_bytes as f64 };
        Stats {
            operations: Operations {
                puts: c.puts.get(),
                gets: c.gets.get(),
                deletes: c.deletes.get(),
                prefix_deletes: c.prefix_deletes.get(),
                range_deletes: c.range_deletes.get(),
                batches: c.batches.get(),
                cursor_steps: c.cursor_steps.get(),
                passed_keys: c.passed_keys.get(),
                syncs: c.syncs.get(),
            },
            user_bytes,
            device_written_bytes: written,
            write_amplification: amplification,
            manifest_written_bytes: manifest,
            classes,
            dram: Dram {
                budget_bytes: engine.options.memory_bytes,
                memtable_bytes: view.memtable_bytes() + engine.scheduler.ingested_bytes(),
                log_buffer_bytes: engine.log.tail().dram_bytes(),
                filter_bytes: pinned.filters,
                index_bytes: pinned.indexes,
                structure_bytes: pinned.structures + engine.dead_ranges.bytes(),
                key_page_bytes: engine.budget.pages().resident_bytes(),
                record_cache_bytes: cache.bytes,
                record_cache_capacity_bytes: cache.capacity,
                window_bytes: engine.values.windows.held_bytes(),
                cursor_bytes: engine.values.windows.rows_bytes(),
            },
            cache: CacheStats {
                record_hits: cache.hits,
                record_hits_by_key: cache.hits_by_key,
                record_misses: cache.misses,
                records: cache.entries,
                key_page_misses: engine.budget.pages().misses(),
            },
            maintenance: MaintenanceStats {
                log_flushes: c.log_flushes.get(),
                ingests: c.ingests.get(),
                spills: c.spills.get(),
                compactions: c.compactions.get(),
                collections: c.collections.get(),
                expirations: c.expirations.get(),
                splits: c.splits.get(),
                joins: c.joins.get(),
                sorts: c.sorts.get(),
                helped: c.helped.get(),
                young_blocks: c.young_blocks.get(),
            },
            stalls: Stalls {
                writer: c.writer_waits.get(),
                memtable: c.memtable_waits.get(),
                segment: c.segment_waits.get(),
                durability: c.durability_waits.get(),
                total_ns: c.stalled_ns.get(),
                longest_ns: c.longest_stall_ns.load(Ordering::Relaxed),
                paced_by_spills_ns: engine.pacer.paced_ns(PacedBy::Spills),
                paced_by_ingest_ns: engine.pacer.paced_ns(PacedBy::Ingest),
                paced_by_log_ns: engine.pacer.paced_ns(PacedBy::Log),
            },
            transactions: TransactionStats {
                open: engine.transactions.open().0,
                committed: engine.transactions.committed.get(),
                conflicts: engine.transactions.conflicts.get(),
                expired: engine.transactions.expired.get(),
                history_bytes: engine.transactions.history_bytes(),
            },
            readers: engine.reader_stats(pinned_by_readers.iter().sum()),
            kvss: view
                .trees
                .values()
                .map(|tree| KvsStats {
                    name: tree.name.to_string(),
                    policy: tree.options.policy.to_string(),
                    compression: tree.options.compression,
                    value_bytes: values(tree).map(|(_, live)| live).sum(),
                    plain_value_bytes: values(tree).map(|(b, live)| b.plain_part(live)).sum(),
                    ttl_ms: tree.options.ttl_ms,
                    root_kvsets: tree.root.len(),
                    leaves: tree.leaves.len(),
                    leaf_kvsets: tree.leaves.iter().map(|leaf| leaf.kvsets.len()).sum(),
                    entries: tree.kvsets().map(|kvset| kvset.edit.entries).sum(),
                    tombstones: tree.kvsets().map(|kvset| kvset.edit.tombstones).sum(),
                    range_tombstones: tree.kvsets().map(|kvset| kvset.deleted.len() as u64).sum(),
                    places: engine
                        .classes
                        .all()
                        .iter()
                        .map(|media| PlaceStats::of(tree, media.class))
                        .collect(),
                })
                .collect(),
            open_ns: engine.options.clock.now().0 - engine.life.opened().0,
            stopped: engine.life.stopped().map(ToString::to_string),
            damaged: engine.fences.damages(&engine.view),
        }
    }
}

fn class_stats(engine: &Engine, media: &Media, pinned_bytes: u64) -> ClassStats {
    let view = engine.view.load();
    let mut live = [0; Stream::ALL.len()];
    let mut blocks = std::collections::BTreeMap::new();
    for kvset in view.trees.values().flat_map(|tree| tree.kvsets()) {
        for allocation in kvset.key_extents() {
            if allocation.media.class == media.class {
                live[allocation.stream as usize] += allocation.bytes();
            }
        }
        for (block, bytes) in &kvset.blocks {
            if block.media().class == media.class {
                live[block.stream() as usize] += bytes;
                blocks.insert(block.id, block.allocation.bytes());
            }
        }
    }
    let allocated: u64 = blocks.values().sum();
    let values = live[Stream::Log as usize] + live[Stream::OldValues as usize];
    ClassStats {
        class: media.class,
        device: media.device().name().to_owned(),
        capacity_bytes: media.capacity_bytes(),
        used_bytes: media.used_bytes(),
        reserve_bytes: media.reserved_bytes(),
        busy_ns: media.lease.busy_ns(),
        live_bytes: live.iter().sum(),
        garbage_bytes: allocated.saturating_sub(values),
        pinned_bytes,
        streams: Stream::OF_CLASSES
            .iter()
            .map(|&stream| {
                let (reads, read_bytes, written_bytes) = media.traffic(stream);
                let live_bytes = live[stream as usize];
                let placement = stream.placement(media.placement_handles).map(|id| id.0);
                StreamStats { stream, placement, written_bytes, read_bytes, reads, live_bytes }
            })
            .collect(),
    }
}
