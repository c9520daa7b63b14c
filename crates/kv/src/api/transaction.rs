//! Transactions: snapshot isolation over all KVSs of a KVDB (Berenson et al., "A Critique of ANSI SQL
//! Isolation Levels", SIGMOD 1995).
//!
//! A transaction reads the view and seqno of its beginning, and gathers its writes in a memtable of its
//! own. Committing appends them to the log as one batch, under the writer's lock, if none of its keys has
//! a newer version than the beginning. Versions are looked for where seqnos are: in the memtables of the
//! current view, and in those that were ingested while a transaction was open, which are kept for that
//! (the *history*). So a conflict is never missed and never invented.
//!
//! Invariants
//! 1. A record newer than the beginning of an open transaction is in a memtable of the view or of the
//!    history. A transaction begins, and a memtable leaves the view, under one lock.
//! 2. A transaction that is not among the open ones has no view any more: it can neither read nor commit.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::api::batch::Batch;
use crate::api::item::Value;
use crate::api::kvs::{Kvs, values};
use crate::api::readable::{Readable, Sealed};
use crate::engine::shared::Engine;
use crate::engine::transactions::{HISTORY_PART, Sight};
use crate::omf::frame::{Change, Record};
use crate::read::cursor::Cursor;
use crate::read::get;
use crate::read::get::copy;
use crate::tree::memtable::Memtable;
use crate::tree::source::MemtableSource;
use crate::tree::view::View;
use crate::types::error::{KvError, Result};
use crate::types::expiry::{Expiry, Moment, Time};
use crate::types::ids::{KvsId, RecordAddress, Seqno};
use crate::types::key::key_hash;
use crate::types::options::WriteOptions;
use crate::write::put::{check_record, size_with_expiry, span_of};

/// Writes of a transaction are gathered in chunks of a quarter of this, in bytes.
const OWN_BYTES: u64 = 16 << 10;
/// Own writes that newer ones hide may take as much DRAM as the others, and so many bytes.
const OWN_SLACK: u64 = 1 << 20;

/// A transaction: see [`Kvdb::transaction`](crate::api::kvdb::Kvdb::transaction).
///
/// Reads ([`Readable`]) see the KVDB as it was at the beginning, with the transaction's own writes. Nobody else sees a
/// write before it is committed; dropping the transaction forgets them. Of two transactions that write
/// the same key at the same time, the one that commits first wins and the other gets
/// [`KvError::TransactionConflict`]; so does one that loses against a plain write. Keys that a transaction only
/// read may have changed meanwhile (*write skew*): [`Transaction::get_for_update`] reads a key as if it were
/// written. No call holds a range of keys so.
///
/// A transaction is meant to be short. It ends by itself, and answers
/// [`KvError::TransactionExpired`], after [`Options::transaction_ms`](crate::Options::transaction_ms), or when memtables that were ingested
/// since it began, which are kept to find conflicts, take more than an eighth of [`Options::memory_bytes`](crate::Options::memory_bytes):
/// beside busy writers that is after one or two full memtables.
///
/// ```
/// use esker_kv::Readable; // the reads
/// # use esker_kv::{KvError, Kvdb, Kvs, Policy};
/// # fn main() -> Result<(), KvError> {
/// # let scratch = tempfile::tempdir().unwrap();
/// # let db = Kvdb::builder(scratch.path().join("db")).create()?;
/// # let accounts = db.create_kvs("accounts", Policy::default())?;
/// # accounts.put("ada", "3")?;
/// let give = || {
///     let mut transaction = db.transaction();
///     let had = transaction.get(&accounts, "ada")?.unwrap_or_default();
///     transaction.put(&accounts, "ada", "0")?;
///     transaction.put(&accounts, "grace", &had)?;
///     transaction.commit()
/// };
/// loop {
///     match give() {
///         Err(error) if error.is_retryable() => {} // someone was faster, or it took too long
///         given => break given,
///     }
/// }
/// # }
/// ```
pub struct Transaction {
    engine: Arc<Engine>,
    id: u64,
    seqno: Seqno,
    /// Its time stands still: when it began, in milliseconds since 1970-01-01 UTC.
    now_ms: u64,
    sight: Arc<Sight>,
    /// The writes, with seqnos of their own from 1 on.
    own: Arc<Memtable>,
    own_seqno: Seqno,
    /// The DRAM of those that nothing hid when that was looked at last.
    own_kept: u64,
    /// Bytes of records that committing will write.
    own_size: usize,
    own_max: usize,
    /// Keys that must not have changed.
    held: BTreeSet<(KvsId, Vec<u8>)>,
}

