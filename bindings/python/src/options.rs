//! Arguments as the engine's options, and the engine's reports as objects of Python.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use esker_kv::{KvError, KvsOptions, Location, Medium, WriteOptions};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyString};
use serde::Serialize;
use serde_json::Value;

use crate::error::OrRaise;

/// The version of the reports' fields. It rises when a field is removed or gets another meaning.
const REPORT_VERSION: u32 = 1;

/// How one write is done.
pub(crate) fn write_options(durable: bool) -> WriteOptions {
    if durable { WriteOptions::durable() } else { WriteOptions::default() }
}

/// A value that has a form as text.
pub(crate) fn parsed<T: FromStr<Err: fmt::Display>>(py: Python<'_>, text: &str) -> PyResult<T> {
    text.parse().map_err(|why: T::Err| KvError::Options(why.to_string())).or_raise(py)
}

/// Options of a new KVS.
pub(crate) fn kvs_options(
    py: Python<'_>,
    policy: Option<&str>,
    compression: Option<&str>,
    ttl_ms: Option<u64>,
) -> PyResult<KvsOptions> {
    let mut options = KvsOptions::default();
    if let Some(policy) = policy {
        options.policy = parsed(py, policy)?;
    }
    if let Some(compression) = compression {
        options.compression = parsed(py, compression)?;
    }
    options.ttl_ms = ttl_ms;
    Ok(options)
}

/// The place of a class: a path, or `True` for a file in the KVDB's own directory.
#[derive(FromPyObject)]
pub(crate) enum Place {
    /// Whether there is one at all.
    #[pyo3(transparent)]
    InDir(bool),
    /// A block device, a directory, or a file that does not exist yet.
    #[pyo3(transparent)]
    Path(PathBuf),
}

impl Place {
    /// The engine's name for it; none for `False`.
    pub(crate) fn medium(self) -> Option<Medium> {
        match self {
            Place::InDir(true) => Some(Medium::InDir),
            Place::InDir(false) => None,
            Place::Path(path) => Some(Medium::Path(path)),
        }
    }
}

/// The place of a KVDB.
pub(crate) fn location(
    path: &PathBuf,
    staging: Option<Place>,
    capacity: Option<Place>,
) -> Location {
    let mut location = Location::dir(path);
    if let Some(medium) = staging.and_then(Place::medium) {
        location = location.staging(medium);
    }
    if let Some(medium) = capacity.and_then(Place::medium) {
        location = location.capacity(medium);
    }
    location
}

/// A report of the engine as a `dict` with the version of its fields.
pub(crate) fn report<'py>(
    py: Python<'py>,
    report: &impl Serialize,
) -> PyResult<Bound<'py, PyDict>> {
    let Ok(Value::Object(fields)) = serde_json::to_value(report) else {
        let why = "the report has no form as JSON: report this as a bug of Esker";
        return Err(KvError::Options(why.into())).or_raise(py);
    };
    let versioned = PyDict::new(py);
    versioned.set_item("version", REPORT_VERSION)?;
    for (name, value) in &fields {
        versioned.set_item(name, object(py, value)?)?;
    }
    Ok(versioned)
}

/// A JSON value as an object, without code of Python's.
fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => number.into_pyobject(py)?.into_any(),
            (None, Some(number)) => number.into_pyobject(py)?.into_any(),
            (None, None) => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(values) => {
            let objects: Vec<_> =
                values.iter().map(|value| object(py, value)).collect::<PyResult<_>>()?;
            PyList::new(py, objects)?.into_any()
        }
        Value::Object(fields) => {
            let objects = PyDict::new(py);
            for (name, value) in fields {
                objects.set_item(name, object(py, value)?)?;
            }
            objects.into_any()
        }
    })
}
