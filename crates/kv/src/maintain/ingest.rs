//! Ingest: a frozen memtable becomes a kvset of the root for each KVS. It is a lane of its own, because writers may wait
//! for it.
//!
//! Values stay in the segments of the log, where they are already. They are written to blocks, from DRAM and in
//! key order, when the policy of the KVS wants young values on capacity and the log is on staging; and when they
//! lie so thinly among those of other KVSs that a spill would read much more than them ([`placement`]). Many are
//! written to a block of their KVS, few to one that several KVSs share: a KVS that is written to seldom holds none of
//! the log. Where their class has no room for them they stay.

pub(crate) mod placement;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::shared::Engine;
use crate::maintain::install::additions;
use crate::media::writes::Writes;
use crate::omf::frame::{Change, Record};
use crate::omf::manifest::Edit;
use crate::omf::page::INLINE_MAX;
use crate::tree::kvset::Kvset;
use crate::tree::kvset::builder::{KvsetBuilder, NewEntry};
use crate::tree::view::{Frozen, Table, Tree};
use crate::tree::young::{Newest, Young, YoungValue};
use crate::types::error::{KvError, Result};
use crate::types::ids::{BlockId, KvsId, LeafId, RecordAddress, Seqno};
use crate::types::policy::Place;
use crate::types::spans::Spans;
use crate::values::block::ValueBlock;
use crate::values::cache::record::{Origin, RecordKey, Version};
use crate::values::writer::BlockWriter;
use placement::{Addresses, Placement, Placements, SharedValues};

/// Output of an ingest, not yet flushed.
#[derive(Default)]
pub(crate) struct Ingested {
    pub(crate) kvsets: Vec<Arc<Kvset>>,
    /// Blocks of values that did not stay in the log.
    pub(crate) values: Vec<Arc<ValueBlock>>,
}

/// Writes the keys of young records, one kvset for each KVS, and the values that do not stay where
/// the log put them.
pub(crate) fn build_root_kvsets(engine: &Engine, young: &impl Young) -> Result<Ingested> {
    let trees = engine.view.load().trees.clone();
    let mut blocks: BTreeMap<BlockId, Arc<ValueBlock>> =
        young.blocks().into_iter().map(|block| (block.id, block)).collect();
    let mut deleted = young.deleted();
    let placements = Placements::find(engine, young, &trees);
    let writes = Writes::new(young.may_be_thin());
    let mut shared = SharedValues::write(engine, &writes, young, &placements, &blocks)?;
    let mut done = Ingested { kvsets: Vec::new(), values: shared.blocks.clone() };
    engine.counters.young_blocks.add(shared.blocks.len() as u64);
    blocks.extend(shared.blocks.iter().map(|block| (block.id, block.clone())));
    let mut begin = |tree: &Tree, hides| {
        RootBuilder::new(
            (engine, &writes),
            tree,
            young,
            hides,
            placements.of(tree.kvs),
            &mut shared,
        )
    };
    let mut current: Option<RootBuilder<'_>> = None;
    young.each_newest(|kvs, key, newest| {
        let Some(tree) = trees.get(&kvs) else {
            return Ok(());
        };
        if current.as_ref().is_none_or(|current| current.kvs != kvs) {
            if let Some(builder) = current.take() {
                builder.finish(&blocks, &mut done)?;
            }
            current = Some(begin(tree, deleted.remove(&kvs).unwrap_or_default()));
        }
        current.as_mut().expect("made above").add(key, &newest, &blocks)
    })?;
    if let Some(builder) = current {
        builder.finish(&blocks, &mut done)?;
    }
    // KVSs of which nothing but prefixes and ranges was deleted.
    for (kvs, hides) in deleted {
        if let Some(tree) = trees.get(&kvs) {
            begin(tree, hides).finish(&blocks, &mut done)?;
        }
    }
    writes.write_out()?;
    Ok(done)
}

/// The kvset of one KVS under construction.
struct RootBuilder<'a> {
    kvs: KvsId,
    age: Seqno,
    engine: &'a Engine,
    keys: KvsetBuilder<'a>,
    placement: Placement,
    values: YoungValues<'a>,
    /// Whether there was no room for one: then the others stay, and nobody looks again.
    is_full: bool,
    /// Whether values go to the record cache.
    caches: bool,
    record: Vec<u8>,
    now_ms: u64,
}

/// Where values go.
enum YoungValues<'a> {
    Stay,
    Own(BlockWriter<'a>),
    /// They are there already.
    Shared(Addresses),
}

