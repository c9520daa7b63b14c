//! Transactions: reads of one moment, and writes that happen all or not at all.

#![allow(unsafe_code)]

use std::ffi::c_void;

use esker_kv::{KvError, Kvs, Readable, Transaction as EngineTransaction};

use crate::border::{Exclusive, Handle, border, free, put, the, wanted};
use crate::bytes::{Range, Slice, Value, bytes, limits};
use crate::error::{ESKER_CLOSED, Error, Result};
use crate::iter::{Iter, IterSettings, begin};
use crate::kvs::{KvsHandle, asks, get_to_buffer, get_value, get_values, write_options};

/// A transaction with snapshot isolation, for one thread at a time. Its reads see the KVDB as it was when it began, with
/// its own writes. The caller owns it, and frees it with `esker_txn_free`, which forgets what was not committed.
pub struct Transaction;

impl Handle for Transaction {
    /// None once it was committed.
    type Of = Exclusive<Option<EngineTransaction>>;
    const TAG: u64 = u64::from_le_bytes(*b"esk.txn.");
    const NAME: &'static str = "esker_txn";
}

fn ended() -> Error {
    Error::new(ESKER_CLOSED, "the transaction was committed, or that was tried: begin another one")
}

/// # Safety
/// Both are null or live.
unsafe fn within<R>(
    txn: *const Transaction,
    kvs: *const KvsHandle,
    work: impl FnOnce(&mut EngineTransaction, &Kvs) -> Result<R>,
) -> Result<R> {
    // SAFETY: the caller's promise.
    let (txn, kvs) = unsafe { (the(txn)?, the(kvs)?) };
    txn.with(|txn| work(txn.as_mut().ok_or_else(ended)?, &kvs.kvs))
}

/// Commits a transaction: all of its writes or none. `flags` are 0 or `ESKER_DURABLE`. `ESKER_TRANSACTION_CONFLICT` says
/// that someone else wrote one of its keys since it began. It has ended in any case, and is to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_commit(txn: *mut Transaction, flags: u32) -> *mut Error {
    border(|| {
        let options = write_options(flags)?;
        // SAFETY: null or live, as the header demands.
        let txn = unsafe { the(txn.cast_const())? };
        let txn = txn.with(|txn| txn.take().ok_or_else(ended))?;
        Ok(txn.commit_with(&options)?)
    })
}

/// Frees a transaction, and forgets its writes unless it was committed. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_free(txn: *mut Transaction) {
    // SAFETY: null, or a transaction that the caller gives up.
    unsafe { free(txn) };
}

/// As `esker_put`, when the transaction is committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_put(
    txn: *mut Transaction,
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        unsafe {
            let (key, value) = (bytes(key, key_size, "key")?, bytes(value, value_size, "value")?);
            within(txn, kvs, |txn, kvs| Ok(txn.put(kvs, key, value)?))
        }
    })
}

/// As `esker_delete`, when the transaction is committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_delete(
    txn: *mut Transaction,
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        unsafe {
            let key = bytes(key, key_size, "key")?;
            within(txn, kvs, |txn, kvs| Ok(txn.delete(kvs, key)?))
        }
    })
}

/// As `esker_delete_prefix`, when the transaction is committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_delete_prefix(
    txn: *mut Transaction,
    kvs: *const KvsHandle,
    prefix: *const c_void,
    prefix_size: usize,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        unsafe {
            let prefix = bytes(prefix, prefix_size, "prefix")?;
            within(txn, kvs, |txn, kvs| Ok(txn.delete_prefix(kvs, prefix)?))
        }
    })
}

/// As `esker_delete_range`, when the transaction is committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_delete_range(
    txn: *mut Transaction,
    kvs: *const KvsHandle,
    range: *const Range,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        unsafe {
            let range = limits(range)?;
            within(txn, kvs, |txn, kvs| Ok(txn.delete_range::<&[u8]>(kvs, range)?))
        }
    })
}

