//! Loops in Rust over the KVS of a handle: `benches/border.rs` compares them with loops of calls. Only with the feature
//! `measure`, and not in the header.

#![allow(unsafe_code)]

use std::hint::black_box;

use esker_base::Clock;
use esker_kv::Kvs;

use crate::border::{border, put, the};
use crate::bytes::{Slice, many};
use crate::error::{Error, Result};
use crate::kvs::KvsHandle;

/// Writes the nanoseconds that `work` takes.
///
/// # Safety
/// `kvs` is null or live, `keys` null or `count` slices, `nanoseconds` null or writable.
unsafe fn timed(
    kvs: *const KvsHandle,
    (keys, count): (*const Slice, usize),
    nanoseconds: *mut u64,
    work: impl FnOnce(&Kvs, &[&[u8]]) -> Result<()>,
) -> *mut Error {
    border(|| {
        // SAFETY: the caller's promise.
        let (kvs, keys) = unsafe { (the(kvs)?, many(keys, count)?) };
        let clock = Clock::real();
        let began = clock.now();
        work(&kvs.kvs, &keys)?;
        let took = clock.now().0 - began.0;
        // SAFETY: the caller's promise.
        unsafe { put(nanoseconds, "nanoseconds", took) }
    })
}

/// A get of each key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_measure_get(
    kvs: *const KvsHandle,
    keys: *const Slice,
    count: usize,
    nanoseconds: *mut u64,
) -> *mut Error {
    // SAFETY: the caller's promise, which is the same.
    unsafe {
        timed(kvs, (keys, count), nanoseconds, |kvs, keys| {
            for key in keys {
                black_box(kvs.get(key)?);
            }
            Ok(())
        })
    }
}

/// A get of each key into one buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_measure_get_into(
    kvs: *const KvsHandle,
    keys: *const Slice,
    count: usize,
    nanoseconds: *mut u64,
) -> *mut Error {
    let mut value = Vec::new();
    // SAFETY: the caller's promise, which is the same.
    unsafe {
        timed(kvs, (keys, count), nanoseconds, |kvs, keys| {
            for key in keys {
                black_box(kvs.get_into(key, &mut value)?);
            }
            Ok(())
        })
    }
}

/// Multi-gets of 50 keys each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_measure_get_many(
    kvs: *const KvsHandle,
    keys: *const Slice,
    count: usize,
    nanoseconds: *mut u64,
) -> *mut Error {
    // SAFETY: the caller's promise, which is the same.
    unsafe {
        timed(kvs, (keys, count), nanoseconds, |kvs, keys| {
            for keys in keys.chunks(50) {
                black_box(kvs.get_many(keys)?);
            }
            Ok(())
        })
    }
}

/// A walk over as many rows as there are keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_measure_scan(
    kvs: *const KvsHandle,
    keys: *const Slice,
    count: usize,
    nanoseconds: *mut u64,
) -> *mut Error {
    // SAFETY: the caller's promise, which is the same.
    unsafe {
        timed(kvs, (keys, count), nanoseconds, |kvs, keys| {
            let mut cursor = kvs.cursor()?;
            for _ in keys {
                black_box(cursor.next()?);
            }
            Ok(())
        })
    }
}

/// A put of 1,000 bytes to each key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_measure_put(
    kvs: *const KvsHandle,
    keys: *const Slice,
    count: usize,
    nanoseconds: *mut u64,
) -> *mut Error {
    let value = [7; 1_000];
    // SAFETY: the caller's promise, which is the same.
    unsafe {
        timed(kvs, (keys, count), nanoseconds, |kvs, keys| {
            Ok(keys.iter().try_for_each(|key| kvs.put(key, value))?)
        })
    }
}