impl<'a> RootBuilder<'a> {
    /// A kvset of the root for the records of a KVS in `young`; it hides others in older ones, and its values go
    /// to `placement`.
    fn new(
        (engine, writes): (&'a Engine, &'a Writes),
        tree: &Tree,
        young: &impl Young,
        hides: Spans,
        placement: Placement,
        shared: &mut SharedValues,
    ) -> RootBuilder<'a> {
        let (age, caches) = (young.last_seqno(), young.serves_readers());
        let policy = &tree.options.policy;
        // Accepted writes find a place even where their own is full: new writes are refused then.
        let keys_at = Place::prefer(policy.young_keys.class);
        let values = match placement {
            Placement::Log => YoungValues::Stay,
            Placement::Own { class, bytes, .. } => {
                YoungValues::Own(placement::writer(engine, writes, class, bytes))
            }
            Placement::Shared { .. } => YoungValues::Shared(shared.addresses_of(tree.kvs)),
        };
        let id = engine.ids.next();
        let mut keys = KvsetBuilder::new(
            engine.builder_context(writes),
            id,
            tree.kvs,
            LeafId::ROOT,
            age,
            keys_at,
        );
        keys.hide(hides);
        let now_ms = engine.wall_clock.now_ms();
        let (kvs, record) = (tree.kvs, Vec::new());
        RootBuilder {
            kvs,
            age,
            engine,
            keys,
            placement,
            values,
            is_full: false,
            caches,
            record,
            now_ms,
        }
    }

    /// Adds a key and its value; keys ascend. `blocks` are the log's, and those that are shared.
    fn add(
        &mut self,
        key: &[u8],
        newest: &Newest<'_>,
        blocks: &BTreeMap<BlockId, Arc<ValueBlock>>,
    ) -> Result<()> {
        let Newest { value, expiry, address: stays } = *newest;
        let entry = match value {
            YoungValue::Deleted => NewEntry::Tombstone,
            YoungValue::Here(value) if value.len() > INLINE_MAX => {
                let shared = match &mut self.values {
                    YoungValues::Shared(addresses) => addresses.next(),
                    _ => None,
                };
                // It must go on hiding older versions.
                if expiry.has_passed(self.now_ms) {
                    return self.keys.add(key, NewEntry::Tombstone);
                }
                let address = match shared {
                    Some(address) => address.unwrap_or(stays),
                    None => self.place(key, value, stays, blocks)?,
                };
                if self.caches {
                    let version = Version { address, age: self.age, expires: !expiry.is_never() };
                    let key = RecordKey::new(self.kvs, key);
                    self.engine.values.cache.insert(&key, &version, &[value], Origin::Memtable);
                }
                let value_size = u32::try_from(value.len()).expect("at most VALUE_MAX");
                NewEntry::Stored { address, value_size, expiry }
            }
            _ if expiry.has_passed(self.now_ms) => NewEntry::Tombstone,
            YoungValue::Here(value) => NewEntry::Inline(value, expiry),
            YoungValue::InLog { value_size } => {
                NewEntry::Stored { address: stays, value_size, expiry }
            }
        };
        self.keys.add(key, entry)
    }

    /// Where a value goes whose place in the log is `stays`: perhaps nowhere.
    fn place(
        &mut self,
        key: &[u8],
        value: &[u8],
        stays: RecordAddress,
        blocks: &BTreeMap<BlockId, Arc<ValueBlock>>,
    ) -> Result<RecordAddress> {
        let YoungValues::Own(values) = &mut self.values else {
            return Ok(stays);
        };
        if self.is_full || !self.placement.takes(&blocks[&stays.block]) {
            return Ok(stays);
        }
        let record = Record { kvs: self.kvs, key, change: Change::Put(value) };
        self.record.resize(record.size(), 0);
        record.encode_to(&mut self.record);
        match values.push(&self.record, &self.engine.ids) {
            Err(KvError::NoSpace { .. }) => {
                self.is_full = true;
                Ok(stays)
            }
            placed => placed,
        }
    }

    /// Ends the kvset.
    fn finish(
        mut self,
        blocks: &BTreeMap<BlockId, Arc<ValueBlock>>,
        done: &mut Ingested,
    ) -> Result<()> {
        let own = match &mut self.values {
            YoungValues::Own(values) => values.finish()?,
            YoungValues::Stay | YoungValues::Shared(_) => Vec::new(),
        };
        let find = |id: BlockId| {
            let own = own.iter().find(|block| block.id == id);
            own.or_else(|| blocks.get(&id)).expect("the log's, a shared one, or our own").clone()
        };
        done.kvsets.push(self.keys.finish(find)?);
        self.engine.counters.young_blocks.add(own.len() as u64);
        done.values.extend(own);
        Ok(())
    }
}

