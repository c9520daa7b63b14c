//! A KVDB: opening and closing it, its KVSs, and operations on all of them.

use std::path::PathBuf;
use std::sync::Arc;

use esker_kv::{CompactRequest, Durability, KvError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::Batch;
use crate::error::OrRaise;
use crate::kvs::Kvs;
use crate::opened::Opened;
use crate::options::{Place, kvs_options, location, report};
use crate::remarks::queued;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::work::{look, released, watched};

/// How a KVDB is opened.
enum Mode {
    OpenOrCreate,
    Open,
    Create,
    ReadOnly,
}

impl Mode {
    fn of(name: &str) -> Result<Mode, KvError> {
        Ok(match name {
            "open-or-create" => Mode::OpenOrCreate,
            "open" => Mode::Open,
            "create" => Mode::Create,
            "read-only" => Mode::ReadOnly,
            _ => {
                return Err(KvError::Options(format!(
                    "'{name}' is no mode: use open-or-create, open, create or read-only"
                )));
            }
        })
    }
}

/// Opens the KVDB in the directory `path`, or makes it where there is none.
#[pyfunction]
#[pyo3(signature = (
    path, mode="open-or-create", *, memory_bytes=None, durability_ms=None, durability_bytes=None, transaction_ms=None,
    space_amplification=None, staging=None, capacity=None, on_progress=None
))]
#[allow(clippy::too_many_arguments)] // by name, in Python
pub(crate) fn open(
    py: Python<'_>,
    path: PathBuf,
    mode: &str,
    memory_bytes: Option<u64>,
    durability_ms: Option<u64>,
    durability_bytes: Option<u64>,
    transaction_ms: Option<u64>,
    space_amplification: Option<f64>,
    staging: Option<Place>,
    capacity: Option<Place>,
    on_progress: Option<Py<PyAny>>,
) -> PyResult<Kvdb> {
    let mode = Mode::of(mode).or_raise(py)?;
    let mut options = queued(esker_kv::Options::default().on_progress(look));
    options.memory_bytes = memory_bytes.unwrap_or(options.memory_bytes);
    let Durability { ms, bytes, .. } = options.durability;
    options.durability.ms = durability_ms.unwrap_or(ms);
    options.durability.bytes = durability_bytes.unwrap_or(bytes);
    options.transaction_ms = transaction_ms.unwrap_or(options.transaction_ms);
    options.space_amplification = space_amplification.unwrap_or(options.space_amplification);
    let builder = esker_kv::Kvdb::builder(location(&path, staging, capacity)).options(options);
    let db = watched(py, on_progress, || match mode {
        Mode::OpenOrCreate => builder.open_or_create(),
        Mode::Open => builder.open(),
        Mode::Create => builder.create(),
        Mode::ReadOnly => builder.open_read_only(),
    })?;
    Ok(Kvdb { opened: Opened::new(db, path.display().to_string()) })
}

/// An open KVDB. `close` closes it, or the end of a `with` block; else the end of its last handle. Handles that are
/// there after `close` answer `ClosedError`.
#[pyclass(frozen, module = "esker")]
pub(crate) struct Kvdb {
    opened: Arc<Opened>,
}

impl Kvdb {
    fn handle(&self, kvs: esker_kv::Kvs) -> Kvs {
        Kvs { kvs, opened: self.opened.clone() }
    }
}

#[pymethods]
impl Kvdb {
    /// The directory.
    #[getter]
    fn path(&self) -> &str {
        &self.opened.path
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.opened.is_closed()
    }

    fn __repr__(&self) -> String {
        let closed = if self.opened.is_closed() { ", closed" } else { "" };
        format!("<esker.Kvdb '{}'{closed}>", self.opened.path)
    }

    // ---- KVSs ------------------------------------------------------------------------------------

    /// The KVS of this name.
    fn kvs(&self, py: Python<'_>, name: &str) -> PyResult<Kvs> {
        released(py, || self.opened.db().kvs(name)).map(|kvs| self.handle(kvs))
    }

    /// The KVS of this name, which is created, with these options, where there is none.
    #[pyo3(signature = (name, *, policy=None, compression=None, ttl_ms=None))]
    fn kvs_or_create(
        &self,
        py: Python<'_>,
        name: &str,
        policy: Option<&str>,
        compression: Option<&str>,
        ttl_ms: Option<u64>,
    ) -> PyResult<Kvs> {
        let options = kvs_options(py, policy, compression, ttl_ms)?;
        released(py, || self.opened.db().kvs_or_create(name, options)).map(|kvs| self.handle(kvs))
    }

    /// Creates a KVS.
    #[pyo3(signature = (name, *, policy=None, compression=None, ttl_ms=None))]
    fn create_kvs(
        &self,
        py: Python<'_>,
        name: &str,
        policy: Option<&str>,
        compression: Option<&str>,
        ttl_ms: Option<u64>,
    ) -> PyResult<Kvs> {
        let options = kvs_options(py, policy, compression, ttl_ms)?;
        released(py, || self.opened.db().create_kvs(name, options)).map(|kvs| self.handle(kvs))
    }

    /// Drops a KVS with all it holds. Handles of it answer `ClosedError` from then on.
    fn drop_kvs(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        released(py, || self.opened.db().drop_kvs(name))
    }

