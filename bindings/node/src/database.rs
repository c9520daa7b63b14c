//! The calls that `index.js` and its neighbours make.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use esker_kv::{
    Batch, CompactRequest, KEY_MAX, KvError, Kvdb, Location, Medium, Options, Readable as _,
    Snapshot, VALUE_MAX,
};
use napi::Env;
use napi::Result as JsResult;
use napi::bindgen_prelude::{Either, External};
use napi_derive::napi;
use serde::Serialize;

use crate::error::{JsError, of};
use crate::js::{Bytes, Elements, Made, Pool};
use crate::lanes::{ReadKind, ReadResult, Reads, Writes, failed, packed, take};
use crate::opened::{Opened, lock};
use crate::range::{Bounds, Range};
use crate::rows::{Form, Walk};
use crate::work::{Promised, promised};

/// A database, and what waits for its lanes.
pub(crate) struct Database {
    opened: Arc<Opened>,
    reads: Mutex<Reads>,
    writes: Mutex<Writes>,
}

type Handle = External<Arc<Database>>;
type SnapshotHandle = External<Mutex<Option<Arc<Snapshot>>>>;
type WalkHandle = External<Arc<Walk>>;

// ---- opening and closing ---------------------------------------------------------------------------

/// How a database is opened.
#[napi(object, object_to_js = false)]
pub(crate) struct OpenOptions {
    pub create_if_missing: bool,
    pub error_if_exists: bool,
    pub read_only: Option<bool>,
    pub memory_bytes: Option<f64>,
    pub durability_ms: Option<f64>,
    pub durability_bytes: Option<f64>,
    pub space_amplification: Option<f64>,
    pub staging: Option<Either<bool, String>>,
    pub capacity: Option<String>,
}

/// A number of bytes or milliseconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // in range by the check
fn whole(name: &str, number: Option<f64>, default: u64) -> Result<u64, KvError> {
    match number {
        None => Ok(default),
        Some(number) if number >= 0.0 && number.fract() == 0.0 && number < 9e15 => {
            Ok(number as u64)
        }
        Some(number) => Err(KvError::Options(format!(
            "{name} is a whole number of at least 0, and not {number}"
        ))),
    }
}

fn location(path: &str, options: &OpenOptions) -> Location {
    let mut location = Location::dir(path);
    match &options.staging {
        Some(Either::A(true)) => location = location.staging(Medium::InDir),
        Some(Either::B(path)) => location = location.staging(Medium::Path(path.into())),
        Some(Either::A(false)) | None => {}
    }
    match &options.capacity {
        Some(path) => location.capacity(Medium::Path(path.into())),
        None => location,
    }
}

fn options(from: &OpenOptions) -> Result<Options, KvError> {
    let mut options = Options::default();
    options.memory_bytes = whole("memoryBytes", from.memory_bytes, options.memory_bytes)?;
    let durability = &mut options.durability;
    durability.ms = whole("durabilityMs", from.durability_ms, durability.ms)?;
    durability.bytes = whole("durabilityBytes", from.durability_bytes, durability.bytes)?;
    options.space_amplification = from.space_amplification.unwrap_or(options.space_amplification);
    Ok(options)
}

fn open_now(path: &str, from: &OpenOptions) -> Result<Opened, KvError> {
    let read_only = from.read_only == Some(true);
    let dir = Path::new(path);
    if dir.join("CURRENT").exists() {
        let why = "there is a database of LevelDB here: give another directory, and copy its entries to that, for example \
                   with the iterator of classic-level";
        return Err(KvError::Exists { path: dir.into(), why: why.into() });
    }
    let builder = Kvdb::builder(location(path, from)).options(options(from)?);
    let db = match (read_only, from.create_if_missing, from.error_if_exists) {
        (true, _, _) => builder.open_read_only(),
        (false, true, true) => builder.create(),
        (false, true, false) => {
            if let Some(parent) = dir.parent() {
                // Where this fails, the engine says why.
                let _ = std::fs::create_dir_all(parent);
            }
            builder.open_or_create()
        }
        (false, false, false) => builder.open(),
        // One that is opened successfully exists.
        (false, false, true) => {
            builder.open()?.close()?;
            let why = "it exists, and errorIfExists is true".into();
            return Err(KvError::Exists { path: dir.into(), why });
        }
    };
    let db = db.map_err(|error| match error {
        KvError::NotAKvdb { path, why } => KvError::NotAKvdb {
            path,
            why: format!("{why}; it does not exist, and createIfMissing is false"),
        },
        KvError::Exists { path, why } => {
            KvError::Exists { path, why: format!("{why}; it exists, and errorIfExists is true") }
        }
        other => other,
    })?;
    Opened::of(db, read_only)
}

