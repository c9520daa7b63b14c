//! Lanes: calls that wait for the thread pool together, and go there as one piece of work.

use std::sync::{Arc, Mutex};

use esker_kv::{Batch, KvError, Readable as _, Snapshot, WriteOptions};
use napi::Env;
use napi::Result as JsResult;

use crate::error::of;
use crate::js::{Made, Packer};
use crate::opened::{Opened, lock};
use crate::range::Range;

/// Reads that wait.
#[derive(Default)]
pub(crate) struct Reads {
    keys: Vec<u8>,
    reads: Vec<Read>,
}

struct Read {
    key_end: usize,
    kind: ReadKind,
    snapshot: Option<Arc<Snapshot>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadKind {
    Text,
    Buffer,
    Has,
}

pub(crate) enum ReadResult {
    Value(Option<Vec<u8>>, bool),
    Has(bool),
    Error(KvError),
}

impl Reads {
    /// Adds one.
    pub(crate) fn push(&mut self, key: &[u8], kind: ReadKind, snapshot: Option<Arc<Snapshot>>) {
        self.keys.extend_from_slice(key);
        self.reads.push(Read { key_end: self.keys.len(), kind, snapshot });
    }

    /// Does all: values on media are read several at a time.
    pub(crate) fn run(&self, opened: &Opened) -> Vec<ReadResult> {
        let mut start = 0;
        let keys = self.reads.iter().map(|read| {
            let key = &self.keys[start..read.key_end];
            start = read.key_end;
            key
        });
        let keys: Vec<&[u8]> = keys.collect();
        let is_plain = |read: &Read| read.snapshot.is_none() && read.kind != ReadKind::Has;
        let mut plain = Vec::new();
        if self.reads.len() > 1 {
            plain.extend(
                self.reads
                    .iter()
                    .zip(&keys)
                    .filter(|(read, _)| is_plain(read))
                    .map(|(_, key)| *key),
            );
        }
        // Where one fails, each is tried for itself.
        let mut together =
            opened.kvs.get_many(&plain).ok().filter(|_| !plain.is_empty()).map(Vec::into_iter);
        let one = |(read, key): (&Read, &&[u8])| {
            let as_text = read.kind == ReadKind::Text;
            if is_plain(read)
                && let Some(found) = together.as_mut().and_then(Iterator::next)
            {
                return ReadResult::Value(found.map(Vec::from), as_text);
            }
            let (kvs, mut value) = (&opened.kvs, Vec::new());
            let found = match (&read.snapshot, read.kind) {
                (None, ReadKind::Has) => kvs.contains_key(key),
                (Some(snapshot), ReadKind::Has) => snapshot.contains_key(kvs, key),
                (None, _) => kvs.get_into(key, &mut value),
                (Some(snapshot), _) => snapshot.get_into(kvs, key, &mut value),
            };
            match (found, read.kind) {
                (Err(error), _) => ReadResult::Error(error),
                (Ok(has), ReadKind::Has) => ReadResult::Has(has),
                (Ok(found), _) => ReadResult::Value(found.then_some(value), as_text),
            }
        };
        self.reads.iter().zip(&keys).map(one).collect()
    }
}

/// The results of reads as an array.
pub(crate) fn packed(env: &Env, results: &[ReadResult]) -> JsResult<Made> {
    let mut packer = Packer::new(env, results.len())?;
    for result in results {
        match result {
            ReadResult::Value(Some(value), as_text) => packer.bytes(value, *as_text)?,
            ReadResult::Value(None, _) => packer.undefined(),
            ReadResult::Has(has) => packer.truth(*has)?,
            ReadResult::Error(error) => packer.push(&Made::error(env, of(error))),
        }
    }
    packer.finish()
}

/// Writes that wait, in the order in which they are done.
#[derive(Default)]
pub(crate) struct Writes {
    bytes: Vec<u8>,
    writes: Vec<Write>,
}

struct Write {
    change: Change,
    durable: bool,
}

enum Change {
    Put { key_end: usize, end: usize },
    Delete { end: usize },
    Batch(Batch),
    Clear(Range, Option<u32>, bool, Option<Arc<Snapshot>>),
}

impl Writes {
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], durable: bool) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.writes.push(Write { change: Change::Put { key_end, end: self.bytes.len() }, durable });
    }

    pub(crate) fn delete(&mut self, key: &[u8], durable: bool) {
        self.bytes.extend_from_slice(key);
        self.writes.push(Write { change: Change::Delete { end: self.bytes.len() }, durable });
    }

    pub(crate) fn batch(&mut self, batch: Batch, durable: bool) {
        self.writes.push(Write { change: Change::Batch(batch), durable });
    }

    pub(crate) fn clear(
        &mut self,
        range: Range,
        limit: Option<u32>,
        reverse: bool,
        snapshot: Option<Arc<Snapshot>>,
    ) {
        let change = Change::Clear(range, limit, reverse, snapshot);
        self.writes.push(Write { change, durable: false });
    }

    /// Does all, and makes those durable that are to be, together. Returns the errors with their places.
    pub(crate) fn run(&self, opened: &Opened) -> Vec<(u32, KvError)> {
        let Opened { db, kvs, .. } = opened;
        let (mut start, mut errors, mut durable) = (0, Vec::new(), Vec::new());
        // One alone is durable with its own write.
        let alone = if self.writes.len() == 1 && self.writes[0].durable {
            WriteOptions::durable()
        } else {
            WriteOptions::default()
        };
        for (index, write) in (0..).zip(&self.writes) {
            let mut is_durable = alone.durable;
            let done = match &write.change {
                Change::Put { key_end, end } => {
                    let (key, value) = (&self.bytes[start..*key_end], &self.bytes[*key_end..*end]);
                    start = *end;
                    kvs.put_with(key, value, &alone)
                }
                Change::Delete { end } => {
                    let key = &self.bytes[start..*end];
                    start = *end;
                    is_durable = false;
                    // No key is as long as that.
                    if key.len() > esker_kv::KEY_MAX { Ok(()) } else { kvs.delete(key) }
                }
                Change::Batch(batch) => db.write_with(batch, &alone),
                Change::Clear(range, limit, reverse, snapshot) => {
                    clear(opened, range, *limit, *reverse, snapshot.as_deref())
                }
            };
            match done {
                Ok(()) if write.durable && !is_durable => durable.push(index),
                Ok(()) => {}
                Err(error) => errors.push((index, error)),
            }
        }
        if !durable.is_empty()
            && let Err(error) = db.sync()
        {
            errors.extend(durable.into_iter().map(|index| (index, error.clone())));
        }
        errors
    }
}

