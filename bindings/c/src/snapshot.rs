//! Snapshots: all KVSs as they were at one moment.

#![allow(unsafe_code)]

use std::ffi::c_void;

use esker_kv::{Readable, Snapshot as EngineSnapshot};

use crate::border::{Handle, border, free, the};
use crate::bytes::{Slice, Value};
use crate::error::Error;
use crate::iter::{Iter, IterSettings, begin};
use crate::kvs::{KvsHandle, asks, get_to_buffer, get_value, get_values};

/// All KVSs of a KVDB as they were when it was made, used from any thread. The caller owns it, and frees it with
/// `esker_snapshot_free`. While it lives, it keeps the data that it may read.
pub struct Snapshot;

impl Handle for Snapshot {
    type Of = EngineSnapshot;
    const TAG: u64 = u64::from_le_bytes(*b"esk.snap");
    const NAME: &'static str = "esker_snapshot";
}

/// Frees a snapshot. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_snapshot_free(snapshot: *mut Snapshot) {
    // SAFETY: null, or a snapshot that the caller gives up.
    unsafe { free(snapshot) };
}

/// As `esker_get`, of the moment of a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_snapshot_get(
    snapshot: *const Snapshot,
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    value: *mut Value,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, readable and writable, as the header demands.
        unsafe {
            let (snapshot, kvs) = (the(snapshot)?, &the(kvs)?.kvs);
            get_value((key, key_size), value, |key, value| snapshot.get_into(kvs, key, value))
        }
    })
}

/// As `esker_get_into`, of the moment of a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_snapshot_get_into(
    snapshot: *const Snapshot,
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    buffer: *mut c_void,
    capacity: usize,
    size: *mut usize,
    found: *mut bool,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, readable and writable, as the header demands.
        unsafe {
            let (snapshot, kvs) = (the(snapshot)?, &the(kvs)?.kvs);
            let read = |key: &[u8], buffer: &mut [u8]| snapshot.get_to_buffer(kvs, key, buffer);
            get_to_buffer((key, key_size), (buffer, capacity), (size, found), read)
        }
    })
}

/// As `esker_get_many`, of the moment of a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_snapshot_get_many(
    snapshot: *const Snapshot,
    kvs: *const KvsHandle,
    keys: *const Slice,
    count: usize,
    values: *mut Value,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, readable and writable, as the header demands.
        unsafe {
            let (snapshot, kvs) = (the(snapshot)?, &the(kvs)?.kvs);
            get_values((keys, count), values, |keys| snapshot.get_many(kvs, keys))
        }
    })
}

/// As `esker_contains`, of the moment of a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_snapshot_contains(
    snapshot: *const Snapshot,
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    found: *mut bool,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, readable and writable, as the header demands.
        unsafe {
            let (snapshot, kvs) = (the(snapshot)?, &the(kvs)?.kvs);
            asks((key, key_size), found, |key| snapshot.contains_key(kvs, key))
        }
    })
}

/// As `esker_iter_new`, of the moment of a snapshot. The iterator may outlive it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_snapshot_iter(
    snapshot: *const Snapshot,
    kvs: *const KvsHandle,
    settings: *const IterSettings,
    iter: *mut *mut Iter,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, readable and writable, as the header demands.
        unsafe {
            let (snapshot, kvs) = (the(snapshot)?, &the(kvs)?.kvs);
            begin(|| snapshot.cursor(kvs), settings, iter)
        }
    })
}
