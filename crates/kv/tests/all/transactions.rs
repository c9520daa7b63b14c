//! Transactions and snapshots against a plain oracle of snapshot isolation: every conflict is found, and
//! none is invented, through every kind of maintenance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::common::records::check_buffer;
use crate::common::{Devices, OnDevices};
use crate::common::{small_tuning, test_options};
use esker_base::{ErrorKind, Rng, thread};
use esker_device::MemoryDevice;
use esker_kv::{
    KvError, Kvdb, Kvs, Options, Policy, Readable, Snapshot, Transaction, Tuning, Value,
    WriteOptions,
};

type Key = (usize, Vec<u8>);
type Content = BTreeMap<Key, Vec<u8>>;

fn devices() -> Devices {
    let device = |name: &str, bytes: u64| Arc::new(MemoryDevice::new(name, bytes, 512));
    Devices {
        manifest: device("manifest", 1 << 20),
        capacity: device("capacity", 64 << 20),
        staging: Some(device("staging", 32 << 20)),
    }
}

fn create(options: Options) -> (Kvdb, Vec<Kvs>) {
    let db = Kvdb::create_on(devices(), options).unwrap();
    let kvss = ["a", "b"].map(|name| db.create_kvs(name, Policy::default()).unwrap());
    (db, kvss.to_vec())
}

/// Keys of a KVS from one to below another.
type Range = (usize, Vec<u8>, Option<Vec<u8>>);

/// How a range is deleted.
enum Deleted {
    Prefix(Vec<u8>),
    Range,
    All,
}

/// State of an open transaction, as the oracle knows it.
struct Open {
    transaction: Transaction,
    /// The content at its beginning, with its own writes.
    sees: Content,
    writes: BTreeMap<Key, Option<Vec<u8>>>,
    /// Deleted before all of `writes`.
    ranges: BTreeSet<Range>,
    held: BTreeSet<Key>,
    /// How many commits there were when it began.
    began: u64,
}

struct Model {
    rng: Rng,
    db: Kvdb,
    kvss: Vec<Kvs>,
    content: Content,
    /// The commit that wrote a key last.
    written: BTreeMap<Key, u64>,
    /// Deleted ranges, prefixes among them, and the commits that deleted them last.
    deleted: BTreeMap<Range, u64>,
    commits: u64,
    open: Vec<Open>,
    snapshots: Vec<(Snapshot, Content)>,
    conflicts: u64,
}

impl Model {
    fn key(&mut self) -> Key {
        let which = usize::try_from(self.rng.below(2)).unwrap();
        (which, format!("key{:03}", self.rng.below(200)).into_bytes())
    }

    /// Of ten keys, of one, or now and then of a hundred.
    fn prefix(&mut self) -> Key {
        let (which, mut key) = self.key();
        key.truncate(if self.rng.chance(1, 10) {
            4
        } else {
            5 + usize::from(self.rng.chance(1, 2))
        });
        (which, key)
    }

    /// A prefix, or the keys from one to another: few of them mostly.
    fn range(&mut self) -> (Deleted, Range) {
        let (which, prefix) = self.prefix();
        if self.rng.chance(1, 2) {
            let behind = [&prefix[..prefix.len() - 1], &[prefix[prefix.len() - 1] + 1]].concat();
            return (Deleted::Prefix(prefix.clone()), (which, prefix, Some(behind)));
        }
        if self.rng.chance(1, 20) {
            return (Deleted::All, (which, Vec::new(), None));
        }
        let n = self.rng.below(200);
        let [lower, upper] =
            [n, n + 1 + self.rng.below(8)].map(|n| format!("key{n:03}").into_bytes());
        (Deleted::Range, (which, lower, Some(upper)))
    }

    fn note_range(&mut self, range: Range) {
        self.content.retain(|key, _| !covers(&range, key));
        self.deleted.insert(range, self.commits);
    }

    fn value(&mut self) -> Vec<u8> {
        let mut value = vec![0; usize::try_from(self.rng.below(120)).unwrap()];
        self.rng.fill(&mut value);
        value
    }

    fn note(&mut self, key: Key, value: Option<Vec<u8>>) {
        self.written.insert(key.clone(), self.commits);
        match value {
            Some(value) => self.content.insert(key, value),
            None => self.content.remove(&key),
        };
    }

