//! Esker's key-value engine for Python: the module `esker._esker`, of which the package `esker` is made.
//!
//! # Rooms
//!
//! Each sees only those before it: `callers` (code of callers), `error` (exceptions), `bytes` (bytes-like arguments), `remarks` (logging), `work`
//! (calls without the GIL), `opened` (an open KVDB and its children), `options` (arguments as the engine's options), `range` (bounds of
//! walks), `rows` (iterators), `kvs`, `batch`, `snapshot`, `transaction`, `kvdb`, `copies` (checks, repairs), `measure`.
//!
//! # Invariants
//! 1. No mutex is waited for with the GIL held, and none is taken in a forked child.
//! 2. No class refers to an object of Python's: there are no cycles, and their end runs no code of Python's.
//! 3. Bytes that are read without the GIL are an immutable `bytes` object's, which the caller holds.

mod batch;
mod bytes;
mod callers;
mod copies;
mod error;
mod kvdb;
mod kvs;
#[cfg(feature = "measure")]
mod measure;
mod opened;
mod options;
mod range;
mod remarks;
mod rows;
mod snapshot;
mod transaction;
mod work;

use pyo3::prelude::*;

/// The classes and functions that the package `esker` shows.
#[pymodule]
mod _esker {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::copies::{check, destroy, repair};
    #[pymodule_export]
    use crate::kvdb::{Kvdb, open};
    #[pymodule_export]
    use crate::kvs::Kvs;
    #[cfg(feature = "measure")]
    #[pymodule_export]
    use crate::measure::{
        measure_get, measure_get_many, measure_put, measure_release, measure_scan,
    };
    #[pymodule_export]
    use crate::rows::{Items, Keys, Values};
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    #[pymodule_export]
    use crate::transaction::Transaction;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Finds what is Python's own, so that no call has to import it.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::error::of_codes(module.py())?;
        crate::remarks::teller(module.py()).map(drop)
    }
}
