//! Batches: writes to any KVSs of one KVDB that happen all or not at all.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::{Arc, Weak};

use crate::api::kvs::Kvs;
use crate::engine::shared::Engine;
use crate::log::tail::LogTail;
use crate::omf::frame::{Change, Record};
use crate::tree::view::View;
use crate::types::error::{KvError, Result};
use crate::types::expiry::Expiry;
use crate::types::format::FormatVersion;
use crate::types::ids::{KvsId, Seqno};
use crate::types::spans::{Span, bound_of};
use crate::write::put;
use crate::write::put::{check_record, purpose, span_of, with_expiry};

/// Writes to any KVSs of one KVDB that happen all or not at all. It keeps its records when it is written.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    records: Vec<BatchRecord>,
    /// The KVDBs that its handles are of: one, or it is refused.
    engines: Vec<Weak<Engine>>,
    /// Names of the KVSs.
    names: BTreeMap<KvsId, Arc<str>>,
    /// Why a range cannot be deleted.
    refused: Option<KvError>,
}

#[derive(Clone, Debug)]
struct BatchRecord {
    kvs: KvsId,
    key_end: usize,
    kind: Kind,
    end: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Put,
    Delete,
    DeletePrefix,
    DeleteRange,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a put. Of several writes to one key, the last one counts.
    pub fn put(&mut self, kvs: &Kvs, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.is_of(kvs);
        self.push(kvs.id, key.as_ref(), Change::Put(value.as_ref()));
    }

    /// Adds a delete.
    pub fn delete(&mut self, kvs: &Kvs, key: impl AsRef<[u8]>) {
        self.is_of(kvs);
        self.push(kvs.id, key.as_ref(), Change::Delete);
    }

    /// Adds a delete of all keys that begin with `prefix`: those of earlier writes of the batch, too.
    pub fn delete_prefix(&mut self, kvs: &Kvs, prefix: impl AsRef<[u8]>) {
        self.is_of(kvs);
        self.push(kvs.id, prefix.as_ref(), Change::DeletePrefix);
    }

    fn is_of(&mut self, kvs: &Kvs) {
        let own = Arc::as_ptr(&kvs.engine);
        if self.engines.iter().all(|known| known.as_ptr() != own) {
            self.engines.push(Arc::downgrade(&kvs.engine));
        }
        self.names.entry(kvs.id).or_insert_with(|| kvs.name.clone());
    }

    /// Learns the names of its KVSs from `view`.
    pub(crate) fn name_as_in(&mut self, view: &View) {
        for record in &self.records {
            if let Some(tree) = view.tree(record.kvs) {
                self.names.entry(record.kvs).or_insert_with(|| tree.name.clone());
            }
        }
    }

    /// Refuses a batch with handles of another KVDB, or with a range that ends before it begins.
    pub(crate) fn check_of(&self, engine: &Arc<Engine>) -> Result<()> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        if self.engines.iter().all(|known| known.as_ptr() == Arc::as_ptr(engine)) {
            return Ok(());
        }
        let why = "the batch writes to a KVS of another KVDB, or of an earlier opening of this one: \
                   make it with handles of the KVDB that is to write it";
        Err(KvError::Options(why.into()))
    }

    pub(crate) fn push(&mut self, kvs: KvsId, key: &[u8], change: Change<'_>) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        let rest = match change {
            Change::DeleteRange(upper) => upper,
            _ => change.value(),
        };
        self.bytes.extend_from_slice(rest.unwrap_or_default());
        let kind = match change {
            Change::Put(_) => Kind::Put,
            Change::Delete => Kind::Delete,
            Change::DeletePrefix => Kind::DeletePrefix,
            Change::DeleteRange(_) => Kind::DeleteRange,
            Change::Expire(_) => unreachable!("expiries are added when the batch is written"),
        };
        self.records.push(BatchRecord { kvs, key_end, kind, end: self.bytes.len() });
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
        self.engines.clear();
        self.names.clear();
        self.refused = None;
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut start = 0;
        self.records.iter().map(move |record| {
            let key = &self.bytes[start..record.key_end];
            let change = match record.kind {
                Kind::Put => Change::Put(&self.bytes[record.key_end..record.end]),
                Kind::Delete => Change::Delete,
                Kind::DeletePrefix => Change::DeletePrefix,
                Kind::DeleteRange => {
                    Change::DeleteRange(bound_of(&self.bytes[record.key_end..record.end]))
                }
            };
            start = record.end;
            Record { kvs: record.kvs, key, change }
        })
    }

    /// Adds a delete of all keys in `range`: those of earlier writes of the batch, too. A range without keys adds
    /// nothing; one that ends before it begins is refused when the batch is written.
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, kvs: &Kvs, range: impl RangeBounds<K>) {
        self.is_of(kvs);
        match span_of(&range) {
            Ok(None) => {}
            Ok(Some(span)) => self.push_span(kvs.id, span.as_span()),
            Err(refused) => drop(self.refused.get_or_insert(refused)),
        }
    }

    /// Adds a delete of the keys of a span.
    pub(crate) fn push_span(&mut self, kvs: KvsId, span: Span<'_>) {
        let Record { kvs, key, change } = Record::delete_of(kvs, span);
        self.push(kvs, key, change);
    }
}

impl Batch {
    /// Writes it if `check` agrees, which is asked while nobody else writes; returns the seqno of
    /// its last record.
    pub(crate) fn write_to(
        &self,
        engine: &Engine,
        check: impl FnOnce(&LogTail) -> Result<()>,
    ) -> Result<Seqno> {
        let (mut puts_to, mut version) = (BTreeMap::new(), FormatVersion::V1);
        {
            let view = engine.view.load();
            for record in self.records() {
                version = version.max(record.version());
                check_record(&record)?;
                engine.fences.check_unfenced(&engine.view, &record)?;
                let Some(tree) = view.tree(record.kvs) else {
                    let name = self.names.get(&record.kvs).map(ToString::to_string);
                    return Err(KvError::Dropped(name.unwrap_or_default()));
                };
                if record.change.value().is_some() {
                    puts_to.insert(record.kvs, tree.options);
                }
            }
        }
        engine.require(version)?;
        let mut expiries = BTreeMap::new();
        for (kvs, options) in puts_to {
            put::admit(engine, kvs)?;
            expiries.insert(kvs, put::expiry_of_put(engine, &options));
        }
        let records = || {
            self.records().flat_map(|record| {
                let expiry = expiries.get(&record.kvs).copied().unwrap_or(Expiry::NEVER);
                with_expiry(record, expiry)
            })
        };
        let deletes_only = self.records().all(|record| record.change.value().is_none());
        let size = records().map(|record| record.size()).sum();
        put::write(engine, size, purpose(deletes_only), records(), check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::kvdb;
    use esker_base::ErrorKind;

    #[test]
    fn a_batch_with_handles_of_another_kvdb_is_refused() {
        let ((db, own, _), (_other, foreign, _)) = (kvdb(), kvdb());
        let writes: [fn(&mut Batch, &Kvs); 3] = [
            |batch, kvs| batch.put(kvs, b"k", b"v"),
            |batch, kvs| batch.delete(kvs, b"k"),
            |batch, kvs| batch.delete_prefix(kvs, b"k"),
        ];
        for write in writes {
            let mut batch = Batch::new();
            batch.put(&own, b"own", b"v");
            write(&mut batch, &foreign);
            let error = db.write(&batch).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert_eq!(own.get(b"own").unwrap(), None, "nothing of it is written");
            batch.clear();
            write(&mut batch, &own);
            db.write(&batch).unwrap();
        }
    }
}
