//! Batches: writes to any KVSs of one KVDB that happen all or not at all.

#![allow(unsafe_code)]

use std::ffi::c_void;

use esker_kv::{Batch as EngineBatch, Kvs};

use crate::border::{Exclusive, Handle, border, free, give, the};
use crate::bytes::{Range, bytes, limits};
use crate::error::{Error, Result};
use crate::kvs::KvsHandle;

/// Writes that happen all or not at all, for one thread at a time. The caller owns it, and frees it with
/// `esker_batch_free`. It keeps its writes when it is written.
pub struct Batch;

impl Handle for Batch {
    type Of = Exclusive<EngineBatch>;
    const TAG: u64 = u64::from_le_bytes(*b"esk.btch");
    const NAME: &'static str = "esker_batch";
}

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_new() -> *mut Batch {
    give(Exclusive::new(EngineBatch::new()))
}

/// Frees a batch. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_free(batch: *mut Batch) {
    // SAFETY: null, or a batch that the caller gives up.
    unsafe { free(batch) };
}

/// # Safety
/// Both are null or live.
unsafe fn add(
    batch: *mut Batch,
    kvs: *const KvsHandle,
    add: impl FnOnce(&mut EngineBatch, &Kvs) -> Result<()>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let (batch, kvs) = unsafe { (the(batch.cast_const())?, the(kvs)?) };
    batch.with(|batch| add(batch, &kvs.kvs))
}

/// Adds a put. Of several writes to one key, the last one counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_put(
    batch: *mut Batch,
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
            add(batch, kvs, |batch, kvs| {
                batch.put(kvs, key, value);
                Ok(())
            })
        }
    })
}

/// Adds a delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_delete(
    batch: *mut Batch,
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        unsafe {
            let key = bytes(key, key_size, "key")?;
            add(batch, kvs, |batch, kvs| {
                batch.delete(kvs, key);
                Ok(())
            })
        }
    })
}

/// Adds a delete of all keys that begin with a prefix: those of earlier writes of the batch, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_delete_prefix(
    batch: *mut Batch,
    kvs: *const KvsHandle,
    prefix: *const c_void,
    prefix_size: usize,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        unsafe {
            let prefix = bytes(prefix, prefix_size, "prefix")?;
            add(batch, kvs, |batch, kvs| {
                batch.delete_prefix(kvs, prefix);
                Ok(())
            })
        }
    })
}

/// Adds a delete of all keys of a range: those of earlier writes of the batch, too. A range that ends before it begins is
/// refused when the batch is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_delete_range(
    batch: *mut Batch,
    kvs: *const KvsHandle,
    range: *const Range,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        unsafe {
            let range = limits(range)?;
            add(batch, kvs, |batch, kvs| {
                batch.delete_range::<&[u8]>(kvs, range);
                Ok(())
            })
        }
    })
}

/// Removes all writes from a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_clear(batch: *mut Batch) -> *mut Error {
    let clear = |batch: &mut EngineBatch| {
        batch.clear();
        Ok(())
    };
    // SAFETY: null or live, as the header demands.
    border(|| unsafe { the(batch.cast_const())? }.with(clear))
}

/// How many writes a batch holds; 0 for what is no batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_size(batch: *const Batch) -> usize {
    // SAFETY: null or live, as the header demands.
    let size = unsafe { the(batch) }.and_then(|batch| batch.with(|batch| Ok(batch.len())));
    size.unwrap_or(0)
}