    /// The names of all KVSs, in the order of their creation.
    fn kvs_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.opened.check(py)?;
        Ok(self.opened.db().kvs_names())
    }

    // ---- several KVSs at once --------------------------------------------------------------------

    /// All KVSs as they are now.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        self.opened.check(py)?;
        Ok(Snapshot::new(&self.opened))
    }

    /// Begins a transaction. With `durable` its writes are durable when the commit returns.
    #[pyo3(signature = (*, durable=false))]
    fn transaction(&self, py: Python<'_>, durable: bool) -> PyResult<Transaction> {
        self.opened.check(py)?;
        // A beginning may wait for the writer's lock.
        Ok(py.detach(|| Transaction::new(&self.opened, durable)))
    }

    /// An empty batch. With `durable` its writes are durable when it is written.
    #[pyo3(signature = (*, durable=false))]
    fn batch(&self, py: Python<'_>, durable: bool) -> PyResult<Batch> {
        self.opened.check(py)?;
        Ok(Batch::new(&self.opened, durable))
    }

    /// Makes everything written so far durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        released(py, || self.opened.db().sync())
    }

    // ---- maintenance -----------------------------------------------------------------------------

    /// Merges and moves data while the KVDB is in use: all of it, by default; with `scrub` so that deleted data is
    /// erased; or until there are `space_amplification` bytes on the media for each live byte. Returns its status.
    #[pyo3(signature = (*, scrub=false, space_amplification=None, on_progress=None))]
    fn compact<'py>(
        &self,
        py: Python<'py>,
        scrub: bool,
        space_amplification: Option<f64>,
        on_progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let request = match (scrub, space_amplification) {
            (false, None) => CompactRequest::Full,
            (true, None) => CompactRequest::Scrub,
            (false, Some(goal)) => CompactRequest::SpaceAmplification(goal),
            (true, Some(_)) => {
                let why = "a compaction has one goal: leave out `scrub` or `space_amplification`";
                return Err(KvError::Options(why.into())).or_raise(py);
            }
        };
        let status = watched(py, on_progress, || self.opened.db().compact(request))?;
        report(py, &status)
    }

    /// How a compaction, or the removal of the staging class, is getting on.
    fn compact_status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.opened.check(py)?;
        report(py, &py.detach(|| self.opened.db().compact_status()))
    }

    /// Calls off the compaction, or the removal of the staging class, that another thread has under way.
    fn cancel_compact(&self, py: Python<'_>) -> PyResult<()> {
        self.opened.check(py)?;
        self.opened.db().cancel_compact();
        Ok(())
    }

    /// Waits for maintenance until nothing is due.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        self.opened.check(py)?;
        while released(py, || self.opened.db().step())? {
            py.check_signals()?;
        }
        Ok(())
    }

    /// Turns the memtable into kvsets now, full or not.
    fn ingest(&self, py: Python<'_>) -> PyResult<()> {
        self.opened.check(py)?;
        released(py, || self.opened.db().ingest())
    }

    /// Gives the KVDB a staging class while it runs: a path, or `True` for a file in its own directory.
    fn add_staging(&self, py: Python<'_>, place: Place) -> PyResult<()> {
        let Some(medium) = place.medium() else {
            let why = "a staging class has a place: give a path, or True for a file in the KVDB's directory";
            return Err(KvError::Options(why.into())).or_raise(py);
        };
        self.opened.check(py)?;
        released(py, || self.opened.db().add_staging(&medium))
    }

    /// Takes the staging class away while the KVDB is in use, which takes as long as moving its data takes.
    #[pyo3(signature = (*, on_progress=None))]
    fn remove_staging(&self, py: Python<'_>, on_progress: Option<Py<PyAny>>) -> PyResult<()> {
        self.opened.check(py)?;
        watched(py, on_progress, || self.opened.db().remove_staging())
    }

    /// Copies the KVDB to the directory `to`, while reads and writes go on. Returns a report.
    #[pyo3(signature = (to, *, staging=None, capacity=None, on_progress=None))]
    fn backup<'py>(
        &self,
        py: Python<'py>,
        to: PathBuf,
        staging: Option<Place>,
        capacity: Option<Place>,
        on_progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let to = location(&to, staging, capacity);
        self.opened.check(py)?;
        let copied = watched(py, on_progress, || self.opened.db().backup(&to))?;
        report(py, &copied)
    }

    // ---- figures ---------------------------------------------------------------------------------

    /// The figures of the KVDB now.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.opened.check(py)?;
        report(py, &py.detach(|| self.opened.db().stats()))
    }

    /// Warnings for the user: how devices were opened, damage, readers that keep much space.
    fn remarks(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.opened.check(py)?;
        Ok(py.detach(|| self.opened.db().remarks()))
    }

    /// The version of the on-media format that it has.
    fn format_version(&self, py: Python<'_>) -> PyResult<u16> {
        self.opened.check(py)?;
        Ok(self.opened.db().format_version())
    }

    /// Upgrades it to the newest version of the on-media format, durably. Returns the version that it had.
    fn upgrade(&self, py: Python<'_>) -> PyResult<u16> {
        self.opened.check(py)?;
        released(py, || self.opened.db().upgrade())
    }

    // ---- its end ---------------------------------------------------------------------------------

    /// Makes all writes durable and closes. Another call has the same result.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        released(py, || self.opened.close())
    }

    fn __enter__(this: Bound<'_, Kvdb>) -> Bound<'_, Kvdb> {
        this
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyAny>) -> PyResult<bool> {
        // A forked child that leaves the block has nothing to close.
        if self.opened.is_here() {
            self.close(py)?;
        }
        Ok(false)
    }
}
