//! A KVS and its calls, and batches.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::error::{KvError, Result};
use crate::log::LogTail;
use crate::media::Purpose;
use crate::omf::frame::Record;
use crate::write::check_record;

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

    /// Maps `key` to `value`. Durable as the options say ([`crate::Options::durability_ms`]).
    ///
    /// # Errors
    /// `Invalid` when key or value exceed the limits, `NoSpace` when the media are full, `Closed`
    /// when the KVDB is closed, or the device error since which it takes no writes.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(Record { kvs: self.id, key, value: Some(value) })?;
        self.engine.counters.puts.add(1);
        Ok(())
    }

    /// Removes `key`, whether it is there or not.
    ///
    /// # Errors
    /// As [`Kvs::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(Record { kvs: self.id, key, value: None })?;
        self.engine.counters.deletes.add(1);
        Ok(())
    }

    fn write(&self, record: Record<'_>) -> Result<()> {
        check_record(&record)?;
        self.check_present(self.engine.view.load().tree(self.id).is_some())?;
        let purpose = purpose(record.value.is_none());
        self.engine.write(record.size(), purpose, std::iter::once(record), |_| Ok(()))?;
        Ok(())
    }

    pub(crate) fn check_present(&self, present: bool) -> Result<()> {
        if present { Ok(()) } else { Err(KvError::Dropped(self.name.to_string())) }
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
    /// `Io` or `Corrupt` when it cannot be read.
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
        engine.find(&view, self.id, key, seqno, value)
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
        self.engine.find_many(&view, self.id, keys, seqno)
    }

    /// A cursor over the KVS as it is now, before its first key.
    ///
    /// # Errors
    /// `Closed` when the KVS was dropped.
    pub fn cursor(&self) -> Result<Cursor> {
        let (view, seqno) = self.engine.snapshot();
        self.check_present(view.tree(self.id).is_some())?;
        Ok(Cursor::new(&self.engine, &view, seqno, self.id, None))
    }
}

/// What space a write may use.
fn purpose(deletes_only: bool) -> Purpose {
    if deletes_only { Purpose::Maintenance } else { Purpose::User }
}

/// Writes to any KVSs of one KVDB that happen all or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    records: Vec<BatchRecord>,
}

#[derive(Clone, Debug)]
struct BatchRecord {
    kvs: u32,
    key_end: usize,
    /// `None` is a delete.
    value_end: Option<usize>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a put. Of several writes to one key, the last one counts.
    pub fn put(&mut self, kvs: &Kvs, key: &[u8], value: &[u8]) {
        self.push(kvs.id, key, Some(value));
    }

    /// Adds a delete.
    pub fn delete(&mut self, kvs: &Kvs, key: &[u8]) {
        self.push(kvs.id, key, None);
    }

    pub(crate) fn push(&mut self, kvs: u32, key: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let value_end = value.map(|_| self.bytes.len());
        self.records.push(BatchRecord { kvs, key_end, value_end });
    }

    /// How many writes it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Removes all writes and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut start = 0;
        self.records.iter().map(move |record| {
            let key = &self.bytes[start..record.key_end];
            let value = record.value_end.map(|end| &self.bytes[record.key_end..end]);
            start = record.value_end.unwrap_or(record.key_end);
            Record { kvs: record.kvs, key, value }
        })
    }
}

impl Engine {
    /// Writes a batch if `check` agrees, which is asked while nobody else writes; returns the seqno of
    /// its last record.
    pub(crate) fn write_batch(
        &self,
        batch: &Batch,
        check: impl FnOnce(&LogTail) -> Result<()>,
    ) -> Result<u64> {
        let mut size = 0;
        {
            let view = self.view.load();
            for record in batch.records() {
                check_record(&record)?;
                if view.tree(record.kvs).is_none() {
                    return Err(KvError::Dropped(format!("number {}", record.kvs)));
                }
                size += record.size();
            }
        }
        let deletes_only = batch.records().all(|record| record.value.is_none());
        self.write(size, purpose(deletes_only), batch.records(), check)
    }
}
