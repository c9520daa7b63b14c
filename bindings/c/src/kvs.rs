//! A KVS: its reads and writes, and its options.

#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_void};

use esker_kv::{KvError, Kvs, WriteOptions};

use crate::border::{Handle, border, free, give, put, the, wanted};
use crate::bytes::{Range, Slice, Value, buffer, bytes, limits, many};
use crate::error::{Error, Result};
use crate::options::parsed;

/// The write is durable when the call returns. Without it, it is as the options of the KVDB say.
pub const ESKER_DURABLE: u32 = 1;

/// An ordered map of keys to values in a KVDB, used from any thread. The caller owns the handle, and frees it with
/// `esker_kvs_free`. When the KVDB is closed or the KVS dropped, its calls answer `ESKER_CLOSED`.
pub struct KvsHandle;

/// A KVS with its name as C has it.
pub(crate) struct NamedKvs {
    pub(crate) kvs: Kvs,
    name: CString,
}

impl Handle for KvsHandle {
    type Of = NamedKvs;
    const TAG: u64 = u64::from_le_bytes(*b"esk.kvs.");
    const NAME: &'static str = "esker_kvs";
}

pub(crate) fn named(kvs: Kvs) -> *mut KvsHandle {
    let name = CString::new(kvs.name()).unwrap_or_default();
    give(NamedKvs { kvs, name })
}

/// The options of a write.
pub(crate) fn write_options(flags: u32) -> Result<WriteOptions> {
    match flags {
        0 => Ok(WriteOptions::default()),
        ESKER_DURABLE => Ok(WriteOptions::durable()),
        other => {
            Err(Error::invalid(&format!("{other} are no flags of a write: use 0 or ESKER_DURABLE")))
        }
    }
}

/// Reads a value to one that the caller frees.
///
/// # Safety
/// `key` is null or has `size` bytes, `value` is null or writable.
#[inline]
pub(crate) unsafe fn get_value(
    (key, size): (*const c_void, usize),
    value: *mut Value,
    read: impl FnOnce(&[u8], &mut Vec<u8>) -> Result<bool, KvError>,
) -> Result<()> {
    let place = wanted(value, "value")?;
    // SAFETY: the caller's promise.
    let key = unsafe { bytes(key, size, "key")? };
    let mut read_to = Vec::new();
    let found = read(key, &mut read_to)?.then_some(read_to);
    // SAFETY: the caller's promise.
    unsafe { put(place, "value", Value::maybe(found)) }
}

/// Reads a value to the caller's buffer.
///
/// # Safety
/// `key` is null or has `key_size` bytes, `to` takes `capacity`, and results are null or writable.
#[inline]
pub(crate) unsafe fn get_to_buffer(
    (key, key_size): (*const c_void, usize),
    (to, capacity): (*mut c_void, usize),
    (size, found): (*mut usize, *mut bool),
    read: impl FnOnce(&[u8], &mut [u8]) -> Result<Option<usize>, KvError>,
) -> Result<()> {
    let (size, found) = (wanted(size, "size")?, wanted(found, "found")?);
    // SAFETY: the caller's promise.
    unsafe {
        let copied = read(bytes(key, key_size, "key")?, buffer(to, capacity)?)?;
        size.write(copied.unwrap_or(0));
        found.write(copied.is_some());
    }
    Ok(())
}

/// Reads many values.
///
/// # Safety
/// `keys` has `count` slices, and `values` takes as many values.
pub(crate) unsafe fn get_values(
    (keys, count): (*const Slice, usize),
    values: *mut Value,
    read: impl FnOnce(&[&[u8]]) -> Result<Vec<Option<esker_kv::Value>>, KvError>,
) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let values = wanted(values, "values")?;
    // SAFETY: the caller's promise.
    let keys = unsafe { many(keys, count)? };
    for (at, value) in read(&keys)?.into_iter().enumerate() {
        // SAFETY: the caller's promise: there are as many as keys.
        unsafe { values.add(at).write(Value::maybe(value.map(Vec::from))) };
    }
    Ok(())
}

/// Asks whether a key is there.
///
/// # Safety
/// `key` is null or has `size` bytes, `found` is null or writable.
pub(crate) unsafe fn asks(
    (key, size): (*const c_void, usize),
    found: *mut bool,
    ask: impl FnOnce(&[u8]) -> Result<bool, KvError>,
) -> Result<()> {
    let place = wanted(found, "found")?;
    // SAFETY: the caller's promise.
    unsafe {
        let key = bytes(key, size, "key")?;
        put(place, "found", ask(key)?)
    }
}

/// The name of a KVS. It belongs to the handle. NULL for what is no KVS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_name(kvs: *const KvsHandle) -> *const c_char {
    // SAFETY: null or live, as the header demands.
    unsafe { the(kvs) }.map_or(std::ptr::null(), |kvs| kvs.name.as_ptr())
}

/// Frees the handle of a KVS, which goes on as it was. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_free(kvs: *mut KvsHandle) {
    // SAFETY: null, or a handle that the caller gives up.
    unsafe { free(kvs) };
}

/// Maps a key to a value. `flags` are 0 or `ESKER_DURABLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_put(
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    flags: u32,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        let (kvs, key, value) = unsafe {
            (the(kvs)?, bytes(key, key_size, "key")?, bytes(value, value_size, "value")?)
        };
        Ok(kvs.kvs.put_with(key, value, &write_options(flags)?)?)
    })
}

/// Reads the value of a key to `value`, which the caller frees; its data is NULL where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_get(
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    value: *mut Value,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, readable and writable, as the header demands.
        unsafe {
            let kvs = &the(kvs)?.kvs;
            get_value((key, key_size), value, |key, value| kvs.get_into(key, value))
        }
    })
}

