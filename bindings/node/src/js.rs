//! Values of JavaScript as bytes, and bytes as values. All calls of Node-API that are made by hand are here.

#![allow(unsafe_code)]

use std::ptr;

use napi::bindgen_prelude::{External, FromNapiValue, ToNapiValue, TypeName, ValidateNapiValue};
use napi::{Env, Result, Status, ValueType, check_status, sys};

/// A key, a value or a bound: the UTF-8 of a string, or the bytes of a `Uint8Array`.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl TypeName for Bytes {
    fn type_name() -> &'static str {
        "string | Uint8Array"
    }

    fn value_type() -> ValueType {
        ValueType::Unknown
    }
}

impl ValidateNapiValue for Bytes {}

impl FromNapiValue for Bytes {
    unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> Result<Bytes> {
        let mut bytes = Vec::new();
        // SAFETY: the caller vouches for both.
        unsafe { append(env, value, &mut bytes)? };
        Ok(Bytes(bytes))
    }
}

/// Appends the UTF-8 of a string, or the bytes of a `Uint8Array`.
///
/// # Safety
/// `env` and `value` are those of a call that is under way on this thread.
unsafe fn append(env: sys::napi_env, value: sys::napi_value, out: &mut Vec<u8>) -> Result<()> {
    let mut units = 0;
    // SAFETY: without a buffer, it writes the length alone.
    let status =
        unsafe { sys::napi_get_value_string_utf16(env, value, ptr::null_mut(), 0, &raw mut units) };
    if status == sys::Status::napi_ok {
        // A unit of UTF-16 has up to 3 bytes in UTF-8, and the end one more.
        let room = units * 3 + 1;
        out.reserve(room);
        let mut written = 0;
        // SAFETY: behind the vector's end there is that much room.
        unsafe {
            let end = out.as_mut_ptr().add(out.len());
            let status =
                sys::napi_get_value_string_utf8(env, value, end.cast(), room, &raw mut written);
            check_status!(status)?;
            out.set_len(out.len() + written);
        }
        return Ok(());
    }
    let (mut kind, mut length, mut data) = (0, 0, ptr::null_mut());
    // SAFETY: the results are written where the value is a typed array.
    let status = unsafe {
        sys::napi_get_typedarray_info(
            env,
            value,
            &raw mut kind,
            &raw mut length,
            &raw mut data,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    if status != sys::Status::napi_ok || kind != sys::TypedarrayType::uint8_array {
        return Err(napi::Error::new(
            Status::InvalidArg,
            "keys and values are strings or of type Uint8Array here",
        ));
    }
    if length > 0 {
        // SAFETY: the array's memory stays as it is while this call of JavaScript's thread lasts.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) });
    }
    Ok(())
}

/// An array of JavaScript's whose elements are taken one by one.
pub(crate) struct Elements {
    env: sys::napi_env,
    array: sys::napi_value,
    length: u32,
}

impl TypeName for Elements {
    fn type_name() -> &'static str {
        "Array"
    }

    fn value_type() -> ValueType {
        ValueType::Object
    }
}

impl ValidateNapiValue for Elements {}

impl FromNapiValue for Elements {
    unsafe fn from_napi_value(env: sys::napi_env, array: sys::napi_value) -> Result<Elements> {
        let mut length = 0;
        // SAFETY: the caller vouches for both.
        check_status!(unsafe { sys::napi_get_array_length(env, array, &raw mut length) })?;
        Ok(Elements { env, array, length })
    }
}

impl Elements {
    pub(crate) fn len(&self) -> u32 {
        self.length
    }

    /// Appends the bytes of an element; false where it is `undefined`.
    pub(crate) fn append(&self, index: u32, out: &mut Vec<u8>) -> Result<bool> {
        let (mut value, mut kind) = (ptr::null_mut(), 0);
        // SAFETY: an argument of the call of which this is one as well.
        unsafe {
            check_status!(sys::napi_get_element(self.env, self.array, index, &raw mut value))?;
            check_status!(sys::napi_typeof(self.env, value, &raw mut kind))?;
            if kind == sys::ValueType::napi_undefined {
                return Ok(false);
            }
            append(self.env, value, out)?;
        }
        Ok(true)
    }
}

/// A string of JavaScript's. Bytes that are no UTF-8 become replacement characters.
pub(crate) fn string(env: sys::napi_env, bytes: &[u8]) -> Result<sys::napi_value> {
    let mut value = ptr::null_mut();
    let length = isize::try_from(bytes.len()).unwrap_or(isize::MAX);
    // SAFETY: the pointer and the length are those of the slice, which is read during the call.
    check_status!(unsafe {
        // A string of ASCII is copied as it is.
        if bytes.is_ascii() {
            sys::napi_create_string_latin1(env, bytes.as_ptr().cast(), length, &raw mut value)
        } else {
            sys::napi_create_string_utf8(env, bytes.as_ptr().cast(), length, &raw mut value)
        }
    })?;
    Ok(value)
}

/// A `Buffer` with a copy.
pub(crate) fn buffer(env: sys::napi_env, bytes: &[u8]) -> Result<sys::napi_value> {
    let mut value = ptr::null_mut();
    // SAFETY: as in `string`.
    check_status!(unsafe {
        let data = bytes.as_ptr().cast();
        sys::napi_create_buffer_copy(env, bytes.len(), data, ptr::null_mut(), &raw mut value)
    })?;
    Ok(value)
}

/// The rest of a `Buffer` of the caller's that takes small values.
pub(crate) struct Pool {
    data: *mut u8,
    length: usize,
}

impl TypeName for Pool {
    fn type_name() -> &'static str {
        "Uint8Array"
    }

    fn value_type() -> ValueType {
        ValueType::Object
    }
}

