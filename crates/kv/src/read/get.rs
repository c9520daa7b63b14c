//! Point reads: the value of a key in a view, from the newest source to the oldest. Memtables first, then replayed
//! records, the record cache, the root and the leaf.
//!
//! [`Kvs::get`](crate::api::kvs::Kvs::get), snapshots and transactions call it.

use std::sync::Arc;

use crate::engine::shared::Engine;
use crate::omf::page::Stored;
use crate::tree::item::Item;
use crate::tree::kvset::Found;
use crate::tree::view::{Tree, View};
use crate::tree::young::Young;
use crate::types::error::Result;
use crate::types::expiry::Moment;
use crate::types::ids::{KvsId, Seqno};
use crate::values::block::{ValueBlock, Wanted};
use crate::values::cache::record::RecordKey;

/// Where the value of a key is.
pub(crate) enum Located<'v> {
    /// Nowhere.
    Absent,
    /// In DRAM: the caller has got it.
    Found,
    /// In this block; it is the newest one in a tree of this age, or will be.
    Stored(&'v Arc<ValueBlock>, Stored, Seqno),
}

/// Writes the value that `key` has at `moment` to `out`, which is emptied when there is none;
/// whether there is one.
pub(crate) fn find(
    engine: &Engine,
    view: &View,
    kvs: KvsId,
    key: &[u8],
    moment: Moment<'_>,
    out: &mut Vec<u8>,
) -> Result<bool> {
    let key = RecordKey::new(kvs, key);
    out.clear();
    match locate(engine, view, &key, moment, &mut |value| out.extend_from_slice(value))? {
        Located::Absent => Ok(false),
        Located::Found => Ok(true),
        Located::Stored(block, stored, age) => {
            let wanted = Wanted { index: 0, block, key, stored, age };
            engine.life.if_open(engine.values.read(&wanted, out)).map(|()| true)
        }
    }
}

/// Like [`find`], but writes as much of the value as `buffer` takes, and returns the value's size.
pub(crate) fn find_to_buffer(
    engine: &Engine,
    view: &View,
    kvs: KvsId,
    key: &[u8],
    moment: Moment<'_>,
    buffer: &mut [u8],
) -> Result<Option<usize>> {
    let key = RecordKey::new(kvs, key);
    let mut size = 0;
    match locate(engine, view, &key, moment, &mut |value| size = copy(value, buffer))? {
        Located::Absent => Ok(None),
        Located::Found => Ok(Some(size)),
        Located::Stored(block, stored, age) => {
            let (wanted, mut value) = (Wanted { index: 0, block, key, stored, age }, Vec::new());
            engine.life.if_open(engine.values.read(&wanted, &mut value))?;
            Ok(Some(copy(&value, buffer)))
        }
    }
}

/// Like [`find`], where the newest source that has the key is in DRAM; none where a device may have to be read.
pub(crate) fn find_in_memory(
    engine: &Engine,
    view: &View,
    kvs: KvsId,
    key: &[u8],
    moment: Moment<'_>,
    out: &mut Vec<u8>,
) -> Option<bool> {
    let key = RecordKey::new(kvs, key);
    out.clear();
    let mut copy = |value: &[u8]| out.extend_from_slice(value);
    match locate_young(engine, view, view.tree(kvs)?, &key, moment, &mut copy)? {
        Located::Absent => Some(false),
        Located::Found => Some(true),
        Located::Stored(..) => None,
    }
}

/// Whether `key` has a value at `moment`.
pub(crate) fn contains(
    engine: &Engine,
    view: &View,
    kvs: KvsId,
    key: &[u8],
    moment: Moment<'_>,
) -> Result<bool> {
    let located = locate(engine, view, &RecordKey::new(kvs, key), moment, &mut |_| {})?;
    Ok(!matches!(located, Located::Absent))
}

