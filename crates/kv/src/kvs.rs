//! A KVS and its calls; what a key maps to in a view, from the newest source to the oldest.

use std::sync::Arc;

use crate::cache::RecordKey;
use crate::compression::Compression;
use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::error::{KvError, Result};
use crate::expiry::{Expiry, Moment, Time};
use crate::ingest::Young;
use crate::kvset::Found;
use crate::media::Purpose;
use crate::omf::frame::{Change, Record};
use crate::omf::manifest::Edit;
use crate::omf::page::Stored;
use crate::policy::{KvsOptions, Policy};
use crate::source::Item;
use crate::sync::atomic::Ordering;
use crate::value::{ValueBlock, Wanted};
use crate::view::View;
use crate::write::{check_record, size_with_expiry, with_expiry};

/// An ordered map of keys to values in a KVDB. A handle: cheap to clone, used from any thread.
#[derive(Clone)]
pub struct Kvs {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
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
        self.engine.check_open()?;
        let view = self.engine.view.load();
        let tree = view.tree(self.id).ok_or_else(|| KvError::Dropped(self.name.to_string()))?;
        Ok(tree.options)
    }

    /// Changes where data goes. It is durable when this returns, and holds for what is written from
    /// then on; older data moves when maintenance rewrites it.
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
        self.change_options(|options| options.compression = compression)
    }

    /// Changes the time to live ([`KvsOptions::ttl_ms`]). It is durable when this returns, and holds
    /// for what is put from then on; what was put before expires as it would have.
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
        let _naming = engine.naming.lock();
        engine.check_running()?;
        let mut options = self.options()?;
        change(&mut options);
        engine.commit(vec![Edit::Kvs { id: self.id, name: self.name.to_string(), options }])?;
        engine.publish_tree(self.id, |tree| tree.set_options(options));
        engine.futile.lock().clear();
        engine.work.notify();
        Ok(())
    }

    /// Maps `key` to `value`. Durable as the options say ([`crate::Options::durability_ms`]).
    ///
    /// # Errors
    /// `Invalid` when key or value exceed the limits, `NoSpace` when the media are full, `Closed`
    /// when the KVDB is closed, or the device error since which it takes no writes. With that one the
    /// write may have happened: it is seen before it is durable.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(key, Change::Put(value))?;
        self.engine.counters.puts.add(1);
        Ok(())
    }

    /// Removes `key`, whether it is there or not.
    ///
    /// # Errors
    /// As [`Kvs::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(key, Change::Delete)?;
        self.engine.counters.deletes.add(1);
        Ok(())
    }

    /// Removes all keys that begin with `prefix`, which has 1 to [`KEY_MAX`](crate::KEY_MAX) bytes.
    /// It takes one record, however many keys there are. What they and their values occupy is freed
    /// by maintenance, as after as many deletes.
    ///
    /// # Errors
    /// As [`Kvs::put`].
    pub fn delete_prefix(&self, prefix: &[u8]) -> Result<()> {
        self.write(prefix, Change::DeletePrefix)?;
        self.engine.counters.prefix_deletes.add(1);
        Ok(())
    }

    fn write(&self, key: &[u8], change: Change<'_>) -> Result<()> {
        let record = Record { kvs: self.id, key, change };
        check_record(&record)?;
        let options = self.options()?;
        let purpose = purpose(change.value().is_none());
        if change.value().is_some() {
            self.engine.admit(self.id)?;
        }
        let expiry = self.engine.expiry_of_put(&options);
        let size = size_with_expiry(record, expiry);
        self.engine.write(size, purpose, with_expiry(record, expiry), |_| Ok(()))?;
        Ok(())
    }

    /// Refuses to read when the KVDB is closed, or the KVS is not `present` in what is to be read.
    pub(crate) fn check_present(&self, present: bool) -> Result<()> {
        self.engine.check_open()?;
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

    /// The value of `key`.
    ///
    /// # Errors
    /// `Io` or `Corrupt` when it cannot be read, `Closed` when the KVS was dropped or the KVDB is closed.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Writes the value of `key` to `value`, which is cleared first; false when there is none.
    ///
    /// # Errors
    /// As [`Kvs::get`].
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let engine = &self.engine;
        engine.counters.gets.add(1);
        let view = engine.view.load();
        // After the view: all that is visible up to here is in it, or was written meanwhile.
        let seqno = engine.visible.load(Ordering::Acquire);
        self.check_present(view.tree(self.id).is_some())?;
        engine.find(&view, self.id, key, engine.now(seqno), value)
    }

    /// The values of `keys`, in their order. Values that are on the media are read several at a time,
    /// so this takes less time than as many calls of [`Kvs::get`].
    ///
    /// # Errors
    /// As [`Kvs::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        self.engine.counters.gets.add(keys.len() as u64);
        let view = self.engine.view.load();
        let seqno = self.engine.visible.load(Ordering::Acquire);
        self.check_present(view.tree(self.id).is_some())?;
        self.engine.find_many(&view, self.id, keys, self.engine.now(seqno))
    }

    /// A cursor over the KVS as it is now, before its first key.
    ///
    /// # Errors
    /// `Closed` when the KVS was dropped or the KVDB is closed.
    pub fn cursor(&self) -> Result<Cursor> {
        let (view, seqno) = self.engine.snapshot();
        self.check_present(view.tree(self.id).is_some())?;
        let now_ms = self.engine.wall_clock.now_ms();
        Ok(Cursor::new(&self.engine, &view, (seqno, now_ms), self.id, None))
    }
}