/// `clear` deletes batches of so many keys, where it has to walk.
const CLEAR_KEYS: usize = 1024;

/// Deletes the keys of a range: with one record, or one by one where there is a limit or a snapshot.
fn clear(
    opened: &Opened,
    range: &Range,
    limit: Option<u32>,
    reverse: bool,
    snapshot: Option<&Snapshot>,
) -> Result<(), KvError> {
    let Opened { db, kvs, .. } = opened;
    if range.is_empty() {
        return Ok(());
    }
    if limit.is_none() && snapshot.is_none() {
        return kvs.delete_range(range.bounds());
    }
    let cursor = snapshot.map_or_else(|| kvs.cursor(), |snapshot| snapshot.cursor(kvs))?;
    let mut cursor = cursor.keys_only().range(range.bounds())?;
    if reverse {
        cursor.seek_to_last()?;
    }
    let (mut batch, mut left) = (Batch::new(), limit.unwrap_or(u32::MAX));
    while left > 0 {
        let row = if reverse { cursor.prev() } else { cursor.next() }?;
        let Some((key, _)) = row else { break };
        batch.delete(kvs, key);
        left = if limit.is_some() { left - 1 } else { left };
        if batch.len() == CLEAR_KEYS {
            db.write(&batch)?;
            batch.clear();
        }
    }
    db.write(&batch)
}

/// The errors of writes as an array of their places and themselves; `undefined` where there are none.
pub(crate) fn failed(env: &Env, errors: &[(u32, KvError)]) -> JsResult<Made> {
    if errors.is_empty() {
        return Made::undefined(env);
    }
    let mut packer = Packer::new(env, errors.len() * 2)?;
    for (index, error) in errors {
        packer.push(&Made::number(env, *index)?);
        packer.push(&Made::error(env, of(error)));
    }
    packer.finish()
}

/// Takes what waits.
pub(crate) fn take<T: Default>(waiting: &Mutex<T>) -> T {
    std::mem::take(&mut *lock(waiting))
}
