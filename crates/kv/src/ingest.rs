//! What becomes of a memtable: for each KVS a kvset of the root. `maintain.rs` calls it.
//!
//! Values stay in the segments of the log, where they are already. Only when the policy of the KVS
//! wants young values on capacity and the log is on staging are they written there, from DRAM and in
//! key order. Where capacity has no room for them they stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::Engine;
use crate::error::{KvError, Result};
use crate::kvset::Kvset;
use crate::kvset::builder::{KvsetBuilder, NewEntry};
use crate::media::Purpose;
use crate::memtable::Written;
use crate::omf::frame::{Change, Record};
use crate::omf::page::INLINE_MAX;
use crate::prefixes::Prefixes;
use crate::value::{BlockWriter, ValueBlock, address};
use crate::view::Tree;
use crate::{MediaClass, Place};

/// What an ingest has written, not yet flushed.
#[derive(Default)]
pub(crate) struct Ingested {
    pub(crate) kvsets: Vec<Arc<Kvset>>,
    /// Blocks of values that did not stay in the log.
    pub(crate) values: Vec<Arc<ValueBlock>>,
}

/// The kvset of one KVS under construction.
pub(crate) struct RootBuilder<'a> {
    pub(crate) kvs: u32,
    engine: &'a Engine,
    keys: KvsetBuilder<'a>,
    /// Where values go that do not stay in the log.
    values: Option<BlockWriter<'a>>,
    record: Vec<u8>,
    now_ms: u64,
}

impl<'a> RootBuilder<'a> {
    /// A kvset of the root that hides `prefixes` in older ones.
    pub(crate) fn new(
        engine: &'a Engine,
        tree: &Tree,
        age: u64,
        hides: Prefixes,
    ) -> RootBuilder<'a> {
        let policy = &tree.options.policy;
        // What was accepted finds a place even where its own is full: new writes are refused then.
        let keys_at = Place::prefer(policy.young_keys.class);
        let moves =
            policy.young_values.class == MediaClass::Capacity && engine.classes.staging().is_some();
        let tuning = &engine.tuning;
        let values = moves.then(|| {
            let (place, purpose) = (Place::only(MediaClass::Capacity), Purpose::User);
            let (block, frame) = (tuning.block_bytes, tuning.frame_bytes);
            BlockWriter::new(&engine.classes, place, purpose, block, frame)
        });
        let id = engine.ids.next();
        let mut keys = KvsetBuilder::new(engine.shop(), id, tree.kvs, 0, age, keys_at);
        keys.hide(hides);
        let now_ms = engine.wall_clock.now_ms();
        RootBuilder { kvs: tree.kvs, engine, keys, values, record: Vec::new(), now_ms }
    }

    /// Adds what a key maps to; keys ascend. `blocks` are the log's.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        written: &Written<'_>,
        blocks: &BTreeMap<u64, Arc<ValueBlock>>,
    ) -> Result<()> {
        let entry = match written.value {
            None => NewEntry::Tombstone,
            // It must go on hiding older versions.
            Some(_) if written.expiry.has_passed(self.now_ms) => NewEntry::Tombstone,
            Some(value) if value.len() <= INLINE_MAX => NewEntry::Inline(value, written.expiry),
            Some(value) => {
                let (block, offset) = self.place(key, value, written, blocks)?;
                self.engine.values.cache.insert(address(block, offset), &[value]);
                let value_size = u32::try_from(value.len()).expect("at most VALUE_MAX");
                NewEntry::Stored { block, offset, value_size, expiry: written.expiry }
            }
        };
        self.keys.add(key, entry)
    }

    /// Where a value is, or goes.
    fn place(
        &mut self,
        key: &[u8],
        value: &[u8],
        written: &Written<'_>,
        blocks: &BTreeMap<u64, Arc<ValueBlock>>,
    ) -> Result<(u64, u32)> {
        let stays = (written.block, written.offset);
        let Some(values) = &mut self.values else {
            return Ok(stays);
        };
        if blocks[&written.block].media().class == MediaClass::Capacity {
            return Ok(stays);
        }
        let record = Record { kvs: self.kvs, key, change: Change::Put(value) };
        self.record.resize(record.size(), 0);
        record.encode_to(&mut self.record);
        match values.push(&self.record, &self.engine.ids) {
            Err(KvError::NoSpace { .. }) => Ok(stays),
            placed => placed,
        }
    }

    /// Ends the kvset.
    pub(crate) fn finish(
        mut self,
        blocks: &BTreeMap<u64, Arc<ValueBlock>>,
        done: &mut Ingested,
    ) -> Result<()> {
        let own = self.values.as_mut().map_or_else(|| Ok(Vec::new()), BlockWriter::finish)?;
        let find = |id: u64| {
            let own = own.iter().find(|block| block.id == id);
            own.or_else(|| blocks.get(&id)).expect("the log's, or our own").clone()
        };
        done.kvsets.push(self.keys.finish(find)?);
        done.values.extend(own);
        Ok(())
    }
}
