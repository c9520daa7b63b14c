//! Loops in Rust over the same KVS as loops in Python: `border.py` compares both.

use std::hint::black_box;

use esker_base::Clock;
use pyo3::prelude::*;

use crate::bytes::HeldBytes;
use crate::kvs::Kvs;
use crate::work::released;

/// Nanoseconds that `each` takes for all of `keys`.
fn timed(
    py: Python<'_>,
    keys: &Bound<'_, PyAny>,
    work: impl FnOnce(&[&[u8]]) -> Result<(), esker_kv::KvError> + Send,
) -> PyResult<u64> {
    let held: Vec<HeldBytes<'_>> =
        keys.try_iter()?.map(|key| HeldBytes::of(key?)).collect::<PyResult<_>>()?;
    let keys: Vec<&[u8]> = held.iter().map(HeldBytes::as_slice).collect();
    released(py, || {
        let clock = Clock::real();
        let began = clock.now();
        work(&keys)?;
        Ok(clock.now().0 - began.0)
    })
}

/// Nanoseconds of a get of each key.
#[pyfunction]
pub(crate) fn measure_get(py: Python<'_>, kvs: &Kvs, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
    timed(py, keys, |keys| {
        for key in keys {
            black_box(kvs.kvs.get(key)?);
        }
        Ok(())
    })
}

/// Nanoseconds of a put of each key.
#[pyfunction]
pub(crate) fn measure_put(
    py: Python<'_>,
    kvs: &Kvs,
    keys: &Bound<'_, PyAny>,
    value: &[u8],
) -> PyResult<u64> {
    timed(py, keys, |keys| keys.iter().try_for_each(|key| kvs.kvs.put(key, value)))
}

/// Nanoseconds of multi-gets of `size` keys each.
#[pyfunction]
pub(crate) fn measure_get_many(
    py: Python<'_>,
    kvs: &Kvs,
    keys: &Bound<'_, PyAny>,
    size: usize,
) -> PyResult<u64> {
    timed(py, keys, |keys| {
        for part in keys.chunks(size) {
            black_box(kvs.kvs.get_many(part)?);
        }
        Ok(())
    })
}

/// Nanoseconds of a walk over all rows by a cursor, and their number.
#[pyfunction]
pub(crate) fn measure_scan(py: Python<'_>, kvs: &Kvs) -> PyResult<(u64, u64)> {
    released(py, || {
        let clock = Clock::real();
        let began = clock.now();
        let mut cursor = kvs.kvs.cursor()?;
        let mut rows = 0;
        while let Some(row) = cursor.next()? {
            black_box(row);
            rows += 1;
        }
        Ok((clock.now().0 - began.0, rows))
    })
}

/// Nanoseconds of `times` releases of the GIL around nothing.
#[pyfunction]
pub(crate) fn measure_release(py: Python<'_>, times: usize) -> u64 {
    let clock = Clock::real();
    let began = clock.now();
    for turn in 0..times {
        black_box(py.detach(|| black_box(turn)));
    }
    clock.now().0 - began.0
}
