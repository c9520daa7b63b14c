//! Esker's key-value engine: young data on a fast *staging* medium, old data on cheap *capacity*
//! flash.
//!
//! A [`Kvdb`] holds several [`Kvs`]s, each an ordered map of keys to values. A write goes to a memtable and to a
//! durability log on staging; when a memtable is full its keys become a *kvset* that refers to the values where the
//! log put them; when there are several kvsets, their values are rewritten once, in key order, to capacity. Filters
//! and indexes are in DRAM, under one budget with everything else, so that a value that is not cached costs one
//! device read.
//!
//! ```
//! use esker_kv::{Batch, Kvdb, Location, Medium, Policy};
//!
//! # fn main() -> Result<(), esker_kv::KvError> {
//! # let scratch = tempfile::tempdir().unwrap();
//! # let dir = scratch.path().join("db");
//! let location = Location::dir(&dir).staging(Medium::InDir);
//! let db = Kvdb::builder(location).memory(64 << 20).open_or_create()?;
//! let users = db.kvs_or_create("users", Policy::default())?;
//! let names = db.kvs_or_create("names", Policy::default())?;
//! users.put("42", "Ada")?;
//! let mut batch = Batch::new(); // all or nothing, across KVSs
//! batch.put(&users, "43", "Grace");
//! batch.put(&names, "Grace", "43");
//! db.write(&batch)?;
//! db.sync()?; // durable now, not just within the time that the options say
//! assert_eq!(users.get("42")?.unwrap(), "Ada");
//! for row in users.range("42"..)? {
//!     let (id, name) = row?;
//!     println!("{id:?} = {name:?}");
//! }
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Rooms
//!
//! The sources are a ladder of rooms; each sees only those before it. From the ground up: `sync` (locks, threads),
//! `types` (ids, options, errors), `omf` (every byte on media), `media` (a device and its free space), `values` (blocks
//! of records, the record cache), `manifest` (live structures), `log` (new records), `tree` (memtables, kvsets,
//! views), `compaction` (merges kvsets), `engine` (the parts of an open KVDB), `maintain` (ingest; picks and runs
//! compactions), `write` and `read` (the two hot paths), `recover` (opening and checking), `api` (types that callers
//! hold) and `copies` (backup, repair).
//!
//! # Life of a put
//!
//! 1. `api/kvs.rs` [`Kvs::put`] takes key and value;
//! 2. `write/put.rs` checks them and takes the writer's lock;
//! 3. `log/tail.rs` makes room in the current segment's frame, and `values/frame.rs` with `omf/frame.rs`
//!    encodes the record there: that gives its seqno and its place;
//! 4. `tree/memtable.rs` gets key, value and place, and the record becomes visible;
//! 5. `engine/flush.rs` writes and flushes the frame, at once or within the time of [`Durability`], through
//!    `media/class.rs` and the device's port (`esker-device`: `blocking.rs`);
//! 6. `engine/pacer.rs` delays the writer when maintenance or the log is behind.
//!
//! # Life of a get
//!
//! 1. `api/kvs.rs` [`Kvs::get`] takes the current view, in which `read/get.rs` asks the memtables
//!    (`tree/memtable.rs`), newest first, then the record cache (`values/cache.rs`) by the key: where the tree says that
//!    the cached record is still the newest, that is the value; else the root's kvsets and the leaf's;
//! 2. `tree/kvset.rs` asks the filter (`tree/filter.rs`), finds the page in its index, takes it from DRAM
//!    (`tree/page_cache.rs`) and searches it (`omf/page.rs`);
//! 3. `values/block.rs` takes the value from the record cache by its address, or reads its record from the
//!    block with one device read, which `media/class.rs` gives to the device's port.
//!
//! # Placement
//!
//! A device may offer placement ids, and keep data with different ones apart
//! ([`Geometry::placement_handles`](esker_device::Geometry)). Each write carries the id of its
//! [`Stream`], because the data of one stream dies at about the same time. On a class or manifest
//! device that offers
//!
//! | ids | log | young keys | old keys | old values | manifest |
//! | --- | --- | --- | --- | --- | --- |
//! | none | | | | | |
//! | 1 | 0 | 0 | 0 | 0 | 0 |
//! | 2 | 1 | 1 | 1 | 0 | 0 |
//! | 3 | 1 | 1 | 2 | 0 | 0 |
//! | 4 | 1 | 3 | 2 | 0 | 0 |
//! | 5 and more | 1 | 3 | 2 | 0 | 4 |
//!
//! [`StreamStats::placement`] has the id of each stream of an open KVDB.
//!
//! # Compression
//!
//! A KVS may have its values compressed ([`KvsOptions::compression`]), by LZ4 or Zstandard. That happens
//! when they age, in the background, and each value alone: it is still one device read, and nothing but
//! that read has to be decompressed. [`Compression::Auto`] chooses by a sample of the values. A value
//! that does not get an eighth smaller stays as it is, and where none does, one in sixty-five is tried.
//!
//! The setting may change at any time ([`Kvs::set_compression`]). It is about values that age from then
//! on; each record says how its own value is stored. [`KvsStats`] tells the result.
//!
//! # Transactions
//!
//! [`Kvdb::transaction`] reads one moment and writes all or nothing, across KVSs; [`Kvdb::snapshot`] only
//! reads. Neither locks anything: of two transactions that write the same key, the second to commit is
//! told so ([`Transaction`]).
//!
//! # Prefixes
//!
//! [`Kvs::delete_prefix`] deletes all keys that begin alike with one record, however many there are,
//! and [`Kvs::prefix`] walks over them. The prefix goes down the tree as a delete does, and is
//! dropped where nothing older is left. A kvset keeps its prefixes in DRAM, sorted: a search that
//! passes it looks for one that covers the key in logarithmic time, and a walk skips covered keys without reading
//! them.
//!
//! [`Kvs::delete_range`] deletes the keys of a range in the same way, and [`Kvs::clear`] all keys. The first such record
//! upgrades the KVDB to version 2 of the on-media format ([`Kvdb::format_version`]). Builds that know only version 1 refuse it
//! from then on.
//!
//! # Time to live
//!
//! A KVS may have a time to live ([`KvsOptions::ttl_ms`], [`Kvs::set_ttl_ms`]): a value put into it from then on is
//! gone that many milliseconds later, exactly, and it costs a record of 24 bytes in the log and 7 bytes in a key
//! page. Without one it costs nothing. A [`Snapshot`], a [`Cursor`] and a [`Transaction`] see the content as it was
//! when they began, as long as they live. A transaction's own puts live from its commit on. Expiry is no write: it
//! conflicts with no transaction.
//!
//! Expiries are kept as moments of the wall clock ([`Options::clock`]'s
//! [`unix_time`](esker_base::Clock::unix_time)), because they outlive the process. While a KVDB is open
//! its wall clock never goes back and never stands still, so nothing comes back, and a value lives as long as its time
//! to live: where the system's clock is set back, the KVDB's counts on. A clock that is set forward lets values expire
//! early, and for good once maintenance has dropped them. The KVDB takes the system's time again when it is opened the
//! next time: values that were put while its clock was ahead then live longer by as much as it was.
//!
//! # Errors
//!
//! Where the documentation of a call lists its errors, it names their [`ErrorKind`], which says what a caller can do.
//! [`KvError::code`] tells more of them apart, with numbers that stay. [`KvError::is_retryable`] is for transactions.
//!
//! # Limits
//!
//! Keys have up to [`KEY_MAX`] bytes, values up to [`VALUE_MAX`]. A KVDB has as many KVSs as
//! [`Options::kvs_limit`] says. One process has a KVDB open at a time. A cursor, a snapshot or a transaction keeps
//! the data that it may read, memtables included, while it lives.

