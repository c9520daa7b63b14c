//! Bounds of walks and deletes, as callers give them.

use std::ops::Bound;

use esker_kv::{Cursor, KvError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::bytes::BytesLike;

/// Keys from `start` to before `stop`.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The bounds between two optional keys.
pub(crate) fn between(
    start: Option<&BytesLike<'_, '_>>,
    stop: Option<&BytesLike<'_, '_>>,
) -> Bounds {
    let own = |key: &BytesLike<'_, '_>| key.as_ref().to_vec();
    let start = start.map_or(Bound::Unbounded, |key| Bound::Included(own(key)));
    (start, stop.map_or(Bound::Unbounded, |key| Bound::Excluded(own(key))))
}

/// The keys of a walk.
pub(crate) enum Keyspan {
    Range(Bounds),
    Prefix(Vec<u8>),
}

impl Keyspan {
    /// From the arguments of a walk.
    pub(crate) fn of(
        start: Option<&BytesLike<'_, '_>>,
        stop: Option<&BytesLike<'_, '_>>,
        prefix: Option<&BytesLike<'_, '_>>,
    ) -> PyResult<Keyspan> {
        match prefix {
            None => Ok(Keyspan::Range(between(start, stop))),
            Some(prefix) if start.is_none() && stop.is_none() => {
                Ok(Keyspan::Prefix(prefix.as_ref().to_vec()))
            }
            Some(_) => Err(PyValueError::new_err(
                "a walk has either a prefix or bounds: leave out `prefix`, or `start` and `stop`",
            )),
        }
    }

    /// A cursor within these keys, at the end from which the walk begins.
    pub(crate) fn narrow(&self, cursor: Cursor, reverse: bool) -> Result<Cursor, KvError> {
        let mut cursor = match self {
            Keyspan::Range((Bound::Unbounded, Bound::Unbounded)) => cursor,
            Keyspan::Range(bounds) => cursor.range(bounds.clone())?,
            Keyspan::Prefix(prefix) => cursor.prefix(prefix)?,
        };
        if reverse {
            cursor.seek_to_last()?;
        }
        Ok(cursor)
    }
}