/// Turns the oldest frozen table into kvsets; false when there is none.
pub(crate) fn ingest_oldest(engine: &Engine) -> Result<bool> {
    let mut ingested = engine.scheduler.ingest_lane();
    engine.check_wanted(false)?;
    engine.scheduler.free_unread(&mut ingested);
    let Some(frozen) = engine.view.load().frozen.last().cloned() else {
        return Ok(false);
    };
    // Before the next memtable has grown.
    engine.balance_memory();
    engine.pacer.ingest_begins();
    note_space(engine, engine.caught("an ingest", || ingest(engine, &frozen)))?;
    engine.pacer.ingest_ends(frozen.table.bytes());
    // Under the lock, so that a writer about to wait does not miss it.
    let writer = engine.log.tail();
    engine.log.wake_writers();
    drop(writer);
    engine.scheduler.notify();
    ingested.push(frozen.table.clone());
    drop(frozen);
    engine.scheduler.free_unread(&mut ingested);
    engine.balance_memory();
    Ok(true)
}

pub(crate) fn ingest(engine: &Engine, frozen: &Arc<Frozen>) -> Result<()> {
    engine.flush_through(frozen.table.last_seqno())?;
    let built = match &frozen.table {
        Table::Memtable(table) => build_root_kvsets(engine, &**table),
        Table::Replayed(table) => build_root_kvsets(engine, &**table),
    }?;
    let kvsets = commit_root(engine, built, frozen.table.last_seqno(), &frozen.log_first)?;
    let publish = || {
        engine.view.publish(|view| {
            view.frozen.retain(|other| !Arc::ptr_eq(other, frozen));
            view.add_to_roots(&kvsets);
        });
    };
    match &frozen.table {
        Table::Memtable(table) => engine.transactions.ingested(table, &engine.options, publish),
        // It is older than any transaction.
        Table::Replayed(_) => publish(),
    }
    engine.counters.ingests.add(1);
    engine.counters.steps.add(1);
    Ok(())
}

/// Makes new kvsets of the root durable. With them all records up to `seqno` are in some, and replay
/// begins in `log_first`.
pub(crate) fn commit_root(
    engine: &Engine,
    built: Ingested,
    seqno: Seqno,
    log_first: &Arc<ValueBlock>,
) -> Result<Vec<Arc<Kvset>>> {
    engine.classes.flush()?;
    let mut edits = additions(&built.values, &built.kvsets);
    edits.push(Edit::Ingested { seqno, first: log_first.id });
    engine.commit(edits)?;
    engine.log.set_replay_from(log_first.clone());
    Ok(built.kvsets)
}

/// Remembers whether ingest lacks space, so that writers hear of it instead of waiting; stops
/// the engine at any other error.
pub(crate) fn note_space<T>(engine: &Engine, result: Result<T>) -> Result<T> {
    let full = result.as_ref().err().filter(|error| error.lacks_space()).cloned();
    engine.scheduler.set_ingest_lacks(full);
    engine.fail_stop(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::space::Purpose;
    use crate::recover::devices::Devices;
    use crate::testing::{device, kvdb_on, small_blocks};
    use crate::types::policy::Policy;
    use crate::types::stream::Stream;
    use esker_sim::HookDevice;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn where_one_value_finds_no_room_the_others_do_not_look_for_any() {
        let times = Arc::new(AtomicU64::new(0));
        let asked = times.clone();
        let capacity = Arc::new(HookDevice::new(device("c")).with_usable_bytes(move |usable| {
            asked.fetch_add(1, Ordering::Relaxed);
            usable
        }));
        let staging = Some(device("s"));
        let devices = Devices { manifest: device("m"), capacity, staging };
        let (db, _, _) = kvdb_on(devices, small_blocks());
        let kvs = db.create_kvs("b", Policy::CAPACITY_ONLY).unwrap();
        (0..500u64).for_each(|n| kvs.put(n.to_be_bytes(), [7; 1000]).unwrap());
        let capacity = db.engine.classes.capacity.clone();
        let take = |bytes| capacity.allocate(Stream::Log, bytes, Purpose::Maintenance);
        let taken: Vec<_> = std::iter::from_fn(|| take(64 << 10).ok()).collect();
        let before = times.load(Ordering::Relaxed);
        db.ingest().unwrap();
        let times = times.load(Ordering::Relaxed) - before;
        assert!((1..100).contains(&times), "{times}");
        drop(taken);
        (0..500u64).for_each(|n| assert_eq!(kvs.get(n.to_be_bytes()).unwrap().unwrap(), [7; 1000]));
    }
}