/// Opens a database.
#[napi]
pub(crate) fn open(path: String, options: OpenOptions) -> Promised<Opened> {
    promised(
        move || open_now(&path, &options),
        |env, opened| {
            let (opened, reads, writes) = (Arc::new(opened), Mutex::default(), Mutex::default());
            Made::external(env, Arc::new(Database { opened, reads, writes }))
        },
    )
}

/// Makes all writes durable and closes.
#[napi]
pub(crate) fn close(database: &Handle) -> Promised<()> {
    let opened = database.opened.clone();
    promised(move || opened.db.close(), |env, ()| Made::undefined(env))
}

/// Removes a database with all it holds.
#[napi]
pub(crate) fn destroy(path: String) -> Promised<()> {
    promised(move || Kvdb::builder(&path).destroy(), |env, ()| Made::undefined(env))
}

// ---- reads -----------------------------------------------------------------------------------------

fn held(snapshot: Option<&SnapshotHandle>) -> Result<Option<Arc<Snapshot>>, JsError> {
    let Some(snapshot) = snapshot else { return Ok(None) };
    let held = lock(snapshot).clone();
    held.map(Some).ok_or_else(|| {
        let why = "Snapshot is not open: cannot use snapshot after close()";
        napi::Error::new("LEVEL_SNAPSHOT_NOT_OPEN".to_owned(), why)
    })
}

fn kind(as_text: bool) -> ReadKind {
    if as_text { ReadKind::Text } else { ReadKind::Buffer }
}

/// Reads a value at once if it is in memory, as `get_sync` does; else `true`, and the read waits for `run_reads`.
#[napi]
pub(crate) fn get(
    env: &Env,
    database: &Handle,
    key: Bytes,
    pool: Option<Pool>,
) -> Result<Made, JsError> {
    let mut value = Vec::new();
    let found = database.opened.kvs.get_in_memory(&key.0, &mut value);
    let Some(found) = found.map_err(|error| of(&error))? else {
        lock(&database.reads).push(&key.0, kind(pool.is_none()), None);
        return Made::truth(env, true).map_err(invalid);
    };
    given(env, found.then_some(&value), pool)
}

/// Has a read wait for `run_reads`: of a value as a string or a buffer, or of whether there is one.
#[napi]
pub(crate) fn queue_get(
    database: &Handle,
    key: Bytes,
    as_text: Option<bool>,
    snapshot: Option<&SnapshotHandle>,
) -> Result<(), JsError> {
    let kind = as_text.map_or(ReadKind::Has, kind);
    lock(&database.reads).push(&key.0, kind, held(snapshot)?);
    Ok(())
}

/// Does the reads that wait: an array of their results.
#[napi]
pub(crate) fn run_reads(database: &Handle) -> Promised<Vec<ReadResult>> {
    let (reads, opened) = (take(&database.reads), database.opened.clone());
    promised(move || Ok(reads.run(&opened)), |env, results| packed(env, &results))
}

/// Reads many keys: an array of their results.
#[napi]
pub(crate) fn get_many(
    database: &Handle,
    keys: Elements,
    as_text: Option<bool>,
    snapshot: Option<&SnapshotHandle>,
) -> Result<Promised<Vec<ReadResult>>, JsError> {
    let (mut reads, mut key) = (Reads::default(), Vec::new());
    let (kind, snapshot) = (as_text.map_or(ReadKind::Has, kind), held(snapshot)?);
    for index in 0..keys.len() {
        key.clear();
        keys.append(index, &mut key).map_err(invalid)?;
        reads.push(&key, kind, snapshot.clone());
    }
    let opened = database.opened.clone();
    Ok(promised(move || Ok(reads.run(&opened)), |env, results| packed(env, &results)))
}

