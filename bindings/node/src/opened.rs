//! An open KVDB.

use std::sync::{Mutex, MutexGuard, PoisonError};

use esker_kv::{KvError, Kvdb, Kvs, KvsOptions};

/// The KVS that has the keys.
const KVS: &str = "default";

/// A KVDB that is open until it is closed, or until it and all that refers to it are gone.
pub(crate) struct Opened {
    pub(crate) db: Kvdb,
    pub(crate) kvs: Kvs,
}

impl Opened {
    pub(crate) fn of(db: Kvdb, read_only: bool) -> Result<Opened, KvError> {
        let kvs =
            if read_only { db.kvs(KVS)? } else { db.kvs_or_create(KVS, KvsOptions::default())? };
        Ok(Opened { db, kvs })
    }
}

/// Locks, whatever panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
