//! The keys that a walk may come to: from a lower to an upper bound.

use std::ops::{Bound, RangeBounds};

use crate::types::spans::after;

/// A lower and an upper bound of keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyBounds {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

fn is_below(key: &[u8], lower: &Bound<Vec<u8>>) -> bool {
    match lower {
        Bound::Included(lower) => key < &lower[..],
        Bound::Excluded(lower) => key <= &lower[..],
        Bound::Unbounded => false,
    }
}

fn is_above(key: &[u8], upper: &Bound<Vec<u8>>) -> bool {
    match upper {
        Bound::Included(upper) => key > &upper[..],
        Bound::Excluded(upper) => key >= &upper[..],
        Bound::Unbounded => false,
    }
}

impl KeyBounds {
    /// The bounds of all keys.
    pub(crate) const NONE: KeyBounds =
        KeyBounds { lower: Bound::Unbounded, upper: Bound::Unbounded };

    /// Those of a range of the caller's. Where it ends before it begins, no key is within.
    pub(crate) fn of<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> KeyBounds {
        let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        KeyBounds { lower: own(range.start_bound()), upper: own(range.end_bound()) }
    }

    /// Those of all keys that begin with `prefix`.
    pub(crate) fn of_prefix(prefix: &[u8]) -> KeyBounds {
        let lower =
            if prefix.is_empty() { Bound::Unbounded } else { Bound::Included(prefix.to_vec()) };
        KeyBounds { lower, upper: after(prefix).map_or(Bound::Unbounded, Bound::Excluded) }
    }

    /// Whether `key` lies before the lower bound.
    pub(crate) fn is_before(&self, key: &[u8]) -> bool {
        is_below(key, &self.lower)
    }

    /// Whether `key` lies behind the upper bound.
    pub(crate) fn is_behind(&self, key: &[u8]) -> bool {
        is_above(key, &self.upper)
    }

    /// Whether a walk in this direction has left the bounds when it comes to `key`.
    pub(crate) fn ends_at(&self, key: &[u8], forward: bool) -> bool {
        if forward { self.is_behind(key) } else { self.is_before(key) }
    }

    /// Whether keys below `key` may be within.
    pub(crate) fn reach_below(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) | Bound::Excluded(lower) => &lower[..] < key,
            Bound::Unbounded => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_what_a_range_or_a_prefix_holds() {
        let keys = [&b""[..], b"a", b"b", b"ba", b"b\xff", b"c", b"\xff", b"\xff\xff"];
        let within = |bounds: &KeyBounds| -> Vec<&[u8]> {
            let is_within = |key: &&[u8]| !bounds.is_before(key) && !bounds.is_behind(key);
            keys.into_iter().filter(is_within).collect()
        };
        for (from, to) in [(0, 3), (1, 1), (3, 2), (2, 7)] {
            let (low, high) = (keys[from], keys[to]);
            let held = |is_within: &dyn Fn(&[u8]) -> bool| -> Vec<&[u8]> {
                keys.into_iter().filter(|key| is_within(key)).collect()
            };
            assert_eq!(within(&KeyBounds::of(&(low..high))), held(&|key| low <= key && key < high));
            assert_eq!(
                within(&KeyBounds::of(&(low..=high))),
                held(&|key| low <= key && key <= high)
            );
            assert_eq!(within(&KeyBounds::of(&(..high))), held(&|key| key < high));
            let open = (Bound::Excluded(low), Bound::<&[u8]>::Unbounded);
            assert_eq!(within(&KeyBounds::of::<&[u8]>(&open)), held(&|key| key > low));
        }
        for prefix in keys {
            let begins = |key: &&[u8]| key.starts_with(prefix);
            let wanted: Vec<&[u8]> = keys.into_iter().filter(begins).collect();
            assert_eq!(within(&KeyBounds::of_prefix(prefix)), wanted);
        }
        assert_eq!(within(&KeyBounds::NONE).len(), keys.len());
        let bounds = KeyBounds::of_prefix(b"b");
        assert!(bounds.reach_below(b"ba") && !bounds.reach_below(b"b") && !bounds.reach_below(b""));
    }
}
