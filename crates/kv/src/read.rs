//! The read path: what a key maps to in a view, from the newest source to the oldest.

use std::sync::Arc;

use crate::engine::Engine;
use crate::error::Result;
use crate::kvset::{Found, key_hash};
use crate::omf::page::Stored;
use crate::value::{ValueBlock, Wanted};
use crate::view::View;

/// Where the value of a key is.
enum Located<'v> {
    /// Nowhere.
    Absent,
    /// Written to the caller's buffer.
    Copied,
    /// In this block.
    Stored(&'v Arc<ValueBlock>, Stored),
}

impl Engine {
    /// Writes the value of `key` as of `seqno` to `out`, which is emptied when there is none; whether
    /// there is one.
    pub(crate) fn find(
        &self,
        view: &View,
        kvs: u32,
        key: &[u8],
        seqno: u64,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match locate(view, kvs, key, seqno, out)? {
            Located::Absent => {
                out.clear();
                Ok(false)
            }
            Located::Copied => Ok(true),
            Located::Stored(block, stored) => {
                self.values.read(block, kvs, key, &stored, out)?;
                Ok(true)
            }
        }
    }

    /// Like [`Engine::find`], for many keys: what is on the media is read several at a time.
    pub(crate) fn find_many<K: AsRef<[u8]>>(
        &self,
        view: &View,
        kvs: u32,
        keys: &[K],
        seqno: u64,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = Vec::with_capacity(keys.len());
        let mut wanted = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let (key, mut value) = (key.as_ref(), Vec::new());
            let located = locate(view, kvs, key, seqno, &mut value)?;
            values.push((!matches!(located, Located::Absent)).then_some(value));
            if let Located::Stored(block, stored) = located {
                wanted.push(Wanted { index, block, key, stored });
            }
        }
        self.values.read_many(kvs, wanted, |index, value| {
            values[index] = Some(value.to_vec());
        })?;
        Ok(values)
    }
}

/// Looks for `key` as of `seqno`: in the memtables, the root, and the leaf, newest first.
fn locate<'v>(
    view: &'v View,
    kvs: u32,
    key: &[u8],
    seqno: u64,
    out: &mut Vec<u8>,
) -> Result<Located<'v>> {
    for table in view.memtables() {
        let found = table.get(kvs, key, seqno, |value| {
            out.clear();
            value.map(|value| out.extend_from_slice(value)).is_some()
        });
        match found {
            Some(true) => return Ok(Located::Copied),
            Some(false) => return Ok(Located::Absent),
            None => {}
        }
    }
    let Some(tree) = view.tree(kvs) else {
        return Ok(Located::Absent);
    };
    let hash = key_hash(key);
    let leaf = &tree.leaves[tree.leaf_of(key)];
    for kvset in tree.root.iter().chain(&leaf.kvsets) {
        match kvset.get(key, hash)? {
            None => {}
            Some(Found::Tombstone) => return Ok(Located::Absent),
            Some(Found::Inline(bytes, size)) => {
                out.clear();
                out.extend_from_slice(&bytes[..size]);
                return Ok(Located::Copied);
            }
            Some(Found::Stored(stored)) => {
                return Ok(Located::Stored(kvset.block(&stored), stored));
            }
        }
    }
    Ok(Located::Absent)
}
