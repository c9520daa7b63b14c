//! fjall two ways: values in the tables, and values in blob files.

use std::path::Path;

use esker_bench::{BoxError, Session, Store};
use fjall::config::CompressionPolicy;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
};

use super::log::LogSyncs;
use super::{Opened, PeersLog, Setting, sized, version_of};

/// Where values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// Beside their keys.
    Inline,
    /// In files of their own.
    Separated,
}

struct Fjall {
    log: Option<LogSyncs>,
    // Dropped before the database that runs its maintenance.
    keyspace: Keyspace,
    db: Database,
}

pub(super) fn create(dir: &Path, setting: &Setting, values: Values) -> Result<Opened, BoxError> {
    let cache_bytes = setting.buffered_cache_bytes();
    let memtable_bytes = setting.memtable_bytes();
    let in_memory = setting.peers_log == PeersLog::Memory;
    let journal_bytes = (8 * memtable_bytes).max(64 << 20);
    let db = Database::builder(dir)
        .cache_size(cache_bytes)
        .journal_compression(CompressionType::None)
        .manual_journal_persist(in_memory)
        .max_journaling_size(journal_bytes)
        .open()?;
    let mut description = format!(
        "{}: {}, {}, {}, Bloom filters of 10 bits, no compression, {}",
        version_of("fjall"),
        sized("cache", cache_bytes),
        sized("memtable", memtable_bytes),
        sized("journals of at most", journal_bytes),
        setting.peers_log.described("journal"),
    );
    let keyspace = db.keyspace("compare", || {
        let options = KeyspaceCreateOptions::default()
            .max_memtable_size(memtable_bytes)
            .manual_journal_persist(in_memory)
            .data_block_compression_policy(CompressionPolicy::disabled())
            .index_block_compression_policy(CompressionPolicy::disabled());
        match values {
            Values::Inline => options,
            Values::Separated => options.with_kv_separation(Some(
                KvSeparationOptions::default()
                    .compression(CompressionType::None)
                    .separation_threshold(256),
            )),
        }
    })?;
    if values == Values::Separated {
        description += "; values from 256 bytes on in blob files";
    }
    let log = match setting.peers_log {
        PeersLog::Kernel => None,
        PeersLog::Memory => {
            let db = db.clone();
            Some(LogSyncs::start(move || Ok(db.persist(PersistMode::SyncData)?))?)
        }
    };
    Ok(Opened { store: Box::new(Fjall { log, keyspace, db }), settle: None, description })
}

impl Store for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>, BoxError> {
        Ok(Box::new(FjallSession(&self.keyspace)))
    }

    fn sync(&self) -> Result<(), BoxError> {
        self.log.as_ref().map_or(Ok(()), LogSyncs::check)?;
        Ok(self.db.persist(PersistMode::SyncData)?)
    }
}

struct FjallSession<'a>(&'a Keyspace);

impl Session for FjallSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BoxError> {
        let Some(found) = self.0.get(key)? else {
            return Ok(false);
        };
        value.clear();
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), BoxError> {
        Ok(self.0.insert(key, value)?)
    }

    fn scan(
        &mut self,
        start: &[u8],
        count: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, BoxError> {
        let mut visited = 0;
        for guard in self.0.range(start..).take(count) {
            let (key, value) = guard.into_inner()?;
            visit(&key, &value);
            visited += 1;
        }
        Ok(visited)
    }
}