/// As `esker_get`, within a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_get(
    txn: *const Transaction,
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    value: *mut Value,
) -> *mut Error {
    border(|| {
        let read = |txn: &mut EngineTransaction, kvs: &Kvs| {
            // SAFETY: null, readable and writable, as the header demands.
            unsafe { get_value((key, key_size), value, |key, value| txn.get_into(kvs, key, value)) }
        };
        // SAFETY: null or live, as the header demands.
        unsafe { within(txn, kvs, read) }
    })
}

/// As `esker_get_into`, within a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_get_into(
    txn: *const Transaction,
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    buffer: *mut c_void,
    capacity: usize,
    size: *mut usize,
    found: *mut bool,
) -> *mut Error {
    border(|| {
        let read = |txn: &mut EngineTransaction, kvs: &Kvs| {
            let read = |key: &[u8], buffer: &mut [u8]| txn.get_to_buffer(kvs, key, buffer);
            // SAFETY: null, readable and writable, as the header demands.
            unsafe { get_to_buffer((key, key_size), (buffer, capacity), (size, found), read) }
        };
        // SAFETY: null or live, as the header demands.
        unsafe { within(txn, kvs, read) }
    })
}

/// As `esker_get`; committing fails when someone else has written the key since the beginning, as if it were written here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_get_for_update(
    txn: *mut Transaction,
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    value: *mut Value,
) -> *mut Error {
    border(|| {
        let value = wanted(value, "value")?;
        // SAFETY: null or live, readable and writable, as the header demands.
        unsafe {
            let key = bytes(key, key_size, "key")?;
            let found = within(txn, kvs, |txn, kvs| Ok(txn.get_for_update(kvs, key)?))?;
            put(value, "value", Value::maybe(found.map(Vec::from)))
        }
    })
}

/// As `esker_get_many`, within a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_get_many(
    txn: *const Transaction,
    kvs: *const KvsHandle,
    keys: *const Slice,
    count: usize,
    values: *mut Value,
) -> *mut Error {
    border(|| {
        let read = |txn: &mut EngineTransaction, kvs: &Kvs| {
            // SAFETY: null, readable and writable, as the header demands.
            unsafe { get_values((keys, count), values, |keys| txn.get_many(kvs, keys)) }
        };
        // SAFETY: null or live, as the header demands.
        unsafe { within(txn, kvs, read) }
    })
}

/// # Safety
/// As [`asks`], and both handles are null or live.
unsafe fn ask_within(
    (txn, kvs): (*const Transaction, *const KvsHandle),
    key: (*const c_void, usize),
    answer: *mut bool,
    ask: impl FnOnce(&EngineTransaction, &Kvs, &[u8]) -> Result<bool, KvError>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { within(txn, kvs, |txn, kvs| asks(key, answer, |key| ask(txn, kvs, key))) }
}

/// As `esker_contains`, within a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_contains(
    txn: *const Transaction,
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    found: *mut bool,
) -> *mut Error {
    // SAFETY: null or live, readable and writable, as the header demands.
    border(|| unsafe {
        ask_within((txn, kvs), (key, key_size), found, |txn, kvs, key| txn.contains_key(kvs, key))
    })
}

/// Says whether someone else has written a key since the transaction began: then committing a write of it would fail.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_is_changed(
    txn: *const Transaction,
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    changed: *mut bool,
) -> *mut Error {
    // SAFETY: null or live, readable and writable, as the header demands.
    border(|| unsafe {
        ask_within((txn, kvs), (key, key_size), changed, |txn, kvs, key| txn.is_changed(kvs, key))
    })
}

/// As `esker_iter_new`, within a transaction: over its writes until now, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_txn_iter(
    txn: *const Transaction,
    kvs: *const KvsHandle,
    settings: *const IterSettings,
    iter: *mut *mut Iter,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, readable and writable, as the header demands.
        unsafe { within(txn, kvs, |txn, kvs| begin(|| txn.cursor(kvs), settings, iter)) }
    })
}
