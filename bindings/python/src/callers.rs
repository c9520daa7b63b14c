//! Code of the caller's that a call runs: observers, and iterators that it gave.
//!
//! Before Python 3.14, an interpreter that exits ends each other thread that wants the GIL by `pthread_exit`. That unwinds
//! the stack, and would abort the process in a frame of Rust. PyO3 has such a thread wait for the process's end where it
//! takes the GIL itself; here the same is done where code of Python's takes it.

#![allow(unsafe_code)]

use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

unsafe extern "C-unwind" {
    fn PyIter_Next(iterator: *mut PyObject) -> *mut PyObject;
    fn PyObject_Call(
        callable: *mut PyObject,
        args: *mut PyObject,
        kwargs: *mut PyObject,
    ) -> *mut PyObject;
}

/// Has a thread that is unwound wait forever. Others forget it.
struct Waits;

impl Drop for Waits {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Calls an object.
pub(crate) fn call<'py>(
    callable: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let waits = Waits;
    // SAFETY: both are objects that live during the call, `args` is a tuple, and no keywords are given.
    let result = unsafe { PyObject_Call(callable.as_ptr(), args.as_ptr(), std::ptr::null_mut()) };
    std::mem::forget(waits);
    // SAFETY: the result is a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), result) }
}

/// The next object of an iterator; none at its end.
pub(crate) fn next<'py>(
    iterator: &Bound<'py, pyo3::types::PyIterator>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let waits = Waits;
    // SAFETY: it is an iterator that lives during the call.
    let item = unsafe { PyIter_Next(iterator.as_ptr()) };
    std::mem::forget(waits);
    // SAFETY: the item is a new reference, or null at the end and with an exception set.
    let item = unsafe { Bound::from_owned_ptr_or_opt(iterator.py(), item) };
    match (item, PyErr::take(iterator.py())) {
        (Some(item), _) => Ok(Some(item)),
        (None, Some(raised)) => Err(raised),
        (None, None) => Ok(None),
    }
}

/// Does `each` for all objects of an iterable.
pub(crate) fn each<'py>(
    iterable: &Bound<'py, PyAny>,
    mut each: impl FnMut(Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    let iterator = iterable.try_iter()?;
    while let Some(item) = next(&iterator)? {
        each(item)?;
    }
    Ok(())
}
