//! Point reads: the value of a key in a view, from the newest source to the oldest. Memtables first, then replayed
//! records, the record cache, the root and the leaf.
//!
//! [`Kvs::get`](crate::api::kvs::Kvs::get), snapshots and transactions call it.

use std::sync::Arc;

use crate::engine::shared::Engine;
use crate::omf::page::Stored;
use crate::tree::item::Item;
use crate::tree::kvset::Found;
use crate::tree::view::View;
use crate::tree::young::Young;
use crate::types::error::Result;
use crate::types::expiry::{Moment, Time};
use crate::types::ids::{KvsId, Seqno};
use crate::values::block::{ValueBlock, Wanted};
use crate::values::cache::record::RecordKey;

/// Where the value of a key is.
pub(crate) enum Located<'v> {
    /// Nowhere.
    Absent,
    /// Written to the caller's buffer.
    Copied,
    /// In this block; it is the newest one in a tree of this age, or will be.
    Stored(&'v Arc<ValueBlock>, Stored, Seqno),
}

impl Engine {
    /// The moment of a read that sees records up to `seqno`.
    pub(crate) fn now(&self, seqno: Seqno) -> Moment<'_> {
        Moment { seqno, time: Time::Now(&self.wall_clock) }
    }

    /// Writes the value that `key` has at `moment` to `out`, which is emptied when there is none;
    /// whether there is one.
    pub(crate) fn find(
        &self,
        view: &View,
        kvs: KvsId,
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

    /// Whether `key` has a value at `moment`.
    pub(crate) fn contains(
        &self,
        view: &View,
        kvs: KvsId,
        key: &[u8],
        moment: Moment<'_>,
    ) -> Result<bool> {
        let located = self.locate(view, &RecordKey::new(kvs, key), moment, &mut Vec::new());
        Ok(!matches!(self.if_open(located)?, Located::Absent))
    }

    /// Like [`Engine::find`], for many keys: records on the media are read several at a time.
    pub(crate) fn find_many<K: AsRef<[u8]>>(
        &self,
        view: &View,
        kvs: KvsId,
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

    /// Looks for a key at `moment`, newest first: in the memtables, in replayed records, among the cached
    /// records, in the root and in the leaf.
    pub(crate) fn locate<'v>(
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