/// Refuses a time to live that nothing survives.
pub(crate) fn check_ttl(ttl_ms: Option<u64>) -> Result<()> {
    if ttl_ms == Some(0) {
        let why = "a time to live of 0 ms lets nothing live: give at least 1 ms, or leave it out to keep what is put";
        return Err(KvError::Options(why.into()));
    }
    Ok(())
}

/// What space a write may use.
pub(crate) fn purpose(deletes_only: bool) -> Purpose {
    if deletes_only { Purpose::Delete } else { Purpose::User }
}

/// Where the value of a key is.
enum Located<'v> {
    /// Nowhere.
    Absent,
    /// Written to the caller's buffer.
    Copied,
    /// In this block; it is the newest one in a tree of this age, or will be.
    Stored(&'v Arc<ValueBlock>, Stored, u64),
}

impl Engine {
    /// The moment of a read that sees records up to `seqno`.
    fn now(&self, seqno: u64) -> Moment<'_> {
        Moment { seqno, time: Time::Now(&self.wall_clock) }
    }

    /// When what is put now into a KVS with these options expires.
    pub(crate) fn expiry_of_put(&self, options: &KvsOptions) -> Expiry {
        match options.ttl_ms {
            None => Expiry::NEVER,
            ttl_ms => Expiry::of_put(self.wall_clock.now_ms(), ttl_ms),
        }
    }

    /// Writes the value that `key` has at `moment` to `out`, which is emptied when there is none;
    /// whether there is one.
    pub(crate) fn find(
        &self,
        view: &View,
        kvs: u32,
        key: &[u8],
        moment: Moment<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let key = RecordKey::new(kvs, key);
        match self.if_open(self.locate(view, &key, moment, out))? {
            Located::Absent => {
                out.clear();
                Ok(false)
            }
            Located::Copied => Ok(true),
            Located::Stored(block, stored, age) => {
                let wanted = Wanted { index: 0, block, key, stored, age };
                self.if_open(self.values.read(&wanted, out)).map(|()| true)
            }
        }
    }

    /// Like [`Engine::find`], for many keys: what is on the media is read several at a time.
    pub(crate) fn find_many<K: AsRef<[u8]>>(
        &self,
        view: &View,
        kvs: u32,
        keys: &[K],
        moment: Moment<'_>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = Vec::with_capacity(keys.len());
        let mut wanted = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let (key, mut value) = (RecordKey::new(kvs, key.as_ref()), Vec::new());
            let located = self.if_open(self.locate(view, &key, moment, &mut value))?;
            values.push((!matches!(located, Located::Absent)).then_some(value));
            if let Located::Stored(block, stored, age) = located {
                wanted.push(Wanted { index, block, key, stored, age });
            }
        }
        let read = self.values.read_many(wanted, |index, value| {
            values[index] = Some(value.to_vec());
        });
        self.if_open(read).map(|()| values)
    }

    /// Looks for a key at `moment`, newest first: in the memtables, in what was replayed, among the cached
    /// records, in the root and in the leaf.
    fn locate<'v>(
        &self,
        view: &'v View,
        key: &RecordKey<'_>,
        moment: Moment<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Located<'v>> {
        let &RecordKey { kvs, key: bytes, key_hash } = key;
        let Some(tree) = view.tree(kvs) else {
            return Ok(Located::Absent);
        };
        if tree.refers {
            self.values.cache.prefetch_entry(key.hash());
        }
        for table in view.memtables() {
            let found = table.get(kvs, (bytes, key_hash), moment.seqno, |written| {
                out.clear();
                let value = written.value.filter(|_| moment.sees(written.expiry));
                value.map(|value| out.extend_from_slice(value)).is_some()
            });
            match found {
                Some(true) => return Ok(Located::Copied),
                Some(false) => return Ok(Located::Absent),
                None => {}
            }
        }
        for table in view.replayed() {
            match table.get(kvs, bytes) {
                None => {}
                Some(Item::Tombstone) => return Ok(Located::Absent),
                Some(item) if !moment.sees(item.expiry()) => return Ok(Located::Absent),
                Some(Item::Value(value, _)) => {
                    out.clear();
                    out.extend_from_slice(value);
                    return Ok(Located::Copied);
                }
                Some(Item::Stored(block, stored)) => {
                    return Ok(Located::Stored(block, stored, table.last_seqno()));
                }
            }
        }
        let is_newest = |age| tree.is_newest(bytes, key_hash, age);
        if tree.refers && self.values.cache.newest(key, tree.age, is_newest, out) {
            return Ok(Located::Copied);
        }
        let leaf = &tree.leaves[tree.leaf_of(bytes)];
        for kvset in tree.root.iter().chain(&leaf.kvsets) {
            match kvset.get(bytes, key_hash)? {
                None => {}
                Some(Found::Tombstone) => return Ok(Located::Absent),
                Some(found) if !moment.sees(found.expiry()) => return Ok(Located::Absent),
                Some(Found::Inline(bytes, size, _)) => {
                    out.clear();
                    out.extend_from_slice(&bytes[..size]);
                    return Ok(Located::Copied);
                }
                Some(Found::Stored(stored)) => {
                    return Ok(Located::Stored(kvset.block(&stored), stored, tree.age));
                }
            }
        }
        Ok(Located::Absent)
    }
}
