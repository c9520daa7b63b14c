//! Operations on an open KVDB, each beside the oracle. A new feature of the engine is a function here and a line in
//! the table.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::common::OnDevices;
use esker_kv::{
    Batch, CompactRequest, Compression, Cursor, KvError, MediaClass, Place, Policy, Readable,
    WriteOptions,
};

use crate::campaign::world::{Open, Sight, Slot, Walk, World};
use crate::common::oracle::{Key, Value, Write};

type Done = Result<(), KvError>;
type Operation = fn(&mut World) -> Done;

/// How often, out of the sum of all, and the operation.
pub(crate) const TABLE: &[(u64, &str, Operation)] = &[
    (340, "put", World::put),
    (80, "delete", World::delete),
    (8, "delete many", World::delete_many),
    (80, "batch", World::batch),
    (120, "get", World::get),
    (15, "get many", World::get_many),
    (20, "walk", World::walk),
    (3, "read all", World::read_everything),
    (20, "snapshot", World::snapshot),
    (160, "transaction", World::transaction),
    (20, "sync", World::sync),
    (12, "ingest", World::ingest),
    (30, "step", World::step),
    (20, "settle", World::settle),
    (25, "time", World::let_time_pass),
    (12, "create", World::create_kvs),
    (3, "drop", World::drop_kvs),
    (6, "policy", World::set_policy),
    (6, "options", World::set_options),
    (5, "compact", World::compact),
    (4, "staging", World::take_or_give_staging),
];

impl World {
    /// One operation, at random.
    pub(crate) fn operate(&mut self) -> Done {
        let all: u64 = TABLE.iter().map(|(weight, ..)| weight).sum();
        let mut at = self.rng.below(all);
        self.tally.operations.resize(TABLE.len(), 0);
        for (index, (weight, _, run)) in TABLE.iter().enumerate() {
            if at < *weight {
                self.tally.operations[index] += 1;
                return run(self);
            }
            at -= weight;
        }
        unreachable!("below the sum of all weights")
    }

    // ---- writes ----------------------------------------------------------------------------------

    fn put(&mut self) -> Done {
        let (slot, key, value) = (self.slot(), self.key(), self.value());
        let result = slot.kvs.put(&key, &value);
        self.note(vec![((slot.number, key), Some(value))], result)
    }

    fn delete(&mut self) -> Done {
        let (slot, key) = (self.slot(), self.key());
        let result = slot.kvs.delete(&key);
        self.note(vec![((slot.number, key), None)], result)
    }

    /// A range, a prefix, or now and then all keys.
    fn delete_many(&mut self) -> Done {
        let (slot, one, other) = (self.slot(), self.key(), self.key());
        let last = vec![u8::MAX; 2];
        let (result, range) = match self.rng.below(8) {
            0 => (slot.kvs.clear(), Vec::new()..last),
            1..4 => {
                let mut prefix = if one.is_empty() { other } else { one };
                prefix.truncate(5);
                if prefix.is_empty() {
                    prefix.push(b'k');
                }
                let behind = [&prefix[..], &[u8::MAX]].concat();
                (slot.kvs.delete_prefix(&prefix), prefix..behind)
            }
            choice => {
                let (lower, mut upper) = (one.clone().min(other.clone()), one.max(other));
                if choice > 4 {
                    upper.truncate(6);
                    upper = upper.max([&lower[..], b"5"].concat()).min([&lower[..], b"~"].concat());
                }
                (slot.kvs.delete_range(&lower[..]..&upper[..]), lower..upper)
            }
        };
        let writes = self.deletes(slot.number, &range);
        self.note_of(writes, range.start.len() as u64, result)
    }

    fn batch(&mut self) -> Done {
        let mut batch = Batch::new();
        let mut writes: BTreeMap<Key, Option<Value>> = BTreeMap::new();
        for _ in 0..=self.rng.below(6) {
            let (slot, key, value) = (self.slot(), self.key(), self.value_or_none());
            match &value {
                Some(value) => batch.put(&slot.kvs, &key, value),
                None => batch.delete(&slot.kvs, &key),
            }
            writes.insert((slot.number, key), value);
        }
        let result = self.db.write(&batch);
        self.note(writes.into_iter().collect(), result)
    }

    // ---- reads -----------------------------------------------------------------------------------

    fn expected(&self, slot: &Slot, key: &[u8], moment: usize) -> Option<Value> {
        self.oracle.get(&(slot.number, key.to_vec()), moment).cloned()
    }

    fn get(&mut self) -> Done {
        let (slot, key) = (self.slot(), self.key());
        let got = slot.kvs.get(&key)?;
        assert_eq!(got.as_deref(), self.expected(&slot, &key, self.oracle.last()).as_deref());
        Ok(())
    }

