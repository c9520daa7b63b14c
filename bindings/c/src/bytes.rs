//! Bytes across the border: the caller's, and those that it frees.

#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::ops::Bound as Limit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{ptr, slice};

use serde::Serialize;

use crate::error::{Error, Result};

/// Bytes that belong to somebody else: to the caller, or to the library until the call that its function names.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slice {
    /// Where they are. NULL is fine where there are none.
    pub data: *const c_void,
    /// How many there are.
    pub size: usize,
}

/// A value, or a text with a zero behind it, that the caller owns, and frees with `esker_value_free`. Where there is none
/// `data` is NULL; an empty value has other data.
#[repr(C)]
pub struct Value {
    /// The bytes.
    pub data: *mut u8,
    /// How many there are; the zero behind a text does not count.
    pub size: usize,
    /// For the library: do not change it.
    pub capacity: usize,
}

/// Keys have no bound on this side.
pub const ESKER_UNBOUNDED: i32 = 0;
/// The bound is one of the keys.
pub const ESKER_INCLUDED: i32 = 1;
/// The bound is none of the keys.
pub const ESKER_EXCLUDED: i32 = 2;

/// A bound of a range of keys.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bound {
    /// `ESKER_UNBOUNDED`, `ESKER_INCLUDED` or `ESKER_EXCLUDED`.
    pub kind: i32,
    /// The key; not looked at when there is no bound.
    pub key: Slice,
}

/// A range of keys. All bytes zero is the range of all keys.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Range {
    /// Where it begins.
    pub lower: Bound,
    /// Where it ends.
    pub upper: Bound,
}

/// Bounds of keys, as the engine takes them.
pub(crate) type Limits<'a> = (Limit<&'a [u8]>, Limit<&'a [u8]>);

/// The caller's bytes.
///
/// # Safety
/// `data` is null or has `size` bytes that nobody changes while the result is used.
#[inline]
pub(crate) unsafe fn bytes<'a>(data: *const c_void, size: usize, name: &str) -> Result<&'a [u8]> {
    if data.is_null() || size > isize::MAX.unsigned_abs() {
        return if size == 0 { Ok(&[]) } else { Err(no_bytes(data.is_null(), size, name)) };
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { slice::from_raw_parts(data.cast(), size) })
}

#[cold]
fn no_bytes(is_null: bool, size: usize, name: &str) -> Error {
    let what = if is_null { "are NULL" } else { "cannot be" };
    Error::invalid(&format!("the {size} bytes of the {name} {what}: pass bytes and their number"))
}

impl Slice {
    pub(crate) const NONE: Slice = Slice { data: ptr::null(), size: 0 };

    pub(crate) fn of(bytes: &[u8]) -> Slice {
        Slice { data: bytes.as_ptr().cast(), size: bytes.len() }
    }

    /// # Safety
    /// As [`bytes`].
    pub(crate) unsafe fn get<'a>(self, name: &str) -> Result<&'a [u8]> {
        // SAFETY: the caller's promise.
        unsafe { bytes(self.data, self.size, name) }
    }
}

/// The caller's slices.
///
/// # Safety
/// `slices` is null or has `count` slices, each as [`bytes`].
pub(crate) unsafe fn many<'a>(slices: *const Slice, count: usize) -> Result<Vec<&'a [u8]>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if slices.is_null() || count > isize::MAX.unsigned_abs() / size_of::<Slice>() {
        return Err(Error::invalid("the keys are NULL or too many: pass slices and their number"));
    }
    // SAFETY: the caller's promise.
    let slices = unsafe { slice::from_raw_parts(slices, count) };
    // SAFETY: the same.
    slices.iter().map(|slice| unsafe { slice.get("key") }).collect()
}

