//! Batches: writes to any KVSs of one KVDB that happen all or not at all.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::error::{KvError, Result};
use crate::kvs::{Kvs, purpose};
use crate::log::LogTail;
use crate::media::Purpose;
use crate::omf::frame::Record;
use crate::write::check_record;

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
        let mut puts_to = BTreeMap::new();
        {
            let view = self.view.load();
            for record in batch.records() {
                check_record(&record)?;
                let Some(tree) = view.tree(record.kvs) else {
                    return Err(KvError::Dropped(format!("number {}", record.kvs)));
                };
                if record.value.is_some() && !puts_to.contains_key(&record.kvs) {
                    puts_to.insert(record.kvs, tree.clone());
                }
                size += record.size();
            }
        }
        for tree in puts_to.values() {
            self.admit(&tree.name, &tree.options.policy, Purpose::User)?;
        }
        let deletes_only = batch.records().all(|record| record.value.is_none());
        self.write(size, purpose(deletes_only), batch.records(), check)
    }
}