fn invalid(error: napi::Error) -> JsError {
    napi::Error::new("ESKER_INVALID".to_owned(), error.reason.clone())
}

/// Reads a value at once: a string, a buffer, or where the buffer is in the pool that the caller gives: its length.
#[napi]
pub(crate) fn get_sync(
    env: &Env,
    database: &Handle,
    key: Bytes,
    pool: Option<Pool>,
    snapshot: Option<&SnapshotHandle>,
) -> Result<Made, JsError> {
    let mut value = Vec::new();
    let opened = &database.opened;
    let found = match held(snapshot)? {
        None => opened.kvs.get_into(&key.0, &mut value),
        Some(snapshot) => snapshot.get_into(&opened.kvs, &key.0, &mut value),
    };
    let found = found.map_err(|error| of(&error))?;
    given(env, found.then_some(&value), pool)
}

/// A value for a caller that has a pool for buffers, or wants strings.
fn given(env: &Env, value: Option<&Vec<u8>>, pool: Option<Pool>) -> Result<Made, JsError> {
    let made = match (value, pool) {
        (None, _) => Made::undefined(env),
        (Some(value), None) => Made::string(env, value),
        (Some(value), Some(mut pool)) => pool.give(env, value),
    };
    made.map_err(invalid)
}

// ---- writes ----------------------------------------------------------------------------------------

fn check(key: &[u8], value: &[u8]) -> Result<(), JsError> {
    if key.len() > KEY_MAX {
        return Err(of(&KvError::KeyLength(key.len())));
    }
    if value.len() > VALUE_MAX {
        return Err(of(&KvError::ValueLength(value.len())));
    }
    Ok(())
}

/// Has a put, or without a value a delete, wait for `run_writes`.
#[napi]
pub(crate) fn queue_write(
    database: &Handle,
    key: Bytes,
    value: Option<Bytes>,
    durable: bool,
) -> Result<(), JsError> {
    match value {
        Some(value) => {
            check(&key.0, &value.0)?;
            lock(&database.writes).put(&key.0, &value.0, durable);
        }
        None => lock(&database.writes).delete(&key.0, durable),
    }
    Ok(())
}

/// Has a batch wait for `run_writes`: its keys and values in turn, `undefined` where a key is deleted.
#[napi]
pub(crate) fn queue_batch(database: &Handle, rows: Elements, durable: bool) -> Result<(), JsError> {
    let (kvs, mut batch) = (&database.opened.kvs, Batch::new());
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for index in (0..rows.len()).step_by(2) {
        key.clear();
        value.clear();
        rows.append(index, &mut key).map_err(invalid)?;
        if rows.append(index + 1, &mut value).map_err(invalid)? {
            check(&key, &value)?;
            batch.put(kvs, &key, &value);
        } else if key.len() <= KEY_MAX {
            batch.delete(kvs, &key);
        }
    }
    lock(&database.writes).batch(batch, durable);
    Ok(())
}

/// Has the deletion of a range wait for `run_writes`.
#[napi]
pub(crate) fn queue_clear(
    database: &Handle,
    bounds: Bounds,
    reverse: bool,
    limit: Option<u32>,
    snapshot: Option<&SnapshotHandle>,
) -> Result<(), JsError> {
    lock(&database.writes).clear(Range::of(bounds), limit, reverse, held(snapshot)?);
    Ok(())
}

/// Does the writes that wait: an array of places and errors, or `undefined`.
#[napi]
pub(crate) fn run_writes(database: &Handle) -> Promised<Vec<(u32, KvError)>> {
    let (writes, opened) = (take(&database.writes), database.opened.clone());
    promised(move || Ok(writes.run(&opened)), |env, errors| failed(env, &errors))
}

// ---- snapshots and iterators -----------------------------------------------------------------------

/// The database as it is now.
#[napi]
pub(crate) fn snapshot(database: &Handle) -> SnapshotHandle {
    External::new(Mutex::new(Some(Arc::new(database.opened.db.snapshot()))))
}

/// Lets go of the data that a snapshot keeps.
#[napi]
pub(crate) fn snapshot_close(snapshot: &SnapshotHandle) {
    drop(lock(snapshot).take());
}