    fn get_many(&mut self) -> Done {
        let slot = self.slot();
        let keys: Vec<Vec<u8>> = (0..self.rng.below(20)).map(|_| self.key()).collect();
        let at = self.oracle.last();
        for (key, got) in keys.iter().zip(slot.kvs.get_many(&keys)?) {
            assert_eq!(got.as_deref(), self.expected(&slot, key, at).as_deref());
        }
        Ok(())
    }

    fn read_everything(&mut self) -> Done {
        for slot in &self.slots {
            let expected = self.oracle.content(slot.number, self.oracle.last());
            compare(slot.kvs.cursor()?, &expected)?;
        }
        Ok(())
    }

    /// Opens a cursor, over a KVS now, a snapshot or a transaction, and steps one that is open: records written
    /// since are not in it.
    fn walk(&mut self) -> Done {
        if self.walks.len() < 3 {
            let walk = self.new_walk()?;
            self.walks.push(walk);
        }
        let at = self.index(self.walks.len());
        let mut walk = self.walks.swap_remove(at);
        for _ in 0..self.rng.below(30) {
            self.step_of(&mut walk)?;
        }
        if self.rng.chance(2, 3) {
            self.walks.push(walk);
        }
        Ok(())
    }

    fn new_walk(&mut self) -> Result<Walk, KvError> {
        let slot = self.slot();
        let content = self.oracle.content(slot.number, self.oracle.last());
        let mut cursor = slot.kvs.cursor()?;
        let mut entries: Vec<(Vec<u8>, Value)> = content.into_iter().collect();
        if self.rng.chance(1, 2) {
            let mut prefix = self.key();
            prefix.truncate(self.index(7));
            cursor = cursor.prefix(&prefix)?;
            entries.retain(|(key, _)| key.starts_with(&prefix));
        }
        let keys_only = self.rng.chance(1, 3);
        if keys_only {
            cursor = cursor.keys_only();
        }
        Ok(Walk { cursor, entries, at: 0, keys_only })
    }

    fn step_of(&mut self, walk: &mut Walk) -> Done {
        let Walk { cursor, entries, at, keys_only } = walk;
        let (step, index) = match self.rng.below(12) {
            0 => {
                let from = self.key();
                cursor.seek(&from)?;
                *at = entries.partition_point(|(key, _)| *key < from);
                return Ok(());
            }
            1 => {
                cursor.seek_to_last()?;
                *at = entries.len();
                return Ok(());
            }
            2..8 => {
                let index = Some(*at).filter(|at| *at < entries.len());
                *at += usize::from(index.is_some());
                (cursor.next()?, index)
            }
            _ => {
                let index = at.checked_sub(1);
                *at = index.unwrap_or(0);
                (cursor.prev()?, index)
            }
        };
        let expected = index.map(|index| {
            let (key, value) = &entries[index];
            (&key[..], if *keys_only { &[][..] } else { &value[..] })
        });
        assert_eq!(step, expected);
        Ok(())
    }

    fn snapshot(&mut self) -> Done {
        if self.snapshots.len() < 3 {
            self.snapshots.push((self.db.snapshot(), self.sight()));
        }
        let at = self.index(self.snapshots.len());
        let keys: Vec<Vec<u8>> = (0..8).map(|_| self.key()).collect();
        let (snapshot, Sight { moment, slots }) = &self.snapshots[at];
        for slot in slots {
            let values = snapshot.get_many(&slot.kvs, &keys)?;
            for (key, got) in keys.iter().zip(values) {
                assert_eq!(got.as_deref(), self.expected(slot, key, *moment).as_deref());
                let alone = snapshot.get(&slot.kvs, key)?;
                assert_eq!(alone, got, "alone and among many");
            }
            compare(snapshot.cursor(&slot.kvs)?, &self.oracle.content(slot.number, *moment))?;
        }
        if self.rng.chance(1, 4) {
            drop(self.snapshots.swap_remove(at));
        }
        Ok(())
    }

    // ---- transactions ----------------------------------------------------------------------------

    fn transaction(&mut self) -> Done {
        if self.open.is_empty() || self.open.len() < 4 && self.rng.chance(1, 6) {
            let (transaction, sight) = (self.db.transaction(), self.sight());
            let (writes, held) = (BTreeMap::new(), BTreeSet::new());
            let began = self.clock().now();
            self.open.push(Open { transaction, sight, began, writes, held });
            return Ok(());
        }
        let at = self.index(self.open.len());
        let mut one = self.open.swap_remove(at);
        let result = match self.rng.below(20) {
            0 => return Ok(()), // forgotten
            1..4 => return self.commit(one),
            4..12 => self.write_in(&mut one),
            _ => self.read_in(&mut one),
        };
        match result {
            Err(KvError::TransactionExpired(_)) => {
                self.check_expired(&one);
                Ok(())
            }
            result => {
                self.open.push(one);
                result
            }
        }
    }