/// Like [`find`], for many keys: records on the media are read several at a time.
pub(crate) fn find_many<K: AsRef<[u8]>>(
    engine: &Engine,
    view: &View,
    kvs: KvsId,
    keys: &[K],
    moment: Moment<'_>,
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut values = Vec::with_capacity(keys.len());
    let mut wanted = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let (key, mut value) = (RecordKey::new(kvs, key.as_ref()), Vec::new());
        let mut copy = |found: &[u8]| value.extend_from_slice(found);
        let located = locate(engine, view, &key, moment, &mut copy)?;
        values.push((!matches!(located, Located::Absent)).then_some(value));
        if let Located::Stored(block, stored, age) = located {
            wanted.push(Wanted { index, block, key, stored, age });
        }
    }
    let read = engine.values.read_many(wanted, |index, value| {
        values[index] = Some(value.to_vec());
    });
    engine.life.if_open(read).map(|()| values)
}

/// Looks for a key at `moment`, newest first: in the memtables, in replayed records, among the cached
/// records, in the root and in the leaf. A value that is in DRAM is handed to `found`, once, which may hold up
/// others.
fn locate<'v>(
    engine: &Engine,
    view: &'v View,
    key: &RecordKey<'_>,
    moment: Moment<'_>,
    found: &mut dyn FnMut(&[u8]),
) -> Result<Located<'v>> {
    engine.life.if_open(locate_in(engine, view, key, moment, found))
}

fn locate_in<'v>(
    engine: &Engine,
    view: &'v View,
    key: &RecordKey<'_>,
    moment: Moment<'_>,
    found: &mut dyn FnMut(&[u8]),
) -> Result<Located<'v>> {
    let &RecordKey { kvs, key: bytes, key_hash } = key;
    let Some(tree) = view.tree(kvs) else {
        return Ok(Located::Absent);
    };
    if let Some(located) = locate_young(engine, view, tree, key, moment, found) {
        return Ok(located);
    }
    let leaf = &tree.leaves[tree.leaf_of(bytes)];
    for kvset in tree.root.iter().chain(&leaf.kvsets) {
        match kvset.get(bytes, key_hash)? {
            None => {}
            Some(Found::Tombstone) => return Ok(Located::Absent),
            Some(item) if !moment.sees(item.expiry()) => return Ok(Located::Absent),
            Some(Found::Inline(bytes, size, _)) => {
                found(&bytes[..size]);
                return Ok(Located::Found);
            }
            Some(Found::Stored(stored)) => {
                return Ok(Located::Stored(kvset.block(&stored), stored, tree.age));
            }
        }
    }
    Ok(Located::Absent)
}

/// The part of [`locate`] that takes no device: none where no such source has the key.
#[inline]
fn locate_young<'v>(
    engine: &Engine,
    view: &'v View,
    tree: &Tree,
    key: &RecordKey<'_>,
    moment: Moment<'_>,
    found: &mut dyn FnMut(&[u8]),
) -> Option<Located<'v>> {
    let &RecordKey { kvs, key: bytes, key_hash } = key;
    if tree.refers {
        engine.values.cache.prefetch_entry(key.hash());
    }
    for table in view.memtables() {
        let is_there = table.get(kvs, (bytes, key_hash), moment.seqno, |written| {
            written.value.filter(|_| moment.sees(written.expiry)).map(&mut *found).is_some()
        });
        match is_there {
            Some(true) => return Some(Located::Found),
            Some(false) => return Some(Located::Absent),
            None => {}
        }
    }
    for table in view.replayed() {
        match table.get(kvs, bytes) {
            None => {}
            Some(Item::Tombstone) => return Some(Located::Absent),
            Some(item) if !moment.sees(item.expiry()) => return Some(Located::Absent),
            Some(Item::Value(value, _)) => {
                found(value);
                return Some(Located::Found);
            }
            Some(Item::Stored(block, stored)) => {
                return Some(Located::Stored(block, stored, table.last_seqno()));
            }
        }
    }
    let is_newest = |age| tree.is_newest(bytes, key_hash, age);
    if tree.refers && engine.values.cache.newest(key, tree.age, is_newest, &mut *found) {
        return Some(Located::Found);
    }
    None
}

/// Copies as much of a value as `buffer` takes; returns the value's size.
pub(crate) fn copy(value: &[u8], buffer: &mut [u8]) -> usize {
    let size = value.len().min(buffer.len());
    buffer[..size].copy_from_slice(&value[..size]);
    value.len()
}
