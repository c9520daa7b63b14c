//! The engine's errors as exceptions: the classes are Python's own, in `esker/_errors.py`, and found by their code.

use std::error::Error;

use esker_kv::KvError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

/// The exception of an error.
pub(crate) fn exception(py: Python<'_>, error: &KvError) -> PyErr {
    made(py, error).unwrap_or_else(|other| other)
}

/// The classes by their codes.
pub(crate) fn of_codes(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static OF_CODE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let found = OF_CODE.get_or_try_init(py, || {
        let classes = py.import("esker._errors")?.getattr("OF_CODE")?;
        PyResult::Ok(classes.cast_into::<PyDict>()?.unbind())
    })?;
    Ok(found.bind(py))
}

fn made(py: Python<'_>, error: &KvError) -> PyResult<PyErr> {
    let classes = of_codes(py)?;
    // A code of a later release has the class of all of them.
    let class = match classes.get_item(error.code() as i32)? {
        Some(class) => class,
        None => classes.as_any().get_item(0)?,
    };
    let class = class.cast_into::<PyType>()?;
    let raised = PyErr::from_type(class, (error.to_string(),));
    let value = raised.value(py);
    if let Some(number) = system_number(error) {
        value.setattr("errno", number)?;
    }
    if let Some(class) = error.class() {
        value.setattr("media_class", class.to_string())?;
    }
    if let Some((device, lba)) = error.damage() {
        value.setattr("device", device)?;
        value.setattr("lba", lba.0)?;
    }
    Ok(raised)
}

/// The system's error number, where the file system or a device gave one.
fn system_number(error: &KvError) -> Option<i32> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(system) = error.downcast_ref::<esker_kv::SystemError>() {
            return Some(system.0);
        }
        cause = error.source();
    }
    None
}

/// Results of the engine as those of Python.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception of the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, KvError> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}