    fn write_plainly(&mut self) {
        let (key, value) = (self.key(), self.value());
        self.commits += 1;
        if self.rng.chance(1, 20) {
            let (how, range) = self.range();
            let kvs = &self.kvss[range.0];
            match how {
                Deleted::Prefix(prefix) => kvs.delete_prefix(&prefix).unwrap(),
                Deleted::Range => {
                    kvs.delete_range(&range.1[..]..range.2.as_deref().unwrap()).unwrap()
                }
                Deleted::All => kvs.clear().unwrap(),
            }
            self.note_range(range);
        } else if self.rng.chance(1, 4) {
            self.kvss[key.0].delete(&key.1).unwrap();
            self.note(key, None);
        } else {
            self.kvss[key.0].put(&key.1, &value).unwrap();
            self.note(key, Some(value));
        }
    }

    fn step_of_one(&mut self) {
        if self.open.is_empty() || self.open.len() < 4 && self.rng.chance(1, 6) {
            let transaction = self.db.transaction();
            let (sees, began) = (self.content.clone(), self.commits);
            let (writes, ranges, held) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
            self.open.push(Open { transaction, sees, writes, ranges, held, began });
            return;
        }
        let at = usize::try_from(self.rng.below(self.open.len() as u64)).unwrap();
        let (key, (how, range), value) = (self.key(), self.range(), self.value());
        let choice = self.rng.below(21);
        let kvs = self.kvss[key.0].clone();
        let one = &mut self.open[at];
        match choice {
            0..7 => {
                one.transaction.put(&kvs, &key.1, &value).unwrap();
                one.sees.insert(key.clone(), value.clone());
                one.writes.insert(key, Some(value));
            }
            7..9 => {
                one.transaction.delete(&kvs, &key.1).unwrap();
                one.sees.remove(&key);
                one.writes.insert(key, None);
            }
            9..14 => {
                let got = one.transaction.get(&kvs, &key.1).unwrap();
                let expected = one.sees.get(&key).map(Vec::as_slice);
                assert_eq!(got.as_deref(), expected);
                check_buffer(expected, self.rng.below(20), |buffer| {
                    one.transaction.get_to_buffer(&kvs, &key.1, buffer)
                });
            }
            14 => {
                let got = one.transaction.get_for_update(&kvs, &key.1).unwrap();
                assert_eq!(got.as_deref(), one.sees.get(&key).map(Vec::as_slice));
                one.held.insert(key);
            }
            15 => {
                let cursor = one.transaction.cursor(&kvs).unwrap();
                assert_eq!(all(cursor), of(&one.sees, key.0));
            }
            16 => drop(self.open.remove(at)),
            17 if range.0 == key.0 => {
                match how {
                    Deleted::Prefix(prefix) => one.transaction.delete_prefix(&kvs, &prefix),
                    Deleted::Range => {
                        let keys = &range.1[..]..range.2.as_deref().unwrap();
                        one.transaction.delete_range(&kvs, keys)
                    }
                    Deleted::All => one.transaction.delete_range::<&[u8]>(&kvs, ..),
                }
                .unwrap();
                one.sees.retain(|key, _| !covers(&range, key));
                one.writes.retain(|key, _| !covers(&range, key));
                one.ranges.insert(range);
            }
            _ => self.commit(at),
        }
    }

    fn commit(&mut self, at: usize) {
        let Open { transaction, writes, ranges, held, began, .. } = self.open.remove(at);
        let newer = |commit: &u64| *commit > began;
        let deleted = self.deleted.iter().filter(|(_, commit)| newer(commit));
        let deleted: Vec<&Range> = deleted.map(|(range, _)| range).collect();
        let written = self.written.iter().filter(|(_, commit)| newer(commit));
        let written: Vec<&Key> = written.map(|(key, _)| key).collect();
        let key_is_newer =
            |key: &Key| written.contains(&key) || deleted.iter().any(|range| covers(range, key));
        let range_is_newer = |range: &Range| {
            written.iter().any(|key| covers(range, key))
                || deleted.iter().any(|other| overlap(range, other))
        };
        // One that writes nothing has nothing to lose against others.
        let is_lost = !(writes.is_empty() && ranges.is_empty())
            && (writes.keys().chain(&held).any(key_is_newer) || ranges.iter().any(range_is_newer));
        let result = if self.rng.chance(1, 4) {
            transaction.commit_with(&WriteOptions::durable())
        } else {
            transaction.commit()
        };
        match result {
            Ok(()) => {
                assert!(!is_lost, "a conflict was missed");
                self.commits += 1;
                ranges.into_iter().for_each(|range| self.note_range(range));
                for (key, value) in writes {
                    self.note(key, value);
                }
            }
            Err(error) => {
                assert!(matches!(error, KvError::TransactionConflict { .. }), "{error}");
                assert!(is_lost, "there is no conflict: {error}");
                self.conflicts += 1;
            }
        }
    }

