//! A KVS and its calls. Each is checked here, and done in `write` or `read`.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::api::item::{Key, Value};
use crate::api::iter::Iter;
use crate::engine::shared::Engine;
use crate::omf::frame::{Change, Record};
use crate::omf::manifest::Edit;
use crate::read::cursor::Cursor;
use crate::read::get;
use crate::tree::view::View;
use crate::types::compression::Compression;
use crate::types::error::{KvError, Result};
use crate::types::expiry::Moment;
use crate::types::format::FormatVersion;
use crate::types::ids::{KvsId, Seqno};
use crate::types::key_bounds::KeyBounds;
use crate::types::limits::METADATA_MAX;
use crate::types::options::WriteOptions;
use crate::types::policy::{KvsOptions, Policy};
use crate::types::spans::Span;
use crate::write::put;
use crate::write::put::{check_record, purpose, size_with_expiry, span_of, with_expiry};

/// An ordered map of keys to values in a KVDB. A handle: cheap to clone, used from any thread.
#[derive(Clone)]
pub struct Kvs {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: KvsId,
    pub(crate) name: Arc<str>,
}

impl fmt::Debug for Kvs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kvs").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Kvs {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its data goes, and whatever else may be changed of it.
    ///
    /// # Errors
    /// `Closed` when the KVS was dropped or the KVDB is closed.
    pub fn options(&self) -> Result<KvsOptions> {
        self.engine.life.check_open()?;
        let view = self.engine.view.load();
        let tree = view.tree(self.id).ok_or_else(|| KvError::Dropped(self.name.to_string()))?;
        Ok(tree.options)
    }

    /// Changes where data goes. It is durable when this returns, and holds for data written from then on; older
    /// data moves when maintenance rewrites it.
    ///
    /// # Errors
    /// `Closed` when the KVS was dropped, or the device error since which the KVDB takes no writes.
    pub fn set_policy(&self, policy: Policy) -> Result<()> {
        self.change_options(|options| options.policy = policy)
    }

    /// Changes how values are compressed. It is durable when this returns, and holds for values that
    /// age from then on; those that are compressed already stay as they are.
    ///
    /// # Errors
    /// As [`Kvs::set_policy`].
    pub fn set_compression(&self, compression: Compression) -> Result<()> {
        compression.check(&self.name)?;
        self.change_options(|options| options.compression = compression)
    }

    /// Changes the time to live ([`KvsOptions::ttl_ms`]). It is durable when this returns, and holds
    /// for values put from then on; values put before expire as they would have.
    ///
    /// # Errors
    /// `Invalid` for a time to live of 0; else as [`Kvs::set_policy`].
    pub fn set_ttl_ms(&self, ttl_ms: Option<u64>) -> Result<()> {
        check_ttl(ttl_ms)?;
        self.change_options(|options| options.ttl_ms = ttl_ms)
    }

    /// Changes options, durably.
    pub(crate) fn change_options(&self, change: impl FnOnce(&mut KvsOptions)) -> Result<()> {
        let engine = &self.engine;
        engine.life.check_owner()?;
        let _naming = engine.naming.lock();
        engine.life.check_running()?;
        let mut options = self.options()?;
        change(&mut options);
        engine.commit(vec![Edit::Kvs { id: self.id, name: self.name.to_string(), options }])?;
        engine.view.publish_tree(self.id, |tree| tree.set_options(options));
        engine.scheduler.try_all_again();
        engine.scheduler.notify();
        Ok(())
    }

    /// Maps `key` to `value`. Durable as the KVDB's options say ([`crate::Options::durability`]).
    ///
    /// # Errors
    /// `Invalid` when key or value exceed the limits, `NoSpace` when the media are full, `Corrupt` when the key is
    /// read-only because of damage beside it ([`Kvdb::remarks`](crate::api::kvdb::Kvdb::remarks)), `Closed` when
    /// the KVDB is closed, or the device error since which it takes no writes. With that one the write may have
    /// happened: it is seen before it is durable.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, &WriteOptions::default())
    }

    /// Like [`Kvs::put`], as `options` say.
    ///
    /// # Errors
    /// As [`Kvs::put`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<()> {
        let seqno = self.write(key.as_ref(), Change::Put(value.as_ref()))?;
        self.engine.counters.puts.add(1);
        self.engine.make_durable(seqno, options)
    }

    /// Removes `key`, whether it is there or not.
    ///
    /// # Errors
    /// As [`Kvs::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(key.as_ref(), Change::Delete)?;
        self.engine.counters.deletes.add(1);
        Ok(())
    }

    /// Removes all keys that begin with `prefix`, which has 1 to [`KEY_MAX`](crate::KEY_MAX) bytes.
    /// It takes one record, however many keys there are. Maintenance frees the space of these keys and their
    /// values, as after as many deletes.
    ///
    /// # Errors
    /// As [`Kvs::put`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.write(prefix.as_ref(), Change::DeletePrefix)?;
        self.engine.counters.prefix_deletes.add(1);
        Ok(())
    }

    fn write(&self, key: &[u8], change: Change<'_>) -> Result<Seqno> {
        let record = Record { kvs: self.id, key, change };
        check_record(&record)?;
        let options = self.options()?;
        self.engine.fences.check_unfenced(&self.engine.view, &record)?;
        self.engine.require(record.version())?;
        let purpose = purpose(change.value().is_none());
        if change.value().is_some() {
            put::admit(&self.engine, self.id)?;
        }
        let expiry = put::expiry_of_put(&self.engine, &options);
        let size = size_with_expiry(record, expiry);
        put::write(&self.engine, size, purpose, with_expiry(record, expiry), |_| Ok(()))
    }

    /// Refuses to read when the KVDB is closed, or the KVS is not `present` in the view to be read.
    pub(crate) fn check_present(&self, present: bool) -> Result<()> {
        self.engine.life.check_open()?;
        if present {
            return Ok(());
        }
        let name = self.name.to_string();
        let is_there = self.engine.view.load().tree(self.id).is_some();
        Err(if is_there { KvError::CreatedLater(name) } else { KvError::Dropped(name) })
    }

    /// Refuses a handle of another KVDB.
    pub(crate) fn check_of(&self, engine: &Arc<Engine>) -> Result<()> {
        if Arc::ptr_eq(&self.engine, engine) {
            return Ok(());
        }
        let name = &self.name;
        Err(KvError::Options(format!("the KVS '{name}' is of another KVDB: open it on this one")))
    }

    /// The value of `key`: none for a key that is longer than [`KEY_MAX`](crate::KEY_MAX), which is no error here.
    ///
    /// ```
    /// # use esker_kv::{Batch, Kvdb, KvError, Location, Policy, Readable, WriteOptions};
    /// # fn main() -> Result<(), KvError> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Kvdb::builder(scratch.path().join("db")).create()?;
    /// # let users = db.create_kvs("users", Policy::default())?;
    /// users.put("42", "Ada")?;
    /// assert_eq!(users.get("42")?.unwrap(), "Ada");
    /// assert!(users.get("43")?.is_none());
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Io` or `Corrupt` when it cannot be read, `Closed` when the KVS was dropped or the KVDB is closed.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then(|| value.into()))
    }

    /// Writes the value of `key` to `value`, which is cleared first; false when there is none.
    ///
    /// # Errors
    /// As [`Kvs::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        self.look(|engine, view, moment| {
            get::find(engine, view, self.id, key.as_ref(), moment, value)
        })
    }

    /// Like [`Kvs::get_into`] where the key's newest record is young or its value cached; none where the call might have
    /// to wait for a device. For threads that may not wait.
    ///
    /// # Errors
    /// As [`Kvs::get`].
    pub fn get_in_memory(
        &self,
        key: impl AsRef<[u8]>,
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>> {
        self.look(|engine, view, moment| {
            Ok(get::find_in_memory(engine, view, self.id, key.as_ref(), moment, value))
        })
    }

    /// Copies as much of the value of `key` as `buffer` takes, and returns the value's size; none when there is no
    /// value.
    ///
    /// # Errors
    /// As [`Kvs::get`].
    pub fn get_to_buffer(&self, key: impl AsRef<[u8]>, buffer: &mut [u8]) -> Result<Option<usize>> {
        self.look(|engine, view, moment| {
            get::find_to_buffer(engine, view, self.id, key.as_ref(), moment, buffer)
        })
    }

    /// Whether `key` has a value, which is not read.
    ///
    /// # Errors
    /// As [`Kvs::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.look(|engine, view, moment| get::contains(engine, view, self.id, key.as_ref(), moment))
    }

    /// Looks for a key as it is now.
    fn look<T>(&self, find: impl FnOnce(&Engine, &View, Moment<'_>) -> Result<T>) -> Result<T> {
        let engine = &self.engine;
        engine.counters.gets.add(1);
        let view = engine.view.load();
        // After the view: all that is visible up to here is in it, or was written meanwhile.
        let seqno = engine.log.visible();
        self.check_present(view.tree(self.id).is_some())?;
        find(engine, &view, engine.wall_clock.moment(seqno))
    }

    /// The values of `keys`, in their order. Values that are on the media are read several at a time,
    /// so this takes less time than as many calls of [`Kvs::get`].
    ///
    /// ```
    /// # use esker_kv::{Batch, Kvdb, KvError, Location, Policy, Readable, WriteOptions};
    /// # fn main() -> Result<(), KvError> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Kvdb::builder(scratch.path().join("db")).create()?;
    /// # let users = db.create_kvs("users", Policy::default())?;
    /// users.put("42", "Ada")?;
    /// let found = users.get_many(&["42", "43"])?;
    /// assert_eq!(found, [Some(b"Ada"[..].into()), None]);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Kvs::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.engine.counters.gets.add(keys.len() as u64);
        let view = self.engine.view.load();
        let seqno = self.engine.log.visible();
        self.check_present(view.tree(self.id).is_some())?;
        let found = get::find_many(
            &self.engine,
            &view,
            self.id,
            keys,
            self.engine.wall_clock.moment(seqno),
        )?;
        Ok(values(found))
    }

    /// A cursor over the KVS as it is now, before its first key.
    ///
    /// # Errors
    /// `Closed` when the KVS was dropped or the KVDB is closed.
    pub fn cursor(&self) -> Result<Cursor> {
        let (view, seqno) = self.engine.view.snapshot(&self.engine.log);
        self.check_present(view.tree(self.id).is_some())?;
        let now_ms = self.engine.wall_clock.now_ms();
        Ok(Cursor::new(&self.engine, &view, (seqno, now_ms), self.id, None))
    }

    /// All keys and values in order, as they are now.
    ///
    /// # Errors
    /// As [`Kvs::cursor`].
    pub fn iter(&self) -> Result<Iter> {
        Ok(Iter::new(self.cursor()?, KeyBounds::NONE))
    }

    /// Those of the keys in a range; none where it ends before it begins. For all keys there is [`Kvs::iter`].
    ///
    /// ```
    /// # use esker_kv::{Kvdb, Location, Policy, KvError};
    /// # fn main() -> Result<(), KvError> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Kvdb::builder(scratch.path().join("db")).create()?;
    /// let words = db.create_kvs("words", Policy::default())?;
    /// for word in ["ant", "bee", "cat", "cow"] {
    ///     words.put(word, "")?;
    /// }
    /// let from_b = words.range("b"..)?.keys().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(from_b, ["bee", "cat", "cow"]);
    /// let last = words.range("b".."cow")?.next_back().unwrap()?;
    /// assert_eq!(last.0, "cat");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Kvs::cursor`].
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        Ok(Iter::new(self.cursor()?, KeyBounds::of(&range)))
    }

    /// Those of the keys that begin with `prefix`.
    ///
    /// ```
    /// # use esker_kv::{Batch, Kvdb, KvError, Location, Policy, Readable, WriteOptions};
    /// # fn main() -> Result<(), KvError> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Kvdb::builder(scratch.path().join("db")).create()?;
    /// # let users = db.create_kvs("users", Policy::default())?;
    /// for key in ["a/1", "a/2", "b/1"] {
    ///     users.put(key, "")?;
    /// }
    /// assert_eq!(users.prefix("a/")?.count(), 2);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Kvs::cursor`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Ok(Iter::new(self.cursor()?, KeyBounds::of_prefix(prefix.as_ref())))
    }

    /// The first key with its value.
    ///
    /// # Errors
    /// As [`Kvs::get`].
    pub fn first(&self) -> Result<Option<(Key, Value)>> {
        self.iter()?.next().transpose()
    }

    /// The last key with its value.
    ///
    /// # Errors
    /// As [`Kvs::get`].
    pub fn last(&self) -> Result<Option<(Key, Value)>> {
        self.iter()?.next_back().transpose()
    }

    /// Whether it has no keys.
    ///
    /// # Errors
    /// As [`Kvs::get`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.iter()?.keys().next().transpose()?.is_none())
    }

    /// Removes all keys in `range`. It takes one record, however many keys there are; a range without keys takes none.
    /// Maintenance frees the space of these keys and their values, as after as many deletes.
    ///
    /// The first one upgrades the KVDB to version 2 of the on-media format, durably. Builds that know only version 1 refuse
    /// it from then on.
    ///
    /// ```
    /// # use esker_kv::{Kvdb, KvError, Policy};
    /// # fn main() -> Result<(), KvError> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Kvdb::builder(scratch.path().join("db")).create()?;
    /// # let events = db.create_kvs("events", Policy::default())?;
    /// events.put("2025-12-31", "old")?;
    /// events.put("2026-01-01", "new")?;
    /// events.delete_range(.."2026")?;
    /// assert_eq!(events.get("2025-12-31")?, None);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` when the range ends before it begins, or a bound is longer than [`KEY_MAX`](crate::KEY_MAX) bytes; else as
    /// [`Kvs::put`].
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        match span_of(&range)? {
            Some(span) => self.delete_span(span.as_span()),
            None => self.options().map(drop),
        }
    }

    /// Removes all keys. It takes one record, however many there are.
    ///
    /// # Errors
    /// As [`Kvs::delete_range`].
    pub fn clear(&self) -> Result<()> {
        self.delete_span(Span { lower: &[], upper: None })
    }

    /// The caller's metadata, as [`Kvs::set_metadata`] set it last: empty when there is none.
    ///
    /// # Errors
    /// `Closed` when the KVS was dropped or the KVDB is closed.
    pub fn metadata(&self) -> Result<Vec<u8>> {
        self.engine.life.check_open()?;
        let view = self.engine.view.load();
        let tree = view.tree(self.id).ok_or_else(|| KvError::Dropped(self.name.to_string()))?;
        Ok(tree.metadata.to_vec())
    }

    /// Sets the caller's metadata: up to [`METADATA_MAX`] bytes that stay with the KVS, and that
    /// Esker never looks at. It is durable when this returns. Like [`Kvs::delete_range`], it needs version 2 of the format.
    ///
    /// # Errors
    /// `Invalid` for more bytes; else as [`Kvs::set_policy`].
    pub fn set_metadata(&self, metadata: impl AsRef<[u8]>) -> Result<()> {
        let metadata = metadata.as_ref();
        let engine = &self.engine;
        if metadata.len() > METADATA_MAX {
            let (name, got) = (&self.name, metadata.len());
            return Err(KvError::Options(format!(
                "the KVS '{name}' has at most {METADATA_MAX} bytes of metadata; these are {got}"
            )));
        }
        engine.life.check_owner()?;
        let _naming = engine.naming.lock();
        engine.life.check_running()?;
        self.options()?;
        engine.require(FormatVersion::V2)?;
        let metadata = metadata.to_vec();
        engine.commit(vec![Edit::KvsMetadata { id: self.id, metadata: metadata.clone() }])?;
        engine.view.publish_tree(self.id, |tree| tree.set_metadata(&metadata));
        engine.balance_memory();
        Ok(())
    }

    fn delete_span(&self, span: Span<'_>) -> Result<()> {
        let Record { key, change, .. } = Record::delete_of(self.id, span);
        self.write(key, change)?;
        self.engine.counters.range_deletes.add(1);
        Ok(())
    }
}

/// Found values, as callers get them.
pub(crate) fn values(found: Vec<Option<Vec<u8>>>) -> Vec<Option<Value>> {
    found.into_iter().map(|value| value.map(Value::from)).collect()
}

/// Refuses a time to live that nothing survives.
pub(crate) fn check_ttl(ttl_ms: Option<u64>) -> Result<()> {
    if ttl_ms == Some(0) {
        let why = "a time to live of 0 ms lets nothing live: give at least 1 ms, or leave it out to keep what is put";
        return Err(KvError::Options(why.into()));
    }
    Ok(())
}