impl Transaction {
    pub(crate) fn begin(engine: &Arc<Engine>) -> Transaction {
        let (id, seqno, sight, own_max) = match engine.life.check_owner() {
            Ok(()) => {
                let snapshot = || engine.view.snapshot(&engine.log);
                let (id, seqno, sight) = engine.transactions.begin(&engine.options, snapshot);
                (id, seqno, sight, engine.log.tail().batch_max())
            }
            // Its calls say so.
            Err(_) => (0, Seqno::ZERO, Arc::default(), 0),
        };
        Transaction {
            engine: engine.clone(),
            id,
            seqno,
            now_ms: engine.wall_clock.now_ms(),
            sight,
            own: Arc::new(Memtable::new(OWN_BYTES)),
            own_seqno: Seqno::ZERO,
            own_kept: 0,
            own_size: 0,
            own_max,
            held: BTreeSet::new(),
        }
    }

    /// Returns the view of a KVS that the transaction sees.
    fn view(&self, kvs: &Kvs) -> Result<Arc<View>> {
        kvs.check_of(&self.engine)?;
        let view = self.sight.view().ok_or_else(|| self.over())?;
        kvs.check_present(view.tree(kvs.id).is_some())?;
        Ok(view)
    }

    fn over(&self) -> KvError {
        if let Err(forked) = self.engine.life.check_owner() {
            return forked;
        }
        let options = &self.engine.options;
        KvError::TransactionExpired(if self.sight.was_crowded_out() {
            format!(
                "others have written so much since it began that the full memtables kept to find conflicts take more \
                 than {} MiB; a larger memory budget lets it live longer",
                (options.memory_bytes / HISTORY_PART) >> 20,
            )
        } else {
            format!("it was open for more than {} ms", options.transaction_ms)
        })
    }

    /// The transaction's own value of `key`, handed to `seen`; `None` where it has not written the key.
    fn get_own<T>(
        &self,
        kvs: &Kvs,
        key: &[u8],
        seen: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Option<T> {
        self.own.get(kvs.id, (key, key_hash(key)), Seqno::MAX, |own| seen(own.value))
    }

    fn moment(&self) -> Moment<'_> {
        Moment { seqno: self.seqno, time: Time::At(self.now_ms) }
    }

    /// Like [`get`](Readable::get), and committing fails when someone else has written the key since the
    /// beginning, as if it were written here. A transaction that writes nothing commits all the same: its reads are
    /// of one moment.
    ///
    /// # Errors
    /// See [`Readable`].
    pub fn get_for_update(&mut self, kvs: &Kvs, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        let value = self.get(kvs, key)?;
        self.held.insert((kvs.id, key.to_vec()));
        Ok(value)
    }

    /// Maps `key` to `value` when the transaction is committed.
    ///
    /// # Errors
    /// `Invalid` when key, value, or the transaction as a whole exceed the limits; else see [`Readable`].
    pub fn put(&mut self, kvs: &Kvs, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(kvs, key.as_ref(), Change::Put(value.as_ref()))
    }

