//! Transactions: snapshot isolation over all KVSs of a KVDB.

use std::sync::{Arc, Mutex};

use esker_kv::{KvError, Readable as _};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::bytes::BytesLike;
use crate::kvs::{Kvs, read_value, read_values};
use crate::opened::{Opened, Own, lock, lock_released};
use crate::options::write_options;
use crate::range::{Keyspan, between};
use crate::rows::{Items, Keys, Plan, Values, Walk};
use crate::work::released;

type Inner = esker_kv::Transaction;

/// Reads the KVDB as it was when the transaction began, with its own writes; these happen all or not at all, when it is
/// committed. As a context manager it is committed at the end of the block, and rolled back when the block raises.
#[pyclass(frozen, module = "esker")]
pub(crate) struct Transaction {
    opened: Arc<Opened>,
    durable: bool,
    /// None after it has ended.
    inner: Mutex<Option<Own<Inner>>>,
}

/// The answer to calls after a commit or a rollback.
fn ended() -> KvError {
    KvError::TransactionExpired("it was committed or rolled back".into())
}

impl Transaction {
    pub(crate) fn new(opened: &Arc<Opened>, durable: bool) -> Transaction {
        let inner = Mutex::new(Some(Own::new(opened.db().transaction())));
        Transaction { opened: opened.clone(), durable, inner }
    }

    /// Does `work` with it, without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Inner) -> Result<T, KvError> + Send,
    ) -> PyResult<T> {
        self.opened.check(py)?;
        released(py, || work(lock_released(&self.inner).as_mut().ok_or_else(ended)?.get_mut()))
    }

    fn value<'py>(
        &self,
        py: Python<'py>,
        read: impl FnOnce(&mut Inner, &mut Vec<u8>) -> Result<bool, KvError> + Send,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.opened.check(py)?;
        read_value(py, |value| {
            let mut inner = lock_released(&self.inner);
            read(inner.as_mut().ok_or_else(ended)?.get_mut(), value)
        })
    }

    fn walk(
        &self,
        py: Python<'_>,
        kvs: &Kvs,
        keys: Keyspan,
        (reverse, limit, keys_only): (bool, Option<usize>, bool),
    ) -> PyResult<Walk> {
        let plan = Plan { keys, reverse, limit, keys_only };
        Walk::begin(py, &self.opened, &plan, || {
            let inner = lock_released(&self.inner);
            inner.as_ref().ok_or_else(ended)?.get().cursor(&kvs.kvs)
        })
    }
}

#[pymethods]
impl Transaction {
    // ---- reads -----------------------------------------------------------------------------------

    /// The value of `key`, or `default`.
    #[pyo3(signature = (kvs, key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        kvs: &Kvs,
        key: BytesLike<'_, 'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = key.as_ref();
        let value = self.value(py, |inner, value| inner.get_into(&kvs.kvs, key, value))?;
        Ok(value.map(Bound::into_any).or(default))
    }

    /// As `get`, and the commit fails when someone else has written the key since the beginning.
    #[pyo3(signature = (kvs, key, default=None))]
    fn get_for_update<'py>(
        &self,
        py: Python<'py>,
        kvs: &Kvs,
        key: BytesLike<'_, 'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = key.as_ref();
        let value = self.with(py, |inner| inner.get_for_update(&kvs.kvs, key))?;
        Ok(value.map(|value| PyBytes::new(py, &value).into_any()).or(default))
    }

    /// The values of many keys in their order: `None` where there is none.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        kvs: &Kvs,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.opened.check(py)?;
        read_values(py, keys, |keys| {
            let inner = lock_released(&self.inner);
            inner.as_ref().ok_or_else(ended)?.get().get_many(&kvs.kvs, keys)
        })
    }

    /// Whether `key` has a value, which is not read.
    fn contains(&self, py: Python<'_>, kvs: &Kvs, key: BytesLike<'_, '_>) -> PyResult<bool> {
        let key = key.as_ref();
        self.with(py, |inner| inner.contains_key(&kvs.kvs, key))
    }

    /// Whether someone else has written `key` since the beginning: then the commit of a write of it would fail.
    fn is_changed(&self, py: Python<'_>, kvs: &Kvs, key: BytesLike<'_, '_>) -> PyResult<bool> {
        let key = key.as_ref();
        self.with(py, |inner| inner.is_changed(&kvs.kvs, key))
    }

    /// Keys and values in order: those from `start` to before `stop`, or that begin with `prefix`. Later writes of the
    /// transaction are not among them.
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

    // ---- writes ----------------------------------------------------------------------------------

    /// Maps `key` to `value` when it is committed.
    fn put(
        &self,
        py: Python<'_>,
        kvs: &Kvs,
        key: BytesLike<'_, '_>,
        value: BytesLike<'_, '_>,
    ) -> PyResult<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.with(py, |inner| inner.put(&kvs.kvs, key, value))
    }

    /// Removes `key` when it is committed, whether it is there or not.
    fn delete(&self, py: Python<'_>, kvs: &Kvs, key: BytesLike<'_, '_>) -> PyResult<()> {
        let key = key.as_ref();
        self.with(py, |inner| inner.delete(&kvs.kvs, key))
    }

    /// Removes all keys that begin with `prefix` when it is committed.
    fn delete_prefix(&self, py: Python<'_>, kvs: &Kvs, prefix: BytesLike<'_, '_>) -> PyResult<()> {
        let prefix = prefix.as_ref();
        self.with(py, |inner| inner.delete_prefix(&kvs.kvs, prefix))
    }

    /// Removes all keys from `start` to before `stop` when it is committed.
    #[pyo3(signature = (kvs, start=None, stop=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        kvs: &Kvs,
        start: Option<BytesLike<'_, '_>>,
        stop: Option<BytesLike<'_, '_>>,
    ) -> PyResult<()> {
        let bounds = between(start.as_ref(), stop.as_ref());
        self.with(py, |inner| inner.delete_range(&kvs.kvs, bounds))
    }

    // ---- its end ---------------------------------------------------------------------------------

    /// Makes the writes happen, all or none, now and after a crash. It has ended then, whether this raises or not.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.opened.check(py)?;
        released(py, || {
            let inner = lock_released(&self.inner).take().ok_or_else(ended)?;
            inner.into_inner()?.commit_with(&write_options(self.durable))
        })
    }

    /// Forgets the writes, and ends. Nothing happens when it has ended already.
    fn rollback(&self, py: Python<'_>) {
        if self.opened.is_here() {
            py.detach(|| drop(lock_released(&self.inner).take()));
        }
    }

    fn __enter__(this: Bound<'_, Transaction>) -> Bound<'_, Transaction> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Bound<'_, PyAny>>,
        _value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        // A block may have ended it itself.
        let is_open = self.opened.is_here() && lock(py, &self.inner).is_some();
        if kind.is_some() || (self.opened.is_here() && !is_open) {
            self.rollback(py);
        } else {
            self.commit(py)?;
        }
        Ok(false)
    }

    fn __repr__(&self) -> String {
        format!("<esker.Transaction of '{}'>", self.opened.path)
    }
}
