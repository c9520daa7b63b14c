//! RocksDB three ways. Settings beyond its defaults are in [`create`], with the reason.

use std::path::Path;
use std::sync::Arc;

use esker_base::units::to_usize;
use esker_bench::{BoxError, Session, Store};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, ReadOptions, WaitForCompactOptions,
    WriteOptions,
};

use super::log::LogSyncs;
use super::{Opened, PeersLog, Setting, Settle, sized, version_of};

/// How RocksDB is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// Through the page cache, which shares the memory with the block cache.
    Buffered,
    /// Around the page cache; the block cache has the memory.
    Direct,
    /// Values in blob files, through the page cache; the cache holds blobs and blocks.
    Blobs,
}

/// Values from this size on are in blob files.
const MIN_BLOB_BYTES: u64 = 256;

struct Rocks {
    // Dropped before the database it syncs.
    log: Option<LogSyncs>,
    db: Arc<DB>,
    write: WriteOptions,
}

pub(super) fn create(dir: &Path, setting: &Setting, variant: Variant) -> Result<Opened, BoxError> {
    let cache_bytes = match variant {
        Variant::Buffered | Variant::Blobs => setting.buffered_cache_bytes(),
        Variant::Direct => setting.direct_cache_bytes(),
    };
    let memtable_bytes = setting.memtable_bytes();
    // The cache that RocksDB recommends; 0 lets it find the size of its entries by itself.
    let cache = Cache::new_hyper_clock_cache(to_usize(cache_bytes), 0);
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&cache);
    table.set_bloom_filter(10.0, false);
    table.set_format_version(6);
    // Indexes and filters are in the budget, and stay while there is room.
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_pin_top_level_index_and_filter(true);

    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(to_usize(memtable_bytes));
    options.set_max_write_buffer_number(4);
    options.set_min_write_buffer_number_to_merge(1);
    options.set_max_background_jobs(4);
    // As large as the data that comes into it from level 0 at once.
    options.set_max_bytes_for_level_base(4 * memtable_bytes);
    options.set_target_file_size_base(64 << 20);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_max_open_files(-1);
    options.set_max_total_wal_size(8 * memtable_bytes);
    // Written back as it is written, so that a sync of much at once stalls nobody.
    options.set_bytes_per_sync(1 << 20);
    options.set_wal_bytes_per_sync(1 << 20);
    let mut description = format!(
        "{} (crate {}): {}, hyper clock, index and filter blocks in it, those of level 0 and the top ones \
         pinned; format version 6, blocks of 4 KiB, Bloom filters of 10 bits; {}, 4 of them; 4 background jobs; \
         dynamic levels, {}, files of 64 MiB; {}; synced by each MiB, WAL and files; no compression; {}",
        version_of("librocksdb-sys").split_once('+').map_or("unknown", |(_, version)| version),
        version_of("rocksdb"),
        sized("cache", cache_bytes),
        sized("memtables of", memtable_bytes),
        sized("base", 4 * memtable_bytes),
        sized("WALs of at most", 8 * memtable_bytes),
        setting.peers_log.described("WAL"),
    );
    options.set_manual_wal_flush(setting.peers_log == PeersLog::Memory);
    if variant == Variant::Direct {
        options.set_use_direct_reads(true);
        options.set_use_direct_io_for_flush_and_compaction(true);
        description += "; direct I/O";
    }
    if variant == Variant::Blobs {
        options.set_enable_blob_files(true);
        options.set_min_blob_size(MIN_BLOB_BYTES);
        options.set_blob_file_size(256 << 20);
        options.set_blob_compression_type(DBCompressionType::None);
        options.set_enable_blob_gc(true);
        options.set_blob_compaction_readahead_size(2 << 20);
        // Values are cached as records, not as pages.
        options.set_blob_cache(&cache);
        description += "; blob files of 256 MiB, collected, blobs in the same cache";
    }
    let db = Arc::new(DB::open(&options, dir)?);
    let log = match setting.peers_log {
        PeersLog::Kernel => None,
        PeersLog::Memory => {
            let db = Arc::clone(&db);
            Some(LogSyncs::start(move || Ok(db.flush_wal(true)?))?)
        }
    };
    let at_rest = Arc::clone(&db);
    let settle: Settle =
        Box::new(move || Ok(at_rest.wait_for_compact(&WaitForCompactOptions::default())?));
    let store = Rocks { log, db, write: WriteOptions::default() };
    Ok(Opened { store: Box::new(store), settle: Some(settle), description })
}

impl Store for Rocks {
    fn session(&self) -> Result<Box<dyn Session + '_>, BoxError> {
        Ok(Box::new(RocksSession { store: self, read: ReadOptions::default() }))
    }

    fn sync(&self) -> Result<(), BoxError> {
        self.log.as_ref().map_or(Ok(()), LogSyncs::check)?;
        Ok(self.db.flush_wal(true)?)
    }
}

struct RocksSession<'a> {
    store: &'a Rocks,
    read: ReadOptions,
}

impl Session for RocksSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BoxError> {
        // Pinned: copied once, from the cache or the memtable into `value`.
        let Some(found) = self.store.db.get_pinned_opt(key, &self.read)? else {
            return Ok(false);
        };
        value.clear();
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), BoxError> {
        Ok(self.store.db.put_opt(key, value, &self.store.write)?)
    }

    fn scan(
        &mut self,
        start: &[u8],
        count: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, BoxError> {
        let mut cursor = self.store.db.raw_iterator();
        cursor.seek(start);
        let mut visited = 0;
        while visited < count
            && let Some((key, value)) = cursor.item()
        {
            visit(key, value);
            visited += 1;
            if visited < count {
                cursor.next();
            }
        }
        cursor.status()?;
        Ok(visited)
    }
}