/// How an iterator goes.
#[napi(object, object_to_js = false)]
pub(crate) struct IteratorOptions {
    pub reverse: bool,
    pub keys: bool,
    pub values: bool,
    pub text_keys: bool,
    pub text_values: bool,
    pub bytes_max: u32,
}

/// An iterator over the database, or a snapshot, as it is now; none where the snapshot is closed.
#[napi]
pub(crate) fn iterator(
    database: &Handle,
    bounds: Bounds,
    options: IteratorOptions,
    snapshot: Option<&SnapshotHandle>,
) -> Result<Option<WalkHandle>, JsError> {
    let kvs = &database.opened.kvs;
    let cursor = match held(snapshot) {
        Ok(None) => kvs.cursor(),
        Ok(Some(snapshot)) => snapshot.cursor(kvs),
        Err(_) => return Ok(None),
    };
    let IteratorOptions { reverse, keys, values, text_keys, text_values, bytes_max } = options;
    let form = Form { keys, values, text_keys, text_values };
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let cursor = cursor.map_err(|error| of(&error))?;
    let walk = Walk::new(cursor, Range::of(bounds), (reverse, bytes_max, form));
    Ok(Some(External::new(walk)))
}

/// Reads rows: whether the iterator has ended, and then keys and values in turn.
#[napi]
pub(crate) fn iterator_read(
    iterator: &WalkHandle,
    most: u32,
    target: Option<Bytes>,
) -> Promised<(crate::rows::Rows, Form)> {
    let walk = WalkHandle::as_ref(iterator).clone();
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    promised(
        move || {
            let target = target.as_ref().map(|target| target.0.as_slice());
            Ok((walk.read(most, target)?, walk.form))
        },
        |env, (rows, form)| rows.packed(env, form),
    )
}

/// Lets go of the data that an iterator may read.
#[napi]
pub(crate) fn iterator_close(iterator: &WalkHandle) {
    iterator.close();
}

// ---- the whole database ----------------------------------------------------------------------------

/// A report as JSON.
fn json(report: &impl Serialize) -> Result<String, KvError> {
    serde_json::to_string(report)
        .map_err(|why| KvError::Options(format!("a report has no form as JSON: {why}")))
}

fn text(env: &Env, text: String) -> JsResult<Made> {
    Made::string(env, text.as_bytes())
}

/// Makes everything written so far durable.
#[napi]
pub(crate) fn sync(database: &Handle) -> Promised<()> {
    let opened = database.opened.clone();
    promised(move || opened.db.sync(), |env, ()| Made::undefined(env))
}

/// The figures now, as JSON.
#[napi]
pub(crate) fn stats(database: &Handle) -> Promised<String> {
    let opened = database.opened.clone();
    promised(move || json(&opened.db.stats()), text)
}

/// Warnings for the user, as JSON.
#[napi]
pub(crate) fn remarks(database: &Handle) -> Promised<String> {
    let opened = database.opened.clone();
    promised(move || json(&opened.db.remarks()), text)
}

/// Merges and moves all data; with `scrub`, what was deleted is erased.
#[napi]
pub(crate) fn compact(database: &Handle, scrub: bool) -> Promised<String> {
    let opened = database.opened.clone();
    let request = if scrub { CompactRequest::Scrub } else { CompactRequest::Full };
    promised(move || json(&opened.db.compact(request)?), text)
}

/// Copies the database to another directory.
#[napi]
pub(crate) fn backup(database: &Handle, to: String) -> Promised<String> {
    let opened = database.opened.clone();
    promised(move || json(&opened.db.backup(&Location::dir(to))?), text)
}

/// Verifies the database in a directory.
#[napi]
pub(crate) fn check_at(path: String) -> Promised<String> {
    promised(move || json(&Kvdb::builder(&path).check()?), text)
}

/// Writes all sound data of a damaged database to a new one.
#[napi]
pub(crate) fn repair(path: String, to: String) -> Promised<String> {
    promised(
        move || {
            let remains = Location::dir(PathBuf::from(path)).remains()?;
            json(&Kvdb::builder(&to).repair(&remains)?)
        },
        text,
    )
}
