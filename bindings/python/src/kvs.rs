//! A KVS: an ordered map of bytes to bytes, with the calls of a `dict` where they have the same meaning.

use std::cell::RefCell;
use std::sync::Arc;

use esker_kv::{Batch, KvError};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::bytes::{BytesLike, HeldBytes};
use crate::callers;
use crate::error::OrRaise;
use crate::opened::Opened;
use crate::options::{parsed, report, write_options};
use crate::range::{Keyspan, between};
use crate::remarks::hand_on;
use crate::rows::{Items, Keys, Plan, Values, Walk};
use crate::work::released;

/// `update` writes batches of so many rows or bytes.
const BATCH_ROWS: usize = 1024;
const BATCH_BYTES: usize = 1 << 20;
/// A buffer that grew beyond this is not kept.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    /// The buffer into which this thread reads values.
    static VALUE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads a value without the GIL, and makes it an object: none when there is none.
pub(crate) fn read_value<'py>(
    py: Python<'py>,
    read: impl FnOnce(&mut Vec<u8>) -> Result<bool, KvError> + Send,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    // Taken out, because making an object may run code that reads.
    let mut buffer = VALUE.take();
    let found = py.detach(|| read(&mut buffer));
    let value = match found {
        Ok(true) => Ok(Some(PyBytes::new(py, &buffer))),
        Ok(false) => Ok(None),
        Err(error) => Err(error).or_raise(py),
    };
    if buffer.capacity() <= KEPT_BYTES {
        VALUE.set(buffer);
    }
    let value = value?;
    hand_on(py)?;
    Ok(value)
}

/// Reads the values of many keys without the GIL, and makes them a list.
pub(crate) fn read_values<'py>(
    py: Python<'py>,
    keys: &Bound<'py, PyAny>,
    read: impl FnOnce(&[&[u8]]) -> Result<Vec<Option<esker_kv::Value>>, KvError> + Send,
) -> PyResult<Bound<'py, PyList>> {
    let mut held = Vec::new();
    callers::each(keys, |key| {
        held.push(HeldBytes::of(key)?);
        Ok(())
    })?;
    let slices: Vec<&[u8]> = held.iter().map(HeldBytes::as_slice).collect();
    let values = released(py, || read(&slices))?;
    PyList::new(py, values.iter().map(|value| value.as_ref().map(|value| PyBytes::new(py, value))))
}

/// An ordered map of bytes to bytes in a KVDB. A handle, used from any thread.
#[pyclass(frozen, module = "esker")]
pub(crate) struct Kvs {
    pub(crate) kvs: esker_kv::Kvs,
    pub(crate) opened: Arc<Opened>,
}

impl Kvs {
    fn walk(
        &self,
        py: Python<'_>,
        keys: Keyspan,
        (reverse, limit, keys_only): (bool, Option<usize>, bool),
    ) -> PyResult<Walk> {
        let plan = Plan { keys, reverse, limit, keys_only };
        Walk::begin(py, &self.opened, &plan, || self.kvs.cursor())
    }
}

#[pymethods]
impl Kvs {
    /// The name.
    #[getter]
    fn name(&self) -> &str {
        self.kvs.name()
    }

    fn __repr__(&self) -> String {
        format!("<esker.Kvs '{}' of '{}'>", self.kvs.name(), self.opened.path)
    }

    // ---- reads -----------------------------------------------------------------------------------

