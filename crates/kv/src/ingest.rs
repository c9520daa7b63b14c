//! What becomes of a memtable: for each KVS a kvset of the root. `maintain.rs` calls it.
//!
//! Values stay in the segments of the log, where they are already. They are written to blocks of their
//! own, from DRAM and in key order, when the policy of the KVS wants young values on capacity and the
//! log is on staging; and when they lie so thinly among those of other KVSs that a spill would read much
//! more than them ([`Shares`]). Where their class has no room for them they stay.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use esker_base::units::to_usize;

use crate::cache::{RecordAddress, RecordKey, Source, Version};
use crate::compact::GAP;
use crate::engine::Engine;
use crate::error::{KvError, Result};
use crate::expiry::Expiry;
use crate::kvset::Kvset;
use crate::kvset::builder::{KvsetBuilder, NewEntry};
use crate::media::{Classes, Purpose};
use crate::omf::frame::{Change, Record, record_size};
use crate::omf::page::INLINE_MAX;
use crate::placement::Stream;
use crate::prefixes::Prefixes;
use crate::value::{BlockWriter, ValueBlock};
use crate::view::Tree;
use crate::{MediaClass, Place, Policy};

/// What an ingest has written, not yet flushed.
#[derive(Default)]
pub(crate) struct Ingested {
    pub(crate) kvsets: Vec<Arc<Kvset>>,
    /// Blocks of values that did not stay in the log.
    pub(crate) values: Vec<Arc<ValueBlock>>,
}

/// Records of the log that are to be kvsets of the root.
pub(crate) trait Young {
    /// The log segments that hold the records.
    fn blocks(&self) -> Vec<Arc<ValueBlock>>;

    /// The deleted prefixes of each KVS.
    fn prefixes(&self) -> BTreeMap<u32, Prefixes>;

    /// The seqno of the newest record.
    fn last_seqno(&self) -> u64;

    /// Whether values of a KVS may lie so thinly among those of others that they are to leave the log.
    fn may_be_thin(&self) -> bool;

    /// Whether readers have had the values from DRAM: then they go on to, from the record cache.
    fn serves_readers(&self) -> bool;

    /// Hands every key's newest version to `each`, in order: KVS, key, version. Keys that are covered by a
    /// newer prefix are left out.
    fn each_newest<E>(
        &self,
        each: impl FnMut(u32, &[u8], Newest<'_>) -> Result<(), E>,
    ) -> Result<(), E>;
}

/// The newest version of a key, and where its record is in the log.
pub(crate) struct Newest<'a> {
    pub(crate) value: YoungValue<'a>,
    pub(crate) expiry: Expiry,
    pub(crate) block: u64,
    pub(crate) offset: u32,
}

#[derive(Clone, Copy)]
pub(crate) enum YoungValue<'a> {
    Deleted,
    Here(&'a [u8]),
    /// Not in DRAM: it stays where it is.
    InLog {
        value_size: u32,
    },
}

impl YoungValue<'_> {
    /// Its size in bytes.
    fn size(self) -> usize {
        match self {
            YoungValue::Deleted => 0,
            YoungValue::Here(value) => value.len(),
            YoungValue::InLog { value_size } => to_usize(value_size.into()),
        }
    }
}

/// Whether a policy has young values leave the log for the class where they belong.
pub(crate) fn leave_log(policy: &Policy, classes: &Classes) -> bool {
    policy.young_values.class == MediaClass::Capacity && classes.staging().is_some()
}

/// How records of the log are divided among KVSs.
#[derive(Default)]
pub(crate) struct Shares {
    /// Of all KVSs, in bytes.
    bytes: u64,
    kvss: BTreeMap<u32, Share>,
}

/// The values of a KVS that are in the log alone.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    records: u64,
    bytes: u64,
}

/// Values get blocks of their own when a spill would read so many times their bytes besides them: it is
/// one more write of them, and no more reads than they have bytes.
const READ_IN_VAIN: u64 = 3;
/// What one record that is read by itself costs to read besides it, in bytes.
const LONE_READ: u64 = 4096;