    /// Removes `key` when the transaction is committed, whether it is there or not.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&mut self, kvs: &Kvs, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(kvs, key.as_ref(), Change::Delete)
    }

    /// Removes all keys that begin with `prefix` when the transaction is committed: its own earlier
    /// writes, too, which still count for the size of the transaction. It writes all those keys, so of
    /// another transaction that writes one of them at the same time, or deletes a prefix that has some
    /// of them, the first to commit wins.
    ///
    /// The commit looks at all keys of the prefix in each memtable that was written to since the beginning, and
    /// nobody else can write meanwhile: where there are hundreds of thousands, that takes tens of milliseconds.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_prefix(&mut self, kvs: &Kvs, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.write(kvs, prefix.as_ref(), Change::DeletePrefix)
    }

    fn write(&mut self, kvs: &Kvs, key: &[u8], change: Change<'_>) -> Result<()> {
        let record = Record { kvs: kvs.id, key, change };
        check_record(&record)?;
        let view = self.view(kvs)?;
        let ttl_ms = view.tree(kvs.id).and_then(|tree| tree.options.ttl_ms);
        let expiry = Expiry::of_put(self.now_ms, ttl_ms);
        let before = match change {
            Change::DeletePrefix | Change::DeleteRange(_) => None,
            _ => self.own.own(kvs.id, key, |value| {
                let change = value.map_or(Change::Delete, Change::Put);
                size_with_expiry(Record { kvs: kvs.id, key, change }, expiry)
            }),
        };
        let size = self.own_size + size_with_expiry(record, expiry) - before.unwrap_or(0);
        if size > self.own_max {
            return Err(KvError::BatchSize { got: size, max: self.own_max });
        }
        self.own_size = size;
        self.own_seqno = self.own_seqno.next();
        // Puts of a transaction expire as of its commit.
        self.own.apply(&record, Expiry::NEVER, self.own_seqno, RecordAddress::NOWHERE);
        if self.own.bytes() > 2 * self.own_kept + OWN_SLACK {
            self.forget_overwritten();
        }
        Ok(())
    }

    /// Lets go of the DRAM of own writes that newer ones hide. A cursor keeps those of its time.
    fn forget_overwritten(&mut self) {
        let own = Memtable::new(OWN_BYTES);
        let mut seqno = Seqno::ZERO;
        self.each_own(|kvs, key, change| {
            seqno = seqno.next();
            own.apply(&Record { kvs, key, change }, Expiry::NEVER, seqno, RecordAddress::NOWHERE);
        });
        self.own_kept = own.bytes();
        self.own = Arc::new(own);
    }

    /// Hands on the own writes that no newer one hides, in an order in which they can be done.
    fn each_own(&self, mut each: impl FnMut(KvsId, &[u8], Change<'_>)) {
        // Before later writes under them; earlier ones are left out.
        for (kvs, deleted) in self.own.deleted() {
            for span in deleted.iter() {
                let Record { key, change, .. } = Record::delete_of(kvs, span);
                each(kvs, key, change);
            }
        }
        let Ok(()) = self.own.each_newest(|kvs, key, written| {
            each(kvs, key, written.value.map_or(Change::Delete, Change::Put));
            Ok::<(), Infallible>(())
        });
    }

    /// Makes the writes happen: all of them or none, now and after a crash. They become durable as
    /// plain writes do ([`Options::durability`](crate::Options::durability)).
    ///
    /// # Errors
    /// [`KvError::TransactionConflict`] when someone else has written one of its keys since it began,
    /// [`KvError::TransactionExpired`] when it was open for too long; else as
    /// [`Kvdb::write`](crate::api::kvdb::Kvdb::write). Nothing has happened then, unless the error is a device's: the writes
    /// may have happened with that one, all of them or none, and the KVDB takes no more writes.
    pub fn commit(self) -> Result<()> {
        self.commit_with(&WriteOptions::default())
    }

    /// Like [`Transaction::commit`], as `options` say.
    ///
    /// # Errors
    /// As [`Transaction::commit`]; when making it durable fails, the writes may have happened, and the
    /// KVDB takes no more writes.
    pub fn commit_with(self, options: &WriteOptions) -> Result<()> {
        let engine = self.engine.clone();
        match self.apply()? {
            Some(seqno) => engine.make_durable(seqno, options),
            None => Ok(()),
        }
    }

    /// The seqno of the last write; `None` when there were none.
    fn apply(self) -> Result<Option<Seqno>> {
        self.engine.life.check_open()?;
        let mut batch = Batch::new();
        self.each_own(|kvs, key, change| batch.push(kvs, key, change));
        self.sight.view().iter().for_each(|view| batch.name_as_in(view));
        let result = if batch.is_empty() {
            // Nothing to order itself after: its reads were consistent.
            self.sight.view().map(|_| None).ok_or_else(|| self.over())
        } else {
            batch.write_to(&self.engine, |_| self.check(&batch)).map(Some)
        };
        let transactions = &self.engine.transactions;
        match &result {
            Ok(_) => transactions.committed.add(1),
            Err(KvError::TransactionConflict { .. }) => transactions.conflicts.add(1),
            Err(_) => {}
        }
        result
    }

    /// Whether it may be committed; nobody else writes meanwhile.
    fn check(&self, batch: &Batch) -> Result<()> {
        let view = self.engine.view.load();
        let held = self.held.iter().map(|(kvs, key)| {
            let change = Change::Delete; // any: it is held as if it were written
            Record { kvs: *kvs, key, change }
        });
        let changes = batch.records().chain(held);
        let transactions = &self.engine.transactions;
        if let Some(Record { kvs, key, .. }) = transactions.conflict(&view, self.seqno, changes) {
            let kvs = view.tree(kvs).map(|tree| tree.name.to_string()).unwrap_or_default();
            return Err(KvError::TransactionConflict { kvs, key: key.to_vec() });
        }
        // After the search: the history it relied on was kept until now.
        if self.sight.view().is_none() { Err(self.over()) } else { Ok(()) }
    }

    /// Whether someone else has written `key`, alone or among others, since the transaction began: then committing a
    /// write of it would fail.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn is_changed(&self, kvs: &Kvs, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.view(kvs)?;
        let view = self.engine.view.load();
        // Of any kind: it is asked as if it were written.
        let record = Record { kvs: kvs.id, key, change: Change::Delete };
        let transactions = &self.engine.transactions;
        let conflict = transactions.conflict(&view, self.seqno, std::iter::once(record));
        let is_changed = conflict.is_some();
        // After the search: the history it relied on was kept until now.
        if self.sight.view().is_none() { Err(self.over()) } else { Ok(is_changed) }
    }

    /// Removes all keys in `range` when the transaction is committed, as [`Transaction::delete_prefix`] does all that
    /// begin with a prefix.
    ///
    /// # Errors
    /// `Invalid` when the range ends before it begins, or a bound is longer than [`KEY_MAX`](crate::KEY_MAX) bytes; else as
    /// [`Transaction::put`].
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        kvs: &Kvs,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        match span_of(&range)? {
            Some(span) => {
                let Record { key, change, .. } = Record::delete_of(kvs.id, span.as_span());
                self.write(kvs, key, change)
            }
            None => self.view(kvs).map(drop),
        }
    }
}