    fn look_at_snapshots(&mut self) {
        if self.snapshots.len() < 3 {
            self.snapshots.push((self.db.snapshot(), self.content.clone()));
        }
        let at = usize::try_from(self.rng.below(self.snapshots.len() as u64)).unwrap();
        let key = self.key();
        let (snapshot, content) = &self.snapshots[at];
        let kvs = &self.kvss[key.0];
        let expected = content.get(&key).map(Vec::as_slice);
        assert_eq!(snapshot.get(kvs, &key.1).unwrap().as_deref(), expected);
        let room = self.rng.below(20);
        check_buffer(expected, room, |buffer| snapshot.get_to_buffer(kvs, &key.1, buffer));
        assert_eq!(all(snapshot.cursor(kvs).unwrap()), of(content, key.0));
        let keys: Vec<Vec<u8>> = (0..40).map(|n| format!("key{:03}", n * 5).into_bytes()).collect();
        let expected: Vec<Option<Value>> = keys
            .iter()
            .map(|one| content.get(&(key.0, one.clone())).cloned().map(Value::from))
            .collect();
        assert_eq!(snapshot.get_many(kvs, &keys).unwrap(), expected);
        if self.rng.chance(1, 5) {
            drop(self.snapshots.remove(at));
        }
    }
}

fn covers((kvs, lower, upper): &Range, (other, key): &Key) -> bool {
    kvs == other && lower <= key && upper.as_ref().is_none_or(|upper| key < upper)
}

fn overlap(one: &Range, other: &Range) -> bool {
    let starts_in = |a: &Range, b: &Range| covers(b, &(a.0, a.1.clone()));
    starts_in(one, other) || starts_in(other, one)
}

fn all(mut cursor: esker_kv::Cursor) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        found.insert(key.to_vec(), value.to_vec());
    }
    found
}

fn of(content: &Content, which: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let ours = content.iter().filter(|((kvs, _), _)| *kvs == which);
    ours.map(|((_, key), value)| (key.clone(), value.clone())).collect()
}

#[test]
fn every_conflict_is_found_and_none_is_invented() {
    for seed in 0..6 {
        let (db, kvss) = create(test_options(small_tuning()));
        let mut model = Model {
            rng: Rng::new(seed),
            db,
            kvss,
            content: Content::new(),
            written: BTreeMap::new(),
            deleted: BTreeMap::new(),
            commits: 0,
            open: Vec::new(),
            snapshots: Vec::new(),
            conflicts: 0,
        };
        for _ in 0..8000 {
            match model.rng.below(100) {
                0..30 => model.write_plainly(),
                30..92 => model.step_of_one(),
                92..94 => model.look_at_snapshots(),
                94..96 => drop(model.db.step().unwrap()),
                96..98 => model.db.ingest().unwrap(),
                _ => model.db.settle().unwrap(),
            }
        }
        for which in 0..2 {
            let found = all(model.kvss[which].cursor().unwrap());
            assert_eq!(found, of(&model.content, which));
        }
        let stats = model.db.stats();
        assert_eq!(stats.transactions.conflicts, model.conflicts);
        assert!(model.conflicts > 20 && stats.transactions.committed > 200, "{stats:?}");
        assert!(stats.maintenance.spills > 0 && stats.maintenance.compactions > 0);
        model.open.clear();
        assert_eq!(model.db.stats().transactions.open, 0);
        assert_eq!(model.db.stats().transactions.history_bytes, 0, "nothing is kept for nobody");
    }
}

