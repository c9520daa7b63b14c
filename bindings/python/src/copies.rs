//! Work on a KVDB that nobody has open: its check, its repair, its end.

use std::path::PathBuf;

use esker_kv::{Kvdb, Location};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options::{Place, location, report};
use crate::work::{look, watched};

/// Verifies the KVDB in the directory `path` without changing it. Damage is in the report's `findings`.
#[pyfunction]
#[pyo3(signature = (path, *, on_progress=None))]
pub(crate) fn check(
    py: Python<'_>,
    path: PathBuf,
    on_progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let checked = watched(py, on_progress, || Kvdb::builder(&path).on_progress(look).check())?;
    report(py, &checked)
}

/// Writes all sound data of the damaged KVDB in the directory `path` to a new one in `to`. Returns a report.
#[pyfunction]
#[pyo3(signature = (path, to, *, memory_bytes=None, staging=None, capacity=None, on_progress=None))]
pub(crate) fn repair(
    py: Python<'_>,
    path: PathBuf,
    to: PathBuf,
    memory_bytes: Option<u64>,
    staging: Option<Place>,
    capacity: Option<Place>,
    on_progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let mut builder = Kvdb::builder(location(&to, staging, capacity)).on_progress(look);
    if let Some(bytes) = memory_bytes {
        builder = builder.memory(bytes);
    }
    let repaired = watched(py, on_progress, || {
        let remains = Location::dir(&path).remains()?;
        builder.repair(&remains)
    })?;
    report(py, &repaired)
}

/// Removes the KVDB in the directory `path` with all it holds.
#[pyfunction]
pub(crate) fn destroy(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    watched(py, None, || Kvdb::builder(&path).destroy())
}