#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Esker needs Linux: it uses io_uring, O_DIRECT, fallocate and advisory locks. macOS, Windows and WebAssembly are not \
     supported"
);

mod api;
mod compaction;
mod copies;
mod engine;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
mod log;
mod maintain;
mod manifest;
mod media;
mod omf;
mod read;
mod recover;
mod sync;
#[cfg(test)]
mod testing;
mod tree;
mod types;
mod values;
mod write;

pub use api::batch::Batch;
pub use api::builder::Builder;
pub use api::item::{Key, Value};
pub use api::iter::{Iter, Keys};
pub use api::kvdb::Kvdb;
pub use api::kvs::Kvs;
pub use api::location::{Location, Medium};
pub use api::observer::Observer;
pub use api::readable::Readable;
pub use api::snapshot::Snapshot;
pub use api::stats::{
    CacheStats, ClassStats, Dram, KvsStats, MaintenanceStats, Operations, PlaceStats, Stalls,
    Stats, StreamStats, TransactionStats,
};
pub use api::transaction::{Changed, Transaction};
pub use copies::backup::BackupReport;
pub use copies::repair::report::{KeyRange, KvsRepair, ManifestState, RepairReport};
pub use engine::readers::{OpenStats, ReaderStats};
pub use esker_base::{Clock, ErrorKind, Lba, Progress};
pub use esker_device::{Device, DeviceError, SystemError};
pub use maintain::manual::{CompactRequest, CompactStatus};
pub use read::cursor::Cursor;
pub use recover::check::CheckReport;
pub use recover::devices::Remains;
pub use types::class::MediaClass;
pub use types::compression::Compression;
pub use types::error::{ErrorCode, KvError, Result};
pub use types::limits::{KEY_MAX, KVS_NAME_MAX, METADATA_MAX, VALUE_MAX};
pub use types::options::{Durability, Maintenance, Options, Tuning, WriteOptions};
pub use types::policy::{KvsOptions, Place, Policy};
pub use types::remark::RemarkLevel;
pub use types::stream::Stream;

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