#[test]
fn a_transaction_ends_after_its_time_and_what_it_kept_is_freed() {
    let options = test_options(small_tuning()).with(|set| set.transaction_ms = 1000);
    let clock = options.clock.clone();
    let (db, kvss) = create(options);
    kvss[0].put(b"k", b"old").unwrap();
    let mut late = db.transaction();
    late.put(&kvss[0], b"other", b"1").unwrap();
    kvss[0].put(b"k", b"new").unwrap();
    db.ingest().unwrap();
    assert!(db.stats().transactions.history_bytes > 0);
    assert_eq!(late.get(&kvss[0], b"k").unwrap().as_deref(), Some(&b"old"[..]));
    clock.advance(Duration::from_millis(1001));
    let fresh = db.transaction();
    assert_eq!(db.stats().transactions.expired, 1);
    let error = late.get(&kvss[0], b"k").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(matches!(late.commit(), Err(KvError::TransactionExpired(_))));
    assert_eq!(kvss[0].get(b"other").unwrap(), None);
    drop(fresh);
    assert_eq!(db.stats().transactions.history_bytes, 0);
}

#[test]
fn a_transaction_ends_by_itself_when_nobody_begins_another() {
    let options = test_options(small_tuning()).with(|set| set.transaction_ms = 1000);
    let clock = options.clock.clone();
    let (db, kvss) = create(options);
    let late = db.transaction();
    clock.advance(Duration::from_millis(1001));
    db.step().unwrap();
    assert_eq!(db.stats().transactions.open, 0);
    let over = late.get(&kvss[0], b"k").unwrap_err();
    assert!(over.to_string().contains("open for more than 1000 ms"), "{over}");
    let without_writes = db.transaction();
    db.close().unwrap();
    assert!(matches!(without_writes.commit(), Err(KvError::Closed)));
}

#[test]
fn the_oldest_transactions_end_when_others_have_written_too_much() {
    let (db, kvss) = create(test_options(small_tuning())); // 8 MiB: 1 MiB of history
    let first = db.transaction();
    for n in 0..30_000u32 {
        kvss[0].put(n.to_be_bytes(), [1; 100]).unwrap();
    }
    let stats = db.stats().transactions;
    assert_eq!((stats.open, stats.expired), (0, 1));
    let over = first.get(&kvss[0], b"k").unwrap_err();
    assert!(matches!(over, KvError::TransactionExpired(_)));
    assert!(over.to_string().contains("others have written so much"), "{over}");
    assert!(stats.history_bytes < 1 << 20);
}