    /// The value of `key`, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: BytesLike<'_, 'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = key.as_ref();
        let value = read_value(py, |value| self.kvs.get_into(key, value))?;
        Ok(value.map(Bound::into_any).or(default))
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: BytesLike<'_, 'py>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let slice = key.as_ref();
        let value = read_value(py, |value| self.kvs.get_into(slice, value))?;
        value.ok_or_else(|| PyKeyError::new_err(PyBytes::new(py, slice).unbind()))
    }

    fn __contains__(&self, py: Python<'_>, key: BytesLike<'_, '_>) -> PyResult<bool> {
        let key = key.as_ref();
        released(py, || self.kvs.contains_key(key))
    }

    /// The values of many keys in their order: `None` where there is none. Those on media are read several at a time.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        read_values(py, keys, |keys| self.kvs.get_many(keys))
    }

    /// Keys and values in order, as they are now: those from `start` to before `stop`, or that begin with `prefix`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, limit=None))]
    fn items(
        &self,
        py: Python<'_>,
        start: Option<BytesLike<'_, '_>>,
        stop: Option<BytesLike<'_, '_>>,
        prefix: Option<BytesLike<'_, '_>>,
        reverse: bool,
        limit: Option<usize>,
    ) -> PyResult<Items> {
        let keys = Keyspan::of(start.as_ref(), stop.as_ref(), prefix.as_ref())?;
        self.walk(py, keys, (reverse, limit, false)).map(Items)
    }

    /// The keys of such a walk; values are not read.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, limit=None))]
    fn keys(
        &self,
        py: Python<'_>,
        start: Option<BytesLike<'_, '_>>,
        stop: Option<BytesLike<'_, '_>>,
        prefix: Option<BytesLike<'_, '_>>,
        reverse: bool,
        limit: Option<usize>,
    ) -> PyResult<Keys> {
        let keys = Keyspan::of(start.as_ref(), stop.as_ref(), prefix.as_ref())?;
        self.walk(py, keys, (reverse, limit, true)).map(Keys)
    }

    /// The values of such a walk.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, limit=None))]
    fn values(
        &self,
        py: Python<'_>,
        start: Option<BytesLike<'_, '_>>,
        stop: Option<BytesLike<'_, '_>>,
        prefix: Option<BytesLike<'_, '_>>,
        reverse: bool,
        limit: Option<usize>,
    ) -> PyResult<Values> {
        let keys = Keyspan::of(start.as_ref(), stop.as_ref(), prefix.as_ref())?;
        self.walk(py, keys, (reverse, limit, false)).map(Values)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Keys> {
        self.walk(py, Keyspan::of(None, None, None)?, (false, None, true)).map(Keys)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Keys> {
        self.walk(py, Keyspan::of(None, None, None)?, (true, None, true)).map(Keys)
    }

    /// The first key with its value; `None` when there are no keys.
    fn first<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let row = released(py, || self.kvs.first())?;
        Ok(row.map(|(key, value)| (PyBytes::new(py, &key), PyBytes::new(py, &value))))
    }

    /// The last key with its value; `None` when there are no keys.
    fn last<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let row = released(py, || self.kvs.last())?;
        Ok(row.map(|(key, value)| (PyBytes::new(py, &key), PyBytes::new(py, &value))))
    }

    /// Whether there are no keys.
    fn is_empty(&self, py: Python<'_>) -> PyResult<bool> {
        released(py, || self.kvs.is_empty())
    }

    // ---- writes ----------------------------------------------------------------------------------

    /// Maps `key` to `value`. With `durable` it is durable when this returns; else as the KVDB's options say.
    #[pyo3(signature = (key, value, *, durable=false))]
    fn put(
        &self,
        py: Python<'_>,
        key: BytesLike<'_, '_>,
        value: BytesLike<'_, '_>,
        durable: bool,
    ) -> PyResult<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        released(py, || self.kvs.put_with(key, value, &write_options(durable)))
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: BytesLike<'_, '_>,
        value: BytesLike<'_, '_>,
    ) -> PyResult<()> {
        self.put(py, key, value, false)
    }

    /// Removes `key`, whether it is there or not.
    fn delete(&self, py: Python<'_>, key: BytesLike<'_, '_>) -> PyResult<()> {
        let key = key.as_ref();
        released(py, || self.kvs.delete(key))
    }

    fn __delitem__(&self, py: Python<'_>, key: BytesLike<'_, '_>) -> PyResult<()> {
        self.delete(py, key)
    }

    /// Removes all keys that begin with `prefix`, with one record.
    fn delete_prefix(&self, py: Python<'_>, prefix: BytesLike<'_, '_>) -> PyResult<()> {
        let prefix = prefix.as_ref();
        released(py, || self.kvs.delete_prefix(prefix))
    }

    /// Removes all keys from `start` to before `stop`, with one record.
    #[pyo3(signature = (start=None, stop=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<BytesLike<'_, '_>>,
        stop: Option<BytesLike<'_, '_>>,
    ) -> PyResult<()> {
        let bounds = between(start.as_ref(), stop.as_ref());
        released(py, || self.kvs.delete_range(bounds))
    }

    /// Removes all keys, with one record.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        released(py, || self.kvs.clear())
    }

    /// Puts all rows of a mapping or of an iterable of pairs, in batches that are atomic each.
    fn update(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        self.opened.check(py)?;
        let rows = match rows.getattr_opt("items")? {
            Some(items) => callers::call(&items, &PyTuple::empty(py))?,
            None => rows.clone(),
        };
        let (mut batch, mut bytes) = (Batch::new(), 0);
        callers::each(&rows, |row| {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = row.extract()?;
            let (key, value) = (HeldBytes::of(key)?, HeldBytes::of(value)?);
            batch.put(&self.kvs, key.as_slice(), value.as_slice());
            bytes += key.as_slice().len() + value.as_slice().len();
            if batch.len() == BATCH_ROWS || bytes >= BATCH_BYTES {
                released(py, || self.opened.db().write(&batch))?;
                batch.clear();
                bytes = 0;
                py.check_signals()?;
            }
            Ok(())
        })?;
        released(py, || self.opened.db().write(&batch))
    }

    /// Maps `key` to `new` (`None` removes it) if it has the value `old` (`None`: no value) now: whether it had.
    fn compare_and_set(
        &self,
        py: Python<'_>,
        key: BytesLike<'_, '_>,
        old: Option<BytesLike<'_, '_>>,
        new: Option<BytesLike<'_, '_>>,
    ) -> PyResult<bool> {
        let key = key.as_ref();
        let (old, new) = (old.as_ref().map(AsRef::as_ref), new.as_ref().map(AsRef::as_ref));
        released(py, || self.kvs.compare_and_set(key, old, new)).map(|set| set.is_ok())
    }

    // ---- options ---------------------------------------------------------------------------------

    /// The policy, compression and time to live.
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let options = released(py, || self.kvs.options())?;
        let fields = report(py, &options)?;
        fields.set_item("policy", options.policy.to_string())?;
        Ok(fields)
    }

    /// Changes where data goes from now on, durably.
    fn set_policy(&self, py: Python<'_>, policy: &str) -> PyResult<()> {
        let policy = parsed(py, policy)?;
        released(py, || self.kvs.set_policy(policy))
    }

    /// Changes how values that age from now on are compressed, durably: `none`, `lz4`, `zstd` or `auto`.
    fn set_compression(&self, py: Python<'_>, compression: &str) -> PyResult<()> {
        let compression = parsed(py, compression)?;
        released(py, || self.kvs.set_compression(compression))
    }

    /// Changes the time to live of values that are put from now on, durably; `None` keeps them.
    fn set_ttl_ms(&self, py: Python<'_>, ttl_ms: Option<u64>) -> PyResult<()> {
        released(py, || self.kvs.set_ttl_ms(ttl_ms))
    }

    /// The caller's metadata: empty when none was set.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let metadata = released(py, || self.kvs.metadata())?;
        Ok(PyBytes::new(py, &metadata))
    }

    /// Sets the caller's metadata, up to 4,096 bytes that stay with the KVS, durably.
    fn set_metadata(&self, py: Python<'_>, metadata: BytesLike<'_, '_>) -> PyResult<()> {
        let metadata = metadata.as_ref();
        released(py, || self.kvs.set_metadata(metadata))
    }
}

/// Reads of a snapshot or a transaction of one KVDB.
pub(crate) fn get_from<'py>(
    py: Python<'py>,
    reader: &(impl esker_kv::Readable + Sync),
    kvs: &Kvs,
    key: &[u8],
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    read_value(py, |value| reader.get_into(&kvs.kvs, key, value))
}
