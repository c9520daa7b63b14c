//! The engines under comparison: their names, how they are opened, and what memory each gets.
//!
//! Called by `child`; each engine is a [`Store`] in a file of its own.

mod esker;
mod fjall;
mod lmdb;
mod rocksdb;

use std::path::Path;

use clap::ValueEnum;
use esker_base::units::human_bytes;
use esker_bench::{BoxError, Store};
use serde::{Deserialize, Serialize};

/// An engine in one of its configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Engine {
    /// Esker, staging and capacity as files.
    Esker,
    /// RocksDB, reads and writes through the page cache.
    Rocksdb,
    /// RocksDB, direct I/O and a large block cache.
    RocksdbDirect,
    /// RocksDB with values in blob files, reads and writes through the page cache.
    Blobdb,
    /// fjall.
    Fjall,
    /// fjall with keys and values separated.
    FjallBlob,
    /// LMDB.
    Lmdb,
}

impl Engine {
    /// Every engine, in the order of reports.
    pub(crate) const ALL: [Engine; 7] = [
        Engine::Esker,
        Engine::Rocksdb,
        Engine::RocksdbDirect,
        Engine::Blobdb,
        Engine::Fjall,
        Engine::FjallBlob,
        Engine::Lmdb,
    ];

    /// The name in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Engine::Esker => "Esker",
            Engine::Rocksdb => "RocksDB",
            Engine::RocksdbDirect => "RocksDB, direct I/O",
            Engine::Blobdb => "RocksDB, BlobDB",
            Engine::Fjall => "fjall",
            Engine::FjallBlob => "fjall, separated",
            Engine::Lmdb => "LMDB",
        }
    }

    /// Creates an empty database in the directory `dir`.
    pub(crate) fn create(self, dir: &Path, setting: &Setting) -> Result<Opened, BoxError> {
        match self {
            Engine::Esker => esker::create(dir, setting),
            Engine::Rocksdb => rocksdb::create(dir, setting, rocksdb::Variant::Buffered),
            Engine::RocksdbDirect => rocksdb::create(dir, setting, rocksdb::Variant::Direct),
            Engine::Blobdb => rocksdb::create(dir, setting, rocksdb::Variant::Blobs),
            Engine::Fjall => fjall::create(dir, setting, fjall::Values::Inline),
            Engine::FjallBlob => fjall::create(dir, setting, fjall::Values::Separated),
            Engine::Lmdb => lmdb::create(dir, setting),
        }
    }
}

/// An open database, and how it was opened.
pub(crate) struct Opened {
    pub(crate) store: Box<dyn Store>,
    /// The version and every setting that is not the engine's default.
    pub(crate) description: String,
}

/// What all engines are given alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// What the process and its share of the page cache may take together, in bytes; none for all
    /// of the machine's.
    pub(crate) limit_bytes: Option<u64>,
    /// The machine's memory in bytes.
    pub(crate) machine_bytes: u64,
    /// The keys and values of the data set in bytes.
    pub(crate) data_bytes: u64,
}

impl Setting {
    /// Enough to hold the data three times, where the machine allows.
    fn ample_bytes(&self) -> u64 {
        (3 * self.data_bytes).max(4 << 30).min(self.machine_bytes / 10 * 6)
    }

    fn share(&self, percent: u64) -> u64 {
        self.limit_bytes.map_or_else(|| self.ample_bytes(), |limit| limit / 100 * percent)
    }

    /// The whole budget of an engine that bounds all of its memory itself. The rest is for the
    /// process: code, stacks, the benchmark.
    pub(crate) fn whole_budget_bytes(&self) -> u64 {
        self.share(92)
    }

    /// The cache of an engine that also lives on the page cache, which gets the other half.
    pub(crate) fn buffered_cache_bytes(&self) -> u64 {
        self.share(50)
    }

    /// The cache of an engine that goes around the page cache. The rest is for memtables,
    /// compaction's buffers and the allocator.
    pub(crate) fn direct_cache_bytes(&self) -> u64 {
        self.share(70)
    }

    /// One memtable.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        (self.share(100) / 32).clamp(8 << 20, 128 << 20)
    }
}

/// `name bytes`, as descriptions say it.
fn sized(name: &str, bytes: u64) -> String {
    format!("{name} {}", human_bytes(bytes))
}

/// The version of a package that this program was built with, from its lock file.
fn version_of(package: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let entry = format!("name = \"{package}\"\nversion = \"");
    let found = lock.split_once(&entry).and_then(|(_, rest)| rest.split_once('"'));
    found.map_or("unknown", |(version, _)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_command_line_are_those_in_json() {
        for engine in Engine::ALL {
            let name = engine.to_possible_value().unwrap().get_name().to_owned();
            assert_eq!(serde_json::to_value(engine).unwrap(), name);
        }
    }

    #[test]
    fn the_shares_of_a_limit_leave_room_for_the_rest() {
        let bounded =
            Setting { limit_bytes: Some(2 << 30), machine_bytes: 24 << 30, data_bytes: 6 << 30 };
        assert_eq!(bounded.memtable_bytes(), (2 << 30) / 100 * 100 / 32);
        let direct = bounded.direct_cache_bytes() + 4 * bounded.memtable_bytes();
        assert!(direct < 2 << 30 && bounded.whole_budget_bytes() < 2 << 30);
        let free = Setting { limit_bytes: None, data_bytes: 2 << 30, ..bounded };
        assert_eq!(free.whole_budget_bytes(), 6 << 30);
        assert_eq!(
            Setting { data_bytes: 1 << 40, ..free }.direct_cache_bytes(),
            (24 << 30) / 10 * 6
        );
    }

    #[test]
    fn versions_are_known() {
        for package in ["rocksdb", "librocksdb-sys", "fjall", "lsm-tree", "heed"] {
            assert!(version_of(package).contains('.'), "{package}");
        }
        assert_eq!(version_of("no such package"), "unknown");
    }
}
