//! A KVDB: opening and closing it, its KVSs, batches, snapshots and transactions of it.

#![allow(unsafe_code)]

use std::ffi::c_char;

use esker_kv::{Builder, Kvdb};

use crate::batch::Batch;
use crate::border::{Exclusive, Handle, border, free, give, put, the, wanted};
use crate::bytes::{Value, text};
use crate::error::{Error, Result};
use crate::kvs::{KvsHandle, named, write_options};
use crate::list::{List, list};
use crate::options::{KvsSettings, Options, builder, kvs_options};
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;

/// The longest key, in bytes.
pub const ESKER_KEY_MAX: usize = 1344;
/// The longest value, in bytes.
pub const ESKER_VALUE_MAX: usize = 1_048_576;
/// The longest name of a KVS, in bytes.
pub const ESKER_KVS_NAME_MAX: usize = 255;
/// The most metadata of a KVS, in bytes.
pub const ESKER_METADATA_MAX: usize = 4096;

const _: () = {
    assert!(ESKER_KEY_MAX == esker_kv::KEY_MAX && ESKER_VALUE_MAX == esker_kv::VALUE_MAX);
    assert!(ESKER_KVS_NAME_MAX == esker_kv::KVS_NAME_MAX);
    assert!(ESKER_METADATA_MAX == esker_kv::METADATA_MAX);
};

/// An open KVDB, used from any thread. The caller owns the handle, closes the KVDB with `esker_close`, and frees the handle
/// with `esker_db_free`.
pub struct Db;

impl Handle for Db {
    type Of = Kvdb;
    const TAG: u64 = u64::from_le_bytes(*b"esk.kvdb");
    const NAME: &'static str = "esker_db";
}

/// # Safety
/// `dir` is a text or null, the options are null or live, `db` is null or writable.
unsafe fn open(
    dir: *const c_char,
    options: *const Options,
    db: *mut *mut Db,
    open: impl FnOnce(Builder) -> esker_kv::Result<Kvdb>,
) -> Result<()> {
    let db = wanted(db, "db")?;
    // SAFETY: the caller's promise.
    unsafe { put(db, "db", give(open(builder(dir, options)?)?)) }
}

/// The version of the library: "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn esker_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Opens the KVDB in a directory. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_open(
    dir: *const c_char,
    options: *const Options,
    db: *mut *mut Db,
) -> *mut Error {
    // SAFETY: null, texts, live and writable, as the header demands.
    border(|| unsafe { open(dir, options, db, Builder::open) })
}

/// Opens the KVDB in a directory, or makes it where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_open_or_create(
    dir: *const c_char,
    options: *const Options,
    db: *mut *mut Db,
) -> *mut Error {
    // SAFETY: null, texts, live and writable, as the header demands.
    border(|| unsafe { open(dir, options, db, Builder::open_or_create) })
}

/// Opens the KVDB in a directory to read: several processes may, as long as nobody has it open to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_open_read_only(
    dir: *const c_char,
    options: *const Options,
    db: *mut *mut Db,
) -> *mut Error {
    // SAFETY: null, texts, live and writable, as the header demands.
    border(|| unsafe { open(dir, options, db, Builder::open_read_only) })
}

/// Makes a KVDB in a directory, and opens it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_create(
    dir: *const c_char,
    options: *const Options,
    db: *mut *mut Db,
) -> *mut Error {
    // SAFETY: null, texts, live and writable, as the header demands.
    border(|| unsafe { open(dir, options, db, Builder::create) })
}

/// Closes a KVDB: all that was written is durable then, or the error says why not. Its other handles answer `ESKER_CLOSED`
/// from then on, also to calls of other threads that are under way. Another call has the same result. The handle is still
/// to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_close(db: *const Db) -> *mut Error {
    // SAFETY: null or live, as the header demands.
    border(|| Ok(unsafe { the(db)? }.close()?))
}

/// Frees the handle of a KVDB. One that is not closed is closed, and errors of that are lost. Handles of its KVSs,
/// iterators, snapshots and transactions are freed by themselves, before or after. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_db_free(db: *mut Db) {
    // SAFETY: null, or a handle that the caller gives up.
    unsafe { free(db) };
}

/// The KVS of a name. `ESKER_NOT_FOUND` where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_open(
    db: *const Db,
    name: *const c_char,
    kvs: *mut *mut KvsHandle,
) -> *mut Error {
    border(|| {
        let kvs = wanted(kvs, "kvs")?;
        // SAFETY: null or live, texts and writable, as the header demands.
        unsafe { put(kvs, "kvs", named(the(db)?.kvs(text(name, "name")?)?)) }
    })
}

