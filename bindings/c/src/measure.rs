//! Loops in Rust over the KVS of a handle: `benches/border.rs` compares them with loops of calls. Only with the feature
//! `measure`, and not in the header.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::hint::black_box;

use esker_base::Clock;
use esker_kv::Kvs;

use crate::border::{border, put, the};
use crate::bytes::{Slice, many};
use crate::error::{Error, Result};
use crate::kvs::KvsHandle;

/// Keys of a multi-get.
const MANY: usize = 50;

/// Writes the nanoseconds that an operation takes for all keys.
///
/// # Safety
/// `kvs` is null or live, `operation` ends with a zero, `keys` is null or `count` slices, `nanoseconds` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_measure(
    kvs: *const KvsHandle,
    operation: *const c_char,
    keys: *const Slice,
    count: usize,
    nanoseconds: *mut u64,
) -> *mut Error {
    border(|| {
        // SAFETY: the caller's promise.
        let (kvs, operation, keys) =
            unsafe { (the(kvs)?, CStr::from_ptr(operation), many(keys, count)?) };
        let clock = Clock::real();
        let began = clock.now();
        repeat(&kvs.kvs, operation, &keys)?;
        let took = clock.now().0 - began.0;
        // SAFETY: the caller's promise.
        unsafe { put(nanoseconds, "nanoseconds", took) }
    })
}

/// Does an operation with each key; a scan walks over as many rows.
fn repeat(kvs: &Kvs, operation: &CStr, keys: &[&[u8]]) -> Result<()> {
    match operation.to_bytes() {
        b"get" => {
            for key in keys {
                black_box(kvs.get(key)?);
            }
        }
        b"get_into" => {
            let mut buffer = [0; 1_000];
            for key in keys {
                black_box(kvs.get_to_buffer(key, &mut buffer)?);
            }
        }
        b"get_many" => {
            for keys in keys.chunks(MANY) {
                black_box(kvs.get_many(keys)?);
            }
        }
        b"scan" => {
            let mut cursor = kvs.cursor()?;
            for _ in keys {
                black_box(cursor.next()?);
            }
        }
        b"put" => {
            let value = [7; 1_000];
            keys.iter().try_for_each(|key| kvs.put(key, value))?;
        }
        _ => return Err(Error::invalid("the operation is none that is measured")),
    }
    Ok(())
}
