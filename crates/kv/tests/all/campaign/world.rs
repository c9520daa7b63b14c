//! An open KVDB beside the oracle that knows the content it should hold, and the writes it has promised.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, ErrorKind, Nanos, Rng};
use esker_device::Device;
use esker_kv::{Cursor, KvError, Kvdb, Kvs, Options, Snapshot, Transaction};

use crate::campaign::hook::Hook;
use crate::campaign::tally::Tally;
use crate::common::oracle::{Key, Oracle, Value, Write};

/// A KVS of the KVDB.
#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) kvs: Kvs,
}

/// View of an observer: a moment, and the KVSs there were.
#[derive(Clone)]
pub(crate) struct Sight {
    pub(crate) moment: usize,
    pub(crate) slots: Vec<Slot>,
}

/// An open transaction, and the oracle's knowledge of it.
pub(crate) struct Open {
    pub(crate) transaction: Transaction,
    pub(crate) sight: Sight,
    pub(crate) began: Nanos,
    pub(crate) writes: BTreeMap<Key, Option<Value>>,
    pub(crate) held: BTreeSet<Key>,
}

/// An open cursor: it stands before the entry with index `at`.
pub(crate) struct Walk {
    pub(crate) cursor: Cursor,
    pub(crate) entries: Vec<(Vec<u8>, Value)>,
    pub(crate) at: usize,
    pub(crate) keys_only: bool,
}

/// How large keys and values are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) keys: u64,
    pub(crate) value_max: u64,
}

pub(crate) struct World {
    pub(crate) db: Kvdb,
    pub(crate) rng: Rng,
    pub(crate) oracle: Oracle,
    pub(crate) sizes: Sizes,
    pub(crate) options: Options,
    pub(crate) hook: Hook,
    /// The device for a staging class, whether the KVDB has that now or not.
    pub(crate) staging: Option<Arc<dyn Device>>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) next_number: u32,
    pub(crate) snapshots: Vec<(Snapshot, Sight)>,
    pub(crate) open: Vec<Open>,
    pub(crate) walks: Vec<Walk>,
    pub(crate) tally: Tally,
    /// The moment that a crash must not take away.
    promised: usize,
    /// Moments that are not promised yet: when they were acknowledged, and their bytes.
    acknowledged: VecDeque<(Nanos, u64)>,
    /// Whether the last moment is that of a write which failed: it may not have happened.
    pub(crate) attempted: bool,
    /// The KVSs there will be if the change under way happens.
    pub(crate) intended: Option<Vec<(u32, String)>>,
}

/// State that goes from one life of a KVDB to the next.
pub(crate) struct Legacy {
    pub(crate) rng: Rng,
    pub(crate) oracle: Oracle,
    pub(crate) next_number: u32,
    pub(crate) tally: Tally,
}

