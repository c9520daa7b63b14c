//! Reads of a KVS at a moment, which snapshots and transactions have in common.

use std::ops::RangeBounds;

use crate::api::item::{Key, Value};
use crate::api::iter::Iter;
use crate::api::kvs::Kvs;
use crate::read::cursor::Cursor;
use crate::types::error::Result;
use crate::types::key_bounds::KeyBounds;

/// Implemented by this crate's types alone, so that the trait may grow.
pub trait Sealed {}

/// Reads of what a [`Snapshot`](crate::Snapshot) or a [`Transaction`](crate::Transaction) sees. They are the same as
/// those of a [`Kvs`], which comes first.
///
/// # Errors
/// Each answers `Io` or `Corrupt` when something cannot be read, `NotFound` when the KVS was created later, `Closed`
/// when it was dropped before or the KVDB is closed, `Invalid` when it is of another KVDB. A transaction that has ended
/// by itself answers [`TransactionExpired`](crate::KvError::TransactionExpired).
pub trait Readable: Sealed {
    /// Writes the value of `key` to `value`, which is cleared first; false when there is none.
    ///
    /// # Errors
    /// See [`Readable`].
    fn get_into(&self, kvs: &Kvs, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool>;

    /// Copies as much of the value of `key` as `buffer` takes, and returns the value's size; none when there is no
    /// value.
    ///
    /// # Errors
    /// See [`Readable`].
    fn get_to_buffer(
        &self,
        kvs: &Kvs,
        key: impl AsRef<[u8]>,
        buffer: &mut [u8],
    ) -> Result<Option<usize>>;

    /// The values of `keys`, in their order; see [`Kvs::get_many`].
    ///
    /// # Errors
    /// See [`Readable`].
    fn get_many<K: AsRef<[u8]>>(&self, kvs: &Kvs, keys: &[K]) -> Result<Vec<Option<Value>>>;

    /// Whether `key` has a value, which is not read.
    ///
    /// # Errors
    /// See [`Readable`].
    fn contains_key(&self, kvs: &Kvs, key: impl AsRef<[u8]>) -> Result<bool>;

    /// A cursor over the KVS, before its first key. Later writes of a transaction are not in it.
    ///
    /// # Errors
    /// See [`Readable`].
    fn cursor(&self, kvs: &Kvs) -> Result<Cursor>;

    /// The value of `key`.
    ///
    /// # Errors
    /// See [`Readable`].
    fn get(&self, kvs: &Kvs, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let mut value = Vec::new();
        Ok(self.get_into(kvs, key, &mut value)?.then(|| value.into()))
    }

    /// All keys and values in order.
    ///
    /// # Errors
    /// See [`Readable`].
    fn iter(&self, kvs: &Kvs) -> Result<Iter> {
        Ok(Iter::new(self.cursor(kvs)?, KeyBounds::NONE))
    }

    /// Those of the keys in a range.
    ///
    /// # Errors
    /// See [`Readable`].
    fn range<K: AsRef<[u8]>>(&self, kvs: &Kvs, range: impl RangeBounds<K>) -> Result<Iter> {
        Ok(Iter::new(self.cursor(kvs)?, KeyBounds::of(&range)))
    }

    /// Those of the keys that begin with `prefix`.
    ///
    /// # Errors
    /// See [`Readable`].
    fn prefix(&self, kvs: &Kvs, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Ok(Iter::new(self.cursor(kvs)?, KeyBounds::of_prefix(prefix.as_ref())))
    }

    /// The first key with its value.
    ///
    /// # Errors
    /// See [`Readable`].
    fn first(&self, kvs: &Kvs) -> Result<Option<(Key, Value)>> {
        self.iter(kvs)?.next().transpose()
    }

    /// The last key with its value.
    ///
    /// # Errors
    /// See [`Readable`].
    fn last(&self, kvs: &Kvs) -> Result<Option<(Key, Value)>> {
        self.iter(kvs)?.next_back().transpose()
    }

    /// Whether the KVS has no keys.
    ///
    /// # Errors
    /// See [`Readable`].
    fn is_empty(&self, kvs: &Kvs) -> Result<bool> {
        Ok(self.iter(kvs)?.keys().next().transpose()?.is_none())
    }
}