    fn write_in(&mut self, one: &mut Open) -> Done {
        let slot = one.sight.slots[self.index(one.sight.slots.len())].clone();
        let (key, value) = (self.key(), self.value_or_none());
        let result = match &value {
            Some(value) => one.transaction.put(&slot.kvs, &key, value),
            None => one.transaction.delete(&slot.kvs, &key),
        };
        match result {
            Ok(()) => drop(one.writes.insert((slot.number, key), value)),
            Err(KvError::BatchSize { .. }) => {} // it stays as it was
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn read_in(&mut self, one: &mut Open) -> Done {
        let slot = one.sight.slots[self.index(one.sight.slots.len())].clone();
        let key = self.key();
        let full = (slot.number, key.clone());
        let before = || self.oracle.get(&full, one.sight.moment).cloned();
        let expected = one.writes.get(&full).cloned().unwrap_or_else(before);
        match self.rng.below(8) {
            0 => {
                let got = one.transaction.get_for_update(&slot.kvs, &key)?;
                assert_eq!(got.as_deref(), expected.as_deref());
                one.held.insert(full);
            }
            1 => {
                let mut content = self.oracle.content(slot.number, one.sight.moment);
                for ((_, key), value) in one.writes.iter().filter(|(key, _)| key.0 == slot.number) {
                    match value {
                        Some(value) => content.insert(key.clone(), value.clone()),
                        None => content.remove(key),
                    };
                }
                compare(one.transaction.cursor(&slot.kvs)?, &content)?;
            }
            _ => {
                let got = one.transaction.get(&slot.kvs, &key)?;
                assert_eq!(got.as_deref(), expected.as_deref());
            }
        }
        Ok(())
    }

    /// Ended by itself: only ever after its time.
    fn check_expired(&self, one: &Open) {
        let limit = Duration::from_millis(self.options.transaction_ms);
        let age = self.clock().now().since(one.began);
        assert!(age > limit, "a transaction ended after {age:?} of {limit:?}");
    }

    fn commit(&mut self, one: Open) -> Done {
        // One that writes nothing has nothing to lose against others.
        let newer = |key: &Key| self.oracle.is_newer(key, one.sight.moment);
        let is_lost = !one.writes.is_empty() && one.writes.keys().chain(&one.held).any(newer);
        let is_dropped = |(number, _): &Key| self.slots.iter().all(|slot| slot.number != *number);
        let is_dropped = one.writes.keys().any(is_dropped);
        let Open { transaction, sight, began, writes, held } = one;
        let durable = self.rng.chance(1, 4);
        let result = if durable {
            transaction.commit_with(&WriteOptions::durable())
        } else {
            transaction.commit()
        };
        match result {
            Ok(()) => {
                assert!(!is_lost, "a conflict was missed");
                assert!(!is_dropped, "a dropped KVS was written");
                if !writes.is_empty() {
                    self.note(writes.into_iter().collect::<Vec<Write>>(), Ok(()))?;
                    if durable {
                        self.promise_all();
                    }
                }
                Ok(())
            }
            Err(KvError::TransactionConflict { .. }) => {
                assert!(is_lost, "a conflict was invented");
                Ok(())
            }
            Err(KvError::Dropped(_)) => {
                assert!(is_dropped, "a KVS is missing");
                Ok(())
            }
            Err(KvError::TransactionExpired(_)) => {
                let writes = BTreeMap::new();
                let transaction = self.db.transaction();
                self.check_expired(&Open { transaction, sight, began, writes, held });
                Ok(())
            }
            Err(error) => self.note(writes.into_iter().collect(), Err(error)),
        }
    }

    // ---- the KVDB --------------------------------------------------------------------------------

    fn sync(&mut self) -> Done {
        self.db.sync()?;
        self.promise_all();
        Ok(())
    }

    fn ingest(&mut self) -> Done {
        self.db.ingest()?;
        self.promise_all();
        Ok(())
    }

    fn step(&mut self) -> Done {
        self.db.step().map(drop)
    }

    fn settle(&mut self) -> Done {
        self.db.settle()
    }

    fn let_time_pass(&mut self) -> Done {
        let span = Duration::from_millis(self.rng.below(self.options.durability.ms + 10));
        self.clock().advance(span);
        // The flush that a thread would do in time.
        self.step()
    }

    fn create_kvs(&mut self) -> Done {
        if self.slots.len() >= 4 {
            return Ok(());
        }
        let free = |name: &&str| self.slots.iter().all(|slot| slot.name != *name);
        let name = ["a", "b", "c", "d"].into_iter().find(free).unwrap().to_owned();
        let number = self.next_number;
        // Counted even if it fails: it may be there after a crash.
        self.next_number += 1;
        let policy = self.policy();
        let mut intended = self.kvss();
        intended.push((number, name.clone()));
        self.intended = Some(intended);
        let kvs = self.db.create_kvs(&name, policy)?;
        self.intended = None;
        self.slots.push(Slot { number, name, kvs });
        Ok(())
    }

    /// Any policy, one in four of whose cells do without the other class.
    fn policy(&mut self) -> Policy {
        let mut place = || Place {
            class: MediaClass::ALL[usize::try_from(self.rng.below(2)).unwrap()],
            overflows: self.rng.chance(3, 4),
        };
        Policy {
            young_keys: place(),
            young_values: place(),
            old_keys: place(),
            old_values: place(),
        }
    }

    fn set_policy(&mut self) -> Done {
        let (slot, policy) = (self.slot(), self.policy());
        slot.kvs.set_policy(policy)?;
        assert_eq!(slot.kvs.options()?.policy, policy);
        Ok(())
    }

    /// Whether values are compressed, and whether they live for ever or for longer than any case.
    fn set_options(&mut self) -> Done {
        const ALL: [Compression; 4] =
            [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Auto];
        let (slot, compression) = (self.slot(), ALL[self.index(ALL.len())]);
        slot.kvs.set_compression(compression)?;
        let ttl_ms = self.rng.chance(1, 2).then(|| 1 << 40 >> self.rng.below(4));
        slot.kvs.set_ttl_ms(ttl_ms)?;
        let options = slot.kvs.options()?;
        assert_eq!((options.compression, options.ttl_ms), (compression, ttl_ms));
        Ok(())
    }

    /// Compacts everything, or down to a goal, or erases what was deleted. Every other time it is called off, at any of its commands.
    fn compact(&mut self) -> Done {
        let request = match self.rng.below(6) {
            0..3 => CompactRequest::Full,
            3 => CompactRequest::Scrub,
            4 => CompactRequest::SpaceAmplification(1.02),
            _ => CompactRequest::SpaceAmplification(1.5),
        };
        let (db, nth) = (&self.db, self.rng.below(60));
        let called_off = self.rng.chance(1, 2);
        let (status, is_called_off) = if called_off {
            self.hook.during(nth, || db.cancel_compact(), || db.compact(request))
        } else {
            (db.compact(request), false)
        };
        let status = match status {
            Err(KvError::Pinned(who)) => {
                let readers = self.snapshots.len() + self.open.len() + self.walks.len();
                assert!(readers > 0, "nobody reads anything: {who}");
                self.promise_all();
                return Ok(());
            }
            status => status?,
        };
        assert_eq!((status.active, status.cancelled), (false, is_called_off));
        self.tally.called_off += u64::from(is_called_off);
        // It begins with the memtables.
        self.promise_all();
        Ok(())
    }

    /// Takes the staging class away, which is called off every third time, or gives it back.
    fn take_or_give_staging(&mut self) -> Done {
        let Some(device) = self.staging.clone() else {
            return Ok(());
        };
        if self.db.stats().classes.len() == 1 {
            return match self.db.add_staging_device(device) {
                Err(KvError::StillRead(_)) => {
                    let readers = self.snapshots.len() + self.open.len() + self.walks.len();
                    assert!(readers > 0, "nobody reads from the staging class of before");
                    Ok(())
                }
                result => result,
            };
        }
        let (db, nth) = (&self.db, self.rng.below(60));
        let (result, is_called_off) = if self.rng.chance(1, 3) {
            self.hook.during(nth, || db.cancel_compact(), || db.remove_staging())
        } else {
            (db.remove_staging(), false)
        };
        match result {
            Err(KvError::Cancelled) => {
                assert!(is_called_off);
                self.tally.called_off += 1;
                Ok(())
            }
            result => {
                result?;
                self.tally.removals += 1;
                self.promise_all();
                Ok(())
            }
        }
    }

    fn drop_kvs(&mut self) -> Done {
        if self.slots.len() < 2 {
            return Ok(());
        }
        let at = self.index(self.slots.len());
        let slot = self.slots[at].clone();
        let mut intended = self.kvss();
        intended.remove(at);
        self.intended = Some(intended);
        self.db.drop_kvs(&slot.name)?;
        self.intended = None;
        self.slots.remove(at);
        assert!(matches!(slot.kvs.get(b"k"), Err(KvError::Dropped(_))));
        Ok(())
    }
}

/// Reads all that a cursor has, forward and now and then backward.
fn compare(mut cursor: Cursor, expected: &BTreeMap<Vec<u8>, Value>) -> Done {
    for (key, value) in expected {
        assert_eq!(cursor.next()?, Some((&key[..], &value[..])));
    }
    assert_eq!(cursor.next()?, None);
    for (key, value) in expected.iter().rev() {
        assert_eq!(cursor.prev()?, Some((&key[..], &value[..])));
    }
    assert_eq!(cursor.prev()?, None);
    Ok(())
}