/// Creates a KVS. `settings` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_create(
    db: *const Db,
    name: *const c_char,
    settings: *const KvsSettings,
    kvs: *mut *mut KvsHandle,
) -> *mut Error {
    border(|| {
        let kvs = wanted(kvs, "kvs")?;
        // SAFETY: null or live, texts and writable, as the header demands.
        unsafe {
            let (db, name, options) = (the(db)?, text(name, "name")?, kvs_options(settings)?);
            put(kvs, "kvs", named(db.create_kvs(name, options)?))
        }
    })
}

/// The KVS of a name, which is created with these settings where there is none. One that is there keeps its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_open_or_create(
    db: *const Db,
    name: *const c_char,
    settings: *const KvsSettings,
    kvs: *mut *mut KvsHandle,
) -> *mut Error {
    border(|| {
        let kvs = wanted(kvs, "kvs")?;
        // SAFETY: null or live, texts and writable, as the header demands.
        unsafe {
            let (db, name, options) = (the(db)?, text(name, "name")?, kvs_options(settings)?);
            put(kvs, "kvs", named(db.kvs_or_create(name, options)?))
        }
    })
}

/// Drops a KVS with all it holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_drop(db: *const Db, name: *const c_char) -> *mut Error {
    // SAFETY: null or live, and a text, as the header demands.
    border(|| Ok(unsafe { the(db)?.drop_kvs(text(name, "name")?) }?))
}

/// The names of all KVSs, in the order of their creation, in a list that the caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_names(db: *const Db, names: *mut *mut List) -> *mut Error {
    border(|| {
        let names = wanted(names, "names")?;
        // SAFETY: null or live, and writable, as the header demands.
        unsafe { put(names, "names", list(the(db)?.kvs_names())) }
    })
}

/// Writes a batch: all of it or nothing, now and after a crash. `flags` are 0 or `ESKER_DURABLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_write(db: *const Db, batch: *const Batch, flags: u32) -> *mut Error {
    border(|| {
        let options = write_options(flags)?;
        // SAFETY: null or live, as the header demands.
        let (db, batch) = unsafe { (the(db)?, the(batch)?) };
        batch.with(|batch| Ok(db.write_with(batch, &options)?))
    })
}

/// Makes everything written so far durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_sync(db: *const Db) -> *mut Error {
    // SAFETY: null or live, as the header demands.
    border(|| Ok(unsafe { the(db)? }.sync()?))
}

/// Makes a snapshot, which the caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_snapshot_new(
    db: *const Db,
    snapshot: *mut *mut Snapshot,
) -> *mut Error {
    border(|| {
        let snapshot = wanted(snapshot, "snapshot")?;
        // SAFETY: null or live, and writable, as the header demands.
        unsafe { put(snapshot, "snapshot", give(the(db)?.snapshot())) }
    })
}

/// Begins a transaction, which the caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_begin(db: *const Db, txn: *mut *mut Transaction) -> *mut Error {
    border(|| {
        let txn = wanted(txn, "txn")?;
        // SAFETY: null or live, and writable, as the header demands.
        unsafe { put(txn, "txn", give(Exclusive::new(Some(the(db)?.transaction())))) }
    })
}

/// Statistics as JSON, which the caller frees. `version` is the number of its form, 1; fields may be added to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_stats(db: *const Db, json: *mut Value) -> *mut Error {
    border(|| {
        let json = wanted(json, "json")?;
        // SAFETY: null or live, and writable, as the header demands.
        unsafe { put(json, "json", Value::of_json("stats", &the(db)?.stats())?) }
    })
}

/// Remarks about how devices were opened, about damage, and about readers that keep much space, in a list that the caller
/// frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_remarks(db: *const Db, remarks: *mut *mut List) -> *mut Error {
    border(|| {
        let remarks = wanted(remarks, "remarks")?;
        // SAFETY: null or live, and writable, as the header demands.
        unsafe { put(remarks, "remarks", list(the(db)?.remarks())) }
    })
}

/// The version of the on-media format that a KVDB has; 0 for what is no KVDB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_format_version(db: *const Db) -> u32 {
    // SAFETY: null or live, as the header demands.
    unsafe { the(db) }.map_or(0, |db| db.format_version().into())
}