/// A range of the caller's; null is that of all keys.
///
/// # Safety
/// It is null or readable, and its keys are as [`bytes`].
pub(crate) unsafe fn limits<'a>(range: *const Range) -> Result<Limits<'a>> {
    // SAFETY: the caller's promise.
    let Some(range) = (unsafe { range.as_ref() }) else {
        return Ok((Limit::Unbounded, Limit::Unbounded));
    };
    let limit = |bound: Bound| {
        Ok(match bound.kind {
            ESKER_UNBOUNDED => Limit::Unbounded,
            // SAFETY: the caller's promise.
            ESKER_INCLUDED => Limit::Included(unsafe { bound.key.get("bound")? }),
            // SAFETY: the same.
            ESKER_EXCLUDED => Limit::Excluded(unsafe { bound.key.get("bound")? }),
            other => {
                let why = format!(
                    "{other} is no kind of a bound: use ESKER_UNBOUNDED, ESKER_INCLUDED or ESKER_EXCLUDED"
                );
                return Err(Error::invalid(&why));
            }
        })
    };
    Ok((limit(range.lower)?, limit(range.upper)?))
}

/// The caller's text.
///
/// # Safety
/// It is null, or ends with a zero and is not changed while the result is used.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(Error::invalid(&format!("the {name} is NULL: pass a text")));
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| Error::invalid(&format!("the {name} is not UTF-8: pass text in UTF-8")))
}

/// The caller's path.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(path: *const c_char, name: &str) -> Result<&'a Path> {
    if path.is_null() {
        return Err(Error::invalid(&format!("the {name} is NULL: pass a path")));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if bytes.is_empty() {
        return Err(Error::invalid(&format!("the {name} is empty: pass a path")));
    }
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

impl Value {
    /// No value.
    pub(crate) const NONE: Value = Value { data: ptr::null_mut(), size: 0, capacity: 0 };

    pub(crate) fn of(bytes: Vec<u8>) -> Value {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        Value { data: bytes.as_mut_ptr(), size: bytes.len(), capacity: bytes.capacity() }
    }

    pub(crate) fn maybe(bytes: Option<Vec<u8>>) -> Value {
        bytes.map_or(Value::NONE, Value::of)
    }

    pub(crate) fn of_text(text: &str) -> Value {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
        let value = Value::of(bytes);
        Value { size: value.size - 1, ..value }
    }

    /// An object in JSON, with the version of its form first.
    pub(crate) fn of_json(name: &str, content: &impl Serialize) -> Result<Value> {
        let content = serde_json::to_string(content)
            .map_err(|error| Error::invalid(&format!("the {name} cannot be written: {error}")))?;
        Ok(Value::of_text(&format!("{{\"version\":1,\"{name}\":{content}}}")))
    }
}

/// Frees a value, and makes it one that is not there, so that a second call does nothing. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_value_free(value: *mut Value) {
    // SAFETY: null, or a value of the caller's.
    let Some(value) = (unsafe { value.as_mut() }) else { return };
    let Value { data, size, capacity } = std::mem::replace(value, Value::NONE);
    if !data.is_null() {
        // SAFETY: made from a vector by `Value::of`, and the caller gives it up.
        drop(unsafe { Vec::from_raw_parts(data, size, capacity) });
    }
}

/// Frees `count` values, as `esker_get_many` returns them. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_values_free(values: *mut Value, count: usize) {
    if !values.is_null() {
        for at in 0..count {
            // SAFETY: the caller has so many.
            unsafe { esker_value_free(values.add(at)) };
        }
    }
}

/// The caller's buffer.
///
/// # Safety
/// `buffer` is null or takes `capacity` bytes, which nobody else looks at while the result is used.
#[inline]
pub(crate) unsafe fn buffer<'a>(buffer: *mut c_void, capacity: usize) -> Result<&'a mut [u8]> {
    if buffer.is_null() || capacity > isize::MAX.unsigned_abs() {
        return if capacity == 0 {
            Ok(&mut [])
        } else {
            Err(Error::invalid(
                "the buffer is NULL, or cannot be as large: pass one, or a size of 0",
            ))
        };
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { slice::from_raw_parts_mut(buffer.cast(), capacity) })
}