impl ValidateNapiValue for Pool {}

impl FromNapiValue for Pool {
    unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> Result<Pool> {
        let (mut data, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the results are written where the value is a buffer.
        check_status!(unsafe {
            sys::napi_get_buffer_info(env, value, &raw mut data, &raw mut length)
        })?;
        Ok(Pool { data: data.cast(), length })
    }
}

impl Pool {
    /// Copies a value into the pool, and gives its length; or into a buffer of its own, where it has no room.
    pub(crate) fn give(&mut self, env: &Env, bytes: &[u8]) -> Result<Made> {
        if bytes.is_empty() || bytes.len() > self.length {
            return Made::buffer(env, bytes);
        }
        // SAFETY: the pool's memory stays as it is while this call of JavaScript's thread lasts, and it has that room.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.data, bytes.len()) };
        Made::number(env, u32::try_from(bytes.len()).unwrap_or(u32::MAX))
    }
}

fn number(env: sys::napi_env, number: u32) -> Result<sys::napi_value> {
    let mut value = ptr::null_mut();
    // SAFETY: the result is written.
    check_status!(unsafe { sys::napi_create_uint32(env, number, &raw mut value) })?;
    Ok(value)
}

/// A value of this environment that was made already.
pub(crate) struct Made(sys::napi_value);

impl Made {
    pub(crate) fn string(env: &Env, bytes: &[u8]) -> Result<Made> {
        string(env.raw(), bytes).map(Made)
    }

    pub(crate) fn buffer(env: &Env, bytes: &[u8]) -> Result<Made> {
        buffer(env.raw(), bytes).map(Made)
    }

    pub(crate) fn number(env: &Env, value: u32) -> Result<Made> {
        number(env.raw(), value).map(Made)
    }

    /// A handle of something native.
    pub(crate) fn external<T: 'static>(env: &Env, of: T) -> Result<Made> {
        // SAFETY: an environment of this thread.
        unsafe { ToNapiValue::to_napi_value(env.raw(), External::new(of)) }.map(Made)
    }

    pub(crate) fn undefined(env: &Env) -> Result<Made> {
        // SAFETY: an environment of this thread.
        unsafe { <() as ToNapiValue>::to_napi_value(env.raw(), ()) }.map(Made)
    }

    pub(crate) fn truth(env: &Env, truth: bool) -> Result<Made> {
        // SAFETY: an environment of this thread.
        unsafe { bool::to_napi_value(env.raw(), truth) }.map(Made)
    }

    pub(crate) fn error(env: &Env, error: napi::Error<String>) -> Made {
        // SAFETY: an environment of this thread.
        Made(unsafe { napi::JsError::from(error).into_value(env.raw()) })
    }
}