/// The answer to [`Kvs::compare_and_set`] when the key has another value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// The value that it has.
    pub current: Option<Value>,
}

impl Kvs {
    /// Maps `key` to `new`, or removes it where that is `None`, if it has the value `old` (none: `None`) now; else
    /// says which one it has. Nobody else writes the key in between.
    ///
    /// ```
    /// # use esker_kv::{Kvdb, Location, Policy, KvError};
    /// # fn main() -> Result<(), KvError> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Kvdb::builder(scratch.path().join("db")).create()?;
    /// let locks = db.create_kvs("locks", Policy::default())?;
    /// assert!(locks.compare_and_set("printer", None, Some(b"ada"))?.is_ok());
    /// let changed = locks.compare_and_set("printer", None, Some(b"grace"))?.unwrap_err();
    /// assert_eq!(changed.current.as_deref(), Some(&b"ada"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Kvs::put`].
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Result<(), Changed>> {
        let key = key.as_ref();
        loop {
            let mut transaction = Transaction::begin(&self.engine);
            let current = transaction.get_for_update(self, key)?;
            if current.as_deref() != old {
                return Ok(Err(Changed { current }));
            }
            match new {
                Some(value) => transaction.put(self, key, value)?,
                None => transaction.delete(self, key)?,
            }
            match transaction.commit() {
                Err(KvError::TransactionConflict { .. } | KvError::TransactionExpired(_)) => {}
                committed => return committed.map(Ok),
            }
        }
    }
}

impl Sealed for Transaction {}

impl Readable for Transaction {
    fn get_into(&self, kvs: &Kvs, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        let (view, key) = (self.view(kvs)?, key.as_ref());
        self.engine.counters.gets.add(1);
        value.clear();
        let own = self.get_own(kvs, key, |own| {
            value.extend_from_slice(own.unwrap_or_default());
            own.is_some()
        });
        match own {
            Some(found) => Ok(found),
            None => get::find(&self.engine, &view, kvs.id, key, self.moment(), value),
        }
    }

