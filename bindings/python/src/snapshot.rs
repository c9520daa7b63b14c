//! Snapshots: all KVSs of a KVDB as they were at one moment.

use std::sync::{Arc, Mutex};

use esker_kv::{KvError, Readable as _};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::bytes::BytesLike;
use crate::error::OrRaise;
use crate::kvs::{Kvs, get_from, read_values};
use crate::opened::{Opened, Own, lock};
use crate::range::Keyspan;
use crate::rows::{Items, Keys, Plan, Values, Walk};
use crate::work::released;

/// All KVSs as they were when it was made, whatever was written since. While it lives, it keeps the data that it may
/// read from being freed: `close` it, or use it as a context manager.
#[pyclass(frozen, module = "esker")]
pub(crate) struct Snapshot {
    opened: Arc<Opened>,
    snapshot: Mutex<Option<Own<esker_kv::Snapshot>>>,
}

impl Snapshot {
    pub(crate) fn new(opened: &Arc<Opened>) -> Snapshot {
        let snapshot = Own::new(opened.db().snapshot());
        Snapshot { opened: opened.clone(), snapshot: Mutex::new(Some(snapshot)) }
    }

    /// A handle of it.
    fn handle(&self, py: Python<'_>) -> PyResult<esker_kv::Snapshot> {
        self.opened.check(py)?;
        let snapshot = lock(py, &self.snapshot);
        snapshot.as_ref().map(|snapshot| snapshot.get().clone()).ok_or(KvError::Closed).or_raise(py)
    }

    fn walk(
        &self,
        py: Python<'_>,
        kvs: &Kvs,
        keys: Keyspan,
        (reverse, limit, keys_only): (bool, Option<usize>, bool),
    ) -> PyResult<Walk> {
        let snapshot = self.handle(py)?;
        let plan = Plan { keys, reverse, limit, keys_only };
        Walk::begin(py, &self.opened, &plan, || snapshot.cursor(&kvs.kvs))
    }
}

#[pymethods]
impl Snapshot {
    /// The value of `key`, or `default`.
    #[pyo3(signature = (kvs, key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        kvs: &Kvs,
        key: BytesLike<'_, 'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value: Option<Bound<'py, PyBytes>> =
            get_from(py, &self.handle(py)?, kvs, key.as_ref())?;
        Ok(value.map(Bound::into_any).or(default))
    }

    /// The values of many keys in their order: `None` where there is none.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        kvs: &Kvs,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let snapshot = self.handle(py)?;
        read_values(py, keys, |keys| snapshot.get_many(&kvs.kvs, keys))
    }

    /// Whether `key` has a value, which is not read.
    fn contains(&self, py: Python<'_>, kvs: &Kvs, key: BytesLike<'_, '_>) -> PyResult<bool> {
        let (snapshot, key) = (self.handle(py)?, key.as_ref());
        released(py, || snapshot.contains_key(&kvs.kvs, key))
    }

    /// Keys and values in order: those from `start` to before `stop`, or that begin with `prefix`.
    #[pyo3(signature = (kvs, start=None, stop=None, *, prefix=None, reverse=false, limit=None))]
    #[allow(clippy::too_many_arguments)] // by name, in Python
    fn items(
        &self,
        py: Python<'_>,
        kvs: &Kvs,
        start: Option<BytesLike<'_, '_>>,
        stop: Option<BytesLike<'_, '_>>,
        prefix: Option<BytesLike<'_, '_>>,
        reverse: bool,
        limit: Option<usize>,
    ) -> PyResult<Items> {
        let keys = Keyspan::of(start.as_ref(), stop.as_ref(), prefix.as_ref())?;
        self.walk(py, kvs, keys, (reverse, limit, false)).map(Items)
    }

    /// The keys of such a walk; values are not read.
    #[pyo3(signature = (kvs, start=None, stop=None, *, prefix=None, reverse=false, limit=None))]
    #[allow(clippy::too_many_arguments)] // by name, in Python
    fn keys(
        &self,
        py: Python<'_>,
        kvs: &Kvs,
        start: Option<BytesLike<'_, '_>>,
        stop: Option<BytesLike<'_, '_>>,
        prefix: Option<BytesLike<'_, '_>>,
        reverse: bool,
        limit: Option<usize>,
    ) -> PyResult<Keys> {
        let keys = Keyspan::of(start.as_ref(), stop.as_ref(), prefix.as_ref())?;
        self.walk(py, kvs, keys, (reverse, limit, true)).map(Keys)
    }

    /// The values of such a walk.
    #[pyo3(signature = (kvs, start=None, stop=None, *, prefix=None, reverse=false, limit=None))]
    #[allow(clippy::too_many_arguments)] // by name, in Python
    fn values(
        &self,
        py: Python<'_>,
        kvs: &Kvs,
        start: Option<BytesLike<'_, '_>>,
        stop: Option<BytesLike<'_, '_>>,
        prefix: Option<BytesLike<'_, '_>>,
        reverse: bool,
        limit: Option<usize>,
    ) -> PyResult<Values> {
        let keys = Keyspan::of(start.as_ref(), stop.as_ref(), prefix.as_ref())?;
        self.walk(py, kvs, keys, (reverse, limit, false)).map(Values)
    }

    /// Lets go of the data that it keeps. Its calls answer `ClosedError` from then on.
    fn close(&self, py: Python<'_>) {
        if self.opened.is_here() {
            let snapshot = lock(py, &self.snapshot).take();
            py.detach(|| drop(snapshot));
        }
    }

    fn __enter__(this: Bound<'_, Snapshot>) -> Bound<'_, Snapshot> {
        this
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyAny>) -> bool {
        self.close(py);
        false
    }

    fn __repr__(&self) -> String {
        format!("<esker.Snapshot of '{}'>", self.opened.path)
    }
}