impl Shares {
    /// Those of `young`: of the newest version of each key.
    pub(crate) fn of(young: &impl Young) -> Shares {
        let mut shares = Shares::default();
        if !young.may_be_thin() {
            return shares;
        }
        let count = |kvs, key: &[u8], newest: Newest<'_>| {
            let value_size = newest.value.size();
            let size = record_size(key.len(), value_size) as u64;
            shares.bytes += size;
            if value_size > INLINE_MAX {
                let share = shares.kvss.entry(kvs).or_default();
                share.records += 1;
                share.bytes += size;
            }
            Ok::<(), Infallible>(())
        };
        let Ok(()) = young.each_newest(count);
        shares
    }

    /// Whether the values of a KVS are to have blocks of their own, which take whole `unit`s of bytes: few
    /// values are not worth one that stays almost empty.
    fn are_thin(&self, kvs: u32, unit: u64) -> bool {
        let Some(&Share { records, bytes }) = self.kvss.get(&kvs) else {
            return false;
        };
        let between = self.bytes - bytes;
        // A spill reads what lies between two records that are near each other, and else each alone.
        let in_vain = if between / records > GAP { records * LONE_READ } else { between };
        in_vain >= READ_IN_VAIN * bytes.max(unit / 4)
    }
}

/// The kvset of one KVS under construction.
pub(crate) struct RootBuilder<'a> {
    pub(crate) kvs: u32,
    age: u64,
    engine: &'a Engine,
    keys: KvsetBuilder<'a>,
    /// Where values go that do not stay in the log.
    values: Option<BlockWriter<'a>>,
    /// Whether there was no room for one: then the others stay, and nobody looks again.
    is_full: bool,
    /// The class whose values stay in the log: they are where they belong.
    home: Option<MediaClass>,
    /// Whether values go to the record cache.
    caches: bool,
    record: Vec<u8>,
    now_ms: u64,
}