    fn get_to_buffer(
        &self,
        kvs: &Kvs,
        key: impl AsRef<[u8]>,
        buffer: &mut [u8],
    ) -> Result<Option<usize>> {
        let (view, key) = (self.view(kvs)?, key.as_ref());
        self.engine.counters.gets.add(1);
        match self.get_own(kvs, key, |own| own.map(|value| copy(value, buffer))) {
            Some(found) => Ok(found),
            None => get::find_to_buffer(&self.engine, &view, kvs.id, key, self.moment(), buffer),
        }
    }

    fn get_many<K: AsRef<[u8]>>(&self, kvs: &Kvs, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let view = self.view(kvs)?;
        self.engine.counters.gets.add(keys.len() as u64);
        let mut values = values(get::find_many(&self.engine, &view, kvs.id, keys, self.moment())?);
        for (value, key) in values.iter_mut().zip(keys) {
            let own = self.get_own(kvs, key.as_ref(), |own| own.map(Value::from));
            own.into_iter().for_each(|own| *value = own);
        }
        Ok(values)
    }

    fn contains_key(&self, kvs: &Kvs, key: impl AsRef<[u8]>) -> Result<bool> {
        let (view, key) = (self.view(kvs)?, key.as_ref());
        self.engine.counters.gets.add(1);
        match self.get_own(kvs, key, |own| own.is_some()) {
            Some(found) => Ok(found),
            None => get::contains(&self.engine, &view, kvs.id, key, self.moment()),
        }
    }

    fn cursor(&self, kvs: &Kvs) -> Result<Cursor> {
        let view = self.view(kvs)?;
        let own = MemtableSource::new(self.own.clone(), kvs.id, self.own_seqno);
        Ok(Cursor::new(&self.engine, &view, (self.seqno, self.now_ms), kvs.id, Some(own)))
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("seqno", &self.seqno.0).finish_non_exhaustive()
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.engine.life.check_owner().is_ok() {
            self.engine.transactions.end(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::OWN_SLACK;
    use crate::api::readable::Readable;
    use crate::testing::kvdb;
    use esker_base::Rng;

    #[test]
    fn overwritten_values_of_a_transaction_take_no_dram() {
        let (db, kvs, _) = kvdb();
        kvs.put(b"0-old", b"old").unwrap();
        let mut transaction = db.transaction();
        let mut oracle = BTreeMap::from([(b"0-old".to_vec(), b"old".to_vec())]);
        let mut rng = Rng::new(1);
        let mut cursor = None;
        for n in 0..20_000 {
            let key = format!("{}-{}", rng.below(3), rng.below(5)).into_bytes();
            match rng.below(100) {
                _ if n % 7000 == 6999 => {
                    transaction.delete_prefix(&kvs, &key[..1]).unwrap();
                    oracle.retain(|other, _| other[0] != key[0]);
                }
                0..10 => {
                    transaction.delete(&kvs, &key).unwrap();
                    oracle.remove(&key);
                }
                _ => {
                    let mut value = vec![0; 1000];
                    rng.fill(&mut value);
                    transaction.put(&kvs, &key, &value).unwrap();
                    oracle.insert(key, value);
                }
            }
            let bytes = transaction.own.bytes();
            assert!(bytes < 2 * OWN_SLACK, "{bytes} after {n}");
            if n == 10_000 {
                cursor = Some((transaction.cursor(&kvs).unwrap(), oracle.clone()));
            }
        }
        let (mut cursor, then) = cursor.unwrap();
        for (key, value) in &then {
            assert_eq!(cursor.next().unwrap(), Some((&key[..], &value[..])), "as it was then");
        }
        assert_eq!(cursor.next().unwrap(), None);
        for (key, value) in &oracle {
            assert_eq!(transaction.get(&kvs, key).unwrap().as_deref(), Some(&value[..]));
        }
        transaction.commit().unwrap();
        let mut cursor = kvs.cursor().unwrap();
        for (key, value) in &oracle {
            assert_eq!(cursor.next().unwrap(), Some((&key[..], &value[..])));
        }
        assert_eq!(cursor.next().unwrap(), None);
    }
}
