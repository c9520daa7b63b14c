//! A scripted workload that keeps track of the engine's promises after each operation.
//!
//! State *n* is the content of the KVDB after the first *n* writes. A crash may leave any state from
//! the promised one on: a prefix of the writes, across all KVSs. States are told apart by a
//! fingerprint of all their entries.

use std::collections::BTreeMap;
use std::time::Duration;

use esker_base::{Clock, Rng};
use esker_kv::{Batch, Compression, KvError, Kvdb, Kvs, KvsOptions, Options};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const NAMES: [&str; 2] = ["a", "b"];
/// The time to live of the second one, in milliseconds.
pub(crate) const TTL_MS: u64 = 3_600_000;
type Entry = (usize, Vec<u8>);

/// A write to a KVS.
enum Write {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeletePrefix(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

/// A scripted run.
pub(crate) struct Script {
    rng: Rng,
    oracle: BTreeMap<Entry, Vec<u8>>,
    fingerprint: u64,
    /// The fingerprint of each state, from state 0 on.
    states: Vec<u64>,
    /// When each write was acknowledged.
    acknowledged: Vec<Duration>,
    /// The state that must survive.
    promised: usize,
    /// The fingerprint that a write which failed may have led to.
    attempted: Option<u64>,
    clock: Clock,
    durability: Duration,
    keys: u64,
}

fn fingerprint(kvs: usize, key: &[u8], value: &[u8]) -> u64 {
    let mut bytes = vec![u8::try_from(kvs).unwrap()];
    bytes.extend_from_slice(&(key.len() as u64).to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    xxh3_64(&bytes)
}

impl Script {
    pub(crate) fn new(seed: u64, options: &Options, keys: u64) -> Script {
        Script {
            rng: Rng::new(seed),
            oracle: BTreeMap::new(),
            fingerprint: 0,
            states: vec![0],
            acknowledged: vec![Duration::ZERO],
            promised: 0,
            attempted: None,
            clock: options.clock.clone(),
            durability: Duration::from_millis(options.durability.ms),
            keys,
        }
    }

    fn now(&self) -> Duration {
        self.clock.now().since(esker_base::Nanos(0))
    }

    fn apply(&mut self, kvs: usize, write: Write) {
        match write {
            Write::Put(key, value) => self.set(kvs, key, Some(value)),
            Write::Delete(key) => self.set(kvs, key, None),
            Write::DeletePrefix(prefix) => {
                let ours = self.oracle.keys().filter(|(which, _)| *which == kvs);
                let covered = ours.map(|(_, key)| key).filter(|key| key.starts_with(&prefix));
                let covered: Vec<Vec<u8>> = covered.cloned().collect();
                covered.into_iter().for_each(|key| self.set(kvs, key, None));
            }
            Write::DeleteRange(lower, upper) => {
                let ours = self.oracle.range((kvs, lower)..(kvs, upper));
                let covered: Vec<Vec<u8>> = ours.map(|((_, key), _)| key.clone()).collect();
                covered.into_iter().for_each(|key| self.set(kvs, key, None));
            }
        }
    }

    fn set(&mut self, kvs: usize, key: Vec<u8>, value: Option<Vec<u8>>) {
        let entry = (kvs, key);
        if let Some(old) = self.oracle.remove(&entry) {
            self.fingerprint ^= fingerprint(kvs, &entry.1, &old);
        }
        if let Some(value) = value {
            self.fingerprint ^= fingerprint(kvs, &entry.1, &value);
            self.oracle.insert(entry, value);
        }
    }

    fn key(&mut self) -> Vec<u8> {
        // Half of the keys are long, so that a leaf has pages enough to split.
        let n = self.rng.below(self.keys);
        format!("{n:03}{}", "-".repeat(if n.is_multiple_of(2) { 240 } else { 3 })).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let size = if self.rng.chance(1, 8) { self.rng.below(17) } else { self.rng.below(700) };
        let mut value = vec![0; usize::try_from(size).unwrap()];
        self.rng.fill(&mut value);
        // Every other one compresses.
        if value.len().is_multiple_of(2) {
            let third = value.len() / 3;
            value[third..].fill(b'.');
        }
        value
    }

    fn write(&mut self) -> Write {
        let key = self.key();
        match self.rng.below(37) {
            // Of ten keys, or of one.
            0 => Write::DeletePrefix(key[..2].to_vec()),
            1 => Write::DeletePrefix(key[..3].to_vec()),
            2 => {
                // Of five keys on average.
                let digits = key[..3].iter().map(|digit| u64::from(digit - b'0'));
                let upper = digits.fold(0, |n, digit| 10 * n + digit) + self.rng.below(10);
                Write::DeleteRange(key, format!("{upper:03}~").into_bytes())
            }
            3..8 => Write::Delete(key),
            _ => Write::Put(key, self.value()),
        }
    }

    /// How many writes were acknowledged.
    pub(crate) fn written(&self) -> usize {
        self.states.len() - 1
    }

    /// The state that a crash now must not lose.
    pub(crate) fn promised(&mut self) -> usize {
        let now = self.now();
        while self.promised + 1 < self.states.len()
            && self.acknowledged[self.promised + 1] + self.durability < now
        {
            self.promised += 1;
        }
        self.promised
    }

    /// One operation of the script. A write that fails may or may not have happened.
    pub(crate) fn step(&mut self, db: &Kvdb, kvss: &[Kvs; 2]) -> Result<(), KvError> {
        match self.rng.below(100) {
            0..72 => {
                let which = usize::from(self.rng.chance(1, 8));
                let write = self.write();
                let result = match &write {
                    Write::Put(key, value) => kvss[which].put(key, value),
                    Write::Delete(key) => kvss[which].delete(key),
                    Write::DeletePrefix(prefix) => kvss[which].delete_prefix(prefix),
                    Write::DeleteRange(from, to) => kvss[which].delete_range(&from[..]..&to[..]),
                };
                self.note_write(vec![(which, write)], result)?;
            }
            72..84 => {
                let mut batch = Batch::new();
                let mut writes = Vec::new();
                for which in [0, 0, 1, 0, 0] {
                    let write = self.write();
                    match &write {
                        Write::Put(key, value) => batch.put(&kvss[which], key, value),
                        Write::Delete(key) => batch.delete(&kvss[which], key),
                        Write::DeletePrefix(prefix) => batch.delete_prefix(&kvss[which], prefix),
                        Write::DeleteRange(from, to) => {
                            batch.delete_range(&kvss[which], &from[..]..&to[..])
                        }
                    }
                    writes.push((which, write));
                }
                self.note_write(writes, db.write(&batch))?;
            }
            84..88 => {
                db.sync()?;
                self.promised = self.written();
            }
            88..90 => {
                db.ingest()?;
                self.promised = self.written();
            }
            90..93 => drop(db.step()?),
            93..97 => db.settle()?,
            _ => {
                self.clock.advance(Duration::from_millis(self.rng.below(80)));
                // The flush that a thread would do in time.
                db.step()?;
            }
        }
        Ok(())
    }

    fn note_write(
        &mut self,
        writes: Vec<(usize, Write)>,
        result: Result<(), KvError>,
    ) -> Result<(), KvError> {
        writes.into_iter().for_each(|(which, write)| self.apply(which, write));
        if let Err(error) = result {
            self.attempted = Some(self.fingerprint);
            return Err(error);
        }
        self.states.push(self.fingerprint);
        let now = self.now();
        self.acknowledged.push(now);
        Ok(())
    }

    /// The state that the KVDB shows: the last one that looks so. `None`: one that never was.
    pub(crate) fn state_of(&self, db: &Kvdb) -> Option<usize> {
        self.try_state_of(db).expect("readable")
    }

    /// Like [`Script::state_of`], with the error of a read that failed.
    pub(crate) fn try_state_of(&self, db: &Kvdb) -> Result<Option<usize>, KvError> {
        let mut found = 0;
        for (which, name) in NAMES.iter().enumerate() {
            let Ok(kvs) = db.kvs(name) else { continue };
            let mut cursor = kvs.cursor()?;
            while let Some((key, value)) = cursor.next()? {
                found ^= fingerprint(which, key, value);
            }
        }
        if self.attempted == Some(found) {
            return Ok(Some(self.states.len()));
        }
        Ok(self.states.iter().rposition(|state| *state == found))
    }

    /// Every key is found by `get` as the cursor found it, and reads agree both ways.
    pub(crate) fn check_reads(db: &Kvdb) {
        for name in NAMES {
            let Ok(kvs) = db.kvs(name) else { continue };
            let mut forward = Vec::new();
            let mut cursor = kvs.cursor().unwrap();
            while let Some((key, value)) = cursor.next().unwrap() {
                assert_eq!(kvs.get(key).unwrap().as_deref(), Some(value));
                forward.push(key.to_vec());
            }
            let mut backward = Vec::new();
            while let Some((key, _)) = cursor.prev().unwrap() {
                backward.push(key.to_vec());
            }
            backward.reverse();
            assert_eq!(forward, backward);
        }
    }
}

/// Creates the script's KVSs. Values put into the second one expire, but not while a script runs.
pub(crate) fn create_kvss(db: &Kvdb) -> Result<[Kvs; 2], KvError> {
    let both = KvsOptions::default().compression(Compression::Auto).ttl_ms(TTL_MS);
    Ok([db.create_kvs(NAMES[0], KvsOptions::default())?, db.create_kvs(NAMES[1], both)?])
}