impl<'a> RootBuilder<'a> {
    /// A kvset of the root for what `young` has of a KVS; it hides prefixes in older ones, and its values
    /// are a part of `shares`.
    pub(crate) fn new(
        engine: &'a Engine,
        tree: &Tree,
        young: &impl Young,
        hides: Prefixes,
        shares: &Shares,
    ) -> RootBuilder<'a> {
        let (age, caches) = (young.last_seqno(), young.serves_readers());
        let policy = &tree.options.policy;
        // What was accepted finds a place even where its own is full: new writes are refused then.
        let keys_at = Place::prefer(policy.young_keys.class);
        let tuning = &engine.tuning;
        let thin = shares.are_thin(tree.kvs, tuning.allocation_bytes);
        let class = policy.young_values.class;
        let values = (thin || leave_log(policy, &engine.classes)).then(|| {
            let (at, purpose) = ((Place::only(class), Stream::Log), Purpose::User);
            let (block, frame) = (tuning.block_bytes, tuning.frame_bytes);
            BlockWriter::new(&engine.classes, at, purpose, block, frame)
        });
        let home = (!thin).then_some(class);
        let id = engine.ids.next();
        let mut keys = KvsetBuilder::new(engine.shop(), id, tree.kvs, 0, age, keys_at);
        keys.hide(hides);
        let now_ms = engine.wall_clock.now_ms();
        let (kvs, record) = (tree.kvs, Vec::new());
        RootBuilder { kvs, age, engine, keys, values, is_full: false, home, caches, record, now_ms }
    }

    /// Adds what a key maps to; keys ascend. `blocks` are the log's.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        newest: &Newest<'_>,
        blocks: &BTreeMap<u64, Arc<ValueBlock>>,
    ) -> Result<()> {
        let Newest { value, expiry, block, offset } = *newest;
        let entry = match value {
            YoungValue::Deleted => NewEntry::Tombstone,
            // It must go on hiding older versions.
            _ if expiry.has_passed(self.now_ms) => NewEntry::Tombstone,
            YoungValue::InLog { value_size } => {
                NewEntry::Stored { block, offset, value_size, expiry }
            }
            YoungValue::Here(value) if value.len() <= INLINE_MAX => NewEntry::Inline(value, expiry),
            YoungValue::Here(value) => {
                let (block, offset) = self.place(key, value, (block, offset), blocks)?;
                if self.caches {
                    let version = Version {
                        address: RecordAddress { block, offset },
                        age: self.age,
                        expires: !expiry.is_never(),
                    };
                    let key = RecordKey::new(self.kvs, key);
                    self.engine.values.cache.insert(&key, &version, &[value], Source::Memtable);
                }
                let value_size = u32::try_from(value.len()).expect("at most VALUE_MAX");
                NewEntry::Stored { block, offset, value_size, expiry }
            }
        };
        self.keys.add(key, entry)
    }

    /// Where a value goes whose place in the log is `stays`: perhaps nowhere.
    fn place(
        &mut self,
        key: &[u8],
        value: &[u8],
        stays: (u64, u32),
        blocks: &BTreeMap<u64, Arc<ValueBlock>>,
    ) -> Result<(u64, u32)> {
        let Some(values) = &mut self.values else {
            return Ok(stays);
        };
        if self.is_full || self.home == Some(blocks[&stays.0].media().class) {
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
        self.engine.counters.young_blocks.add(own.len() as u64);
        done.values.extend(own);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Devices;
    use crate::memtable::{Memtable, Written};
    use crate::testing::{device, kvdb_on, small_blocks};
    use esker_device::{Device, DeviceError, DeviceStats, Geometry, QueuePair};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A memtable in which each KVS has so many records with values of so many bytes, in turn.
    fn shares(kvss: &[(u64, usize)]) -> Shares {
        let table = Memtable::new(1 << 20);
        let mut seqno = 0;
        for (kvs, &(records, size)) in (1..).zip(kvss) {
            for n in 0..records {
                seqno += 1;
                let value = vec![7; size];
                let written =
                    Written { value: Some(&value), expiry: Expiry::NEVER, block: 1, offset: 0 };
                table.insert(kvs, &n.to_be_bytes(), seqno, written);
            }
        }
        Shares::of(&table)
    }

    fn thin(kvss: &[(u64, usize)]) -> Vec<bool> {
        let shares = shares(kvss);
        (1..).zip(kvss).map(|(kvs, _)| shares.are_thin(kvs, 4096)).collect()
    }

    #[test]
    fn values_that_a_spill_reads_with_three_times_as_much_besides_are_thin() {
        assert_eq!(thin(&[(500, 100)]), [false]);
        assert_eq!(thin(&[(500, 100), (500, 100), (500, 100)]), [false; 3]);
        assert_eq!(thin(&[(500, 100); 5]), [true; 5]);
        assert_eq!(thin(&[(1900, 100), (100, 100)]), [false, true]);
        // Values in keys are never read from the log.
        assert_eq!(thin(&[(1900, 100), (100, 16)]), [false, false]);
    }

    #[test]
    fn large_values_far_from_each_other_are_read_alone_and_stay() {
        assert_eq!(thin(&[(30, 100_000), (10, 8_000)]), [false, false]);
        assert_eq!(thin(&[(30, 100_000), (10, 500)]), [false, true]);
    }

    /// Counts how often it is asked what it can hold.
    struct Asked {
        inner: Arc<dyn Device>,
        times: AtomicU64,
    }

    impl Device for Asked {
        fn name(&self) -> &str {
            self.inner.name()
        }

        fn geometry(&self) -> Geometry {
            self.inner.geometry()
        }

        fn usable_bytes(&self) -> Option<u64> {
            self.times.fetch_add(1, Ordering::Relaxed);
            self.inner.usable_bytes()
        }

        fn queue_pair(&self, depth: usize) -> std::result::Result<Box<dyn QueuePair>, DeviceError> {
            self.inner.queue_pair(depth)
        }

        fn stats(&self) -> DeviceStats {
            self.inner.stats()
        }
    }

    #[test]
    fn where_one_value_finds_no_room_the_others_do_not_look_for_any() {
        let asked = Arc::new(Asked { inner: device("c"), times: AtomicU64::new(0) });
        let (capacity, staging) = (asked.clone(), Some(device("s")));
        let devices = Devices { manifest: device("m"), capacity, staging };
        let (db, _, _) = kvdb_on(devices, small_blocks());
        let kvs = db.create_kvs("b", Policy::CAPACITY_ONLY).unwrap();
        (0..500u64).for_each(|n| kvs.put(&n.to_be_bytes(), &[7; 1000]).unwrap());
        let capacity = db.engine.classes.capacity.clone();
        let take = |bytes| capacity.allocate(Stream::Log, bytes, Purpose::Maintenance);
        let taken: Vec<_> = std::iter::from_fn(|| take(64 << 10).ok()).collect();
        let before = asked.times.load(Ordering::Relaxed);
        db.ingest().unwrap();
        let times = asked.times.load(Ordering::Relaxed) - before;
        assert!((1..100).contains(&times), "{times}");
        drop(taken);
        (0..500u64)
            .for_each(|n| assert_eq!(kvs.get(&n.to_be_bytes()).unwrap().unwrap(), [7; 1000]));
    }

    #[test]
    fn few_values_are_not_worth_a_unit_of_space() {
        assert_eq!(thin(&[(20, 100), (1, 100)]), [false, false]);
    }
}