#[test]
fn limits_and_foreign_handles_are_refused_and_change_nothing() {
    let tuning = Tuning { block_bytes: 16 << 10, ..small_tuning() };
    let (db, kvss) = create(test_options(tuning));
    let (other, foreign) = create(test_options(small_tuning()));
    let mut transaction = db.transaction();
    assert_eq!(
        transaction.put(&kvss[0], [b'k'; 1345], b"v").unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!(transaction.put(&foreign[0], b"k", b"v").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.snapshot().get(&foreign[0], b"k").unwrap_err().kind(), ErrorKind::Invalid);
    // The same key over and over is one record.
    for n in 0..100 {
        transaction.put(&kvss[0], b"counter", [n; 1000]).unwrap();
    }
    let mut result = Ok(());
    for n in 0..20u8 {
        result = transaction.put(&kvss[0], [n], [n; 1000]);
        if result.is_err() {
            break;
        }
    }
    assert!(matches!(result, Err(KvError::BatchSize { .. })), "{result:?}");
    transaction.commit().unwrap();
    assert_eq!(kvss[0].get(b"counter").unwrap().unwrap(), [99; 1000]);
    assert_eq!(kvss[0].get([0]).unwrap().unwrap(), [0; 1000]);
    drop(other);
}

/// Money moves between accounts on many threads, and no snapshot ever sees more or less of it.
#[test]
fn threads_move_money_and_every_snapshot_adds_up() {
    const ACCOUNTS: u64 = 20;
    const EACH: u64 = 100;
    let options = Options::default().with(|set| {
        set.memory_bytes = 32 << 20;
        set.tuning = Some(small_tuning());
    });
    let (db, kvss) = create(options);
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let account = |n: u64| (usize::try_from(n % 2).unwrap(), n.to_be_bytes());
    for n in 0..ACCOUNTS {
        let (which, key) = account(n);
        kvss[which].put(key, EACH.to_le_bytes()).unwrap();
    }
    let (db, kvss) = (&db, &kvss);
    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..3)
            .map(|seed| {
                let run = move || {
                    let mut rng = Rng::new(seed);
                    let mut moved = 0;
                    while moved < 1500 {
                        let (from, to) =
                            (account(rng.below(ACCOUNTS)), account(rng.below(ACCOUNTS)));
                        let mut t = db.transaction();
                        let had = number(&t.get(&kvss[from.0], from.1).unwrap().unwrap());
                        if from == to || had == 0 {
                            continue;
                        }
                        let has = number(&t.get(&kvss[to.0], to.1).unwrap().unwrap());
                        t.put(&kvss[from.0], from.1, (had - 1).to_le_bytes()).unwrap();
                        t.put(&kvss[to.0], to.1, (has + 1).to_le_bytes()).unwrap();
                        match t.commit() {
                            Ok(()) => moved += 1,
                            Err(KvError::TransactionConflict { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                };
                thread::spawn_scoped(scope, "mover", run).unwrap()
            })
            .collect();
        let sum = |snapshot: &Snapshot| -> u64 {
            (0..ACCOUNTS)
                .map(account)
                .map(|(which, key)| number(&snapshot.get(&kvss[which], key).unwrap().unwrap()))
                .sum()
        };
        while !movers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            assert_eq!(sum(&db.snapshot()), ACCOUNTS * EACH);
        }
        assert_eq!(sum(&db.snapshot()), ACCOUNTS * EACH);
    });
    assert!(db.stats().transactions.committed >= 4500);
}

/// A walk over a range that others have found empty meets the transaction's own deletes there: they are none of the
/// others' keys, so each is stepped over.
#[test]
fn cursor_of_a_transaction_steps_over_own_deletes_in_an_empty_range() {
    type Deletes = fn(&Kvdb, &Kvs);
    let deletes: [(&str, Deletes); 4] = [
        ("keys", |_, kvs| (0..20).for_each(|n| kvs.delete(key_of(n)).unwrap())),
        ("a prefix", |_, kvs| kvs.delete_prefix(b"k").unwrap()),
        ("a range", |_, kvs| kvs.delete_range("k00".."k2\0").unwrap()),
        ("ingested", |db, kvs| {
            (0..20).for_each(|n| kvs.delete(key_of(n)).unwrap());
            db.ingest().unwrap();
        }),
    ];
    fn key_of(n: u8) -> Vec<u8> {
        format!("k{n:02}").into_bytes()
    }
    fn rows(cursor: &mut esker_kv::Cursor, forward: bool) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let ends = if forward { cursor.seek_to_first() } else { cursor.seek_to_last() };
        ends.unwrap();
        while let Some((key, _)) = if forward { cursor.next() } else { cursor.prev() }.unwrap() {
            keys.push(key.to_vec());
        }
        if !forward {
            keys.reverse();
        }
        keys
    }
    for (what, delete) in deletes {
        for forward in [true, false] {
            let (db, kvss) = create(test_options(small_tuning()));
            let kvs = &kvss[0];
            (0..20).for_each(|n| kvs.put(key_of(n), b"value").unwrap());
            delete(&db, kvs);
            kvs.put(b"z", b"last").unwrap();
            for _ in 0..2 {
                assert_eq!(rows(&mut kvs.cursor().unwrap(), forward), [b"z"]);
            }
            let mut transaction = db.transaction();
            for n in [0, 9, 10, 19, 30] {
                transaction.delete(kvs, key_of(n)).unwrap();
            }
            transaction.put(kvs, key_of(5), b"own").unwrap();
            transaction.put(kvs, key_of(12), b"own").unwrap();
            transaction.delete(kvs, key_of(12)).unwrap();
            let mut cursor = transaction.cursor(kvs).unwrap();
            let (sends, came) = std::sync::mpsc::channel();
            let walk = thread::spawn("walks", move || {
                let _ = sends.send(rows(&mut cursor, forward));
            });
            let found = came.recv_timeout(Duration::from_secs(60));
            assert_eq!(found, Ok(vec![key_of(5), b"z".to_vec()]), "{what}, forward: {forward}");
            walk.unwrap().join().unwrap();
        }
    }
}
