//! Iterators: walks over the keys of a KVS in their order, both ways.

#![allow(unsafe_code)]

use std::ffi::c_void;

use esker_kv::{Cursor, KvError, Kvs};

use crate::border::{Exclusive, Handle, border, free, give, put, the, wanted};
use crate::bytes::{Range, Slice, bytes, limits};
use crate::error::{Error, Result};

/// A walk over a KVS as it was when it was made, for one thread at a time. It stands between two keys. The caller owns it,
/// and frees it with `esker_iter_free`. While it lives, it keeps the data that it may read.
pub struct Iter;

impl Handle for Iter {
    type Of = Exclusive<Cursor>;
    const TAG: u64 = u64::from_le_bytes(*b"esk.iter");
    const NAME: &'static str = "esker_iter";
}

/// Which keys an iterator has. All bytes zero is all keys with their values.
#[repr(C)]
pub struct IterSettings {
    /// The range of the keys. Leave it zero where there is a prefix.
    pub range: Range,
    /// How the keys begin, `prefix.size` bytes; none for keys of any beginning.
    pub prefix: Slice,
    /// Whether values stay unread: they come out empty.
    pub keys_only: bool,
    /// How many rows the walk is expected to take, so that their values are read at once; 0 where nobody knows.
    pub expected_rows: usize,
}

/// Makes an iterator of a cursor.
///
/// # Safety
/// The settings are null or readable, `iter` is null or writable.
pub(crate) unsafe fn begin(
    cursor: impl FnOnce() -> Result<Cursor, KvError>,
    settings: *const IterSettings,
    iter: *mut *mut Iter,
) -> Result<()> {
    let iter = wanted(iter, "iter")?;
    let mut walk = cursor()?;
    // SAFETY: the caller's promise.
    if let Some(settings) = unsafe { settings.as_ref() } {
        if settings.keys_only {
            walk = walk.keys_only();
        }
        if settings.expected_rows > 0 {
            walk = walk.expecting(settings.expected_rows);
        }
        // SAFETY: the caller's promise.
        let (prefix, range) =
            unsafe { (settings.prefix.get("prefix")?, limits(&raw const settings.range)?) };
        let is_all = matches!(range, (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded));
        match (prefix.is_empty(), is_all) {
            (true, true) => {}
            (true, false) => walk = walk.range::<&[u8]>(range)?,
            (false, true) => walk = walk.prefix(prefix)?,
            (false, false) => {
                return Err(Error::invalid("an iterator has a range or a prefix: leave one zero"));
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { put(iter, "iter", give(Exclusive::new(walk))) }
}

/// Makes an iterator over a KVS as it is now, before its first key. `settings` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_new(
    kvs: *const crate::kvs::KvsHandle,
    settings: *const IterSettings,
    iter: *mut *mut Iter,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, readable and writable, as the header demands.
        unsafe {
            let kvs: &Kvs = &the(kvs)?.kvs;
            begin(|| kvs.cursor(), settings, iter)
        }
    })
}

/// Steps over the next key. Where there is one, `found` is true, and `key` and `value` belong to the iterator until its
/// next call; `value` may be NULL. Else the iterator is at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_next(
    iter: *mut Iter,
    key: *mut Slice,
    value: *mut Slice,
    found: *mut bool,
) -> *mut Error {
    // SAFETY: null or live and writable, as the header demands.
    border(|| unsafe { step(iter, key, value, found, Cursor::next) })
}

/// Steps over the key before, as `esker_iter_next` does over the next one: after that it returns the same key again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_prev(
    iter: *mut Iter,
    key: *mut Slice,
    value: *mut Slice,
    found: *mut bool,
) -> *mut Error {
    // SAFETY: null or live and writable, as the header demands.
    border(|| unsafe { step(iter, key, value, found, Cursor::prev) })
}

/// # Safety
/// The pointers are null or live and writable.
#[inline]
unsafe fn step(
    iter: *mut Iter,
    key: *mut Slice,
    value: *mut Slice,
    found: *mut bool,
    step: impl FnOnce(&mut Cursor) -> Result<Option<(&[u8], &[u8])>, KvError>,
) -> Result<()> {
    let (key, found) = (wanted(key, "key")?, wanted(found, "found")?);
    // SAFETY: the caller's promise.
    unsafe { the(iter.cast_const())? }.with(|cursor| {
        let row = step(cursor)?;
        let (is_there, row) = (row.is_some(), row.map(|(k, v)| (Slice::of(k), Slice::of(v))));
        let (k, v) = row.unwrap_or((Slice::NONE, Slice::NONE));
        // SAFETY: the caller's promise.
        unsafe {
            key.write(k);
            if !value.is_null() {
                value.write(v);
            }
            found.write(is_there);
        }
        Ok(())
    })
}

/// Goes to the point just before a key, whether it is there or not: `esker_iter_next` steps over it or the one behind,
/// `esker_iter_prev` over the one before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_seek(
    iter: *mut Iter,
    key: *const c_void,
    key_size: usize,
) -> *mut Error {
    border(|| {
        // SAFETY: null or live, and readable, as the header demands.
        let (iter, key) = unsafe { (the(iter.cast_const())?, bytes(key, key_size, "key")?) };
        iter.with(|cursor| Ok(cursor.seek(key)?))
    })
}

/// Goes to the point before the first key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_seek_to_first(iter: *mut Iter) -> *mut Error {
    // SAFETY: null or live, as the header demands.
    border(|| unsafe { the(iter.cast_const())? }.with(|cursor| Ok(cursor.seek_to_first()?)))
}

/// Goes to the point behind the last key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_seek_to_last(iter: *mut Iter) -> *mut Error {
    // SAFETY: null or live, as the header demands.
    border(|| unsafe { the(iter.cast_const())? }.with(|cursor| Ok(cursor.seek_to_last()?)))
}

/// Frees an iterator. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_iter_free(iter: *mut Iter) {
    // SAFETY: null, or an iterator that the caller gives up.
    unsafe { free(iter) };
}
