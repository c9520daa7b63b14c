//! The writes of each lane. Write `n`, from 1 on, is known from `n` and the lane's number alone, and
//! so is the state after it.
//!
//! Invariants
//! 1. The writes `n`, `n + KEYS`, `n + 2 KEYS`... of a lane, and no others, go to the same key.
//! 2. A write puts or deletes its key in both KVSs, and puts its `n` under the lane's mark.
//! 3. The sum is the number of transactions of all lanes that are there.

use std::collections::BTreeMap;

use esker_base::Rng;
use esker_kv::{Batch, KvError, Kvdb, Kvs, Readable};

/// The KVSs.
pub(crate) const NAMES: [&str; 2] = ["first", "second"];
/// How many threads write.
pub(crate) const LANES: u64 = 2;
/// The keys of a lane, and how far apart two writes' keys are: no common divisor.
pub(crate) const KEYS: u64 = 701;
const STRIDE: u64 = 337;
/// Every so many writes one is a transaction.
const TRANSACTION: u64 = 3;
const SUM: &[u8] = b"sum";

/// One lane's history.
#[derive(Clone, Copy)]
pub(crate) struct Lane(u64);

impl Lane {
    pub(crate) fn new(number: u64) -> Lane {
        Lane(number)
    }

    /// The key that says how far the history got, with the lane's knowledge of the others.
    fn mark(self) -> Vec<u8> {
        format!("mark-{}", self.0).into_bytes()
    }

    pub(crate) fn key(self, n: u64) -> Vec<u8> {
        format!("{}-{:06}", self.0, n * STRIDE % KEYS).into_bytes()
    }

    pub(crate) fn deletes(self, n: u64) -> bool {
        n % 13 == 5 + self.0
    }

    /// The value of write `n` in the KVS with this index: `n`, and bytes that follow from it.
    pub(crate) fn value(self, n: u64, kvs: u64) -> Vec<u8> {
        let mut rng = Rng::new(n << 8 | self.0 << 4 | kvs);
        // Some fit among the keys, most do not.
        let largest = [40, 1000, 8000, 8000][usize::try_from(rng.below(4)).unwrap()];
        let size = 8 + rng.below(largest);
        let mut value = vec![0; usize::try_from(size).unwrap()];
        rng.fill(&mut value[8..]);
        value[..8].copy_from_slice(&n.to_le_bytes());
        value
    }

    /// Write `n`, begun when the other lanes had had `others` acknowledged: the KVS, the key, and the value.
    fn writes(self, n: u64, others: [u64; 2]) -> Vec<(usize, Vec<u8>, Option<Vec<u8>>)> {
        let value = |which| (!self.deletes(n)).then(|| self.value(n, which));
        let mark: Vec<u8> =
            [n, others[0], others[1]].iter().flat_map(|word| word.to_le_bytes()).collect();
        vec![(0, self.key(n), value(0)), (1, self.key(n), value(1)), (1, self.mark(), Some(mark))]
    }

    /// Does write `n`: as a batch, or, every third one, as a transaction that also adds one to the sum,
    /// which the lanes contend for.
    pub(crate) fn write(
        self,
        db: &Kvdb,
        kvss: &[Kvs; 2],
        n: u64,
        others: [u64; 2],
    ) -> Result<(), KvError> {
        let writes = self.writes(n, others);
        if !n.is_multiple_of(TRANSACTION) {
            let mut batch = Batch::new();
            for (which, key, value) in &writes {
                match value {
                    Some(value) => batch.put(&kvss[*which], key, value),
                    None => batch.delete(&kvss[*which], key),
                }
            }
            return db.write(&batch);
        }
        loop {
            let mut transaction = db.transaction();
            for (which, key, value) in &writes {
                match value {
                    Some(value) => transaction.put(&kvss[*which], key, value)?,
                    None => transaction.delete(&kvss[*which], key)?,
                }
            }
            let sum = sum_in(transaction.get(&kvss[1], SUM)?.as_deref());
            transaction.put(&kvss[1], SUM, (sum + 1).to_le_bytes())?;
            match transaction.commit() {
                Err(KvError::TransactionConflict { .. }) => {} // the other lane was faster
                result => return result,
            }
        }
    }

