//! Bounds of walks and deletes, as callers give them.

use std::ops::Bound;

use esker_kv::KEY_MAX;
use napi_derive::napi;

use crate::js::Bytes;

/// Keys between two bounds.
#[derive(Clone)]
pub(crate) struct Range {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

/// The bounds of a range: `gte` comes before `gt`, and `lte` before `lt`.
#[napi(object, object_to_js = false)]
pub(crate) struct Bounds {
    /// Keys are at least this.
    pub gte: Option<Bytes>,
    /// Keys are greater than this.
    pub gt: Option<Bytes>,
    /// Keys are at most this.
    pub lte: Option<Bytes>,
    /// Keys are less than this.
    pub lt: Option<Bytes>,
}

impl Range {
    /// A bound that is longer than any key is replaced by its first bytes.
    pub(crate) fn of(bounds: Bounds) -> Range {
        let lower = match (bounds.gte, bounds.gt) {
            (Some(key), _) if key.0.len() > KEY_MAX => Bound::Excluded(cut(key)),
            (Some(key), _) => Bound::Included(key.0),
            (None, Some(key)) => Bound::Excluded(cut(key)),
            (None, None) => Bound::Unbounded,
        };
        let upper = match (bounds.lte, bounds.lt) {
            (Some(key), _) => Bound::Included(cut(key)),
            (None, Some(key)) if key.0.len() > KEY_MAX => Bound::Included(cut(key)),
            (None, Some(key)) => Bound::Excluded(key.0),
            (None, None) => Bound::Unbounded,
        };
        Range { lower, upper }
    }

    /// Whether no key can be within.
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
        }
    }

    /// Whether a key is within.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let lower = match &self.lower {
            Bound::Included(lower) => key >= lower.as_slice(),
            Bound::Excluded(lower) => key > lower.as_slice(),
            Bound::Unbounded => true,
        };
        lower
            && match &self.upper {
                Bound::Included(upper) => key <= upper.as_slice(),
                Bound::Excluded(upper) => key < upper.as_slice(),
                Bound::Unbounded => true,
            }
    }

    pub(crate) fn bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (self.lower.clone(), self.upper.clone())
    }
}

fn cut(mut key: Bytes) -> Vec<u8> {
    key.0.truncate(KEY_MAX);
    key.0
}