impl World {
    /// A KVDB that was just opened and holds the last moment of the oracle, durably.
    pub(crate) fn new(
        db: Kvdb,
        legacy: Legacy,
        slots: &[(u32, String)],
        (options, sizes): (&Options, Sizes),
        (hook, staging): (&Hook, Option<Arc<dyn Device>>),
    ) -> Result<World, KvError> {
        let Legacy { rng, oracle, next_number, tally } = legacy;
        let slot = |(number, name): &(u32, String)| {
            Ok(Slot { number: *number, name: name.clone(), kvs: db.kvs(name)? })
        };
        let slots = slots.iter().map(slot).collect::<Result<_, KvError>>()?;
        Ok(World {
            promised: oracle.last(),
            db,
            rng,
            oracle,
            sizes,
            options: options.clone(),
            hook: hook.clone(),
            staging,
            slots,
            next_number,
            snapshots: Vec::new(),
            open: Vec::new(),
            walks: Vec::new(),
            tally,
            acknowledged: VecDeque::new(),
            attempted: false,
            intended: None,
        })
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.options.clock
    }

    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.rng.below(count as u64)).unwrap()
    }

    /// A KVS: the earlier ones more often, so that the last ones have a small part of the log.
    pub(crate) fn slot(&mut self) -> Slot {
        let count = self.slots.len();
        let at = self.index(count).min(self.index(count));
        self.slots[at].clone()
    }

    /// Keys of one byte, long ones, some that are prefixes of others.
    pub(crate) fn key(&mut self) -> Vec<u8> {
        key_of(self.rng.below(self.sizes.keys))
    }

    /// All keys that there may be in a range, each deleted.
    pub(crate) fn deletes(&self, kvs: u32, range: &Range<Vec<u8>>) -> Vec<Write> {
        let keys = (0..self.sizes.keys).map(key_of).filter(|key| range.contains(key));
        keys.collect::<BTreeSet<_>>().into_iter().map(|key| ((kvs, key), None)).collect()
    }

    pub(crate) fn value(&mut self) -> Value {
        let size = match self.rng.below(16) {
            0 => 0,
            1 => self.rng.below(18),
            2 => self.rng.below(self.sizes.value_max),
            _ => self.rng.below(self.sizes.value_max / 4),
        };
        let mut value = vec![0; usize::try_from(size).unwrap()];
        self.rng.fill(&mut value);
        value.into()
    }

    /// A value, or now and then a delete.
    pub(crate) fn value_or_none(&mut self) -> Option<Value> {
        if self.rng.chance(1, 5) { None } else { Some(self.value()) }
    }

    /// Numbers and names of the KVSs.
    pub(crate) fn kvss(&self) -> Vec<(u32, String)> {
        self.slots.iter().map(|slot| (slot.number, slot.name.clone())).collect()
    }

    pub(crate) fn sight(&self) -> Sight {
        Sight { moment: self.oracle.last(), slots: self.slots.clone() }
    }

    /// Notes how a write ended. One that failed for lack of space has not happened; one that failed
    /// otherwise may have.
    pub(crate) fn note(
        &mut self,
        writes: Vec<Write>,
        result: Result<(), KvError>,
    ) -> Result<(), KvError> {
        let bytes = writes.iter().map(|((_, key), value)| {
            key.len() as u64 + value.as_ref().map_or(0, |value| value.len() as u64)
        });
        let bytes = bytes.sum();
        self.note_of(writes, bytes, result)
    }

    /// The same of writes whose records have so many bytes of keys and values.
    pub(crate) fn note_of(
        &mut self,
        writes: Vec<Write>,
        bytes: u64,
        result: Result<(), KvError>,
    ) -> Result<(), KvError> {
        match &result {
            Ok(()) => {
                self.acknowledged.push_back((self.clock().now(), bytes));
                self.oracle.write(writes);
                self.settle_promises();
            }
            Err(KvError::Stopped { .. }) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace && !self.is_stopped() => {}
            Err(_) => {
                self.attempted = true;
                self.oracle.write(writes);
            }
        }
        result
    }

    /// Whether it takes no more writes.
    pub(crate) fn is_stopped(&self) -> bool {
        self.db.stats().stopped.is_some()
    }

    /// Everything acknowledged so far is promised.
    pub(crate) fn promise_all(&mut self) {
        self.acknowledged.clear();
        self.promised = self.oracle.last();
    }

    /// Promises the writes that are older than the window, and those that are not among the last bytes that may be
    /// lost.
    fn settle_promises(&mut self) {
        let now = self.clock().now();
        let window = Duration::from_millis(self.options.durability.ms);
        let limit = self.options.durability.bytes.min(self.options.memory_bytes / 16);
        let mut pending: u64 = self.acknowledged.iter().map(|(_, bytes)| bytes).sum();
        while let Some((at, bytes)) = self.acknowledged.front()
            && (*at + window < now || pending > limit || window.is_zero())
        {
            pending -= bytes;
            self.acknowledged.pop_front();
            self.promised += 1;
        }
    }

    /// The moment that a crash now must not take away.
    pub(crate) fn promised(&mut self) -> usize {
        self.settle_promises();
        self.promised
    }

    /// Ends all that refers to the KVDB: returns the rest to carry on with.
    pub(crate) fn end(mut self) -> (Kvdb, Legacy) {
        self.walks.clear();
        self.open.clear();
        self.snapshots.clear();
        self.tally.add(&self.db.stats());
        let World { db, rng, oracle, next_number, tally, .. } = self;
        (db, Legacy { rng, oracle, next_number, tally })
    }
}

/// Everything in `kvss` of the KVDB, the names and numbers of KVSs.
pub(crate) fn read_all(db: &Kvdb, kvss: &[(u32, String)]) -> Result<BTreeMap<Key, Value>, KvError> {
    let mut found = BTreeMap::new();
    for (number, name) in kvss {
        let mut cursor = db.kvs(name)?.cursor()?;
        while let Some((key, value)) = cursor.next()? {
            let twice = found.insert((*number, key.to_vec()), value.into());
            assert!(twice.is_none(), "a cursor returned a key twice");
        }
    }
    Ok(found)
}

/// One of all the keys there may be.
fn key_of(n: u64) -> Vec<u8> {
    match n % 8 {
        0 if n == 0 => Vec::new(),
        0 => vec![u8::try_from(n % 256).unwrap()],
        1..5 => format!("key{n:03}{}", "-".repeat(240)).into_bytes(),
        5 => format!("key{}", n / 10).into_bytes(),
        _ => format!("key{n}").into_bytes(),
    }
}