/// Reads the value of a key to a buffer of the caller's. `found` says whether there is one, and `size` how large it is: where
/// that is more than `capacity`, the buffer has its first bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_get_into(
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
            let kvs = &the(kvs)?.kvs;
            let read = |key: &[u8], buffer: &mut [u8]| kvs.get_to_buffer(key, buffer);
            get_to_buffer((key, key_size), (buffer, capacity), (size, found), read)
        }
    })
}

/// Reads the values of `count` keys to as many `values`, which the caller frees with `esker_values_free`. Those that are
/// not there have data that is NULL. It takes less time than as many calls of `esker_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_get_many(
    kvs: *const KvsHandle,
    keys: *const Slice,
    count: usize,
    values: *mut Value,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, readable and writable, as the header demands.
        unsafe {
            let kvs = &the(kvs)?.kvs;
            get_values((keys, count), values, |keys| kvs.get_many(keys))
        }
    })
}

/// Says whether a key has a value, which is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_contains(
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    found: *mut bool,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, readable and writable, as the header demands.
        unsafe {
            let kvs = &the(kvs)?.kvs;
            asks((key, key_size), found, |key| kvs.contains_key(key))
        }
    })
}

/// Removes a key, whether it is there or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_delete(
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        let (kvs, key) = unsafe { (the(kvs)?, bytes(key, key_size, "key")?) };
        Ok(kvs.kvs.delete(key)?)
    })
}

/// Removes all keys that begin with a prefix, of at least one byte, by one record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_delete_prefix(
    kvs: *const KvsHandle,
    prefix: *const c_void,
    prefix_size: usize,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        let (kvs, prefix) = unsafe { (the(kvs)?, bytes(prefix, prefix_size, "prefix")?) };
        Ok(kvs.kvs.delete_prefix(prefix)?)
    })
}

/// Removes all keys of a range by one record; a range of NULL is that of all keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_delete_range(
    kvs: *const KvsHandle,
    range: *const Range,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        let (kvs, range) = unsafe { (the(kvs)?, limits(range)?) };
        Ok(kvs.kvs.delete_range::<&[u8]>(range)?)
    })
}

/// Maps a key to a new value if it has the old one; NULL for one that is not there, so that a new one of NULL deletes.
/// `swapped` says whether it had. Else `current` has its value, which the caller frees; `current` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_compare_and_set(
    kvs: *const KvsHandle,
    key: *const c_void,
    key_size: usize,
    old_value: *const Slice,
    new_value: *const Slice,
    swapped: *mut bool,
    current: *mut Value,
) -> *mut Error {
    border(|| {
        let swapped = wanted(swapped, "swapped")?;
        // SAFETY: null or live, readable and writable, as the header demands.
        unsafe {
            let (kvs, key) = (&the(kvs)?.kvs, bytes(key, key_size, "key")?);
            let old = old_value.as_ref().map(|old| old.get("old value")).transpose()?;
            let new = new_value.as_ref().map(|new| new.get("new value")).transpose()?;
            let result = kvs.compare_and_set(key, old, new)?;
            put(swapped, "swapped", result.is_ok())?;
            if !current.is_null() {
                let changed = result.err().and_then(|changed| changed.current);
                put(current, "current", Value::maybe(changed.map(Vec::from)))?;
            }
        }
        Ok(())
    })
}

/// The options of a KVS as JSON, which the caller frees: policy, compression, time to live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_options(kvs: *const KvsHandle, json: *mut Value) -> *mut Error {
    border(|| {
        let json = wanted(json, "json")?;
        // SAFETY: null or live, and writable, as the header demands.
        unsafe { put(json, "json", Value::of_json("options", &the(kvs)?.kvs.options()?)?) }
    })
}

/// Changes where the data of a KVS goes, durably: as `esker_kvs_settings.policy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_set_policy(
    kvs: *const KvsHandle,
    policy: *const c_char,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and a text, as the header demands.
        let (kvs, policy) = unsafe { (the(kvs)?, parsed(policy, "policy")?) };
        Ok(kvs.kvs.set_policy(policy)?)
    })
}

/// Changes how values that age from now on are compressed, durably: as `esker_kvs_settings.compression`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_set_compression(
    kvs: *const KvsHandle,
    compression: *const c_char,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and a text, as the header demands.
        let (kvs, compression) = unsafe { (the(kvs)?, parsed(compression, "compression")?) };
        Ok(kvs.kvs.set_compression(compression)?)
    })
}

/// Changes how many milliseconds values live that are put from now on, durably; 0 is for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_set_ttl_ms(kvs: *const KvsHandle, ttl_ms: u64) -> *mut Error {
    border(|| {
        // SAFETY: null or live, as the header demands.
        let kvs = unsafe { the(kvs)? };
        Ok(kvs.kvs.set_ttl_ms((ttl_ms > 0).then_some(ttl_ms))?)
    })
}

/// Reads the metadata that the caller has set to `metadata`, which it frees: empty where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_metadata(
    kvs: *const KvsHandle,
    metadata: *mut Value,
) -> *mut Error {
    border(|| {
        let metadata = wanted(metadata, "metadata")?;
        // SAFETY: null or live, and writable, as the header demands.
        unsafe { put(metadata, "metadata", Value::of(the(kvs)?.kvs.metadata()?)) }
    })
}

/// Sets up to 4,096 bytes of the caller's that stay with the KVS, durably.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_kvs_set_metadata(
    kvs: *const KvsHandle,
    metadata: *const c_void,
    size: usize,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        let (kvs, metadata) = unsafe { (the(kvs)?, bytes(metadata, size, "metadata")?) };
        Ok(kvs.kvs.set_metadata(metadata)?)
    })
}
