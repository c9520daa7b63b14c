//! The engine's errors as exceptions: the classes are Python's own, in `esker/_errors.py`, and found by their code.

use esker_kv::KvError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::error::Error;

/// The exception of an error.
pub(crate) fn exception(py: Python<'_>, error: &KvError) -> PyErr {
    made(py, error).unwrap_or_else(|other| other)
}

fn made(py: Python<'_>, error: &KvError) -> PyResult<PyErr> {
    static OF_CODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let of_code = OF_CODE.get_or_try_init(py, || {
        py.import("esker._errors")?.getattr("of_code").map(Bound::unbind)
    })?;
    let class = of_code.bind(py).call1((error.code() as i32,))?.cast_into::<PyType>()?;
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
