//! Batches: writes to any KVSs of one KVDB that happen all or not at all.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use crate::bytes::BytesLike;
use crate::kvs::Kvs;
use crate::opened::{Opened, lock, lock_released};
use crate::options::write_options;
use crate::range::between;
use crate::work::released;

/// Writes to any KVSs of one KVDB that happen all or not at all. As a context manager it is written at the end of the
/// block, and forgotten when the block raises.
#[pyclass(frozen, module = "esker")]
pub(crate) struct Batch {
    opened: Arc<Opened>,
    durable: bool,
    batch: Mutex<esker_kv::Batch>,
}

impl Batch {
    pub(crate) fn new(opened: &Arc<Opened>, durable: bool) -> Batch {
        Batch { opened: opened.clone(), durable, batch: Mutex::default() }
    }

    /// Changes it, unless this is a forked child, in which another thread's lock would stay.
    fn change<T>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut esker_kv::Batch) -> T,
    ) -> PyResult<T> {
        self.opened.check(py)?;
        Ok(change(&mut lock(py, &self.batch)))
    }
}

#[pymethods]
impl Batch {
    /// Adds a put. Of several writes to one key, the last one counts.
    fn put(
        &self,
        py: Python<'_>,
        kvs: &Kvs,
        key: BytesLike<'_, '_>,
        value: BytesLike<'_, '_>,
    ) -> PyResult<()> {
        self.change(py, |batch| batch.put(&kvs.kvs, key, value))
    }

    /// Adds a delete.
    fn delete(&self, py: Python<'_>, kvs: &Kvs, key: BytesLike<'_, '_>) -> PyResult<()> {
        self.change(py, |batch| batch.delete(&kvs.kvs, key))
    }

    /// Adds a delete of all keys that begin with `prefix`.
    fn delete_prefix(&self, py: Python<'_>, kvs: &Kvs, prefix: BytesLike<'_, '_>) -> PyResult<()> {
        self.change(py, |batch| batch.delete_prefix(&kvs.kvs, prefix))
    }

    /// Adds a delete of all keys from `start` to before `stop`.
    #[pyo3(signature = (kvs, start=None, stop=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        kvs: &Kvs,
        start: Option<BytesLike<'_, '_>>,
        stop: Option<BytesLike<'_, '_>>,
    ) -> PyResult<()> {
        let bounds = between(start.as_ref(), stop.as_ref());
        self.change(py, |batch| batch.delete_range(&kvs.kvs, bounds))
    }

    /// Writes it: all of it or nothing, now and after a crash. Then it is empty. After an error it keeps its writes.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        self.opened.check(py)?;
        released(py, || {
            let mut batch = lock_released(&self.batch);
            self.opened.db().write_with(&batch, &write_options(self.durable))?;
            batch.clear();
            Ok(())
        })
    }

    /// Removes all writes.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, esker_kv::Batch::clear)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.change(py, |batch| batch.len())
    }

    fn __enter__(this: Bound<'_, Batch>) -> Bound<'_, Batch> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Bound<'_, PyAny>>,
        _value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        if kind.is_none() {
            self.write(py)?;
        } else if self.opened.is_here() {
            lock(py, &self.batch).clear();
        }
        Ok(false)
    }

    fn __repr__(&self) -> String {
        format!("<esker.Batch of '{}'>", self.opened.path)
    }
}
