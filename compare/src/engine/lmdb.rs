//! LMDB. One transaction a write, as with the others; nothing is synced until the end of a run.
#![allow(unsafe_code)] // opening an environment is unsafe: its file is mapped

use std::path::Path;

use esker_base::units::to_usize;
use esker_bench::{BoxError, Session, Store};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, WithTls};

use super::{Opened, Setting, sized, version_of};

struct Lmdb {
    env: Env<WithTls>,
    records: Database<'static, Bytes, Bytes>,
}

pub(super) fn create(dir: &Path, setting: &Setting) -> Result<Opened, BoxError> {
    // Address space, not memory: room for pages that are half full and for inserts.
    let map_bytes = (4 * setting.data_bytes + (8 << 30)).next_multiple_of(1 << 20);
    let mut flags = EnvFlags::NO_SYNC | EnvFlags::NO_MEM_INIT;
    let mut description = format!(
        "{} (crate heed {}): {}, MDB_NOSYNC, MDB_NOMEMINIT",
        heed::lmdb_version().string,
        version_of("heed"),
        sized("map", map_bytes),
    );
    if setting.limit_bytes.is_some() {
        // Pages read ahead would take the place of those that are needed.
        flags |= EnvFlags::NO_READ_AHEAD;
        description += ", MDB_NORDAHEAD";
    }
    // SAFETY: the directory is new and this process alone uses it; nobody truncates or writes the
    // file but LMDB. Without a sync a crash of the machine may cost the database, which is then
    // made anew: no measurement survives one.
    let env = unsafe {
        let mut options = EnvOpenOptions::new();
        options.map_size(to_usize(map_bytes)).flags(flags);
        options.open(dir)?
    };
    let transaction = env.write_txn()?;
    let created = env.create_databases_and_commit(transaction, |databases, transaction| {
        databases.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
    })?;
    let records = created.unwrap_commit();
    Ok(Opened { store: Box::new(Lmdb { env, records }), settle: None, description })
}

impl Store for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>, BoxError> {
        Ok(Box::new(LmdbSession(self)))
    }

    fn sync(&self) -> Result<(), BoxError> {
        Ok(self.env.force_sync()?)
    }
}

struct LmdbSession<'a>(&'a Lmdb);

impl Session for LmdbSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BoxError> {
        let transaction = self.0.env.read_txn()?;
        let Some(found) = self.0.records.get(&transaction, key)? else {
            return Ok(false);
        };
        value.clear();
        value.extend_from_slice(found);
        Ok(true)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), BoxError> {
        let mut transaction = self.0.env.write_txn()?;
        self.0.records.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn scan(
        &mut self,
        start: &[u8],
        count: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, BoxError> {
        use std::ops::Bound;
        let transaction = self.0.env.read_txn()?;
        let from = (Bound::Included(start), Bound::Unbounded);
        let mut visited = 0;
        for record in self.0.records.range(&transaction, &from)?.take(count) {
            let (key, value) = record?;
            visit(key, value);
            visited += 1;
        }
        Ok(visited)
    }
}