    /// This lane's part of a KVS after write `state`, by key.
    fn expected(self, state: u64, kvs: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        // The last write of each key, and no other, still counts.
        let last_writes = (state.saturating_sub(KEYS) + 1)..=state;
        last_writes
            .filter(|&n| !self.deletes(n))
            .map(|n| (self.key(n), self.value(n, kvs)))
            .collect()
    }

    /// Compares all that `db` holds of this lane to the state after write `state`.
    pub(crate) fn compare(self, db: &Kvdb, state: u64) -> Result<(), String> {
        for (which, name) in (0..).zip(NAMES) {
            let mut expected = self.expected(state, which);
            let Ok(kvs) = db.kvs(name) else {
                if expected.is_empty() {
                    continue;
                }
                return Err(format!("KVS {name} is missing"));
            };
            let complain = |key: &[u8], what: &str| {
                let key = key.escape_ascii();
                Err(format!("state {state} of lane {}: KVS {name}, key {key}: {what}", self.0))
            };
            let mut cursor = kvs.cursor().map_err(|error| error.to_string())?;
            let prefix = format!("{}-", self.0).into_bytes();
            cursor.seek(&prefix).map_err(|error| error.to_string())?;
            while let Some((key, value)) = cursor.next().map_err(|error| error.to_string())? {
                if !key.starts_with(&prefix) {
                    break;
                }
                match expected.remove(key) {
                    None => {
                        return complain(key, "present, though it was deleted or never written");
                    }
                    Some(wanted) if wanted != value => {
                        let of = |value: &[u8]| value.first_chunk().map(|n| u64::from_le_bytes(*n));
                        let what =
                            format!("the value of write {:?}, not {:?}", of(value), of(&wanted));
                        return complain(key, &what);
                    }
                    Some(_) => {}
                }
                let got = kvs.get(key).map_err(|error| error.to_string())?;
                if got.as_deref() != Some(value) {
                    return complain(key, "a cursor and a get disagree");
                }
            }
            if let Some(key) = expected.keys().next() {
                return complain(key, "missing");
            }
        }
        Ok(())
    }
}

/// How far the history of a lane got in `db`.
pub(crate) fn state_of(db: &Kvdb, lane: u64) -> Result<u64, String> {
    Ok(mark_of(db, lane)?[0])
}

fn sum_in(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// Compares the sum to the one expected when the lanes have these states: a transaction that lost against
/// another and committed all the same would be missing in it.
pub(crate) fn check_sum(db: &Kvdb, states: [u64; 2]) -> Result<(), String> {
    let expected: u64 = states.iter().map(|state| state / TRANSACTION).sum();
    let Ok(kvs) = db.kvs(NAMES[1]) else {
        return if expected == 0 { Ok(()) } else { Err("the KVS of the sum is missing".into()) };
    };
    let sum = sum_in(kvs.get(SUM).map_err(|error| error.to_string())?.as_deref());
    if sum == expected {
        return Ok(());
    }
    Err(format!("{sum} transactions were added up, {expected} are there"))
}

/// How far it got, and the lane's knowledge then of all lanes.
pub(crate) fn mark_of(db: &Kvdb, lane: u64) -> Result<[u64; 3], String> {
    let Ok(kvs) = db.kvs(NAMES[1]) else {
        return Ok([0; 3]);
    };
    let mark = kvs.get(Lane(lane).mark()).map_err(|error| error.to_string())?;
    let Some(mark) = mark else {
        return Ok([0; 3]);
    };
    let words: Vec<u64> = mark
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    words.try_into().map_err(|_| format!("the mark of lane {lane} is no mark"))
}
