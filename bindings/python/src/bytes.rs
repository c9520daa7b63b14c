//! Bytes-like arguments: `bytes` are lent, all others are copied, for another thread could change them.

use std::fmt;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

/// A key, a value, a prefix or a bound that a caller gave.
pub(crate) enum BytesLike<'a, 'py> {
    /// Those of an object that the caller holds during the call.
    Lent(&'a [u8]),
    /// Those of an object of our own.
    Own(Bound<'py, PyBytes>),
}

impl AsRef<[u8]> for BytesLike<'_, '_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            BytesLike::Lent(bytes) => bytes,
            BytesLike::Own(bytes) => bytes.as_bytes(),
        }
    }
}

impl fmt::Debug for BytesLike<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.as_ref().escape_ascii())
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for BytesLike<'a, 'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<BytesLike<'a, 'py>> {
        match object.extract::<&'a [u8]>() {
            Ok(bytes) => Ok(BytesLike::Lent(bytes)),
            Err(_) => copied(object).map(BytesLike::Own),
        }
    }
}

/// A copy of the bytes of any other object that has a buffer.
fn copied<'py>(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let Ok(view) = PyMemoryView::from(&object) else {
        let advice = if object.is_instance_of::<PyString>() {
            "encode it first, for example with text.encode()"
        } else {
            "give bytes, bytearray, memoryview or another object with a buffer"
        };
        let class = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "keys and values are bytes-like, and this is of type '{class}': {advice}"
        )));
    };
    Ok(view.call_method0("tobytes")?.cast_into::<PyBytes>()?)
}

/// Bytes that outlive the argument of which they are: an element of a collection that another thread may change.
pub(crate) struct HeldBytes<'py>(Bound<'py, PyBytes>);

impl<'py> HeldBytes<'py> {
    pub(crate) fn of(object: Bound<'py, PyAny>) -> PyResult<HeldBytes<'py>> {
        match object.cast_into::<PyBytes>() {
            Ok(bytes) => Ok(HeldBytes(bytes)),
            Err(other) => copied(other.into_inner().as_borrowed()).map(HeldBytes),
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