impl TypeName for Made {
    fn type_name() -> &'static str {
        "unknown"
    }

    fn value_type() -> ValueType {
        ValueType::Unknown
    }
}

impl ToNapiValue for Made {
    unsafe fn to_napi_value(_: sys::napi_env, made: Made) -> Result<sys::napi_value> {
        Ok(made.0)
    }
}

/// Values of up to this many bytes share buffers of as many: JavaScript's allocation of one costs more than the copy.
const SHARED_VALUE: usize = 2 << 10;
const SHARED_BUFFER: usize = 8 << 10;

/// As many values make an array by one call of JavaScript's: that costs less than to set them one by one.
const BY_CALL_MAX: usize = 4096;

/// An array of values.
fn array_of(env: sys::napi_env, values: &[sys::napi_value]) -> Result<sys::napi_value> {
    let mut array = ptr::null_mut();
    if values.len() <= BY_CALL_MAX {
        let (mut global, mut class, mut of) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: names end with a zero; results are written; the values are of this environment and this call.
        unsafe {
            check_status!(sys::napi_get_global(env, &raw mut global))?;
            let name = c"Array".as_ptr();
            check_status!(sys::napi_get_named_property(env, global, name, &raw mut class))?;
            check_status!(sys::napi_get_named_property(env, class, c"of".as_ptr(), &raw mut of))?;
            let (count, values) = (values.len(), values.as_ptr());
            check_status!(sys::napi_call_function(env, class, of, count, values, &raw mut array))?;
        }
        return Ok(array);
    }
    // SAFETY: an environment of this thread; the result is written.
    check_status!(unsafe {
        sys::napi_create_array_with_length(env, values.len(), &raw mut array)
    })?;
    for (index, value) in (0..).zip(values) {
        // SAFETY: all are of this environment and this call.
        check_status!(unsafe { sys::napi_set_element(env, array, index, *value) })?;
    }
    Ok(array)
}

/// An array of results, the last of which is an array of the buffers that small values share: in their place is their
/// length, and they lie one behind the other.
pub(crate) struct Packer {
    env: sys::napi_env,
    undefined: sys::napi_value,
    values: Vec<sys::napi_value>,
    shared: Vec<u8>,
    buffers: Vec<sys::napi_value>,
}

impl Packer {
    pub(crate) fn new(env: &Env, length: usize) -> Result<Packer> {
        let Made(undefined) = Made::undefined(env)?;
        let values = Vec::with_capacity(length + 1);
        Ok(Packer { env: env.raw(), undefined, values, shared: Vec::new(), buffers: Vec::new() })
    }

    /// Adds any other value.
    pub(crate) fn push(&mut self, value: &Made) {
        self.values.push(value.0);
    }

    /// Adds `undefined`.
    pub(crate) fn undefined(&mut self) {
        self.values.push(self.undefined);
    }

    /// Adds a truth.
    pub(crate) fn truth(&mut self, truth: bool) -> Result<()> {
        let value = Made::truth(&Env::from_raw(self.env), truth)?;
        self.push(&value);
        Ok(())
    }

    /// Adds bytes: as a string, or in a buffer.
    pub(crate) fn bytes(&mut self, bytes: &[u8], as_text: bool) -> Result<()> {
        let value = if as_text {
            string(self.env, bytes)?
        } else if bytes.len() > SHARED_VALUE {
            buffer(self.env, bytes)?
        } else {
            if self.shared.len() + bytes.len() > SHARED_BUFFER {
                self.flush()?;
            }
            self.shared.extend_from_slice(bytes);
            number(self.env, u32::try_from(bytes.len()).unwrap_or(u32::MAX))?
        };
        self.values.push(value);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.buffers.push(buffer(self.env, &self.shared)?);
        self.shared.clear();
        Ok(())
    }

    /// The array.
    pub(crate) fn finish(mut self) -> Result<Made> {
        if !self.shared.is_empty() {
            self.flush()?;
        }
        let last = if self.buffers.is_empty() {
            self.undefined
        } else {
            array_of(self.env, &self.buffers)?
        };
        self.values.push(last);
        array_of(self.env, &self.values).map(Made)
    }
}
