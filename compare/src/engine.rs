//! The engines under comparison: their names, how they are opened, and the memory that each gets.
//!
//! Called by `child`; each engine is a [`Store`] in a file of its own.

mod esker;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
mod log;
#[cfg(feature = "rocksdb")]
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
            #[cfg(feature = "rocksdb")]
            Engine::Rocksdb => rocksdb::create(dir, setting, rocksdb::Variant::Buffered),
            #[cfg(feature = "rocksdb")]
            Engine::RocksdbDirect => rocksdb::create(dir, setting, rocksdb::Variant::Direct),
            #[cfg(feature = "rocksdb")]
            Engine::Blobdb => rocksdb::create(dir, setting, rocksdb::Variant::Blobs),
            #[cfg(feature = "fjall")]
            Engine::Fjall => fjall::create(dir, setting, fjall::Values::Inline),
            #[cfg(feature = "fjall")]
            Engine::FjallBlob => fjall::create(dir, setting, fjall::Values::Separated),
            #[cfg(feature = "lmdb")]
            Engine::Lmdb => lmdb::create(dir, setting),
            #[cfg(not(all(feature = "fjall", feature = "lmdb", feature = "rocksdb")))]
            other => Err(format!(
                "this program was built without {}; compare/run builds it with all peers",
                other.title()
            )
            .into()),
        }
    }
}

/// Where the logs of RocksDB and fjall are when a write returns. LMDB has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PeersLog {
    /// With the kernel, after a system call; on the device when the kernel likes
    #[default]
    Kernel,
    /// In the process's memory; on the device within a tenth of a second, as Esker's
    Memory,
}

#[cfg(any(feature = "fjall", feature = "rocksdb"))]
impl PeersLog {
    /// Text of descriptions for a log called `name`.
    fn described(self, name: &str) -> String {
        match self {
            PeersLog::Kernel => format!("{name} to the kernel at each write, without sync"),
            PeersLog::Memory => {
                format!("{name} in memory, written and synced every {} ms", log::EVERY.as_millis())
            }
        }
    }
}

/// Waits until an engine is at rest.
pub(crate) type Settle = Box<dyn Fn() -> Result<(), BoxError>>;

/// An open database, and how it was opened.
pub(crate) struct Opened {
    pub(crate) store: Box<dyn Store>,
    /// Waits until maintenance has nothing left to do, where the engine can be asked for that.
    pub(crate) settle: Option<Settle>,
    /// The version and every setting that is not the engine's default.
    pub(crate) description: String,
}

/// Setting that all engines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// Bytes that the process and its share of the page cache may take together; none for all of
    /// the machine's.
    pub(crate) limit_bytes: Option<u64>,
    /// The machine's memory in bytes.
    pub(crate) machine_bytes: u64,
    /// The keys and values of the data set in bytes.
    pub(crate) data_bytes: u64,
    /// Where the peers' logs are; with the kernel in files that do not say.
    #[serde(default)]
    pub(crate) peers_log: PeersLog,
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
    let lock = include_str!("../../Cargo.lock");
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

    fn of_data(data_bytes: u64) -> Setting {
        let peers_log = PeersLog::Kernel;
        Setting { limit_bytes: None, machine_bytes: 24 << 30, data_bytes, peers_log }
    }

    /// System calls by which this thread has written.
    #[cfg(feature = "peers")]
    fn writes() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap();
        count.parse().unwrap()
    }

    /// Whether a file below `dir` has `bytes` in it.
    #[cfg(feature = "peers")]
    fn is_in_a_file(dir: &Path, bytes: &[u8]) -> bool {
        std::fs::read_dir(dir).unwrap().flatten().any(|entry| {
            let path = entry.path();
            if path.is_dir() {
                return is_in_a_file(&path, bytes);
            }
            let content = std::fs::read(path).unwrap_or_default();
            content.windows(bytes.len()).any(|window| window == bytes)
        })
    }

    #[cfg(feature = "peers")]
    #[test]
    fn the_log_of_a_peer_is_where_it_was_asked_to_be() {
        const PUTS: u64 = 2_000;
        let base = std::env::temp_dir().join(format!("bench-compare-log-{}", std::process::id()));
        for engine in [Engine::Rocksdb, Engine::Fjall] {
            for peers_log in [PeersLog::Kernel, PeersLog::Memory] {
                let dir = base.join(format!("{engine:?}-{peers_log:?}"));
                std::fs::create_dir_all(&dir).unwrap();
                let setting =
                    Setting { peers_log, limit_bytes: Some(256 << 20), ..of_data(1 << 20) };
                let opened = engine.create(&dir, &setting).unwrap();
                let said = opened.description.contains("in memory, written and synced every 50 ms");
                assert_eq!(said, peers_log == PeersLog::Memory, "{}", opened.description);
                let mut session = opened.store.session().unwrap();
                let before = writes();
                for put in 0..PUTS {
                    session.insert(&put.to_be_bytes(), b"a value").unwrap();
                }
                let each = writes() - before >= PUTS;
                assert_eq!(each, peers_log == PeersLog::Kernel, "a system call for each put");
                session.insert(b"the last", b"of the values").unwrap();
                let clock = esker_base::Clock::real();
                let end = clock.now() + std::time::Duration::from_secs(20);
                while !is_in_a_file(&dir, b"of the values") {
                    assert!(clock.now() < end, "{engine:?} does not write its log");
                    clock.sleep(std::time::Duration::from_millis(10));
                }
                drop(session);
                opened.store.sync().unwrap();
            }
        }
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn the_shares_of_a_limit_leave_room_for_the_rest() {
        let bounded = Setting { limit_bytes: Some(2 << 30), ..of_data(6 << 30) };
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
